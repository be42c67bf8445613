/* Tokenizers: text to token ids and back, with the same ids as Hugging Face's tokenizers of GPT-2, BERT,
 * Llama, Mistral, Qwen and similar models.
 *
 * A Tokenizer is immutable once loaded, so threads may share it. An Encoder belongs to one thread; it owns
 * the scratch memory and the word cache that make encoding fast. Kinds:
 *
 *   bytes      every byte is a token; weft's built-in vocabulary for data without a tokenizer
 *
 *   bpe        GPT-2's byte-level BPE: the pre-tokenizer splits text into words by character class, then the
 *              bytes of each word are merged pair by pair. Encodes any bytes; decoding restores them exactly.
 *              tokenizer.json may describe another normalizer, pre-tokenizer and decoder, and merge
 *              characters instead of bytes (Llama 2); decoding then restores the normalized text.
 *
 *   wordpiece  BERT: the normalizer cleans text and, if so configured, lowercases it and strips accents; the
 *              pre-tokenizer splits at whitespace and punctuation; each word is split into the longest
 *              matching pieces. tokenizer.json may describe another normalizer, pre-tokenizer and decoder.
 *
 *   wordlevel  each word is a token.
 *
 * Added tokens (<|endoftext|>, [MASK]) are matched in the text before any of this and are never split.
 */
#ifndef WEFT_TOKENIZER_TOKENIZER_H
#define WEFT_TOKENIZER_TOKENIZER_H

#include <stdint.h>

#include "base/status.h"
#include "tokenizer/template.h"

typedef enum { TOKENIZER_BYTES, TOKENIZER_BPE, TOKENIZER_WORDPIECE, TOKENIZER_WORDLEVEL } TokenizerKind;

/* Special tokens of the byte vocabulary, which follow the 256 bytes, and its sizes. */
enum {
    BYTE_END = 256,
    BYTE_PAD = 257,
    BYTE_CLS = 258,
    BYTE_SEP = 259,
    BYTE_MASK = 260,
    BYTE_UNK = 261,
    BYTE_VOCAB_GPT2 = 257,
    BYTE_VOCAB_BERT = 262
};

/* Ids of tokens with a role; -1 if the vocabulary has no such token. */
typedef struct SpecialTokens {
    int32_t pad, cls, sep, mask;
    int32_t unk, end; /* `end` ends a document: <|endoftext|>; -1 for BERT, which uses sep */
} SpecialTokens;

typedef struct Tokenizer Tokenizer;

/* Loads from a directory or from one of these files:
 *   tokenizer.json                 preferred
 *   vocab.json with merges.txt     BPE
 *   vocab.txt                      WordPiece; tokenizer_config.json gives case and accent settings
 * For the last two, added tokens come from tokenizer_config.json or added_tokens.json. Inconsistent files
 * (duplicate or missing ids, merges of unknown tokens) and other kinds of tokenizer are errors that name the
 * file, the location and what was expected. */
MUST_USE Status tokenizer_load(Tokenizer **ret_tokenizer, const char *path);
/* Whether a directory contains tokenizer files. They may still fail to load. */
bool tokenizer_exists(const char *dir);
/* Whether they are those of the byte vocabulary. */
bool tokenizer_is_bytes(const char *dir);
/* The directory of a tokenizer that is named by it or by one of its files. */
MUST_USE Status tokenizer_dir(const char *path, char **ret_dir);
/* Copies a tokenizer's files, unchanged, into the directory `to`, creating it if necessary. */
MUST_USE Status tokenizer_copy(const char *from, const char *to);
/* Whether it is the name of such a file. */
bool tokenizer_is_file(const char *name);
/* The byte vocabulary: 256 bytes, then BYTE_END; with `bert`, the other special tokens above as well. */
MUST_USE Status tokenizer_new_bytes(Tokenizer **ret_tokenizer, bool bert);
void tokenizer_free(Tokenizer *tokenizer);
DEFINE_FREEP(Tokenizer, tokenizer)
/* Writes the files that transformers loads (tokenizer.json, tokenizer_config.json, and vocab.json with
 * merges.txt or vocab.txt) to `dir`, creating it if necessary. */
