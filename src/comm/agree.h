/* Whether all ranks were started alike. Each rank lists what must be the same everywhere; the lists are
 * compared before anything else depends on them. */
#ifndef WEFT_COMM_AGREE_H
#define WEFT_COMM_AGREE_H

#include "comm/group.h"

/* `key` is compared: the name of a setting, a space and its value. `shown` names it in a message: "{lr}
 * 0.001", "a.txt (1.2 MB, checksum 1a2b3c4d)". */
typedef struct AgreeRow {
    char *key, *shown;
    bool given; /* by the user; a difference in such a row explains those in others */
} AgreeRow;

typedef struct AgreeTable {
    AgreeRow *row;
    size_t count, capacity;
} AgreeTable;

void agree_done(AgreeTable *table);
MUST_USE Status agree_add(AgreeTable *table, const char *key, const char *shown, bool given);

/* Collective. If a table differs from rank 0's, all ranks fail with the same usage error: the first row that
 * differs, if possible one that was given, with rank and host on each side, and `advice`. */
MUST_USE Status agree_check(Group *world, const AgreeTable *table, const char *advice);

#endif
