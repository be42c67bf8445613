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

/* "17", "-3"; not "007", which is a name. */
static bool is_whole(const char *text) {
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

/* Where a name is, or would be, in a sorted set. */
static size_t place_of(const LabelSet *set, const char *name, size_t size, bool *ret_there) {
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

typedef struct Finding {
    LabelSet set;
    const char *file;
} Finding;

static Status take_label(void *context, int64_t line, const TableField *fields) {
    Finding *finding = context;
    bool there;
    if (fields[0].size == 0 || memchr(fields[0].text, 0, fields[0].size))
        return FAILED("%s: line %lld: the label is empty, expected a name or a number", finding->file,
                      (long long)line);
    size_t place = place_of(&finding->set, fields[0].text, fields[0].size, &there);
    if (there) return OK;
    if (finding->set.count == MAX_LABELS)
        return FAILED("%s: line %lld: there are more than %d labels", finding->file, (long long)line,
                      MAX_LABELS);
    TRY(label_set_add(&finding->set, fields[0].text, fields[0].size));
    char **name = finding->set.name, *fresh = name[finding->set.count - 1];
    memmove(name + place + 1, name + place, (finding->set.count - 1 - place) * sizeof *name);
    name[place] = fresh;
    return OK;
}

static void finding_done(Finding *finding) {
    label_set_done(&finding->set);
}

Status label_set_find(LabelSet *ret_set, const char *const *paths, int count, const char *field) {
    CLEANUP(finding_done) Finding finding = {0};
    bool whole = true;
    for (int i = 0; i < count; i++) {
        CLEANUP(source_done) Source source = {0};
        TRY(source_init_owned(&source, paths[i], SOURCE_GZ_LIMIT));
        finding.file = paths[i];
        TRY(table_read(&source, &field, 1, take_label, &finding));
    }
    LabelSet *set = &finding.set;
    if (set->count == 0) return FAILED("%s: has no rows, expected at least one", paths[0]);
    for (size_t i = 0; i < set->count; i++) whole = whole && is_whole(set->name[i]);
    qsort(set->name, set->count, sizeof *set->name, whole ? by_number : by_name);
    *ret_set = *set;
    *set = (LabelSet){0};
    return OK;
}

int32_t label_number(const char *const *names, int64_t count, const char *label, size_t size) {
    for (int64_t i = 0; names && i < count; i++)
        if (strlen(names[i]) == size && !memcmp(names[i], label, size)) return (int32_t)i;
    char digits[16];
    if (size == 0 || size >= sizeof digits) return -1;
    memcpy(digits, label, size);
    digits[size] = 0;
    if (strlen(digits) != size || !is_whole(digits) || digits[0] == '-' || atoll(digits) >= count) return -1;
    return (int32_t)atoll(digits);
}
