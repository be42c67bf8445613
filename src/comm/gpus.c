/* Ranks of a host compare the PCI addresses of their GPUs: a launcher may make only one GPU visible to each
 * rank, which is then number 0 everywhere. NCCL is used only if its requirements hold on every rank. */
#include "comm/gpus.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/mpi.h"
#include "comm/nccl.h"
#include "comm/staged.h"
#include "device/registry.h"

Status gpus_share(Group *world, GpuShare *ret_share) {
    CudaInfo info;
    CLEANUP(group_freep) Group *node = NULL;
    device_cuda_info(&info);
    TRY(mpi_node_group(world, &node));
    GpuShare share = {.ranks = node->size};
    int shown = info.devices < CUDA_DEVICES_SHOWN ? info.devices : CUDA_DEVICES_SHOWN;
    if (shown) share.index = node->rank % shown;
    CudaPlace own = info.device[share.index].place;
    CLEANUP(mem_freep) CudaPlace *all = NULL;
    TRY(mem_new((size_t)node->size, sizeof *all, &all));
    TRY(host_gather(node, all, &own, sizeof own));
    for (int r = 0; r < node->size; r++) {
        int before = 0;
        while (strcmp(all[before].text, all[r].text)) before++;
        share.gpus += before == r;
        share.sharing += strcmp(all[r].text, own.text) == 0;
    }
    *ret_share = share;
    return OK;
}

/* For tests, WEFT_TEST_GROUPS chooses between "nccl", also for ranks that share a GPU, and "staged". */
static bool test_asks_for(const char *groups) {
    const char *asked = getenv("WEFT_TEST_GROUPS");
    return asked && !strcmp(asked, groups);
}

/* NCCL refuses a second rank of a host on the same GPU, so it must take each rank for a host of its own. */
static void pose_as_host(const Group *world) {
    char host[HOST_SIZE], name[HOST_SIZE + 16];
    snprintf(name, sizeof name, "%s-%d", group_host(world, world->rank, host), world->rank);
    setenv("NCCL_HOSTID", name, 1);
    setenv("NCCL_IB_DISABLE", "1", 0);
    if (group_hosts(world) == 1) setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

/* Whether all ranks can use NCCL, and if not, why. */
static Status check_nccl(Group *world, const GpuShare *share, char note[GPU_NOTE], bool *ret_can) {
    enum { SHARED, UNBUILT, MISSING, REASONS };
    char version[32] = "";
    bool shares = share->sharing > 1 && test_asks_for("nccl");
    int64_t reason[REASONS] = {[SHARED] = share->sharing > 1 && !shares, [UNBUILT] = !nccl_built()};
    if (shares) pose_as_host(world);
    CLEANUP(status_freep) Status missing = nccl_version(version, sizeof version);
    reason[MISSING] = missing != OK;
    TRY(host_reduce(world, reason, REASONS, DT_I64, REDUCE_MAX));
    *ret_can = !reason[SHARED] && !reason[UNBUILT] && !reason[MISSING] && !test_asks_for("staged");
    static const char staged[] = "communication goes through host memory";
    if (*ret_can && shares)
        snprintf(note, GPU_NOTE, "%d ranks share %d GPU%s: communication over NCCL %s, for tests",
                 share->ranks, share->gpus, share->gpus > 1 ? "s" : "", version);
    else if (share->sharing > 1)
        snprintf(note, GPU_NOTE, "%d ranks share %d GPU%s: %s", share->ranks, share->gpus,
                 share->gpus > 1 ? "s" : "", staged);
    else if (reason[SHARED])
        snprintf(note, GPU_NOTE, "ranks on another host share its GPUs: %s", staged);
    else if (reason[UNBUILT])
        snprintf(note, GPU_NOTE, "built without NCCL: %s", staged);
    else if (reason[MISSING])
        snprintf(note, GPU_NOTE, "NCCL not found%s: %s", missing ? "" : " on another host", staged);
    else
        snprintf(note, GPU_NOTE, "one GPU per rank: %s%s", *ret_can ? "communication over NCCL " : staged,
                 *ret_can ? version : "");
    return OK;
}

Status group_over_gpus(Group **ret_group, Group *world, Device *device, const GpuShare *share,
                       char note[GPU_NOTE]) {
    bool nccl = false;
    note[0] = 0;
    if (world->size == 1) {
        *ret_group = world;
        return OK;
    }
    TRY(check_nccl(world, share, note, &nccl));
    return nccl ? group_new_nccl(ret_group, world, device) : group_new_staged(ret_group, world, device);
}
