/* The layout alone determines which rank writes what, so ranks need not communicate to agree on it: units
 * belong to the first stage that has them; each of a stage's units is assigned to the rank of the stage with
 * the least to write so far.
 *
 * The work proceeds in rounds. In each round a rank has at most one unit to write: all ranks send the parts
 * that others need, directly from their stores, then all write. Parts arrive in one buffer, ordered by tensor
 * rank:
 *
 *   | tensor rank 0: shard 0, shard 1 ... | tensor rank 1: shard 0, shard 1 ... |
 *
 * If values are stored in halves (tensor/values.h), each tensor rank's upper halves precede its lower halves.
 * A unit in pieces (param/param.h) is written piece by piece, each like a unit.
 *
 * A rank that fails to write still takes part in the rounds, since others wait for its parts.
 */
#include "checkpoint/save.h"

#include <string.h>

#include "checkpoint/slices.h"

/* A unit of a store or a piece of one, the rank of the stage that writes it, and the round. */
typedef struct SaveJob {
    int store, unit, piece;
    int64_t from; /* the first element that is saved; optimizer state may begin inside a unit */
    int writer;   /* dp * tensors + tp */
    int round;
} SaveJob;

typedef struct Saver {
    SaveList *list;
    Mesh *mesh; /* NULL: one rank */
    Stream *stream;
    bool alone; /* replicas save by themselves, what they have for themselves; else shard groups do */
    int writer; /* this rank's replica or shard group */
    int dp, tp; /* its coordinates, dp within the shard group */
    int shards, tensors; /* ranks that shard a store, tensor-parallel ranks */
    SaveJob *job;
    int jobs, rounds;
    Buffer buffer; /* parts of this round's unit */
    Ticket *ticket;
    int tickets;
} Saver;

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

/* ---- assignment ---- */

static const Store *store_of(const Saver *saver, const SaveJob *job) {
    return saver->list->store[job->store];
}

/* Whether the unit is sharded over the data-parallel axis. The first store, which has complete units, tells.
 */
static bool is_sharded(const Saver *saver, const SaveJob *job) {
    const Store *store = saver->list->store[0];
    return saver->shards > 1 && store->count[job->unit] < store->unit[job->unit].numel;
}

/* Elements of the unit or piece, including padding. */
static int64_t numel_of(const Saver *saver, const SaveJob *job) {
    const Unit *unit = &store_of(saver, job)->unit[job->unit];
    return unit->numel / unit->pieces;
}

/* The elements of the unit or piece that replica `dp` has, without those before job->from. */
static void part_range(const Saver *saver, const SaveJob *job, int dp, int64_t *ret_first,
                       int64_t *ret_count) {
    int64_t share = is_sharded(saver, job) ? numel_of(saver, job) / saver->shards : numel_of(saver, job);
    int64_t first = is_sharded(saver, job) ? share * dp : 0, end = first + share;
    if (first < job->from) first = job->from;
    *ret_first = first;
    *ret_count = first < end ? end - first : 0;
}

/* This rank's part. */
static Values part_of(const Saver *saver, const SaveJob *job, int64_t *ret_count) {
    const Store *store = store_of(saver, job);
    int pieces = store->unit[job->unit].pieces;
    int64_t first;
    part_range(saver, job, saver->dp, &first, ret_count);
    if (!*ret_count) return (Values){0};
    return store_values(store, job->unit,
                        pieces > 1 ? job->piece * *ret_count : first - store->first[job->unit]);
}

/* A tensor rank's values in the buffer. */
static Values gathered_of(const Saver *saver, const SaveJob *job, int tensor) {
    int64_t numel = numel_of(saver, job);
    Values values = {.data = (float *)saver->buffer.data + tensor * numel};
    if (store_of(saver, job)->rest) values.rest = (uint16_t *)values.data + numel;
    return values;
}

/* The memory of values: one tensor or, for halves, two. Returns their number. */
static int memory_of(Values values, int64_t count, Tensor ret_memory[2]) {
    int64_t size = (int64_t)sizeof(float) * count;
    ret_memory[0] = tensor_1d(values.data, DT_U8, values.rest ? size / 2 : size);
    ret_memory[1] = tensor_1d(values.rest, DT_U8, size / 2);
    return values.rest ? 2 : 1;
}

