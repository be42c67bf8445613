/* Added tokens in a text. Hugging Face looks for them twice: first for those that are not normalized, in
 * the whole text, then for the others, in what the first have left over. Each time the leftmost match
 * wins and of those the longest; a match that single_word refuses is passed over; lstrip and rstrip take
 * white space along. Here both passes run over the text as it is: a kind that changes text before it looks
 * for normalized tokens must see to it that this makes no difference.
 *
 * An index is a sorted list of tokens. Matching at a place narrows a range of it byte by byte; a token
 * whose bytes are used up stands first in its range, so the last one seen is the longest.
 */
#include "tokenizer/internal.h"

typedef struct Match {
    const AddedToken *token; /* NULL: none */
    size_t start, end;       /* the name alone */
    bool open;               /* more text could make it another or a longer one */
} Match;

/* ---- the index ---- */

static int by_spelling(const void *a, const void *b, void *context) {
    const Vocab *vocab = context;
    size_t size_a, size_b;
    const char *text_a = vocab_token(vocab, ((const AddedToken *)a)->id, &size_a);
    const char *text_b = vocab_token(vocab, ((const AddedToken *)b)->id, &size_b);
    int order = memcmp(text_a, text_b, size_a < size_b ? size_a : size_b);
    return order ? order : (size_a > size_b) - (size_a < size_b);
}

static int by_id(const void *a, const void *b) {
    int32_t id_a = ((const AddedToken *)a)->id, id_b = ((const AddedToken *)b)->id;
    return (id_a > id_b) - (id_a < id_b);
}

static Status index_fill(AddedIndex *index, Tokenizer *tokenizer, bool normalized) {
    TRY(mem_new(tokenizer->added_count, sizeof *index->tokens, &index->tokens));
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].normalized == normalized) index->tokens[index->count++] = tokenizer->added[i];
    if (index->count > 0)
        qsort_r(index->tokens, index->count, sizeof *index->tokens, by_spelling, &tokenizer->vocab);
    for (size_t i = 0; i < index->count; i++) {
        size_t size;
        unsigned char first = (unsigned char)*vocab_token(&tokenizer->vocab, index->tokens[i].id, &size);
        index->first[first + 1]++;
    }
    index->only = -1;
    for (int i = 0; i < 256; i++) {
        if (index->count > 0 && index->first[i + 1] == index->count) index->only = i;
        index->first[i + 1] += index->first[i];
    }
    return OK;
}

Status added_sort(Tokenizer *tokenizer, const char *from) {
    if (tokenizer->added_count > 0)
        qsort(tokenizer->added, tokenizer->added_count, sizeof *tokenizer->added, by_id);
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const AddedToken *token = &tokenizer->added[i];
        if (i > 0 && token[-1].id == token->id) {
            size_t size;
            const char *text = vocab_token(&tokenizer->vocab, token->id, &size);
            return FAILED("%s: token '%.*s' is added twice", from, size > 60 ? 60 : (int)size, text);
        }
        tokenizer->strips |= token->lstrip || token->rstrip;
        tokenizer->single_words |= token->single_word;
    }
    TRY(index_fill(&tokenizer->literal, tokenizer, false));
    return index_fill(&tokenizer->normalized, tokenizer, true);
}

/* ---- matching ---- */

/* The byte of a token at a depth; -1 past its end. */
static int byte_at(const Tokenizer *tokenizer, const AddedToken *token, size_t depth) {
    size_t size;
    const char *text = vocab_token(&tokenizer->vocab, token->id, &size);
    return depth < size ? (unsigned char)text[depth] : -1;
}

