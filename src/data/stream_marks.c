/* Documents and sentences of a stream of shards, from the marks in them. */
#include "base/memory.h"
#include "data/stream.h"

bool token_stream_marked(const TokenStream *stream) {
    if (stream->format != FORMAT_SHARDS) return false;
    for (int i = 0; i < stream->count; i++)
        if (!shard_info(stream->shard[i])->marked) return false;
    return true;
}

/* ---- documents ---- */

/* The first document of a shard at its token `at` or after it. */
static Status document_from(const Shard *shard, int64_t at, int64_t *ret_index) {
    int64_t low = 0, high = shard_info(shard)->documents;
    while (low < high) {
        int64_t middle = low + (high - low) / 2, start = 0;
        TRY(shard_document(shard, middle, &start));
        if (start < at)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_index = low;
    return OK;
}

Status document_cursor_at(const TokenStream *stream, int64_t at, DocumentCursor *ret_cursor) {
    DocumentCursor cursor = {.shard = stream->count};
    if (at < token_stream_size(stream)) {
        cursor.shard = token_stream_find(stream, at);
        TRY(document_from(stream->shard[cursor.shard], at - stream->first[cursor.shard], &cursor.index));
    }
    *ret_cursor = cursor;
    return OK;
}

Status document_cursor_next(const TokenStream *stream, DocumentCursor *cursor, int64_t *ret_start) {
    while (cursor->shard < stream->count &&
           cursor->index >= shard_info(stream->shard[cursor->shard])->documents) {
        cursor->shard++;
        cursor->index = 0;
    }
    if (cursor->shard == stream->count) {
        *ret_start = token_stream_size(stream);
        return OK;
    }
    int64_t start = 0;
    TRY(shard_document(stream->shard[cursor->shard], cursor->index, &start));
    *ret_start = stream->first[cursor->shard] + start;
    cursor->index++;
    return OK;
}

Status token_stream_text_end(const TokenStream *stream, int64_t next, int64_t *ret_end) {
    const SpecialTokens *special = &shard_info(stream->shard[0])->tokenizer.special;
    int32_t last = -1, end = special->end >= 0 ? special->end : special->sep;
    if (next > 0) TRY(token_stream_read(stream, next - 1, 1, &last));
    *ret_end = last == end && next > 0 ? next - 1 : next;
    return OK;
}

/* ---- sentences ---- */

/* Sentences *ret_first .. *ret_last - 1 of shard i are those that begin in [from, to). */
static Status sentence_range(const TokenStream *stream, int i, int64_t from, int64_t to, int64_t *ret_first,
                             int64_t *ret_last) {
    int64_t base = stream->first[i];
    TRY(shard_sentence_from(stream->shard[i], from > base ? from - base : 0, ret_first));
    return shard_sentence_from(stream->shard[i], to - base, ret_last);
}

Status token_stream_sentences(const TokenStream *stream, int64_t from, int64_t to, int64_t **start,
                              size_t *capacity, size_t *count) {
    for (int i = token_stream_find(stream, from); i < stream->count && stream->first[i] < to; i++) {
        int64_t first = 0, last = 0;
        TRY(sentence_range(stream, i, from, to, &first, &last));
        TRY(mem_grow(start, capacity, *count + (size_t)(last - first), sizeof **start));
        for (; first < last; first++) {
            int64_t place = 0;
            TRY(shard_sentence(stream->shard[i], first, &place));
            (*start)[(*count)++] = stream->first[i] + place;
        }
    }
    return OK;
}

Status token_stream_sentences_within(const TokenStream *stream, int64_t from, int64_t to, int32_t *out,
                                     int64_t *ret_count) {
    int64_t count = 0;
    for (int i = token_stream_find(stream, from); i < stream->count && stream->first[i] < to; i++) {
        int64_t first = 0, last = 0;
        TRY(sentence_range(stream, i, from, to, &first, &last));
        for (; first < last && count < to - from; first++) {
            int64_t place = 0;
            TRY(shard_sentence(stream->shard[i], first, &place));
            out[count++] = (int32_t)(stream->first[i] + place - from);
        }
    }
    *ret_count = count;
    return OK;
}
