/* Groups over MPI: creating, splitting and freeing them. */
#include <string.h>

#include "base/memory.h"
#include "comm/mpi.h"
#include "comm/mpi/traffic.h"

static MpiGroup *impl(const Group *group) {
    return group->impl;
}

static void free_comm(Traffic *traffic, MPI_Comm *comm) {
    HOLD(traffic);
    MPI_Comm_free(comm);
}

bool mpi_built(void) {
    return true;
}

/* The library reports "Open MPI v4.1.4, package: ..."; keep the part before the first comma. */
const char *mpi_library(void) {
    static char name[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    if (!*name && MPI_Get_library_version(name, &length) == MPI_SUCCESS) name[strcspn(name, ",\n")] = 0;
    return name;
}

/* MPI_Finalize is collective, so it would hang after a failure. */
static void free_group(Group *group) {
    MpiGroup *mpi = group->impl;
    bool is_world = mpi->is_world, failed = false;
    if (mpi->traffic) {
        traffic_finish_group(mpi->traffic, group);
        failed = traffic_failed(mpi->traffic);
    }
    if (!failed) free_comm(mpi->traffic, &mpi->comm);
    if (is_world && !failed) {
        traffic_free(mpi->traffic);
        MPI_Finalize();
    }
    rings_close(group);
    if (!failed) free(mpi->rings.staging); /* else messages may still arrive there */
    free(mpi->sends);
    free(mpi->receives);
    free(mpi);
    free(group);
}

/* Owns the communicator, even on failure. */
static Status group_over(Group **ret_group, Traffic *traffic, MPI_Comm comm) {
    Group *group = NULL;
    MpiGroup *mpi = NULL;
    Status status = mem_new(1, sizeof *group, &group);
    if (!status) status = mem_new(1, sizeof *mpi, &mpi);
    if (status) {
        free(group);
        free_comm(traffic, &comm);
        return status;
    }
    *group = (Group){.ops = &group_ops_mpi, .impl = mpi};
    *mpi = (MpiGroup){.traffic = traffic, .comm = comm};
    traffic_hold(traffic);
    int code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (!code) code = MPI_Comm_rank(comm, &group->rank);
    if (!code) code = MPI_Comm_size(comm, &group->size);
    traffic_let_go(&traffic);
    status = mpi_status(code, "cannot create a group");
    if (!status) status = mem_new((size_t)group->size, sizeof *mpi->sends, &mpi->sends);
    if (!status) status = mem_new((size_t)group->size, sizeof *mpi->receives, &mpi->receives);
    if (status) {
        free_group(group);
        return status;
    }
    *ret_group = group;
    return OK;
}

/* A group of one does not need MPI. */
static Status group_or_self(Group **ret_group, Traffic *traffic, MPI_Comm comm) {
    int size = 0;
    traffic_hold(traffic);
    int code = MPI_Comm_size(comm, &size);
    traffic_let_go(&traffic);
    if (code == MPI_SUCCESS && size > 1) {
        CLEANUP(group_freep) Group *group = NULL;
        TRY(group_over(&group, traffic, comm));
        TRY(rings_open(group));
        return MOVE(ret_group, group);
    }
    free_comm(traffic, &comm);
    TRY(mpi_status(code, "cannot create a group"));
    return group_new_self(ret_group);
}

/* MPI_Comm_split blocks and holds the lock, while an operation in flight may need progress on this rank. */
static Status check_idle(const Group *group) {
    if (!traffic_busy(impl(group)->traffic)) return OK;
    return FAILED("internal: group split while operations are in flight");
}

static Status split_mpi(Group *group, int color, int key, GroupUse use, Group **ret_group) {
    (void)use;
    MPI_Comm comm = MPI_COMM_NULL;
    Traffic *traffic = impl(group)->traffic;
    TRY(check_idle(group));
    TRY(barrier(group)); /* under the watchdog, unlike MPI's own collectives */
    traffic_hold(traffic);
    int code = MPI_Comm_split(impl(group)->comm, color, key, &comm);
    traffic_let_go(&traffic);
    TRY(mpi_status(code, "cannot split a group"));
    return group_or_self(ret_group, traffic, comm);
}

Status mpi_node_group(Group *world, Group **ret_node) {
    world = group_base(world);
    if (world->ops != &group_ops_mpi) return group_new_self(ret_node);
    MPI_Comm comm = MPI_COMM_NULL;
    Traffic *traffic = impl(world)->traffic;
    TRY(check_idle(world));
    TRY(barrier(world));
    traffic_hold(traffic);
    int code =
        MPI_Comm_split_type(impl(world)->comm, MPI_COMM_TYPE_SHARED, world->rank, MPI_INFO_NULL, &comm);
    traffic_let_go(&traffic);
    TRY(mpi_status(code, "cannot find the ranks of this host"));
    return group_or_self(ret_node, traffic, comm);
}

static Status wait_mpi(Group *group, Stream *stream, Ticket ticket) {
    (void)stream;
    return traffic_wait(impl(group)->traffic, ticket.number);
}

static Watchdog *watchdog_mpi(const Group *group) {
    return &impl(group)->traffic->watchdog;
}

/* Abandoned operations still have messages under way on the old communicator, which is therefore never
 * freed. Its collectives use a context of their own, so it can still be duplicated. */
static Status recover_mpi(Group *group) {
    MpiGroup *mpi = impl(group);
    MPI_Comm comm = MPI_COMM_NULL;
    traffic_forget(mpi->traffic);
    rings_reset(group);
    TRY(traffic_reconnect(mpi->traffic, mpi->comm, &comm));
    mpi->comm = comm;
    mpi->collectives = 0;
    memset(mpi->sends, 0, (size_t)group->size * sizeof *mpi->sends);
    memset(mpi->receives, 0, (size_t)group->size * sizeof *mpi->receives);
    return OK;
}

static void end_all_mpi(Group *group, int exit_code) {
    MPI_Abort(impl(group)->comm, exit_code);
}

const GroupOps group_ops_mpi = {
    .name = "mpi",
    .start = start_mpi,
    .swap = swap_mpi,
    .wait = wait_mpi,
    .host_reduce = host_reduce_mpi,
    .host_reduce_scatter = host_reduce_scatter_mpi,
    .host_gather = host_gather_mpi,
    .host_broadcast = host_broadcast_mpi,
    .split = split_mpi,
    .watchdog = watchdog_mpi,
    .wait_more = traffic_wait_more,
    .watch_device = traffic_watch_device,
    .section = traffic_section,
    .abandons = traffic_abandons,
    .recover = recover_mpi,
    .drop = traffic_drop,
    .claim_failure = traffic_claim,
    .end_all = end_all_mpi,
    .free = free_group,
};

Status mpi_world_new(Group **ret_world) {
    int started = 0, level = 0;
    TRY(mpi_status(MPI_Initialized(&started), "MPI_Initialized failed"));
    if (started) return FAILED("internal: MPI initialized twice");
    TRY(mpi_status(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "initialization failed"));
    int size = 0;
    TRY(mpi_status(MPI_Comm_size(MPI_COMM_WORLD, &size), "cannot determine the number of ranks"));
    if (size == 1) {
        TRY(mpi_status(MPI_Finalize(), "MPI_Finalize failed"));
        return group_new_self(ret_world);
    }
    MPI_Comm comm = MPI_COMM_NULL;
    TRY(mpi_status(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "cannot connect the ranks"));
    Group *world;
    TRY(group_over(&world, NULL, comm));
    Status status = traffic_new(&impl(world)->traffic, comm, level >= MPI_THREAD_SERIALIZED);
    if (!status) status = rings_open(world);
    if (status) {
        group_free(world);
        return status;
    }
    impl(world)->is_world = true;
    *ret_world = world;
    return OK;
}
