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

// table[index - start] += rows of dx, for the indices in its first `columns` rows.
Status add_by_index(Stream *stream, Tensor table, Tensor dx, Tensor index, int64_t start, int64_t columns) {
    const int64_t count = tensor_rows(dx), C = tensor_cols(dx);
    RowOrder order;
    void *partial;
    TRY(row_order(stream, index, count, start, columns, embedding_partial_bytes(count, C), &order, &partial));
    LAUNCH(with_packs(dx.dtype, aligned_16(dx, table), C, [&](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const int64_t tiles = (C + 32 * N - 1) / (32 * N), jobs = (count + window - 1) / window * tiles;
        const unsigned blocks = blocks_for(jobs, warps);
        cudaError_t error =
            launch_kernel(stream, token_windows_kernel<T, N>, blocks, threads, 0, data<float>(table),
                          (float *)partial, data<T>(dx), order, count, C, (uint32_t)columns, tiles, jobs);
        if (error != cudaSuccess) return error;
        return launch_kernel(stream, token_runs_kernel<N>, blocks, threads, 0, data<float>(table),
                             (float *)partial, order, count, C, (uint32_t)columns, tiles, jobs);
    }));
    return OK;
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

Status add_by_position(Stream *stream, Tensor dwpe, Tensor dx) {
    const int64_t count = dx.dim[1] * dx.dim[2];
    LAUNCH(with_packs(dx.dtype, aligned_16(dx, dwpe), count, [&](auto t, auto n) {
        using T = decltype(t);
        return launch_kernel(stream, position_kernel<T, n.value>, blocks_for(count, threads * n.value),
                             threads, 0, data<float>(dwpe), data<T>(dx), dx.dim[0], count, count);
    }));
    return OK;
}

Status add_by_type(Stream *stream, Tensor dwtype, Tensor dx, Tensor types) {
    const int64_t rows = tensor_rows(dx), C = tensor_cols(dx), kinds = types.data ? tensor_rows(dwtype) : 1;
    const int64_t needed = (rows + partial_lines - 1) / partial_lines;
    const int shares = (int)(needed < max_shares ? needed : max_shares);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)(max_shares * kinds * C) * sizeof(float), &workspace));
    float *partial = (float *)workspace;
    LAUNCH(with_packs(dx.dtype, aligned_16(dx), C, [&](auto t, auto n) {
        using T = decltype(t);
        return launch_kernel(stream, type_kernel<T, n.value>,
                             dim3(blocks_for(C, partial_columns * n.value), shares),
                             dim3(partial_columns, partial_lines), 0, partial, data<T>(dx),
                             data<int32_t>(types), rows, C, kinds);
    }));
    LAUNCH(add_partials(stream, Sums{{data<float>(dwtype)}, kinds * C}, 1, partial, shares));
    return OK;
}

} // namespace

Status embedding_forward_cuda(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor positions,
                              Tensor wte, Tensor wpe, Tensor wtype, VocabPart part) {
    const EmbeddingTables tables = {.wte = wte.data,
                                    .wpe = wpe.data,
                                    .wtype = wtype.data,
                                    .start = part.start,
                                    .tokens = vocab_columns(part, tensor_rows(wte)),
                                    .positions = wpe.data ? tensor_rows(wpe) : 0,
                                    .types = wtype.data ? tensor_rows(wtype) : 0};
    if (wte.dtype == DT_Q8 || wte.dtype == DT_Q4)
        return embedding_int8_cuda(stream, x, tokens, types, positions, wte, tables);
    // With a position per row, every row is a sequence of its own.
    const int64_t rows = x.dim[0] * x.dim[1], T = positions.ndim > 1 ? 1 : x.dim[1], C = x.dim[2];
    constexpr int few = 64; // few rows take less time with a block each
    const int lanes = rows <= few ? threads : 32;
    LAUNCH(with_packs(x.dtype, aligned_16(x, wte, wpe, wtype), C, [&](auto t, auto n) {
        using Type = decltype(t);
        return launch_chained(stream, forward_kernel<Type, n.value>, blocks_for(rows, threads / lanes),
                              threads, 0, data<Type>(x), data<int32_t>(tokens), data<int32_t>(types),
                              data<int32_t>(positions), tables, rows, T, C, lanes);
    }));
    return OK;
}

// Rows are sorted by token, so that every row of the table has one owner and its sum a fixed order. So are
// they by position, if positions are given.
Status embedding_backward_cuda(Stream *stream, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx,
                               Tensor tokens, Tensor types, Tensor positions, VocabPart part) {
    if (dwte.data)
        TRY(add_by_index(stream, dwte, dx, tokens, part.start, vocab_columns(part, tensor_rows(dwte))));
    if (dwpe.data && positions.data)
        TRY(add_by_index(stream, dwpe, dx, positions, 0, tensor_rows(dwpe)));
    else if (dwpe.data)
        TRY(add_by_position(stream, dwpe, dx));
    if (dwtype.data) TRY(add_by_type(stream, dwtype, dx, types));
    return OK;
}
