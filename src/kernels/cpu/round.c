/* Fake quantization (quantize and dequantize), and int8 gradients. Threads take rows, in chunks that stay in
 * the L1 cache. */
#include <math.h>

#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"
#include "kernels/int4_round.h"

enum { CHUNK = 512 };

static float largest_of(Tensor x, int64_t at, int64_t count) {
    float buffer[CHUNK];
    VecF max = vec_set(0);
    float tail = 0;
    for (int64_t done = 0; done < count; done += CHUNK) {
        int64_t n = count - done < CHUNK ? count - done : CHUNK, i = 0;
        const float *from = run_in(x, at + done, n, buffer);
        for (; i + VEC <= n; i += VEC) {
            VecF magnitude = (VecF)((VecI)vec_load(from + i) & (VecI)vec_set_u32(0x7fffffff));
            max = vec_select(magnitude > max, magnitude, max);
        }
        for (; i < n; i++) tail = fabsf(from[i]) > tail ? fabsf(from[i]) : tail;
    }
    float lanes = vec_max_of(max);
    return lanes > tail ? lanes : tail;
}

static Status row_largest_cpu(Stream *stream, Tensor largest, Tensor x) {
    int64_t K = tensor_cols(x);
#pragma omp parallel for schedule(static) num_threads(threads_for(stream, tensor_count(x)))
    for (int64_t m = 0; m < tensor_rows(x); m++) tensor_f32(largest)[m] = largest_of(x, m * K, K);
    return OK;
}

static void write_chunk(Tensor y, int64_t at, int64_t n, const float *from) {
    if (y.dtype == DT_F32)
        memcpy(tensor_f32(y) + at, from, (size_t)n * sizeof *from);
    else
        run_end(y, at, n, from);
}

static void round_row8(Tensor y, Tensor x, int64_t at, int64_t K, float max) {
    float in[CHUNK], out[CHUNK], inverse = 127 / max, scale = max / 127;
    if (isinf(inverse)) inverse = 0;
    for (int64_t done = 0; done < K; done += CHUNK) {
        int64_t n = K - done < CHUNK ? K - done : CHUNK;
        const float *from = run_in(x, at + done, n, in);
        for (int64_t i = 0; i < n; i++) out[i] = rintf(from[i] * inverse) * scale;
        write_chunk(y, at + done, n, out);
    }
}

static Status round_int8_cpu(Stream *stream, Tensor y, Tensor x, Tensor largest) {
    int64_t K = tensor_cols(x);
#pragma omp parallel for schedule(static) num_threads(threads_for(stream, tensor_count(x)))
    for (int64_t m = 0; m < tensor_rows(x); m++) round_row8(y, x, m * K, K, tensor_f32(largest)[m]);
    return OK;
}

static void round_group4(Tensor y, Tensor x, int64_t at, int64_t count, float scale) {
    float w[INT4_GROUP] = {0}, in[INT4_GROUP];
    memcpy(w, run_in(x, at, count, in), (size_t)count * sizeof *w);
    int step = int4_step(w, scale);
    float inverse = int4_inverse_step(step, scale);
    for (int i = 0; i < INT4_GROUP; i++) w[i] = int4_clamp(rintf(w[i] * inverse)) * (float)step * scale;
    write_chunk(y, at, count, w);
}

static Status round_int4_cpu(Stream *stream, Tensor y, Tensor x, Tensor largest) {
    int64_t K = tensor_cols(x);
#pragma omp parallel for schedule(static) num_threads(threads_for(stream, 64 * tensor_count(x)))
    for (int64_t m = 0; m < tensor_rows(x); m++) {
        float scale = int4_scale(tensor_f32(largest)[m]);
        for (int64_t k = 0; k < K; k += INT4_GROUP)
            round_group4(y, x, m * K + k, K - k < INT4_GROUP ? K - k : INT4_GROUP, scale);
    }
    return OK;
}

/* ---- int8 gradients ---- */

/* v = x + residual; returns the largest magnitude, or NaN if a value is not finite. Without their sign,
 * floats are ordered like the integers of the same bits, whose maximum all compilers vectorize. */
static float add_left(float *restrict v, const float *restrict x, const float *restrict left, int64_t n) {
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) v[i] = x[i] + left[i];
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    float amax;
    memcpy(&amax, &most, sizeof amax);
    return isfinite(amax) ? amax : NAN;
}

