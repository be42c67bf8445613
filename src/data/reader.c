/* Divides inputs into blocks.
 *
 * A block starts with the remainder of the previous one and is filled from the input. It ends after the last
 * newline, after the last blank line or, if a document is longer than the block, at a point where the text
 * may be cut. If there is no such point the block grows, up to a limit, so memory is bounded whatever the
 * files contain. Bytes after the end are carried over to the next block.
 */
#include "data/reader.h"

#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "data/corpus.h"
#include "data/input.h"

struct Reader {
    ReaderSpec spec;
    int at;          /* index of the current path */
    size_t place;    /* in the embedded corpus: of the next file */
    Input *input;    /* NULL: the next input must be opened */
    Rows *rows;      /* that the input consists of, as JSON lines; or NULL */
    const char *row; /* the rest of the current one */
    size_t row_size;
    RowsKind kind;
    bool json;   /* blocks are JSON lines */
    bool starts; /* a document may begin at the start of the next block */
    int64_t line;
    int64_t used; /* bytes consumed from earlier inputs */
    int64_t total;
    char *rest; /* bytes read but not yet returned */
    size_t rest_size, rest_capacity;
};

const char *const documents_names[] = {"file", "line", "blank", "wikitext", NULL};

Status documents_parse(const char *name, Documents *ret_documents) {
    for (int i = 0; documents_names[i]; i++) {
        if (strcmp(name, documents_names[i])) continue;
        *ret_documents = (Documents)i;
        return OK;
    }
    return USAGE("unknown value '%s' for {documents}; expected file, line, blank or wikitext", name);
}

void text_block_done(TextBlock *block) {
    free(block->text);
    *block = (TextBlock){0};
}

bool reader_is_json(const char *path) {
    return path_has_suffix(path, ".jsonl") || path_has_suffix(path, ".ndjson");
}

Status reader_measure(const char *const *paths, int count, int64_t *ret_total) {
    bool known = true;
    int64_t total = 0;
    if (count < 1) return USAGE("no data given; expected at least one file");
    for (int i = 0; i < count; i++) {
        struct stat st;
        bool self = corpus_is_named(paths[i]);
        if (!self && stat(paths[i], &st) != 0) return FAILED("%s: cannot open: no such file", paths[i]);
        known = known && !self && S_ISREG(st.st_mode);
        if (known) total += (int64_t)st.st_size;
    }
    *ret_total = known ? total : 0;
    return OK;
}

Status reader_new(Reader **ret_reader, const ReaderSpec *spec) {
    CLEANUP(reader_freep) Reader *reader = NULL;
    TRY(mem_new(1, sizeof *reader, &reader));
    reader->spec = *spec;
    if (!reader->spec.block) reader->spec.block = READER_BLOCK;
    TRY(reader_measure(spec->paths, spec->path_count, &reader->total));
    return MOVE(ret_reader, reader);
}

void reader_free(Reader *reader) {
    if (!reader) return;
    input_free(reader->input);
    rows_free(reader->rows);
    free(reader->rest);
    free(reader);
}

int64_t reader_total(const Reader *reader) {
    return reader->total;
}

/* Looks at the first bytes of an input, for what its name does not show, and skips a byte-order mark. */
static Status probe_start(Reader *reader, const char *path) {
    const char *start = NULL;
    char mark[3];
    size_t got = 0;
    reader->json = false;
    reader->kind = ROWS_NONE;
    if (reader->spec.raw) return OK;
    TRY(input_peek(reader->input, READER_START, &start, &got));
    TRY(reader_inspect(path, reader->spec.field, reader->spec.or_bytes, start, got, &reader->kind));
    reader->json = reader->kind != ROWS_NONE;
    bool marked = got >= sizeof mark && !memcmp(start, "\xef\xbb\xbf", sizeof mark);
    return marked ? input_read(reader->input, mark, sizeof mark, &got) : OK;
}

