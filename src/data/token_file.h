/* Token files: tokenized documents in a format that can be memory-mapped.
 *
 * Layout, all integers little-endian:
 *   header      TOKEN_FILE_HEADER bytes, at fixed offsets:
 *                 0 magic "weftTOK\n"      8 u32 version         12 u32 0x01020304
 *                16 u32 bytes per token   20 u32 tokenizer kind  24 u64 vocabulary size
 *                32 u64 fingerprint       40 u64 tokens          48 u64 documents
 *                56 u32 index of the file in its set             60 u32 number of files in the set
 *                64 i32 x 6 special tokens: pad cls sep mask unk end
 *                88 u64 bytes per block   96 u64 checksum of the block checksums
 *               104 u64 sentences (version 2)
 *               248 u64 checksum of the preceding 248 bytes
 *   tokens      u16 if the vocabulary fits, else u32; zero-padded to a multiple of 8 bytes
 *   documents   u64 each: index in this file of a document's first token. Tokens before the first of
 *               them continue the last document of the previous file.
 *   sentences   version 2 only: u32 each, index of a sentence's first token (including the first sentence
 *               of each document); zero-padded to a multiple of 8 bytes
 *   checksums   u64 per block; the blocks cover tokens, documents and sentences together
 *
 * Files without sentence marks use version 1, so that programs that only support version 1 can read them.
 *
 * Integrity is checked in two stages. Opening a file checks that its size matches the header. Blocks are
 * verified before their contents are used: each on first access, or all at once by token_file_verify.
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

/* Identifies the tokenizer that produced a token file. */
typedef struct TokenizerId {
    TokenizerKind kind;
    int64_t vocab;
    uint64_t fingerprint;
    SpecialTokens special;
} TokenizerId;

TokenizerId tokenizer_id(const Tokenizer *tokenizer);
/* Whether both tokenizers encode any text to the same tokens. The byte vocabularies of GPT-2 and BERT do. */
bool tokenizer_id_same(const TokenizerId *a, const TokenizerId *b);
/* Writes "bpe, 50257 tokens, 0123456789abcdef" to the buffer and returns it. */
enum { TOKENIZER_ID_TEXT = 96 };
const char *tokenizer_id_text(const TokenizerId *id, char buffer[TOKENIZER_ID_TEXT]);
/* Refuses a tokenizer that differs from the one in the checkpoint directory. `name` is for messages. */
MUST_USE Status tokenizer_id_check(const TokenizerId *id, const char *name, const char *checkpoint);

typedef struct TokenFileInfo {
    TokenizerId tokenizer;
    int width; /* bytes per token: 2 or 4 */
    int64_t tokens, documents;
    bool marked;          /* the file marks where sentences begin */
    int64_t sentences;    /* number of marks; 0 if not marked */
    int64_t index, count; /* position of the file in its set, and number of files in the set */
} TokenFileInfo;

typedef struct TokenFile TokenFile;

MUST_USE Status token_file_open(TokenFile **ret_token_file, const char *path);
void token_file_free(TokenFile *token_file);
DEFINE_FREEP(TokenFile, token_file)
const TokenFileInfo *token_file_info(const TokenFile *token_file);
const char *token_file_path(const TokenFile *token_file);
/* Reads tokens `at` .. `at + count - 1`, which must exist. Blocks are verified on first access; a damaged
 * block is an error that reports its byte range. Safe to call from several threads. */
MUST_USE Status token_file_read(const TokenFile *token_file, int64_t at, int64_t count, int32_t *out);
/* Token at which document `index` of the file begins. */
MUST_USE Status token_file_document(const TokenFile *token_file, int64_t index, int64_t *ret_start);
/* Token at which sentence `index` of a marked file begins. */
MUST_USE Status token_file_sentence(const TokenFile *token_file, int64_t index, int64_t *ret_start);
/* Index of the first sentence that begins at or after token `at`; the number of sentences if there
 * is none. */
MUST_USE Status token_file_sentence_from(const TokenFile *token_file, int64_t at, int64_t *ret_index);
/* Verifies every block, on all cores, and checks that documents, sentences and tokens are in range. */
MUST_USE Status token_file_verify(const TokenFile *token_file);
size_t token_file_bytes(const TokenFile *token_file); /* file size in bytes */

/* ---- sets of token files: NAME-00000.tokens, NAME-00001.tokens, ... in one directory ---- */

typedef struct TokenFileList {
    char **path;
    size_t count, capacity;
} TokenFileList;

void token_file_list_done(TokenFileList *list);
/* Whether `path` is named like a token file, or is a directory that contains one. */
bool path_has_token_files(const char *path);
/* Appends the token files of set `name` in a directory, in order; appends nothing if the set does not exist.
 * An incomplete set, or one with an extra file, is an error. */
MUST_USE Status token_file_list_dir(TokenFileList *list, const char *dir, const char *name);
/* Appends what a path among the data files stands for: the file itself, or the "train" set of a directory. */
MUST_USE Status token_file_list_add(TokenFileList *list, const char *path);
/* Where weft prepare keeps a copy of the tokenizer: this directory beside a token file. */
#define TOKEN_FILE_TOKENIZER "tokenizer"
MUST_USE Status token_file_tokenizer(const char *path, char **ret_dir);

/* Writes a set of token files. A file gets its final name once it is complete; the set is complete after
 * token_file_set_finish. */
typedef struct TokenFileSet TokenFileSet;

/* `size` limits the bytes of tokens, documents and sentences per file. `marked`: the caller will mark
 * sentences. */
MUST_USE Status token_file_set_new(TokenFileSet **ret_set, const char *dir, const char *name,
                                   const TokenizerId *id, int64_t size, bool marked);
void token_file_set_free(TokenFileSet *set);
DEFINE_FREEP(TokenFileSet, token_file_set)
int token_file_token_width(int64_t vocab);
/* The next token begins a document. */
MUST_USE Status token_file_set_document(TokenFileSet *set);
/* The next token begins a sentence. Implied at the start of a document. */
void token_file_set_sentence(TokenFileSet *set);
/* Appends tokens that are already packed in file format. */
MUST_USE Status token_file_set_add(TokenFileSet *set, const void *tokens, size_t count);
/* Completes the last file and writes the number of files into every header. A set without tokens has no
 * files. */
MUST_USE Status token_file_set_finish(TokenFileSet *set);
int64_t token_file_set_tokens(const TokenFileSet *set);
int64_t token_file_set_documents(const TokenFileSet *set);
int64_t token_file_set_sentences(const TokenFileSet *set);
const TokenFileList *token_file_set_files(const TokenFileSet *set);

#endif
