/* Who writes what follows from the layout alone, so ranks agree on it without a word: units belong to the
 * first stage that holds them; a stage's units go, one by one, to whichever of its ranks has the least to
 * write so far. With hybrid sharding the first shard group writes, the others have the same.
 *
 * The work goes in rounds. In a round each rank has at most one unit to write: all send what others need of
 * them, straight from their stores, then all write. Parts arrive in one buffer, tensor rank by tensor rank:
 *
 *   | tensor rank 0: shard 0, shard 1 ... | tensor rank 1: shard 0, shard 1 ... |
 *
 * A rank that cannot write takes part in the rounds all the same, since others wait for what it has.
 */
#include "checkpoint/save.h"

#include <string.h>

#include "checkpoint/slices.h"

/* A unit of a store, which of the stage's ranks writes it, and when. */
typedef struct SaveJob {
    int store, unit;
    int writer; /* dp * tensor ranks + tp */
    int round;
} SaveJob;

typedef struct Saver {
    SaveList *list;
    Mesh *mesh; /* NULL: one rank */
    Stream *stream;
    int dp, tp, pp;      /* this rank's coordinates... */
    int shards, tensors; /* ...and how many there are: ranks that share out a store, tensor ranks */
    SaveJob *job;
    int jobs, rounds;
    Buffer buffer; /* the unit of this round */
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

int save_list_store(SaveList *list, const Store *store) {
    list->store[list->stores] = store;
    return list->stores++;
}

Status save_list_file(SaveList *list, const char *path, int *ret_file) {
    TRY(mem_grow(&list->file, &list->files_capacity, list->files + 1, sizeof *list->file));
    TRY(safe_writer_new(&list->file[list->files], path));
    *ret_file = (int)list->files++;
    return OK;
}

Status save_list_add(SaveList *list, int store, int file, const char *name, ParamRef ref,
                     const HfTensor *tensor, DType dtype) {
    SafeWriter *writer = list->file[file];
    TRY(mem_grow(&list->item, &list->capacity, list->count + 1, sizeof *list->item));
    list->item[list->count++] = (SaveItem){.store = store,
                                           .file = file,
                                           .ref = ref,
                                           .tensor = *tensor,
                                           .dtype = dtype,
                                           .at = safe_writer_declared(writer)};
    return safe_writer_declare(writer, name, dtype, tensor->ndim, tensor->dim);
}

Status save_list_create(SaveList *list) {
    for (size_t i = 0; i < list->files; i++) TRY(safe_writer_create(list->file[i]));
    return OK;
}

/* ---- agreement ---- */

Status save_agree(Mesh *mesh, Status status) {
    if (!mesh || mesh->size == 1) return status;
    struct {
        int code;
        char text[1024];
    } note = {0};
    int64_t first = status ? mesh->size - mesh->rank : 0; /* the lowest rank has the most */
    Status spoken = host_reduce(mesh->world, &first, 1, DT_I64, REDUCE_MAX);
    int failed = mesh->size - (int)first;
    if (!spoken && first) {
        note.code = status_exit_code(status);
        snprintf(note.text, sizeof note.text, "%s", status ? status_message(status) : "");
        spoken = host_broadcast(mesh->world, &note, sizeof note, failed);
    }
    if (status && (spoken || failed == mesh->rank)) {
        status_free(spoken);
        return status;
    }
    status_free(status);
    if (spoken || !first) return spoken;
    return note.code == STATUS_USAGE ? USAGE("rank %d: %s", failed, note.text)
                                     : FAILED("rank %d: %s", failed, note.text);
}

/* ---- who writes what ---- */

static const Store *store_of(const Saver *saver, const SaveJob *job) {
    return saver->list->store[job->store];
}

/* Whether ranks of the data axis hold parts of the unit, not all of it. */
static bool is_cut(const Saver *saver, const SaveJob *job) {
    const Store *store = store_of(saver, job);
    return store->count[job->unit] < store->unit[job->unit].numel;
}

static bool is_writer(const Saver *saver, const SaveJob *job) {
    return job->writer == saver->dp * saver->tensors + saver->tp;
}

static bool is_source(const Saver *saver, const SaveJob *job) {
    return is_cut(saver, job) || saver->dp == job->writer / saver->tensors;
}

static int world_rank(const Saver *saver, int dp, int tp) {
    return mesh_rank(saver->mesh, dp, tp, saver->pp);
}

/* Marks the units that this stage writes: those of which no earlier stage has a part. */
static Status find_units(const Saver *saver, bool *ours) {
    const Store *store = saver->list->store[0];
    int units = store->model->units, stages = saver->mesh ? saver->mesh->extent[AXIS_PP] : 1;
    CLEANUP(mem_freep) int64_t *first = NULL;
    TRY(mem_new((size_t)units, sizeof *first, &first));
    for (int i = 0; i < units; i++) first[i] = store->count[i] ? stages - saver->pp : 0;
    if (stages > 1) TRY(host_reduce(saver->mesh->axis[AXIS_PP], first, units, DT_I64, REDUCE_MAX));
    for (int i = 0; i < units; i++) {
        if (!first[i] && store->unit[i].numel) return FAILED("internal: no rank has unit %d of the model", i);
        ours[i] = store->count[i] && first[i] == stages - saver->pp;
    }
    return OK;
}

static Status share_out(Saver *saver) {
    const SaveList *list = saver->list;
    int units = list->store[0]->model->units, writers = saver->shards * saver->tensors;
    CLEANUP(mem_freep) bool *ours = NULL;
    CLEANUP(mem_freep) int64_t *load = NULL;
    CLEANUP(mem_freep) int *rounds = NULL;
    TRY(mem_new((size_t)units, sizeof *ours, &ours));
    TRY(mem_new((size_t)writers, sizeof *load, &load));
    TRY(mem_new((size_t)writers, sizeof *rounds, &rounds));
    TRY(mem_new((size_t)(units * list->stores), sizeof *saver->job, &saver->job));
    TRY(find_units(saver, ours));
    for (int s = 0; s < list->stores; s++)
        for (int u = 0; u < units; u++) {
            if (!ours[u]) continue;
            int least = 0;
            for (int w = 1; w < writers; w++)
                if (load[w] < load[least]) least = w;
            load[least] += list->store[s]->unit[u].numel;
            saver->job[saver->jobs++] = (SaveJob){s, u, least, rounds[least]++};
            if (rounds[least] > saver->rounds) saver->rounds = rounds[least];
        }
    return OK;
}

/* ---- bringing a unit together ---- */

/* Elements of the buffer that a job needs: none where the store itself has everything. */
static int64_t room_of(const Saver *saver, const SaveJob *job) {
    if (!is_writer(saver, job) || (saver->tensors == 1 && !is_cut(saver, job))) return 0;
    return saver->tensors * store_of(saver, job)->unit[job->unit].numel;
}

static Status prepare(Saver *saver) {
    int64_t most = 0;
    for (int i = 0; i < saver->jobs; i++) {
        int64_t room = room_of(saver, &saver->job[i]);
        if (room > most) most = room;
    }
    TRY(dev_alloc(saver->stream->device, MEM_COMM, (size_t)most * sizeof(float), &saver->buffer));
    TRY(mem_new(2 * (size_t)saver->shards * (size_t)saver->tensors, sizeof *saver->ticket, &saver->ticket));
    for (size_t i = 0; i < saver->list->files; i++) TRY(safe_writer_open(saver->list->file[i]));
    return OK;
}

static Status receive_parts(Saver *saver, const SaveJob *job) {
    const Store *store = store_of(saver, job);
    const Buffer *own = &store->flat[job->unit];
    int64_t count = store->count[job->unit], numel = store->unit[job->unit].numel;
    bool cut = is_cut(saver, job);
    for (int t = 0; t < saver->tensors; t++)
        for (int d = 0; d < saver->shards; d++) {
            if (!cut && d != saver->dp) continue;
            float *place = (float *)saver->buffer.data + t * numel + (cut ? d * count : 0);
            if (t != saver->tp || d != saver->dp)
                TRY(comm_receive(saver->mesh->world, saver->stream, tensor_1d(place, DT_F32, count),
                                 world_rank(saver, d, t), &saver->ticket[saver->tickets++]));
            else if (cut)
                TRY(stream_copy(saver->stream, place, own->data, own->bytes, COPY_ON_DEVICE));
        }
    return OK;
}

/* Each rank has at most one message for each other in a round. */
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
        const Store *store = store_of(saver, job);
        Tensor part = tensor_1d(store->flat[job->unit].data, DT_F32, store->count[job->unit]);
        int to = world_rank(saver, job->writer / saver->tensors, job->writer % saver->tensors);
        TRY(comm_send(saver->mesh->world, saver->stream, part, to, &saver->ticket[saver->tickets++]));
    }
    TRY(comm_batch_end(saver->mesh->world));
    for (int i = 0; i < saver->tickets; i++) TRY(ticket_wait(saver->stream, &saver->ticket[i]));
    return OK;
}

