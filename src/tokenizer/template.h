/* Templates: how special tokens and token types are arranged around a text or a pair of texts.
 *
 * A tokenizer has one template for a single text and one for a pair, both from its post-processor: BERT's are
 * [CLS] A [SEP] and [CLS] A [SEP] B [SEP], where the last two pieces have token type 1. A tokenizer without a
 * post-processor has A and A B. */
#ifndef WEFT_TOKENIZER_TEMPLATE_H
#define WEFT_TOKENIZER_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum { PIECE_TOKEN, PIECE_FIRST, PIECE_SECOND } PieceKind;

typedef struct TemplatePiece {
    PieceKind kind; /* a special token, or all tokens of the first or second text */
    int32_t id;     /* of the special token */
    int32_t type;   /* token type of the whole piece */
} TemplatePiece;

/* Initialize with {0}. */
typedef struct TokenTemplate {
    TemplatePiece *pieces;
    size_t count, capacity;
} TokenTemplate;

/* Tokens of a text, as an argument. */
typedef struct TokenSpan {
    const int32_t *ids;
    int64_t count;
} TokenSpan;

void token_template_done(TokenTemplate *tpl);
MUST_USE Status token_template_add(TokenTemplate *tpl, TemplatePiece piece);
/* Appends the pieces of another template. */
MUST_USE Status token_template_copy(TokenTemplate *tpl, const TokenTemplate *from);
/* Appends [CLS] A [SEP] or [CLS] A [SEP] B [SEP]. */
MUST_USE Status token_template_add_bert(TokenTemplate *tpl, int32_t cls, int32_t sep, bool pair);

bool token_template_same(const TokenTemplate *x, const TokenTemplate *y);
/* Number of special tokens. */
int64_t token_template_special(const TokenTemplate *tpl);
/* Fails unless each text appears exactly once: a pair, or only the first text. */
MUST_USE Status token_template_check_once(const TokenTemplate *tpl, bool pair);

/* Fails if a model with this many token types lacks one that the template uses; 0: the model has no types. */
MUST_USE Status token_template_check_types(const TokenTemplate *tpl, int64_t types);

/* Position of the first piece of this kind (and, for a token, this id) in a sequence whose texts have the
 * given numbers of tokens; -1 if there is none. */
int64_t token_template_find(const TokenTemplate *tpl, PieceKind kind, int32_t id, int64_t first_count,
                            int64_t second_count);
/* Length of such a sequence. */
int64_t token_template_length(const TokenTemplate *tpl, int64_t first_count, int64_t second_count);
/* Writes the sequence and its token types; returns its length. `types` may be NULL. */
int64_t token_template_fill(const TokenTemplate *tpl, TokenSpan first, TokenSpan second, int32_t *tokens,
                            int32_t *types);

#endif
