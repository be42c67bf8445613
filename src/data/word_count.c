#include "data/reader.h"

typedef struct Counting {
    WordCounts counts;
    bool inside; /* within a word */
    bool open;   /* within a line */
} Counting;

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static Status take(void *context, const TextPiece *piece) {
    Counting *counting = context;
    WordCounts *counts = &counting->counts;
    for (size_t i = 0; i < piece->size; i++) {
        char c = piece->text[i];
        bool space = is_space(c);
        counts->words += !space && !counting->inside;
        counts->lines += c == '\n';
        counting->inside = !space;
        counting->open = c != '\n';
    }
    counts->bytes += (int64_t)piece->size;
    if (!piece->last) return OK;
    counts->lines += counting->open;
    counting->inside = counting->open = false;
    return OK;
}

Status corpus_count_words(const ReaderSpec *spec, WordCounts *ret_counts) {
    CLEANUP(reader_freep) Reader *reader = NULL;
    CLEANUP(text_block_done) TextBlock block = {0};
    Counting counting = {0};
    TRY(reader_new(&reader, spec));
    for (bool more = true;;) {
        TRY(reader_next(reader, &block, &more));
        if (!more) break;
        TRY(reader_split(spec, &block, take, &counting));
    }
    *ret_counts = counting.counts;
    return OK;
}
