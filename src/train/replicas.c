#include "train/replicas.h"

#include "base/crc32c.h"
#include "base/memory.h"

enum { CHUNK = 1 << 20 };

static Status checksum(Runner *runner, Values values, int64_t count, uint32_t *ret_crc) {
    uint32_t crc = 0;
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = count - at < CHUNK ? count - at : CHUNK;
        CLEANUP(mem_freep) float *copy = NULL;
        const float *part;
        TRY(values_get(runner->stream, values_at(values, at), n, &copy, &part));
        crc = crc32c(crc, part, (size_t)n * sizeof *part);
    }
    *ret_crc = crc;
    return OK;
}

/* One checksum per parameter of the model, 0 for those that are not here or have other groups than those
 * given. The own weights of workers differ, the synchronized ones do not. */
static Status checksums(Runner *runner, const ShardGroups *groups, uint32_t *ret_crc) {
    const Store *store = runner->outer ? runner->outer : runner->params;
    for (ModelParam param = {0}; model_param_next(store->model, &param);) {
        const ShardGroups *own = &runner->shards->unit[param.ref.unit].groups;
        StorePart part;
        if (own->shard == groups->shard && own->replica == groups->replica &&
            store_part(store, param.ref, &part))
            TRY(checksum(runner, part.values, part.count, &ret_crc[param.number]));
    }
    return OK;
}

/* Compares the ranks of a group with its first one. */
static Status compare(const Runner *runner, Group *group, const uint32_t *own, size_t params) {
    const Mesh *mesh = runner->mesh;
    size_t count = params + 1; /* and the rank */
    CLEANUP(mem_freep) uint32_t *all = NULL;
    if (group->size == 1) return OK;
    TRY(mem_new(count * (size_t)group->size, sizeof *all, &all));
    TRY(host_gather(group, all, own, count * sizeof *own));
    for (size_t at = 0; at < count * (size_t)group->size; at++) {
        size_t number = at % count;
        if (number == params || all[at] == all[number]) continue;
        int first = (int)all[params], second = (int)all[at - number + params];
        char here[HOST_SIZE], there[HOST_SIZE];
        return FAILED("replicas have different weights: %s differs between rank %d on %s and rank %d on %s; "
                      "their model files or memory may be damaged",
                      model_param_name(runner->model, (int)number), first,
                      group_host(mesh->world, first, here), second, group_host(mesh->world, second, there));
    }
    return OK;
}

/* With sharded state, only replica groups hold the same elements. */
Status replicas_check(Runner *runner) {
    const Mesh *mesh = runner->mesh;
    const ShardGroups groups[] = {{.shard = mesh->shard, .replica = mesh->replica},
                                  {.shard = mesh->expert_shard, .replica = mesh->expert_replica}};
    for (int g = 0; g < (mesh->ep > 1 ? 2 : 1); g++) {
        size_t params = 0;
        CLEANUP(mem_freep) uint32_t *own = NULL;
        if (groups[g].shard->size == 1 && groups[g].replica->size == 1) continue;
        for (ModelParam param = {0}; model_param_next(runner->model, &param);) params++;
        TRY(mem_new(params + 1, sizeof *own, &own));
        own[params] = (uint32_t)mesh->rank;
        TRY(checksums(runner, &groups[g], own));
        if (!runner->shards->spec.optimizer) TRY(compare(runner, groups[g].shard, own, params));
        TRY(compare(runner, groups[g].replica, own, params));
    }
    return OK;
}
