/* What gemm.c and gemm_list.c share. */
#ifndef WEFT_KERNELS_CPU_GEMM_PARTS_H
#define WEFT_KERNELS_CPU_GEMM_PARTS_H

#include "kernels/cpu/blas.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/map.h"
#include "kernels/cpu/micro16.h"

/* Limits of the block of the result that one thread takes, and the largest tile. */
enum { BLOCK_ROWS = 256, BLOCK_AREA = BLOCK_ROWS * 480, TILE_MAX = 1024, LINE = 64 };

/* The size of equal parts of `size` that are at most `limit`, rounded up to a multiple of `unit`. */
static inline int64_t even_part(int64_t size, int64_t limit, int64_t unit) {
    return round_up(parts_of(size, parts_of(size, limit)), unit);
}

static inline bool is_fp32(const Gemm *gemm) {
    return gemm->a.dtype == DT_F32 && gemm->b.dtype == DT_F32;
}

static inline bool uses_blas(const Gemm *gemm) {
    return blas_available() && is_fp32(gemm);
}

static inline int gemm_threads(const Stream *stream, const Gemm *gemm) {
    return threads_for(stream, gemm->m * gemm->n / 64 * gemm->k);
}

/* Steps [k, k + depth) of `lines` lines of an operand. */
static inline PackSource source_of(const Operand *operand, bool left, int64_t line, int64_t lines, int64_t k,
                                   int64_t depth) {
    bool across = operand->trans != left;
    int64_t at = across ? line * operand->stride + k : k * operand->stride + line;
    return (PackSource){(const char *)operand->data + at * (int64_t)dtype_size(operand->dtype),
                        operand->dtype,
                        across,
                        operand->stride,
                        lines,
                        depth};
}

/* A tile at the edge of the matrix, with rows x cols elements inside. */
static inline void tile_edge(const Micro *micro, int64_t depth, const void *a, const void *b, float *c,
                             int64_t c_stride, bool add, int64_t rows, int64_t cols) {
    if (rows == micro->rows && cols == micro->cols) {
        micro->tile(depth, a, b, c, c_stride, add);
        return;
    }
    float tile[TILE_MAX];
    micro->tile(depth, a, b, tile, micro->cols, false);
    map_block(c, c_stride, tile, micro->cols, rows, cols, add);
}

/* The micro-kernel for a GEMM. */
MUST_USE Status VARIANT(gemm_micro)(const Gemm *gemm, const Micro **ret_micro);
/* Packs a source into panels of panel_depth steps. */
void VARIANT(gemm_pack)(const Micro *micro, char *panels, bool left, PackSource source, int64_t panel_depth);
/* A GEMM, and the workspace for any with the same n and no larger m and k than the largest, from which the
 * order of sums follows. */
size_t VARIANT(gemm_within_bytes)(const Gemm *largest, const Micro *micro, int threads);
void VARIANT(gemm_within_run)(Pool *pool, const Gemm *largest, const Gemm *gemm, const Micro *micro,
                              int threads, void *workspace);

#define gemm_micro        VARIANT(gemm_micro)
#define gemm_pack         VARIANT(gemm_pack)
#define gemm_within_bytes VARIANT(gemm_within_bytes)
#define gemm_within_run   VARIANT(gemm_within_run)

#endif
