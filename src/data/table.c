#include "data/table.h"

#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "data/reader.h"
#include "data/separated.h"
#include "tokenizer/tokenizer.h"

typedef struct Table {
    const Source *source;
    Separated rows;       /* .csv and .tsv */
    const char *at, *end; /* JSON lines */
    int64_t line;
} Table;

static void table_done(Table *table) {
    separated_done(&table->rows);
}

bool path_is_table(const char *path) {
    return path_is_separated(path) || reader_is_json(path) || path_has_suffix(path, ".json") ||
           path_has_suffix(path, ".parquet");
}

static Status check_utf8(const Table *table, int64_t line, const TableField *field) {
    size_t first;
    if (!text_invalid_utf8(field->text, field->size, &first)) return OK;
    return FAILED("%s: line %lld: byte 0x%02x is not valid UTF-8", table->source->name, (long long)line,
                  (unsigned char)field->text[first]);
}

/* ---- .csv and .tsv ---- */

static TableField field_at(const Table *table, size_t index) {
    TableField field = {0};
    field.text = separated_field(&table->rows, index, &field.size);
    return field;
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
    const char *setting = setting_of(spec, wanted);
    char found[SEPARATED_NAMES];
    separated_names(&table->rows, found);
    if (!setting)
        return FAILED("%s: line %lld: no field \"%s\"; found: %s", table->source->name, (long long)line,
                      spec->names[wanted], found);
    return FAILED("%s: line %lld: no field \"%s\"; found: %s; choose the field with {%s}",
                  table->source->name, (long long)line, spec->names[wanted], found, setting);
}

/* The column of an optional field that is missing. */
#define ABSENT SIZE_MAX

/* Finds the columns of the names. If all names are numbers, they are column numbers and there is no header
 * row. */
static Status find_columns(Table *table, const TableSpec *spec, size_t *column, bool *ret_named) {
    const char *const *names = spec->names;
    int count = spec->count;
    bool numbers = true;
    int needed = count - spec->optional;
    for (int i = 0; i < needed; i++) numbers = numbers && (!names[i] || column_number(names[i]));
    *ret_named = !numbers;
    for (int i = 0; i < count; i++) column[i] = names[i] && numbers ? column_number(names[i]) - 1 : 0;
    for (int i = needed; numbers && i < count; i++)
        if (!column_number(names[i])) column[i] = ABSENT;
    if (numbers) return OK;
    int64_t line;
    bool more;
    TRY(separated_next(&table->rows, &line, &more));
    for (int i = 0; i < count; i++) {
        if (!names[i]) continue;
        column[i] = separated_find(&table->rows, names[i]);
        if (column[i] != table->rows.fields) continue;
        if (i < needed) return no_field(table, line, spec, i);
        column[i] = ABSENT;
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
    if (named) width = table->rows.fields;
    for (;;) {
        TRY(separated_next(&table->rows, &line, &more));
        if (!more) return OK;
        if (!width) width = table->rows.fields;
        if (table->rows.fields != width)
            return FAILED("%s: line %lld: the number of fields is %zu; expected %zu as in the first line",
                          table->source->name, (long long)line, table->rows.fields, width);
        TableField fields[TABLE_FIELDS] = {{0}};
        for (int i = 0; i < count; i++) {
            if (!names[i] || column[i] == ABSENT) continue;
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
    *ret_field = (TableField){.text = number, .size = strlen(number), .bare = true};
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
        bool optional = i >= spec->count - spec->optional;
        if (optional && (!value || json_is_null(value))) continue;
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
                   .line = 1};
    bool lines = spec->json || source->lines || reader_is_json(source->name);
    if (spec->count > TABLE_FIELDS) return FAILED("internal: %d table fields requested at once", spec->count);
    TRY(source_check(source));
    if (source->size >= 3 && !memcmp(source->data, "\xef\xbb\xbf", 3)) table.at += 3;
    table.rows = (Separated){.name = source->name,
                             .at = table.at,
                             .end = table.end,
                             .line = 1,
                             .separator = path_has_suffix(source->name, ".tsv") ? '\t' : ','};
    return lines ? read_objects(&table, spec, func, context) : read_separated(&table, spec, func, context);
}

const json_t *table_list(TableField field, json_t **ret_parsed) {
    *ret_parsed = NULL;
    if (field.list) return field.list;
    while (field.size && *field.text == ' ') field.text++, field.size--;
    if (field.size == 0 || *field.text != '[') return NULL;
    return *ret_parsed = json_loadb(field.text, field.size, JSON_ALLOW_NUL, NULL);
}
