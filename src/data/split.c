/* From blocks to the documents in them.
 *
 * A block may begin and end in the middle of a document. It never ends between the last word of one and
 * the newline that decides whether it goes on (data/reader.c), so each block can be split on its own. */
#include <string.h>

#include "data/json_text.h"
#include "data/reader.h"
#include "data/titles.h"

typedef struct Split {
    const ReaderSpec *spec;
    const TextBlock *block;
    PieceFunc func;
    void *context;
} Split;

static Status give(const Split *split, const char *text, size_t size, bool first, bool last) {
    if (size == 0 && (first || !last)) return OK;
    return split->func(
        split->context,
        &(TextPiece){.text = text, .size = size, .first = first, .last = last, .block = split->block});
}

/* ---- text ---- */

/* Each line a document. */
static Status split_lines(const Split *split) {
    const TextBlock *block = split->block;
    const char *at = block->text, *end = at + block->size;
    bool first = block->starts;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline ? newline : end) - at);
        bool last = newline || block->ends;
        if (newline && size && at[size - 1] == '\r') size--;
        if (!first || !text_is_blank(at, size)) TRY(give(split, at, size, first, last));
        at = newline ? newline + 1 : end;
        first = last;
    }
    /* The rest of a line that came before may be nothing. */
    return !first && block->ends ? give(split, end, 0, false, true) : OK;
}

/* What lies between blank lines is a document. `begin` is where one began, NULL: none is open; `stop` the
 * end of its last line that is not blank. */
static Status split_blank(const Split *split) {
    const TextBlock *block = split->block;
    const char *at = block->text, *end = at + block->size, *begin = block->starts ? NULL : at, *stop = at;
    bool first = block->starts;
    /* The rest of a line that came before is not a blank line. */
    for (bool inside = !block->starts; at < end; inside = false) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline ? newline : end) - at);
        if (inside || !text_is_blank(at, size)) {
            if (!begin) begin = at;
            stop = at + size;
            if (newline && size && stop[-1] == '\r') stop--;
        } else if (begin && newline) {
            TRY(give(split, begin, (size_t)(stop - begin), first, true));
            begin = NULL;
            first = true;
        }
        at = newline ? newline + 1 : end;
    }
    if (!begin) return OK;
    if (!block->ends) stop = end;
    return give(split, begin, (size_t)(stop - begin), first, block->ends);
}

/* An article of WikiText with its title, as it lies there, is a document. */
static Status split_titles(const Split *split) {
    const TextBlock *block = split->block;
    bool first = block->starts, words = !block->starts;
    size_t begin = 0;
    for (size_t at = 0; at < block->size;) {
        if (at > 0 && words && title_at(block->text, block->size, at, block->starts)) {
            TRY(give(split, block->text + begin, at - begin, first, true));
            begin = at;
            first = true;
        }
        const char *newline = memchr(block->text + at, '\n', block->size - at);
        size_t next = newline ? (size_t)(newline - block->text) + 1 : block->size;
        words = words || !text_is_blank(block->text + at, next - at);
        at = next;
    }
    return words ? give(split, block->text + begin, block->size - begin, first, block->ends) : OK;
}

/* ---- JSON lines ---- */

static Status split_object(const Split *split, JsonText *text, int64_t number, const char *line,
                           size_t size) {
    const char *file = split->block->file, *field = split->spec->field ? split->spec->field : "text";
    TRY(json_text_read(text, line, size, field, file, number));
    if (text->text) return give(split, text->text, text->size, true, true);
    if (text->found)
        return FAILED("%s: line %lld: \"%s\" must be a string, found %s", file, (long long)number, field,
                      text->found);
    return FAILED("%s: line %lld: has no \"%s\", expected the text of a document there (see --field)", file,
                  (long long)number, field);
}

static Status split_json(const Split *split) {
    static const char mark[] = "\xef\xbb\xbf"; /* of byte order, which some programs begin a file with */
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
    case DOCUMENTS_FILE: return give(&split, block->text, block->size, block->starts, block->ends);
    case DOCUMENTS_LINE: return split_lines(&split);
    case DOCUMENTS_BLANK: return split_blank(&split);
    case DOCUMENTS_WIKITEXT: return split_titles(&split);
    }
    return OK;
}
