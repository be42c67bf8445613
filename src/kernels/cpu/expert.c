/* The rows of experts: gathered, combined and activated. Threads take rows. grouped.c has the linear layers.
 *
 * M rows, K experts per row, R slots, C and F widths */
#include <string.h>

#include "kernels/cpu/act.h"
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

typedef struct Rows {
    Tensor to, from, weights, to_weights, index;
    int64_t K;
    bool accumulate;
} Rows;

static void gather_rows_of(const void *context, Range mine) {
    const Rows *f = context;
    size_t bytes = (size_t)tensor_cols(f->from) * dtype_size(f->from.dtype);
    for (int64_t j = mine.from; j < mine.to; j++) {
        int32_t slot = tensor_i32(f->index)[j];
        char *to = (char *)f->to.data + (size_t)j * bytes;
        if (slot < 0)
            memset(to, 0, bytes);
        else
            memcpy(to, (const char *)f->from.data + (size_t)(slot / f->K) * bytes, bytes);
        if (f->weights.data) tensor_f32(f->to_weights)[j] = slot < 0 ? 0 : tensor_f32(f->weights)[slot];
    }
}

static Status expert_gather_cpu(Stream *stream, Tensor out, Tensor out_weights, Tensor x, Tensor weights,
                                Tensor slots, int64_t K) {
    TRY(kernels_check_places("expert_gather", "slot", slots, tensor_rows(x) * K));
    Rows f = {out, x, weights, out_weights, slots, K, false};
    ranges_run(stream, tensor_count(slots), 1, tensor_count(out), gather_rows_of, &f);
    return OK;
}

/* y (n) [+]= the sum of `count` rows. */
static ALWAYS_INLINE void sum_rows(DType dtype, void *y, const void *const *from, int count, int64_t n,
                                   bool accumulate) {
    int64_t i = 0;
    for (; i + PAIR <= n; i += PAIR) {
        VecPair sum = accumulate ? pair_get(y, dtype, i) : (VecPair){0};
        for (int k = 0; k < count; k++) {
            VecPair v = pair_get(from[k], dtype, i);
            sum.a += v.a, sum.b += v.b;
        }
        pair_put(y, dtype, i, sum);
    }
    for (; i < n; i++) {
        float sum = accumulate ? half_get(y, dtype, i) : 0;
        for (int k = 0; k < count; k++) sum += half_get(from[k], dtype, i);
        half_put(y, dtype, i, sum);
    }
}

static void combine_rows(const void *context, Range mine) {
    const Rows *f = context;
    int64_t C = tensor_cols(f->to);
    const void *from[EXPERTS_MAX];
    for (int64_t m = mine.from; m < mine.to; m++) {
        const int32_t *places = tensor_i32(f->index) + m * f->K;
        int count = 0;
        for (int64_t k = 0; k < f->K; k++)
            if (places[k] >= 0) from[count++] = run_at(f->from, places[k] * C);
        BY_TYPE(f->to.dtype, sum_rows, run_at(f->to, m * C), from, count, C, f->accumulate);
    }
}

static Status expert_combine_cpu(Stream *stream, Tensor y, Tensor xs, Tensor place, bool accumulate) {
    TRY(kernels_check_places("expert_combine", "place", place, tensor_rows(xs)));
    Rows f = {.to = y, .from = xs, .index = place, .K = tensor_cols(place), .accumulate = accumulate};
    ranges_run(stream, tensor_rows(y), 1, tensor_count(y) * f.K, combine_rows, &f);
    return OK;
}

/* ---- activations ---- */

static inline VecF none_slope(VecF x, VecF *ret_slope) {
    *ret_slope = vec_set(1.0f);
    return x;
}

/* A row of the activation and its gradient. Without `up`, it is 1; without dy, there is only y. */
typedef struct ActRow {
    void *y, *dgate, *dup;
    const void *dy, *gate, *up;
    float weight;
} ActRow;

