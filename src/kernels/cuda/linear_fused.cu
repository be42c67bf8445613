// Linear layers of up to 16 rows with 16-bit, int8 or int4 weights, together with the norm before and the
// gated activation or residual after: y = res + act(norm(x) w^T + bias). In generation a kernel mostly waits:
// for the previous one, for its rows, for each of its own steps. So fewer kernels are faster.
//
// A block computes TILES x 8 columns (of a gated layer, half as many of gate and of up); its warps split the
// inner dimension, as in linear_few.cu. linear_fused.cuh has the rest, linear_stream.cu another kernel for
// large layers.
#include "kernels/cuda/linear_fused.cuh"

namespace {

constexpr int deep_from = 2048; // inner dimension from which blocks have 16 warps, as in linear_few.cu
constexpr int default_shared = 48 << 10; // bytes that need no permission
constexpr int chain_carveout = 58;       // percent of the L1 cache: 132 KB on Hopper

// The columns of a block. Tiles from `half` on are those of `up`.
template <int TILES> struct Columns {
    int first, half;
    __device__ explicit Columns(const CudaFused &call) {
        half = call.gated ? TILES / 2 : TILES;
        first = (int)blockIdx.x * half * tile;
    }
    __device__ int width() const { return half * tile; }
    // The row of w with which tile i starts. Tiles beyond the last one are not used, and replaced by that.
    __device__ int weight_row(const CudaFused &call, int i) const {
        const int col = min(first + (i < half ? i : i - half) * tile, call.cols - tile);
        return i < half ? col : col + call.cols;
    }
};

// Blocks per multiprocessor, so that those of two kernels fit: while one computes, the next loads weights.
template <int BITS, int WARPS, int TILES> constexpr int blocks_at_once() {
    return WARPS == 16 && TILES == 2 ? 1 : 2;
}

// The result of one element, before the residual. A sum is rounded before its activation.
template <typename T, int BITS, int WARPS, int TILES, bool NORM>
__device__ inline T element(const CudaFused &call, const Shared &at, const Columns<TILES> &columns, int row,
                            int col) {
    constexpr int width = TILES * tile;
    float value = total_of<T, BITS, WARPS, NORM>(call, at, row, col, width);
    if (call.act != ACT_NONE) {
        value = to_float(from_float<T>(value));
        value = act_of(call.act, value);
    }
    if (!call.gated) return from_float<T>(value);
    const float up = total_of<T, BITS, WARPS, NORM>(call, at, row, columns.width() + col, width);
    return from_float<T>(value * to_float(from_float<T>(up)));
}

template <typename T, int BITS, int WARPS, int TILES, bool NORM>
__global__ void __launch_bounds__(WARPS * 32, blocks_at_once<BITS, WARPS, TILES>())
    fused_kernel(CudaFused call) {
    constexpr int threads = WARPS * 32;
    extern __shared__ uint4 memory[];
    const Shared at(reinterpret_cast<char *>(memory), call, WARPS, TILES * tile);
    const Columns<TILES> columns(call);
    auto row_of = [&](int i) { return columns.weight_row(call, i); };
    Products<T, BITS, WARPS, TILES, NORM> products(call);
    chain_next();
    products.load(call, row_of, products.first);
    products.convert(call);
    load_constants<T, BITS, TILES>(call, at, row_of);
    if (scaled<BITS, NORM>) products.power = store_lines<T, BITS>(call, at, products.range());
    const Share share(call, products.range());
    float part = 1.0f / (float)call.inner;
    asm volatile("" : "+f"(part)); // now: a division takes a hundred cycles
    __syncthreads();
    chain_wait();

    // Output i of the block. Divisions by constants take fewer instructions.
    auto row_at = [&](int i) { return call.gated ? i / (TILES * tile / 2) : i / (TILES * tile); };
    const int outputs = columns.width(), own_row = row_at((int)threadIdx.x),
              own_col = (int)threadIdx.x - own_row * outputs;
    T own_res = from_float<T>(0);
    if (call.res && own_row < call.rows && columns.first + own_col < call.cols)
        own_res = ((const T *)call.res)[own_row * call.cols + columns.first + own_col];
    share.copy(call, at);
    products.run(call, at, row_of);
    __syncthreads();
    if (NORM) sum_norm<WARPS>(call, at, part, TILES * tile);
#pragma unroll 1
    for (int i = threadIdx.x; i < call.rows * outputs; i += threads) {
        const int row = row_at(i), col = i - row * outputs, to = row * call.cols + columns.first + col;
        if (columns.first + col >= call.cols) continue;
        T out = element<T, BITS, WARPS, TILES, NORM>(call, at, columns, row, col);
        if (call.res) {
            const T res = i == (int)threadIdx.x ? own_res : ((const T *)call.res)[to];
            out = from_float<T>(to_float(res) + to_float(out));
        }
        ((T *)call.y)[to] = out;
    }
}

template <typename T, int BITS, int WARPS, int TILES, bool NORM>
cudaError_t start(cudaStream_t stream, const CudaFused &call) {
    auto kernel = fused_kernel<T, BITS, WARPS, TILES, NORM>;
    int bytes = Shared(nullptr, call, WARPS, TILES * tile).bytes;
    int columns = (call.gated ? TILES / 2 : TILES) * tile;
    cudaError_t error = cudaSuccess;
    if (bytes > default_shared)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    // A multiprocessor must be idle to change how much of its L1 cache is shared memory. With more rows,
    // kernels would otherwise prefer different sizes, and wait for each other.
    const int carveout = call.rows > 4 ? chain_carveout : (int)cudaSharedmemCarveoutDefault;
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, carveout);
    if (error != cudaSuccess) return error;
    return launch_recorded(stream, kernel, blocks_for(call.cols, columns), WARPS * 32, (size_t)bytes, call);
}

