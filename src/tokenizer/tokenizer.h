/* Tokenizers: text to token ids and back, exactly as GPT-2 and BERT do it.
 *
 * A Tokenizer is loaded once, never changes and may be shared by threads. An Encoder belongs to one
 * thread: it has the scratch memory and the cache of words that make encoding fast. Kinds:
 *   bytes      each byte is its own token: weft's own vocabulary for data without a tokenizer
 *   bpe        GPT-2: text is cut into words by character class, and the bytes of a word are merged pair
 *              by pair. Any bytes can be encoded, and decoding gives the same bytes back.
 *   wordpiece  BERT: text is cleaned, lower-cased and stripped of accents as the vocabulary asks, cut at
 *              spaces and punctuation, and each word is covered with the longest pieces that fit
 * Tokens that were added to a vocabulary (<|endoftext|>, [MASK]) are found in the text before any of
 * this and never cut.
 */
#ifndef WEFT_TOKENIZER_TOKENIZER_H
#define WEFT_TOKENIZER_TOKENIZER_H

#include <stdint.h>

#include "base/status.h"

typedef enum { TOKENIZER_BYTES, TOKENIZER_BPE, TOKENIZER_WORDPIECE } TokenizerKind;

/* Tokens of the byte vocabulary beyond the bytes themselves. */
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

/* Ids with a role; -1: the vocabulary has none. */
typedef struct SpecialTokens {
    int32_t pad, cls, sep, mask;
    int32_t unk, end; /* `end` closes a document: <|endoftext|>; BERT has none and uses sep */
} SpecialTokens;

typedef struct Tokenizer Tokenizer;

/* Loads from a directory (tokenizer.json; else vocab.json and merges.txt; else vocab.txt, with what
 * tokenizer_config.json says of case and accents; to the last two belong the tokens that
 * tokenizer_config.json or added_tokens.json add) or from one of these files by name. What the files
 * cannot mean (duplicate, missing or reordered entries, merges of unknown tokens, other kinds of
 * tokenizer) is refused with the file, the place and what was expected. */
MUST_USE Status tokenizer_load(Tokenizer **ret_tokenizer, const char *path);
/* Whether a directory holds a tokenizer's files at all. */
bool tokenizer_is_there(const char *dir);
/* Each byte a token, then the special ones above; `bert` has all of them, GPT-2 only the end. */
MUST_USE Status tokenizer_new_bytes(Tokenizer **ret_tokenizer, bool bert);
void tokenizer_free(Tokenizer *tokenizer);
DEFINE_FREEP(Tokenizer, tokenizer)
/* Writes the files that transformers loads (tokenizer.json, tokenizer_config.json, and vocab.json with
 * merges.txt, or vocab.txt) into `dir`, which is made where needed. Not for bytes. */
MUST_USE Status tokenizer_save(const Tokenizer *tokenizer, const char *dir);

TokenizerKind tokenizer_kind(const Tokenizer *tokenizer);
const char *tokenizer_kind_name(const Tokenizer *tokenizer); /* "bytes", "bpe", "wordpiece" */
int64_t tokenizer_vocab(const Tokenizer *tokenizer);         /* ids are 0 .. vocab - 1 */
/* Whether a model's vocabulary goes with a tokenizer's: it is as large, or padded by less than this. */
enum { VOCAB_PADDING = 1024, BYTE_PADDING = 256 };
static inline bool tokenizer_fits(int64_t tokens, int64_t model_vocab) {
    return model_vocab >= tokens && model_vocab < tokens + VOCAB_PADDING;
}
SpecialTokens tokenizer_special(const Tokenizer *tokenizer);
/* A number that two tokenizers share only when they give the same ids for every text: it covers the
 * kind, the settings, every token with its id, the merges and the added tokens, and not the form of the
 * files they came from. */
uint64_t tokenizer_fingerprint(const Tokenizer *tokenizer);
/* The id of a token as the vocabulary spells it, -1 when there is none. */
int32_t tokenizer_find(const Tokenizer *tokenizer, const char *token, size_t size);
/* As the vocabulary spells it; not NUL-terminated. */
const char *tokenizer_token(const Tokenizer *tokenizer, int32_t id, size_t *ret_size);

/* ---- encoding ---- */

/* Where a token came from: bytes start .. end - 1 of the text. Hugging Face counts characters instead and
 * widens a place to whole ones, so the tokens that share a character's bytes have places of their own here
 * and the same one there. A BPE token's place has the space it starts with; what was put before the text has
 * none. */
typedef struct TokenPlace {
    size_t start, end;
} TokenPlace;

/* Ids that grow; start with zeroes. `places` is filled only by an encoder that was asked for it. */
typedef struct TokenList {
    int32_t *ids;
    TokenPlace *places;
    size_t count, capacity, place_capacity;
} TokenList;

void token_list_done(TokenList *list);

typedef struct EncodeOptions {
    bool plain;  /* an added token's name in the text is text like any other */
    bool places; /* fill TokenList.places */
} EncodeOptions;

typedef struct Encoder Encoder;

/* The tokenizer must outlive it. NULL options: none. */
MUST_USE Status encoder_new(Encoder **ret_encoder, const Tokenizer *tokenizer, const EncodeOptions *options);
void encoder_free(Encoder *encoder);
DEFINE_FREEP(Encoder, encoder)

/* Appends the tokens of a text, any bytes, to the list; nothing is put before or after them. Fails only
 * for want of memory, or for a BPE word of more than ENCODER_WORD_LIMIT bytes. */
#define ENCODER_WORD_LIMIT ((size_t)64 << 20)
MUST_USE Status encoder_add(Encoder *encoder, const char *text, size_t size, TokenList *list);

/* For texts that come in pieces: the largest n <= size such that encoding the first n bytes and then what
 * follows, whatever it is, gives the ids of the whole; 0 when there is no such place yet. */
size_t encoder_cut(const Encoder *encoder, const char *text, size_t size);

/* ---- decoding ---- */

/* The bytes that ids stand for, with a NUL after them: for bytes and BPE exactly what was encoded; for
 * WordPiece words with spaces between them, as transformers' decode has it, clean-up of spaces included.
 * With `skip_special`, special tokens are left out. An id outside the vocabulary is an error. */
MUST_USE Status tokenizer_decode(const Tokenizer *tokenizer, const int32_t *ids, size_t count,
                                 bool skip_special, char **ret_text, size_t *ret_size);

/* Text as the ids come, for people to read: what is handed out is always valid UTF-8, whole characters
 * only; bytes that are none become U+FFFD, one for each longest part of a character broken off. */
typedef struct Decoder Decoder;

MUST_USE Status decoder_new(Decoder **ret_decoder, const Tokenizer *tokenizer, bool skip_special);
void decoder_free(Decoder *decoder);
DEFINE_FREEP(Decoder, decoder)
/* What is complete after this token, perhaps nothing; valid until the next call. */
MUST_USE Status decoder_push(Decoder *decoder, int32_t id, const char **ret_piece, size_t *ret_size);
/* What is left at the end; afterwards the decoder starts anew. */
MUST_USE Status decoder_end(Decoder *decoder, const char **ret_piece, size_t *ret_size);

/* How many of a text's bytes are part of no character of UTF-8; *ret_first is the first one's place. */
int64_t text_broken(const char *text, size_t size, size_t *ret_first);
/* Bytes as valid UTF-8, in the same way; with a NUL after it. */
MUST_USE Status text_to_utf8(const char *bytes, size_t size, char **ret_text, size_t *ret_size);

#endif