/* The input of a file with rows: the rows' JSON lines. */
static Status read_rows(void *context, char *to, size_t size, size_t *ret_got) {
    Reader *reader = context;
    size_t used = 0;
    while (used < size) {
        if (!reader->row) {
            TRY(rows_next(reader->rows, &reader->row, &reader->row_size));
            if (!reader->row) break;
        }
        size_t part = reader->row_size < size - used ? reader->row_size : size - used;
        memcpy(to + used, reader->row, part);
        used += part;
        reader->row += part;
        reader->row_size -= part;
        if (reader->row_size || used == size) continue;
        to[used++] = '\n';
        reader->row = NULL;
    }
    *ret_got = used;
    return OK;
}

static Status open_rows(Reader *reader, const char *path) {
    const char *field = reader->spec.field ? reader->spec.field : "text";
    input_free(reader->input);
    reader->input = NULL;
    TRY(rows_open(&reader->rows, path, &field, 1));
    return input_open_func(&reader->input, path, read_rows, reader);
}

static Status open_next(Reader *reader) {
    const char *path = reader->spec.paths[reader->at];
    if (corpus_is_named(path)) {
        CLEANUP(source_done) Source source = {0};
        TRY(corpus_next(&source, &reader->place));
        TRY(input_open_memory(&reader->input, path, source.data, source.size));
    } else {
        TRY(input_open(&reader->input, path));
    }
    TRY(probe_start(reader, path));
    if (reader->kind != ROWS_NONE && reader->kind != ROWS_LINES) TRY(open_rows(reader, path));
    reader->starts = true;
    reader->line = 1;
    return OK;
}

static int64_t used_of_input(const Reader *reader) {
    return reader->rows ? rows_used(reader->rows) : input_used(reader->input);
}

