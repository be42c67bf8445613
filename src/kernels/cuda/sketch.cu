// Random projections. A thread sums the elements of one total over a part of the rounds (kernels/sketch.h);
// the parts, of which there are more the fewer totals there are, are then added up. A warp reads a word at a
// time.
#define SKETCH_FUNCTION __host__ __device__ static inline
#include "kernels/cuda/chain.cuh"

namespace {

constexpr int threads = 256;

// The place in x of a global element; -1 if it is not in x.
template <bool ONE_RUN> __device__ inline int64_t local_of(int64_t at, int64_t count, const SketchMap &map) {
    int64_t offset = at - map.start;
    if (offset < 0) return -1;
    if (ONE_RUN) return offset < count ? offset : -1;
    int64_t run = offset / map.group, inside = offset % map.group, local = run * map.run + inside;
    return inside < map.run && local < count ? local : -1;
}

// partial (gridDim.y,size)
template <bool ONE_RUN>
__global__ void __launch_bounds__(threads)
    sketch_kernel(float *partial, int64_t size, const float *x, int64_t count, SketchMap map, int64_t first,
                  int64_t end) {
    const int64_t to = blockIdx.x * (int64_t)threads + threadIdx.x, words = size / SKETCH_WORD;
    if (to >= size) return;
    const int lane = (int)(to % SKETCH_WORD);
    float total = 0;
#pragma unroll 4
    for (int64_t round = first + blockIdx.y; round < end; round += gridDim.y) {
        const int64_t draw = sketch_round(map.key, round);
        const int64_t word = round * words + ((to / SKETCH_WORD ^ draw) & (words - 1));
        const int64_t local = local_of<ONE_RUN>(word * SKETCH_WORD + lane, count, map);
        const float value = local < 0 ? 0.0f : x[local];
        total += sketch_signs(map.key, word) >> lane & 1 ? -value : value;
    }
    partial[blockIdx.y * size + to] = total;
}

__global__ void __launch_bounds__(threads)
    sketch_add_kernel(double *totals, int64_t size, const float *partial, int parts, bool subtract) {
    const int64_t to = blockIdx.x * (int64_t)threads + threadIdx.x;
    if (to >= size) return;
    double total = 0;
    for (int part = 0; part < parts; part++) total += partial[part * size + to];
    totals[to] += subtract ? -total : total;
}

} // namespace

Status sketch_cuda(Stream *stream, Tensor totals, Tensor x, SketchMap map) {
    void *workspace;
    const int64_t count = tensor_count(x), size = tensor_count(totals);
    const int64_t last = map.start + (count / map.run - 1) * map.group + map.run - 1;
    const int64_t first = map.start / size, end = last / size + 1, most = SKETCH_MAX / size;
    const int parts = (int)(end - first < most ? end - first : most);
    const dim3 grid(blocks_for(size, threads), (unsigned)parts);
    TRY(stream_workspace(stream, sketch_partial_bytes(), &workspace));
    float *partial = (float *)workspace;
    LAUNCH(launch_kernel(stream, map.run == count ? sketch_kernel<true> : sketch_kernel<false>, grid, threads,
                         0, partial, size, data<float>(x), count, map, first, end));
    LAUNCH(launch_kernel(stream, sketch_add_kernel, grid.x, threads, 0, data<double>(totals), size, partial,
                         parts, map.subtract));
    return OK;
}
