#include "checkpoint/save.h"

#include <string.h>

#include "checkpoint/collect.h"

/* ---- the list ---- */

void save_list_done(SaveList *list) {
    for (size_t i = 0; i < list->files; i++) safe_writer_free(list->file[i]);
    free(list->file);
    free(list->item);
    *list = (SaveList){0};
}

int save_list_store(SaveList *list, const Store *store, SaveOwner owner) {
    list->store[list->stores] = store;
    list->owner[list->stores] = owner;
    return list->stores++;
}

Status save_list_file(SaveList *list, const char *path, int *ret_file) {
    TRY(mem_grow(&list->file, &list->files_capacity, list->files + 1, sizeof *list->file));
    TRY(safe_writer_new(&list->file[list->files], path));
    *ret_file = (int)list->files++;
    return OK;
}

Status save_list_add(SaveList *list, int store, int writer, int file, const char *name, ParamRef ref,
                     const HfTensor *tensor, DType dtype) {
    SafeWriter *out = list->file[file];
    TRY(mem_grow(&list->item, &list->capacity, list->count + 1, sizeof *list->item));
    list->item[list->count++] = (SaveItem){.store = store,
                                           .file = file,
                                           .writer = writer,
                                           .ref = ref,
                                           .tensor = *tensor,
                                           .dtype = dtype,
                                           .at = safe_writer_declared(out)};
    return safe_writer_declare(out, name, dtype, tensor->ndim, tensor->dim);
}

Status save_list_create(SaveList *list) {
    for (size_t i = 0; i < list->files; i++) TRY(safe_writer_create(list->file[i]));
    return OK;
}

Status save_list_open(SaveList *list) {
    for (size_t i = 0; i < list->files; i++) TRY(safe_writer_open(list->file[i]));
    return OK;
}

Status save_list_close(SaveList *list) {
    Status first = OK;
    for (size_t i = 0; i < list->files; i++) {
        Status status = safe_writer_close(list->file[i]);
        if (first)
            status_free(status);
        else
            first = status;
    }
    return first;
}

/* ---- agreement ---- */

Status save_agree(Mesh *mesh, Status status) {
    if (!mesh || mesh->size == 1) return status;
    struct {
        StatusKind kind;
        char text[1024];
    } message = {0};
    int64_t first = status ? mesh->size - mesh->rank : 0; /* highest for the lowest rank */
    Status sent = host_reduce(mesh->world, &first, 1, DT_I64, REDUCE_MAX);
    int failed = mesh->size - (int)first;
    if (!sent && first) {
        message.kind = status_kind(status);
        snprintf(message.text, sizeof message.text, "%s", status ? status_message(status) : "");
        sent = host_broadcast(mesh->world, &message, sizeof message, failed);
    }
    if (status && (sent || failed == mesh->rank)) {
        status_free(sent);
        return status;
    }
    status_free(status);
    if (sent || !first) return sent;
    char host[HOST_SIZE];
    return status_new(message.kind, __FILE__, __LINE__, "rank %d on %s: %s", failed,
                      group_host(mesh->world, failed, host), message.text);
}

/* ---- writing ---- */

Status save_find_units(const Store *params, Mesh *mesh, bool *ours) {
    int units = params->model->units, stages = mesh ? mesh->extent[AXIS_PP] : 1;
    int stage = mesh ? mesh->at[AXIS_PP] : 0;
    CLEANUP(mem_freep) int64_t *first = NULL;
    TRY(mem_new((size_t)units, sizeof *first, &first));
    for (int i = 0; i < units; i++) first[i] = params->count[i] ? stages - stage : 0;
    if (stages > 1) TRY(host_reduce(mesh->axis[AXIS_PP], first, units, DT_I64, REDUCE_MAX));
    for (int i = 0; i < units; i++) {
        if (!first[i] && params->unit[i].numel)
            return FAILED("internal: unit %d of the model is on no rank", i);
        ours[i] = params->count[i] && first[i] == stages - stage;
    }
    return OK;
}

/* NaN and Inf have all exponent bits set. Without branches, so that the loop is vectorized. */
static bool all_finite(const float *values, int64_t count) {
    const uint32_t exponent = 0x7f800000;
    uint32_t bad = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    return !bad;
}

Status save_check_finite(const SaveList *list, const SaveItem *item, const float *values, int64_t count) {
    const Unit *unit = &list->store[item->store]->unit[item->ref.unit];
    if (!list->finite || all_finite(values, count)) return OK;
    return DIVERGED("%s: %s contains NaN or Inf", safe_writer_path(list->file[item->file]),
                    unit->slot[item->ref.slot].desc.name);
}

Status save_list_share_sums(SaveList *list, Mesh *mesh) {
    if (!mesh || mesh->size == 1) return OK;
    for (size_t i = 0; i < list->files; i++) {
        size_t count = 0;
        SafeSum *sum = safe_writer_sums(list->file[i], &count);
        CLEANUP(mem_freep) uint32_t *own = NULL, *all = NULL;
        TRY(mem_new(count, sizeof *own, &own));
        TRY(mem_new(count * (size_t)mesh->size, sizeof *all, &all));
        for (size_t k = 0; k < count; k++) own[k] = sum[k].crc;
        TRY(host_gather(mesh->world, all, own, count * sizeof *own));
        for (size_t k = 0; k < count; k++) sum[k].crc = 0;
        for (size_t k = 0; k < count * (size_t)mesh->size; k++) sum[k % count].crc ^= all[k];
    }
    return OK;
}

Status save_list_write(SaveList *list, const RootDisk *disk, Mesh *mesh, Stream *stream) {
    static const atomic_bool never;
    CLEANUP(snapshot_done) Snapshot snapshot = {0};
    CLEANUP(collector_freep) Collector *collector = NULL;
    TRY(snapshot_init(&snapshot, list->store, list->owner, list->stores, mesh));
    snapshot.stream = stream;
    if (disk)
        TRY(collector_new(&collector, disk, snapshot_bytes(&snapshot)));
    else
        TRY(save_agree(mesh, save_list_open(list)));
    if (disk) collector_begin_here(collector, list);
    Status status = snapshot_write(&snapshot, list, &(SnapshotCursor){0}, &never);
    if (disk) status = collector_end(collector, status);
    list->collector = NULL;
    Status closed = save_list_close(list);
    if (status)
        status_free(closed);
    else
        status = closed;
    TRY(save_agree(mesh, status));
    return save_list_share_sums(list, mesh);
}
