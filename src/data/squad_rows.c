/* The rows become a SQuAD set with a paragraph for each. */
#include "base/memory.h"
#include "data/squad.h"
#include "data/table.h"

typedef struct Rows {
    json_t *paragraphs, *names;
} Rows;

static void rows_done(Rows *rows) {
    json_decref(rows->paragraphs);
    json_decref(rows->names);
}

static json_t *text_json(TableField field) {
    return json_stringn(field.text, field.size);
}

static Status take_row(void *context, int64_t line, const TableField *fields) {
    Rows *rows = context;
    const TableField *id = &fields[2];
    (void)line;
    json_t *name = !id->text  ? json_null()
                   : id->bare ? json_loadb(id->text, id->size, JSON_DECODE_ANY, NULL)
                              : text_json(*id);
    json_t *paragraph = json_pack("{s:o s:[{s:s s:o}]}", "context", text_json(fields[1]), "qas", "id", "",
                                  "question", text_json(fields[0]));
    int failed = json_array_append_new(rows->names, name);
    failed |= json_array_append_new(rows->paragraphs, paragraph);
    return failed ? FAILED("out of memory") : OK;
}

Status squad_set_read_rows(SquadSet *set, const char *path, const char *question, const char *context,
                           const char *id) {
    CLEANUP(rows_done) Rows rows = {json_array(), json_array()};
    CLEANUP(source_done) Source source = {0};
    CLEANUP(json_decrefp) json_t *json = NULL;
    const char *names[] = {question, context, id ? id : "id"};
    TableSpec table = {.names = names,
                       .count = 3,
                       .lists_from = 3,
                       .optional = !id,
                       .settings = {"text-field", "pair-field", "id-field"}};
    TRY(source_init_rows(&source, path, SOURCE_GZ_LIMIT, NULL));
    TRY(table_read_lists(&source, &table, take_row, &rows));
    json = json_pack("{s:[{s:O}]}", "data", "paragraphs", rows.paragraphs);
    if (!json) return FAILED("out of memory");
    if (!set->files) set->files = json_array();
    if (json_array_append(set->files, rows.names) != 0) return FAILED("out of memory");
    size_t before = set->questions;
    TRY(squad_set_add(set, json, path));
    for (size_t i = before; i < set->questions; i++) {
        const json_t *name = json_array_get(rows.names, i - before);
        set->question[i].name = json_is_null(name) ? NULL : name;
    }
    return OK;
}
