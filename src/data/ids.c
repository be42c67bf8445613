#include "data/ids.h"

#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/suggest.h"
#include "data/mask.h"
#include "data/task.h"

const char *const ids_fields[] = {"ids", "types", "labels", "next", "start", "end", "label", NULL};

static const char *id_field(const DataSpec *spec) {
    return spec->id_field ? spec->id_field : "id";
}

static Status check_fields(const IdsLine *line) {
    if (!json_is_object(line->json))
        return FAILED("%s: line %lld: expected an object with \"ids\"", line->file, (long long)line->number);
    const char *key;
    json_t *value;
    json_object_foreach(line->json, key, value) {
        bool known = line->spec->named && !strcmp(key, id_field(line->spec));
        for (int i = 0; ids_fields[i]; i++) known |= !strcmp(key, ids_fields[i]);
        if (known) continue;
        const char *near = suggest(key, ids_fields);
        return FAILED("%s: line %lld: unknown field '%.64s'; expected %s", line->file,
                      (long long)line->number, key,
                      near ? near : "ids, types, labels, next, start, end or label");
    }
    return OK;
}

/* The member, or NULL if it is absent or null. */
static json_t *field(const IdsLine *line, const char *name) {
    json_t *value = json_object_get(line->json, name);
    return json_is_null(value) ? NULL : value;
}

Status ids_read_number(const IdsLine *line, const char *name, int64_t high, int32_t *ret_value) {
    const json_t *value = field(line, name);
    if (!value)
        return FAILED("%s: line %lld: '%s' is missing; expected 0 to %lld", line->file,
                      (long long)line->number, name, (long long)high);
    if (!json_is_integer(value))
        return FAILED("%s: line %lld: '%s' must be an integer from 0 to %lld", line->file,
                      (long long)line->number, name, (long long)high);
    int64_t number = json_integer_value(value);
    if (number < 0 || number > high)
        return FAILED("%s: line %lld: '%s' is %lld; expected 0 to %lld", line->file, (long long)line->number,
                      name, (long long)number, (long long)high);
    *ret_value = (int32_t)number;
    return OK;
}

/* Appends an array of integers to the pool, each from 0 to `high`, or -100 if `ignored` allows it. */
static Status read_array(IdsSet *set, const IdsLine *line, const char *name, const json_t *array,
                         int64_t high, bool ignored) {
    size_t length = json_array_size(array);
    TRY(mem_grow(&set->pool, &set->pool_capacity, set->used + length, sizeof *set->pool));
    for (size_t i = 0; i < length; i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_integer(value))
            return FAILED("%s: line %lld: '%s'[%zu] must be an integer from 0 to %lld", line->file,
                          (long long)line->number, name, i, (long long)high);
        int64_t number = json_integer_value(value);
        if ((number < 0 || number > high) && !(ignored && number == LABEL_IGNORED))
            return FAILED("%s: line %lld: '%s'[%zu] is %lld; expected 0 to %lld%s", line->file,
                          (long long)line->number, name, i, (long long)number, (long long)high,
                          ignored ? " or -100" : "");
        set->pool[set->used + i] = (int32_t)number;
    }
    set->used += length;
    return OK;
}

/* Reads types or labels, which must be as long as ids. */
static Status read_parallel(IdsSet *set, const IdsLine *line, const char *name, int64_t high, bool ignored,
                            int32_t length, bool *ret_present) {
    const json_t *array = field(line, name);
    if (!array) return OK;
    if (!json_is_array(array) || json_array_size(array) != (size_t)length)
        return FAILED("%s: line %lld: '%s' must be an array with as many entries as 'ids' (%d), not %zu",
                      line->file, (long long)line->number, name, length, json_array_size(array));
    TRY(read_array(set, line, name, array, high, ignored));
    *ret_present = true;
    return OK;
}

