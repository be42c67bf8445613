/* Random projections. The totals are divided into blocks that fit the L1 cache. A thread sums a block at a
 * time in fp32 and visits only the words that are added to it, so a total is summed in the same order for any
 * number of threads. */
#include <string.h>

#include "kernels/cpu/variant.h"
#include "kernels/cpu/vec.h"

enum { BLOCK_WORDS = 256 };

typedef struct Block {
    float sums[BLOCK_WORDS * SKETCH_WORD];
    int64_t words;        /* of all totals, a power of two */
    int64_t first, count; /* words of the block; `count` is a power of two and divides `first` */
    bool used;            /* otherwise `sums` is not initialized */
} Block;

/* sums (32) += x (32), negated where `signs` has a 1: its bit j, shifted to the sign bit, flips element j. */
static void add_word(float *sums, const float *x, uint32_t signs) {
    VecU all = vec_set_u32(signs), sign_bit = vec_set_u32(UINT32_C(1) << 31);
    for (int j = 0; j < SKETCH_WORD; j += VEC) {
        VecU flips = (all << (VecU)(SKETCH_WORD - 1 - vec_count(j))) & sign_bit;
        vec_store(sums + j, vec_load(sums + j) + (VecF)((VecU)vec_load(x + j) ^ flips));
    }
}

static void add_part(float *sums, const float *x, uint32_t signs, int64_t from, int64_t to) {
    for (int64_t j = from; j < to; j++) sums[j] += signs >> j & 1 ? -x[j - from] : x[j - from];
}

/* Adds the words that belong to the block of x, which has the global elements at .. at + count - 1. */
static void add_run(Block *block, const float *x, int64_t at, int64_t count, SketchMap map) {
    int64_t end = at + count, start = at / SKETCH_WORD, last = (end - 1) / SKETCH_WORD;
    uint32_t flip = map.subtract ? UINT32_MAX : 0;
    for (int64_t round = start / block->words; round <= last / block->words; round++) {
        int64_t draw = sketch_round(map.key, round) & (block->words - 1);
        int64_t word = round * block->words + (block->first ^ (draw & -block->count));
        int64_t stop = word + block->count - 1 < last ? word + block->count : last + 1;
        if (word < start) word = start;
        if (word >= stop) continue;
        if (!block->used) memset(block->sums, 0, sizeof block->sums);
        block->used = true;
        for (; word < stop; word++) {
            float *sums = block->sums + ((word ^ draw) & (block->count - 1)) * SKETCH_WORD;
            uint32_t signs = sketch_signs(map.key, word) ^ flip;
            int64_t here = word * SKETCH_WORD, from = here < at ? at - here : 0;
            int64_t to = here + SKETCH_WORD > end ? end - here : SKETCH_WORD;
            const float *values = x + (here + from - at);
            if (to - from == SKETCH_WORD)
                add_word(sums, values, signs);
            else
                add_part(sums, values, signs, from, to);
        }
    }
}

static Status sketch_cpu(Stream *stream, Tensor totals, Tensor x, SketchMap map) {
    int64_t count = tensor_count(x), words = tensor_count(totals) / SKETCH_WORD;
    int64_t each = words < BLOCK_WORDS ? words : BLOCK_WORDS;
    int threads = threads_for(stream, count);
    while (each > 1 && words / each < threads) each /= 2;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t first = 0; first < words; first += each) {
        Block block;
        block.words = words, block.first = first, block.count = each, block.used = false;
        for (int64_t at = 0; at < count; at += map.run)
            add_run(&block, tensor_f32(x) + at, at / map.run * map.group + map.start, map.run, map);
        double *to = (double *)totals.data + first * SKETCH_WORD;
        for (int64_t i = 0; block.used && i < each * SKETCH_WORD; i++) to[i] += (double)block.sums[i];
    }
    return OK;
}

void VARIANT(sketch_override)(KernelTable *table) {
    table->sketch = sketch_cpu;
}