MUST_USE Status tokenizer_save(const Tokenizer *tokenizer, const char *dir);

TokenizerKind tokenizer_kind(const Tokenizer *tokenizer);
const char *tokenizer_kind_text(TokenizerKind kind);         /* "bytes", "bpe", "wordpiece", "wordlevel" */
const char *tokenizer_kind_name(const Tokenizer *tokenizer); /* the same of a tokenizer */
int64_t tokenizer_vocab(const Tokenizer *tokenizer);         /* number of ids: 0 .. vocab - 1 */
/* A model's vocabulary may be padded: it matches a tokenizer with the same number of tokens, or with fewer if
 * the difference is below VOCAB_PADDING (BYTE_PADDING for the byte vocabulary). */
enum { VOCAB_PADDING = 1024, BYTE_PADDING = 256 };
static inline bool tokenizer_fits(int64_t tokens, int64_t model_vocab) {
    return model_vocab >= tokens && model_vocab < tokens + VOCAB_PADDING;
}
SpecialTokens tokenizer_special(const Tokenizer *tokenizer);
/* The post-processor's template for a single text or a pair. Owned by the tokenizer. */
const TokenTemplate *tokenizer_template(const Tokenizer *tokenizer, bool pair);
/* A hash of everything that determines the ids of a text: kind, settings, vocabulary, merges and added
 * tokens, but not the post-processor. It does not depend on the file format the tokenizer was loaded from. */
uint64_t tokenizer_fingerprint(const Tokenizer *tokenizer);
/* The id of a token, spelled as in the vocabulary; -1 if not found. */
int32_t tokenizer_find(const Tokenizer *tokenizer, const char *token, size_t size);
/* The token's spelling in the vocabulary, not NUL-terminated; NULL and size 0 for an invalid id. Owned by the
 * tokenizer. */
const char *tokenizer_token(const Tokenizer *tokenizer, int32_t id, size_t *ret_size);

/* ---- for exporters ---- */

/* Added tokens are matched in text before it is split; special ones are those that skip_special omits. */
typedef enum { TOKEN_NORMAL, TOKEN_ADDED, TOKEN_SPECIAL } TokenClass;
TokenClass tokenizer_class(const Tokenizer *tokenizer, int32_t id);
/* The token's spelling, with GPT-2's characters for the bytes of the byte vocabulary; the caller frees it. */
MUST_USE Status tokenizer_spelling(const Tokenizer *tokenizer, int32_t id, char **ret_text);
/* BPE's merges in order, as "left right"; none for other kinds. The caller frees *ret_text. */
size_t tokenizer_merge_count(const Tokenizer *tokenizer);
MUST_USE Status tokenizer_merge(const Tokenizer *tokenizer, size_t rank, char **ret_text);
/* Whether a tokenizer is GPT-2's byte-level BPE and splits text alike, or BERT's WordPiece, or bytes. */
bool tokenizer_is_plain(const Tokenizer *tokenizer);
/* Whether a token is a piece that continues a word. */
bool tokenizer_continues(const Tokenizer *tokenizer, int32_t id);
/* The settings of BERT's WordPiece tokenizer. */
void tokenizer_normalizer(const Tokenizer *tokenizer, bool *ret_lowercase, bool *ret_strip_accents);

/* ---- encoding ---- */

/* The bytes start .. end - 1 of the text that a token came from. Hugging Face's offsets count characters
 * and cover them completely, so tokens that share a multi-byte character have equal offsets there and
 * distinct ones here. A BPE token's offsets include its leading space (unless the post-processor trims
 * offsets), but not a space that add_prefix_space inserted; alone, that is at the first character. */
typedef struct TokenOffset {
    size_t start, end;
} TokenOffset;

/* A growable array of ids; initialize with {0}. `offsets` is filled only with EncodeOptions.offsets, `types`
 * only by encoder_add_sequence with EncodeOptions.types. */
