/* What runs beside forward and backward, with one rank.
 *
 * On a GPU: A small micro-batch does not fill a GPU: norms, attention and the first and last moments of every
 * GEMM leave most of it idle. Forward and backward therefore run on a stream of their own, `chain`, which has
 * precedence, and `stream` fills the gaps with what the next block does not wait for:
 *
 * The update: a block's forward waits only for that of its own units.
 *
 * Weight gradients, for micro-batches of up to OVERLAP_ROWS rows: backward leaves the operands in one of two
 * buffers, as in a zero-bubble schedule, and waits before it uses that buffer again. Not in fp8, whose
 * backward quantizes a gradient once for both products.
 *
 * The gradient norm: a layer's part follows its weight gradients.
 *
 * All other code uses `stream`. It follows the whole step when the step ends, so `chain` has work only within
 * runner_gradients. Profiles, and the first step, which tunes GEMMs, run the same kernels on one stream, with
 * the same bits. WEFT_CUDA_OVERLAP=off does without all of this.
 *
 * On a CPU: GEMMs are bound by arithmetic, the update and the gradient norm by memory, and at the end of each
 * kernel some threads have nothing to do. The pool leaves the update and the norm to them (device/pool.h). A
 * block waits for the update of its units in shard_ready. The embedding needs only the rows of the step's
 * tokens, which are therefore updated first; the rest of its matrix comes last. fp8 is excluded there:
 * forward uses scales that the update computes.
 */
#include "train/runner_internal.h"

enum { OVERLAP_ROWS = 4096 };

static bool trains_alone(const Runner *runner) {
    const RunnerSpec *spec = &runner->spec;
    return spec->train && runner->mesh->size == 1 && spec->offload == OFFLOAD_NONE && !spec->base;
}

/* Whether this runner may use two streams. */
static bool may_overlap(const Runner *runner) {
    return trains_alone(runner) && device_overlaps(runner->device);
}

bool runner_updates_by_unit(const Runner *runner) {
    const Device *device = runner->device;
    bool cpu = device_is_host(device) || (device_is_dryrun(device) && !device->planned);
    return trains_alone(runner) && ((cpu && !runner->spec.fp8) || device_overlaps(device));
}

bool runner_squares_early(const Runner *runner, int block) {
    bool left = runner->shards->spec.by_unit && device_is_host(runner->device);
    return left || overlap_operands(runner, block).data;
}

static bool is_small(const RunnerSpec *spec) {
    return spec->micro_batch * spec->seq <= OVERLAP_ROWS;
}

bool runner_may_record(const Runner *runner) {
    return may_overlap(runner) && is_small(&runner->spec);
}

/* Memory for weight gradients beside backward. */
static Status alloc_operands(Runner *runner) {
    const RunnerSpec *spec = &runner->spec;
    Shape shape = runner_largest(runner);
    size_t operands = 0, scratch = 0;
    if (!is_small(spec) || spec->recompute == RECOMPUTE_BLOCK || spec->fp8) return OK;
    for (int i = 0; i < runner->model->count; i++) {
        const Block *block = &runner->model->block[i];
        size_t here, saved, needed;
        if (!runner_defers(runner, i)) continue;
        here = block->ops->measure_deferred(block, shape);
        block->ops->measure(block, shape, &saved, &needed);
        if (here > operands) operands = here;
        if (needed > scratch) scratch = needed;
    }
    for (int i = 0; i < 2; i++)
        TRY(dev_alloc(runner->device, MEM_ACTIVATIONS, operands, &runner->overlap.operands[i]));
    size_t rows = (size_t)(shape.B * shape.T * runner->model->config.hidden) * dtype_size(shape.dtype);
    for (int i = 0; i < 2; i++)
        TRY(dev_alloc(runner->device, MEM_ACTIVATIONS, rows, &runner->overlap.gradient[i]));
    return dev_alloc(runner->device, MEM_SCRATCH, scratch, &runner->overlap.scratch);
}

Status overlap_init(Runner *runner) {
    if (!may_overlap(runner)) return OK;
    TRY(alloc_operands(runner));
    if (device_is_dryrun(runner->device)) return OK;
    TRY(stream_new_urgent(&runner->overlap.chain, runner->device));
    runner->overlap.exec = (Exec){.stream = runner->overlap.chain, .table = runner->exec.table};
    return OK;
}

void overlap_done(Runner *runner) {
    for (int i = 0; i < 2; i++) dev_free(&runner->overlap.operands[i]);
    for (int i = 0; i < 2; i++) dev_free(&runner->overlap.gradient[i]);
    dev_free(&runner->overlap.scratch);
    stream_event_free(runner->device, runner->overlap.updated);
    stream_free(runner->overlap.chain);
}

static bool has_operands(const Runner *runner) {
    return runner->overlap.operands[0].data != NULL;
}

/* Without weight gradients beside `chain`, only one stream needs a workspace at a time. */
static void pass_workspace(Runner *runner, Stream *from, Stream *to) {
    if (has_operands(runner)) return;
    dev_free(&to->workspace);
    to->workspace = from->workspace;
    from->workspace = (Buffer){0};
}

static Status leave_chain(Runner *runner) {
    if (!runner->overlap.on) return OK;
    runner->overlap.on = false;
    pass_workspace(runner, runner->overlap.chain, runner->stream);
    return stream_wait(runner->stream, runner->overlap.chain);
}

