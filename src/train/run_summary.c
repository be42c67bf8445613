#include "train/run_summary.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"

typedef enum {
    KIND_COUNT,
    KIND_COUNT_IF_KNOWN,
    KIND_NUMBER,
    KIND_NUMBER_IF_KNOWN,
    KIND_FLAG,
    KIND_FLAG_IF_SET,
    KIND_TEXT,
    KIND_PART
} Kind;

static const struct {
    const char *key;
    size_t offset;
    Kind kind;
} keys[] = {
#define ROW(key, kind)           {#key, offsetof(RunSummary, key), kind},
#define ROW_COUNT(key)           ROW(key, KIND_COUNT)
#define ROW_COUNT_IF_KNOWN(key)  ROW(key, KIND_COUNT_IF_KNOWN)
#define ROW_NUMBER(key)          ROW(key, KIND_NUMBER)
#define ROW_NUMBER_IF_KNOWN(key) ROW(key, KIND_NUMBER_IF_KNOWN)
#define ROW_FLAG(key)            ROW(key, KIND_FLAG)
#define ROW_FLAG_IF_SET(key)     ROW(key, KIND_FLAG_IF_SET)
#define ROW_TEXT(key)            ROW(key, KIND_TEXT)
#define ROW_PART(key)            ROW(key, KIND_PART)
    RUN_SUMMARY_KEYS(ROW_COUNT, ROW_COUNT_IF_KNOWN, ROW_NUMBER, ROW_NUMBER_IF_KNOWN, ROW_FLAG,
                     ROW_FLAG_IF_SET, ROW_TEXT, ROW_PART)};
enum { KEYS = sizeof keys / sizeof *keys };

/* A field: one pointer for each type that it may have. */
typedef union Field {
    void *any;
    double *number;
    bool *flag;
    const char **text;
    json_t **part;
} Field;

static Field field_of(const RunSummary *summary, int i) {
    return (Field){.any = (char *)(uintptr_t)summary + keys[i].offset};
}

RunSummary run_summary_take(json_t *json) {
    RunSummary summary = {.json = json};
    for (int i = 0; i < KEYS; i++) {
        json_t *value = json_object_get(json, keys[i].key);
        Field field = field_of(&summary, i);
        switch (keys[i].kind) {
        case KIND_FLAG:
        case KIND_FLAG_IF_SET: *field.flag = json_is_true(value); break;
        case KIND_TEXT: *field.text = json_string_value(value); break;
        case KIND_PART: *field.part = json_incref(value); break;
        default: *field.number = json_number_or(json, keys[i].key, NAN);
        }
    }
    return summary;
}

/* A field as JSON; NULL: it is left out. */
static json_t *field_json(Kind kind, Field field, bool only_known) {
    if (kind <= KIND_NUMBER_IF_KNOWN && !isfinite(*field.number))
        return only_known || kind == KIND_COUNT_IF_KNOWN || kind == KIND_NUMBER_IF_KNOWN ? NULL : json_null();
    switch (kind) {
    case KIND_COUNT:
    case KIND_COUNT_IF_KNOWN: return json_integer((json_int_t)*field.number);
    case KIND_NUMBER:
    case KIND_NUMBER_IF_KNOWN: return json_real(*field.number);
    case KIND_FLAG: return json_boolean(*field.flag);
    case KIND_FLAG_IF_SET: return *field.flag ? json_true() : NULL;
    case KIND_TEXT: return *field.text ? json_string(*field.text) : NULL;
    case KIND_PART: return json_incref(*field.part);
    }
    return NULL;
}

Status run_summary_json(const RunSummary *summary, json_t **ret_json) {
    CLEANUP(json_decrefp) json_t *json = json_object();
    bool only_known = summary->predicted || summary->by_metrics;
    int failed = !json;
    for (int i = 0; i < KEYS; i++) {
        json_t *value = field_json(keys[i].kind, field_of(summary, i), only_known);
        if (value) failed |= json_object_set_new(json, keys[i].key, value);
    }
    if (failed) return FAILED("out of memory while writing a summary");
    *ret_json = json_incref(json);
    return OK;
}

void run_summary_done(RunSummary *summary) {
    for (int i = 0; i < KEYS; i++)
        if (keys[i].kind == KIND_PART) json_decref(*field_of(summary, i).part);
    json_decref(summary->json);
    *summary = run_summary_take(NULL);
}

void run_summary_replace(RunSummary *summary, json_t *json) {
    run_summary_done(summary);
    *summary = run_summary_take(json);
}

double run_summary_number(const RunSummary *summary, const char *key) {
    for (int i = 0; i < KEYS; i++)
        if (keys[i].kind <= KIND_NUMBER_IF_KNOWN && !strcmp(keys[i].key, key))
            return *field_of(summary, i).number;
    return NAN;
}

Status run_summary_write(const char *dir, const json_t *json) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, RUN_SUMMARY_FILE));
    return json_write_file(path, json);
}
