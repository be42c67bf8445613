/* Applies a vector function to runs of elements of any type. At the call sites `dtype` is a constant and f
 * is inlined, so each call becomes a loop specialized for its type. Four vectors per iteration: f is a long
 * dependency chain, which a single vector would not hide, and stores to y would delay the loads of the next
 * iteration. */
#ifndef WEFT_KERNELS_CPU_MAP_H
#define WEFT_KERNELS_CPU_MAP_H

#include "kernels/cpu/half.h"

/* y = f(x) over n elements; y may alias x. */
static ALWAYS_INLINE void vec_map(DType dtype, void *y, const void *x, int64_t n, VecF (*f)(VecF)) {
    int64_t i = 0;
    for (; i + 4 * VEC <= n; i += 4 * VEC) {
        VecF x0 = vec_get(x, dtype, i), x1 = vec_get(x, dtype, i + VEC);
        VecF x2 = vec_get(x, dtype, i + 2 * VEC), x3 = vec_get(x, dtype, i + 3 * VEC);
        x0 = f(x0), x1 = f(x1), x2 = f(x2), x3 = f(x3);
        vec_put(y, dtype, i, x0), vec_put(y, dtype, i + VEC, x1);
        vec_put(y, dtype, i + 2 * VEC, x2), vec_put(y, dtype, i + 3 * VEC, x3);
    }
    for (; i < n; i += VEC) {
        int64_t count = n - i < VEC ? n - i : VEC;
        vec_put_some(y, dtype, i, f(vec_get_some(x, dtype, i, count)), count);
    }
}

/* y = f(a, b); y may alias a or b. b may have a different type. */
static ALWAYS_INLINE void vec_map2(DType dtype, void *y, const void *a, DType b_type, const void *b,
                                   int64_t n, VecF (*f)(VecF, VecF)) {
    int64_t i = 0;
    for (; i + 4 * VEC <= n; i += 4 * VEC) {
        VecF a0 = vec_get(a, dtype, i), a1 = vec_get(a, dtype, i + VEC);
        VecF a2 = vec_get(a, dtype, i + 2 * VEC), a3 = vec_get(a, dtype, i + 3 * VEC);
        VecF b0 = vec_get(b, b_type, i), b1 = vec_get(b, b_type, i + VEC);
        VecF b2 = vec_get(b, b_type, i + 2 * VEC), b3 = vec_get(b, b_type, i + 3 * VEC);
        a0 = f(a0, b0), a1 = f(a1, b1), a2 = f(a2, b2), a3 = f(a3, b3);
        vec_put(y, dtype, i, a0), vec_put(y, dtype, i + VEC, a1);
        vec_put(y, dtype, i + 2 * VEC, a2), vec_put(y, dtype, i + 3 * VEC, a3);
    }
    for (; i < n; i += VEC) {
        int64_t count = n - i < VEC ? n - i : VEC;
        VecF both = f(vec_get_some(a, dtype, i, count), vec_get_some(b, b_type, i, count));
        vec_put_some(y, dtype, i, both, count);
    }
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
