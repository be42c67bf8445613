/* Rotary position embedding. A row of the table serves all heads of a token. */
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

/* Rotates `half` pairs in place; sign -1 is the opposite direction. */
static ALWAYS_INLINE void rotate(DType dtype, void *first, void *second, const float *cosines,
                                 const float *sines, int64_t half, float sign) {
    int64_t i = 0;
    for (; i + VEC <= half; i += VEC) {
        VecF c = vec_load(cosines + i), s = vec_load(sines + i) * sign;
        VecF a = vec_get(first, dtype, i), b = vec_get(second, dtype, i);
        vec_put(first, dtype, i, a * c - b * s);
        vec_put(second, dtype, i, b * c + a * s);
    }
    for (; i < half; i++) {
        float c = cosines[i], s = sines[i] * sign;
        float a = half_get(first, dtype, i), b = half_get(second, dtype, i);
        half_put(first, dtype, i, a * c - b * s);
        half_put(second, dtype, i, b * c + a * s);
    }
}

typedef struct Rope {
    Tensor x, table, positions;
    int64_t origin;
    HeadRange heads;
    float sign;
} Rope;

static void rope_tokens(const void *context, Range mine) {
    const Rope *f = context;
    int64_t T = f->x.dim[1], N = f->x.dim[2], D = f->x.dim[3], R = tensor_cols(f->table);
    int64_t count = f->heads.count ? f->heads.count : N;
    for (int64_t i = mine.from; i < mine.to; i++) {
        int64_t at = row_position(f->positions, f->origin, T, i / T, i % T, tensor_rows(f->table));
        const float *row = tensor_f32(f->table) + at * R;
        int64_t head = (i * N + f->heads.first) * D;
        for (int64_t h = 0; at >= 0 && h < count; h++, head += D)
            BY_TYPE(f->x.dtype, rotate, run_at(f->x, head), run_at(f->x, head + R / 2), row, row + R / 2,
                    R / 2, f->sign);
    }
}

static Status rope(Stream *stream, Tensor x, Tensor table, Tensor positions, int64_t origin, HeadRange heads,
                   float sign) {
    int64_t tokens = x.dim[0] * x.dim[1], count = heads.count ? heads.count : x.dim[2];
    Rope context = {x, table, positions, origin, heads, sign};
    ranges_run(stream, tokens, 1, tokens * count * tensor_cols(table), rope_tokens, &context);
    return OK;
}

static Status rope_forward_cpu(Stream *stream, Tensor x, Tensor table, Tensor positions, int64_t origin,
                               HeadRange heads) {
    return rope(stream, x, table, positions, origin, heads, 1);
}

static Status rope_backward_cpu(Stream *stream, Tensor dx, Tensor table, Tensor positions, int64_t origin,
                                HeadRange heads) {
    return rope(stream, dx, table, positions, origin, heads, -1);
}

void VARIANT(rope_override)(KernelTable *table) {
    table->rope_forward = rope_forward_cpu;
    table->rope_backward = rope_backward_cpu;
}
