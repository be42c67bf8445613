/* Low-communication data parallelism: DiLoCo (Douillard et al. 2023), streaming in fragments (Douillard et
 * al. 2025).
 *
 * A worker is a shard group: its ranks reduce their gradients in every step and update their parameters as a
 * run of their own. Workers differ only in their data. The replica group exchanges parameters. For a
 * fragment, a set of units, this happens every `every` steps:
 *
 *   outer gradient  D = synchronized parameters - own parameters, averaged over the workers
 *   outer step      synchronized parameters -= lr * (D + momentum * m), where m = momentum * m + D
 *   own parameters = synchronized parameters
 *
 * Each rank does so for the shard that it updates, so the ranks of a worker share the traffic. All workers
 * compute the same outer step. shard_outer_sum.c sums outer gradients, in fewer bits than they are computed
 * in.
 *
 * Fragments have about the same size and take turns, so that the traffic is spread over the interval. With an
 * overlap, the exchange runs beside that many further steps; one that takes two parts begins the second after
 * half of them. By then the own parameters have moved on, and the mean of both is taken, as published. What
 * happens after which step depends on step numbers only, never on how long an exchange takes.
 *
 * Workers drift apart most while the learning rate rises. Each of the first `warmup` steps therefore
 * synchronizes all fragments, without overlap.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "parallel/shard_internal.h"

/* The weight of the own parameters after an overlapped exchange. */
static const float keep_own = 0.5f;

typedef struct Outer {
    int fragments;
    int *fragment;  /* of each unit */
    int64_t *place; /* of each unit: its first element in the buffers */
    int64_t *count; /* of each fragment: its elements on this rank, with padding */
    Buffer own;     /* fp32: the outer gradient of this worker */
    OuterSum *sum;
    int pending; /* the fragment that is being exchanged, or -1 */
    int64_t due; /* the step after which the result is applied */
    bool unsent; /* its exchange has yet to start, since the run was resumed */
} Outer;

void outer_free(Outer *outer) {
    if (!outer) return;
    free(outer->fragment);
    free(outer->place);
    free(outer->count);
    dev_free(&outer->own);
    outer_sum_free(outer->sum);
    free(outer);
}

/* ---- fragments ---- */

static int64_t unit_size(const ParamList *unit) {
    int64_t size = 0;
    for (size_t j = 0; j < unit->count; j++)
        if (!unit->desc[j].tied && !unit->desc[j].frozen) size += param_count(&unit->desc[j]);
    return size;
}

/* From the largest unit to the smallest, each goes to the smallest fragment. Sizes are those of the whole
 * model, so that the fragments are the same in every layout. */
static Status divide(Outer *outer, const ParamList *units, int count) {
    CLEANUP(mem_freep) int64_t *load = NULL;
    TRY(mem_new((size_t)outer->fragments, sizeof *load, &load));
    for (int i = 0; i < count; i++) outer->fragment[i] = -1;
    for (int n = 0; n < count; n++) {
        int largest = -1, least = 0;
        for (int i = 0; i < count; i++)
            if (outer->fragment[i] < 0 && (largest < 0 || unit_size(&units[i]) > unit_size(&units[largest])))
                largest = i;
        for (int f = 1; f < outer->fragments; f++)
            if (load[f] < load[least]) least = f;
        outer->fragment[largest] = least;
        load[least] += unit_size(&units[largest]);
    }
    for (int f = 0; f < outer->fragments; f++)
        if (!load[f])
            return USAGE("{sync-fragments} %d: the model has fewer blocks to divide; use a smaller number",
                         outer->fragments);
    return OK;
}

Status outer_new(Shards *shards, const ParamList *units) {
    const OuterSpec *spec = &shards->spec.outer;
    CLEANUP(mem_freep) Outer *made = NULL;
    TRY(mem_new(1, sizeof *made, &made));
    Outer *outer = shards->outer = made;
    made = NULL;
    outer->pending = -1;
    outer->fragments = spec->fragments ? (int)spec->fragments : 1;
    TRY(mem_new((size_t)shards->count, sizeof *outer->fragment, &outer->fragment));
    TRY(mem_new((size_t)shards->count, sizeof *outer->place, &outer->place));
    TRY(mem_new((size_t)outer->fragments, sizeof *outer->count, &outer->count));
    TRY(divide(outer, units, shards->count));
    int64_t most = 0, align = outer_sum_align(shards);
    for (int i = 0; i < shards->count; i++) {
        int64_t *count = &outer->count[outer->fragment[i]];
        outer->place[i] = *count;
        if (unit_trains(&shards->unit[i])) *count += (shards->unit[i].count + align - 1) / align * align;
    }
    for (int f = 0; f < outer->fragments; f++) {
        outer->count[f] = outer_sum_size(shards, outer->count[f]);
        if (outer->count[f] > most) most = outer->count[f];
    }
    TRY(dev_alloc(shards->device, MEM_COMM, (size_t)most * sizeof(float), &outer->own));
    return outer_sum_new(&outer->sum, shards, most);
}

