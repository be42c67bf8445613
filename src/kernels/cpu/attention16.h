/* bf16 attention with bf16 products (x86-64): scores, weights times values and the four products of backward
 * use AMX tiles or VDPBF16PS, and the softmax between them is fp32. Weights and their gradients are rounded
 * to bf16 for the products that follow; sums and lse are of unrounded weights.
 *
 * Products are of 32 x 32 elements. The left operand has rows of contiguous steps, in blocks of 32 steps. The
 * right operand, called a panel, has blocks of 32 steps, too; each has its first 16 columns, then the others,
 * as pairs of steps, (16 pairs, 16 columns, 2). So an AMX tile is contiguous, which loads faster from the L2
 * cache. Scores have a row per key and a column per query, so maxima, sums and dropout words have a lane per
 * query, and two rows of weights become the left operand of dV and dK or a pair of steps of the right operand
 * of out and dQ.
 *
 * The files that include this are compiled for AVX-512 with bf16 conversions. */
#ifndef WEFT_KERNELS_CPU_ATTENTION16_H
#define WEFT_KERNELS_CPU_ATTENTION16_H

#include "kernels/cpu/attention_backward.h"

/* Width of products: rows, columns and unit of steps; of AMX tiles; and the elements of a tile. */
enum { SIDE = 32, HALF = SIDE / 2, TILE = HALF * SIDE };

/* A left operand: step s of row r is at[r * row + s / SIDE * block + s % SIDE]. */
typedef struct Left16 {
    const uint16_t *at;
    int64_t row, block;
} Left16;

struct Product16 {
    /* Called by each thread before its first product and after its last. */
    void (*begin)(void);
    void (*end)(void);
    /* c (SIDE, SIDE) [+]= left times panel over `depth` steps, a multiple of SIDE. Rows of c are c_stride
     * apart. A structure passed by value is copied with wide loads that wait until all stores before are in
     * the cache, those of tiles included. */
    void (*run)(int64_t depth, const Left16 *left, const uint16_t *panel, float *c, int64_t c_stride,
                bool add);
};

/* attention_head_scratch and attention_head with bf16 products. */
size_t attention16_head_scratch(int64_t keys, int64_t D);
void attention16_head(const Product16 *product, const HeadJob *job, Range queries, void *memory);

extern const BackwardType attention16_backward;

/* The products of this CPU, or NULL if these kernels do not support the tensor or the shape. */
MUST_USE Status product16_choose(const Product16 **ret_product, Tensor qkv, const Attention *spec);

#endif
