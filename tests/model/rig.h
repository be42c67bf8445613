/* Test fixture for a single block: its memory, a small micro-batch, and an objective for finite differences.
 *
 * The objective of the embedding and of layers is <y, r> for a fixed random r; of output heads it is the
 * weighted sum of their losses. All parameters and inputs are random. `saved` and `scratch` have exactly the
 * sizes that the block's measure() returns, followed by guard bytes.
 */
#ifndef WEFT_TESTS_MODEL_RIG_H
#define WEFT_TESTS_MODEL_RIG_H

#include <math.h>

#include "stores.h"
#include "tiny.h"

#include "model/model.h"
#include "model/rope.h"

enum { RIG_GUARD = 64, RIG_GUARD_BYTE = 0xA5, RIG_B = 3, RIG_T = 7, RIG_PICKS = 6 };

typedef struct Rig {
    Model *model;
    int at; /* index of the block in the model */
    Device *device;
    Stream *stream;
    Group *tp;
    Exec exec;
    Store *params, *grads;
    Shape shape;
    Micro micro;
    Buffer saved, scratch; /* sizes exclude the guard bytes */
    Buffer x, y, r, dx;    /* (B,T,C) */
    Buffer rope;
    Tensor rope_table;
    double loss[LOSS_COUNT];
} Rig;

static int32_t rig_tokens[RIG_B * RIG_T], rig_types[RIG_B * RIG_T], rig_labels[RIG_B * RIG_T];
static int32_t rig_lens[RIG_B] = {7, 4, 6}, rig_first[RIG_B] = {0, 7, 14};
static int32_t rig_picks[RIG_PICKS] = {1, 3, 8, 14, 16, 19}, rig_pick_labels[RIG_PICKS] = {2, 9, 9, 0, 16, 4};
static int32_t rig_nsp[RIG_B] = {1, 0, 1}, rig_classes[RIG_B] = {2, 0, 3};
static int32_t rig_span[2 * RIG_B] = {0, 2, RIG_T,
                                      3, 2, 5}; /* the third start is out of range, so it is ignored */

static inline ModelConfig rig_config(const Family *family, unsigned heads) {
    return tiny_config(family, heads, TINY_BLOCK);
}

/* The token loss that a family has. */
static inline unsigned rig_heads(const Family *family) {
    return family->outputs & OUTPUT_LM ? OUTPUT_LM : OUTPUT_MLM;
}

/* Fills with normally distributed values. */
static inline void rig_fill(float *values, int64_t count, const char *site, float mean, float std) {
    for (int64_t i = 0; i < count; i++)
        values[i] = mean + std * rng_normal(rng_key(11, site, 0), (uint64_t)i);
}

static inline Micro rig_micro(const ModelConfig *c) {
    Tensor all = tensor_2d(NULL, DT_I32, RIG_B, RIG_T), each = tensor_1d(NULL, DT_I32, RIG_B);
    for (int i = 0; i < RIG_B * RIG_T; i++) {
        rig_tokens[i] = (int32_t)rng_below(rng_key(1, "tokens", 0), (uint64_t)i, (uint64_t)c->vocab);
        rig_labels[i] = i % 5 == 4 ? -100 : (rig_tokens[i] * 7 + 3) % (int32_t)c->vocab;
        rig_types[i] = i % RIG_T > 2;
    }
    bool bert = !config_causal(c);
    Micro micro = {.B = RIG_B, .T = RIG_T, .first = 2};
    Tensor rows = tensor_1d(rig_labels, DT_I32, (int64_t)RIG_B * RIG_T);
    Tensor picks = tensor_1d(rig_picks, DT_I32, RIG_PICKS);
    micro.tokens = all, micro.tokens.data = rig_tokens;
    micro.first_rows = each, micro.first_rows.data = rig_first;
    if (!bert) {
        micro.labels = rows;
        return micro;
    }
    micro.types = all, micro.types.data = rig_types;
    micro.lens = each, micro.lens.data = rig_lens;
    micro.picks = picks;
    micro.pick_labels = picks, micro.pick_labels.data = rig_pick_labels;
    micro.nsp = each, micro.nsp.data = rig_nsp;
    micro.classes = each, micro.classes.data = rig_classes;
    micro.span = tensor_2d(rig_span, DT_I32, 2, RIG_B);
    return micro;
}

/* Allocates a buffer followed by guard bytes, which its size does not include. */
static inline Buffer rig_guarded(Device *device, size_t bytes) {
    Buffer buffer;
    assert_ok(dev_alloc(device, MEM_ACTIVATIONS, bytes + RIG_GUARD, &buffer));
    memset(buffer.data, RIG_GUARD_BYTE, bytes + RIG_GUARD);
    buffer.bytes = bytes;
    return buffer;
}

static inline void rig_check_guard(Buffer buffer) {
    const unsigned char *guard = (const unsigned char *)buffer.data + buffer.bytes;
    for (int i = 0; i < RIG_GUARD; i++) assert_int_equal(guard[i], RIG_GUARD_BYTE);
}

static inline void rig_free_guarded(Buffer *buffer) {
    buffer->bytes += RIG_GUARD;
    dev_free(buffer);
}

static inline void rig_randomize(Store *params) {
    for (int i = 0; i < params->model->units; i++) {
        CLEANUP(mem_freep) float *values = unit_values(params, i);
        for (size_t j = 0; j < params->unit[i].count; j++) {
            const ParamSlot *slot = &params->unit[i].slot[j];
            bool norm = slot->desc.init == INIT_ONES, vector = slot->desc.ndim == 1;
            rig_fill(unit_view(slot, values, DT_F32).data, slot->count, slot->desc.name, norm ? 1.0f : 0.0f,
                     norm || vector ? 0.2f : 0.4f);
        }
        unit_set_values(params, i, values);
    }
}

