/* The actions of a schedule: forward and backward over a chunk's blocks, and the messages between stages.
 *
 * Each block's units are gathered before it runs and released after it (parallel/shard.h), while the next
 * block's units are prefetched. A unit's gradient is complete for a micro-batch when every block of this
 * stage that uses it has added its contribution.
 */
#include <string.h>

#include "train/runner_internal.h"

Exec *runner_exec(Runner *runner) {
    return runner->overlap.on ? &runner->overlap.exec : &runner->exec;
}

Pass runner_pass(Runner *runner, const Round *round, const MicroBuffers *buffer_set) {
    Pass pass = {
        .exec = runner_exec(runner),
        .tp = runner->mesh->axis[AXIS_TP],
        .cp = runner->mesh->axis[AXIS_CP],
        .swap = runner_swap(runner),
        .ring = runner->spec.cp_mode == CONTEXT_BOTH ? runner->mesh->ring : runner->mesh->axis[AXIS_CP],
        .expert = runner->mesh->expert,
        .at = runner_positions(runner, buffer_set->data.T),
        .shape = runner_shape(runner, buffer_set->data.B, buffer_set->data.T, round->train),
        .micro = &buffer_set->data,
        .param = runner->param_view,
        .grad = round->train ? runner->grad_view : NULL,
        .seed = runner->spec.seed,
        .step = (uint64_t)round->step,
        .scratch = runner->scratch,
        .rope = runner->rope_table,
        .fp8 = runner_fp8_state(runner, round->train),
        .balance = runner_balance_state(runner, round),
        .head_rows = round->head_rows ? round->head_rows[buffer_set->micro] : 0,
        .loss = tensor_1d(runner->loss.data, DT_F64, LOSS_COUNT),
    };
    if (!round->train) pass.hits = tensor_1d((double *)runner->loss.data + LOSS_COUNT, DT_F64, LOSS_COUNT);
    memcpy(pass.loss_grad, round->loss_grad, sizeof pass.loss_grad);
    runner->vocab.micro = buffer_set->micro;
    return pass;
}

/* ---- a block's units ---- */

/* The block's vocabulary matrix if it is gathered in pieces, else -1. */
static int unit_in_pieces(const Runner *runner, int at) {
    const Block *block = &runner->model->block[at];
    for (int i = 0; i < block->units; i++)
        if (shard_pieces(runner->shards, block->unit[i])) return block->unit[i];
    return -1;
}

/* Units that stay until backward soon fill the memory reserved for gathering, so prefetching may allocate:
 * the unit would be allocated one block later anyway. */
static Status fetch(Runner *runner, int at) {
    const Block *block = &runner->model->block[at];
    for (int i = 0; i < block->units; i++)
        if (!shard_pieces(runner->shards, block->unit[i]))
            TRY(shard_fetch(runner->shards, block->unit[i], runner->spec.keep_params));
    return OK;
}

static int piece_of(const Runner *runner, int piece) {
    return shard_piece(runner->shards, runner->vocab.unit, piece);
}

static Tensor piece_view(const Runner *runner, int at, void *data, DType dtype) {
    return unit_view(&runner->shards->unit[at].layout.slot[0], data, dtype);
}

static Status open_piece(void *context, int piece, int next, Tensor *ret_rows) {
    Runner *runner = context;
    void *data;
    TRY(shard_ready(runner->shards, piece_of(runner, piece), &data));
    *ret_rows = piece_view(runner, piece_of(runner, piece), data, runner->spec.dtype);
    return next < 0 ? OK : shard_fetch(runner->shards, piece_of(runner, next), false);
}

static void close_piece(void *context, int piece) {
    Runner *runner = context;
    shard_release(runner->shards, piece_of(runner, piece));
}

static Status open_piece_grad(void *context, int piece, Tensor *ret_grad) {
    Runner *runner = context;
    float *data;
    TRY(shard_grad(runner->shards, piece_of(runner, piece), &data));
    *ret_grad = piece_view(runner, piece_of(runner, piece), data, DT_F32);
    return OK;
}

static Status done_piece_grad(void *context, int piece) {
    Runner *runner = context;
    return shard_piece_done(runner->shards, piece_of(runner, piece), runner->vocab.micro);
}

