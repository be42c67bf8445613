/* The labels of a classification: names, each with its number, which is its place. */
#ifndef WEFT_DATA_LABELS_H
#define WEFT_DATA_LABELS_H

#include <stdint.h>

#include "base/status.h"

typedef struct LabelSet {
    char **name;
    size_t count, capacity;
} LabelSet;

void label_set_done(LabelSet *set);
MUST_USE Status label_set_add(LabelSet *set, const char *name, size_t size);
/* The labels that a field of tables holds, each once: in the order of the numbers where all of them are whole
 * numbers, else of their bytes. */
MUST_USE Status label_set_find(LabelSet *ret_set, const char *const *paths, int count, const char *field);
/* The number of a label: by its name, else as a number below `count`; -1 when it is neither. */
int32_t label_number(const char *const *names, int64_t count, const char *label, size_t size);

#endif