/* ---- writing it ---- */

/* How each tensor rank lays out the unit, and where that lies on this rank. */
typedef struct Gathered {
    int count;
    Unit *unit;
    const float **data;
    /* Of the parameter that is being written. */
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
    TRY(mem_new(count, sizeof *g->slot, &g->slot));
    TRY(mem_new(count, sizeof *g->values, &g->values));
    TRY(mem_new(count, sizeof *g->copy, &g->copy));
    bool cut = is_cut(saver, job);
    for (int t = 0; t < g->count; t++) {
        UnitSpec spec = {t, saver->tensors, saver->shards};
        TRY(unit_init(&g->unit[t], &store->model->unit[job->unit], spec));
        int64_t numel = store->unit[job->unit].numel;
        if (g->unit[t].numel != numel)
            return FAILED("internal: tensor ranks disagree on the size of unit %d", job->unit);
        g->data[t] = t == saver->tp && !cut ? store->flat[job->unit].data
                                            : (const float *)saver->buffer.data + t * numel;
    }
    return OK;
}

static Status write_item(const Saver *saver, Gathered *g, const SaveItem *item) {
    for (int t = 0; t < g->count; t++) {
        const ParamSlot *slot = &g->unit[t].slot[item->ref.slot];
        g->slot[t] = slot;
        TRY(host_read(saver->stream, g->data[t] + slot->offset, slot->count, &g->copy[t], &g->values[t]));
    }
    Slices slices = {g->count, g->slot, g->values};
    TRY(slices_write(&slices, &item->tensor, saver->list->file[item->file], item->at, item->dtype));
    drop_copies(g);
    return OK;
}