static Status read_ids(IdsSet *set, const IdsLine *line, int32_t *ret_length) {
    const json_t *array = field(line, "ids");
    if (!json_is_array(array) || json_array_size(array) == 0)
        return FAILED("%s: line %lld: 'ids' must be an array of at least one token", line->file,
                      (long long)line->number);
    if (json_array_size(array) > (size_t)line->spec->seq)
        return USAGE("%s: line %lld: 'ids' has %zu tokens, more than the sequence length of %lld", line->file,
                     (long long)line->number, json_array_size(array), (long long)line->spec->seq);
    *ret_length = (int32_t)json_array_size(array);
    return read_array(set, line, "ids", array, line->spec->vocab - 1, false);
}

Status ids_read_labels(IdsSet *set, const IdsLine *line, int64_t labels, IdsExample *example) {
    return read_parallel(set, line, "labels", labels - 1, true, example->length, &example->has_labels);
}

Status ids_read_label(IdsSet *set, const IdsLine *line, IdsExample *example) {
    size_t outputs = (size_t)data_outputs(line->spec);
    if (!outputs) return ids_read_number(line, "label", line->spec->labels - 1, &example->label);
    TRY(mem_grow(&set->targets, &set->targets_capacity, (set->count + 1) * outputs, sizeof *set->targets));
    return targets_from_json(line->targets, line->number, field(line, "label"),
                             set->targets + set->count * outputs);
}

/* Appends the id of the row, or null. */
static Status read_name(IdsSet *set, const IdsLine *line) {
    json_t *name = line->spec->named ? field(line, id_field(line->spec)) : NULL;
    if (!name && !set->names) return OK;
    if (!set->names) set->names = json_array();
    while (json_array_size(set->names) < set->count - 1)
        if (json_array_append_new(set->names, json_null()) != 0) return FAILED("out of memory");
    int failed = json_array_append_new(set->names, name ? json_incref(name) : json_null());
    return failed ? FAILED("out of memory") : OK;
}

static Status read_example(IdsSet *set, const IdsLine *line) {
    TRY(check_fields(line));
    IdsExample example = {.at = set->used, .file = set->files};
    TRY(read_ids(set, line, &example.length));
    if (line->spec->types > 0)
        TRY(read_parallel(set, line, "types", line->spec->types - 1, false, example.length,
                          &example.has_types));
    if (!line->spec->unlabeled) TRY(task_data(line->spec->task)->read(set, line, &example));
    TRY(mem_grow(&set->example, &set->capacity, set->count + 1, sizeof *set->example));
    set->example[set->count++] = example;
    return read_name(set, line);
}

static bool is_blank(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

static Status read_line(IdsSet *set, const Source *source, const DataSpec *spec, TargetReader *targets,
                        int64_t number, const char *text, size_t size) {
    if (size > IDS_LINE_LIMIT)
        return FAILED("%s: line %lld: longer than %d bytes", source->name, (long long)number, IDS_LINE_LIMIT);
    json_error_t error;
    CLEANUP(json_decrefp) json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!json)
        return FAILED("%s: line %lld, column %d: not valid JSON: %s", source->name, (long long)number,
                      error.column, json_problem(&error));
    IdsLine line = {.file = source->name, .number = number, .spec = spec, .targets = targets, .json = json};
    return read_example(set, &line);
}

Status ids_set_read(IdsSet *set, const Source *source, const DataSpec *spec) {
    const char *at = (const char *)source->data, *end = at + source->size;
    TargetReader targets = {
        .problem = spec->problem, .labels = spec->labels, .names = spec->label_names, .file = source->name};
    for (int64_t number = 1; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline ? newline : end) - at);
        if (!is_blank(at, size)) TRY(read_line(set, source, spec, &targets, number, at, size));
        at = newline ? newline + 1 : end;
    }
    set->files++;
    return OK;
}

void ids_set_done(IdsSet *set) {
    free(set->example);
    free(set->targets);
    free(set->pool);
    json_decref(set->names);
    *set = (IdsSet){0};
}
