/* Extracts documents from blocks.
 *
 * A block may begin and end in the middle of a document. It never ends between the last word of a document
 * and the newline that decides whether the document continues (data/reader.c), so each block can be split
 * independently.
 */
#include <string.h>

#include "data/data.h"
#include "data/json_text.h"
#include "data/reader.h"

typedef struct Split {
    const ReaderSpec *spec;
    const TextBlock *block;
    PieceFunc func;
    void *context;
} Split;

static Status emit(const Split *split, const char *text, size_t size, bool first, bool last) {
    if (size == 0 && (first || !last)) return OK;
    return split->func(
        split->context,
        &(TextPiece){.text = text, .size = size, .first = first, .last = last, .block = split->block});
}

/* ---- text ---- */

/* Each line is a document. */
static Status split_lines(const Split *split) {
    const TextBlock *block = split->block;
    const char *at = block->text, *end = at + block->size;
    bool first = block->starts;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline ? newline : end) - at);
        bool last = newline || block->ends;
        if (newline && size && at[size - 1] == '\r') size--;
        if (!first || !text_is_blank(at, size)) TRY(emit(split, at, size, first, last));
        at = newline ? newline + 1 : end;
        first = last;
    }
    /* the rest of a line from the previous block may be empty */
    return !first && block->ends ? emit(split, end, 0, false, true) : OK;
}

/* Documents are separated by blank lines. `begin` is the start of the open document, or NULL; `stop` is the
 * end of its last line that is not blank. */
static Status split_blank(const Split *split) {
    const TextBlock *block = split->block;
    const char *at = block->text, *end = at + block->size, *begin = block->starts ? NULL : at, *stop = at;
    bool first = block->starts;
    /* The rest of a line from the previous block does not count as a blank line. */
    for (bool inside = !block->starts; at < end; inside = false) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline ? newline : end) - at);
        if (inside || !text_is_blank(at, size)) {
            if (!begin) begin = at;
            stop = at + size;
            if (newline && size && stop[-1] == '\r') stop--;
        } else if (begin && newline) {
            TRY(emit(split, begin, (size_t)(stop - begin), first, true));
            begin = NULL;
            first = true;
        }
        at = newline ? newline + 1 : end;
    }
    if (!begin) return OK;
    if (!block->ends) stop = end;
    return emit(split, begin, (size_t)(stop - begin), first, block->ends);
}

/* A document is a WikiText article including its title. */
static Status split_titles(const Split *split) {
    const TextBlock *block = split->block;
    bool first = block->starts, has_text = !block->starts;
    size_t begin = 0;
    for (size_t at = 0; at < block->size;) {
        if (at > 0 && has_text && title_at(block->text, block->size, at, block->starts)) {
            TRY(emit(split, block->text + begin, at - begin, first, true));
            begin = at;
            first = true;
        }
        const char *newline = memchr(block->text + at, '\n', block->size - at);
        size_t next = newline ? (size_t)(newline - block->text) + 1 : block->size;
        has_text = has_text || !text_is_blank(block->text + at, next - at);
        at = next;
    }
    return has_text ? emit(split, block->text + begin, block->size - begin, first, block->ends) : OK;
}

/* ---- JSON lines ---- */

static Status split_object(const Split *split, JsonText *text, int64_t number, const char *line,
                           size_t size) {
    const char *file = split->block->file, *field = split->spec->field ? split->spec->field : "text";
    TRY(json_text_read(text, line, size, field, file, split->block->unit, number));
    if (text->text) return emit(split, text->text, text->size, true, true);
    if (text->found)
        return FAILED("%s: %s %lld: \"%s\" must be a string, not %s", file, split->block->unit,
                      (long long)number, field, text->found);
    if (data_looks_like_squad(line, size))
        return FAILED("%s: this is a SQuAD file, not text; use {format} squad", file);
    return FAILED("%s: %s %lld: no field \"%s\"; use {field} to name the field that contains the text", file,
                  split->block->unit, (long long)number, field);
}

static Status split_json(const Split *split) {
    static const char mark[] = "\xef\xbb\xbf"; /* byte-order mark at the start of a file */
    const TextBlock *block = split->block;
    const char *at = block->text, *end = at + block->size;
    CLEANUP(json_text_done) JsonText text = {0};
    if (block->line == 1 && block->size >= 3 && !memcmp(at, mark, 3)) at += 3;
    for (int64_t number = block->line; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline ? newline : end) - at);
        if (!text_is_blank(at, size)) TRY(split_object(split, &text, number, at, size));
        at = newline ? newline + 1 : end;
    }
    return OK;
}

Status reader_split(const ReaderSpec *spec, const TextBlock *block, PieceFunc func, void *context) {
    Split split = {.spec = spec, .block = block, .func = func, .context = context};
    if (block->json) return split_json(&split);
    switch (spec->documents) {
    case DOCUMENTS_FILE: return emit(&split, block->text, block->size, block->starts, block->ends);
    case DOCUMENTS_LINE: return split_lines(&split);
    case DOCUMENTS_BLANK: return split_blank(&split);
    case DOCUMENTS_WIKITEXT: return split_titles(&split);
    }
    return OK;
}
