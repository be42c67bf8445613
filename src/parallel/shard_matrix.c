/* Matrices that an optimizer updates as a whole (Muon), while shards and tensor parallelism divide them.
 *
 * Shards keep their equal sizes; what is divided at matrix boundaries is the work. Each matrix has an owner
 * among the ranks that hold parts of it: with ZeRO, those of the shard group times the tensor-parallel group.
 * Without ZeRO, every replica has all matrices, and the owners are the tensor-parallel ranks of each replica.
 * The work proceeds in rounds, in which a rank owns at most one matrix:
 *
 *   1. the owner's tensor-parallel group collects its local part of the matrix from the shards
 *   2. the owner collects the local parts from its tensor-parallel group
 *   3. the owner transforms the matrix
 *   4. the parts return on the same way
 *
 * Rounds go from large matrices to small ones, so that the owners in a round have about the same work. A
 * matrix is always transformed from the same elements in the same order, so the result does not depend on the
 * layout. A round has only matrices of units with the same shard group.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "parallel/shard_internal.h"

typedef struct ShardMatrix {
    int unit;
    Group *group;       /* that shards it */
    int shards;         /* its size with ZeRO; 1: each rank has a complete local part */
    int alike;          /* the first unit with the same group */
    int64_t first;      /* element of the unit's flat buffer, the same on all ranks */
    int64_t rows, cols; /* of the local part */
    int split;          /* the dim that tensor parallelism splits: 0 or 1; -1: each rank has all of it */
    int shard;          /* the owner's rank in the shard group; 0 without ZeRO */
    int tensor;         /* and in the tensor-parallel group; -1: every rank transforms its own copy */
    int round;
    int64_t place; /* its local part in Matrices.local */
} ShardMatrix;

struct Matrices {
    ShardMatrix *matrix;
    size_t count, capacity;
    int rounds;
    Buffer local, whole; /* what steps 1 and 2 collect */
    Buffer work;         /* of the transform */
    Ticket *ticket;
    int tickets;
};

void matrices_free(Matrices *matrices) {
    if (!matrices) return;
    free(matrices->matrix);
    free(matrices->ticket);
    dev_free(&matrices->local);
    dev_free(&matrices->whole);
    dev_free(&matrices->work);
    free(matrices);
}

static int64_t size_of(const ShardMatrix *matrix) {
    return matrix->rows * matrix->cols;
}

/* ---- setup ---- */

static Status add_slot(Matrices *matrices, const Shards *shards, int unit, const ParamSlot *slot) {
    int leading = slot->desc.ndim - 2, split = slot->desc.split - leading;
    Group *group = shards->unit[unit].groups.shard;
    ShardMatrix matrix = {.unit = unit,
                          .group = group,
                          .shards = shards->spec.optimizer || shards->spec.params ? group->size : 1,
                          .rows = slot->dim[leading],
                          .cols = slot->dim[leading + 1]};
    while (shards->unit[matrix.alike].groups.shard != group) matrix.alike++;
    if (slot->desc.split >= 0 && split < 0)
        return FAILED("internal: %s: whole matrices are split across tensor-parallel ranks", slot->desc.name);
    matrix.split = slot->desc.split >= 0 && shards->spec.tp->size > 1 ? split : -1;
    for (int64_t at = 0; at < slot->count; at += size_of(&matrix)) {
        matrix.first = slot->offset + at;
        TRY(mem_grow(&matrices->matrix, &matrices->capacity, matrices->count + 1, sizeof matrix));
        matrices->matrix[matrices->count++] = matrix;
    }
    return OK;
}

static Status find_matrices(Matrices *matrices, const Shards *shards) {
    for (int i = 0; i < shards->count; i++) {
        const Unit *layout = &shards->unit[i].layout;
        for (size_t k = 0; unit_trains(&shards->unit[i]) && k < layout->count; k++)
            if (optim_rule(&shards->spec.optim, &layout->slot[k].desc).whole)
                TRY(add_slot(matrices, shards, i, &layout->slot[k]));
    }
    return OK;
}

