#include "comm/placement.h"

#include <limits.h>
#include <string.h>

#include "base/memory.h"

void sent_to(const Placement *p, int to, uint64_t bytes, CommBytes *sent) {
    *(p->node[to] == p->node[p->rank] ? &sent->within : &sent->between) += bytes;
}

/* The parts that this rank handles, its own first. */
static const int *own_parts(const Placement *p, int *ret_count) {
    *ret_count = p->handled_start[p->local + 1] - p->handled_start[p->local];
    return p->handled + p->handled_start[p->local];
}

/* The number of ranks below `part` outside the domain decides whose turn it is. */
int placement_handler(const Placement *p, int domain, int part) {
    if (p->domain[part] == domain) return part;
    int count = domain_size(p, domain), before = part;
    const int *member = p->member + p->start[domain];
    for (int i = 0; i < count && member[i] < part; i++) before--;
    return member[before % count];
}

int tree_split(int first, int end) {
    int half = 1;
    while (2 * half < end - first) half *= 2;
    return first + half;
}

/* Domains are numbered from 0 in order of their first ranks. Neighbors usually share one. */
static Status number_domains(Placement *p, const int *domain) {
    CLEANUP(mem_freep) int *name = NULL;
    TRY(mem_new((size_t)p->size, sizeof *name, &name));
    for (int r = 0, highest = INT_MIN; r < p->size; r++) {
        int d = domain[r] > highest ? -1 : p->domains - 1;
        while (d >= 0 && name[d] != domain[r]) d--;
        if (d < 0) name[d = p->domains++] = domain[r];
        if (domain[r] > highest) highest = domain[r];
        p->domain[r] = d;
    }
    return OK;
}

static Status list_members(Placement *p) {
    TRY(mem_new((size_t)p->size, sizeof *p->member, &p->member));
    TRY(mem_new((size_t)p->domains + 1, sizeof *p->start, &p->start));
    for (int r = 0; r < p->size; r++) p->start[p->domain[r] + 1]++;
    for (int d = 0; d < p->domains; d++) p->start[d + 1] += p->start[d];
    CLEANUP(mem_freep) int *next = NULL;
    TRY(mem_new((size_t)p->domains, sizeof *next, &next));
    for (int r = 0; r < p->size; r++) p->member[p->start[p->domain[r]] + next[p->domain[r]]++] = r;
    p->locals = domain_size(p, p->domain[p->rank]);
    for (int d = 0; d < p->domains; d++) {
        int count = domain_size(p, d), remote = (p->size - 1) / count;
        if (1 + remote > p->most_handled) p->most_handled = 1 + remote;
        p->shares |= count > 1;
    }
    return OK;
}

/* The one domain that all of the ranks belong to, or -1. Counts the partial sums of each domain or, once
 * there is memory, lists them. */
static int find_partials(Placement *p, int first, int end, int *next) {
    if (end - first == 1) return p->domain[first];
    int middle = tree_split(first, end);
    int left = find_partials(p, first, middle, next), right = find_partials(p, middle, end, next);
    if (left == right && left >= 0) return left;
    const RankSpan span[] = {{first, middle}, {middle, end}};
    const int domain[] = {left, right};
    for (int i = 0; i < 2; i++) {
        if (domain[i] < 0) continue;
        if (p->partial) p->partial[next[domain[i]]] = span[i];
        next[domain[i]]++;
    }
    return -1;
}

static Status list_partials(Placement *p) {
    CLEANUP(mem_freep) int *next = NULL;
    TRY(mem_new((size_t)p->domains, sizeof *next, &next));
    TRY(mem_new((size_t)p->domains + 1, sizeof *p->partials, &p->partials));
    int whole = find_partials(p, 0, p->size, next);
    if (whole >= 0) next[whole] = 1;
    for (int d = 0; d < p->domains; d++) p->partials[d + 1] = p->partials[d] + next[d];
    for (int d = 0; d < p->domains; d++) next[d] = p->partials[d];
    TRY(mem_new((size_t)p->partials[p->domains], sizeof *p->partial, &p->partial));
    if (find_partials(p, 0, p->size, next) >= 0) p->partial[0] = (RankSpan){0, p->size};
    return OK;
}

/* The same as placement_handler, for all parts at once. Also counts the parts of each handler, in
 * handled_start[1 + its place in the domain]. */
static void find_handlers(Placement *p, int *local) {
    int own = p->domain[p->rank], others = 0;
    const int *member = p->member + p->start[own];
    for (int i = 0; i < p->locals; i++) local[member[i]] = i;
    for (int q = 0; q < p->size; q++) {
        p->handler[q] = p->domain[q] == own ? q : member[others++ % p->locals];
        p->handled_start[1 + local[p->handler[q]]]++;
    }
    p->local = local[p->rank];
}

