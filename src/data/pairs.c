#include "data/pairs.h"

#include "base/memory.h"

/* Sentences of the current document; the buffer is reused. */
typedef struct Sentences {
    int64_t *start;
    size_t count, capacity;
} Sentences;

static void sentences_done(Sentences *sentences) {
    free(sentences->start);
}

void pair_set_done(PairSet *set) {
    free(set->window);
    *set = (PairSet){0};
}

/* ---- windows ---- */

/* Start of the last sentence at or before `to` or, with `up`, of the first sentence at or after it; -1: there
 * is none. */
static int64_t find_sentence(const Sentences *s, int64_t to, bool up) {
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->start[middle] < to || (!up && s->start[middle] == to))
            low = middle + 1;
        else
            high = middle;
    }
    if (up) return low < s->count ? s->start[low] : -1;
    return low > 0 ? s->start[low - 1] : -1;
}

static Status add_window(PairSet *set, int64_t start, int64_t size, int32_t document) {
    TRY(mem_grow(&set->window, &set->capacity, set->count + 1, sizeof *set->window));
    set->window[set->count++] = (PairWindow){.start = start, .size = (int32_t)size, .document = document};
    return OK;
}

static Status cover_document(PairSet *set, const Sentences *s, int64_t begin, int64_t end, int64_t P) {
    bool split = s->count > 1 || end - begin > P;
    if (!split || end - begin < 2) return OK;
    int32_t document = set->count ? set->window[set->count - 1].document : -1;
    if (document++ == INT32_MAX - 1) return FAILED("the data has more than %d documents", INT32_MAX);
    for (int64_t start = begin;;) {
        int64_t stop = end - start > P ? start + P : end;
        TRY(add_window(set, start, stop - start, document));
        if (stop == end) return OK;
        int64_t next = find_sentence(s, stop, false);
        if (next <= start) next = stop;
        if (end - next < P) {
            int64_t filled = find_sentence(s, end - P, true);
            if (filled > start && filled < next) next = filled;
        }
        start = next;
    }
}

Status pair_set_build(PairSet *set, const TokenStream *stream, int64_t begin, int64_t end, int64_t P) {
    CLEANUP(sentences_done) Sentences s = {0};
    CLEANUP(pair_set_done) PairSet found = {0};
    DocumentCursor cursor;
    TRY(document_cursor_at(stream, begin + 1, &cursor));
    for (int64_t at = begin, stop = 0; at < end; at = stop) {
        int64_t last = 0;
        TRY(document_cursor_next(stream, &cursor, &stop));
        TRY(token_stream_text_end(stream, stop, &last));
        if (last > end) last = end;
        s.count = 0;
        TRY(token_stream_sentences(stream, at, last, &s.start, &s.capacity, &s.count));
        TRY(cover_document(&found, &s, at, last, P));
    }
    return MOVE(set, found);
}

/* ---- drawing pairs ---- */

static uint64_t below(uint64_t draw, uint64_t bound) {
    return (uint64_t)(((unsigned __int128)draw * bound) >> 64);
}

/* Index of the first window of this or a later document. */
static size_t first_window(const PairSet *set, int64_t document) {
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (set->window[middle].document < document)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A window of another document, or another window of the same one if it is the only document. */
static const PairWindow *other_window(const PairSet *set, int64_t index, uint64_t draw) {
    int64_t document = set->window[index].document;
    size_t low = first_window(set, document), high = first_window(set, document + 1);
    if (high - low == set->count) low = (size_t)index, high = low + 1;
    size_t choice = below(draw, set->count - (high - low));
    return &set->window[choice < low ? choice : choice + (high - low)];
}

static uint64_t draw_wide(RngKey key, uint64_t position, uint64_t number) {
    uint32_t draw[4];
    key.key = rng_mix(key.key, number);
    rng_block(key, position, draw);
    return (uint64_t)draw[0] << 32 | draw[1];
}

/* Takes a run of the same length from another window. Prefers windows that are long enough: otherwise the
 * length of B would reveal that it is random, and the model would learn that instead of the text. */
static Status draw_random_part(const PairSet *set, const TokenStream *stream, RngKey key, uint64_t position,
                               int64_t index, int32_t *scratch, Pair *pair) {
    enum { TRIES = 16 };
    const PairWindow *window = NULL;
    for (uint64_t i = 0; i < TRIES; i++) {
        const PairWindow *other = other_window(set, index, draw_wide(key, position, 2 + i));
        if (!window || other->size > window->size) window = other;
        if (window->size >= pair->b_size) break;
    }
    int64_t length = window->size, slack = length - pair->b_size, count = 0;
    pair->b = window->start;
    if (slack < 0) pair->b_size = length;
    if (slack > 0)
        TRY(token_stream_sentences_within(stream, window->start, window->start + slack + 1, scratch, &count));
    if (count > 0) pair->b += scratch[below(draw_wide(key, position, 1), (uint64_t)count)];
    return OK;
}

Status pair_draw(const PairSet *set, const TokenStream *stream, RngKey key, uint64_t position, int64_t index,
                 int32_t *scratch, Pair *ret_pair) {
    const PairWindow *window = &set->window[index];
    int64_t length = window->size, count = 0, split;
    uint32_t draw[4];
    rng_block(key, position, draw);
    TRY(token_stream_sentences_within(stream, window->start + 1, window->start + length, scratch, &count));
    uint64_t wide = (uint64_t)draw[0] << 32 | draw[1];
    if (count > 0) {
        split = 1 + scratch[below(wide, (uint64_t)count)];
    } else { /* a single sentence: split in its middle half */
        int64_t low = length / 4 > 1 ? length / 4 : 1;
        split = low + (int64_t)below(wide, (uint64_t)(length - 2 * low + 1));
    }
    Pair pair = {.a = window->start,
                 .a_size = split,
                 .b = window->start + split,
                 .b_size = length - split,
                 .random = draw[2] >> 31};
    if (pair.random) TRY(draw_random_part(set, stream, key, position, index, scratch, &pair));
    *ret_pair = pair;
    return OK;
}
