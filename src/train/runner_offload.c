/* Activations in host memory: the inputs of blocks, from forward to backward.
 *
 * A block reads its input and writes its output, the next block's input, in one of a few slots of device
 * memory. As soon as an input is written, it is copied to the host; backward fetches it one block ahead. Both
 * copies run beside computation, on streams of their own. Micro-batches and chunks share the slots: whoever
 * needs one takes the one that was used least recently, after the copies from and to it. Inputs that backward
 * does not read, and those of an evaluation, stay in their slot until it is taken.
 *
 * With recomputation of blocks, backward needs nothing else of a layer. */
#include "train/runner_internal.h"

bool runner_offloads(const Runner *runner) {
    return runner->offload.to_host != NULL;
}

Status offload_init(Runner *runner) {
    const RunnerSpec *spec = &runner->spec;
    bool activations = spec->train && offload_activations(spec->offload);
    if (activations || offload_state(spec->offload) == OFFLOAD_PARAMS)
        TRY(stream_new(&runner->from_host, runner->device));
    if (!activations) return OK;
    TRY(stream_new(&runner->offload.to_host, runner->device));
    for (int i = 0; i < OFFLOAD_SLOTS; i++)
        TRY(dev_alloc(runner->device, MEM_ACTIVATIONS, runner_rows_bytes(runner),
                      &runner->offload.slot[i].rows));
    return OK;
}

/* Waits for copies in progress: their memory is freed later. */
void offload_done(Runner *runner) {
    stream_free(runner->from_host);
    stream_free(runner->offload.to_host);
    for (int i = 0; i < OFFLOAD_SLOTS; i++) {
        dev_free(&runner->offload.slot[i].rows);
        stream_event_free(runner->device, runner->offload.slot[i].stored);
    }
}

static OffloadSlot *slot_of(Runner *runner, const Buffer *input) {
    for (int i = 0; i < OFFLOAD_SLOTS; i++)
        if (runner->offload.slot[i].input == input) return &runner->offload.slot[i];
    return NULL;
}

static OffloadSlot *least_recent(Runner *runner) {
    OffloadSlot *slot = runner->offload.slot, *least = slot;
    for (int i = 1; i < OFFLOAD_SLOTS; i++)
        if (slot[i].used < least->used) least = &slot[i];
    return least;
}

/* A slot that work on `stream` may overwrite. */
static Status take(Runner *runner, Stream *stream, const Buffer *input, OffloadSlot **ret_slot) {
    OffloadSlot *slot = slot_of(runner, input);
    if (!slot) slot = least_recent(runner);
    if (slot->fetching) TRY(stream_wait(stream, runner->from_host));
    TRY(stream_event_wait(stream, slot->stored));
    slot->fetching = false;
    slot->input = input;
    slot->used = ++runner->offload.uses;
    *ret_slot = slot;
    return OK;
}

Buffer *offload_buffer(Runner *runner, Buffer *input) {
    if (!runner_offloads(runner)) return input;
    OffloadSlot *slot = slot_of(runner, input);
    return slot ? &slot->rows : NULL;
}

Status offload_claim(Runner *runner, const Buffer *input) {
    OffloadSlot *slot;
    return runner_offloads(runner) ? take(runner, runner->stream, input, &slot) : OK;
}

Status offload_store(Runner *runner, const Buffer *input, size_t bytes) {
    if (!runner_offloads(runner) || !input->data) return OK;
    OffloadSlot *slot = slot_of(runner, input);
    Stream *to_host = runner->offload.to_host;
    TRY(stream_wait(to_host, runner->stream));
    TRY(stream_copy(to_host, input->data, slot->rows.data, bytes, COPY_TO_HOST));
    return stream_event_record(to_host, &slot->stored);
}

void offload_drop(Runner *runner, const Buffer *input) {
    OffloadSlot *slot = runner_offloads(runner) ? slot_of(runner, input) : NULL;
    if (slot) slot->input = NULL;
}

/* Computation may still read what the slot had. What it will have was copied to the host before its slot was
 * taken, so that copy is complete. */
Status offload_fetch(Runner *runner, const Buffer *input, size_t bytes) {
    if (!runner_offloads(runner) || !input->data) return OK;
    OffloadSlot *slot = slot_of(runner, input);
    if (slot) {
        slot->used = ++runner->offload.uses;
        return OK;
    }
    TRY(stream_wait(runner->from_host, runner->stream));
    TRY(take(runner, runner->from_host, input, &slot));
    slot->fetching = true;
    return stream_copy(runner->from_host, slot->rows.data, input->data, bytes, COPY_TO_DEVICE);
}

Status offload_ready(Runner *runner, const Buffer *input, size_t bytes) {
    TRY(offload_fetch(runner, input, bytes));
    OffloadSlot *slot = runner_offloads(runner) ? slot_of(runner, input) : NULL;
    if (!slot || !slot->fetching) return OK;
    slot->fetching = false;
    return stream_wait(runner->stream, runner->from_host);
}