static void quantize_block(int8_t *restrict q, float *restrict left, const float *restrict v, int64_t n,
                           float amax) {
    float scale = amax / 127, inverse = 127 / amax;
    if (isinf(inverse)) inverse = 0;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float rounded = rintf(v[i] * inverse);
        q[i] = (int8_t)rounded;
        left[i] = fmaf(-rounded, scale, v[i]);
    }
}

static Status quantize_blocks_cpu(Stream *stream, Tensor q, Tensor scales, Tensor residual, Tensor x) {
    int64_t count = tensor_count(x);
#pragma omp parallel for schedule(static) num_threads(threads_for(stream, count))
    for (int64_t b = 0; b < quant_blocks(count); b++) {
        int64_t at = b * QUANT_BLOCK, n = count - at < QUANT_BLOCK ? count - at : QUANT_BLOCK;
        float v[QUANT_BLOCK], *left = tensor_f32(residual) + at;
        int8_t *out = (int8_t *)q.data + at;
        float amax = add_left(v, tensor_f32(x) + at, left, n);
        tensor_f32(scales)[b] = amax / 127;
        if (isnan(amax))
            memset(out, 0, (size_t)n);
        else
            quantize_block(out, left, v, n, amax);
    }
    return OK;
}

static Status dequantize_blocks_cpu(Stream *stream, Tensor y, Tensor q, Tensor scales, bool accumulate) {
    int64_t count = tensor_count(y);
#pragma omp parallel for schedule(static) num_threads(threads_for(stream, count))
    for (int64_t b = 0; b < quant_blocks(count); b++) {
        int64_t at = b * QUANT_BLOCK, n = count - at < QUANT_BLOCK ? count - at : QUANT_BLOCK;
        float *restrict to = tensor_f32(y) + at, scale = tensor_f32(scales)[b];
        const int8_t *restrict from = (const int8_t *)q.data + at;
        for (int64_t i = 0; i < n && accumulate; i++) to[i] = fmaf(from[i], scale, to[i]);
        for (int64_t i = 0; i < n && !accumulate; i++) to[i] = (float)from[i] * scale;
    }
    return OK;
}

static void decode_block(BlockCode code, float *restrict values, const uint8_t *restrict codes, float scale,
                         int64_t n) {
    const float *level = code_levels(code);
    float scaled[16];
    for (int i = 0; i < 16; i++) scaled[i] = level[i] * scale;
    if (code == BLOCKS_INT8)
        for (int64_t i = 0; i < n; i++) values[i] = (float)(int8_t)codes[i] / 127 * scale;
    else
        for (int64_t i = 0; i < n; i++) values[i] = scaled[codes[i / 2] >> (i % 2 ? 0 : 4) & 15];
}

static Status decode_blocks_cpu(Stream *stream, Tensor y, Tensor codes, Tensor scales, BlockCode code) {
    int64_t count = tensor_count(y);
    size_t size = dtype_size(y.dtype);
    bool failed = false;
#pragma omp parallel for schedule(static) num_threads(threads_for(stream, count)) reduction(|| : failed)
    for (int64_t b = 0; b < code_blocks(count); b++) {
        int64_t at = b * CODE_BLOCK, n = count - at < CODE_BLOCK ? count - at : CODE_BLOCK;
        float values[CODE_BLOCK];
        decode_block(code, values, (const uint8_t *)codes.data + code_bytes(code, at), tensor_f32(scales)[b],
                     n);
        Status status = dtype_convert((char *)y.data + (size_t)at * size, y.dtype, values, DT_F32, (size_t)n);
        failed = failed || status;
        status_free(status);
    }
    return failed ? FAILED("internal: decode_blocks: cannot convert to %s", dtype_name(y.dtype)) : OK;
}

void VARIANT(round_override)(KernelTable *table) {
    table->row_largest = row_largest_cpu;
    table->round_int8 = round_int8_cpu;
    table->round_int4 = round_int4_cpu;
    table->quantize_blocks = quantize_blocks_cpu;
    table->dequantize_blocks = dequantize_blocks_cpu;
    table->decode_blocks = decode_blocks_cpu;
}
