// Rotary position embedding. A block takes a token, so it reads one row of the table; a thread rotates N
// pairs of elements at a time.
#include "kernels/cuda/chain.cuh"

namespace {

constexpr int threads = 128;

// Rotates heads first .. first + count - 1 of x (B,T,heads,D).
struct Rope {
    void *x;
    const float *table;       // (table_rows,R)
    const int32_t *positions; // (B), (B,T) if `each`, or NULL
    bool each;
    int64_t origin, tokens, T, heads, first, count, D, R, table_rows;
    float sign; // -1: backward
};

// The position of a token, or -1 if it is not in the table, as row_position of backend.h.
__device__ inline int64_t position_of(const Rope &in, int64_t token) {
    int64_t at = in.origin + token % in.T;
    if (in.positions) at = in.each ? in.positions[token] : at + in.positions[token / in.T];
    return at >= 0 && at < in.table_rows ? at : -1;
}

template <int N> __device__ inline void load_floats(float (&to)[N], const float *from) {
    constexpr int STEP = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += STEP) {
        Pack<float, STEP> pack = load_pack<float, STEP>(from + i);
#pragma unroll
        for (int k = 0; k < STEP; k++) to[i + k] = pack.at[k];
    }
}

template <typename T, int N> __global__ void __launch_bounds__(threads) rope_kernel(Rope in) {
    const int half = (int)(in.R / 2), per_head = half / N, all = per_head * (int)in.count;
    chain_next();
    chain_wait();
    const int64_t at = position_of(in, blockIdx.x);
    if (at < 0) return;
    const float *row = in.table + at * in.R;
    T *heads = (T *)in.x + (blockIdx.x * in.heads + in.first) * in.D;
    for (int i = threadIdx.x; i < all; i += threads) {
        int pair = i % per_head * N;
        T *first = heads + (int64_t)(i / per_head) * in.D + pair, *second = first + half;
        Pack<T, N> a = load_pack<T, N>(first), b = load_pack<T, N>(second);
        float c[N], s[N], out_a[N], out_b[N];
        load_floats(c, row + pair);
        load_floats(s, row + half + pair);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float x = to_float(a.at[k]), y = to_float(b.at[k]), sine = s[k] * in.sign;
            out_a[k] = x * c[k] - y * sine;
            out_b[k] = y * c[k] + x * sine;
        }
        store_pack(first, pack_of<T>(out_a));
        store_pack(second, pack_of<T>(out_b));
    }
}

Status rope(Stream *stream, Tensor x, Tensor table, Tensor positions, int64_t origin, HeadRange heads,
            float sign) {
    const Rope rope = {
        .x = x.data,
        .table = data<float>(table),
        .positions = data<int32_t>(positions),
        .each = positions.ndim == 2,
        .origin = origin,
        .tokens = x.dim[0] * x.dim[1],
        .T = x.dim[1],
        .heads = x.dim[2],
        .first = heads.first,
        .count = heads.count ? heads.count : x.dim[2],
        .D = x.dim[3],
        .R = tensor_cols(table),
        .table_rows = tensor_rows(table),
        .sign = sign,
    };
    cudaError_t error = with_type(x.dtype, [&](auto t) {
        using T = decltype(t);
        constexpr int N = pack_size<T>;
        bool packs = rope.R % (2 * N) == 0 && rope.D % N == 0 && aligned_16(x, table);
        auto kernel = packs ? rope_kernel<T, N> : rope_kernel<T, 1>;
        return launch_chained(stream, kernel, (unsigned)rope.tokens, threads, 0, rope);
    });
    return cuda_status(error, __func__);
}

} // namespace

Status rope_forward_cuda(Stream *stream, Tensor x, Tensor table, Tensor positions, int64_t origin,
                         HeadRange heads) {
    return rope(stream, x, table, positions, origin, heads, 1);
}

Status rope_backward_cuda(Stream *stream, Tensor dx, Tensor table, Tensor positions, int64_t origin,
                          HeadRange heads) {
    return rope(stream, dx, table, positions, origin, heads, -1);
}