int warps_for(const CudaFused &call) {
    return call.inner >= deep_from ? 16 : 8;
}

// One block per multiprocessor, if possible: each block copies all rows, and two kernels should fit.
int tiles_for(const CudaFused &call) {
    int tiles = call.cols / tile * (call.gated ? 2 : 1), count = (tiles + processors() - 1) / processors();
    int most = warps_for(call) == 8 && call.gamma ? 4 : 2;
    if (call.gated && count % 2) count++;
    return count < 1 ? 1 : count < most ? count : most;
}

template <typename T, int BITS, int WARPS, bool NORM>
cudaError_t launch_narrow(cudaStream_t stream, const CudaFused &call, int tiles) {
    return tiles == 1 ? start<T, BITS, WARPS, 1, NORM>(stream, call)
                      : start<T, BITS, WARPS, 2, NORM>(stream, call);
}

template <typename T, int BITS> cudaError_t launch(cudaStream_t stream, const CudaFused &call) {
    const int tiles = tiles_for(call);
    const bool deep = warps_for(call) == 16;
    if (!call.gamma)
        return deep ? launch_narrow<T, BITS, 16, false>(stream, call, tiles)
                    : launch_narrow<T, BITS, 8, false>(stream, call, tiles);
    if (deep) return launch_narrow<T, BITS, 16, true>(stream, call, tiles);
    if (tiles == 3) return start<T, BITS, 8, 3, true>(stream, call);
    if (tiles == 4) return start<T, BITS, 8, 4, true>(stream, call);
    return launch_narrow<T, BITS, 8, true>(stream, call, tiles);
}

} // namespace

static bool is_streamed(const CudaFused *call) {
    return call->streamed && cuda_limits().capability >= 80 && linear_stream_runs(call, shared_limit());
}

bool linear_fused_runs(const CudaFused *call) {
    bool is_16_bit = call->type == DT_BF16 || call->type == DT_F16;
    if (!is_16_bit || !has_mma(call->type) || call->rows > max_rows || call->inner % 64 != 0 ||
        call->cols % tile != 0 || !aligned_16(call->x, call->w, call->gamma, call->beta, call->res))
        return false;
    if (is_streamed(call)) return true;
    return Shared(nullptr, *call, warps_for(*call), tiles_for(*call) * tile).bytes <= shared_limit();
}

cudaError_t launch_linear_fused(cudaStream_t stream, const CudaFused *call) {
    if (is_streamed(call)) return launch_linear_stream(stream, call, shared_limit());
    return with_type(call->type, [&](auto t) {
        using T = decltype(t);
        if constexpr (sizeof(T) == 2) {
            if (call->bits == 8) return launch<T, 8>(stream, *call);
            if (call->bits == 4) return launch<T, 4>(stream, *call);
            return launch<T, 16>(stream, *call);
        } else {
            return cudaErrorInvalidValue;
        }
    });
}
