#include "tokenizer/template.h"

#include <string.h>

#include "base/memory.h"

void token_template_done(TokenTemplate *tpl) {
    free(tpl->pieces);
    *tpl = (TokenTemplate){0};
}

Status token_template_add(TokenTemplate *tpl, TemplatePiece piece) {
    TRY(mem_grow(&tpl->pieces, &tpl->capacity, tpl->count + 1, sizeof piece));
    tpl->pieces[tpl->count++] = piece;
    return OK;
}

Status token_template_copy(TokenTemplate *tpl, const TokenTemplate *from) {
    for (size_t i = 0; i < from->count; i++) TRY(token_template_add(tpl, from->pieces[i]));
    return OK;
}

Status token_template_add_bert(TokenTemplate *tpl, int32_t cls, int32_t sep, bool pair) {
    const TemplatePiece pieces[] = {
        {PIECE_TOKEN, cls, 0}, {PIECE_FIRST, 0, 0},   {PIECE_TOKEN, sep, 0},
        {PIECE_SECOND, 0, 1},  {PIECE_TOKEN, sep, 1},
    };
    for (int i = 0; i < (pair ? 5 : 3); i++) TRY(token_template_add(tpl, pieces[i]));
    return OK;
}

bool token_template_same(const TokenTemplate *x, const TokenTemplate *y) {
    bool same = x->count == y->count;
    for (size_t i = 0; same && i < x->count; i++) {
        const TemplatePiece *a = &x->pieces[i], *b = &y->pieces[i];
        same = a->kind == b->kind && a->id == b->id && a->type == b->type;
    }
    return same;
}

static int64_t count_kind(const TokenTemplate *tpl, PieceKind kind) {
    int64_t count = 0;
    for (size_t i = 0; i < tpl->count; i++) count += tpl->pieces[i].kind == kind;
    return count;
}

int64_t token_template_special(const TokenTemplate *tpl) {
    return count_kind(tpl, PIECE_TOKEN);
}

Status token_template_check_once(const TokenTemplate *tpl, bool pair) {
    int64_t first = count_kind(tpl, PIECE_FIRST), second = count_kind(tpl, PIECE_SECOND);
    if (first == 1 && second == pair) return OK;
    return USAGE("the tokenizer's post-processor uses the %s text of a %s %lld times; expected once",
                 first == 1 ? "second" : "first", pair ? "pair" : "sequence",
                 (long long)(first == 1 ? second : first));
}

Status token_template_check_types(const TokenTemplate *tpl, int64_t types) {
    for (size_t i = 0; types > 0 && i < tpl->count; i++)
        if (tpl->pieces[i].type >= types)
            return USAGE("the tokenizer's post-processor assigns token type %d, but the model has only %lld "
                         "token type%s",
                         tpl->pieces[i].type, (long long)types, types == 1 ? "" : "s");
    return OK;
}

static int64_t piece_length(const TemplatePiece *piece, int64_t first_count, int64_t second_count) {
    return piece->kind == PIECE_FIRST ? first_count : piece->kind == PIECE_SECOND ? second_count : 1;
}

int64_t token_template_find(const TokenTemplate *tpl, PieceKind kind, int32_t id, int64_t first_count,
                            int64_t second_count) {
    int64_t at = 0;
    for (size_t i = 0; i < tpl->count; i++) {
        const TemplatePiece *piece = &tpl->pieces[i];
        if (piece->kind == kind && (kind != PIECE_TOKEN || piece->id == id)) return at;
        at += piece_length(piece, first_count, second_count);
    }
    return -1;
}

int64_t token_template_length(const TokenTemplate *tpl, int64_t first_count, int64_t second_count) {
    int64_t length = 0;
    for (size_t i = 0; i < tpl->count; i++)
        length += piece_length(&tpl->pieces[i], first_count, second_count);
    return length;
}

int64_t token_template_fill(const TokenTemplate *tpl, TokenSpan first, TokenSpan second, int32_t *tokens,
                            int32_t *types) {
    int64_t at = 0;
    for (size_t i = 0; i < tpl->count; i++) {
        const TemplatePiece *piece = &tpl->pieces[i];
        const int32_t *ids = piece->kind == PIECE_FIRST    ? first.ids
                             : piece->kind == PIECE_SECOND ? second.ids
                                                           : &piece->id;
        int64_t count = piece_length(piece, first.count, second.count);
        if (count > 0) memcpy(tokens + at, ids, (size_t)count * sizeof *tokens);
        for (int64_t t = 0; types && t < count; t++) types[at + t] = piece->type;
        at += count;
    }
    return at;
}