Status runner_gather_pieces(Runner *runner, Pass *pass, int at, Buffer *ret_whole) {
    int unit = unit_in_pieces(runner, at), pieces = runner->vocab.pieces;
    if (unit < 0) return OK;
    size_t bytes = (size_t)runner->params->unit[unit].numel * dtype_size(runner->spec.dtype);
    TRY(dev_alloc(runner->device, MEM_SCRATCH, bytes, ret_whole));
    char *to = ret_whole->data;
    for (int k = 0; k < pieces; k++) {
        Tensor rows;
        TRY(open_piece(runner, k, k + 1 < pieces ? k + 1 : -1, &rows));
        TRY(stream_copy(runner->stream, to, rows.data, tensor_bytes(rows), COPY_ON_DEVICE));
        close_piece(runner, k);
        to += tensor_bytes(rows);
    }
    const Block *block = &runner->model->block[at];
    for (size_t i = 0; i < block->params.count; i++)
        if (block->ref[i].unit == unit) runner->param_view[i].data = ret_whole->data;
    pass->pieces = NULL;
    pass->shape.pieces = 0;
    return OK;
}

Status runner_enter(Runner *runner, Pass *pass, int at, bool params, bool grads) {
    const Block *block = &runner->model->block[at];
    int divided = unit_in_pieces(runner, at);
    runner->vocab.unit = divided;
    runner->vocab.access = (VocabPieces){open_piece, close_piece, open_piece_grad, done_piece_grad, runner};
    if (divided >= 0 && !shard_trains(runner->shards, divided)) runner->vocab.access.open_grad = NULL;
    pass->pieces = divided < 0 ? NULL : &runner->vocab.access;
    for (int i = 0; i < block->units; i++) {
        int unit = block->unit[i];
        if (unit == divided) continue;
        TRY(overlap_enter(runner, unit, grads));
        if (at == 0 && runner->rows.ready && unit == runner->rows.unit)
            runner->param_base[unit] = shard_rows(runner->shards, unit);
        else if (params)
            TRY(shard_ready(runner->shards, unit, &runner->param_base[unit]));
        if (grads && shard_trains(runner->shards, unit)) {
            float *grad;
            TRY(shard_grad(runner->shards, unit, &grad));
            runner->grad_base[unit] = grad;
        }
    }
    const Store *layout = runner->params;
    if (params) block_views(block, layout->unit, runner->param_base, runner->spec.dtype, runner->param_view);
    if (grads) block_views(block, layout->unit, runner->grad_base, DT_F32, runner->grad_view);
    for (size_t i = 0; grads && i < block->params.count; i++)
        runner->grad_unwritten[i] =
            block->params.desc[i].overwritten && shard_is_unwritten(runner->shards, block->ref[i].unit);
    pass->param = runner->param_view;
    pass->grad_unwritten = grads ? runner->grad_unwritten : NULL;
    return OK;
}

void runner_leave(Runner *runner, int at) {
    const Block *block = &runner->model->block[at];
    for (int i = 0; i < block->units; i++) shard_release(runner->shards, block->unit[i]);
}

/* Call when a block has added its contribution for a micro-batch to its units' gradients. */
static Status grads_added(Runner *runner, const Round *round, int at) {
    const Block *block = &runner->model->block[at];
    for (int i = 0; i < block->units; i++) {
        if (shard_pieces(runner->shards, block->unit[i]) || !shard_trains(runner->shards, block->unit[i]))
            continue;
        int unit = block->unit[i], adds = ++runner->unit_adds[unit], users = runner->unit_users[unit];
        shard_written(runner->shards, unit);
        bool last = adds == users * round->count;
        if (adds % users == 0) TRY(shard_grad_done(runner->shards, unit, last));
        if (last && runner_squares_early(runner, at)) TRY(shard_square(runner->shards, unit));
    }
    return OK;
}

/* Call when the first half of a split backward has added its contributions to the units' gradients. */
static Status rows_added(Runner *runner, int at) {
    const Block *block = &runner->model->block[at];
    for (int i = 0; i < block->units; i++)
        if (shard_trains(runner->shards, block->unit[i]))
            TRY(shard_rows_done(runner->shards, block->unit[i]));
    return OK;
}

/* ---- forward ---- */

static Tensor rows_of(const Runner *runner, Shape shape) {
    int64_t width = runner->model->config.hidden;
    if (!shape.sequence) return tensor_3d(NULL, shape.dtype, shape.B, shape.T, width);
    return tensor_3d(NULL, shape.dtype, 1, shape.B * shape.T / shape.tp, width);
}

static Tensor rows_at(void *data, const Runner *runner, Shape shape) {
    Tensor rows = rows_of(runner, shape);
    rows.data = data;
    return data ? rows : TENSOR_NONE;
}

