/* Latency and rate of the links between ranks, within nodes and between them.
 *
 * Both are measured with messages, not collectives, so they do not depend on an algorithm. Between two nodes,
 * all ranks of one exchange messages with those of the other in both directions at once, since they share the
 * nodes' network; the rate is that of all of them together, per direction. */
#ifndef WEFT_PLAN_LINKS_H
#define WEFT_PLAN_LINKS_H

#include "comm/group.h"

typedef struct PairLink {
    int rank[2]; /* the first ranks of two nodes, or two ranks of one */
    double latency_s, bandwidth;
} PairLink;

typedef struct LinkTable {
    int nodes;
    int per_node; /* ranks of the smallest node */
    PairLink *within, *between;
    size_t withins, betweens, within_capacity, between_capacity;
} LinkTable;

/* Nodes are measured all at once, and so are pairs of nodes that have no node in common; of more than 16
 * nodes, not every pair. Collective; all ranks get the same table. */
MUST_USE Status links_measure(LinkTable *ret_table, Group *world, Device *device);
void link_table_done(LinkTable *table);
/* The slowest of `count` > 0 links: its rate, and the highest latency. */
PairLink links_slowest(const PairLink *link, size_t count);
/* Whether some links are much slower than others. */
bool links_differ(const PairLink *link, size_t count);

#endif
