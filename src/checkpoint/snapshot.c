/* Of a unit that several ranks of a shard group hold in full, one writes everything: the one with the least
 * to write so far. Parameters that all tensor-parallel ranks hold are written by the first of them. What all
 * shard groups have is written by the first. Of experts, that holds for the ranks with the same ones. */
#include "checkpoint/snapshot.h"

#include <string.h>

#include "base/memory.h"
#include "checkpoint/collect.h"
#include "checkpoint/slices.h"

/* Elements written between two looks at `pause`: few enough to stay in a core's cache while they are checked,
 * summed and written. */
enum { CHUNK = 1 << 16, PAGE = 4096 };

void snapshot_done(Snapshot *snapshot) {
    dev_free(&snapshot->buffer);
    free(snapshot->part);
    *snapshot = (Snapshot){0};
}

static bool is_sharded(const Store *params, int unit) {
    return params->count[unit] < params->unit[unit].numel;
}

/* The ranks that hold a unit between them, numbered on the data axis: rank r has the experts r % experts and
 * place r % set / experts among the ranks of its set that have the same ones. */
typedef struct Holders {
    int set, experts, shards;
} Holders;

static Holders holders_of(const Store *store, int unit) {
    const UnitSpec *spec = &store->spec[unit];
    int experts = spec->expert_size ? spec->expert_size : 1;
    return (Holders){experts * spec->shards, experts, spec->shards};
}

/* The place of the ranks with the least to write, of those that hold a unit in full. */
static int least_loaded(const int64_t *load, Holders holders) {
    int least = 0;
    for (int i = 1; i < holders.shards; i++)
        if (load[i * holders.experts] < load[least * holders.experts]) least = i;
    return least;
}

Status snapshot_assign(Snapshot *ret_snapshot, const Store *const *store, const SaveOwner *owner, int stores,
                       const bool *ours, int replica, int worker, int tp) {
    CLEANUP(snapshot_done)
    Snapshot made = {.stores = stores, .tp = tp, .worker = worker, .replica = replica};
    CLEANUP(mem_freep) int64_t *load = NULL; /* of the ranks of the first set */
    int units = store[0]->model->units, most = 1;
    bool adapters = store[0]->model->config.lora.rank; /* checkpoints do not have their base */
    for (int u = 0; u < units; u++) {
        Holders holders = holders_of(store[0], u);
        if (holders.set > most) most = holders.set;
    }
    TRY(mem_new((size_t)most, sizeof *load, &load));
    TRY(mem_new((size_t)units * (size_t)stores, sizeof *made.part, &made.part));
    for (int s = 0; s < stores; s++) {
        made.store[s] = store[s];
        made.owner[s] = owner ? owner[s] : SAVE_SHARED;
    }
    for (int s = 0; s < stores; s++)
        for (int u = 0; u < units; u++) {
            bool saved = ours[u] && !(adapters && store[s]->unit[u].frozen);
            int64_t count = saved ? store[s]->count[u] : 0;
            if (!count) continue;
            Holders holders = holders_of(store[0], u);
            bool each = is_sharded(store[0], u) || made.owner[s] == SAVE_REPLICA;
            int place = replica % holders.set / holders.experts,
                writer = each ? place : least_loaded(load, holders);
            for (int r = 0; r < holders.set; r++)
                if (each || r / holders.experts == writer) load[r] += count;
            bool first = replica < holders.set || made.owner[s] != SAVE_SHARED;
            if (writer != place || !first) continue;
            made.part[made.parts++] = (SnapshotPart){s, u, store[s]->first[u], count, made.numel};
            made.numel += count;
        }
    for (int r = 0; r < most; r++)
        if (load[r] > made.largest) made.largest = load[r];
    return MOVE(ret_snapshot, made);
}

Status snapshot_init(Snapshot *ret_snapshot, const Store *const *store, const SaveOwner *owner, int stores,
                     Mesh *mesh) {
    CLEANUP(mem_freep) bool *ours = NULL;
    TRY(mem_new((size_t)store[0]->model->units, sizeof *ours, &ours));
    TRY(save_find_units(store[0], mesh, ours));
    return snapshot_assign(ret_snapshot, store, owner, stores, ours,
                           mesh ? mesh_number(mesh, AXES_COPIES, mesh->rank) : 0,
                           mesh ? mesh->replica->rank : 0, mesh ? mesh->at[AXIS_TP] : 0);
}

size_t snapshot_bytes(const Snapshot *snapshot) {
    return (size_t)snapshot->numel * sizeof(float);
}

