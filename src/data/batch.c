/* Host batches and their transfer to a device. lay_out defines the memory layout for both sides, so that one
 * copy suffices. Arrays that only parts of sequences, documents or masked-token training need come last, in
 * this order, and are otherwise left out of the copy. B sequences, T positions of each. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "data/mask.h"
#include "data/task.h"

static int32_t *take(Bump *bump, int64_t count) {
    return bump_take(bump, (size_t)count * sizeof(int32_t));
}

/* How many bytes a copy takes: without the arrays that come last, with those of parts, of documents, or with
 * all. */
typedef struct Sizes {
    size_t plain, parts, documents, all;
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
    batch->positions = take(bump, B * T);
    sizes.parts = bump->used;
    batch->starts = take(bump, B * batch->length);
    sizes.documents = bump->used;
    batch->picks = take(bump, B * T);
    batch->pick_labels = take(bump, B * T);
    sizes.all = bump->used;
    return sizes;
}

/* The same dims without arrays. */
static HostBatch dims_of(const HostBatch *batch) {
    return (HostBatch){.B = batch->B, .T = batch->T, .length = batch->length, .outputs = batch->outputs};
}

size_t host_batch_bytes(int64_t B, int64_t T, int64_t length, int64_t outputs) {
    Bump counting = {0};
    return lay_out(&(HostBatch){.B = B, .T = T, .length = length, .outputs = outputs}, &counting).all;
}

Status host_batch_new(HostBatch **ret_batch, int64_t B, int64_t T) {
    return host_batch_new_targets(ret_batch, B, T, 0);
}

static Status new_batch(HostBatch **ret_batch, int64_t B, int64_t T, int64_t length, int64_t outputs) {
    if (B < 1 || T < 1 || B > INT32_MAX / length)
        return USAGE("invalid batch of %lld sequences of %lld tokens", (long long)B, (long long)length);
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    TRY(mem_new(1, sizeof *batch, &batch));
    *batch = (HostBatch){.B = B, .T = T, .length = length, .outputs = outputs};
    size_t bytes = host_batch_bytes(B, T, length, outputs);
    TRY(mem_new(bytes, 1, &batch->memory));
    Bump bump = {.base = batch->memory, .size = bytes};
    lay_out(batch, &bump);
    TRY(bump_check(&bump, "a batch"));
    for (int64_t b = 0; b < B; b++) batch->first_rows[b] = (int32_t)(b * T);
    for (int64_t i = 0; i < B * T; i++) batch->rows[i] = (int32_t)i;
    return MOVE(ret_batch, batch);
}

Status host_batch_new_targets(HostBatch **ret_batch, int64_t B, int64_t T, int64_t outputs) {
    return new_batch(ret_batch, B, T, T, outputs);
}

Status host_batch_new_part(HostBatch **ret_part, const HostBatch *whole, int64_t T) {
    return new_batch(ret_part, whole->B, T, whole->length, whole->outputs);
}

/* The arrays with a value per position. */
static void part_of_rows(HostBatch *part, const HostBatch *whole, Positions at) {
    for (int64_t i = 0; i < part->B * part->T; i++) {
        int64_t position = position_of(&at, i % part->T), from = i / part->T * whole->T + position;
        part->tokens[i] = whole->tokens[from];
        part->types[i] = whole->types[from];
        part->labels[i] = whole->labels[from];
        part->positions[i] = whole->documents ? whole->positions[from] : (int32_t)position;
    }
}

/* The arrays with values per sequence. Losses of first tokens are those of the first part. A span may begin
 * and end in any part, so each has its positions in the whole sequence. */
static void part_of_sequences(HostBatch *part, const HostBatch *whole, bool first) {
    for (int64_t b = 0; b < part->B; b++) {
        part->lens[b] = whole->lens[b];
        part->nsp[b] = first ? whole->nsp[b] : LABEL_IGNORED;
        part->classes[b] = first ? whole->classes[b] : LABEL_IGNORED;
    }
    memcpy(part->span, whole->span, (size_t)(2 * part->B) * sizeof *part->span);
    for (int64_t i = 0; i < part->B * part->outputs; i++) part->targets[i] = first ? whole->targets[i] : NAN;
}

/* Terms of a loss per sequence count once, in the first part. */
static void count_part(HostBatch *part, const HostBatch *whole, bool first) {
    host_batch_count(part);
    for (int k = 0; k < LOSS_COUNT; k++)
        if (k != LOSS_TOKEN) part->loss_count[k] = first ? whole->loss_count[k] : 0;
}

void host_batch_part(HostBatch *part, const HostBatch *whole, Positions at) {
    part->task = whole->task;
    part->next_sentence = whole->next_sentence;
    part->has_types = whole->has_types;
    part->padded = whole->padded;
    part->documents = whole->documents;
    part_of_rows(part, whole, at);
    part_of_sequences(part, whole, at.first == 0);
    if (part->documents)
        memcpy(part->starts, whole->starts, (size_t)(part->B * part->length) * sizeof *part->starts);
    count_part(part, whole, at.first == 0);
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

void host_batch_divide(HostBatch *batch, int64_t length) {
    if (length >= batch->T) return;
    for (int64_t i = 0; i < batch->B * batch->T; i++) {
        int32_t t = (int32_t)(i % batch->T), start = t - t % (int32_t)length;
        if (!batch->documents || batch->starts[i] < start) batch->starts[i] = start;
        batch->positions[i] = t - batch->starts[i];
    }
    batch->documents = true;
}

Status host_batch_copy(const HostBatch *batch, Stream *stream, Buffer to) {
    Bump bump = {0};
    HostBatch there = dims_of(batch);
    Sizes sizes = lay_out(&there, &bump);
    size_t bytes = task_data(batch->task)->picks ? sizes.all
                   : batch->documents            ? sizes.documents
                   : batch->T < batch->length    ? sizes.parts
                                                 : sizes.plain;
    return stream_copy(stream, to.data, batch->memory, bytes, COPY_TO_DEVICE);
}

bool host_batch_alike(const HostBatch *batch, const HostBatch *other) {
    return batch->B == other->B && batch->T == other->T && batch->length == other->length &&
           batch->outputs == other->outputs && batch->task == other->task &&
           batch->has_types == other->has_types && batch->padded == other->padded &&
           batch->documents == other->documents && host_batch_rows(batch) == host_batch_rows(other) &&
           (batch->loss_count[LOSS_NSP] > 0) == (other->loss_count[LOSS_NSP] > 0);
}

Status host_batch_views(const HostBatch *batch, Buffer to, int64_t first, Micro *ret_micro) {
    int64_t B = batch->B, T = batch->T;
    HostBatch there = dims_of(batch);
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
    if (batch->documents) micro.starts = tensor_2d(there.starts, DT_I32, B, batch->length);
    if (batch->documents || T < batch->length) micro.positions = tensor_2d(there.positions, DT_I32, B, T);
    task_data(batch->task)->view(batch, &there, &micro);
    *ret_micro = micro;
    return OK;
}

Status host_batch_upload(const HostBatch *batch, Stream *stream, Buffer to, int64_t first, Micro *ret_micro) {
    TRY(host_batch_views(batch, to, first, ret_micro));
    return host_batch_copy(batch, stream, to);
}
