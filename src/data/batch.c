/* Host batches and their transfer to a device. lay_out defines the memory layout for both sides, so that one
 * copy suffices. Arrays that only separate documents or only masked-token training needs come last, in this
 * order, and are otherwise left out of the copy. B sequences of length T. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "data/mask.h"
#include "data/task.h"

static int32_t *take(Bump *bump, int64_t count) {
    return bump_take(bump, (size_t)count * sizeof(int32_t));
}

/* How many bytes a copy takes: without the arrays that come last, with those of documents, or with all. */
typedef struct Sizes {
    size_t plain, documents, all;
} Sizes;

/* Assigns the arrays from the bump allocator. */
static Sizes lay_out(HostBatch *batch, Bump *bump) {
    Sizes sizes;
    int64_t B = batch->B, T = batch->T;
    batch->step = bump_take(bump, sizeof *batch->step);
    batch->lens = take(bump, B);
    batch->nsp = take(bump, B);
    batch->span = take(bump, 2 * B);
    batch->classes = take(bump, B);
    batch->first_rows = take(bump, B);
    batch->rows = take(bump, B * T);
    batch->targets = bump_take(bump, (size_t)(B * batch->outputs) * sizeof *batch->targets);
    batch->tokens = take(bump, B * T);
    batch->types = take(bump, B * T);
    batch->labels = take(bump, B * T);
    sizes.plain = bump->used;
    batch->starts = take(bump, B * T);
    batch->positions = take(bump, B * T);
    sizes.documents = bump->used;
    batch->picks = take(bump, B * T);
    batch->pick_labels = take(bump, B * T);
    sizes.all = bump->used;
    return sizes;
}

size_t host_batch_bytes(int64_t B, int64_t T, int64_t outputs) {
    Bump counting = {0};
    return lay_out(&(HostBatch){.B = B, .T = T, .outputs = outputs}, &counting).all;
}

Status host_batch_new(HostBatch **ret_batch, int64_t B, int64_t T) {
    return host_batch_new_targets(ret_batch, B, T, 0);
}

Status host_batch_new_targets(HostBatch **ret_batch, int64_t B, int64_t T, int64_t outputs) {
    if (B < 1 || T < 1 || B > INT32_MAX / T)
        return USAGE("invalid batch of %lld sequences of %lld tokens", (long long)B, (long long)T);
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    TRY(mem_new(1, sizeof *batch, &batch));
    batch->B = B;
    batch->T = T;
    batch->outputs = outputs;
    size_t bytes = host_batch_bytes(B, T, outputs);
    TRY(mem_new(bytes, 1, &batch->memory));
    Bump bump = {.base = batch->memory, .size = bytes};
    lay_out(batch, &bump);
    TRY(bump_check(&bump, "a batch"));
    for (int64_t b = 0; b < B; b++) batch->first_rows[b] = (int32_t)(b * T);
    for (int64_t i = 0; i < B * T; i++) batch->rows[i] = (int32_t)i;
    return MOVE(ret_batch, batch);
}

void host_batch_free(HostBatch *batch) {
    if (!batch) return;
    free(batch->memory);
    free(batch);
}

void host_batch_count(HostBatch *batch) {
    memset(batch->loss_count, 0, sizeof batch->loss_count);
    batch->pick_count = 0;
    task_data(batch->task)->count(batch);
}

int64_t host_batch_rows(const HostBatch *batch) {
    return task_data(batch->task)->picks ? batch->pick_count : batch->B * batch->T;
}

void host_batch_blank(HostBatch *batch) {
    for (int64_t i = 0; i < batch->B * batch->T; i++) batch->labels[i] = LABEL_IGNORED;
    for (int64_t b = 0; b < batch->B; b++) batch->nsp[b] = batch->classes[b] = LABEL_IGNORED;
    for (int64_t b = 0; b < 2 * batch->B; b++) batch->span[b] = (int32_t)batch->T;
    for (int64_t i = 0; i < batch->B * batch->outputs; i++) batch->targets[i] = NAN;
    batch->pick_count = 0;
    for (int k = 0; k < LOSS_COUNT; k++) batch->loss_count[k] = 0;
}

void host_batch_split(HostBatch *batch, int32_t end) {
    batch->documents = true;
    for (int64_t i = 0, start = 0; i < batch->B * batch->T; i++) {
        int64_t b = i / batch->T, t = i % batch->T;
        bool inside = t < batch->lens[b];
        if (t == 0) start = 0;
        batch->starts[i] = (int32_t)start;
        batch->positions[i] = (int32_t)(t - start);
        if (!inside || batch->tokens[i] != end) continue;
        batch->labels[i] = LABEL_IGNORED;
        if (t + 1 < batch->lens[b]) start = t + 1;
    }
}

Status host_batch_copy(const HostBatch *batch, Stream *stream, Buffer to) {
    Bump bump = {0};
    Sizes sizes = lay_out(&(HostBatch){.B = batch->B, .T = batch->T, .outputs = batch->outputs}, &bump);
    bool picks = task_data(batch->task)->picks;
    size_t bytes = picks ? sizes.all : batch->documents ? sizes.documents : sizes.plain;
    return stream_copy(stream, to.data, batch->memory, bytes, COPY_TO_DEVICE);
}

bool host_batch_alike(const HostBatch *batch, const HostBatch *other) {
    return batch->B == other->B && batch->T == other->T && batch->outputs == other->outputs &&
           batch->task == other->task && batch->has_types == other->has_types &&
           batch->padded == other->padded && batch->documents == other->documents &&
           host_batch_rows(batch) == host_batch_rows(other) &&
           (batch->loss_count[LOSS_NSP] > 0) == (other->loss_count[LOSS_NSP] > 0);
}

Status host_batch_views(const HostBatch *batch, Buffer to, int64_t first, Micro *ret_micro) {
    int64_t B = batch->B, T = batch->T;
    HostBatch there = {.B = B, .T = T, .outputs = batch->outputs};
    Bump bump = {.base = to.data, .size = to.bytes};
    lay_out(&there, &bump);
    TRY(bump_check(&bump, "the device copy of a batch"));
    Micro micro = {.B = B, .T = T, .first = first};
    micro.step = tensor_1d(there.step, DT_I64, 1);
    micro.tokens = tensor_2d(there.tokens, DT_I32, B, T);
    micro.rows = tensor_2d(there.rows, DT_I32, B, T);
    micro.first_rows = tensor_1d(there.first_rows, DT_I32, B);
    if (batch->has_types) micro.types = tensor_2d(there.types, DT_I32, B, T);
    if (batch->padded) micro.lens = tensor_1d(there.lens, DT_I32, B);
    if (batch->documents) {
        micro.starts = tensor_2d(there.starts, DT_I32, B, T);
        micro.positions = tensor_2d(there.positions, DT_I32, B, T);
    }
    task_data(batch->task)->view(batch, &there, &micro);
    *ret_micro = micro;
    return OK;
}

Status host_batch_upload(const HostBatch *batch, Stream *stream, Buffer to, int64_t first, Micro *ret_micro) {
    TRY(host_batch_views(batch, to, first, ret_micro));
    return host_batch_copy(batch, stream, to);
}