/* Touches the pages, by all threads, since the kernel would otherwise provide them during the first save, to
 * one thread and beside a step. */
Status snapshot_alloc(Snapshot *snapshot, Device *device) {
    size_t bytes = snapshot_bytes(snapshot);
    TRY(dev_alloc_host(device, bytes, &snapshot->buffer));
    char *data = snapshot->buffer.data;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (size_t at = 0; at < bytes; at += PAGE) data[at] = 0;
    return OK;
}

/* The copy of a part in host memory, in halves if the store has halves: one after the other. */
static Values copy_of(const Snapshot *snapshot, const SnapshotPart *part) {
    Values copy = {.data = (float *)snapshot->buffer.data + part->at};
    if (snapshot->store[part->store]->rest) copy.rest = (uint16_t *)copy.data + part->count;
    return copy;
}

Status snapshot_copy(const Snapshot *snapshot, Stream *stream) {
    for (size_t i = 0; i < snapshot->parts; i++) {
        const SnapshotPart *part = &snapshot->part[i];
        Values from = store_values(snapshot->store[part->store], part->unit, 0), to = copy_of(snapshot, part);
        size_t bytes = (size_t)part->count * sizeof(float), half = bytes / 2;
        TRY(stream_copy(stream, to.data, from.data, from.rest ? half : bytes, COPY_TO_HOST));
        if (from.rest) TRY(stream_copy(stream, to.rest, from.rest, half, COPY_TO_HOST));
    }
    return OK;
}

/* The part's elements from `first` on, in host memory; *ret_copy is to be freed. */
static Status read_values(const Snapshot *snapshot, const SnapshotPart *part, int64_t first, int64_t count,
                          float **ret_copy, const float **ret_values) {
    int64_t at = first - part->first;
    if (!snapshot->stream)
        return values_here(values_at(copy_of(snapshot, part), at), count, ret_copy, ret_values);
    Values from = store_values(snapshot->store[part->store], part->unit, at);
    return values_get(snapshot->stream, from, count, ret_copy, ret_values);
}

/* Transposed tensors are written in one piece, since narrower pieces would take more and smaller writes. */
static Status write_item(const Snapshot *snapshot, SaveList *list, SnapshotCursor *cursor,
                         const atomic_bool *pause) {
    const SnapshotPart *part = &snapshot->part[cursor->part];
    const SaveItem *item = &list->item[cursor->item];
    const Unit *unit = &snapshot->store[part->store]->unit[part->unit];
    const ParamSlot *slot = &unit->slot[item->ref.slot];
    int64_t from, count, *at = &cursor->at;
    if (slot->desc.split < 0 && snapshot->tp > 0) return OK;
    if (!slot_overlap(slot, part->first, part->count, &from, &count)) return OK;
    if (!slice_narrow(slot, &item->tensor, &from, &count)) return OK;
    for (int64_t n; *at < count && !*pause; *at += n) {
        n = item->tensor.transposed || count - *at < CHUNK ? count - *at : CHUNK;
        CLEANUP(mem_freep) float *copy = NULL;
        const float *values = NULL;
        TRY(read_values(snapshot, part, slot->offset + from + *at, n, &copy, &values));
        TRY(save_check_finite(list, item, values, n));
        TRY(slice_write(values, slot, from + *at, n, &item->tensor, list->file[item->file], item->at,
                        item->dtype));
        TRY(collector_wrote(list->collector, n * (int64_t)sizeof *values));
    }
    return OK;
}

/* What all have is only assigned to those that write it. Replicas that divide the experts are one writer of
 * them. */
static bool is_writer(const Snapshot *snapshot, const SaveItem *item) {
    SaveOwner owner = snapshot->owner[item->store];
    int experts = holders_of(snapshot->store[0], item->ref.unit).experts;
    if (owner == SAVE_SHARED) return true;
    return item->writer == (owner == SAVE_REPLICA ? snapshot->replica / experts : snapshot->worker);
}

Status snapshot_write(const Snapshot *snapshot, SaveList *list, SnapshotCursor *cursor,
                      const atomic_bool *pause) {
    for (; cursor->part < snapshot->parts; cursor->part++, cursor->item = 0)
        for (; cursor->item < list->count; cursor->item++, cursor->at = 0) {
            const SnapshotPart *part = &snapshot->part[cursor->part];
            const SaveItem *item = &list->item[cursor->item];
            if (item->store == part->store && is_writer(snapshot, item) && item->ref.unit == part->unit)
                TRY(write_item(snapshot, list, cursor, pause));
            if (*pause) return OK;
        }
    cursor->done = true;
    return OK;
}
