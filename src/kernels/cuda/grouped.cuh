// Tiles of the rows of experts. Experts have any number of rows, which only the device knows, so blocks find
// the tiles that they compute; a launch has as many as there can be.
#ifndef WEFT_KERNELS_CUDA_GROUPED_CUH
#define WEFT_KERNELS_CUDA_GROUPED_CUH

#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/grouped.h"

// Some rows of an expert.
struct RowTile {
    int expert, first, rows; // rows 0: there is no such tile
};

// The most tiles of `height` rows. Each expert with rows has one that is not full, at most.
inline int64_t most_row_tiles(const CudaGrouped &call, int height) {
    const int64_t tiles = call.rows / height + call.E;
    return tiles < call.rows ? tiles : call.rows;
}

// Tile `index` of those that experts have, in their order. Each warp calls this; its lanes take a part of the
// experts each.
__device__ inline RowTile find_row_tile(const int32_t *offsets, int E, int height, int index) {
    const int lane = (int)threadIdx.x % 32, each = (E + 31) / 32;
    const int from = min(lane * each, E), to = min(from + each, E);
    int tiles = 0;
    for (int e = from; e < to; e++) tiles += (offsets[e + 1] - offsets[e] + height - 1) / height;
    int until = tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, until, step);
        if (lane >= step) until += other;
    }
    const unsigned past = __ballot_sync(0xffffffffu, until > index);
    RowTile tile = {0, 0, 0};
    if (!past) return tile;
    const int owner = __ffs(past) - 1;
    if (lane == owner) {
        int left = index - (until - tiles), rows = 0;
        for (tile.expert = from; tile.expert < to; tile.expert++) {
            rows = offsets[tile.expert + 1] - offsets[tile.expert];
            const int own = (rows + height - 1) / height;
            if (left < own) break;
            left -= own;
        }
        tile.first = offsets[tile.expert] + left * height;
        tile.rows = min(rows - left * height, height);
    }
    tile.expert = __shfl_sync(0xffffffffu, tile.expert, owner);
    tile.first = __shfl_sync(0xffffffffu, tile.first, owner);
    tile.rows = __shfl_sync(0xffffffffu, tile.rows, owner);
    return tile;
}

#endif
