/* Dispatches to the readers of the kinds: rows_json.c, separated.c and parquet.c. */
#include "data/rows.h"

#include <string.h>

#include "base/memory.h"
#include "data/parquet.h"
#include "data/rows_internal.h"
#include "data/separated.h"
#include "data/source.h"
#include "tokenizer/tokenizer.h"

struct Rows {
    RowsKind kind;
    char *path;
    JsonLine line;
    int64_t number;
    JsonScan scan;  /* LINES, ARRAY */
    Parquet *table; /* PARQUET */
    Source source;  /* CSV, TSV, and the rest: */
    Separated cells;
    char **name; /* of each column, and whether it is read */
    bool *read;
    size_t columns;
};

/* ---- recognition ---- */

static const char *skip_space(const char *text) {
    return text + strspn(text, " \t\r\n");
}

/* Whether the text begins like an array of objects; in a .json file, like any array. */
static bool begins_as_array(const char *path, const char *text) {
    text = skip_space(text);
    if (*text != '[') return false;
    if (path_has_suffix(path, ".json")) return true;
    text = skip_space(text + 1);
    return *text == '{' && *skip_space(text + 1) == '"';
}

RowsKind rows_kind(const char *path, const char *start, size_t size) {
    size_t skip = size >= 3 && !memcmp(start, "\xef\xbb\xbf", 3) ? 3 : 0;
    if (parquet_begins(start, size)) return ROWS_PARQUET;
    if (reader_is_plain(path)) return ROWS_NONE;
    if (path_has_suffix(path, ".csv")) return ROWS_CSV;
    if (path_has_suffix(path, ".tsv")) return ROWS_TSV;
    if (begins_as_array(path, start + skip)) return ROWS_ARRAY;
    return reader_is_json(path) ? ROWS_LINES : ROWS_NONE;
}

static Status find_kind(const char *path, RowsKind *ret_kind) {
    CLEANUP(input_freep) Input *input = NULL;
    const char *start;
    size_t size;
    TRY(input_open(&input, path));
    TRY(input_peek(input, READER_START, &start, &size));
    *ret_kind = rows_kind(path, start, size);
    if (*ret_kind == ROWS_PARQUET && input_compressed(input))
        return FAILED("%s is a compressed Parquet table; decompress it first", path);
    return OK;
}

/* ---- .csv and .tsv ---- */

/* A field that is not among the names is not read. */
static Status choose_columns(Rows *rows, const char *const *fields, int count) {
    const Separated *cells = &rows->cells;
    char found[SEPARATED_NAMES];
    TRY(mem_new(cells->fields, sizeof *rows->read, &rows->read));
    separated_names(cells, found);
    for (int i = 0; i < count; i++) {
        size_t at = separated_find(cells, fields[i]);
        if (at == cells->fields)
            return FAILED("%s: the first line has no field \"%s\"; found: %s", rows->path, fields[i], found);
        rows->read[at] = true;
    }
    TRY(mem_new(cells->fields, sizeof *rows->name, &rows->name));
    for (size_t i = 0; i < cells->fields; i++) {
        size_t size, bad;
        const char *name = separated_field(cells, i, &size);
        TRY(str_format(&rows->name[i], "%.*s", (int)size, name));
        rows->columns++;
        if (text_invalid_utf8(name, size, &bad)) return FAILED("%s: line 1: not valid UTF-8", rows->path);
        rows->read[i] |= count == 0;
    }
    return OK;
}