static Status write_job(const Saver *saver, const SaveJob *job) {
    CLEANUP(gathered_done) Gathered gathered = {0};
    TRY(gathered_init(&gathered, saver, job));
    for (size_t i = 0; i < saver->list->count; i++) {
        const SaveItem *item = &saver->list->item[i];
        if (item->store == job->store && item->ref.unit == job->unit) TRY(write_item(saver, &gathered, item));
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

static Status close_files(SaveList *list) {
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

/* A failure to write waits for the end, a failure to exchange is everybody's at once: parts may still be
 * on their way then. */
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

static void saver_done(Saver *saver) {
    dev_free(&saver->buffer);
    free(saver->job);
    free(saver->ticket);
}

Status save_list_write(SaveList *list, Mesh *mesh, Stream *stream) {
    CLEANUP(saver_done)
    Saver saver = {.list = list, .mesh = mesh, .stream = stream, .shards = 1, .tensors = 1};
    if (mesh) {
        saver.dp = mesh->at[AXIS_DP];
        saver.tp = mesh->at[AXIS_TP];
        saver.pp = mesh->at[AXIS_PP];
        saver.shards = mesh->shard->size;
        saver.tensors = mesh->extent[AXIS_TP];
    }
    TRY(share_out(&saver));
    TRY(save_agree(mesh, prepare(&saver)));
    bool takes_part = saver.dp < saver.shards;
    Status status = takes_part ? run_rounds(&saver) : OK;
    Status closed = close_files(list);
    if (status)
        status_free(closed);
    else
        status = closed;
    return save_agree(mesh, status);
}
