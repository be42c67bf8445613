/* Token shards: files that hold the tokens of documents, ready to be mapped.
 *
 * Layout, all numbers little-endian:
 *   header      TOKEN_FILE_HEADER bytes, at fixed places:
 *                 0 magic "weftTOK\n"    8 u32 version       12 u32 0x01020304
 *                16 u32 bytes a token   20 u32 tokenizer kind  24 u64 vocabulary  32 u64 fingerprint
 *                40 u64 tokens          48 u64 documents
 *                56 u32 index and 60 u32 count of the set's shards
 *                64 i32 x 6 special tokens: pad cls sep mask unk end
 *                88 u64 bytes of a block  96 u64 checksum of the checksums
 *               104 u64 sentences (version 2)
 *               248 u64 checksum of the 248 bytes before it
 *   tokens      u16 where the vocabulary fits, else u32; then zeroes up to a multiple of 8
 *   documents   u64 each: the place in this shard of a document's first token. Tokens before the first of
 *               these go on with the last document of the shard before.
 *   sentences   version 2 alone: u32 each, the place of a sentence's first token, documents' first ones
 *               included; then zeroes up to a multiple of 8
 *   checksums   u64 for each block of all these together
 *
 * Shards without sentences are of version 1, so that programs that know no other read them.
 *
 * A shard is checked in two ways. What the header says is held against the file's size when it is opened.
 * The blocks are verified before anything in them is used: each when it is first read from, or all at once
 * by token_file_verify.
 */
#ifndef WEFT_DATA_TOKEN_FILE_H
#define WEFT_DATA_TOKEN_FILE_H

#include <stdint.h>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

#define TOKEN_FILE_SUFFIX ".tokens"
enum {
    TOKEN_FILE_HEADER = 256,
    TOKEN_FILE_VERSION = 1,
    TOKEN_FILE_VERSION_MARKED = 2,
    TOKEN_FILE_BLOCK = 1 << 20
};

/* What tokenizer a shard's tokens are of. */
typedef struct TokenizerId {
    TokenizerKind kind;
    int64_t vocab;
    uint64_t fingerprint;
    SpecialTokens special;
} TokenizerId;

TokenizerId tokenizer_id(const Tokenizer *tokenizer);
/* Whether both give the same tokens for the same text. The byte vocabularies of GPT-2 and BERT do. */
bool tokenizer_id_same(const TokenizerId *a, const TokenizerId *b);
/* "bpe, 50257 tokens, 0123456789abcdef", into a buffer that is returned. */
enum { TOKENIZER_ID_TEXT = 96 };
const char *tokenizer_id_text(const TokenizerId *id, char buffer[TOKENIZER_ID_TEXT]);

typedef struct TokenFileInfo {
    TokenizerId tokenizer;
    int width; /* bytes a token: 2 or 4 */
    int64_t tokens, documents;
    bool marked;          /* it says where sentences begin... */
    int64_t sentences;    /* ...so many of them */
    int64_t index, count; /* which of how many shards of its set */
} TokenFileInfo;

typedef struct TokenFile TokenFile;

MUST_USE Status token_file_open(TokenFile **ret_shard, const char *path);
void token_file_free(TokenFile *token_file);
DEFINE_FREEP(TokenFile, token_file)
const TokenFileInfo *token_file_info(const TokenFile *token_file);
const char *token_file_path(const TokenFile *token_file);
/* Tokens `at` .. `at + count - 1`, which must be there. Blocks that are read for the first time are verified,
 * so a damaged one is an error that says where. Threads may read at once. */
MUST_USE Status token_file_read(const TokenFile *token_file, int64_t at, int64_t count, int32_t *out);
/* Where document `index` of the shard begins. */
MUST_USE Status token_file_document(const TokenFile *token_file, int64_t index, int64_t *ret_start);
/* Where sentence `index` of a marked shard begins. */
MUST_USE Status token_file_sentence(const TokenFile *token_file, int64_t index, int64_t *ret_start);
/* The number of the first sentence that begins at token `at` or after it. */
MUST_USE Status token_file_sentence_from(const TokenFile *token_file, int64_t at, int64_t *ret_index);
/* Verifies every block, on all cores, and that documents, sentences and tokens are in range. */
MUST_USE Status token_file_verify(const TokenFile *token_file);
size_t token_file_bytes(const TokenFile *token_file); /* of the file */

/* ---- sets of shards: NAME-00000.tokens and so on in one directory ---- */

typedef struct TokenFileList {
    char **path;
    size_t count, capacity;
} TokenFileList;

void token_file_list_done(TokenFileList *list);
/* Whether a path is a shard by its name, or a directory that holds some. */
bool token_file_is_there(const char *path);
/* The shards of the set `name` in a directory, in order; none when there are none. A set that lacks one, or
 * has one too many, is an error. */
MUST_USE Status token_file_list_dir(TokenFileList *list, const char *dir, const char *name);
/* What `--data PATH` means: the file, or the directory's set "train". */
MUST_USE Status token_file_list_add(TokenFileList *list, const char *path);

/* Writes a set. Each shard is whole when it has its name; the set is after token_file_set_finish. */
typedef struct TokenFileSet TokenFileSet;

/* `size` bounds the bytes of tokens, documents and sentences in one shard; `marked`: sentences will be told.
 */
MUST_USE Status token_file_set_new(TokenFileSet **ret_set, const char *dir, const char *name,
                                   const TokenizerId *id, int64_t size, bool marked);
void token_file_set_free(TokenFileSet *set);
DEFINE_FREEP(TokenFileSet, token_file_set)
int token_file_token_width(int64_t vocab);
/* The next token begins a document. */
MUST_USE Status token_file_set_document(TokenFileSet *set);
/* The next token begins a sentence, which a document's first does without saying. */
void token_file_set_sentence(TokenFileSet *set);
/* Tokens as they will lie in the file. */
MUST_USE Status token_file_set_add(TokenFileSet *set, const void *tokens, size_t count);
/* Completes the last shard and writes into each how many there are. A set without tokens has none. */
MUST_USE Status token_file_set_finish(TokenFileSet *set);
int64_t token_file_set_tokens(const TokenFileSet *set);
int64_t token_file_set_documents(const TokenFileSet *set);
int64_t token_file_set_sentences(const TokenFileSet *set);
const TokenFileList *token_file_set_files(const TokenFileSet *set);

#endif
