/* Tables are read in a single pass. The fields of a row, unquoted, are copied to a buffer that is reused for
 * every row. */
#include "data/table.h"

#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "data/reader.h"
#include "tokenizer/tokenizer.h"

typedef struct Table {
    const Source *source;
    const char *at, *end;
    int64_t line;
    char separator; /* 0: JSON lines */
    /* The current row: its fields, back to back in `text`. */
    char *text;
    size_t size, capacity;
    size_t *stop; /* end of each field in `text` */
    size_t fields, stop_capacity;
} Table;

static void table_done(Table *table) {
    free(table->text);
    free(table->stop);
}

bool path_is_table(const char *path) {
    return path_has_suffix(path, ".csv") || path_has_suffix(path, ".tsv") || reader_is_json(path);
}

static Status check_utf8(const Table *table, int64_t line, const TableField *field) {
    size_t first;
    if (!text_invalid_utf8(field->text, field->size, &first)) return OK;
    return FAILED("%s: line %lld: byte 0x%02x is not valid UTF-8", table->source->name, (long long)line,
                  (unsigned char)field->text[first]);
}

/* ---- .csv and .tsv ---- */

static Status put(Table *table, const char *text, size_t size) {
    TRY(mem_grow(&table->text, &table->capacity, table->size + size + 1, 1));
    memcpy(table->text + table->size, text, size);
    table->size += size;
    return OK;
}

static Status end_field(Table *table) {
    TRY(mem_grow(&table->stop, &table->stop_capacity, table->fields + 1, sizeof *table->stop));
    table->stop[table->fields++] = table->size;
    return OK;
}

/* Reads a quoted field; `at` is just past the opening quote and moves just past the closing one. */
static Status read_quoted(Table *table, int64_t row) {
    for (;;) {
        const char *quote = memchr(table->at, '"', (size_t)(table->end - table->at));
        if (!quote)
            return FAILED("%s: line %lld: a quoted field has no closing quote", table->source->name,
                          (long long)row);
        TRY(put(table, table->at, (size_t)(quote - table->at)));
        for (const char *c = table->at; c < quote; c++) table->line += *c == '\n';
        table->at = quote + 1;
        if (table->at == table->end || *table->at != '"') break;
        TRY(put(table, "\"", 1));
        table->at++;
    }
    if (table->at < table->end && !strchr("\r\n", *table->at) && *table->at != table->separator)
        return FAILED("%s: line %lld: '%c' after a quoted field; expected a comma or the end of the line",
                      table->source->name, (long long)table->line, *table->at);
    return OK;
}

static Status read_plain(Table *table) {
    const char *from = table->at;
    while (table->at < table->end && *table->at != table->separator && *table->at != '\n') table->at++;
    size_t size = (size_t)(table->at - from);
    bool ends = table->at == table->end || *table->at == '\n';
    if (ends && size && from[size - 1] == '\r') size--;
    return put(table, from, size);
}

/* Reads the next row that is not blank; *ret_more is false at the end. */
static Status next_row(Table *table, int64_t *ret_line, bool *ret_more) {
    table->size = table->fields = 0;
    for (; table->at < table->end && (*table->at == '\n' || *table->at == '\r'); table->at++)
        table->line += *table->at == '\n';
    *ret_line = table->line;
    *ret_more = table->at < table->end;
    while (table->at < table->end) {
        bool quoted = table->separator == ',' && *table->at == '"';
        if (quoted) table->at++;
        TRY(quoted ? read_quoted(table, *ret_line) : read_plain(table));
        TRY(end_field(table));
        if (quoted && table->at < table->end && *table->at == '\r') table->at++;
        if (table->at == table->end) break;
        char c = *table->at++;
        table->line += c == '\n';
        if (c == '\n') break;
        if (table->at == table->end) TRY(end_field(table)); /* an empty last field */
    }
    return OK;
}

static TableField field_at(const Table *table, size_t index) {
    size_t from = index ? table->stop[index - 1] : 0;
    return (TableField){.text = table->text + from, .size = table->stop[index] - from};
}

