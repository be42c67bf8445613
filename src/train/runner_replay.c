/* Training steps as recordings (CUDA graphs).
 *
 * A step of a small micro-batch consists of about a thousand kernels of a few microseconds each: launching
 * them takes the host as long as executing them takes the device. If a step launches the same kernels with
 * the same arguments as the one before, it is therefore recorded, with both streams of runner_overlap.c, and
 * replayed from then on. Only its micro-batches are copied to the device before, each to its own place, and
 * with them the number of the step, which dropout's masks depend on.
 *
 * Arguments depend on the number and the shape of the micro-batches, on the factors of the losses, on the
 * addresses of workspaces and, in fp8, on whether there are scales yet. What the host keeps about a step
 * (which gradients are complete, which buffers are in use) is the same after each one, and so is not touched
 * by a replay. The update follows the host's decision about the step and is not part of the recording:
 * recorded waits for events order forward after it, unit by unit. */
#include <string.h>

#include "base/memory.h"
#include "train/runner_internal.h"

/* Bounds what a recording takes: about a thousand kernels per micro-batch. */
enum { RECORDED_MICROS = 8 };

Status replay_init(Runner *runner) {
    const RunnerSpec *spec = &runner->spec;
    int micros = spec->micros ? spec->micros : 1;
    if (!runner_may_record(runner) || micros > RECORDED_MICROS) return OK;
    TRY(mem_new((size_t)micros, sizeof *runner->replay.ids, &runner->replay.ids));
    runner->replay.micros = micros;
    size_t bytes =
        host_batch_bytes(spec->micro_batch, spec->seq, spec->seq, config_targets(&runner->model->config));
    for (int i = 0; i < micros; i++)
        TRY(dev_alloc(runner->device, MEM_ACTIVATIONS, bytes, &runner->replay.ids[i]));
    return OK;
}

/* A step whose gradients are probed has kernels that depend on its number. There must have been an update,
 * for whose events recorded steps wait. Fake quantization writes the weights of linear layers, which a
 * recording must not do. */
static bool is_recordable(const Runner *runner, const Round *round) {
    return runner->overlap.chain && round->count <= runner->replay.micros && runner->overlap.measured &&
           runner->overlap.updated && !runner->spec.fake_quant && !runner->replay.refused &&
           runner->chunks == 1 && !runner->exec.profile && !runner->exec.observer && !runner->trace &&
           !runner->device->op_log && !(runner->probe && round->count > 1);
}

/* Micro-batches of two steps are alike if all of them are like one. */
static bool is_like_last(const Runner *runner, const Round *round) {
    for (int i = 0; i < round->count; i++)
        if (!host_batch_alike(&runner->replay.batch, round->micros[i])) return false;
    return runner->replay.count == round->count && runner->replay.scaled == runner->fp8.ready &&
           runner->replay.balance_grad == round->balance_grad && runner->replay.z_grad == round->z_grad &&
           !memcmp(runner->replay.loss_grad, round->loss_grad, sizeof round->loss_grad);
}

static void remember(Runner *runner, const Round *round) {
    runner->replay.batch = *round->micros[0];
    runner->replay.count = round->count;
    runner->replay.scaled = runner->fp8.ready;
    runner->replay.balance_grad = round->balance_grad;
    runner->replay.z_grad = round->z_grad;
    memcpy(runner->replay.loss_grad, round->loss_grad, sizeof round->loss_grad);
}

static bool is_valid(const Runner *runner) {
    return runner->replay.recording && recording_holds(runner->replay.recording) &&
           runner->replay.workspace == runner->stream->workspace.data;
}

static void discard(Runner *runner) {
    recording_free(runner->replay.recording);
    runner->replay.recording = NULL;
}

/* Both streams start after the last update, `chain` unit by unit. */
static Status capture(Runner *runner, const Round *round) {
    Round recorded = *round;
    recorded.ids = runner->replay.ids;
    runner->overlap.updating = true;
    TRY(stream_wait(runner->stream, runner->overlap.chain));
    TRY(stream_event_wait(runner->stream, runner->overlap.updated));
    TRY(runner_launch(runner, &recorded));
    return stream_wait(runner->overlap.chain, runner->stream);
}

/* A step that was captured in part has neither run nor released its buffers. */
static Status abandon(Runner *runner) {
    Chunk *chunk = &runner->chunk[0];
    for (int i = 0; i < chunk->buffer_sets; i++) chunk->buffer_set[i].used = false;
    for (size_t i = 0; i < runner->messages; i++) runner->message[i].used = false;
    return overlap_settle(runner);
}

/* If recording fails, steps keep running normally; a genuine error will then show up there. */
static Status record(Runner *runner, const Round *round) {
    bool begun, updating = runner->overlap.updating;
    TRY(stream_record_begin(runner->overlap.chain, &begun));
    if (begun) {
        CLEANUP(recording_freep) Recording *recording = NULL;
        CLEANUP(status_freep) Status status = capture(runner, round);
        CLEANUP(status_freep) Status end = stream_record_end(runner->overlap.chain, &recording);
        if (!status && !end) {
            runner->replay.recording = recording;
            runner->replay.workspace = runner->stream->workspace.data;
            recording = NULL;
        } else {
            TRY(abandon(runner));
        }
    }
    runner->overlap.updating = updating;
    runner->replay.refused = !runner->replay.recording;
    return OK;
}

/* Copies after the last step and, unless forward waits for its update unit by unit, after that. */
static Status copy_batches(Runner *runner, const Round *round) {
    Stream *chain = runner->overlap.chain;
    if (!runner->overlap.updating) TRY(stream_wait(chain, runner->stream));
    for (int i = 0; i < round->count; i++)
        TRY(host_batch_copy(round->micros[i], chain, runner->replay.ids[i]));
    return OK;
}

/* A step launched in between may have been probed. */
static Status replay(Runner *runner) {
    runner->overlap.updating = false;
    runner->shards->probing = 0;
    TRY(recording_replay(runner->replay.recording));
    return stream_wait(runner->stream, runner->overlap.chain);
}

Status runner_launch_or_replay(Runner *runner, const Round *round) {
    if (!is_recordable(runner, round)) return runner_launch(runner, round);
    bool again = is_like_last(runner, round);
    if (!again || !is_valid(runner)) discard(runner);
    if (!again) {
        remember(runner, round);
        return runner_launch(runner, round);
    }
    TRY(copy_batches(runner, round));
    if (!runner->replay.recording) TRY(record(runner, round));
    return runner->replay.recording ? replay(runner) : runner_launch(runner, round);
}

void replay_done(Runner *runner) {
    discard(runner);
    for (int i = 0; i < runner->replay.micros; i++) dev_free(&runner->replay.ids[i]);
    free(runner->replay.ids);
}