/* Elements i .. i + count - 1, at most VEC. Returns what they add to the gradient of the weight. */
static ALWAYS_INLINE VecF act_some(DType dtype, const ActRow *row, int64_t i, int64_t count, Slope f) {
    VecF up = row->up ? vec_get_some(row->up, dtype, i, count) : vec_set(1.0f), slope;
    VecF value = f(vec_get_some(row->gate, dtype, i, count), &slope), whole = value * up, d = {0};
    if (row->dy) {
        d = vec_get_some(row->dy, dtype, i, count);
        VecF weighted = d * row->weight;
        vec_put_some(row->dgate, dtype, i, weighted * up * slope, count);
        if (row->up) vec_put_some(row->dup, dtype, i, weighted * value, count);
    }
    if (row->y) vec_put_some(row->y, dtype, i, whole * row->weight, count);
    return d * whole;
}

/* Two vectors per iteration hide some of the latency of f. */
static ALWAYS_INLINE float act_row(DType dtype, const ActRow *row, int64_t n, Slope f) {
    VecF sum[2] = {{0}, {0}};
    int64_t i = 0;
    for (; i + 2 * VEC <= n; i += 2 * VEC) {
        sum[0] += act_some(dtype, row, i, VEC, f);
        sum[1] += act_some(dtype, row, i + VEC, VEC, f);
    }
    for (; i < n; i += VEC) sum[0] += act_some(dtype, row, i, min_of(VEC, n - i), f);
    return vec_sum_of(sum[0] + sum[1]);
}

static ALWAYS_INLINE void act_typed(DType dtype, const ActRow *row, int64_t n, Act act, float *ret_dweight) {
    switch (act) {
#define ROW_OF(act, name)                                                                                    \
    case act: *ret_dweight = act_row(dtype, row, n, name##_slope); break;
        EACH_ACT(ROW_OF)
#undef ROW_OF
    default: *ret_dweight = act_row(dtype, row, n, none_slope);
    }
}

typedef struct ExpertAct {
    Tensor dx, y, dweights, dy, x, weights;
    int64_t first, F, each; /* columns of y; columns of x per column of y */
    Act act;
} ExpertAct;

static void act_rows(const void *context, Range mine) {
    const ExpertAct *f = context;
    for (int64_t r = f->first + mine.from; r < f->first + mine.to; r++) {
        int64_t at = r * f->F, gate = at * f->each, up = gate + f->F;
        bool gated = f->each == 2;
        ActRow row = {.y = run_at(f->y, at),
                      .dgate = run_at(f->dx, gate),
                      .dup = gated ? run_at(f->dx, up) : NULL,
                      .dy = run_at(f->dy, at),
                      .gate = run_at(f->x, gate),
                      .up = gated ? run_at(f->x, up) : NULL,
                      .weight = f->weights.data ? tensor_f32(f->weights)[r] : 1};
        float dweight;
        BY_TYPE(f->x.dtype, act_typed, &row, f->F, f->act, &dweight);
        if (f->dweights.data) tensor_f32(f->dweights)[r] = dweight;
    }
}

static Status act_run_rows(Stream *stream, ExpertAct *f, Tensor like, Tensor offsets) {
    const int32_t *start = tensor_i32(offsets);
    int64_t rows = start[tensor_count(offsets) - 1] - start[0];
    f->first = start[0];
    f->F = tensor_cols(like);
    f->each = tensor_count(f->x) / tensor_count(like);
    ranges_run(stream, rows, 1, rows * f->F, act_rows, f);
    return OK;
}

static Status expert_act_forward_cpu(Stream *stream, Tensor y, Tensor x, Tensor weights, Tensor offsets,
                                     Act act) {
    TRY(kernels_check_offsets("expert_act_forward", offsets, tensor_rows(y)));
    ExpertAct f = {.y = y, .x = x, .weights = weights, .act = act};
    return act_run_rows(stream, &f, y, offsets);
}

static Status expert_act_backward_cpu(Stream *stream, Tensor dx, Tensor y, Tensor dweights, Tensor dy,
                                      Tensor x, Tensor weights, Tensor offsets, Act act) {
    TRY(kernels_check_offsets("expert_act_backward", offsets, tensor_rows(dy)));
    ExpertAct f = {dx, y, dweights, dy, x, weights, 0, 0, 0, act};
    return act_run_rows(stream, &f, dy, offsets);
}

void VARIANT(expert_override)(KernelTable *table) {
    table->expert_gather = expert_gather_cpu;
    table->expert_combine = expert_combine_cpu;
    table->expert_act_forward = expert_act_forward_cpu;
    table->expert_act_backward = expert_act_backward_cpu;
}
