/* WordPiece, as its files share it: a Tokenizer's model for BERT.
 *
 * A loader fills tokenizer->vocab, adds special tokens and ends with wordpiece_finish. */
#ifndef WEFT_TOKENIZER_WORDPIECE_H
#define WEFT_TOKENIZER_WORDPIECE_H

#include "tokenizer/bert_chars.h"
#include "tokenizer/internal.h"
#include "tokenizer/wordpiece_trie.h"

#define WORDPIECE_INSIDE "##" /* starts a piece that goes on with a word */
#define WORDPIECE_UNK    "[UNK]"
enum { WORDPIECE_WORD_CHARS = 100, WORDPIECE_WORD_LIMIT = 1 << 16 };
/* The special tokens of a BERT: pad, unk, cls, sep, mask. */
enum { WORDPIECE_ROLES = 5, WORDPIECE_ROLE_UNK = 1 };

typedef struct WordPiece {
    BertChars *chars;
    Trie *starts, *insides;  /* pieces that start a word, and what follows ## in the others */
    unsigned char *is_piece; /* by id; not so for tokens that were only added */
    int32_t unk;             /* for words that pieces do not cover */
    int64_t word_chars;      /* words of more are unknown */
    bool clean_up;           /* of spaces, when decoding */
} WordPiece;

typedef struct WordPieceSpec {
    BertSettings settings;
    int64_t word_chars;
    bool clean_up;
    const char *unk;               /* its spelling */
    const unsigned char *is_piece; /* by id; NULL: all are */
} WordPieceSpec;

/* Makes the model of a tokenizer whose vocabulary and added tokens are complete, and finishes it. `roles` are
 * spellings of tokens with a role, NULL for those that have the usual names. `from` is for messages. */
MUST_USE Status wordpiece_finish(Tokenizer *tokenizer, const WordPieceSpec *spec,
                                 const char *const roles[WORDPIECE_ROLES], const char *from);

/* In files of their own. */
MUST_USE Status decode_wordpiece(const Tokenizer *tokenizer, DecodeState *state, int32_t id, Bytes *out);
MUST_USE Status save_wordpiece(const Tokenizer *tokenizer, const char *dir);

#endif