/* Column number from a name such as "3"; 0: not a number. */
static size_t column_number(const char *name) {
    size_t digits = strspn(name, "0123456789");
    if (digits == 0 || digits > 6 || name[digits]) return 0;
    return (size_t)strtoul(name, NULL, 10);
}

/* The setting that chooses a field's name, or NULL. */
static const char *setting_of(const TableSpec *spec, int field) {
    return spec->settings[field < 2 ? field : 2];
}

static Status no_field(const Table *table, int64_t line, const TableSpec *spec, int wanted) {
    enum { SHOWN = 8, WIDTH = 24 };
    const char *setting = setting_of(spec, wanted);
    char found[SHOWN * (WIDTH + 2) + 8] = "";
    size_t used = 0;
    for (size_t i = 0; i < table->fields && i < SHOWN; i++) {
        TableField field = field_at(table, i);
        int width = field.size < WIDTH ? (int)field.size : WIDTH;
        used +=
            (size_t)snprintf(found + used, sizeof found - used, "%s%.*s", i ? ", " : "", width, field.text);
    }
    if (table->fields > SHOWN) snprintf(found + used, sizeof found - used, ", ...");
    if (!setting)
        return FAILED("%s: line %lld: no field \"%s\"; found: %s", table->source->name, (long long)line,
                      spec->names[wanted], found);
    return FAILED("%s: line %lld: no field \"%s\"; found: %s; choose the field with {%s}",
                  table->source->name, (long long)line, spec->names[wanted], found, setting);
}

/* Finds the columns of the names. If all names are numbers, they are column numbers and there is no header
 * row. */
static Status find_columns(Table *table, const TableSpec *spec, size_t *column, bool *ret_named) {
    const char *const *names = spec->names;
    int count = spec->count;
    bool numbers = true;
    for (int i = 0; i < count; i++) numbers = numbers && (!names[i] || column_number(names[i]));
    *ret_named = !numbers;
    for (int i = 0; i < count; i++) column[i] = names[i] && numbers ? column_number(names[i]) - 1 : 0;
    if (numbers) return OK;
    int64_t line;
    bool more;
    TRY(next_row(table, &line, &more));
    for (int i = 0; i < count; i++) {
        size_t at = 0;
        for (; names[i] && at < table->fields; at++) {
            TableField field = field_at(table, at);
            if (field.size == strlen(names[i]) && !memcmp(field.text, names[i], field.size)) break;
        }
        if (names[i] && at == table->fields) return no_field(table, line, spec, i);
        column[i] = at;
    }
    return OK;
}

static Status read_separated(Table *table, const TableSpec *spec, TableRow func, void *context) {
    const char *const *names = spec->names;
    int count = spec->count;
    size_t column[TABLE_FIELDS], width = 0;
    bool named, more;
    int64_t line;
    TRY(find_columns(table, spec, column, &named));
    if (named) width = table->fields;
    for (;;) {
        TRY(next_row(table, &line, &more));
        if (!more) return OK;
        if (!width) width = table->fields;
        if (table->fields != width)
            return FAILED("%s: line %lld: the number of fields is %zu; expected %zu as in the first line",
                          table->source->name, (long long)line, table->fields, width);
        TableField fields[TABLE_FIELDS] = {{0}};
        for (int i = 0; i < count; i++) {
            if (!names[i]) continue;
            if (column[i] >= width)
                return FAILED("%s: line %lld: the number of fields is %zu, but field %s was requested",
                              table->source->name, (long long)line, width, names[i]);
            fields[i] = field_at(table, column[i]);
            TRY(check_utf8(table, line, &fields[i]));
        }
        TRY(func(context, line, fields));
    }
}

/* ---- JSON lines ---- */

static Status missing_field(const Table *table, int64_t line, const TableSpec *spec, int wanted) {
    const char *setting = setting_of(spec, wanted), *name = spec->names[wanted];
    if (!setting)
        return FAILED("%s: line %lld: \"%s\" is missing", table->source->name, (long long)line, name);
    return FAILED("%s: line %lld: \"%s\" is missing; choose the field with {%s}", table->source->name,
                  (long long)line, name, setting);
}