static bool is_writer(const Saver *saver, const SaveJob *job) {
    return job->writer == saver->dp * saver->tensors + saver->tp;
}

static bool is_source(const Saver *saver, const SaveJob *job) {
    return is_sharded(saver, job) || saver->dp == job->writer / saver->tensors;
}

static int world_rank(const Saver *saver, int dp, int tp) {
    int at[AXIS_COUNT];
    memcpy(at, saver->mesh->at, sizeof at);
    at[AXIS_DP] = saver->writer * saver->shards + dp;
    at[AXIS_TP] = tp;
    return mesh_rank(saver->mesh, at);
}

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

/* Whether an item is written here, from this unit of a store. */
static bool is_in(const Saver *saver, const SaveItem *item, int store, int unit) {
    bool alone = saver->list->owner[store] == SAVE_REPLICA;
    return item->store == store && alone == saver->alone && item->writer == saver->writer &&
           item->ref.unit == unit;
}

/* The first element of a unit that is saved from a store; the unit's size if nothing is. */
static int64_t first_saved(const Saver *saver, int store, int unit) {
    const SaveList *list = saver->list;
    const Unit *layout = &list->store[store]->unit[unit];
    int64_t first = layout->numel;
    for (size_t i = 0; i < list->count; i++) {
        const SaveItem *item = &list->item[i];
        if (!is_in(saver, item, store, unit)) continue;
        int64_t offset = layout->slot[item->ref.slot].offset;
        if (offset < first) first = offset;
    }
    return first;
}

static Status assign_jobs(Saver *saver) {
    const SaveList *list = saver->list;
    int units = list->store[0]->model->units, writers = saver->shards * saver->tensors, pieces = 0;
    CLEANUP(mem_freep) bool *ours = NULL;
    CLEANUP(mem_freep) int64_t *load = NULL;
    CLEANUP(mem_freep) int *rounds = NULL;
    TRY(mem_new((size_t)units, sizeof *ours, &ours));
    TRY(mem_new((size_t)writers, sizeof *load, &load));
    TRY(mem_new((size_t)writers, sizeof *rounds, &rounds));
    for (int u = 0; u < units; u++) pieces += list->store[0]->unit[u].pieces;
    TRY(mem_new((size_t)(pieces * list->stores), sizeof *saver->job, &saver->job));
    TRY(save_find_units(list->store[0], saver->mesh, ours));
    for (int s = 0; s < list->stores; s++)
        for (int u = 0; u < units; u++)
            for (int k = 0; ours[u] && k < list->store[s]->unit[u].pieces; k++) {
                int64_t from = first_saved(saver, s, u);
                int least = 0;
                if (from == list->store[s]->unit[u].numel) continue;
                for (int w = 1; w < writers; w++)
                    if (load[w] < load[least]) least = w;
                SaveJob *job = &saver->job[saver->jobs++];
                *job = (SaveJob){s, u, k, from, least, rounds[least]++};
                load[least] += numel_of(saver, job) - from;
                if (rounds[least] > saver->rounds) saver->rounds = rounds[least];
            }
    return OK;
}

/* ---- gathering ---- */

/* Elements that a job needs in the buffer; 0 if the rank's own store has the complete unit. */
static int64_t gather_count(const Saver *saver, const SaveJob *job) {
    if (!is_writer(saver, job) || (saver->tensors == 1 && !is_sharded(saver, job))) return 0;
    return saver->tensors * numel_of(saver, job);
}

static Status prepare(Saver *saver) {
    int64_t largest = 0;
    for (int i = 0; i < saver->jobs; i++) {
        int64_t count = gather_count(saver, &saver->job[i]);
        if (count > largest) largest = count;
    }
    TRY(dev_alloc(saver->stream->device, MEM_COMM, (size_t)largest * sizeof(float), &saver->buffer));
    return mem_new(4 * (size_t)saver->shards * (size_t)saver->tensors, sizeof *saver->ticket, &saver->ticket);
}

