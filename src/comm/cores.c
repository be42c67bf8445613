/* Ranks of a host exchange their affinity masks. A core that n ranks may use counts 1/n for each, so the
 * shares are right whether or not the launcher has bound the ranks. */
#include "comm/cores.h"

#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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

/* In topology order, so that hardware threads of a core and cores of a package stay together. */
static Status list_cores(const cpu_set_t *set, Core **ret_core, size_t *ret_count) {
    Core *core = NULL;
    size_t count = 0;
    TRY(mem_new((size_t)CPU_COUNT(set), sizeof *core, &core));
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, set))
            core[count++] = (Core){i, read_topology(i, "physical_package_id"), read_topology(i, "core_id")};
    qsort(core, count, sizeof *core, by_place);
    *ret_core = core;
    *ret_count = count;
    return OK;
}

/* A job owns a core by an abstract Unix socket with its number, which other users' jobs see as well and which
 * disappears with the process. */
static int own_core(int number) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "weft-core-%d", number);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (bind(fd, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void disown(int *fd, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (fd[i] >= 0) close(fd[i]);
}

/* The first rank of the host takes `count` cores for all of them. The sockets stay open until the process
 * ends. *ret_own is empty if other jobs have pinned too many. */
static Status take_cores(const cpu_set_t *all, int count, cpu_set_t *ret_own) {
    CLEANUP(mem_freep) Core *core = NULL;
    CLEANUP(mem_freep) int *fd = NULL;
    int found = 0;
    size_t cores = 0;
    TRY(list_cores(all, &core, &cores));
    TRY(mem_new(cores, sizeof *fd, &fd));
    CPU_ZERO(ret_own);
    for (size_t i = 0; i < cores; i++) {
        fd[i] = found < count ? own_core(core[i].number) : -1;
        if (fd[i] < 0) continue;
        CPU_SET(core[i].number, ret_own);
        found++;
    }
    if (found == count) return OK;
    disown(fd, cores);
    CPU_ZERO(ret_own);
    return OK;
}

/* Pins this rank to its part of the job's cores. */
static Status bind_part(const cpu_set_t *all, int rank, int each) {
    CLEANUP(mem_freep) Core *core = NULL;
    size_t count = 0;
    TRY(list_cores(all, &core, &count));
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
    const char *policy = getenv("OMPI_MCA_hwloc_base_binding_policy"); /* set by mpirun --bind-to */
    if (!policy) policy = getenv("PRTE_MCA_hwloc_default_binding_policy");
    return policy && strcmp(policy, "none") == 0 && !getenv(CORES_PIN);
}

/* Collective over the ranks of a host. All of them may use `own`. */
static Status pin(Group *node, const cpu_set_t *own, CoreShare *share) {
    cpu_set_t job;
    int each = CPU_COUNT(own) / node->size;
    CPU_ZERO(&job);
    if (node->rank == 0) TRY(take_cores(own, each * node->size, &job));
    TRY(host_broadcast(node, &job, sizeof job, 0));
    if (!CPU_COUNT(&job)) return OK;
    CLEANUP(status_freep) Status refused = bind_part(&job, node->rank, each);
    share->bound = !refused;
    if (share->bound) share->cores = each;
    return OK;
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
    bool enough = share.cores / node->size >= share.threads;
    if (same && node->size > 1 && enough && !binding_is_set()) TRY(pin(node, &own, &share));
    *ret_share = share;
    return OK;
}