Tensor runner_output(Runner *runner, const Chunk *chunk, const MicroBuffers *buffer_set, Shape shape,
                     int at) {
    if (at + 1 == chunk->count) {
        if (!chunk->to_stage) return TENSOR_NONE;
        StageMessage *message =
            message_find(runner, MESSAGE_OUTPUT, (int)(chunk - runner->chunk), buffer_set->micro);
        return rows_at(message ? message->buffer.data : NULL, runner, shape);
    }
    const Buffer *buffer = offload_buffer(runner, &buffer_set->input[at + 1]);
    if (buffer && !buffer->data && at >= 0) buffer = &buffer_set->input[1 + at % 2];
    return rows_at(buffer ? buffer->data : NULL, runner, shape);
}

static void use_saved(Runner *runner, Pass *pass, const MicroBuffers *buffer_set, int at) {
    bool own = buffer_set->saved[at].data != NULL;
    pass->saved = own ? buffer_set->saved[at] : runner->shared;
    for (int i = 0; i < RECEIVED_SCRATCH; i++)
        pass->received[i] = own ? &buffer_set->received[at * RECEIVED_SCRATCH + i] : &runner->received[i];
    pass->received[RECEIVED_SCRATCH] = &runner->received[RECEIVED_SCRATCH];
}

static Status block_span_end(Runner *runner, const Pass *pass, const StreamSpan *span, int number) {
    static const TraceName name = {
        .name = "block ", .category = "block", .number = {"block"}, .numbered = true};
    return stream_span_end(pass->exec->stream, runner->trace, span, TRACE_COMPUTE, &name,
                           (int64_t[TRACE_NUMBERS]){number});
}

static Status forward_block(Runner *runner, Pass *pass, const Chunk *chunk, const MicroBuffers *buffer_set,
                            int at) {
    const Block *block = &runner->model->block[chunk->first + at];
    use_saved(runner, pass, buffer_set, at);
    return block->ops->forward(block, pass, runner_output(runner, chunk, buffer_set, pass->shape, at),
                               runner_output(runner, chunk, buffer_set, pass->shape, at - 1));
}

Status runner_forward(Runner *runner, const Round *round, Chunk *chunk, MicroBuffers *buffer_set, int end) {
    Pass pass = runner_pass(runner, round, buffer_set);
    for (int at = 0; at < end; at++) {
        int number = chunk->first + at;
        TRY(mesh_section_check(runner->mesh));
        bool grads = round->train && runner->model->block[number].ops->grads_in_forward;
        TRY(runner_enter(runner, &pass, number, true, grads));
        /* Pieces need the memory into which the next block's parameters would be gathered. */
        bool ahead = at + 1 < end && !pass.pieces, within = at + 1 < chunk->count;
        if (ahead) TRY(fetch(runner, number + 1));
        if (within) TRY(offload_claim(runner, &buffer_set->input[at + 1]));
        StreamSpan span;
        TRY(stream_span_begin(pass.exec->stream, runner->trace, &span));
        TRY(forward_block(runner, &pass, chunk, buffer_set, at));
        TRY(block_span_end(runner, &pass, &span, number));
        if (round->train && within)
            TRY(offload_store(runner, &buffer_set->input[at + 1], tensor_bytes(rows_of(runner, pass.shape))));
        if (at + 1 < end && !ahead) TRY(fetch(runner, number + 1));
        if (grads) TRY(grads_added(runner, round, number));
        bool kept = round->train && runner->spec.keep_params && number >= runner->model->lowest;
        if (!kept) runner_leave(runner, number);
    }
    return OK;
}

static int64_t first_sequence(const Runner *runner, const Round *round, int micro) {
    return ((int64_t)runner->mesh->at[AXIS_DP] * round->count + micro) * runner->spec.micro_batch;
}

static Status message_release(Runner *runner, StageMessage *message) {
    message->used = false;
    return stream_event_record(runner->stream, &message->freed);
}

/* Moves a received input into the micro-batch's buffers by swapping buffers with the message. */
static Status take_input(Runner *runner, const Round *round, MicroBuffers *buffer_set, Action action) {
    StageMessage *message = message_find(runner, MESSAGE_INPUT, action.chunk, action.micro);
    if (!message) return FAILED("internal: input of micro-batch %d was not received", action.micro);
    TRY(offload_claim(runner, buffer_set->input));
    Buffer *input = offload_buffer(runner, buffer_set->input), buffer = *input;
    *input = message->buffer;
    message->buffer = buffer;
    TRY(message_release(runner, message));
    const HostBatch *batch = round->micros[action.micro];
    Shape shape = runner_shape(runner, batch->B, batch->T, round->train);
    return round->train ? offload_store(runner, buffer_set->input, tensor_bytes(rows_of(runner, shape))) : OK;
}

