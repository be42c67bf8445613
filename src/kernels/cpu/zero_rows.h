/* Row pruning (compress/prune.h) leaves zero rows in the matrices that write to the residual stream, whose
 * shape must stay. GEMMs with many rows compute with a copy of the matrix that omits them.
 *
 * M rows of the input, N outputs, K inputs */
#ifndef WEFT_KERNELS_CPU_ZERO_ROWS_H
#define WEFT_KERNELS_CPU_ZERO_ROWS_H

#include <string.h>

#include "kernels/cpu/variant.h"

/* The rows of a matrix that are not all zero. */
typedef struct Kept {
    int32_t *row;
    int64_t count;
    float *w; /* (count,K) these rows */
} Kept;

enum { OMIT_ROWS = 64, OMIT_SHARE = 8 }; /* a copy pays off from this many rows of x, if 1 in 8 is zero */

static inline bool row_is_zero(const float *row, int64_t K) {
    for (int64_t k = 0; k < K; k++)
        if (row[k] != 0) return false;
    return true;
}

/* The number of rows that are not zero; N if a copy would not pay off. Such a row usually shows in its first
 * weight, so this reads little besides the rows to omit. Zero rows at the end pad a vocabulary; omitting them
 * would need memory that plans do not predict. In a dry run there are no weights to read. */
static inline int64_t count_kept(const Stream *stream, const float *w, int64_t M, int64_t N, int64_t K) {
    int64_t kept = 0, end = 0;
    if (M < OMIT_ROWS || N < OMIT_SHARE || device_is_dryrun(stream->device)) return N;
    for (int64_t n = 0; n < N; n++) {
        if (row_is_zero(w + n * K, K)) continue;
        kept++;
        end = n + 1;
    }
    return kept == 0 || (end - kept) * OMIT_SHARE < N ? N : kept;
}

/* Bytes of `count` 4-byte values, padded to a cache line. */
static inline size_t floats_bytes(int64_t count) {
    return ((size_t)count * sizeof(float) + 63) / 64 * 64;
}

static inline size_t kept_bytes(int64_t kept, int64_t K) {
    return floats_bytes(kept) + floats_bytes(kept * K);
}

/* Lists and copies the rows into `memory` (kept_bytes). */
static inline Kept keep_rows(const float *w, int64_t N, int64_t K, int64_t count, void *memory) {
    Kept kept = {.row = memory, .count = 0};
    kept.w = (float *)(void *)((char *)memory + floats_bytes(count));
    for (int64_t n = 0; n < N; n++) {
        if (row_is_zero(w + n * K, K)) continue;
        memcpy(kept.w + kept.count * K, w + n * K, (size_t)K * sizeof *w);
        kept.row[kept.count++] = (int32_t)n;
    }
    return kept;
}

/* The columns of dy that belong to these rows. */
static inline void keep_columns(const Stream *stream, const Kept *kept, float *to, const float *dy, int64_t M,
                                int64_t N) {
#pragma omp parallel for num_threads(threads_for(stream, M *N))
    for (int64_t r = 0; r < M; r++)
        for (int64_t k = 0; k < kept->count; k++) to[r * kept->count + k] = dy[r * N + kept->row[k]];
}

#endif