typedef struct TokenList {
    int32_t *ids;
    TokenOffset *offsets;
    int32_t *types; /* token types */
    size_t count, capacity, offset_capacity, type_capacity;
} TokenList;

void token_list_done(TokenList *list);

typedef struct EncodeOptions {
    bool plain;   /* do not match added tokens: their names are ordinary text */
    bool offsets; /* fill TokenList.offsets */
    bool types;   /* fill TokenList.types */
} EncodeOptions;

typedef struct Encoder Encoder;

/* The tokenizer must outlive the encoder. `options` may be NULL for the defaults. */
MUST_USE Status encoder_new(Encoder **ret_encoder, const Tokenizer *tokenizer, const EncodeOptions *options);
void encoder_free(Encoder *encoder);
DEFINE_FREEP(Encoder, encoder)

/* Appends the tokens of a text (any bytes) to the list, without the post-processor's special tokens. Fails
 * only if memory runs out or a BPE word exceeds ENCODER_WORD_LIMIT bytes; the list is then unchanged. */
#define ENCODER_WORD_LIMIT ((size_t)64 << 20)
MUST_USE Status encoder_add(Encoder *encoder, const char *text, size_t size, TokenList *list);

/* The same for text that continues an earlier one, which encoder_cut ended: nothing is inserted at its start.
 */
MUST_USE Status encoder_add_more(Encoder *encoder, const char *text, size_t size, TokenList *list);

typedef struct TextView {
    const char *data;
    size_t size;
} TextView;

/* Appends a text, or a pair of texts unless `second` is NULL, arranged by the post-processor: Hugging Face's
 * encode(first, second, add_special_tokens=special). Offsets of a token refer to its own text; those of a
 * special token are 0 and 0. */
MUST_USE Status encoder_add_sequence(Encoder *encoder, TextView first, const TextView *second, bool special,
                                     TokenList *list);

/* For streaming: the largest n <= size for which encoding the first n bytes and then the remaining text
 * (encoder_add_more) yields the same ids as encoding them together, whatever text follows; 0 if there is no
 * such n yet. */
size_t encoder_cut(const Encoder *encoder, const char *text, size_t size);

/* ---- decoding ---- */

/* Decodes ids to NUL-terminated text, which the caller frees; *ret_size excludes the NUL. Bytes and GPT-2's
 * BPE restore exactly what was encoded; WordPiece joins words with spaces and cleans up spacing, as
 * transformers does. `skip_special` omits special tokens. An id outside the vocabulary is an error. */
MUST_USE Status tokenizer_decode(const Tokenizer *tokenizer, const int32_t *ids, size_t count,
                                 bool skip_special, char **ret_text, size_t *ret_size);

/* Streaming decoder for display. Its output is always valid UTF-8 and never ends inside a character. Invalid
 * bytes become U+FFFD, one per maximal prefix of a truncated character. */
typedef struct Decoder Decoder;

MUST_USE Status decoder_new(Decoder **ret_decoder, const Tokenizer *tokenizer, bool skip_special);
void decoder_free(Decoder *decoder);
DEFINE_FREEP(Decoder, decoder)
/* Returns the text that this token completes, possibly empty; valid until the next call. */
MUST_USE Status decoder_push(Decoder *decoder, int32_t id, const char **ret_piece, size_t *ret_size);
/* Flushes the remaining text and resets the decoder. */
MUST_USE Status decoder_end(Decoder *decoder, const char **ret_piece, size_t *ret_size);

/* The number of bytes that are not valid UTF-8. *ret_first is the offset of the first one, or untouched if
 * there is none. */
int64_t text_invalid_utf8(const char *text, size_t size, size_t *ret_first);
/* Converts bytes to valid, NUL-terminated UTF-8 with U+FFFD as above; the caller frees it. */
MUST_USE Status text_to_utf8(const char *bytes, size_t size, char **ret_text, size_t *ret_size);

#endif
