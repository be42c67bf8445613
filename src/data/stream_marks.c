/* Documents and sentences of a stream, from the marks in its token files. */
#include "base/memory.h"
#include "data/stream.h"

bool token_stream_marked(const TokenStream *stream) {
    if (stream->format != FORMAT_TOKENS) return false;
    for (int i = 0; i < stream->count; i++)
        if (!token_file_info(stream->token_file[i])->marked) return false;
    return true;
}

/* ---- documents ---- */

/* Index of the first document that begins at or after token `at` of the file. */
static Status document_from(const TokenFile *token_file, int64_t at, int64_t *ret_index) {
    int64_t low = 0, high = token_file_info(token_file)->documents;
    while (low < high) {
        int64_t middle = low + (high - low) / 2, start = 0;
        TRY(token_file_document(token_file, middle, &start));
        if (start < at)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_index = low;
    return OK;
}

Status document_cursor_at(const TokenStream *stream, int64_t at, DocumentCursor *ret_cursor) {
    DocumentCursor cursor = {.token_file = stream->count};
    if (at < token_stream_size(stream)) {
        cursor.token_file = token_stream_find(stream, at);
        TRY(document_from(stream->token_file[cursor.token_file], at - stream->first[cursor.token_file],
                          &cursor.index));
    }
    *ret_cursor = cursor;
    return OK;
}

Status document_cursor_next(const TokenStream *stream, DocumentCursor *cursor, int64_t *ret_start) {
    while (cursor->token_file < stream->count &&
           cursor->index >= token_file_info(stream->token_file[cursor->token_file])->documents) {
        cursor->token_file++;
        cursor->index = 0;
    }
    if (cursor->token_file == stream->count) {
        *ret_start = token_stream_size(stream);
        return OK;
    }
    int64_t start = 0;
    TRY(token_file_document(stream->token_file[cursor->token_file], cursor->index, &start));
    *ret_start = stream->first[cursor->token_file] + start;
    cursor->index++;
    return OK;
}

Status token_stream_text_end(const TokenStream *stream, int64_t next, int64_t *ret_end) {
    const SpecialTokens *special = &token_file_info(stream->token_file[0])->tokenizer.special;
    int32_t last = -1, end = special->end >= 0 ? special->end : special->sep;
    if (next > 0) TRY(token_stream_read(stream, next - 1, 1, &last));
    *ret_end = last == end && next > 0 ? next - 1 : next;
    return OK;
}

/* ---- sentences ---- */

/* Sentences *ret_first .. *ret_last - 1 of file i are those that begin in [from, to). */
static Status sentence_range(const TokenStream *stream, int i, int64_t from, int64_t to, int64_t *ret_first,
                             int64_t *ret_last) {
    int64_t base = stream->first[i];
    TRY(token_file_sentence_from(stream->token_file[i], from > base ? from - base : 0, ret_first));
    return token_file_sentence_from(stream->token_file[i], to - base, ret_last);
}

Status token_stream_sentences(const TokenStream *stream, int64_t from, int64_t to, int64_t **start,
                              size_t *capacity, size_t *count) {
    for (int i = token_stream_find(stream, from); i < stream->count && stream->first[i] < to; i++) {
        int64_t first = 0, last = 0;
        TRY(sentence_range(stream, i, from, to, &first, &last));
        TRY(mem_grow(start, capacity, *count + (size_t)(last - first), sizeof **start));
        for (; first < last; first++) {
            int64_t offset = 0;
            TRY(token_file_sentence(stream->token_file[i], first, &offset));
            (*start)[(*count)++] = stream->first[i] + offset;
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
            int64_t offset = 0;
            TRY(token_file_sentence(stream->token_file[i], first, &offset));
            out[count++] = (int32_t)(stream->first[i] + offset - from);
        }
    }
    *ret_count = count;
    return OK;
}
