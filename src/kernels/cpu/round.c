/* Rounding to a few bits and back. Threads take rows, in pieces that stay in the first cache. */
#include <math.h>

#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"
#include "kernels/int4_round.h"

enum { PIECE = 512 };

static float largest_of(Tensor x, int64_t at, int64_t count) {
    float buffer[PIECE];
    VecF most = vec_set(0);
    float last = 0;
    for (int64_t done = 0; done < count; done += PIECE) {
        int64_t n = count - done < PIECE ? count - done : PIECE, i = 0;
        const float *from = run_in(x, at + done, n, buffer);
        for (; i + VEC <= n; i += VEC) {
            VecF size = (VecF)((VecI)vec_load(from + i) & (VecI)vec_set_u32(0x7fffffff));
            most = vec_select(size > most, size, most);
        }
        for (; i < n; i++) last = fabsf(from[i]) > last ? fabsf(from[i]) : last;
    }
    float wide = vec_max_of(most);
    return wide > last ? wide : last;
}

static Status row_largest_cpu(Stream *stream, Tensor largest, Tensor x) {
    int64_t K = tensor_cols(x);
#pragma omp parallel num_threads(threads_for(stream, tensor_count(x)))
    {
        Range mine = range_mine(tensor_rows(x), 1);
        for (int64_t m = mine.from; m < mine.to; m++) tensor_f32(largest)[m] = largest_of(x, m * K, K);
    }
    return OK;
}

static void write_piece(Tensor y, int64_t at, int64_t n, const float *from) {
    if (y.dtype == DT_F32)
        memcpy(tensor_f32(y) + at, from, (size_t)n * sizeof *from);
    else
        run_end(y, at, n, from);
}

static void round_row8(Tensor y, Tensor x, int64_t at, int64_t K, float most) {
    float in[PIECE], out[PIECE], finer = 127 / most, unit = most / 127;
    if (isinf(finer)) finer = 0;
    for (int64_t done = 0; done < K; done += PIECE) {
        int64_t n = K - done < PIECE ? K - done : PIECE;
        const float *from = run_in(x, at + done, n, in);
        for (int64_t i = 0; i < n; i++) out[i] = rintf(from[i] * finer) * unit;
        write_piece(y, at + done, n, out);
    }
}

static Status round_int8_cpu(Stream *stream, Tensor y, Tensor x, Tensor largest) {
    int64_t K = tensor_cols(x);
#pragma omp parallel num_threads(threads_for(stream, tensor_count(x)))
    {
        Range mine = range_mine(tensor_rows(x), 1);
        for (int64_t m = mine.from; m < mine.to; m++) round_row8(y, x, m * K, K, tensor_f32(largest)[m]);
    }
    return OK;
}

static void round_group4(Tensor y, Tensor x, int64_t at, int64_t count, float scale) {
    float w[INT4_GROUP] = {0}, in[INT4_GROUP];
    memcpy(w, run_in(x, at, count, in), (size_t)count * sizeof *w);
    int step = int4_step(w, scale);
    float finer = int4_finer(step, scale);
    for (int i = 0; i < INT4_GROUP; i++) w[i] = int4_clamp(rintf(w[i] * finer)) * (float)step * scale;
    write_piece(y, at, count, w);
}

static Status round_int4_cpu(Stream *stream, Tensor y, Tensor x, Tensor largest) {
    int64_t K = tensor_cols(x);
#pragma omp parallel num_threads(threads_for(stream, 64 * tensor_count(x)))
    {
        Range mine = range_mine(tensor_rows(x), 1);
        for (int64_t m = mine.from; m < mine.to; m++) {
            float scale = int4_scale(tensor_f32(largest)[m]);
            for (int64_t k = 0; k < K; k += INT4_GROUP)
                round_group4(y, x, m * K + k, K - k < INT4_GROUP ? K - k : INT4_GROUP, scale);
        }
    }
    return OK;
}

void VARIANT(round_override)(KernelTable *table) {
    table->row_largest = row_largest_cpu;
    table->round_int8 = round_int8_cpu;
    table->round_int4 = round_int4_cpu;
}
