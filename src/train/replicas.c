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

/* One checksum per parameter of the model, 0 for those that are not here. The own weights of workers differ,
 * the synchronized ones do not. */
static Status checksums(Runner *runner, uint32_t *ret_crc) {
    const Store *store = runner->outer ? runner->outer : runner->params;
    for (ModelParam param = {0}; model_param_next(store->model, &param);) {
        StorePart part;
        if (store_part(store, param.ref, &part))
            TRY(checksum(runner, part.values, part.count, &ret_crc[param.number]));
    }
    return OK;
}

Status replicas_check(Runner *runner) {
    const Mesh *mesh = runner->mesh;
    /* With sharded state, only replica groups hold the same elements. */
    bool sharded = runner->shards->spec.optimizer, all_alike = !sharded && mesh->replica->size == 1;
    Group *group = sharded ? mesh->replica : all_alike ? mesh->shard : mesh->axis[AXIS_DP];
    unsigned axes = sharded || all_alike ? AXES_COPIES : AXIS_SET(AXIS_DP);
    int apart = sharded ? mesh->shard->size : 1;
    size_t params = 0;
    CLEANUP(mem_freep) uint32_t *own = NULL, *all = NULL;
    if (group->size == 1) return OK;
    for (ModelParam param = {0}; model_param_next(runner->model, &param);) params++;
    TRY(mem_new(params, sizeof *own, &own));
    TRY(mem_new(params * (size_t)group->size, sizeof *all, &all));
    TRY(checksums(runner, own));
    TRY(host_gather(group, all, own, params * sizeof *own));
    for (size_t at = 0; at < params * (size_t)group->size; at++) {
        size_t number = at % params;
        if (all[at] == all[number]) continue;
        int low = mesh_number(mesh, axes, mesh->rank) % apart, other = (int)(at / params) * apart + low;
        int first = mesh_numbered(mesh, axes, low), second = mesh_numbered(mesh, axes, other);
        char here[HOST_SIZE], there[HOST_SIZE];
        return FAILED("replicas have different weights: %s differs between rank %d on %s and rank %d on %s; "
                      "their model files or memory may be damaged",
                      model_param_name(runner->model, (int)number), first,
                      group_host(mesh->world, first, here), second, group_host(mesh->world, second, there));
    }
    return OK;
}