bool shard_outer_in(const Shards *shards, int at, int fragment) {
    return shards->outer->fragment[at] == fragment;
}

/* ---- values ---- */

static Tensor outer_view(const Shards *shards, int at, const Buffer *buffer) {
    const ShardUnit *unit = &shards->unit[at];
    return tensor_1d(buffer->data, DT_F32, buffer->data && unit_trains(unit) ? unit->count : 0);
}

Tensor shard_outer(const Shards *shards, int at) {
    if (shards->unit[at].layout.frozen) return shard_master(shards, at);
    return outer_view(shards, at, &shards->unit[at].outer);
}

Tensor shard_outer_momentum(const Shards *shards, int at) {
    return outer_view(shards, at, &shards->unit[at].outer_momentum);
}

Tensor shard_outer_grad(const Shards *shards, int at) {
    const Outer *outer = shards->outer;
    if (!outer || !shards->spec.outer.overlap) return tensor_1d(NULL, DT_F32, 0);
    return outer_view(shards, at, &(Buffer){.data = (float *)outer->own.data + outer->place[at]});
}

static Status copy(Shards *shards, Tensor dst, Tensor src) {
    return stream_copy(shards->exec->stream, dst.data, src.data, tensor_bytes(src), COPY_ON_DEVICE);
}

Status shards_outer_reset(Shards *shards) {
    if (!shards->outer) return OK;
    TRY(shards_outer_wait(shards));
    Outer *outer = shards->outer;
    outer->pending = -1;
    outer->unsent = false;
    /* Padding stays zero in a gradient that a checkpoint restores. */
    TRY(stream_zero(shards->exec->stream, outer->own.data, outer->own.bytes));
    for (int i = 0; i < shards->count; i++) {
        const ShardUnit *unit = &shards->unit[i];
        if (!unit_trains(unit)) continue;
        TRY(copy(shards, shard_outer(shards, i), shard_master(shards, i)));
        TRY(stream_zero(shards->exec->stream, unit->outer_momentum.data, unit->outer_momentum.bytes));
    }
    return OK;
}

Status shards_outer_swap(Shards *shards) {
    if (!shards->outer) return OK;
    for (int i = 0; i < shards->count; i++) {
        Tensor own = shard_master(shards, i), outer = shard_outer(shards, i),
               room = shard_gradient(shards, i);
        if (!unit_trains(&shards->unit[i])) continue;
        TRY(copy(shards, room, own));
        TRY(copy(shards, own, outer));
        TRY(copy(shards, outer, room));
    }
    return OK;
}

/* ---- an exchange ---- */

/* dst = x - y */
static Status subtract(Shards *shards, Tensor dst, Tensor x, Tensor y) {
    TRY(copy(shards, dst, x));
    return apply_step(shards->exec, dst, TENSOR_NONE, y, (Apply){.lr = 1});
}

static Tensor part_of(const Shards *shards, int at) {
    const Outer *outer = shards->outer;
    return tensor_1d((float *)outer->own.data + outer->place[at], DT_F32, shards->unit[at].count);
}

static Tensor all_of(const Outer *outer, int fragment) {
    return tensor_1d(outer->own.data, DT_F32, outer->count[fragment]);
}

static bool takes_part(const Shards *shards, int at, int fragment) {
    return unit_trains(&shards->unit[at]) && shard_outer_in(shards, at, fragment);
}

static Status measure(Shards *shards, int fragment) {
    Tensor all = all_of(shards->outer, fragment);
    if (outer_sum_align(shards) > 1) /* what other fragments have left where this one has padding */
        TRY(stream_zero(shards->exec->stream, all.data, tensor_bytes(all)));
    for (int i = 0; i < shards->count; i++)
        if (takes_part(shards, i, fragment))
            TRY(subtract(shards, part_of(shards, i), shard_outer(shards, i), shard_master(shards, i)));
    return OK;
}