/* Split matrices first; then by group; then large ones; then in order. */
static int compare(const void *a, const void *b) {
    const ShardMatrix *x = a, *y = b;
    if ((x->split < 0) != (y->split < 0)) return x->split < 0 ? 1 : -1;
    if (x->alike != y->alike) return x->alike < y->alike ? -1 : 1;
    if (size_of(x) != size_of(y)) return size_of(x) < size_of(y) ? 1 : -1;
    if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Assigns owners and rounds; returns the number of local elements that a rank collects in a round. Owners in
 * the same tensor-parallel group are as many matrices apart as there are shards. */
static int64_t assign(Matrices *matrices, int tensors) {
    int64_t most = 0;
    int used = 0;
    for (size_t i = 0; i < matrices->count; i++) {
        ShardMatrix *matrix = &matrices->matrix[i];
        const ShardMatrix *last = i > 0 ? matrix - 1 : matrix;
        bool split = matrix->split >= 0, alike = matrix->alike == last->alike;
        int shards = matrix->shards;
        if (!alike || used == (split ? shards * tensors : shards) || split != (last->split >= 0)) {
            matrices->rounds++;
            used = 0;
        }
        matrix->round = matrices->rounds;
        matrix->shard = used % shards;
        matrix->tensor = split ? used / shards : -1;
        if (used >= shards) matrix->place = matrix[-shards].place + size_of(&matrix[-shards]);
        if (matrix->place + size_of(matrix) > most) most = matrix->place + size_of(matrix);
        used++;
    }
    return most;
}

static Status alloc(Matrices *matrices, const Shards *shards, int64_t local) {
    int tensors = shards->spec.tp->size;
    const Optimizer *kind = optim_kind(&shards->spec.optim);
    int64_t whole = 0;
    size_t work = 0;
    int most = 1;
    for (size_t i = 0; i < matrices->count; i++) {
        const ShardMatrix *matrix = &matrices->matrix[i];
        int64_t rows = matrix->rows * (matrix->split == 0 ? tensors : 1),
                cols = matrix->cols * (matrix->split == 1 ? tensors : 1);
        size_t bytes = kind->work_bytes(rows, cols, shards->spec.dtype);
        if (matrix->split >= 0 && rows * cols > whole) whole = rows * cols;
        if (bytes > work) work = bytes;
        if (matrix->shards > most) most = matrix->shards;
    }
    if (most > 1) TRY(dev_alloc(shards->device, MEM_COMM, (size_t)local * sizeof(float), &matrices->local));
    TRY(dev_alloc(shards->device, MEM_COMM, (size_t)whole * sizeof(float), &matrices->whole));
    TRY(dev_alloc(shards->device, MEM_SCRATCH, work, &matrices->work));
    return mem_new(2 * (size_t)(most + 1) * (size_t)tensors, sizeof *matrices->ticket, &matrices->ticket);
}

static void matrices_freep(Matrices **matrices) {
    matrices_free(*matrices);
}

Status matrices_new(Matrices **ret_matrices, const Shards *shards) {
    CLEANUP(matrices_freep) Matrices *matrices = NULL;
    TRY(mem_new(1, sizeof *matrices, &matrices));
    TRY(find_matrices(matrices, shards));
    if (!matrices->count) return OK;
    qsort(matrices->matrix, matrices->count, sizeof *matrices->matrix, compare);
    TRY(alloc(matrices, shards, assign(matrices, shards->spec.tp->size)));
    for (size_t i = 0; i < matrices->count; i++)
        if (matrices->matrix[i].shards > 1 &&
            (i == 0 || matrices->matrix[i].group != matrices->matrix[i - 1].group))
            TRY(group_connect(matrices->matrix[i].group, EVERY_RANK));
    TRY(group_connect(shards->spec.tp, EVERY_RANK));
    return MOVE(ret_matrices, matrices);
}

/* ---- a round ---- */

/* The elements of a matrix that shard `shard` has; false if it has none. */
static bool shard_part(const Shards *shards, const ShardMatrix *matrix, int shard, int64_t *ret_first,
                       int64_t *ret_count) {
    UnitRange range = {.first = matrix->first, .count = size_of(matrix)};
    int64_t numel = shards->unit[matrix->unit].layout.numel, share = numel / matrix->shards;
    return range_overlap(&range, share * shard, share, ret_first, ret_count);
}

/* The local part of a matrix: collected, or in place. */
static float *local_of(const Shards *shards, const ShardMatrix *matrix) {
    if (matrix->shards > 1) return (float *)shards->matrices->local.data + matrix->place;
    const ShardUnit *unit = &shards->unit[matrix->unit];
    return (float *)shard_gradient(shards, matrix->unit).data + (matrix->first - unit->first);
}

/* Moves a part between this rank and another, or within this rank if `peer` is its own rank. `in`: to `here`
 * from the peer; else to the peer. `there` is the other end of a move within this rank. */
static Status move(Shards *shards, Group *group, int peer, bool in, float *here, float *there,
                   int64_t count) {
    Matrices *matrices = shards->matrices;
    Stream *stream = shards->exec->stream;
    Tensor part = tensor_1d(here, DT_F32, count);
    if (peer == group->rank)
        return stream_copy(stream, in ? here : there, in ? there : here, tensor_bytes(part), COPY_ON_DEVICE);
    Ticket *ticket = &matrices->ticket[matrices->tickets++];
    return in ? comm_receive(group, stream, part, peer, ticket)
              : comm_send(group, stream, part, peer, ticket);
}

static Status wait_all(Shards *shards) {
    Matrices *matrices = shards->matrices;
    for (int i = 0; i < matrices->tickets; i++) TRY(ticket_wait(shards->exec->stream, &matrices->ticket[i]));
    matrices->tickets = 0;
    return OK;
}

/* Moves one matrix between the shards and the owner's tensor-parallel group. */
static Status move_shards(Shards *shards, const ShardMatrix *matrix, bool back) {
    Group *group = matrix->group;
    bool owner = matrix->shard == group->rank;
    for (int d = 0; d < matrix->shards; d++) {
        int64_t first, count;
        bool holder = d == group->rank;
        if ((!owner && !holder) || !shard_part(shards, matrix, d, &first, &count)) continue;
        float *at_owner = owner ? local_of(shards, matrix) + (first - matrix->first) : NULL,
              *at_holder = NULL;
        if (holder)
            at_holder = (float *)shard_gradient(shards, matrix->unit).data +
                        (first - shards->unit[matrix->unit].first);
        if (owner)
            TRY(move(shards, group, d, !back, at_owner, at_holder, count));
        else
            TRY(move(shards, group, matrix->shard, back, at_holder, NULL, count));
    }
    return OK;
}

/* Moves one matrix between the tensor-parallel ranks and the owner. */
static Status move_tensors(Shards *shards, const ShardMatrix *matrix, bool back) {
    Group *group = shards->spec.tp;
    float *local = local_of(shards, matrix), *whole = shards->matrices->whole.data;
    if (matrix->tensor != group->rank)
        return move(shards, group, matrix->tensor, back, local, NULL, size_of(matrix));
    for (int t = 0; t < group->size; t++)
        TRY(move(shards, group, t, !back, whole + t * size_of(matrix), local, size_of(matrix)));
    return OK;
}

/* Whether this rank's tensor-parallel group owns a matrix. */
static bool is_ours(const ShardMatrix *matrix) {
    return matrix->shards == 1 || matrix->shard == matrix->group->rank;
}

/* Runs step 1 or 2 for the matrices begin .. end - 1, or its way back. */
static Status exchange(Shards *shards, size_t begin, size_t end, bool tensors, bool back) {
    const Matrices *matrices = shards->matrices;
    Group *group = tensors ? shards->spec.tp : matrices->matrix[begin].group;
    if (!tensors && matrices->matrix[begin].shards == 1) return OK;
    TRY(comm_batch_begin(group));
    for (size_t i = begin; i < end; i++) {
        const ShardMatrix *matrix = &matrices->matrix[i];
        if (!tensors)
            TRY(move_shards(shards, matrix, back));
        else if (matrix->tensor >= 0 && is_ours(matrix))
            TRY(move_tensors(shards, matrix, back));
    }
    TRY(comm_batch_end(group));
    return wait_all(shards);
}

/* Transforms the matrix that this rank owns, if any. */
static Status transform(Shards *shards, size_t begin, size_t end) {
    const OptimSpec *optim = &shards->spec.optim;
    const Matrices *matrices = shards->matrices;
    int tensors = shards->spec.tp->size;
    OptimWork work = {.data = matrices->work.data, .dtype = shards->spec.dtype};
    for (size_t i = begin; i < end; i++) {
        const ShardMatrix *matrix = &matrices->matrix[i];
        bool split = matrix->tensor >= 0;
        if (!is_ours(matrix) || (split && matrix->tensor != shards->spec.tp->rank)) continue;
        OptimMatrix whole = {.data = split ? matrices->whole.data : local_of(shards, matrix),
                             .rows = matrix->rows * (matrix->split == 0 ? tensors : 1),
                             .cols = matrix->cols * (matrix->split == 1 ? tensors : 1),
                             .column_blocks = matrix->split == 1 ? tensors : 1};
        TRY(optim_kind(optim)->transform(shards->exec, optim, whole, work));
    }
    return OK;
}

Status matrices_transform(Shards *shards) {
    const Matrices *matrices = shards->matrices;
    for (size_t begin = 0, end; begin < matrices->count; begin = end) {
        int round = matrices->matrix[begin].round;
        for (end = begin; end < matrices->count && matrices->matrix[end].round == round;) end++;
        bool split = matrices->matrix[begin].tensor >= 0;
        TRY(exchange(shards, begin, end, false, false));
        if (split) TRY(exchange(shards, begin, end, true, false));
        TRY(transform(shards, begin, end));
        if (split) TRY(exchange(shards, begin, end, true, true));
        TRY(exchange(shards, begin, end, false, true));
    }
    return OK;
}