/* Receives a part, or copies the own one. */
static Status take_part(Saver *saver, Values to, int64_t count, const Values *own, int from) {
    Tensor part[2], source[2];
    int parts = memory_of(to, count, part);
    if (own) memory_of(*own, count, source);
    for (int i = 0; i < parts; i++)
        if (own)
            TRY(stream_copy(saver->stream, part[i].data, source[i].data, tensor_bytes(part[i]),
                            COPY_ON_DEVICE));
        else
            TRY(comm_receive(saver->mesh->world, saver->stream, part[i], from,
                             &saver->ticket[saver->tickets++]));
    return OK;
}

static Status receive_parts(Saver *saver, const SaveJob *job) {
    int64_t first, count;
    Values own = part_of(saver, job, &count);
    bool sharded = is_sharded(saver, job);
    for (int t = 0; t < saver->tensors; t++)
        for (int d = 0; d < saver->shards; d++) {
            part_range(saver, job, d, &first, &count);
            if ((!sharded && d != saver->dp) || !count) continue;
            bool is_own = t == saver->tp && d == saver->dp;
            if (is_own && !sharded) continue;
            TRY(take_part(saver, values_at(gathered_of(saver, job, t), first), count, is_own ? &own : NULL,
                          world_rank(saver, d, t)));
        }
    return OK;
}

/* In a round, each rank sends at most one part to each other rank. */
static Status exchange(Saver *saver, int round) {
    if (!saver->mesh) return OK;
    saver->tickets = 0;
    TRY(comm_batch_begin(saver->mesh->world));
    for (int i = 0; i < saver->jobs; i++) {
        const SaveJob *job = &saver->job[i];
        if (job->round != round || !is_source(saver, job)) continue;
        if (is_writer(saver, job)) {
            TRY(receive_parts(saver, job));
            continue;
        }
        int64_t count;
        Values own = part_of(saver, job, &count);
        Tensor part[2];
        int parts = memory_of(own, count, part);
        int to = world_rank(saver, job->writer / saver->tensors, job->writer % saver->tensors);
        for (int k = 0; count && k < parts; k++)
            TRY(comm_send(saver->mesh->world, saver->stream, part[k], to, &saver->ticket[saver->tickets++]));
    }
    TRY(comm_batch_end(saver->mesh->world));
    for (int i = 0; i < saver->tickets; i++) TRY(ticket_wait(saver->stream, &saver->ticket[i]));
    return OK;
}

/* ---- writing ---- */

/* A gathered unit: its layout on each tensor rank, and the data. Arrays are indexed by tensor rank. */
typedef struct Gathered {
    int count;
    Unit *unit;
    Values *data;
    int64_t *first; /* the element at data */
    /* The parameter being written. */
    const ParamSlot **slot;
    const float **values;
    float **copy;
} Gathered;

static void drop_copies(Gathered *g) {
    for (int t = 0; g->copy && t < g->count; t++) mem_freep(&g->copy[t]);
}

static void gathered_done(Gathered *g) {
    drop_copies(g);
    for (int t = 0; g->unit && t < g->count; t++) unit_done(&g->unit[t]);
    free(g->unit);
    free(g->data);
    free(g->first);
    free(g->slot);
    free(g->values);
    free(g->copy);
}

