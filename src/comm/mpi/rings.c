/* Memory that ranks of a node share: each rank creates an anonymous file (memfd) for the group, and the
 * others open it through /proc. It has no name and is gone with the processes, and neither the size of
 * /dev/shm nor a full disk limits it. If a rank cannot open the files of all others of its node, for example
 * because processes are in different containers, the ranks of the group exchange messages instead. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/mpi/traffic.h"

/* What the others need to know of a rank. */
typedef struct Place {
    char node[HOST_SIZE + 16];
    int32_t process, fd;
    uint64_t cookie; /* tells its file from one of another process with the same numbers */
} Place;

static Rings *rings_of(const Group *group) {
    return &((MpiGroup *)group->impl)->rings;
}

/* The host or, for tests, the entry of this rank of the world in WEFT_NODES, such as 0,0,1,1. */
static Status name_node(const Group *group, Place *place) {
    const Traffic *traffic = ((MpiGroup *)group->impl)->traffic;
    const char *host = traffic->watchdog.place[traffic->rank].host, *list = getenv("WEFT_NODES");
    int number = 0;
    for (int r = 0; list && r < traffic->rank; r++) {
        list = strchr(list, ',');
        list = list ? list + 1 : "";
    }
    if (list && sscanf(list, "%d", &number) != 1)
        return USAGE("WEFT_NODES has no number for rank %d; list the node of each rank, such as 0,0,1,1",
                     traffic->rank);
    snprintf(place->node, sizeof place->node, list ? "%s %d" : "%s", host, number);
    return OK;
}

static int create_file(uint64_t *ret_cookie) {
    int fd = memfd_create("weft", MFD_CLOEXEC);
    if (fd < 0) return -1;
    if (getrandom(ret_cookie, sizeof *ret_cookie, 0) == sizeof *ret_cookie &&
        ftruncate(fd, SEGMENT_HEAD) == 0 &&
        pwrite(fd, ret_cookie, sizeof *ret_cookie, 0) == sizeof *ret_cookie)
        return fd;
    close(fd);
    return -1;
}

/* NULL if it is not the file of this place. */
static Segment *map_file(const Place *place, size_t size) {
    char path[64];
    uint64_t cookie = 0;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", place->process, place->fd);
    int fd = place->fd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return NULL;
    void *data = MAP_FAILED;
    if (pread(fd, &cookie, sizeof cookie, 0) == sizeof cookie && cookie == place->cookie)
        data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return data == MAP_FAILED ? NULL : data;
}

static void unmap_all(Rings *rings, int locals) {
    for (int i = 0; rings->segment && i < locals; i++)
        if (rings->segment[i]) munmap(rings->segment[i], rings->segment_size);
    free(rings->segment);
    free(rings->took);
    rings->segment = NULL;
    rings->took = NULL;
}

/* Maps the files of this domain; false if one cannot be mapped. */
static Status map_all(const Placement *p, const Place *place, Rings *rings, bool *ret_mapped) {
    const int *member = p->member + p->start[p->domain[p->rank]];
    rings->segment_size = segment_bytes(p);
    TRY(mem_new((size_t)p->locals, sizeof *rings->segment, &rings->segment));
    TRY(mem_new((size_t)p->locals, sizeof *rings->took, &rings->took));
    bool mapped = place[p->rank].fd >= 0 && ftruncate(place[p->rank].fd, (off_t)rings->segment_size) == 0;
    for (int i = 0; i < p->locals && mapped; i++) {
        rings->segment[i] = map_file(&place[member[i]], rings->segment_size);
        mapped = rings->segment[i] != NULL;
    }
    *ret_mapped = mapped;
    return OK;
}

static void number_nodes(const Place *place, int size, int *node) {
    for (int r = 0; r < size; r++) {
        node[r] = 0;
        while (strcmp(place[node[r]].node, place[r].node)) node[r]++;
    }
}

/* If memory cannot be shared on one node, no rank of the group shares it. */
static Status agree(Group *group, const int *node, bool mapped) {
    int64_t failed = !mapped;
    Placement *nodes = group->placement;
    group->placement = NULL; /* the rings cannot be used yet */
    Status status = host_reduce(group, &failed, 1, DT_I64, REDUCE_SUM);
    group->placement = nodes;
    TRY(status);
    if (!failed) return OK;
    CLEANUP(mem_freep) int *domain = NULL;
    TRY(mem_new((size_t)group->size, sizeof *domain, &domain));
    for (int r = 0; r < group->size; r++) domain[r] = r;
    placement_free(nodes);
    group->placement = NULL;
    return placement_new(&group->placement, group->rank, group->size, node, domain);
}

Status rings_open(Group *group) {
    Rings *rings = rings_of(group);
    CLEANUP(mem_freep) Place *place = NULL;
    CLEANUP(mem_freep) int *node = NULL;
    Place own = {.process = (int32_t)getpid()};
    TRY(name_node(group, &own));
    TRY(mem_new((size_t)group->size, sizeof *place, &place));
    TRY(mem_new((size_t)group->size, sizeof *node, &node));
    own.fd = create_file(&own.cookie);
    Status status = host_gather(group, place, &own, sizeof own);
    bool mapped = true;
    if (!status) {
        number_nodes(place, group->size, node);
        status = placement_new(&group->placement, group->rank, group->size, node, NULL);
    }
    int locals = group->placement ? group->placement->locals : 0;
    if (!status && locals > 1) status = map_all(group->placement, place, rings, &mapped);
    if (!status && group->placement->shares) status = agree(group, node, mapped);
    if (own.fd >= 0) close(own.fd);
    if (status || group->placement->locals < locals) unmap_all(rings, locals);
    TRY(status);
    rings->bytes = round_bytes(group->placement);
    group->small = small_bytes(group->placement);
    return OK;
}

void rings_close(Group *group) {
    if (group->placement) unmap_all(rings_of(group), group->placement->locals);
    placement_free(group->placement);
    group->placement = NULL;
}

/* The others may still send to the old staging memory, which is therefore leaked. */
void rings_reset(Group *group) {
    Rings *rings = rings_of(group);
    const Placement *p = group->placement;
    rings->staging = NULL;
    rings->puts = rings->shows = 0;
    rings->summed = rings->sent = rings->combined = 0;
    if (!rings->segment) return;
    memset(rings->took, 0, (size_t)p->locals * sizeof *rings->took);
    Progress *own = &rings->segment[p->local]->progress;
    own->put = own->used = own->shown = own->taken = 0;
}

Status rings_prepare(Group *group, Device *device) {
    Rings *rings = rings_of(group);
    size_t bytes = WINDOW * rings->bytes.staging;
    if (bytes && !rings->staging) {
        rings->staging = aligned_alloc(64, bytes);
        if (!rings->staging) return FAILED("out of memory for communication");
    }
    if (!device || rings->counted == device) return OK;
    TRY(dev_adopt(device, MEM_COMM, exchange_bytes(group->placement)));
    rings->counted = device;
    return OK;
}