/* A value as text; `number` is the buffer for values other than strings. */
static Status value_text(const Table *table, int64_t line, const char *name, const json_t *value,
                         char number[32], TableField *ret_field) {
    if (json_is_string(value)) {
        *ret_field = (TableField){.text = json_string_value(value), .size = json_string_length(value)};
        return OK;
    }
    if (json_is_integer(value))
        snprintf(number, 32, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, 32, "%.15g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(number, 32, "%s", json_is_true(value) ? "true" : "false");
    else
        return FAILED("%s: line %lld: \"%s\" is of an unsupported type; expected a string or a number",
                      table->source->name, (long long)line, name);
    *ret_field = (TableField){.text = number, .size = strlen(number)};
    return OK;
}

static Status read_object(const Table *table, int64_t line, const char *text, size_t size,
                          const TableSpec *spec, TableRow func, void *context) {
    json_error_t error;
    if (size > TABLE_LINE_LIMIT)
        return FAILED("%s: line %lld: longer than %d bytes", table->source->name, (long long)line,
                      TABLE_LINE_LIMIT);
    CLEANUP(json_decrefp) json_t *json = json_loadb(text, size, JSON_ALLOW_NUL, &error);
    if (!json)
        return FAILED("%s: line %lld, column %d: not valid JSON: %s", table->source->name, (long long)line,
                      error.column, json_problem(&error));
    if (!json_is_object(json))
        return FAILED("%s: line %lld: expected an object with fields", table->source->name, (long long)line);
    TableField fields[TABLE_FIELDS] = {{0}};
    char number[TABLE_FIELDS][32];
    for (int i = 0; i < spec->count; i++) {
        const char *name = spec->names[i];
        const json_t *value = name ? json_object_get(json, name) : NULL;
        if (name && !value) return missing_field(table, line, spec, i);
        if (json_is_array(value) && i >= spec->lists_from)
            fields[i] = (TableField){.list = value};
        else if (name)
            TRY(value_text(table, line, name, value, number[i], &fields[i]));
    }
    return func(context, line, fields);
}

static Status read_objects(Table *table, const TableSpec *spec, TableRow func, void *context) {
    for (; table->at < table->end; table->line++) {
        const char *newline = memchr(table->at, '\n', (size_t)(table->end - table->at));
        const char *stop = newline ? newline : table->end, *from = table->at;
        while (from < stop && strchr(" \t\r", *from)) from++;
        if (from < stop)
            TRY(read_object(table, table->line, from, (size_t)(stop - from), spec, func, context));
        table->at = newline ? newline + 1 : table->end;
    }
    return OK;
}

Status table_read(const Source *source, const char *const *names, int count, TableRow func, void *context) {
    TableSpec spec = {.names = names, .count = count, .lists_from = count};
    return table_read_lists(source, &spec, func, context);
}

Status table_read_lists(const Source *source, const TableSpec *spec, TableRow func, void *context) {
    CLEANUP(table_done)
    Table table = {.source = source,
                   .at = (const char *)source->data,
                   .end = (const char *)source->data + source->size,
                   .line = 1,
                   .separator = spec->json || reader_is_json(source->name) ? 0
                                : path_has_suffix(source->name, ".tsv")    ? '\t'
                                                                           : ','};
    if (spec->count > TABLE_FIELDS) return FAILED("internal: %d table fields requested at once", spec->count);
    TRY(source_check(source));
    if (source->size >= 3 && !memcmp(source->data, "\xef\xbb\xbf", 3)) table.at += 3;
    return table.separator ? read_separated(&table, spec, func, context)
                           : read_objects(&table, spec, func, context);
}

const json_t *table_list(TableField field, json_t **ret_parsed) {
    *ret_parsed = NULL;
    if (field.list) return field.list;
    while (field.size && *field.text == ' ') field.text++, field.size--;
    if (field.size == 0 || *field.text != '[') return NULL;
    return *ret_parsed = json_loadb(field.text, field.size, JSON_ALLOW_NUL, NULL);
}