static Status gathered_init(Gathered *g, const Saver *saver, const SaveJob *job) {
    const Store *store = store_of(saver, job);
    size_t count = (size_t)saver->tensors;
    g->count = saver->tensors;
    TRY(mem_new(count, sizeof *g->unit, &g->unit));
    TRY(mem_new(count, sizeof *g->data, &g->data));
    TRY(mem_new(count, sizeof *g->first, &g->first));
    TRY(mem_new(count, sizeof *g->slot, &g->slot));
    TRY(mem_new(count, sizeof *g->values, &g->values));
    TRY(mem_new(count, sizeof *g->copy, &g->copy));
    bool sharded = is_sharded(saver, job);
    for (int t = 0; t < g->count; t++) {
        UnitSpec spec = store->spec;
        spec.tp_rank = t;
        CLEANUP(unit_done) Unit whole = {0};
        TRY(unit_init(&whole, &store->model->unit[job->unit], spec));
        if (whole.pieces > 1) {
            TRY(unit_piece(&g->unit[t], &whole, job->piece));
        } else {
            g->unit[t] = whole;
            whole = (Unit){0};
        }
        int64_t numel = numel_of(saver, job);
        if (g->unit[t].numel != numel)
            return FAILED("internal: unit %d has different sizes on tensor-parallel ranks", job->unit);
        bool own = t == saver->tp && !sharded;
        g->data[t] = own ? store_values(store, job->unit, 0) : gathered_of(saver, job, t);
        g->first[t] = own ? store->first[job->unit] : 0;
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

static Status write_item(const Saver *saver, Gathered *g, const SaveItem *item, bool divided) {
    for (int t = 0; t < g->count; t++) {
        const ParamSlot *slot = &g->unit[t].slot[item->ref.slot];
        g->slot[t] = slot;
        TRY(values_get(saver->stream, values_at(g->data[t], slot->offset - g->first[t]), slot->count,
                       &g->copy[t], &g->values[t]));
    }
    for (int t = 0; t < g->count; t++)
        TRY(save_check_finite(saver->list, item, g->values[t], g->slot[t]->count));
    Slices slices = {g->count, g->slot, g->values};
    SafeWriter *file = saver->list->file[item->file];
    if (divided)
        TRY(slices_write_rows(&slices, file, item->at, item->dtype));
    else
        TRY(slices_write(&slices, &item->tensor, file, item->at, item->dtype));
    drop_copies(g);
    return OK;
}

static Status write_job(const Saver *saver, const SaveJob *job) {
    CLEANUP(gathered_done) Gathered gathered = {0};
    TRY(gathered_init(&gathered, saver, job));
    bool divided = store_of(saver, job)->unit[job->unit].pieces > 1;
    for (size_t i = 0; i < saver->list->count; i++) {
        const SaveItem *item = &saver->list->item[i];
        if (is_in(saver, item, job->store, job->unit)) TRY(write_item(saver, &gathered, item, divided));
    }
    return OK;
}

static Status write_round(const Saver *saver, int round) {
    for (int i = 0; i < saver->jobs; i++) {
        const SaveJob *job = &saver->job[i];
        if (job->round == round && is_writer(saver, job)) TRY(write_job(saver, job));
    }
    return OK;
}

/* A failed write is reported after the last round. A failed exchange ends the rounds at once and drops the
 * group, since messages may still be in flight. */
static Status run_rounds(Saver *saver) {
    Status written = OK;
    for (int round = 0; round < saver->rounds; round++) {
        Status status = exchange(saver, round);
        if (status) {
            group_drop(saver->mesh->world);
            status_free(written);
            return status;
        }
        if (!written) written = write_round(saver, round);
    }
    return written;
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

static void saver_done(Saver *saver) {
    dev_free(&saver->buffer);
    free(saver->job);
    free(saver->ticket);
}

/* Writes what shard groups have or, with `alone`, what replicas have for themselves. */
static Status write_stores(SaveList *list, Mesh *mesh, Stream *stream, bool alone) {
    CLEANUP(saver_done)
    Saver saver = {.list = list, .mesh = mesh, .stream = stream, .alone = alone, .shards = 1, .tensors = 1};
    if (mesh) {
        saver.writer = alone ? mesh->at[AXIS_DP] : mesh->replica->rank;
        saver.dp = alone ? 0 : mesh->shard->rank;
        saver.tp = mesh->at[AXIS_TP];
        saver.shards = alone ? 1 : mesh->shard->size;
        saver.tensors = mesh->extent[AXIS_TP];
    }
    TRY(assign_jobs(&saver));
    TRY(save_agree(mesh, prepare(&saver)));
    return run_rounds(&saver);
}

static bool has_own(const SaveList *list) {
    for (int s = 0; s < list->stores; s++)
        if (list->owner[s] == SAVE_REPLICA) return true;
    return false;
}

Status save_list_write(SaveList *list, Mesh *mesh, Stream *stream) {
    TRY(save_agree(mesh, save_list_open(list)));
    Status status = write_stores(list, mesh, stream, false);
    if (has_own(list)) {
        /* A rank that has failed still takes part, since others wait for it. */
        Status own = write_stores(list, mesh, stream, true);
        if (status)
            status_free(own);
        else
            status = own;
    }
    Status closed = save_list_close(list);
    if (status)
        status_free(closed);
    else
        status = closed;
    TRY(save_agree(mesh, status));
    return save_list_share_sums(list, mesh);
}