/* A handler's list starts with its own part and continues with those after it. */
static Status list_handled(Placement *p) {
    size_t size = (size_t)p->size;
    CLEANUP(mem_freep) int *local = NULL, *next = NULL;
    TRY(mem_new((size_t)p->domains, sizeof *p->peer, &p->peer));
    for (int d = 0; d < p->domains; d++) p->peer[d] = placement_handler(p, d, p->rank);
    TRY(mem_new(size, sizeof *p->handled, &p->handled));
    TRY(mem_new(size, sizeof *p->handler, &p->handler));
    TRY(mem_new(size, sizeof *p->place, &p->place));
    TRY(mem_new(size, sizeof *local, &local));
    TRY(mem_new((size_t)p->locals, sizeof *next, &next));
    TRY(mem_new((size_t)p->locals + 1, sizeof *p->handled_start, &p->handled_start));
    find_handlers(p, local);
    for (int i = 0; i < p->locals; i++) p->handled_start[i + 1] += p->handled_start[i];
    for (int i = 0; i < 2 * p->size; i++) {
        int q = i % p->size, handler = p->handler[q], at = local[handler];
        if ((q >= handler) != (i < p->size)) continue; /* first those from the handler on, then the rest */
        p->place[q] = next[at]++;
        p->handled[p->handled_start[at] + p->place[q]] = q;
    }
    int parts;
    const int *part = own_parts(p, &parts);
    for (int i = 1; i < parts; i++) sent_to(p, part[i], 1, &p->owners);
    for (int d = 0; d < p->domains; d++)
        if (p->peer[d] != p->rank) sent_to(p, p->peer[d], 1, &p->peers);
    return OK;
}

Status placement_new(Placement **ret_placement, int rank, int size, const int *node, const int *domain) {
    CLEANUP(placement_freep) Placement *p = NULL;
    TRY(mem_new(1, sizeof *p, &p));
    p->rank = rank;
    p->size = size;
    TRY(mem_new((size_t)size, sizeof *p->node, &p->node));
    TRY(mem_new((size_t)size, sizeof *p->domain, &p->domain));
    memcpy(p->node, node, (size_t)size * sizeof *node);
    TRY(number_domains(p, domain ? domain : node));
    TRY(list_members(p));
    TRY(list_partials(p));
    TRY(list_handled(p));
    return MOVE(ret_placement, p);
}

void placement_free(Placement *p) {
    if (!p) return;
    int *const lists[] = {p->node, p->domain,  p->member,        p->start,   p->partials,
                          p->peer, p->handled, p->handled_start, p->handler, p->place};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]);
    free(p->partial);
    free(p);
}

static int64_t wide_size(DType dtype) {
    return dtype == DT_BF16 || dtype == DT_F16 ? (int64_t)sizeof(float) : (int64_t)dtype_size(dtype);
}

int64_t partial_bytes(const Placement *p, int domain, DType dtype) {
    int64_t bytes = 0;
    for (int i = p->partials[domain]; i < p->partials[domain + 1]; i++)
        bytes += p->partial[i].end - p->partial[i].first > 1 ? wide_size(dtype) : (int64_t)dtype_size(dtype);
    return bytes;
}

/* ---- counting ---- */

/* The parts of a tensor that this rank handles may have one element more than count / size. */
static int64_t more_elements(const Placement *p, int64_t count) {
    int parts;
    const int *part = own_parts(p, &parts);
    int64_t more = 0;
    for (int i = 0; i < parts && count % p->size; i++) more += part[i] < count % p->size;
    return more;
}

void sent_reduce(const Placement *p, int64_t count, DType dtype, CommBytes *sent) {
    int parts;
    const int *part = own_parts(p, &parts);
    int64_t each = partial_bytes(p, p->domain[p->rank], dtype), least = count / p->size;
    comm_bytes_add(sent, p->owners, least * each);
    for (int i = 1; i < parts && count % p->size; i++)
        if (part[i] < count % p->size) sent_to(p, part[i], (uint64_t)each, sent);
    int64_t others = count - parts * least - more_elements(p, count);
    sent->within += (uint64_t)others * dtype_size(dtype);
}

void sent_gather(const Placement *p, int64_t count, size_t size, CommBytes *sent) {
    int parts;
    own_parts(p, &parts);
    int64_t handled = parts * (count / p->size) + more_elements(p, count);
    sent->within += (uint64_t)(p->locals - 1) * (uint64_t)handled * size;
    comm_bytes_add(sent, p->peers, part_count(count, p->size, p->rank) * (int64_t)size);
}

void sent_broadcast(const Placement *p, uint64_t bytes, int root, CommBytes *sent) {
    int own = p->domain[p->rank], next = (own + 1) % p->domains;
    if (placement_handler(p, own, root) != p->rank) return;
    sent->within += (uint64_t)(p->locals - 1) * bytes;
    if (next != p->domain[root]) sent_to(p, placement_handler(p, next, root), bytes, sent);
}

void sent_to_all(const Placement *p, uint64_t bytes, CommBytes *sent) {
    for (int r = 0; r < p->size; r++)
        if (r != p->rank) sent_to(p, r, bytes, sent);
}