static Status do_forward(Runner *runner, const Round *round, Action action) {
    Chunk *chunk = &runner->chunk[action.chunk];
    MicroBuffers *buffer_set;
    TRY(micro_buffers_open(runner, action.chunk, action.micro, &buffer_set));
    if (chunk->from_stage) TRY(take_input(runner, round, buffer_set, action));
    StageMessage *message;
    if (chunk->to_stage)
        TRY(message_open(runner, runner->stream, MESSAGE_OUTPUT, action.chunk, action.micro, &message));
    const HostBatch *batch = round->micros[action.micro];
    Buffer ids = round->ids ? round->ids[action.micro] : buffer_set->ids;
    TRY(host_batch_views(batch, ids, first_sequence(runner, round, action.micro), &buffer_set->data));
    if (!round->ids) TRY(host_batch_copy(batch, runner_exec(runner)->stream, ids));
    bool scores = round->scores && runner_has_output(runner, chunk);
    TRY(runner_forward(runner, round, chunk, buffer_set, scores ? chunk->count - 1 : chunk->count));
    if (scores) TRY(runner_score(runner, round, chunk, buffer_set));
    if (!round->train || !chunk->backward) buffer_set->used = false;
    return OK;
}

/* ---- backward ---- */

/* Recomputes of a block's forward what backward needs. Its output, which a block need not write, is not
 * needed; that of a chunk's last block goes to a temporary message. */
static Status recompute_block(Runner *runner, Pass *pass, const Chunk *chunk, const MicroBuffers *buffer_set,
                              int at) {
    StageMessage *message;
    if (at + 1 < chunk->count) {
        TRY(offload_claim(runner, &buffer_set->input[at + 1]));
        TRY(forward_block(runner, pass, chunk, buffer_set, at));
        offload_drop(runner, &buffer_set->input[at + 1]);
        return OK;
    }
    if (!chunk->to_stage) return forward_block(runner, pass, chunk, buffer_set, at);
    TRY(message_open(runner, runner->stream, MESSAGE_OUTPUT, (int)(chunk - runner->chunk), buffer_set->micro,
                     &message));
    TRY(forward_block(runner, pass, chunk, buffer_set, at));
    return message_release(runner, message);
}

static Status input_fetch(Runner *runner, Shape shape, const MicroBuffers *buffer_set, int at) {
    return offload_fetch(runner, &buffer_set->input[at], tensor_bytes(rows_of(runner, shape)));
}

static Status input_ready(Runner *runner, Shape shape, const MicroBuffers *buffer_set, int at) {
    return offload_ready(runner, &buffer_set->input[at], tensor_bytes(rows_of(runner, shape)));
}

static Status backward_block(Runner *runner, const Round *round, Pass *pass, const Chunk *chunk,
                             MicroBuffers *buffer_set, int at, bool split, Tensor dx, Tensor dy) {
    int number = chunk->first + at;
    const Block *block = &runner->model->block[number];
    bool done = block->ops->grads_in_forward, params = block->ops->backward_params;
    TRY(runner_enter(runner, pass, number, params, !done));
    bool next = at > 0 && number > runner->model->lowest;
    TRY(input_ready(runner, pass->shape, buffer_set, at));
    if (next && runner->model->block[number - 1].ops->backward_params) TRY(fetch(runner, number - 1));
    if (next) TRY(input_fetch(runner, pass->shape, buffer_set, at - 1));
    pass->again = !pass->shape.whole_blocks;
    pass->rerun = runner_recomputes(runner, number);
    if (pass->rerun) TRY(recompute_block(runner, pass, chunk, buffer_set, at));
    pass->again = false;
    use_saved(runner, pass, buffer_set, at);
    bool deferred = split && buffer_set->deferred[at].data;
    pass->deferred = deferred ? buffer_set->deferred[at] : overlap_operands(runner, number);
    Tensor x = runner_output(runner, chunk, buffer_set, pass->shape, at - 1);
    pass->lasting_dy = dx.data == dy.data ? TENSOR_NONE : dy;
    StreamSpan span;
    TRY(stream_span_begin(pass->exec->stream, runner->trace, &span));
    TRY(block->ops->backward(block, pass, dx, dy, x));
    pass->rerun = false;
    TRY(block_span_end(runner, pass, &span, number));
    if (deferred)
        TRY(rows_added(runner, number));
    else if (pass->deferred.data)
        TRY(overlap_weights(runner, pass, number, x));
    runner_leave(runner, number);
    return done || deferred ? OK : grads_added(runner, round, number);
}

