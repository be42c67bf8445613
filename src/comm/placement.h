/* Where the ranks of a group run, and who does what in collectives that take it into account.
 *
 * A domain is a set of ranks that share memory: the ranks of a node or, if that is impossible, a single rank.
 * Data moves between domains in messages and inside a domain through shared memory.
 *
 * A tensor is divided into one part per rank, its owner. In every domain one rank handles a part: at home the
 * owner, elsewhere one of the domain's ranks, in turn. A reduction sums a part inside every domain, and the
 * handlers send these partial sums to the owner. A gather sends a part from its owner to the handlers, which
 * pass it on inside their domains. So a part crosses from one domain to another once.
 *
 * Sums follow a binary tree over the group's ranks: a range is split after the largest power of two below its
 * length. The partial sums of a domain are the largest subtrees whose ranks all belong to it. Every placement
 * therefore adds in the same order. A domain of 2^k adjacent ranks that starts at a multiple of 2^k has one
 * partial sum; others may have several and send more. */
#ifndef WEFT_COMM_PLACEMENT_H
#define WEFT_COMM_PLACEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/tensor.h"

/* Bytes that other ranks receive from this one: on the same node, and on other nodes. */
typedef struct CommBytes {
    uint64_t within, between;
} CommBytes;

static inline uint64_t comm_bytes_sum(CommBytes bytes) {
    return bytes.within + bytes.between;
}
/* *sum += times * bytes; `times` may be negative. */
static inline void comm_bytes_add(CommBytes *sum, CommBytes bytes, int64_t times) {
    sum->within += (uint64_t)times * bytes.within;
    sum->between += (uint64_t)times * bytes.between;
}

/* Ranks [first, end). */
typedef struct RankSpan {
    int first, end;
} RankSpan;

typedef struct Placement {
    int rank, size, domains;
    int *node;         /* of each rank */
    int *domain;       /* of each rank */
    int *member;       /* ranks by domain; those of domain d start at member[start[d]] */
    int *start;        /* domains + 1 entries */
    RankSpan *partial; /* partial sums by domain */
    int *partials;     /* where each domain's start; domains + 1 entries */
    int *peer;         /* handler of this rank's part in each domain */
    /* Of this rank's domain: the number of ranks, and which of them this is; the parts by handler, its own
     * part first, and where each handler's start; and of each part its handler and place in that list. */
    int locals, local;
    int *handled, *handled_start, *handler, *place;
    int most_handled; /* parts, by any rank of the group */
    bool shares;      /* some domain has more than one rank */
    CommBytes owners; /* numbers of other domains' parts that this rank handles, and ... */
    CommBytes peers;  /* ... of other handlers of its own, by whether they are on its node */
} Placement;

/* `node` and `domain` number the node and the domain of each rank; ranks of a domain are on one node. domain
 * NULL: ranks of a node share memory. */
MUST_USE Status placement_new(Placement **ret_placement, int rank, int size, const int *node,
                              const int *domain);
void placement_free(Placement *placement);
DEFINE_FREEP(Placement, placement)

/* The number of ranks of a domain. */
static inline int domain_size(const Placement *placement, int domain) {
    return placement->start[domain + 1] - placement->start[domain];
}
/* The rank of a domain that handles a part. */
int placement_handler(const Placement *placement, int domain, int part);
/* Where the tree splits ranks [first, end), end - first > 1. */
int tree_split(int first, int end);
/* Bytes per element of a domain's partial sums. Sums of 16-bit types travel as fp32, single values as they
 * are. */
int64_t partial_bytes(const Placement *placement, int domain, DType dtype);

/* Size and start of a rank's part when `count` elements are divided evenly. */
static inline int64_t part_count(int64_t count, int size, int rank) {
    return count / size + (rank < count % size);
}
static inline int64_t part_first(int64_t count, int size, int rank) {
    int64_t more = count % size;
    return count / size * rank + (rank < more ? rank : more);
}

/* What this rank sends; added to *sent. */
void sent_to(const Placement *placement, int to, uint64_t bytes, CommBytes *sent);
void sent_reduce(const Placement *placement, int64_t count, DType dtype, CommBytes *sent);
void sent_gather(const Placement *placement, int64_t count, size_t size, CommBytes *sent);
void sent_broadcast(const Placement *placement, uint64_t bytes, int root, CommBytes *sent);
void sent_to_all(const Placement *placement, uint64_t bytes, CommBytes *sent); /* bytes to each */

#endif
