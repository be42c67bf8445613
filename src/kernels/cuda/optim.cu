// AdamW: a launch updates several parts, in tiles of one pack of four elements per thread. A block has a
// multiprocessor to itself and takes one tile after another, with the inputs of the next ones on their way to
// shared memory. So a few blocks are enough to use all of the memory's bandwidth, beside the GEMMs of another
// stream, and the rest of the device is left to those.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/param.cuh"

namespace {

constexpr int threads = 512, pack = param_pack, tile_size = threads * pack;
using Floats = ParamPack;

// The coefficients of AdamW in kernels.h and values derived from them.
struct Coefficients {
    float beta1, beta2, rest1, rest2, eps; // rest: 1 - beta
    float correct1, correct2;              // 1 / correction
    float grad_scale;
};

struct Part {
    void *param;
    float *m, *v;
    void *copy;
    const float *grad;
    int64_t count; // > 0
    float lr, decay;
    int first; // tile, set by `cut`
    bool keep_zeros;
};

constexpr int most_parts = 56; // as many as fit the arguments of a kernel
struct Parts {
    int parts;
    Part part[most_parts];
};

// The square root and the quotient are accurate to about 2 ulp, without branches: what they contribute to a
// parameter is smaller than its rounding. Products are rounded as written, so every path has the same bits.
__device__ inline void step_one(float &param, float &m, float &v, float grad, const Coefficients &spec,
                                float lr, float decay) {
    float g = grad * spec.grad_scale, root, inverse;
    m = fmaf(spec.beta1, m, spec.rest1 * g);
    v = fmaf(spec.beta2, v, spec.rest2 * g * g);
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(v * spec.correct2));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(root + spec.eps));
    param = fmaf(-lr, fmaf(decay, param, m * spec.correct1 * inverse), param);
}

// The part of a tile. Tiles only increase, so it is found from that of an earlier tile.
struct Place {
    int part = 0, first = 0, end = 0; // its tiles
    // Whether the part is another one than before, or the first.
    __device__ inline bool find(const Parts &all, int tile) {
        if (tile < end) return false;
        while (part + 1 < all.parts && all.part[part + 1].first <= tile) part++;
        first = all.part[part].first;
        end = part + 1 < all.parts ? all.part[part + 1].first : INT32_MAX;
        return true;
    }
};

// One element.
template <typename T> __device__ inline void step_at(const Part &own, const Coefficients &spec, int64_t i) {
    Param<T> params(own.param, own.copy);
    float param = params.get(i), m = own.m[i], v = own.v[i];
    if (own.keep_zeros && param == 0)
        m = v = 0;
    else
        step_one(param, m, v, own.grad[i], spec, own.lr, own.decay);
    params.put(i, param);
    own.m[i] = m;
    own.v[i] = v;
}

// What a thread has in shared memory of one tile.
struct Inputs {
    Floats param[threads], m[threads], v[threads], grad[threads];
};

// Fetches the tiles of a block, one after the other.
template <typename T> struct Fetcher {
    Place place;
    Param<T> param;
    const float *m, *v, *grad;
    int64_t count;
    __device__ inline void run(Inputs &to, const Parts &all, int tile) {
        if (place.find(all, tile)) {
            const Part &own = all.part[place.part];
            param = Param<T>(own.param, own.copy), m = own.m, v = own.v, grad = own.grad, count = own.count;
        }
        int64_t i = (int64_t)(tile - place.first) * tile_size + threadIdx.x * pack;
        if (i + pack > count) return;
        param.fetch(to.param[threadIdx.x], i);
        copy_async16(&to.m[threadIdx.x], m + i);
        copy_async16(&to.v[threadIdx.x], v + i);
        copy_async16(&to.grad[threadIdx.x], grad + i);
    }
};

template <typename T> struct Stepper {
    Place place;
    Param<T> param;
    float *m, *v, lr, decay;
    int64_t count;
    bool keep_zeros;
    __device__ inline void run(const Inputs &from, const Parts &all, const Coefficients &spec, int tile) {
        if (place.find(all, tile)) {
            const Part &own = all.part[place.part];
            param = Param<T>(own.param, own.copy), m = own.m, v = own.v, count = own.count;
            lr = own.lr, decay = own.decay, keep_zeros = own.keep_zeros;
            // The tail of a part is shorter than a pack, and belongs to its first tile.
            int64_t rest = count / pack * pack + threadIdx.x;
            if (tile == place.first && rest < count) step_at<T>(own, spec, rest);
        }
        int64_t i = (int64_t)(tile - place.first) * tile_size + threadIdx.x * pack;
        if (i + pack <= count) step(from, spec, i);
    }
    __device__ inline void step(const Inputs &from, const Coefficients &spec, int64_t i) {
        Floats p = Param<T>::unpack(from.param[threadIdx.x]), first = from.m[threadIdx.x],
               second = from.v[threadIdx.x], g = from.grad[threadIdx.x], before = p;
#pragma unroll
        for (int j = 0; j < pack; j++) step_one(p.at[j], first.at[j], second.at[j], g.at[j], spec, lr, decay);
        if (keep_zeros) {
#pragma unroll
            for (int j = 0; j < pack; j++)
                if (before.at[j] == 0) p.at[j] = before.at[j], first.at[j] = second.at[j] = 0;
        }
        param.put(i, p);
        store_pack(m + i, first);
        store_pack(v + i, second);
    }
};

