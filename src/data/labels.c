#include "data/labels.h"

#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "data/table.h"
#include "model/config.h"

void label_set_done(LabelSet *set) {
    for (size_t i = 0; i < set->count; i++) free(set->name[i]);
    free(set->name);
    *set = (LabelSet){0};
}

Status label_set_add(LabelSet *set, const char *name, size_t size) {
    CLEANUP(mem_freep) char *copy = NULL;
    TRY(mem_new(size + 1, 1, &copy));
    memcpy(copy, name, size);
    TRY(mem_grow(&set->name, &set->capacity, set->count + 1, sizeof *set->name));
    set->name[set->count++] = copy;
    copy = NULL;
    return OK;
}

/* Whether the text is an integer such as "17" or "-3"; "007" is a name. */
static bool is_integer(const char *text) {
    const char *digits = text + (text[0] == '-');
    size_t length = strlen(digits);
    return length > 0 && length < 16 && strspn(digits, "0123456789") == length &&
           (digits[0] != '0' || length == 1);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int by_number(const void *a, const void *b) {
    long long x = atoll(*(char *const *)a), y = atoll(*(char *const *)b);
    return (x > y) - (x < y);
}

/* Index of a name in a sorted set, or where to insert it. */
static size_t find_slot(const LabelSet *set, const char *name, size_t size, bool *ret_there) {
    size_t low = 0, high = set->count;
    *ret_there = false;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strncmp(name, set->name[middle], size);
        if (order == 0 && set->name[middle][size]) order = -1;
        if (order == 0) *ret_there = true;
        if (order == 0) return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

typedef struct LabelScan {
    LabelSet set;
    const char *file;
} LabelScan;

static Status add_name(LabelScan *scan, int64_t line, const char *text, size_t size) {
    bool there;
    if (size == 0 || memchr(text, 0, size))
        return FAILED("%s: line %lld: the label is empty; expected a name or a number", scan->file,
                      (long long)line);
    size_t slot = find_slot(&scan->set, text, size, &there);
    if (there) return OK;
    if (scan->set.count == MAX_LABELS)
        return FAILED("%s: line %lld: more than %d distinct labels", scan->file, (long long)line, MAX_LABELS);
    TRY(label_set_add(&scan->set, text, size));
    char **name = scan->set.name, *fresh = name[scan->set.count - 1];
    memmove(name + slot + 1, name + slot, (scan->set.count - 1 - slot) * sizeof *name);
    name[slot] = fresh;
    return OK;
}

static Status add_label(void *context, int64_t line, const TableField *fields) {
    return add_name(context, line, fields[0].text, fields[0].size);
}

static Status add_list(void *context, int64_t line, const TableField *fields) {
    LabelScan *scan = context;
    CLEANUP(json_decrefp) json_t *parsed = NULL;
    const json_t *list = table_list(fields[0], &parsed);
    if (!list) return FAILED("%s: line %lld: the label is not a list", scan->file, (long long)line);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        if (!json_is_string(entry))
            return FAILED("%s: line %lld: label[%zu] is not a name, unlike other labels", scan->file,
                          (long long)line, i);
        TRY(add_name(scan, line, json_string_value(entry), json_string_length(entry)));
    }
    return OK;
}

Status label_fields_split(LabelSet *ret_fields, const char *field) {
    CLEANUP(label_set_done) LabelSet fields = {0};
    for (const char *at = field;; at++) {
        size_t size = strcspn(at, ",");
        if (size == 0) return USAGE("{label-field} %s: a name is empty", field);
        if (fields.count == TABLE_LABELS)
            return USAGE("{label-field} names more than %d fields", TABLE_LABELS);
        for (size_t i = 0; i < fields.count; i++)
            if (!strncmp(fields.name[i], at, size) && !fields.name[i][size])
                return USAGE("{label-field} names %s twice", fields.name[i]);
        TRY(label_set_add(&fields, at, size));
        at += size;
        if (!*at) break;
    }
    return MOVE(ret_fields, fields);
}

static void scan_done(LabelScan *scan) {
    label_set_done(&scan->set);
}

static Status find_labels(LabelSet *ret_set, const char *const *paths, int count, const TableSpec *spec,
                          TableRow func) {
    CLEANUP(scan_done) LabelScan scan = {0};
    bool integers = true;
    for (int i = 0; i < count; i++) {
        CLEANUP(source_done) Source source = {0};
        TRY(source_init_rows(&source, paths[i], SOURCE_GZ_LIMIT, NULL));
        scan.file = paths[i];
        TRY(table_read_lists(&source, spec, func, &scan));
    }
    LabelSet *set = &scan.set;
    if (set->count == 0) return FAILED("%s: no rows; expected at least one", paths[0]);
    for (size_t i = 0; i < set->count; i++) integers = integers && is_integer(set->name[i]);
    qsort(set->name, set->count, sizeof *set->name, integers ? by_number : by_name);
    *ret_set = *set;
    *set = (LabelSet){0};
    return OK;
}

Status label_set_find(LabelSet *ret_set, const char *const *paths, int count, const char *field) {
    return find_labels(
        ret_set, paths, count,
        &(TableSpec){.names = &field, .count = 1, .lists_from = 1, .settings = {"label-field"}}, add_label);
}

Status label_set_find_lists(LabelSet *ret_set, const char *const *paths, int count, const char *field,
                            bool ids) {
    const char *name = ids ? "label" : field;
    return find_labels(
        ret_set, paths, count,
        &(TableSpec){.names = &name, .count = 1, .json = ids, .settings = {ids ? NULL : "label-field"}},
        add_list);
}

int32_t label_number(const char *const *names, int64_t count, const char *label, size_t size) {
    for (int64_t i = 0; names && i < count; i++)
        if (strlen(names[i]) == size && !memcmp(names[i], label, size)) return (int32_t)i;
    char digits[16];
    if (size == 0 || size >= sizeof digits) return -1;
    memcpy(digits, label, size);
    digits[size] = 0;
    if (strlen(digits) != size || !is_integer(digits) || digits[0] == '-' || atoll(digits) >= count)
        return -1;
    return (int32_t)atoll(digits);
}
