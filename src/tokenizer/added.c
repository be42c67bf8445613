/* Matching of added tokens. As in Hugging Face's tokenizers there are two passes: the first matches tokens
 * that are not normalized in the original text; the second matches normalized tokens in the spans left over.
 * In each pass the leftmost match wins, then the longest. Matches rejected by single_word are skipped; lstrip
 * and rstrip extend a match over whitespace. If the kind has a normalizer (BERT), the second pass works on
 * normalized text and normalized token names, and the kind encodes the remaining normalized text.
 *
 * An index is a sorted list of tokens. Matching at an offset narrows a range of it byte by byte. A token that
 * ends at the current depth sorts first in the range, so the last such token seen is the longest match.
 */
#include "tokenizer/internal.h"

typedef struct Match {
    const AddedToken *token; /* NULL: no match */
    size_t start, end;       /* without whitespace from lstrip and rstrip */
    bool open;               /* more text could start or lengthen a match here */
} Match;

/* ---- the index ---- */

/* Normalization can make names equal; then the first in this order matches, which is the token with the last
 * id. Hugging Face's tokenizers takes any of them, by the order of a hash table. */
static int by_name(const void *a, const void *b) {
    const AddedToken *x = a, *y = b;
    int order = memcmp(x->name, y->name, x->name_size < y->name_size ? x->name_size : y->name_size);
    if (order == 0) order = (x->name_size > y->name_size) - (x->name_size < y->name_size);
    return order ? order : (x->id < y->id) - (x->id > y->id);
}

static int by_id(const void *a, const void *b) {
    int32_t id_a = ((const AddedToken *)a)->id, id_b = ((const AddedToken *)b)->id;
    return (id_a > id_b) - (id_a < id_b);
}

static Status index_fill(AddedIndex *index, Tokenizer *tokenizer, bool normalized) {
    TRY(mem_new(tokenizer->added_count, sizeof *index->tokens, &index->tokens));
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].normalized == normalized) index->tokens[index->count++] = tokenizer->added[i];
    if (index->count > 0) qsort(index->tokens, index->count, sizeof *index->tokens, by_name);
    for (size_t i = 0; i < index->count; i++) index->first[(unsigned char)*index->tokens[i].name + 1]++;
    index->only = -1;
    for (int i = 0; i < 256; i++) {
        if (index->count > 0 && index->first[i + 1] == index->count) index->only = i;
        index->first[i + 1] += index->first[i];
    }
    return OK;
}

static bool has_normalizer(const Tokenizer *tokenizer) {
    return tokenizer->normalizes;
}

static Status normalize_name(Tokenizer *tokenizer, AddedToken *token, const char *from) {
    CLEANUP(normal_text_done) NormalText normal = {0};
    TRY(tokenizer->ops->normalize(tokenizer, token->name, token->name_size, &normal));
    if (normal.text.size == 0)
        return FAILED("%s: the added token '%.60s' is empty after normalization", from, token->name);
    token->name_size = normal.text.size;
    return bytes_add(&tokenizer->names, normal.text.data, normal.text.size);
}

static Status fill_names(Tokenizer *tokenizer, const char *from) {
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        AddedToken *token = &tokenizer->added[i];
        token->name = vocab_token(&tokenizer->vocab, token->id, &token->name_size);
        if (token->normalized && has_normalizer(tokenizer)) TRY(normalize_name(tokenizer, token, from));
    }
    const char *name = tokenizer->names.data;
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        AddedToken *token = &tokenizer->added[i];
        if (!token->normalized || !has_normalizer(tokenizer)) continue;
        token->name = name;
        name += token->name_size;
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
    TRY(fill_names(tokenizer, from));
    TRY(index_fill(&tokenizer->literal, tokenizer, false));
    return index_fill(&tokenizer->normalized, tokenizer, true);
}

