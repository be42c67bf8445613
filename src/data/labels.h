/* Label names of a classification task; a label's number is its index. */
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
/* Collects the distinct labels in a field of tables. They are sorted numerically if all are integers, else
 * bytewise. */
MUST_USE Status label_set_find(LabelSet *ret_set, const char *const *paths, int count, const char *field);
/* The same for lists of names in a field of tables or of `ids` files. */
MUST_USE Status label_set_find_lists(LabelSet *ret_set, const char *const *paths, int count,
                                     const char *field, bool ids);
/* The names in "a,b,c". */
MUST_USE Status label_fields_split(LabelSet *ret_fields, const char *field);
/* Number of a label, given by its name or as an integer below `count`; -1: unknown. `names` may be NULL. */
int32_t label_number(const char *const *names, int64_t count, const char *label, size_t size);

#endif