static Status do_backward(Runner *runner, const Round *round, Action action) {
    Chunk *chunk = &runner->chunk[action.chunk];
    MicroBuffers *buffer_set = micro_buffers_find(runner, action.chunk, action.micro);
    bool split = action.kind == ACTION_BACKWARD_INPUT;
    TRY(shards_clear_ahead(runner->shards));
    StageMessage *message = message_find(runner, MESSAGE_GRADIENT, action.chunk, action.micro);
    if (!message)
        TRY(message_open(runner, runner->stream, MESSAGE_GRADIENT, action.chunk, action.micro, &message));
    Pass pass = runner_pass(runner, round, buffer_set);
    Tensor gradient = rows_at(message->buffer.data, runner, pass.shape), dy = gradient;
    for (int at = chunk->count - 1; at >= 0 && chunk->first + at >= runner->model->lowest; at--) {
        Tensor dx = overlap_gradient(runner, chunk->first + at, dy, gradient);
        TRY(mesh_section_check(runner->mesh));
        TRY(backward_block(runner, round, &pass, chunk, buffer_set, at, split, dx, dy));
        dy = dx;
    }
    /* Recomputation may have moved the list of messages. */
    message = message_find(runner, MESSAGE_GRADIENT, action.chunk, action.micro);
    if (!chunk->sends_gradient) TRY(message_release(runner, message));
    if (!split) buffer_set->used = false;
    return overlap_micro_end(runner);
}

static Status do_backward_weight(Runner *runner, const Round *round, Action action) {
    Chunk *chunk = &runner->chunk[action.chunk];
    MicroBuffers *buffer_set = micro_buffers_find(runner, action.chunk, action.micro);
    Pass pass = runner_pass(runner, round, buffer_set);
    for (int at = chunk->count - 1; at >= 0; at--) {
        if (!buffer_set->deferred[at].data) continue;
        int number = chunk->first + at;
        const Block *block = &runner->model->block[number];
        bool params = runner->spec.recompute == RECOMPUTE_SELECTIVE || runner->model->config.lora.rank;
        TRY(runner_enter(runner, &pass, number, params, true));
        TRY(input_ready(runner, pass.shape, buffer_set, at));
        if (at > 0 && buffer_set->deferred[at - 1].data)
            TRY(input_fetch(runner, pass.shape, buffer_set, at - 1));
        use_saved(runner, &pass, buffer_set, at);
        pass.deferred = buffer_set->deferred[at];
        TRY(block->ops->backward_weight(block, &pass,
                                        runner_output(runner, chunk, buffer_set, pass.shape, at - 1)));
        runner_leave(runner, number);
        TRY(grads_added(runner, round, number));
    }
    buffer_set->used = false;
    return OK;
}

/* ---- messages ---- */

static Tensor message_tensor(Runner *runner, const Round *round, int micro, void *data) {
    const HostBatch *batch = round->micros[micro];
    return rows_at(data, runner, runner_shape(runner, batch->B, batch->T, round->train));
}

static Status do_receive(Runner *runner, const Round *round, Action action, MessageKind kind) {
    const Chunk *chunk = &runner->chunk[action.chunk];
    StageMessage *message;
    TRY(message_open(runner, runner->inbox, kind, action.chunk, action.micro, &message));
    comm_label(runner->mesh->axis[AXIS_PP], action_trace(action.kind), action.micro, action.chunk);
    return comm_receive(runner->mesh->axis[AXIS_PP], runner->inbox,
                        message_tensor(runner, round, action.micro, message->buffer.data),
                        kind == MESSAGE_INPUT ? chunk->from : chunk->to, &message->ticket);
}

static Status do_send(Runner *runner, const Round *round, Action action, MessageKind kind) {
    const Chunk *chunk = &runner->chunk[action.chunk];
    StageMessage *message = message_find(runner, kind, action.chunk, action.micro);
    if (!message) return FAILED("internal: nothing to send for micro-batch %d", action.micro);
    message->used = message->launched = false;
    comm_label(runner->mesh->axis[AXIS_PP], action_trace(action.kind), action.micro, action.chunk);
    return comm_send(runner->mesh->axis[AXIS_PP], runner->stream,
                     message_tensor(runner, round, action.micro, message->buffer.data),
                     kind == MESSAGE_OUTPUT ? chunk->to : chunk->from, &message->ticket);
}