/* The first in low .. high - 1 whose byte at the depth is not below `byte`. */
static size_t lower(const Tokenizer *tokenizer, const AddedIndex *index, size_t low, size_t high,
                    size_t depth, int byte) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (byte_at(tokenizer, &index->tokens[middle], depth) < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token at place `at`. */
static Match match_at(const Tokenizer *tokenizer, const AddedIndex *index, const char *text, size_t size,
                      size_t at) {
    Match match = {.start = at};
    int byte = (unsigned char)text[at];
    size_t low = index->first[byte], high = index->first[byte + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (byte_at(tokenizer, &index->tokens[low], depth) < 0) {
            match.token = &index->tokens[low++];
            match.end = at + depth;
        }
        if (at + depth == size) {
            match.open = low < high;
            break;
        }
        byte = (unsigned char)text[at + depth];
        low = lower(tokenizer, index, low, high, depth, byte);
        high = lower(tokenizer, index, low, high, depth, byte + 1);
    }
    return match;
}

/* The first place from `at` on where a token stands, or (with `open`) could stand after more text. */
static Match match_next(const Tokenizer *tokenizer, const AddedIndex *index, const char *text, size_t size,
                        size_t at, bool open) {
    for (; index->count > 0 && at < size; at++) {
        if (index->only >= 0) {
            const char *found = memchr(text + at, index->only, size - at);
            if (!found) break;
            at = (size_t)(found - text);
        } else if (index->first[(unsigned char)text[at]] == index->first[(unsigned char)text[at] + 1]) {
            continue;
        }
        Match match = match_at(tokenizer, index, text, size, at);
        if (match.token || (open && match.open)) return match;
    }
    return (Match){.start = size, .end = size};
}

/* Whether single_word lets the match be. */
static bool stands_alone(const char *text, size_t size, const Match *match) {
    uint32_t c;
    if (match->start > 0) {
        utf8_previous(text, match->start, &c);
        if (char_is_word(c)) return false;
    }
    if (match->end == size) return true;
    utf8_next(text + match->end, size - match->end, &c);
    return !char_is_word(c);
}

/* Where white space before `at` starts, and where white space from `at` on ends. */
static size_t spaces_before(const char *text, size_t at, size_t floor) {
    while (at > floor) {
        uint32_t c;
        size_t bytes = utf8_previous(text + floor, at - floor, &c);
        if (!char_is_space(c)) break;
        at -= bytes;
    }
    return at;
}

static size_t spaces_after(const char *text, size_t size, size_t at) {
    while (at < size) {
        uint32_t c;
        size_t bytes = utf8_next(text + at, size - at, &c);
        if (!char_is_space(c)) break;
        at += bytes;
    }
    return at;
}

/* ---- encoding ---- */

/* Visits a piece: a token's place, or what no token of this pass claims (token NULL). */
typedef Status (*VisitPiece)(Encoder *encoder, const char *text, size_t start, size_t end,
                             const AddedToken *token, TokenList *list);

static Status split(Encoder *encoder, const AddedIndex *index, const char *text, size_t from, size_t to,
                    VisitPiece visit, TokenList *list) {
    const Tokenizer *tokenizer = encoder->tokenizer;
    const char *span = text + from;
    size_t size = to - from, done = 0;
    for (size_t at = 0;;) {
        Match match = match_next(tokenizer, index, span, size, at, false);
        if (!match.token) break;
        at = match.end;
        if (match.token->single_word && !stands_alone(span, size, &match)) continue;
        size_t start = match.start, end = match.end;
        if (start < done) continue; /* in white space that the token before has taken */
        if (match.token->lstrip) start = spaces_before(span, start, done);
        if (match.token->rstrip) end = spaces_after(span, size, end);
        if (done < start) TRY(visit(encoder, text, from + done, from + start, NULL, list));
        TRY(visit(encoder, text, from + start, from + end, match.token, list));
        done = end;
    }
    return done < size ? visit(encoder, text, from + done, to, NULL, list) : OK;
}

static Status put_added(Encoder *encoder, size_t start, size_t end, const AddedToken *token,
                        TokenList *list) {
    TRY(token_list_reserve(list, 1, encoder->options.places));
    if (encoder->options.places)
        token_list_put_place(list, token->id, start, end);
    else
        token_list_put(list, token->id);
    return OK;
}

static Status visit_second(Encoder *encoder, const char *text, size_t start, size_t end,
                           const AddedToken *token, TokenList *list) {
    if (token) return put_added(encoder, start, end, token, list);
    return encoder->tokenizer->ops->encode(encoder, text + start, end - start, start, list);
}

static Status visit_first(Encoder *encoder, const char *text, size_t start, size_t end,
                          const AddedToken *token, TokenList *list) {
    if (token) return put_added(encoder, start, end, token, list);
    return split(encoder, &encoder->tokenizer->normalized, text, start, end, visit_second, list);
}

Status added_encode(Encoder *encoder, const char *text, size_t size, TokenList *list) {
    if (size == 0) return OK;
    return split(encoder, &encoder->tokenizer->literal, text, 0, size, visit_first, list);
}

/* ---- cutting ---- */

/* Follows the matches of one pass over bytes from .. size - 1 as far as they are certain whatever comes
 * next and lie before `limit`: ret_start is where the last ends, ret_end where the first uncertain one
 * could start. */
static void certain(const Tokenizer *tokenizer, const AddedIndex *index, const char *text, size_t size,
                    size_t from, size_t limit, size_t *ret_start, size_t *ret_end) {
    size_t done = from, at = from;
    for (;;) {
        Match match = match_next(tokenizer, index, text, size, at, true);
        size_t start = match.start, end = match.end;
        bool sure = match.token && !match.open;
        if (sure && match.token->rstrip) end = spaces_after(text, size, end);
        if (sure && (match.token->rstrip || match.token->single_word)) {
            size_t unfinished = utf8_unfinished(text, size);
            sure = end < size - unfinished;
        }
        if (!sure || end > limit) {
            *ret_start = done;
            *ret_end = start < limit ? start : limit;
            if (tokenizer->strips) *ret_end = spaces_before(text, *ret_end, done);
            return;
        }
        at = match.end;
        Match inside = match;
        inside.start -= from;
        inside.end -= from;
        if (match.token->single_word && !stands_alone(text + from, size - from, &inside)) continue;
        if (start >= done) done = end;
    }
}

void added_last_span(const Tokenizer *tokenizer, const char *text, size_t size, size_t *ret_start,
                     size_t *ret_end) {
    size_t start, end;
    certain(tokenizer, &tokenizer->literal, text, size, 0, size, &start, &end);
    certain(tokenizer, &tokenizer->normalized, text, size, start, end, ret_start, ret_end);
}

bool added_touches(const Tokenizer *tokenizer, const char *text, size_t size, size_t cut, size_t from) {
    if (!tokenizer->single_words) return false;
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        size_t name;
        const char *token = vocab_token(&tokenizer->vocab, tokenizer->added[i].id, &name);
        if (!tokenizer->added[i].single_word) continue;
        if (size - cut >= name ? !memcmp(text + cut, token, name) : !memcmp(text + cut, token, size - cut))
            return true;
        if (cut - from >= name && !memcmp(text + cut - name, token, name)) return true;
    }
    return false;
}
