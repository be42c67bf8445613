// Embeddings: sums of rows of three tables, and their gradients.
//
// The gradient of the token table adds rows of dx that have the same token. Positions are sorted by token.
// A warp takes a window of 32 of them, for some columns, and adds its runs of equal tokens in order. A run
// within the window is added to the table at once. A run that continues in another window leaves its sum in
// `partial` (windows, 2, C): at 0 if it started in an earlier window, else at 1. The window in which the
// run starts then adds all of it, in order. This way a token that occurs thousands of times is summed by
// many warps.
#include "kernels/cuda/row.cuh"

namespace {

constexpr int threads = 128, warps = threads / 32, window = TOKEN_WINDOW;

// ---- forward ----

// `lanes` threads process a row.
template <typename T, int N>
__global__ void forward_kernel(T *x, const int32_t *tokens, const int32_t *types, const int32_t *past,
                               EmbeddingTables tables, int64_t rows, int64_t positions, int64_t C,
                               int lanes) {
    chain_next();
    chain_wait();
    int64_t r = blockIdx.x * (int64_t)(threads / lanes) + threadIdx.x / lanes;
    if (r >= rows) return;
    int64_t token = tokens[r] - tables.start, type = types ? types[r] : 0;
    int64_t position = r % positions + (past ? past[r / positions] : 0);
    const T *wte = token >= 0 && token < tables.tokens ? (const T *)tables.wte + token * C : nullptr;
    const T *wpe =
        position >= 0 && position < tables.positions ? (const T *)tables.wpe + position * C : nullptr;
    const T *wtype = type >= 0 && type < tables.types ? (const T *)tables.wtype + type * C : nullptr;
    for (int64_t c = threadIdx.x % lanes * N; c < C; c += lanes * N) {
        Pack<T, N> a, b, d, out;
        if (wte) a = load_pack<T, N>(wte + c);
        if (wpe) b = load_pack<T, N>(wpe + c);
        if (wtype) d = load_pack<T, N>(wtype + c);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float total = wte ? to_float(a.at[i]) : 0.0f;
            if (wpe) total += to_float(b.at[i]);
            if (wtype) total += to_float(d.at[i]);
            out.at[i] = from_float<T>(total);
        }
        store_pack(x + r * C + c, out);
    }
}

// ---- tokens ----

template <int N> __device__ inline void add_to(float *row, const float (&sum)[N]) {
    Pack<float, N> pack = load_pack<float, N>(row);
#pragma unroll
    for (int i = 0; i < N; i++) pack.at[i] += sum[i];
    store_pack(row, pack);
}

template <typename T, int N>
__global__ void __launch_bounds__(threads)
    token_windows_kernel(float *dwte, float *partial, const T *dx, RowOrder order, int64_t count, int64_t C,
                         uint32_t columns, int64_t tiles, int64_t jobs) {
    constexpr int IN_FLIGHT = 8;
    int64_t job = blockIdx.x * (int64_t)warps + threadIdx.x / 32;
    if (job >= jobs) return;
    const int lane = threadIdx.x % 32;
    const int64_t at = job / tiles, c = (job % tiles * 32 + lane) * N, first = at * window;
    const int length = (int)(count - first < window ? count - first : window);
    uint32_t my_key = columns, my_row = 0;
    if (lane < length) {
        my_key = order.sorted[first + lane];
        my_row = order.from[first + lane];
    }
    uint32_t before = first > 0 ? order.sorted[first - 1] : columns;
    uint32_t after = first + length < count ? order.sorted[first + length] : columns;
    bool starts_here = false; // the current run started in this window
    float sum[N] = {};
    for (int base = 0; base < length; base += IN_FLIGHT) {
        Pack<T, N> pack_of_row[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            uint32_t key = __shfl_sync(full_warp, my_key, base + j);
            int64_t row = __shfl_sync(full_warp, my_row, base + j);
            if (key != columns && c < C) pack_of_row[j] = load_pack<T, N>(dx + row * C + c);
        }
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            int in = base + j; // lanes past the end have the key `columns`, which is skipped
            uint32_t key = __shfl_sync(full_warp, my_key, in);
            uint32_t next = in + 1 < length ? __shfl_sync(full_warp, my_key, (in + 1) % 32) : after;
            if (key == columns) continue;
            if (in == 0) starts_here = before != key;
            if (c < C) {
#pragma unroll
                for (int i = 0; i < N; i++) sum[i] += to_float(pack_of_row[j].at[i]);
            }
            if (next == key && in + 1 < length) continue;
            bool continues = next == key;
            if (c < C) {
                if (starts_here && !continues) {
                    add_to<N>(dwte + key * C + c, sum);
                } else {
                    float *to = partial + (at * 2 + starts_here) * C + c;
#pragma unroll
                    for (int i = 0; i < N; i++) to[i] = sum[i];
                }
            }
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] = 0;
            starts_here = true;
        }
    }
}

