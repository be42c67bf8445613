/* Assembles the values of columns to rows.
 *
 * Every column gives a list of entries. An entry has a repetition level, the depth of the list that it
 * continues (0: it begins a row), and a definition level: how many of the optional and repeated elements on
 * the way to its value are present. Where one is missing, each column below it has one entry without a value.
 */
#include "data/parquet.h"

#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "data/parquet_internal.h"
#include "tokenizer/tokenizer.h"

struct Parquet {
    ParquetFile file;
    ParquetColumn *column; /* (leaves) in use if their node is read */
    size_t *read;          /* nodes of the columns that rows have */
    size_t read_count;
    size_t group; /* the next row group */
    int64_t left; /* rows of the current one */
    int64_t row;
    JsonLine *line;
};

bool parquet_begins(const void *start, size_t size) {
    return size >= 4 && !memcmp(start, "PAR1", 4);
}

void parquet_free(Parquet *table) {
    if (!table) return;
    for (size_t i = 0; table->column && i < table->file.leaves; i++) parquet_column_done(&table->column[i]);
    free(table->column);
    free(table->read);
    parquet_file_done(&table->file);
    free(table);
}

/* ---- columns ---- */

/* What weft does not read in a column, or NULL. Bytes that are not marked as text may be a picture. */
static const char *unreadable(const ParquetNode *column, bool named) {
    for (const ParquetNode *node = column; node < column + column->nodes; node++) {
        if (node->type == PARQUET_INT96) return "times of 96 bits";
        if (node->meaning == MEANING_DECIMAL) return "decimal numbers";
        if (node->type == PARQUET_FIXED) return "bytes of a fixed length";
        if (node->type == PARQUET_BYTES && node->meaning != MEANING_TEXT && !named) return "bytes";
    }
    return NULL;
}

/* Index of the node of the column after that at `at`, from 0; file->nodes: there is none. */
static size_t next_column(const ParquetFile *file, size_t at) {
    return at ? at + file->node[at].nodes : 1;
}

const char *parquet_column(const Parquet *table, size_t index) {
    const ParquetFile *file = &table->file;
    size_t at = next_column(file, 0);
    for (; index && at < file->nodes; index--) at = next_column(file, at);
    return at < file->nodes ? file->node[at].name : NULL;
}

