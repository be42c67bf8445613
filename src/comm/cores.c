/* Ranks of a host exchange their affinity masks. A core that n ranks may use counts 1/n for each, so the
 * shares are right whether or not the launcher has bound the ranks. */
#include "comm/cores.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "comm/mpi.h"

typedef struct Core {
    int number, package, core;
} Core;

static int read_topology(int core, const char *what) {
    char path[128];
    int value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", core, what);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &value) != 1) value = 0;
    if (file) fclose(file);
    return value;
}

static int by_place(const void *a, const void *b) {
    const Core *x = a, *y = b;
    if (x->package != y->package) return x->package < y->package ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Pins the rank to its share of the cores, in topology order, so that hardware threads of a core and cores of
 * a package stay together. */
static Status bind_part(const cpu_set_t *all, int rank, int each) {
    CLEANUP(mem_freep) Core *core = NULL;
    TRY(mem_new((size_t)CPU_COUNT(all), sizeof *core, &core));
    size_t count = 0;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, all))
            core[count++] = (Core){i, read_topology(i, "physical_package_id"), read_topology(i, "core_id")};
    qsort(core, count, sizeof *core, by_place);
    cpu_set_t own;
    CPU_ZERO(&own);
    for (int i = rank * each; i < (rank + 1) * each; i++) CPU_SET(core[i].number, &own);
    if (sched_setaffinity(0, sizeof own, &own) != 0) return FAILED("cannot pin this rank to its cores");
    return OK;
}

static bool binding_is_set(void) {
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) return true;
    return false;
}

/* This rank's share, in cores, and whether all ranks have the same mask. */
static double part_of(const cpu_set_t *set, int ranks, int own, bool *ret_same) {
    double part = 0;
    *ret_same = true;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        int users = 0;
        for (int r = 0; r < ranks; r++) users += CPU_ISSET(i, &set[r]) != 0;
        if (users && users != ranks) *ret_same = false;
        if (CPU_ISSET(i, &set[own])) part += 1.0 / users;
    }
    return part;
}

Status cores_share(Group *world, int threads, CoreShare *ret_share) {
    CLEANUP(group_freep) Group *node = NULL;
    TRY(mpi_node_group(world, &node));
    CLEANUP(mem_freep) cpu_set_t *set = NULL;
    TRY(mem_new((size_t)node->size, sizeof *set, &set));
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) != 0)
        return FAILED("cannot read the CPU affinity of this rank");
    TRY(host_gather(node, set, &own, sizeof own));
    bool same;
    double part = part_of(set, node->size, node->rank, &same);
    CoreShare share = {.ranks = node->size, .cores = CPU_COUNT(&own)};
    share.threads = threads > 0 ? threads : part >= 1 ? (int)(part + 1e-6) : 1;
    int each = share.cores / node->size;
    if (same && node->size > 1 && each >= share.threads && !binding_is_set()) {
        CLEANUP(status_freep) Status refused = bind_part(&own, node->rank, each);
        share.bound = !refused;
        if (share.bound) share.cores = each;
    }
    *ret_share = share;
    return OK;
}