// A thread reads only what it has copied itself, so threads need not wait for each other.
template <typename T, int STAGES>
__global__ void __launch_bounds__(threads, 1)
    adamw_kernel(const __grid_constant__ Parts all, const __grid_constant__ Coefficients spec, int tiles) {
    extern __shared__ uint4 shared[];
    Inputs *stage = reinterpret_cast<Inputs *>(shared);
    Fetcher<T> ahead;
    Stepper<T> here;
    int next = blockIdx.x, slot = STAGES - 1; // the next tile to fetch, and where to
    for (int s = 0; s < STAGES - 1; s++, next += gridDim.x) {
        if (next < tiles) ahead.run(stage[s], all, next);
        copy_group();
    }
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, next += gridDim.x) {
        if (next < tiles) ahead.run(stage[slot], all, next);
        copy_group();
        copy_wait<STAGES - 1>();
        slot = slot + 1 < STAGES ? slot + 1 : 0; // the oldest
        here.run(stage[slot], all, spec, tile);
    }
}

// Any alignment.
template <typename T>
__global__ void __launch_bounds__(threads)
    adamw_any_kernel(const __grid_constant__ Parts all, const __grid_constant__ Coefficients spec,
                     int tiles) {
    Place place;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        place.find(all, tile);
        int64_t i = (int64_t)(tile - place.first) * threads + threadIdx.x;
        if (i < all.part[place.part].count) step_at<T>(all.part[place.part], spec, i);
    }
}

// Sets the first tile of each part; returns the number of tiles.
int64_t cut(Parts *all, int size) {
    int64_t tiles = 0;
    for (int i = 0; i < all->parts; i++) {
        all->part[i].first = (int)tiles;
        tiles += blocks_for(all->part[i].count, size);
    }
    return tiles;
}

template <typename T, int STAGES>
cudaError_t start(Stream *stream, const Parts &all, const Coefficients &spec, int tiles, int most) {
    auto kernel = adamw_kernel<T, STAGES>;
    size_t shared = STAGES * sizeof(Inputs);
    // If one of these fails, so does the launch.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    // Not chained: blocks of the next update would occupy multiprocessors while they wait.
    return launch_kernel(stream, kernel, (unsigned)(tiles < most ? tiles : most), threads, shared, all, spec,
                         tiles);
}

// Multiprocessors for an update. Where forward runs beside it on a stream with precedence, 40 of an H200's
// 132 take little longer than 66 and leave more to forward; alone, all of them take a sixth less time than
// 66.
int update_processors(const CudaDevice *device) {
    return device->urgent ? device->processors * 10 / 33 : device->processors;
}

cudaError_t update(Stream *stream, DType type, Parts *all, const Coefficients &spec) {
    const CudaDevice *device = cuda_device(stream);
    bool aligned = true;
    for (int i = 0; i < all->parts; i++) {
        const Part &part = all->part[i];
        aligned = aligned && aligned_16(part.param, part.m, part.v, part.grad, part.copy);
    }
    constexpr int many = 7, few = 3; // stages
    const bool staged = aligned && fits_shared(few * sizeof(Inputs));
    const int64_t tiles = cut(all, staged ? tile_size : threads);
    if (tiles > INT32_MAX / 2) return cudaErrorInvalidConfiguration;
    return with_param(type, [&](auto t) {
        using T = decltype(t);
        const int most = update_processors(device);
        if (staged && fits_shared(many * sizeof(Inputs)))
            return start<T, many>(stream, *all, spec, (int)tiles, most);
        if (staged) return start<T, few>(stream, *all, spec, (int)tiles, most);
        return launch_kernel(stream, adamw_any_kernel<T>, (unsigned)tiles, threads, 0, *all, spec,
                             (int)tiles);
    });
}

Part part_of(const AdamWPart &part) {
    return {.param = part.param.data,
            .m = data<float>(part.m),
            .v = data<float>(part.v),
            .copy = part.copy.data,
            .grad = data<float>(part.grad),
            .count = tensor_count(part.param),
            .lr = part.lr,
            .decay = part.decay,
            .keep_zeros = part.keep_zeros};
}

} // namespace

Status adamw_step_cuda(Stream *stream, const AdamWPart *part, int parts, AdamW spec) {
    const Coefficients step = {.beta1 = spec.beta1,
                               .beta2 = spec.beta2,
                               .rest1 = (float)(1 - (double)spec.beta1),
                               .rest2 = (float)(1 - (double)spec.beta2),
                               .eps = spec.eps,
                               .correct1 = (float)(1 / (double)spec.correction1),
                               .correct2 = (float)(1 / (double)spec.correction2),
                               .grad_scale = spec.grad_scale};
    for (int i = 0; i < parts;) {
        Parts all = {};
        const DType type = param_type(part[i].param, part[i].copy);
        for (; i < parts && all.parts < most_parts && param_type(part[i].param, part[i].copy) == type; i++)
            if (tensor_count(part[i].param)) all.part[all.parts++] = part_of(part[i]);
        if (all.parts) LAUNCH(update(stream, type, &all, step));
    }
    return OK;
}