static void list_names(const Parquet *table, char *text, size_t size) {
    enum { SHOWN = 8 };
    size_t used = 0, i = 0;
    const char *name;
    text[0] = 0;
    for (; i < SHOWN && (name = parquet_column(table, i)) && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%.24s", i ? ", " : "", name);
    if (i == SHOWN && parquet_column(table, i) && used < size) snprintf(text + used, size - used, ", ...");
}

static Status find_column(const Parquet *table, const char *name, size_t *ret_node) {
    const ParquetFile *file = &table->file;
    char found[512];
    for (size_t at = next_column(file, 0); at < file->nodes; at = next_column(file, at)) {
        if (strcmp(file->node[at].name, name)) continue;
        const char *problem = unreadable(&file->node[at], true);
        *ret_node = at;
        if (!problem) return OK;
        return FAILED("%s: column \"%s\" has %s, which weft does not read", file->path, name, problem);
    }
    list_names(table, found, sizeof found);
    return FAILED("%s has no column \"%s\"; found: %s", file->path, name, found);
}

static void read_column(Parquet *table, size_t node) {
    const ParquetNode *column = &table->file.node[node];
    table->read[table->read_count++] = node;
    for (size_t leaf = column->leaf; leaf < column->leaf + column->leaves; leaf++)
        table->column[leaf] = (ParquetColumn){
            .file = &table->file, .leaf = &table->file.node[table->file.leaf[leaf]], .index = leaf};
}

static Status choose_columns(Parquet *table, const char *const *names, int count) {
    const ParquetFile *file = &table->file;
    TRY(mem_new(file->leaves, sizeof *table->column, &table->column));
    TRY(mem_new(count ? (size_t)count : file->nodes, sizeof *table->read, &table->read));
    for (int i = 0; i < count; i++) {
        size_t node = 0;
        bool twice = false;
        TRY(find_column(table, names[i], &node));
        for (size_t k = 0; k < table->read_count; k++) twice = twice || table->read[k] == node;
        if (!twice) read_column(table, node);
    }
    for (size_t at = next_column(file, 0); !count && at < file->nodes; at = next_column(file, at))
        if (!unreadable(&file->node[at], false)) read_column(table, at);
    return OK;
}

Status parquet_open(Parquet **ret_table, const char *path, const char *const *names, int count) {
    CLEANUP(parquet_freep) Parquet *table = NULL;
    ParquetFile file = {.fd = -1};
    TRY(parquet_file_open(&file, path));
    Status status = mem_new(1, sizeof *table, &table);
    if (status) {
        parquet_file_done(&file);
        return status;
    }
    table->file = file;
    TRY(choose_columns(table, names, count));
    return MOVE(ret_table, table);
}

/* ---- rows ---- */

static Status put(Parquet *table, const char *text) {
    return json_line_put(table->line, text, strlen(text));
}

/* The shortest digits that give the same number. */
static Status put_real(Parquet *table, double value, bool narrow) {
    char text[32];
    if (!isfinite(value)) return put(table, "null");
    for (int digits = narrow ? 6 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (narrow ? (float)back == (float)value : back == value) break;
    }
    TRY(put(table, text));
    return strpbrk(text, ".e") ? OK : put(table, ".0"); /* not an integer */
}

static Status put_value(Parquet *table, const ParquetNode *leaf, const ParquetValue *value) {
    char text[32];
    size_t bad;
    switch (leaf->type) {
    case PARQUET_BOOLEAN: return put(table, value->integer ? "true" : "false");
    case PARQUET_FLOAT:
    case PARQUET_DOUBLE: return put_real(table, value->real, leaf->type == PARQUET_FLOAT);
    case PARQUET_BYTES:
        if (text_invalid_utf8(value->bytes, value->size, &bad))
            return FAILED("column \"%s\": byte 0x%02x is not valid UTF-8", leaf->name,
                          (unsigned char)value->bytes[bad]);
        return json_line_string(table->line, value->bytes, value->size);
    default: break;
    }
    bool narrow = leaf->type == PARQUET_INT32;
    if (leaf->meaning == MEANING_UNSIGNED)
        snprintf(text, sizeof text, "%llu",
                 (unsigned long long)(narrow ? (uint32_t)value->integer : (uint64_t)value->integer));
    else
        snprintf(text, sizeof text, "%lld", (long long)value->integer);
    return put(table, text);
}

/* Takes the one entry that each column below a missing element has. */
static Status put_missing(Parquet *table, const ParquetNode *node, const char *text) {
    ParquetValue value;
    for (size_t i = node->leaf; i < node->leaf + node->leaves; i++)
        TRY(parquet_column_take(&table->column[i], &value));
    return put(table, text);
}

static Status put_field(Parquet *table, const ParquetNode *node);

static Status put_struct(Parquet *table, const ParquetNode *node) {
    const ParquetNode *child = node + 1;
    TRY(put(table, "{"));
    for (size_t i = 0; i < node->children; i++, child += child->nodes) {
        TRY(json_line_name(table->line, child->name, strlen(child->name), i == 0));
        TRY(put_field(table, child));
    }
    return put(table, "}");
}

/* The element of a list whose repeated node wraps it: {list: {element}}, unless the wrapper is the element,
 * as in old files. */
static const ParquetNode *element_of(const ParquetNode *repeated, const ParquetNode *list) {
    bool wrapper = list && list->meaning == MEANING_LIST && repeated->children == 1 &&
                   strcmp(repeated->name, "array") && !path_ends_with(repeated->name, "_tuple");
    return wrapper ? repeated + 1 : repeated;
}

/* A value whose own optional or repeated level is settled. */
static Status put_present(Parquet *table, const ParquetNode *node);

static Status put_list(Parquet *table, const ParquetNode *repeated, const ParquetNode *list) {
    const ParquetNode *element = element_of(repeated, list);
    ParquetColumn *first = &table->column[repeated->leaf];
    TRY(parquet_column_peek(first));
    if (!first->ended && first->next_def < repeated->max_def) return put_missing(table, repeated, "[]");
    TRY(put(table, "["));
    for (bool more = false;;) {
        if (more) TRY(put(table, ","));
        TRY(element == repeated ? put_present(table, element) : put_field(table, element));
        TRY(parquet_column_peek(first));
        more = !first->ended && first->next_rep == repeated->max_rep;
        if (!more) return put(table, "]");
    }
}

static Status put_present(Parquet *table, const ParquetNode *node) {
    if (node->type != PARQUET_GROUP) {
        ParquetValue value;
        TRY(parquet_column_take(&table->column[node->leaf], &value));
        return put_value(table, node, &value);
    }
    bool wraps = node->children == 1 && node[1].repeated;
    if (wraps && (node->meaning == MEANING_LIST || node->meaning == MEANING_MAP))
        return put_list(table, node + 1, node);
    return put_struct(table, node);
}

static Status put_field(Parquet *table, const ParquetNode *node) {
    ParquetColumn *first = &table->column[node->leaf];
    if (node->repeated) return put_list(table, node, NULL);
    TRY(parquet_column_peek(first));
    if (node->optional && !first->ended && first->next_def < node->max_def)
        return put_missing(table, node, "null");
    return put_present(table, node);
}

/* All columns must be at the start of a row. */
static Status check_aligned(Parquet *table) {
    for (size_t i = 0; i < table->read_count; i++) {
        const ParquetNode *node = &table->file.node[table->read[i]];
        for (size_t leaf = node->leaf; leaf < node->leaf + node->leaves; leaf++) {
            ParquetColumn *column = &table->column[leaf];
            TRY(parquet_column_peek(column));
            if (column->ended || column->next_rep)
                return parquet_damaged(column, column->ended ? "it ends before other columns"
                                                             : "it has more values than its row");
        }
    }
    return OK;
}

static Status put_row(Parquet *table) {
    TRY(check_aligned(table));
    TRY(put(table, "{"));
    for (size_t i = 0; i < table->read_count; i++) {
        const ParquetNode *node = &table->file.node[table->read[i]];
        TRY(json_line_name(table->line, node->name, strlen(node->name), i == 0));
        TRY(put_field(table, node));
    }
    return put(table, "}");
}

static Status begin_group(Parquet *table) {
    for (size_t i = 0; i < table->read_count; i++) {
        const ParquetNode *node = &table->file.node[table->read[i]];
        for (size_t leaf = node->leaf; leaf < node->leaf + node->leaves; leaf++)
            TRY(parquet_column_begin(&table->column[leaf], table->group));
    }
    table->left = table->file.rows[table->group++];
    return OK;
}

Status parquet_next(Parquet *table, JsonLine *line, bool *ret_more) {
    if (table->read_count == 0) return FAILED("%s has no column that weft can read", table->file.path);
    while (table->left == 0 && table->group < table->file.groups) TRY(begin_group(table));
    line->size = 0;
    *ret_more = table->left > 0;
    if (!*ret_more) return OK;
    table->line = line;
    table->left--;
    table->row++;
    return status_wrap(put_row(table), "%s: row %lld", table->file.path, (long long)table->row);
}

int64_t parquet_used(const Parquet *table) {
    int64_t furthest = 0;
    if (table->group == 0) return 0;
    if (table->left == 0 && table->group == table->file.groups) return table->file.size;
    for (size_t i = 0; i < table->read_count; i++) {
        const ParquetColumn *column = &table->column[table->file.node[table->read[i]].leaf];
        if (column->at > furthest) furthest = column->at;
    }
    return furthest;
}
