/* Gated activations. A row of x is gate (F), then up (F). Threads split the elements of y, so that a single
 * row is also shared. */
#include "kernels/cpu/act.h"
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

static inline VecF none_slope(VecF x, VecF *ret_slope) {
    *ret_slope = vec_set(1.0f);
    return x;
}

/* act(gate) * up. Forward and backward compute values alike, so that they have the same bits. */
#define TIMES(act, name)                                                                                     \
    static inline VecF name##_times(VecF gate, VecF up) {                                                    \
        VecF slope;                                                                                          \
        return name##_slope(gate, &slope) * up;                                                              \
    }
EACH_ACT(TIMES)
TIMES(ACT_NONE, none)

static ALWAYS_INLINE void glu_map(DType dtype, void *y, const void *gate, const void *up, int64_t n,
                                  Act act) {
    switch (act) {
#define MAP(act, name)                                                                                       \
    case act: vec_map2(dtype, y, gate, dtype, up, n, name##_times); break;
        EACH_ACT(MAP)
#undef MAP
    default: vec_map2(dtype, y, gate, dtype, up, n, none_times);
    }
}

/* The gradients of n elements of gate and up, which may alias them, and forward's result, unless y is NULL;
 * it may alias dy. Two vectors per iteration hide some of the latency of f; four would need more registers
 * than there are. */
static ALWAYS_INLINE void glu_slopes(DType dtype, void *dgate, void *dup, void *y, const void *dy,
                                     const void *gate, const void *up, int64_t n, Slope f) {
    int64_t i = 0;
    for (; i + 2 * VEC <= n; i += 2 * VEC) {
        VecF g0 = vec_get(gate, dtype, i), g1 = vec_get(gate, dtype, i + VEC), s0, s1;
        VecF u0 = vec_get(up, dtype, i), u1 = vec_get(up, dtype, i + VEC);
        VecF d0 = vec_get(dy, dtype, i), d1 = vec_get(dy, dtype, i + VEC);
        VecF v0 = f(g0, &s0), v1 = f(g1, &s1);
        vec_put(dgate, dtype, i, d0 * u0 * s0), vec_put(dgate, dtype, i + VEC, d1 * u1 * s1);
        vec_put(dup, dtype, i, d0 * v0), vec_put(dup, dtype, i + VEC, d1 * v1);
        if (y) vec_put(y, dtype, i, v0 * u0), vec_put(y, dtype, i + VEC, v1 * u1);
    }
    for (; i < n; i += VEC) {
        int64_t count = n - i < VEC ? n - i : VEC;
        VecF slope, value = f(vec_get_some(gate, dtype, i, count), &slope);
        VecF u = vec_get_some(up, dtype, i, count), d = vec_get_some(dy, dtype, i, count);
        vec_put_some(dgate, dtype, i, d * u * slope, count);
        vec_put_some(dup, dtype, i, d * value, count);
        if (y) vec_put_some(y, dtype, i, value * u, count);
    }
}

static ALWAYS_INLINE void glu_backward_map(DType dtype, void *dgate, void *dup, void *y, const void *dy,
                                           const void *gate, const void *up, int64_t n, Act act) {
    switch (act) {
#define MAP(act, name)                                                                                       \
    case act: glu_slopes(dtype, dgate, dup, y, dy, gate, up, n, name##_slope); break;
        EACH_ACT(MAP)
#undef MAP
    default: glu_slopes(dtype, dgate, dup, y, dy, gate, up, n, none_slope);
    }
}

/* The elements from `at` that are in the same row and before `to`. */
static int64_t run_length(int64_t at, int64_t to, int64_t F) {
    int64_t left = F - at % F;
    return left < to - at ? left : to - at;
}

/* The arguments of both kernels. */
typedef struct Glu {
    Tensor dx, y, dy, x;
    Act act;
} Glu;

static void forward_range(const void *context, Range mine) {
    const Glu *f = context;
    int64_t F = tensor_cols(f->y);
    for (int64_t at = mine.from, n; at < mine.to; at += n) {
        int64_t gate = at / F * 2 * F + at % F;
        n = run_length(at, mine.to, F);
        BY_TYPE(f->y.dtype, glu_map, run_at(f->y, at), run_at(f->x, gate), run_at(f->x, gate + F), n, f->act);
    }
}

static Status glu_forward_cpu(Stream *stream, Tensor y, Tensor x, Act act) {
    Glu context = {.y = y, .x = x, .act = act};
    ranges_run(stream, tensor_count(y), 16, tensor_count(y), forward_range, &context);
    return OK;
}

static void backward_range(const void *context, Range mine) {
    const Glu *f = context;
    int64_t F = tensor_cols(f->dy);
    for (int64_t at = mine.from, n; at < mine.to; at += n) {
        int64_t gate = at / F * 2 * F + at % F;
        n = run_length(at, mine.to, F);
        BY_TYPE(f->dy.dtype, glu_backward_map, run_at(f->dx, gate), run_at(f->dx, gate + F), run_at(f->y, at),
                run_at(f->dy, at), run_at(f->x, gate), run_at(f->x, gate + F), n, f->act);
    }
}

static Status glu_backward_cpu(Stream *stream, Tensor dx, Tensor y, Tensor dy, Tensor x, Act act) {
    Glu context = {dx, y, dy, x, act};
    ranges_run(stream, tensor_count(dy), 16, tensor_count(dy), backward_range, &context);
    return OK;
}

void VARIANT(glu_override)(KernelTable *table) {
    table->glu_forward = glu_forward_cpu;
    table->glu_backward = glu_backward_cpu;
}