static inline void rig_init(Rig *rig, const ModelConfig *config, int at, const char *kernels,
                            Recompute recompute) {
    *rig = (Rig){.at = at, .shape = {.B = RIG_B, .T = RIG_T, .tp = 1, .train = true, .recompute = recompute}};
    assert_ok(model_new(&rig->model, config));
    assert_ok(device_new_cpu(&rig->device, 1));
    assert_ok(stream_new(&rig->stream, rig->device));
    assert_ok(group_new_self(&rig->tp));
    rig->exec.stream = rig->stream;
    assert_ok(kernels_find(kernels, &rig->exec.table));
    assert_ok(store_new(&rig->params, rig->model, rig->device, MEM_PARAMS));
    assert_ok(store_new(&rig->grads, rig->model, rig->device, MEM_GRADS));
    rig_randomize(rig->params);
    rig->micro = rig_micro(config);
    const Block *block = &rig->model->block[at];
    size_t saved, scratch, width = (size_t)(RIG_B * RIG_T * config->hidden) * sizeof(float);
    block->ops->measure(block, rig->shape, &saved, &scratch);
    rig->saved = rig_guarded(rig->device, saved);
    rig->scratch = rig_guarded(rig->device, scratch);
    Buffer *const wide[] = {&rig->x, &rig->y, &rig->r, &rig->dx};
    for (int i = 0; i < 4; i++) assert_ok(dev_alloc(rig->device, MEM_ACTIVATIONS, width, wide[i]));
    assert_ok(rope_table_new(config, RIG_T, rig->device, rig->stream, &rig->rope, &rig->rope_table));
    rig_fill(rig->x.data, (int64_t)(width / sizeof(float)), "x", 0, 1);
    rig_fill(rig->r.data, (int64_t)(width / sizeof(float)), "r", 0, 1);
}

static inline void rig_done(Rig *rig) {
    rig_free_guarded(&rig->saved);
    rig_free_guarded(&rig->scratch);
    Buffer *const wide[] = {&rig->x, &rig->y, &rig->r, &rig->dx};
    for (int i = 0; i < 4; i++) dev_free(wide[i]);
    dev_free(&rig->rope);
    store_free(rig->params);
    store_free(rig->grads);
    group_free(rig->tp);
    stream_free(rig->stream);
    device_free(rig->device);
    model_free(rig->model);
}

static inline Tensor rig_wide(const Rig *rig, Buffer buffer) {
    return tensor_3d(buffer.data, DT_F32, RIG_B, RIG_T, rig->model->config.hidden);
}

static inline bool rig_is_output(const Rig *rig) {
    return rig->at == rig->model->count - 1;
}

static inline Pass rig_pass(Rig *rig) {
    Pass pass = {
        .exec = &rig->exec,
        .tp = rig->tp,
        .shape = rig->shape,
        .micro = &rig->micro,
        .param = rig->params->view[rig->at],
        .grad = rig->grads->view[rig->at],
        .seed = 5,
        .step = 3,
        .saved = rig->saved,
        .scratch = rig->scratch,
        .rope = rig->rope_table,
        .loss = tensor_1d(rig->loss, DT_F64, LOSS_COUNT),
    };
    for (int i = 0; i < LOSS_COUNT; i++) pass.loss_grad[i] = 0.3f + 0.1f * (float)i;
    return pass;
}

static inline Status rig_forward(Rig *rig, Pass *pass) {
    const Block *block = &rig->model->block[rig->at];
    memset(rig->loss, 0, sizeof rig->loss);
    return block->ops->forward(block, pass, rig_wide(rig, rig->y), rig_wide(rig, rig->x));
}

/* Runs forward and returns the objective. */
static inline double rig_objective(Rig *rig) {
    Pass pass = rig_pass(rig);
    assert_ok(rig_forward(rig, &pass));
    double value = 0;
    const float *y = rig->y.data, *r = rig->r.data;
    if (rig_is_output(rig))
        for (int i = 0; i < LOSS_COUNT; i++) value += (double)pass.loss_grad[i] * rig->loss[i];
    else
        for (size_t i = 0; i < rig->y.bytes / sizeof(float); i++) value += (double)y[i] * r[i];
    return value;
}

/* Runs forward and backward. dx aliases dy, as in the runner. */
static inline Status rig_both(Rig *rig, Pass *pass) {
    const Block *block = &rig->model->block[rig->at];
    TRY(store_zero(rig->grads, rig->stream));
    TRY(rig_forward(rig, pass));
    memset(rig->scratch.data, 0x7f,
           rig->scratch.bytes); /* scratch must not carry data from forward to backward */
    memcpy(rig->dx.data, rig->r.data, rig->r.bytes);
    Tensor dx = rig_wide(rig, rig->dx);
    return block->ops->backward(block, pass, dx, dx, rig_wide(rig, rig->x));
}

/* Computes the gradients of the objective into rig->grads and rig->dx, and checks the guard bytes. */
static inline void rig_gradients(Rig *rig) {
    Pass pass = rig_pass(rig);
    assert_ok(rig_both(rig, &pass));
    rig_check_guard(rig->saved);
    rig_check_guard(rig->scratch);
}

#endif