static void close_input(Reader *reader) {
    reader->used += used_of_input(reader);
    ReaderNotes *notes = reader->spec.notes;
    if (notes && input_changed(reader->input) && notes->changed++ == 0)
        notes->changed_file = reader->spec.paths[reader->at];
    input_free(reader->input);
    reader->input = NULL;
    rows_free(reader->rows);
    reader->rows = NULL;
    if (reader->place && !corpus_ends(reader->place)) return;
    reader->place = 0;
    reader->at++;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static size_t cut_text(const Reader *reader, const char *text, size_t size) {
    return reader->spec.cut ? reader->spec.cut(reader->spec.cut_context, text, size) : size;
}

/* Finds a cut that is not preceded by white space, because only the following text shows whether white space
 * ends a line, a document or neither. */
static size_t cut_after_word(const Reader *reader, const char *text, size_t size) {
    size_t end = size;
    while (end > 0) {
        end = cut_text(reader, text, end);
        if (end == 0 || !is_space(text[end - 1])) break;
        while (end > 0 && is_space(text[end - 1])) end--;
    }
    return end;
}

static size_t after_last_newline(const char *text, size_t size) {
    const char *newline = size ? memrchr(text, '\n', size) : NULL;
    return newline ? (size_t)(newline - text) + 1 : 0;
}

/* Offset after the last blank line; 0: there is none. The first line is complete only if `starts`. */
static size_t after_last_blank_line(const char *text, size_t size, bool starts) {
    for (size_t end = after_last_newline(text, size); end > 0;) {
        size_t at = end - 1;
        while (at > 0 && is_space(text[at - 1]) && text[at - 1] != '\n') at--;
        if (at == 0 ? starts : text[at - 1] == '\n') return end;
        end = after_last_newline(text, at);
    }
    return 0;
}

/* Cuts before the last title that is preceded by another article. Without one, cuts after a word that is
 * followed by at least two complete lines, so that a title stays together with the blank lines around it. 0:
 * no cut yet. */
static size_t cut_before_title(const Reader *reader, const TextBlock *block, bool *ret_ends) {
    const char *text = block->text;
    size_t line = after_last_newline(text, block->size), safe = 0;
    for (int lines = 0; line > 0; lines++) {
        if (title_at(text, block->size, line, reader->starts) &&
            !(reader->starts && text_is_blank(text, line)))
            return line;
        if (lines == 2) safe = line;
        line = after_last_newline(text, line - 1);
    }
    *ret_ends = false;
    return cut_after_word(reader, text, safe);
}

/* Finds where a block that continues may end; 0: nowhere yet. */
static size_t find_end(const Reader *reader, const TextBlock *block, bool *ret_ends) {
    size_t end = 0;
    *ret_ends = true;
    if (reader->json) return after_last_newline(block->text, block->size);
    if (reader->spec.documents == DOCUMENTS_WIKITEXT) return cut_before_title(reader, block, ret_ends);
    if (reader->spec.documents == DOCUMENTS_LINE) end = after_last_newline(block->text, block->size);
    if (reader->spec.documents == DOCUMENTS_BLANK)
        end = after_last_blank_line(block->text, block->size, reader->starts);
    if (end > 0) return end;
    *ret_ends = false;
    return reader->spec.documents == DOCUMENTS_FILE ? cut_text(reader, block->text, block->size)
                                                    : cut_after_word(reader, block->text, block->size);
}

static int64_t count_newlines(const char *text, size_t size) {
    int64_t count = 0;
    for (size_t i = 0; i < size; i++) count += text[i] == '\n';
    return count;
}

static Status too_long(const Reader *reader) {
    const char *path = reader->spec.paths[reader->at];
    if (reader->json)
        return FAILED("%s: line %lld: longer than %d bytes, the limit for a line of JSON", path,
                      (long long)reader->line, READER_LINE_LIMIT);
    return FAILED("%s: line %lld: no place to split the text within %d bytes", path, (long long)reader->line,
                  READER_LINE_LIMIT);
}

/* Fills the block until it can end. *ret_end is its end; *ret_done: the input is exhausted. */
static Status fill_block(Reader *reader, TextBlock *block, size_t *ret_end, bool *ret_done) {
    for (size_t want = reader->spec.block;; want *= 2) {
        if (want > READER_LINE_LIMIT + 1) want = READER_LINE_LIMIT + 1;
        size_t got = 0;
        if (want > block->size) {
            TRY(mem_grow(&block->text, &block->capacity, want, 1));
            TRY(input_read(reader->input, block->text + block->size, want - block->size, &got));
            block->size += got;
        }
        if (block->size < want) {
            *ret_end = block->size;
            *ret_done = block->ends = true;
            return OK;
        }
        *ret_end = find_end(reader, block, &block->ends);
        if (*ret_end > 0) return OK;
        if (want > READER_LINE_LIMIT) return too_long(reader);
    }
}

static Status next_of_input(Reader *reader, TextBlock *block) {
    block->size = 0;
    if (reader->rest_size) {
        TRY(mem_grow(&block->text, &block->capacity, reader->rest_size, 1));
        memcpy(block->text, reader->rest, reader->rest_size);
        block->size = reader->rest_size;
    }
    size_t end = 0;
    bool done = false;
    TRY(fill_block(reader, block, &end, &done));
    reader->rest_size = block->size - end;
    if (reader->rest_size) {
        TRY(mem_grow(&reader->rest, &reader->rest_capacity, reader->rest_size, 1));
        memcpy(reader->rest, block->text + end, reader->rest_size);
    }
    block->size = end;
    block->file = reader->spec.paths[reader->at];
    block->line = reader->line;
    block->json = reader->json;
    block->unit = reader->rows ? rows_unit(reader->rows) : "line";
    block->starts = reader->starts;
    block->used = reader->used + used_of_input(reader);
    reader->starts = block->ends;
    reader->line += count_newlines(block->text, end);
    if (done) close_input(reader);
    return OK;
}

Status reader_next(Reader *reader, TextBlock *block, bool *ret_more) {
    do {
        if (!reader->input && reader->at == reader->spec.path_count) {
            *ret_more = false;
            return OK;
        }
        if (!reader->input) TRY(open_next(reader));
        TRY(next_of_input(reader, block));
    } while (block->size == 0 && block->starts);
    *ret_more = true;
    return OK;
}
