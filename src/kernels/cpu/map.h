/* Applies a vector function to runs of elements of any type. At the call sites `dtype` is a constant and f
 * is inlined, so each call becomes a loop specialized for its type. Four vectors per iteration: f is a long
 * dependency chain, which a single vector would not hide, and stores to y would delay the loads of the next
 * iteration. */
#ifndef WEFT_KERNELS_CPU_MAP_H
#define WEFT_KERNELS_CPU_MAP_H

#include "kernels/cpu/pairs.h"

/* y = f(x) over n elements; y may alias x. */
static ALWAYS_INLINE void vec_map(DType dtype, void *y, const void *x, int64_t n, VecF (*f)(VecF)) {
    int64_t i = 0;
    for (; i + 2 * PAIR <= n; i += 2 * PAIR) {
        VecPair x0 = pair_get(x, dtype, i), x1 = pair_get(x, dtype, i + PAIR);
        x0.a = f(x0.a), x0.b = f(x0.b), x1.a = f(x1.a), x1.b = f(x1.b);
        pair_put(y, dtype, i, x0), pair_put(y, dtype, i + PAIR, x1);
    }
    for (; i + VEC <= n; i += VEC) vec_put(y, dtype, i, f(vec_get(x, dtype, i)));
    if (i < n) vec_put_some(y, dtype, i, f(vec_get_some(x, dtype, i, n - i)), n - i);
}

/* Two vectors, in the order of pairs or in that of elements. */
static ALWAYS_INLINE VecPair map_get(const void *from, DType dtype, int64_t at, bool pair) {
    if (pair) return pair_get(from, dtype, at);
    return (VecPair){vec_get(from, dtype, at), vec_get(from, dtype, at + VEC)};
}
static ALWAYS_INLINE void map_put(void *to, DType dtype, int64_t at, VecPair v, bool pair) {
    if (pair)
        pair_put(to, dtype, at, v);
    else
        vec_put(to, dtype, at, v.a), vec_put(to, dtype, at + VEC, v.b);
}

/* y = f(a, b); y may alias a or b. b may have a different type, and then another order of pairs. */
static ALWAYS_INLINE void vec_map2(DType dtype, void *y, const void *a, DType b_type, const void *b,
                                   int64_t n, VecF (*f)(VecF, VecF)) {
    bool pair = dtype == b_type;
    int64_t i = 0;
    for (; i + 2 * PAIR <= n; i += 2 * PAIR) {
        VecPair a0 = map_get(a, dtype, i, pair), a1 = map_get(a, dtype, i + PAIR, pair);
        VecPair b0 = map_get(b, b_type, i, pair), b1 = map_get(b, b_type, i + PAIR, pair);
        a0.a = f(a0.a, b0.a), a0.b = f(a0.b, b0.b), a1.a = f(a1.a, b1.a), a1.b = f(a1.b, b1.b);
        map_put(y, dtype, i, a0, pair), map_put(y, dtype, i + PAIR, a1, pair);
    }
    for (; i + VEC <= n; i += VEC) vec_put(y, dtype, i, f(vec_get(a, dtype, i), vec_get(b, b_type, i)));
    if (i == n) return;
    VecF some = f(vec_get_some(a, dtype, i, n - i), vec_get_some(b, b_type, i, n - i));
    vec_put_some(y, dtype, i, some, n - i);
}

static inline VecF vec_same(VecF x) {
    return x;
}
static inline VecF vec_plus(VecF a, VecF b) {
    return a + b;
}

/* y += x, which may have a different type. */
static ALWAYS_INLINE void map_add(DType dtype, void *y, DType x_type, const void *x, int64_t n) {
    vec_map2(dtype, y, y, x_type, x, n, vec_plus);
}
static ALWAYS_INLINE void map_add_same(DType dtype, void *y, const void *x, int64_t n) {
    map_add(dtype, y, dtype, x, n);
}

/* Copies a block of fp32 rows, or adds it to the destination. Strides are in elements. */
static inline void map_block(float *to, int64_t to_stride, const float *from, int64_t from_stride,
                             int64_t rows, int64_t cols, bool add) {
    for (int64_t i = 0; i < rows; i++, to += to_stride, from += from_stride) {
        if (add)
            map_add_same(DT_F32, to, from, cols);
        else
            memcpy(to, from, (size_t)cols * sizeof *from);
    }
}

#endif
