// Parameters in memory, as updates read and write them: fp32 with a copy in the compute type, or the two
// halves of fp32 values (f32_halves).
#ifndef WEFT_KERNELS_CUDA_PARAM_CUH
#define WEFT_KERNELS_CUDA_PARAM_CUH

#include "kernels/cuda/ptx.cuh"

constexpr int param_pack = 4;
using ParamPack = Pack<float, param_pack>;

// Type of copies if parameters are stored in halves: the copies are the upper halves.
struct Upper {
    uint16_t bits;
};

__device__ inline float join(uint32_t upper, uint32_t rest) {
    return __uint_as_float((upper << 16) + (uint32_t)(int)(int16_t)rest);
}
__device__ inline uint32_t upper_half(float x) {
    uint32_t bits = __float_as_uint(x);
    return (isnan(x) ? bits | 0x400000 : bits + 0x8000) >> 16;
}

// fp32 with a copy in T, which may be NULL, or halves. Packs have N elements, 1 or param_pack. `fetch` copies
// one to shared memory, in a form that `unpack` reads.
template <typename T> struct Param {
    float *param;
    T *copy;
    Param() = default;
    __host__ __device__ Param(void *p, void *c) : param((float *)p), copy((T *)c) {}
    __device__ inline float get(int64_t i) const { return param[i]; }
    __device__ inline void put(int64_t i, float x) const {
        param[i] = x;
        if (copy) copy[i] = from_float<T>(x);
    }
    template <int N> __device__ inline Pack<float, N> load(int64_t i) const {
        return load_pack<float, N>(param + i);
    }
    template <int N> __device__ inline void put(int64_t i, const Pack<float, N> &x) const {
        store_pack(param + i, x);
        if (copy) store_pack(copy + i, pack_of<T>(x.at));
    }
    __device__ inline void fetch(ParamPack &to, int64_t i) const { copy_async16(&to, param + i); }
    __device__ inline static ParamPack unpack(const ParamPack &from) { return from; }
};

template <> struct Param<Upper> {
    uint16_t *rest, *upper;
    Param() = default;
    __host__ __device__ Param(void *p, void *c) : rest((uint16_t *)p), upper((uint16_t *)c) {}
    __device__ inline float get(int64_t i) const { return join(upper[i], rest[i]); }
    __device__ inline void put(int64_t i, float x) const {
        upper[i] = (uint16_t)upper_half(x);
        rest[i] = (uint16_t)__float_as_uint(x);
    }
    template <int N> __device__ inline Pack<float, N> load(int64_t i) const {
        if constexpr (N == param_pack) {
            uint2 high = *(const uint2 *)(upper + i), low = *(const uint2 *)(rest + i);
            return unpack({__uint_as_float(high.x), __uint_as_float(high.y), __uint_as_float(low.x),
                           __uint_as_float(low.y)});
        } else {
            return {get(i)};
        }
    }
    template <int N> __device__ inline void put(int64_t i, const Pack<float, N> &x) const {
        if constexpr (N == param_pack) {
            uint32_t high[N], low[N];
#pragma unroll
            for (int j = 0; j < N; j++) high[j] = upper_half(x.at[j]), low[j] = __float_as_uint(x.at[j]);
            *(uint2 *)(upper + i) = make_uint2(high[0] | high[1] << 16, high[2] | high[3] << 16);
            *(uint2 *)(rest + i) =
                make_uint2(__byte_perm(low[0], low[1], 0x5410), __byte_perm(low[2], low[3], 0x5410));
        } else {
            put(i, x.at[0]);
        }
    }
    __device__ inline void fetch(ParamPack &to, int64_t i) const {
        copy_async8(&to.at[0], upper + i);
        copy_async8(&to.at[2], rest + i);
    }
    __device__ inline static ParamPack unpack(const ParamPack &from) {
        ParamPack x;
#pragma unroll
        for (int j = 0; j < param_pack; j++) {
            uint32_t high = __float_as_uint(from.at[j / 2]), low = __float_as_uint(from.at[2 + j / 2]);
            x.at[j] = j % 2 ? join(high >> 16, low >> 16) : join(high & 0xffff, low & 0xffff);
        }
        return x;
    }
};

// The type for Param: that of the copies, or DT_F32_LOWER.
inline DType param_type(Tensor param, Tensor copy) {
    if (param.dtype == DT_F32_LOWER) return DT_F32_LOWER;
    return copy.data ? copy.dtype : DT_F32;
}
// Calls f with an object of the type for Param, Upper for DT_F32_LOWER.
template <typename F> inline cudaError_t with_param(DType type, F f) {
    return type == DT_F32_LOWER ? f(Upper()) : with_type(type, f);
}

#endif