// Adds the runs that continue past the window in which they start.
template <int N>
__global__ void __launch_bounds__(threads)
    token_runs_kernel(float *dwte, const float *partial, RowOrder order, int64_t count, int64_t C,
                      uint32_t columns, int64_t tiles, int64_t jobs) {
    int64_t job = blockIdx.x * (int64_t)warps + threadIdx.x / 32;
    if (job >= jobs) return;
    const int lane = threadIdx.x % 32;
    const int64_t at = job / tiles, c = (job % tiles * 32 + lane) * N, first = at * window;
    if (first + window >= count) return;
    const uint32_t *sorted = order.sorted;
    uint32_t key = sorted[first + window - 1];
    bool began_before = first > 0 && sorted[first - 1] == key; // then the whole window has this key
    if (key == columns || sorted[first + window] != key || began_before) return;
    int64_t later = 0; // number of later windows that the run reaches into
    for (;;) {
        int64_t next = (at + 1 + later + lane) * window;
        unsigned part = __ballot_sync(full_warp, next < count && sorted[next] == key);
        if (part != full_warp) {
            later += __ffs(~part) - 1;
            break;
        }
        later += 32;
    }
    if (c >= C) return;
    float sum[N];
    Pack<float, N> own = load_pack<float, N>(partial + (at * 2 + 1) * C + c);
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] = own.at[i];
#pragma unroll 4
    for (int64_t w = at + 1; w <= at + later; w++) {
        Pack<float, N> pack = load_pack<float, N>(partial + w * 2 * C + c);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] += pack.at[i];
    }
    add_to<N>(dwte + key * C + c, sum);
}

template <typename T, int N>
cudaError_t token_gradient(cudaStream_t stream, float *dwte, const T *dx, RowOrder order, int64_t count,
                           int64_t C, int64_t columns, float *partial) {
    int64_t tiles = (C + 32 * N - 1) / (32 * N), jobs = (count + window - 1) / window * tiles;
    unsigned blocks = blocks_for(jobs, warps);
    token_windows_kernel<T, N>
        <<<blocks, threads, 0, stream>>>(dwte, partial, dx, order, count, C, (uint32_t)columns, tiles, jobs);
    token_runs_kernel<N>
        <<<blocks, threads, 0, stream>>>(dwte, partial, order, count, C, (uint32_t)columns, tiles, jobs);
    return cudaGetLastError();
}

// ---- positions ----

template <typename T, int N>
__global__ void position_kernel(float *dwpe, const T *dx, int64_t B, int64_t row, int64_t count) {
    int64_t i = (blockIdx.x * (int64_t)threads + threadIdx.x) *
                N; // index into (T, C); `row` is the size of a sequence
    if (i >= count) return;
    float sum[N] = {};
#pragma unroll 4
    for (int64_t b = 0; b < B; b++) {
        Pack<T, N> pack = load_pack<T, N>(dx + b * row + i);
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] += to_float(pack.at[j]);
    }
    add_to<N>(dwpe + i, sum);
}

// ---- types ----

constexpr int max_shares = 64;