/* ---- the schedule ---- */

/* Waits for the message that a computation needs from another stage. */
static Status await_message(Runner *runner, Action action) {
    MessageKind kind = action.kind == ACTION_FORWARD ? MESSAGE_INPUT : MESSAGE_GRADIENT;
    StageMessage *message = message_find(runner, kind, action.chunk, action.micro);
    return message ? ticket_wait(runner->stream, &message->ticket) : OK;
}

static Status do_action(Runner *runner, const Round *round, Action action) {
    switch (action.kind) {
    case ACTION_RECEIVE_FORWARD: return do_receive(runner, round, action, MESSAGE_INPUT);
    case ACTION_FORWARD: return do_forward(runner, round, action);
    case ACTION_SEND_FORWARD: return do_send(runner, round, action, MESSAGE_OUTPUT);
    case ACTION_RECEIVE_BACKWARD: return do_receive(runner, round, action, MESSAGE_GRADIENT);
    case ACTION_BACKWARD:
    case ACTION_BACKWARD_INPUT: return do_backward(runner, round, action);
    case ACTION_BACKWARD_WEIGHT: return do_backward_weight(runner, round, action);
    case ACTION_SEND_BACKWARD: return do_send(runner, round, action, MESSAGE_GRADIENT);
    case ACTION_KINDS: break;
    }
    return FAILED("internal: unknown action");
}

/* Dry run: marks the operations that follow as part of this action. */
static Status log_action(Runner *runner, Action action) {
    return op_log_add(runner->device->op_log,
                      (OpRecord){.kind = OP_ACTION,
                                 .what = action.kind,
                                 .stream = runner->stream,
                                 .size = {(double)action.micro, (double)action.chunk}});
}

/* Fetches what a backward reads first, while the device still waits for its message. */
static Status fetch_last(Runner *runner, const Round *round, Action action) {
    const Chunk *chunk = &runner->chunk[action.chunk];
    const MicroBuffers *buffer_set = micro_buffers_find(runner, action.chunk, action.micro);
    const HostBatch *batch = round->micros[action.micro];
    bool later = action.kind == ACTION_BACKWARD_WEIGHT;
    if (action.kind == ACTION_FORWARD || (later && !buffer_set->deferred[chunk->count - 1].data)) return OK;
    return input_fetch(runner, runner_shape(runner, batch->B, batch->T, round->train), buffer_set,
                       chunk->count - 1);
}

static Status run_action(Runner *runner, const Round *round, Action action) {
    TRY(log_action(runner, action));
    if (!action_computes(action.kind)) return do_action(runner, round, action);
    TRY(fetch_last(runner, round, action));
    TRY(await_message(runner, action));
    Stream *stream = runner_exec(runner)->stream;
    StreamSpan span;
    TRY(stream_span_begin(stream, runner->trace, &span));
    TRY(do_action(runner, round, action));
    return stream_span_end(stream, runner->trace, &span, TRACE_COMPUTE, action_trace(action.kind),
                           (int64_t[TRACE_NUMBERS]){action.micro, action.chunk});
}

static Status end_batch(Runner *runner) {
    TRY(comm_batch_end(runner->mesh->axis[AXIS_PP]));
    for (size_t i = 0; i < runner->messages; i++) runner->message[i].launched = true;
    return OK;
}

/* Sends and receives between two computations form one communication batch. */
Status runner_run(Runner *runner, const Schedule *schedule, const Round *round) {
    bool open = false;
    for (int i = 0; i < schedule->count; i++) {
        bool communicates = !action_computes(schedule->action[i].kind);
        if (communicates && !open) TRY(comm_batch_begin(runner->mesh->axis[AXIS_PP]));
        if (!communicates && open) TRY(end_batch(runner));
        open = communicates;
        TRY(run_action(runner, round, schedule->action[i]));
    }
    if (open) TRY(end_batch(runner));
    TRY(op_log_add(runner->device->op_log, (OpRecord){.kind = OP_END, .stream = runner->stream}));
    for (size_t i = 0; i < runner->messages; i++)
        TRY(ticket_wait(runner->stream, &runner->message[i].ticket));
    return OK;
}