const char *added_name(const Tokenizer *tokenizer, int32_t id, size_t *ret_size) {
    size_t low = 0, high = tokenizer->added_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (tokenizer->added[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == tokenizer->added_count || tokenizer->added[low].id != id)
        return vocab_token(&tokenizer->vocab, id, ret_size);
    *ret_size = tokenizer->added[low].name_size;
    return tokenizer->added[low].name;
}

/* ---- matching ---- */

/* The byte of a token's name at a depth; -1 past its end. */
static int byte_at(const AddedToken *token, size_t depth) {
    return depth < token->name_size ? (unsigned char)token->name[depth] : -1;
}

/* The first token in low .. high - 1 whose byte at the depth is >= `byte`; `high` if there is none. */
static size_t lower_bound(const AddedIndex *index, size_t low, size_t high, size_t depth, int byte) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (byte_at(&index->tokens[middle], depth) < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that matches at offset `at`. */
static Match match_at(const AddedIndex *index, const char *text, size_t size, size_t at) {
    Match match = {.start = at};
    int byte = (unsigned char)text[at];
    size_t low = index->first[byte], high = index->first[byte + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (byte_at(&index->tokens[low], depth) < 0) {
            match.token = &index->tokens[low++];
            match.end = at + depth;
        }
        if (at + depth == size) {
            match.open = low < high;
            break;
        }
        byte = (unsigned char)text[at + depth];
        low = lower_bound(index, low, high, depth, byte);
        high = lower_bound(index, low, high, depth, byte + 1);
    }
    return match;
}

/* The first match at or after offset `at`; with `open`, also one that more text could complete. */
static Match match_next(const AddedIndex *index, const char *text, size_t size, size_t at, bool open) {
    for (; index->count > 0 && at < size; at++) {
        if (index->only >= 0) {
            const char *found = memchr(text + at, index->only, size - at);
            if (!found) break;
            at = (size_t)(found - text);
        } else if (index->first[(unsigned char)text[at]] == index->first[(unsigned char)text[at] + 1]) {
            continue;
        }
        Match match = match_at(index, text, size, at);
        if (match.token || (open && match.open)) return match;
    }
    return (Match){.start = size, .end = size};
}

/* Whether a match satisfies single_word: no word character on either side. */
static bool is_single_word(const char *text, size_t size, const Match *match) {
    uint32_t c;
    if (match->start > 0) {
        utf8_previous(text, match->start, &c);
        if (char_is_word(c)) return false;
    }
    if (match->end == size) return true;
    utf8_next(text + match->end, size - match->end, &c);
    return !char_is_word(c);
}

/* spaces_before returns the start of the whitespace that ends at `at`, but at least `floor`; spaces_after
 * returns the end of the whitespace that starts at `at`. */
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

/* Visits a span: a match of `token`, or with token NULL text that no token of this pass matches. */
typedef Status (*VisitSpan)(Encoder *encoder, const char *text, size_t start, size_t end,
                            const AddedToken *token, TokenList *list);

static Status split(Encoder *encoder, const AddedIndex *index, const char *text, size_t from, size_t to,
                    VisitSpan visit, TokenList *list) {
    const char *span = text + from;
    size_t size = to - from, done = 0;
    for (size_t at = 0;;) {
        Match match = match_next(index, span, size, at, false);
        if (!match.token) break;
        at = match.end;
        if (match.token->single_word && !is_single_word(span, size, &match)) continue;
        size_t start = match.start, end = match.end;
        /* As in Hugging Face, a match may start in whitespace that the previous match's rstrip consumed. With
         * lstrip it then starts where that whitespace ends, and may turn out empty. */
        if (match.token->lstrip) start = start > done ? spaces_before(span, start, done) : done;
        if (match.token->rstrip) end = spaces_after(span, size, end);
        if (end <= start) continue;
        if (done < start) TRY(visit(encoder, text, from + done, from + start, NULL, list));
        TRY(visit(encoder, text, from + start, from + end, match.token, list));
        done = end;
    }
    return done < size ? visit(encoder, text, from + done, to, NULL, list) : OK;
}

static Status put_added(Encoder *encoder, size_t start, size_t end, const AddedToken *token,
                        TokenList *list) {
    TRY(token_list_reserve(list, 1, encoder->options.offsets));
    if (encoder->options.offsets)
        token_list_put_offset(list, token->id, start, end);
    else
        token_list_put(list, token->id);
    return OK;
}

static Status visit_normalized_pass(Encoder *encoder, const char *text, size_t start, size_t end,
                                    const AddedToken *token, TokenList *list) {
    if (token) return put_added(encoder, start, end, token, list);
    return encoder->tokenizer->ops->encode(encoder, text + start, end - start, start, list);
}

/* The second pass over the normalized form of a span; offsets are mapped back to the original text. */
static Status split_normalized(Encoder *encoder, const char *text, size_t start, size_t end,
                               TokenList *list) {
    CLEANUP(normal_text_done) NormalText normal = {0};
    const Tokenizer *tokenizer = encoder->tokenizer;
    size_t before = list->count;
    TRY(tokenizer->ops->normalize(tokenizer, text + start, end - start, &normal));
    if (normal.text.size == 0) return OK;
    encoder->normal = &normal;
    encoder->origin = start;
    Status status = split(encoder, &tokenizer->normalized, normal.text.data, 0, normal.text.size,
                          visit_normalized_pass, list);
    encoder->normal = NULL;
    encoder->origin = 0;
    TRY(status);
    for (size_t i = before; encoder->options.offsets && i < list->count; i++) {
        TokenOffset *offset = &list->offsets[i];
        *offset = (TokenOffset){start + normal.offsets[offset->start].start,
                                start + normal.offsets[offset->end - 1].end};
    }
    return OK;
}

static Status visit_literal_pass(Encoder *encoder, const char *text, size_t start, size_t end,
                                 const AddedToken *token, TokenList *list) {
    if (token) return put_added(encoder, start, end, token, list);
    const Tokenizer *tokenizer = encoder->tokenizer;
    if (tokenizer->normalized.count && has_normalizer(tokenizer))
        return split_normalized(encoder, text, start, end, list);
    return split(encoder, &tokenizer->normalized, text, start, end, visit_normalized_pass, list);
}

Status added_encode(Encoder *encoder, const char *text, size_t size, TokenList *list) {
    if (size == 0) return OK;
    return split(encoder, &encoder->tokenizer->literal, text, 0, size, visit_literal_pass, list);
}

/* ---- safe cuts ---- */

/* Follows the matches of one pass over bytes from .. size - 1 as long as no further text can change them
 * and they end within `limit`. *ret_start is the end of the last such match, *ret_end where the first
 * unsettled match could start. *bare is set to the end of that last match's name, before the whitespace that
 * rstrip consumed and in which names may match again. */
static void follow_settled_matches(const Tokenizer *tokenizer, const AddedIndex *index, const char *text,
                                   size_t size, size_t from, size_t limit, size_t *ret_start, size_t *ret_end,
                                   size_t *bare) {
    size_t done = from, at = from;
    for (;;) {
        Match match = match_next(index, text, size, at, true);
        size_t start = match.start, end = match.end;
        bool settled = match.token && !match.open;
        if (settled && match.token->rstrip) end = spaces_after(text, size, end);
        if (settled && (match.token->rstrip || match.token->single_word)) {
            size_t unfinished = utf8_unfinished(text, size);
            settled = end < size - unfinished;
        }
        if (!settled || end > limit) {
            if (start < done) start = done = from; /* a cut at `done` would be inside this match */
            *ret_start = done;
            *ret_end = start < limit ? start : limit;
            if (!tokenizer->strips) return;
            /* An unfinished character may become whitespace. */
            if (*ret_end == size) *ret_end -= utf8_unfinished(text + done, size - done);
            *ret_end = spaces_before(text, *ret_end, done);
            return;
        }
        at = match.end;
        Match inside = match;
        inside.start -= from;
        inside.end -= from;
        if (match.token->single_word && !is_single_word(text + from, size - from, &inside)) continue;
        if (match.token->lstrip && end <= done) continue; /* see split */
        done = end;
        *bare = match.end;
    }
}

/* Whether a single_word token's name starts at, ends at or contains `cut`. It must start at or after from[0],
 * for a normalized token from[1]. Its neighbor may rule out the match, but a cut would hide the neighbor, or
 * leave a part of the name that another token matches. */
static bool touches_single_word(const Tokenizer *tokenizer, const char *text, size_t size, size_t cut,
                                const size_t from[2]) {
    for (size_t i = 0; tokenizer->single_words && i < tokenizer->added_count; i++) {
        const AddedToken *token = &tokenizer->added[i];
        size_t name = token->name_size, first = from[token->normalized];
        if (!token->single_word) continue;
        for (size_t at = cut > first + name ? cut - name : first; at <= cut; at++)
            if (!memcmp(text + at, token->name, size - at >= name ? name : size - at)) return true;
    }
    return false;
}

/* Whether the character before `at` is whitespace, both normalized and in the original text. */
static bool after_space(const NormalText *normal, const char *text, size_t at) {
    uint32_t now, was;
    TokenOffset offset = normal->offsets[at - 1];
    utf8_previous(normal->text.data, at, &now);
    utf8_next(text + offset.start, offset.end - offset.start, &was);
    return char_is_space(now) && char_is_space(was);
}

/* The cut within a span without literal tokens that gets normalized; 0 if there is none. Text after the
 * kind's own cut is excluded, since more text could change how it is normalized. */
static size_t cut_normalized(const Encoder *encoder, const char *text, size_t size) {
    CLEANUP(normal_text_done) NormalText normal = {0};
    const Tokenizer *tokenizer = encoder->tokenizer;
    size = tokenizer->ops->cut(encoder, text, size);
    CLEANUP(status_freep) Status status = tokenizer->ops->normalize(tokenizer, text, size, &normal);
    if (status || normal.text.size == 0) return 0;
    size_t start, end, bare[2] = {0};
    follow_settled_matches(tokenizer, &tokenizer->normalized, normal.text.data, normal.text.size, 0,
                           normal.text.size, &start, &end, &bare[1]);
    for (size_t at = end; at > start; at--)
        if (after_space(&normal, text, at) &&
            !touches_single_word(tokenizer, normal.text.data, normal.text.size, at, bare))
            return normal.offsets[at - 1].end;
    return 0;
}

/* The end of a literal token is always a safe cut, except next to single_word tokens. */
size_t added_cut(const Encoder *encoder, const char *text, size_t size) {
    const Tokenizer *tokenizer = encoder->tokenizer;
    size_t start, end, cut, bare[2] = {0};
    follow_settled_matches(tokenizer, &tokenizer->literal, text, size, 0, size, &start, &end, &bare[0]);
    bare[1] = bare[0];
    if (tokenizer->normalized.count && has_normalizer(tokenizer) &&
        tokenizer->ops != &tokenizer_ops_wordpiece) {
        cut = start;
    } else if (tokenizer->normalized.count && has_normalizer(tokenizer)) {
        cut = start + cut_normalized(encoder, text + start, end - start);
    } else {
        follow_settled_matches(tokenizer, &tokenizer->normalized, text, size, start, end, &start, &end,
                               &bare[1]);
        cut = start + tokenizer->ops->cut(encoder, text + start, end - start);
    }
    if (tokenizer->prefixes && cut == start) return 0;
    if (!touches_single_word(tokenizer, text, size, cut, bare)) return cut;
    if (tokenizer->prefixes) return 0;
    return touches_single_word(tokenizer, text, size, start, bare) ? 0 : start;
}