static Status open_separated(Rows *rows, const char *const *fields, int count) {
    int64_t line;
    bool more = false;
    TRY(source_init_owned(&rows->source, rows->path, SOURCE_GZ_LIMIT));
    const char *text = (const char *)rows->source.data, *end = text + rows->source.size;
    if (rows->source.size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3;
    rows->cells = (Separated){.name = rows->path,
                              .at = text,
                              .end = end,
                              .line = 1,
                              .separator = rows->kind == ROWS_TSV ? '\t' : ','};
    TRY(separated_next(&rows->cells, &line, &more));
    if (!more) return FAILED("%s: expected a first line that names the fields", rows->path);
    return choose_columns(rows, fields, count);
}

static Status put_cell(Rows *rows, int64_t line, size_t column, bool first) {
    size_t size, bad;
    const char *text = separated_field(&rows->cells, column, &size), *name = rows->name[column];
    if (text_invalid_utf8(text, size, &bad))
        return FAILED("%s: line %lld: byte 0x%02x is not valid UTF-8", rows->path, (long long)line,
                      (unsigned char)text[bad]);
    Status status = json_line_name(&rows->line, name, strlen(name), first);
    if (!status) status = json_line_string(&rows->line, text, size);
    return status_wrap(status, "%s: line %lld", rows->path, (long long)line);
}

static Status next_separated(Rows *rows, bool *ret_more) {
    int64_t line;
    TRY(separated_next(&rows->cells, &line, ret_more));
    rows->line.size = 0;
    rows->number = line;
    if (!*ret_more) return OK;
    if (rows->cells.fields != rows->columns)
        return FAILED("%s: line %lld: the number of fields is %zu; expected %zu as in the first line",
                      rows->path, (long long)line, rows->cells.fields, rows->columns);
    TRY(json_line_put(&rows->line, "{", 1));
    bool first = true;
    for (size_t i = 0; i < rows->columns; i++) {
        if (!rows->read[i]) continue;
        TRY(put_cell(rows, line, i, first));
        first = false;
    }
    return json_line_put(&rows->line, "}", 1);
}

/* ---- all kinds ---- */

static Status open_kind(Rows *rows, const char *const *fields, int count) {
    switch (rows->kind) {
    case ROWS_PARQUET: return parquet_open(&rows->table, rows->path, fields, count);
    case ROWS_NONE: break;
    case ROWS_LINES:
    case ROWS_ARRAY: return json_scan_open(&rows->scan, rows->path, rows->kind == ROWS_ARRAY);
    case ROWS_CSV:
    case ROWS_TSV: return open_separated(rows, fields, count);
    }
    return FAILED("%s: expected rows: a .jsonl, .csv, .tsv or Parquet file, or a JSON array of objects",
                  rows->path);
}

Status rows_open(Rows **ret_rows, const char *path, const char *const *fields, int count) {
    CLEANUP(rows_freep) Rows *rows = NULL;
    TRY(mem_new(1, sizeof *rows, &rows));
    TRY(str_dup(path, &rows->path));
    TRY(find_kind(path, &rows->kind));
    TRY(open_kind(rows, fields, count));
    return MOVE(ret_rows, rows);
}

void rows_free(Rows *rows) {
    if (!rows) return;
    json_line_done(&rows->line);
    json_scan_done(&rows->scan);
    parquet_free(rows->table);
    source_done(&rows->source);
    separated_done(&rows->cells);
    for (size_t i = 0; i < rows->columns; i++) free(rows->name[i]);
    free(rows->name);
    free(rows->read);
    free(rows->path);
    free(rows);
}

static bool is_json(const Rows *rows) {
    return rows->kind == ROWS_LINES || rows->kind == ROWS_ARRAY;
}

Status rows_next(Rows *rows, const char **ret_text, size_t *ret_size) {
    bool more = false;
    if (is_json(rows)) {
        TRY(json_scan_next(&rows->scan, &rows->line, &more));
        rows->number = rows->scan.number;
    } else if (rows->table) {
        TRY(parquet_next(rows->table, &rows->line, &more));
        rows->number++;
    } else {
        TRY(next_separated(rows, &more));
    }
    *ret_text = more ? rows->line.text : NULL;
    *ret_size = rows->line.size;
    return OK;
}

const char *rows_unit(const Rows *rows) {
    return rows->kind == ROWS_ARRAY || rows->kind == ROWS_PARQUET ? "row" : "line";
}

int64_t rows_number(const Rows *rows) {
    return rows->number;
}

int64_t rows_used(const Rows *rows) {
    if (rows->table) return parquet_used(rows->table);
    return is_json(rows) ? input_used(rows->scan.input)
                         : (int64_t)(rows->cells.at - (const char *)rows->source.data);
}

Status rows_next_json(Rows *rows, json_t **ret_row) {
    const char *text = NULL;
    size_t size = 0;
    json_error_t error;
    *ret_row = NULL;
    TRY(rows_next(rows, &text, &size));
    if (!text) return OK;
    CLEANUP(json_decrefp) json_t *row = json_loadb(text, size, JSON_ALLOW_NUL, &error);
    if (!row)
        return FAILED("%s: %s %lld, column %d: not valid JSON: %s", rows->path, rows_unit(rows),
                      (long long)rows->number, error.column, json_problem(&error));
    if (!json_is_object(row))
        return FAILED("%s: %s %lld: expected an object with fields", rows->path, rows_unit(rows),
                      (long long)rows->number);
    *ret_row = row;
    row = NULL;
    return OK;
}

Status rows_fields(const char *path, json_t **ret_fields) {
    CLEANUP(rows_freep) Rows *rows = NULL;
    TRY(rows_open(&rows, path, NULL, 0));
    if (is_json(rows)) return rows_next_json(rows, ret_fields);
    CLEANUP(json_decrefp) json_t *fields = json_object();
    const char *name;
    for (size_t i = 0; rows->table && (name = parquet_column(rows->table, i)); i++)
        TRY(json_put(fields, name, json_null()));
    for (size_t i = 0; i < rows->columns; i++) TRY(json_put(fields, rows->name[i], json_null()));
    *ret_fields = fields;
    fields = NULL;
    return OK;
}

Status rows_read_all(Rows *rows, size_t limit, char **ret_text, size_t *ret_size) {
    CLEANUP(mem_freep) char *all = NULL;
    size_t used = 0, capacity = 0, size = 0;
    for (const char *text = NULL;;) {
        TRY(rows_next(rows, &text, &size));
        if (!text) break;
        if (size >= limit - used) return FAILED("%s: its rows exceed %zu bytes", rows->path, limit);
        TRY(mem_grow(&all, &capacity, used + size + 1, 1));
        memcpy(all + used, text, size);
        all[used + size] = '\n';
        used += size + 1;
    }
    *ret_size = used;
    return MOVE(ret_text, all);
}

/* Those of the names that the table has. */
static Status open_named(Rows **ret_rows, const char *path, const char *const *names) {
    enum { MOST = 16 };
    CLEANUP(json_decrefp) json_t *fields = NULL;
    const char *found[MOST];
    int count = 0;
    TRY(rows_fields(path, &fields));
    for (; *names && count < MOST; names++)
        if (json_object_get(fields, *names)) found[count++] = *names;
    return rows_open(ret_rows, path, found, count);
}

#define KIND_BIT(kind) (1u << (kind))

/* The rows of a file of one of the kinds become JSON lines. */
static Status convert_rows(Source *ret_source, const char *path, size_t limit, unsigned kinds,
                           const char *const *names) {
    RowsKind kind = ROWS_NONE;
    if (!path_exists(path) || path_is_special(path)) return source_init_owned(ret_source, path, limit);
    TRY(find_kind(path, &kind));
    if (!(kinds & KIND_BIT(kind))) return source_init_owned(ret_source, path, limit);
    CLEANUP(rows_freep) Rows *rows = NULL;
    CLEANUP(source_done) Source source = {.lines = true};
    char *text = NULL;
    TRY(str_dup(path, &source.name));
    TRY(names && kind == ROWS_PARQUET ? open_named(&rows, path, names) : rows_open(&rows, path, NULL, 0));
    TRY(rows_read_all(rows, limit, &text, &source.size));
    source.data = source.owned = (unsigned char *)text;
    if (source.size == 0) return FAILED("%s has no rows; expected data", path);
    return MOVE(ret_source, source);
}

Status source_init_rows(Source *ret_source, const char *path, size_t limit, const char *const *names) {
    return convert_rows(ret_source, path, limit, KIND_BIT(ROWS_ARRAY) | KIND_BIT(ROWS_PARQUET), names);
}

Status source_init_objects(Source *ret_source, const char *path, size_t limit) {
    unsigned tables = KIND_BIT(ROWS_CSV) | KIND_BIT(ROWS_TSV) | KIND_BIT(ROWS_PARQUET);
    return convert_rows(ret_source, path, limit, tables, NULL);
}
