// AdamW: a launch updates several parts, in tiles of one pack of four elements per thread. A block has a
// multiprocessor to itself and takes one tile after another, with the inputs of the next ones on their way to
// shared memory. So a few blocks are enough to use all of the memory's bandwidth, beside the GEMMs of another
// stream, and the rest of the device is left to those.
#include "kernels/cuda/ptx.cuh"

namespace {

constexpr int threads = 512, pack = 4, tile_size = threads * pack;

__device__ inline void step_one(float &param, float &m, float &v, float grad, const CudaAdamWPart &part,
                                const CudaAdamW &spec) {
    if (part.keep_zeros && param == 0) {
        m = v = 0;
        return;
    }
    float g = grad * spec.grad_scale;
    m = spec.beta1 * m + spec.rest1 * g;
    v = spec.beta2 * v + spec.rest2 * g * g;
    float step = m * spec.correct1 / (sqrtf(v * spec.correct2) + spec.eps);
    param -= part.lr * (part.decay * param + step);
}

// The element of a part at which a tile of `size` elements begins. Tiles only increase, so the part is found
// from that of an earlier tile.
struct Place {
    int part = 0;
    __device__ inline int64_t find(const CudaAdamWParts &all, int tile, int size) {
        while (part + 1 < all.parts && all.part[part + 1].first <= tile) part++;
        return (int64_t)(tile - all.part[part].first) * size;
    }
};

// One element; copies may be NULL.
template <typename T>
__device__ inline void step_at(const CudaAdamWPart &own, const CudaAdamW &spec, int64_t i) {
    step_one(own.param[i], own.m[i], own.v[i], own.grad[i], own, spec);
    if (own.copy) ((T *)own.copy)[i] = from_float<T>(own.param[i]);
}

// What a thread has in shared memory of one tile.
using Floats = Pack<float, pack>;
struct Inputs {
    Floats param[threads], m[threads], v[threads], grad[threads];
};

__device__ inline void fetch(Inputs &to, const CudaAdamWPart &own, int64_t i) {
    if (i + pack > own.count) return;
    copy_async16(&to.param[threadIdx.x], own.param + i);
    copy_async16(&to.m[threadIdx.x], own.m + i);
    copy_async16(&to.v[threadIdx.x], own.v + i);
    copy_async16(&to.grad[threadIdx.x], own.grad + i);
}

template <typename T>
__device__ inline void step_pack(const Inputs &from, const CudaAdamWPart &own, const CudaAdamW &spec,
                                 int64_t i) {
    if (i + pack > own.count) return;
    Floats p = from.param[threadIdx.x], m = from.m[threadIdx.x], v = from.v[threadIdx.x],
           g = from.grad[threadIdx.x];
    Pack<T, pack> out;
#pragma unroll
    for (int j = 0; j < pack; j++) {
        step_one(p.at[j], m.at[j], v.at[j], g.at[j], own, spec);
        out.at[j] = from_float<T>(p.at[j]);
    }
    store_pack(own.param + i, p);
    store_pack(own.m + i, m);
    store_pack(own.v + i, v);
    if (own.copy) store_pack((T *)own.copy + i, out);
}

// A thread reads only what it has copied itself, so threads need not wait for each other.
template <typename T, int STAGES>
__global__ void __launch_bounds__(threads, 1)
    adamw_kernel(const __grid_constant__ CudaAdamWParts all, const __grid_constant__ CudaAdamW spec,
                 int tiles) {
    extern __shared__ uint4 shared[];
    Inputs *stage = reinterpret_cast<Inputs *>(shared);
    const int lane = threadIdx.x * pack;
    Place ahead, here;
    int next = blockIdx.x, slot = STAGES - 1; // the next tile to fetch, and where to
    for (int s = 0; s < STAGES - 1; s++, next += gridDim.x) {
        if (next < tiles) {
            int64_t first = ahead.find(all, next, tile_size);
            fetch(stage[s], all.part[ahead.part], first + lane);
        }
        copy_group();
    }
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, next += gridDim.x) {
        if (next < tiles) {
            int64_t first = ahead.find(all, next, tile_size);
            fetch(stage[slot], all.part[ahead.part], first + lane);
        }
        copy_group();
        copy_wait<STAGES - 1>();
        slot = slot + 1 < STAGES ? slot + 1 : 0; // the oldest
        int64_t first = here.find(all, tile, tile_size);
        const CudaAdamWPart &own = all.part[here.part];
        step_pack<T>(stage[slot], own, spec, first + lane);
        // The tail of a part is shorter than a pack, and belongs to its first tile.
        int64_t rest = own.count / pack * pack + threadIdx.x;
        if (first == 0 && rest < own.count) step_at<T>(own, spec, rest);
    }
}

// Any alignment.
template <typename T>
__global__ void __launch_bounds__(threads)
    adamw_any_kernel(const __grid_constant__ CudaAdamWParts all, const __grid_constant__ CudaAdamW spec,
                     int tiles) {
    Place here;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int64_t i = here.find(all, tile, threads) + threadIdx.x;
        if (i < all.part[here.part].count) step_at<T>(all.part[here.part], spec, i);
    }
}

// Sets the first tile of each part; returns the number of tiles.
int64_t cut(CudaAdamWParts *all, int size) {
    int64_t tiles = 0;
    for (int i = 0; i < all->parts; i++) {
        all->part[i].first = (int)tiles;
        tiles += blocks_for(all->part[i].count, size);
    }
    return tiles;
}

template <typename T, int STAGES>
cudaError_t start(cudaStream_t stream, const CudaAdamWParts &all, const CudaAdamW &spec, int tiles,
                  int most) {
    auto kernel = adamw_kernel<T, STAGES>;
    size_t shared = STAGES * sizeof(Inputs);
    // If one of these fails, the error is detected after the launch.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    // Not chained: blocks of the next update would occupy multiprocessors while they wait.
    unsigned blocks = (unsigned)(tiles < most ? tiles : most);
    kernel<<<blocks, threads, shared, stream>>>(all, spec, tiles);
    return cudaGetLastError();
}

} // namespace

cudaError_t launch_adamw(cudaStream_t stream, DType type, CudaAdamWParts *all, CudaAdamW spec, int most,
                         size_t shared) {
    constexpr int many = 7, few = 3; // stages
    bool aligned = true;
    for (int i = 0; i < all->parts; i++) {
        const CudaAdamWPart &part = all->part[i];
        aligned = aligned && aligned_16(part.param, part.m, part.v, part.grad, part.copy);
    }
    int64_t tiles = cut(all, aligned ? tile_size : threads);
    if (tiles > INT32_MAX / 2) return cudaErrorInvalidConfiguration;
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        if (aligned && shared >= many * sizeof(Inputs))
            return start<T, many>(stream, *all, spec, (int)tiles, most);
        if (aligned) return start<T, few>(stream, *all, spec, (int)tiles, most);
        adamw_any_kernel<T><<<(unsigned)tiles, threads, 0, stream>>>(*all, spec, (int)tiles);
        return cudaGetLastError();
    });
}
