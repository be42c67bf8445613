/* The pre-tokenizer of a tokenizer other than GPT-2's and BERT's: Split, Digits, Punctuation, Whitespace,
 * WhitespaceSplit, CharDelimiterSplit, BertPreTokenizer, Metaspace and ByteLevel, and Sequences of them. Each
 * step splits every piece that the step before it left; Metaspace and ByteLevel also change the text. Where
 * ByteLevel comes last, weft can merge bytes rather than the characters that it spells them with. */
#ifndef WEFT_TOKENIZER_PRETOKENIZER_H
#define WEFT_TOKENIZER_PRETOKENIZER_H

#include "tokenizer/regex.h"

typedef struct Pretokenizer Pretokenizer;

/* From the component of tokenizer.json, which may be null. Other types are errors. */
MUST_USE Status pretokenizer_new(Pretokenizer **ret_pre, const json_t *json, const char *from);
void pretokenizer_free(Pretokenizer *pre);
DEFINE_FREEP(Pretokenizer, pretokenizer)

/* Whether the last step is ByteLevel, and the only such. */
bool pretokenizer_is_byte_level(const Pretokenizer *pre);
/* ByteLevel then spells bytes with characters, as its steps that are not the last one always do. */
void pretokenizer_spell_bytes(Pretokenizer *pre);
/* The character that Metaspace replaces spaces with, as the size and bytes of its UTF-8; NULL if there is
 * none. */
const char *pretokenizer_space(const Pretokenizer *pre, size_t *ret_size);

/* Whether a piece is changed only at the start of the whole text. */
bool pretokenizer_prefixes(const Pretokenizer *pre);
/* Whether the first step starts a piece at every space. */
bool pretokenizer_splits_spaces(const Pretokenizer *pre);

typedef struct Piece {
    const char *text;
    size_t size;
    const TokenOffset *offsets; /* per byte; NULL: byte i is at base + i */
    size_t base;
    bool starts; /* its first character comes from the start of the whole text */
} Piece;

static inline TokenOffset piece_offset(const Piece *piece, size_t start, size_t end) {
    if (!piece->offsets) return (TokenOffset){piece->base + start, piece->base + end};
    return (TokenOffset){piece->offsets[start].start, piece->offsets[end - 1].end};
}

/* Workspace; initialize with {0}. */
typedef struct PretokenizerScratch {
    RegexScratch regex;
    NormalText *buffers, *spelled; /* one per step */
    size_t count;
} PretokenizerScratch;

void pretokenizer_scratch_done(PretokenizerScratch *scratch);

typedef Status (*VisitPiece)(void *context, const Piece *piece);

/* Visits the pieces of a text in order. `offsets`: pieces whose text was changed need offsets. */
MUST_USE Status pretokenizer_run(const Pretokenizer *pre, PretokenizerScratch *scratch, const Piece *text,
                                 bool offsets, VisitPiece visit, void *context);
/* Whether pieces do not tell where text may be cut, but the caller may cut before a space that follows
 * another character. */
bool pretokenizer_leaves_spaces(const Pretokenizer *pre);
/* Otherwise, the largest n <= size, followed by an ASCII character, for which the first n bytes and the
 * remaining text have the same pieces separately as together, whatever follows these `size` bytes; 0 if none
 * is known. */
MUST_USE Status pretokenizer_cut(const Pretokenizer *pre, PretokenizerScratch *scratch, const char *text,
                                 size_t size, size_t *ret_cut);

#endif