/* Starts to sum what is in `own`. */
static Status start(Shards *shards, int fragment, int64_t due) {
    Outer *outer = shards->outer;
    outer->pending = fragment;
    outer->due = due;
    outer->unsent = false;
    return outer_sum_start(outer->sum, all_of(outer, fragment), fragment);
}

/* The parameters that a unit continues with. They include what the worker has not sent yet, except after the
 * last synchronization. */
static Status adopt(Shards *shards, int at, bool blends, bool last) {
    ShardUnit *unit = &shards->unit[at];
    Tensor own = shard_master(shards, at), outer = shard_outer(shards, at), compute = TENSOR_NONE;
    if (shards_have_masters(shards))
        compute = tensor_1d(shard_param_at(shards, unit, unit->first), shards->spec.dtype, unit->count);
    const float rest = blends ? 1 - keep_own : 1;
    if (blends) {
        /* own - (rest * own - rest * outer) */
        TRY(apply_step(shards->exec, own, compute, outer, (Apply){.lr = -rest, .decay = -1}));
    } else {
        TRY(copy(shards, own, outer));
        if (compute.data) TRY(convert(shards->exec, compute, own));
    }
    Tensor residual = outer_sum_residual(shards->outer->sum);
    if (residual.data && !last) {
        residual = tensor_slice(residual, shards->outer->place[at], unit->count);
        TRY(apply_step(shards->exec, own, compute, residual, (Apply){.lr = rest}));
    }
    return shard_publish_unit(shards, unit);
}

/* Completes the exchange: the outer step, then the parameters to continue with. */
static Status finish(Shards *shards, bool blends, bool last) {
    Outer *outer = shards->outer;
    const OuterSpec *spec = &shards->spec.outer;
    const Sgd update = {.lr = (float)spec->lr,
                        .momentum = (float)spec->momentum,
                        .nesterov = true,
                        .grad_scale = 1 / (float)shards->spec.data.replica->size};
    TRY(outer_sum_finish(outer->sum, all_of(outer, outer->pending)));
    for (int i = 0; i < shards->count; i++) {
        if (!takes_part(shards, i, outer->pending)) continue;
        TRY(sgd_step(shards->exec, shard_outer(shards, i), shard_outer_momentum(shards, i), TENSOR_NONE,
                     part_of(shards, i), update));
        TRY(adopt(shards, i, blends, last));
    }
    outer->pending = -1;
    return shards_publish_finish(shards);
}

/* Fragment f takes its turn (f + 1) / fragments of the way through the interval. */
static bool is_turn(const Shards *shards, int fragment, int64_t step) {
    int64_t every = shards->spec.outer.every;
    return step % every == (fragment + 1) * every / shards->outer->fragments % every;
}

Status shards_sync(Shards *shards, int64_t step, bool last) {
    Outer *outer = shards->outer;
    if (!outer) return OK;
    const OuterSpec *spec = &shards->spec.outer;
    bool all = last || step <= spec->warmup;
    int64_t overlap = all ? 0 : spec->overlap;
    if (outer->unsent) TRY(start(shards, outer->pending, outer->due));
    if (outer->pending >= 0 && step >= outer->due - spec->overlap / 2) TRY(outer_sum_return(outer->sum));
    if (outer->pending >= 0 && (step >= outer->due || all)) TRY(finish(shards, true, last));
    for (int f = 0; f < outer->fragments; f++) {
        if (!all && !is_turn(shards, f, step)) continue;
        TRY(measure(shards, f));
        TRY(start(shards, f, step + overlap));
        if (!overlap) TRY(finish(shards, false, last));
    }
    return OK;
}

/* ---- the exchange under way ---- */

int shards_outer_pending(const Shards *shards, int64_t *ret_due) {
    *ret_due = shards->outer ? shards->outer->due : 0;
    return shards->outer ? shards->outer->pending : -1;
}

Status shards_outer_wait(Shards *shards) {
    return shards->outer ? outer_sum_wait(shards->outer->sum) : OK;
}

void shards_outer_forget(Shards *shards) {
    if (shards->outer) outer_sum_forget(shards->outer->sum);
}

void shards_outer_restart(Shards *shards, int fragment, int64_t due) {
    shards->outer->pending = fragment;
    shards->outer->due = due;
    shards->outer->unsent = true;
}
