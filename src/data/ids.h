/* Examples from JSON lines of token ids. Files are read completely and validated up front, so that an error
 * in the last line shows before training starts. */
#ifndef WEFT_DATA_IDS_H
#define WEFT_DATA_IDS_H

#include "data/data.h"
#include "data/source.h"
#include "data/targets.h"

enum { IDS_LINE_LIMIT = 16 << 20 };

/* The fields of a line, NULL-terminated. */
extern const char *const ids_fields[];

typedef struct IdsExample {
    size_t at; /* offset in the pool of its ids, followed by types and labels if present */
    int32_t length;
    int file; /* number of the file, from 0 */
    bool has_types, has_labels;
    int32_t next, start, end, label; /* only those that the task needs are set */
} IdsExample;

typedef struct IdsSet {
    IdsExample *example;
    size_t count, capacity;
    int files;
    int32_t *pool;
    size_t used, pool_capacity;
    float *targets; /* (count, L) if the labels are targets, see data_outputs; else NULL */
    size_t targets_capacity;
    json_t *names; /* (count) ids of rows, see DataSpec.named; NULL: none has one */
} IdsSet;

/* Appends the examples of one file, validated against the sizes and the task in `spec`. */
MUST_USE Status ids_set_read(IdsSet *set, const Source *source, const DataSpec *spec);
void ids_set_done(IdsSet *set);

/* A parsed line, for the tasks (data/task.h). */
typedef struct IdsLine {
    const char *file;
    int64_t number;
    const DataSpec *spec;
    TargetReader *targets;
    json_t *json;
} IdsLine;

/* Reads a required integer from 0 to `high`. */
MUST_USE Status ids_read_number(const IdsLine *line, const char *name, int64_t high, int32_t *ret_value);
/* Reads "labels", if there are any: one for each token, below `labels`. */
MUST_USE Status ids_read_labels(IdsSet *set, const IdsLine *line, int64_t labels, IdsExample *example);
/* Reads "label": a number, or the targets of the example that comes next in the set. */
MUST_USE Status ids_read_label(IdsSet *set, const IdsLine *line, IdsExample *example);

static inline const int32_t *ids_of(const IdsSet *set, const IdsExample *example) {
    return set->pool + example->at;
}
/* NULL: not given. */
static inline const int32_t *types_of(const IdsSet *set, const IdsExample *example) {
    return example->has_types ? ids_of(set, example) + example->length : NULL;
}
static inline const int32_t *labels_of(const IdsSet *set, const IdsExample *example) {
    return example->has_labels ? ids_of(set, example) + example->length * (1 + example->has_types) : NULL;
}

#endif