// Column sums of blockIdx.y's share of the rows, one type after another.
template <typename T, int N>
__global__ void type_kernel(float *partial, const T *dx, const int32_t *types, int64_t rows, int64_t C,
                            int64_t kinds) {
    __shared__ float buffer[partial_lines][partial_columns * N];
    int64_t share = (rows + gridDim.y - 1) / gridDim.y, from = blockIdx.y * share;
    int64_t to = from + share < rows ? from + share : rows;
    int64_t c = (blockIdx.x * (int64_t)partial_columns + threadIdx.x) * N;
    for (int64_t kind = 0; kind < kinds; kind++) {
        float sum[N] = {};
        for (int64_t r = from + threadIdx.y; c < C && r < to; r += partial_lines) {
            if (types && types[r] != kind) continue;
            Pack<T, N> pack = load_pack<T, N>(dx + r * C + c);
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] += to_float(pack.at[i]);
        }
#pragma unroll
        for (int i = 0; i < N; i++) buffer[threadIdx.y][threadIdx.x * N + i] = sum[i];
        __syncthreads();
        if (threadIdx.y == 0 && c < C) {
            for (int line = 1; line < partial_lines; line++)
#pragma unroll
                for (int i = 0; i < N; i++) sum[i] += buffer[line][threadIdx.x * N + i];
#pragma unroll
            for (int i = 0; i < N; i++) partial[(blockIdx.y * kinds + kind) * C + c + i] = sum[i];
        }
        __syncthreads();
    }
}

} // namespace

cudaError_t launch_embedding_forward(cudaStream_t stream, DType type, void *x, const int32_t *tokens,
                                     const int32_t *types, const int32_t *past, EmbeddingTables tables,
                                     int64_t rows, int64_t positions, int64_t C) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        constexpr int N = pack_size<T>, few = 64; // few rows take less time with a block each
        bool wide = C % N == 0 && aligned_16(x, tables.wte, tables.wpe, tables.wtype);
        int lanes = rows <= few ? threads : 32;
        return launch_chained(stream, wide ? forward_kernel<T, N> : forward_kernel<T, 1>,
                              blocks_for(rows, threads / lanes), threads, 0, (T *)x, tokens, types, past,
                              tables, rows, positions, C, lanes);
    });
}

cudaError_t launch_token_gradient(cudaStream_t stream, DType type, float *dwte, const void *dx,
                                  RowOrder order, int64_t count, int64_t C, int64_t columns, float *partial) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        constexpr int N = pack_size<T>;
        if (C % N == 0 && aligned_16(dx, dwte))
            return token_gradient<T, N>(stream, dwte, (const T *)dx, order, count, C, columns, partial);
        return token_gradient<T, 1>(stream, dwte, (const T *)dx, order, count, C, columns, partial);
    });
}

cudaError_t launch_position_gradient(cudaStream_t stream, DType type, float *dwpe, const void *dx, int64_t B,
                                     int64_t positions, int64_t C) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        constexpr int N = pack_size<T>;
        int64_t count = positions * C;
        if (count % N == 0 && aligned_16(dx, dwpe))
            position_kernel<T, N><<<blocks_for(count, threads * N), threads, 0, stream>>>(dwpe, (const T *)dx,
                                                                                          B, count, count);
        else
            position_kernel<T, 1>
                <<<blocks_for(count, threads), threads, 0, stream>>>(dwpe, (const T *)dx, B, count, count);
        return cudaGetLastError();
    });
}

size_t type_partial_bytes(int64_t kinds, int64_t C) {
    return (size_t)max_shares * (size_t)kinds * (size_t)C * sizeof(float);
}

cudaError_t launch_type_gradient(cudaStream_t stream, DType type, float *dwtype, const void *dx,
                                 const int32_t *types, int64_t rows, int64_t C, int64_t kinds,
                                 float *partial) {
    int64_t needed = (rows + partial_lines - 1) / partial_lines;
    int shares = (int)(needed < max_shares ? needed : max_shares);
    dim3 shape(partial_columns, partial_lines);
    cudaError_t error = with_type(type, [&](auto t) {
        using T = decltype(t);
        constexpr int N = pack_size<T>;
        if (C % N == 0 && aligned_16(dx))
            type_kernel<T, N><<<dim3(blocks_for(C, partial_columns * N), shares), shape, 0, stream>>>(
                partial, (const T *)dx, types, rows, C, kinds);
        else
            type_kernel<T, 1><<<dim3(blocks_for(C, partial_columns), shares), shape, 0, stream>>>(
                partial, (const T *)dx, types, rows, C, kinds);
        return cudaGetLastError();
    });
    if (error != cudaSuccess) return error;
    return add_partials(stream, Sums{{dwtype}, kinds * C}, 1, partial, shares);
}
