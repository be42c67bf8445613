/* The WordPiece model of a BERT tokenizer, shared by the wordpiece*.c files.
 *
 * A loader fills tokenizer->vocab, adds the special tokens and calls wordpiece_finish. */
#ifndef WEFT_TOKENIZER_WORDPIECE_H
#define WEFT_TOKENIZER_WORDPIECE_H

#include "tokenizer/bert_chars.h"
#include "tokenizer/internal.h"
#include "tokenizer/wordpiece_trie.h"

#define WORDPIECE_PREFIX "##" /* prefix of a piece that continues a word */
#define WORDPIECE_UNK    "[UNK]"
enum { WORDPIECE_MAX_WORD_CHARS = 100, WORDPIECE_WORD_CHARS_LIMIT = 1 << 16 };
/* BERT's special tokens: pad, unk, cls, sep, mask. */
enum { WORDPIECE_ROLES = 5, WORDPIECE_ROLE_UNK = 1 };

typedef struct WordPiece {
    BertChars *chars;
    Trie *starts, *continuations; /* pieces at the start of a word; pieces that continue one, without ## */
    unsigned char *is_piece;      /* indexed by id; false for tokens that exist only as added tokens */
    int32_t unk;                  /* for words that cannot be split into pieces */
    int64_t max_word_chars;       /* longer words become unk */
    bool joins;                   /* decoding joins pieces; without a decoder, all are separated by spaces */
    bool clean_up;                /* clean up spaces when decoding */
} WordPiece;

typedef struct WordPieceSpec {
    BertSettings settings;
    int64_t max_word_chars;
    bool joins, clean_up;
    const char *unk;               /* spelling of the unknown token */
    const unsigned char *is_piece; /* indexed by id; NULL: all tokens are pieces */
} WordPieceSpec;

/* Builds the model of a tokenizer whose vocabulary and added tokens are complete, then calls
 * tokenizer_finish. `roles` are the spellings of the special tokens; NULL entries have the usual names.
 * `from` is used in errors. */
MUST_USE Status wordpiece_finish(Tokenizer *tokenizer, const WordPieceSpec *spec,
                                 const char *const roles[WORDPIECE_ROLES], const char *from);

/* In wordpiece_decode.c and wordpiece_save.c. */
/* Removes the spaces before punctuation and contractions from the text from `start` on. */
void wordpiece_clean_up(Bytes *text, size_t start);
MUST_USE Status decode_wordpiece(const Tokenizer *tokenizer, DecodeState *state, int32_t id, Bytes *out);
MUST_USE Status save_wordpiece(const Tokenizer *tokenizer, const char *dir);

#endif
