// What kernels that quantize bf16 to fp8 share; see fp8.cu.
#ifndef WEFT_KERNELS_CUDA_FP8_CUH
#define WEFT_KERNELS_CUDA_FP8_CUH

#include "kernels/cuda/act.cuh"
#include "kernels/cuda/device.cuh"

namespace {

// Maxima of magnitudes of bf16 values: of those in even and in odd positions.
__device__ inline uint32_t larger(uint32_t amax, uint4 pack) {
    constexpr uint32_t magnitude = 0x7fff7fffu;
    amax = __vmaxu2(amax, __vmaxu2(pack.x & magnitude, pack.y & magnitude));
    return __vmaxu2(amax, __vmaxu2(pack.z & magnitude, pack.w & magnitude));
}

// Bits of an infinity or a NaN become those of the largest NaN, for which no larger value exists. `recorded`
// is what the record held some time before, which may save the atomic operation.
__device__ inline void record_amax(uint32_t *record, uint32_t bf16_bits, uint32_t recorded) {
    uint32_t bits = bf16_bits >= 0x7f80u ? 0x7fffffffu : bf16_bits << 16;
    if (bits > recorded) atomicMax(record, bits);
}
__device__ inline void record_amax(uint32_t *record, uint32_t bf16_bits) {
    record_amax(record, bf16_bits, *(volatile uint32_t *)record);
}

// Four values as four bytes, the first in the lowest.
template <Act ACT, __nv_fp8_interpretation_t TYPE>
__device__ inline uint32_t quantize_four(uint32_t low, uint32_t high, float inverse_scale) {
    float value[4] = {__uint_as_float(low << 16), __uint_as_float(low & 0xffff0000u),
                      __uint_as_float(high << 16), __uint_as_float(high & 0xffff0000u)};
#pragma unroll
    for (int i = 0; i < 4; i++) value[i] = act_value<ACT>(value[i]) * inverse_scale;
    uint32_t first = __nv_cvt_float2_to_fp8x2(make_float2(value[0], value[1]), __NV_SATFINITE, TYPE);
    uint32_t second = __nv_cvt_float2_to_fp8x2(make_float2(value[2], value[3]), __NV_SATFINITE, TYPE);
    return first | second << 16;
}

// Byte j of row i becomes byte i of word j.
__device__ inline void transpose_bytes(const uint32_t row[4], uint32_t word[4]) {
    uint32_t low01 = __byte_perm(row[0], row[1], 0x5140), low23 = __byte_perm(row[2], row[3], 0x5140);
    uint32_t high01 = __byte_perm(row[0], row[1], 0x7362), high23 = __byte_perm(row[2], row[3], 0x7362);
    word[0] = __byte_perm(low01, low23, 0x5410);
    word[1] = __byte_perm(low01, low23, 0x7632);
    word[2] = __byte_perm(high01, high23, 0x5410);
    word[3] = __byte_perm(high01, high23, 0x7632);
}

} // namespace

#endif