Status overlap_begin(Runner *runner, bool alone) {
    bool on = runner->overlap.chain && runner->overlap.measured && !alone && !runner->exec.profile &&
              !runner->exec.observer;
    if (on && !runner->overlap.updating) TRY(stream_wait(runner->overlap.chain, runner->stream));
    runner->overlap.on = on;
    runner->overlap.cleared = runner->overlap.updating = false;
    runner->overlap.turn = 0; /* the same buffers in every step */
    if (on) pass_workspace(runner, runner->stream, runner->overlap.chain);
    return OK;
}

/* The workspace of `chain` is as large as the one that a step on `stream` alone needed. */
static Status reserve_workspace(Runner *runner) {
    size_t bytes = runner->stream->workspace.bytes;
    void *data;
    if (!has_operands(runner)) return OK;
    if (device_is_dryrun(runner->device)) return dev_adopt(runner->device, MEM_SCRATCH, bytes);
    return stream_workspace(runner->overlap.chain, bytes, &data);
}

Status overlap_end(Runner *runner) {
    runner->rows.ready = false;
    TRY(leave_chain(runner));
    if (runner->overlap.measured) return OK;
    runner->overlap.measured = true;
    return reserve_workspace(runner);
}

Status overlap_settle(Runner *runner) {
    runner->overlap.updating = false;
    runner->rows.ready = false;
    return leave_chain(runner);
}

Status overlap_update_begin(Runner *runner) {
    bool rows = runner->lags && device_is_host(runner->device);
    shards_postpone(runner->shards, rows ? runner->rows.unit : -1);
    return runner->overlap.chain ? stream_wait(runner->overlap.chain, runner->stream) : OK;
}

Status overlap_update_end(Runner *runner) {
    if (!runner->lags) TRY(runner_settle(runner));
    runner->overlap.updating = shards_update_by_unit(runner->shards);
    return runner->overlap.chain ? stream_event_record(runner->stream, &runner->overlap.updated) : OK;
}

Status runner_settle(Runner *runner) {
    runner->rows.ready = false;
    return device_is_host(runner->device) ? shards_settle(runner->shards) : OK;
}

/* Lists the tokens of a step in ascending order, each once. */
static int64_t list_tokens(const Round *round, bool *found, int64_t vocab, int32_t *tokens) {
    int64_t count = 0;
    for (int i = 0; i < round->count; i++) {
        const HostBatch *batch = round->micros[i];
        for (int64_t k = 0; k < batch->B * batch->T; k++)
            if (batch->tokens[k] >= 0 && batch->tokens[k] < vocab) found[batch->tokens[k]] = true;
    }
    for (int64_t token = 0; token < vocab; token++)
        if (found[token]) tokens[count++] = (int32_t)token;
    return count;
}

Status overlap_rows(Runner *runner, const Round *round) {
    enum { SPARSE = 8 }; /* with more than one row in SPARSE, the matrix is updated as a whole */
    CLEANUP(mem_freep) bool *found = NULL;
    CLEANUP(mem_freep) int32_t *tokens = NULL;
    int64_t all = 0;
    runner->rows.ready = false;
    if (!shards_update_waits(runner->shards)) return OK;
    for (int i = 0; i < round->count; i++) all += round->micros[i]->B * round->micros[i]->T;
    int64_t vocab = runner->shards->unit[runner->rows.unit].layout.slot[0].dim[0];
    if (all > vocab / SPARSE) return OK;
    TRY(mem_new((size_t)vocab, sizeof *found, &found));
    TRY(mem_new((size_t)all, sizeof *tokens, &tokens));
    TRY(shards_update_rows(runner->shards, tokens, list_tokens(round, found, vocab, tokens)));
    runner->rows.ready = true;
    return OK;
}

Status overlap_enter(Runner *runner, int unit, bool grads) {
    Stream *chain = runner->overlap.chain;
    if (!runner->overlap.on) return OK;
    if (!grads) return shard_await_update(runner->shards, unit, chain);
    if (runner->overlap.cleared) return OK;
    runner->overlap.cleared = true;
    return stream_wait(chain, runner->stream);
}

Buffer overlap_operands(const Runner *runner, int block) {
    return runner_defers(runner, block) ? runner->overlap.operands[runner->overlap.turn] : (Buffer){0};
}

/* A layer's weight gradients read the gradient of its output while backward of the next layer runs, which
 * must not overwrite it: three buffers take turns. */
Tensor overlap_gradient(const Runner *runner, int block, Tensor dy, Tensor message) {
    const Buffer *other = runner->overlap.gradient;
    Tensor dx = dy;
    if (!overlap_operands(runner, block).data) return dy;
    dx.data = dy.data == message.data    ? other[0].data
              : dy.data == other[0].data ? other[1].data
                                         : message.data;
    return dx;
}

/* `chain` waits for the previous layer's weight gradients, whose buffer the next layer will use, and `stream`
 * for this layer's operands. */
Status overlap_weights(Runner *runner, const Pass *pass, int at, Tensor x) {
    const Block *block = &runner->model->block[at];
    Pass weights = *pass;
    weights.exec = &runner->exec;
    weights.scratch = runner->overlap.scratch;
    if (runner->overlap.on) {
        TRY(stream_wait(runner->overlap.chain, runner->stream));
        TRY(stream_wait(runner->stream, runner->overlap.chain));
    }
    runner->overlap.turn = !runner->overlap.turn;
    return block->ops->backward_weight(block, &weights, x);
}

Status overlap_micro_end(Runner *runner) {
    return runner->overlap.on ? stream_wait(runner->overlap.chain, runner->stream) : OK;
}
