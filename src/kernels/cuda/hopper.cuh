// Building blocks of kernels for Hopper: mbarriers, TMA copies, and warpgroup products (wgmma).
//
// A tile is a number of rows of 64 16-bit elements in shared memory: 128 bytes per row, with 16-byte chunks
// swizzled by the row (chunk ^ row % 8), as TMA writes and wgmma reads them. Tiles are 1024-byte aligned.
//
// The result D (64 x N) of a warpgroup's product is fp32 in registers. With g = lane / 4 and t = lane % 4, a
// lane of warp w holds rows 16 w + g and 16 w + g + 8 of columns 8 n + 2 t and 8 n + 2 t + 1 as d[4 n .. 4 n
// + 3]. Rounded in pairs, they are the left operand of the next product.
#ifndef WEFT_KERNELS_CUDA_HOPPER_CUH
#define WEFT_KERNELS_CUDA_HOPPER_CUH

#include <cuda.h>
#include <cudaTypedefs.h>

#include "kernels/cuda/barrier.cuh"

namespace hopper {

constexpr int width = 64, row_bytes = 2 * width; // of a tile

// wgmma and setmaxnreg need this very target; for any other the kernels are compiled empty.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool is_target = true;
#else
constexpr bool is_target = false;
#endif

// ---- host: tensor maps ----

// Describes a tensor of `rank` dims, the innermost first, to TMA, to be loaded in boxes. Strides are in
// bytes, without the innermost; elements past the end read as 0. The driver's function is looked up at run
// time, because weft also runs on machines without a driver to link against.
inline bool map_boxes(CUtensorMap *map, DType type, const void *data, int rank, const cuuint64_t *dims,
                      const cuuint64_t *strides, const cuuint32_t *box) {
    static PFN_cuTensorMapEncodeTiled_v12000 encode = [] {
        void *found = nullptr;
        cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
        cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                             cudaEnableDefault, &result);
#else
        cudaError_t error =
            cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
        return error == cudaSuccess && result == cudaDriverEntryPointSuccess
                   ? (PFN_cuTensorMapEncodeTiled_v12000)found
                   : nullptr;
    }();
    const cuuint32_t steps[] = {1, 1, 1, 1, 1};
    return encode &&
           encode(map, type == DT_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                  (cuuint32_t)rank, (void *)data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// ---- barriers ----

// Arrives, and makes the phase wait for `bytes` of copies as well.
__device__ inline void barrier_expect(uint64_t *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}
__device__ inline void barriers_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Makes this thread's writes to shared memory visible to TMA and wgmma.
__device__ inline void fence_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A position in a ring of STAGES slots and the barrier parity of the current pass.
template <int STAGES> struct Ring {
    int slot = 0;
    uint32_t parity = 0;
    __device__ inline void next() {
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
    __device__ inline void skip(int count) {
        slot += count;
        parity ^= slot / STAGES & 1;
        slot %= STAGES;
    }
};

// ---- copies ----

__device__ inline void copy_bytes(void *to, const void *from, int bytes, uint64_t *barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
__device__ inline void store_bytes(void *to, const void *from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}
__device__ inline void add_floats(float *to, const float *from, int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}
__device__ inline void stores_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void stores_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ inline void stores_done() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// ---- registers ----

template <int COUNT> __device__ inline void registers_up() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ inline void registers_down() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- products ----

// The wgmma descriptor of a tile: 128-byte swizzle, 1024 bytes from one group of 8 rows to the next. For
// operands of two tiles, `apart` is the distance between them in bytes.
__device__ inline uint64_t tile_of(const void *tile, int apart = 16) {
    uint64_t at = (shared_address(tile) & 0x3FFFF) >> 4;
    return at | (uint64_t)(apart >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
// Descriptor offsets of the next 16 columns and of the next 16 rows.
constexpr uint64_t next_columns = 32 >> 4, next_rows = 16 * row_bytes >> 4;

__device__ inline void products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> __device__ inline void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Keeps ptxas from moving the next wait above the computation of `never`, a condition that is almost never
// true: a wait has no operands, so ptxas would place it first and nothing would overlap with the products.
// Only a branch prevents that.
__device__ inline void settle(bool never) {
    if (never) asm volatile("nanosleep.u32 1;" ::: "memory");
}
// Keeps the compiler from moving uses of the result above the preceding wait.
template <int N> __device__ inline void hold(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#define WEFT_D_4(d, i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WEFT_D_16(d, i) WEFT_D_4(d, i), WEFT_D_4(d, i + 4), WEFT_D_4(d, i + 8), WEFT_D_4(d, i + 12)
#define WEFT_D_NAMES_32                                                                                      \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,"    \
    "%27,%28,%29,%30,%31}"
#define WEFT_D_NAMES_64                                                                                      \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,"    \
    "%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,"   \
    "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define WEFT_D_NAMES_128                                                                                     \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,"        \
    "%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,"       \
    "%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,"       \
    "%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,"       \
    "%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,"          \
    "%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}"

// One wgmma: d [+]= a b. _32 and _64 have that many values of d per lane, so 64 and 128 columns. `add` names
// the operand that tells whether to add, `flags` which operands in shared memory are transposed.
#define WEFT_WGMMA(shape, type, names, add, operands, flags)                                                 \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\n"                                                         \
    "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " " names ", " operands ", p, 1, 1, " flags  \
    ";\n}"
#define WEFT_WGMMA_32(type, flags)                                                                           \
    asm volatile(WEFT_WGMMA("m64n64k16", type, WEFT_D_NAMES_32, "%34", "%32, %33", flags)                    \
                 : WEFT_D_16(d, 0), WEFT_D_16(d, 16)                                                         \
                 : "l"(a), "l"(b), "r"(add))
#define WEFT_WGMMA_64(type, flags)                                                                           \
    asm volatile(WEFT_WGMMA("m64n128k16", type, WEFT_D_NAMES_64, "%66", "%64, %65", flags)                   \
                 : WEFT_D_16(d, 0), WEFT_D_16(d, 16), WEFT_D_16(d, 32), WEFT_D_16(d, 48)                     \
                 : "l"(a), "l"(b), "r"(add))
#define WEFT_WGMMA_32_REGISTERS(type)                                                                        \
    asm volatile(WEFT_WGMMA("m64n64k16", type, WEFT_D_NAMES_32, "%37", "{%32,%33,%34,%35}, %36", "1")        \
                 : WEFT_D_16(d, 0), WEFT_D_16(d, 16)                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))
#define WEFT_WGMMA_64_REGISTERS(type)                                                                        \
    asm volatile(WEFT_WGMMA("m64n128k16", type, WEFT_D_NAMES_64, "%69", "{%64,%65,%66,%67}, %68", "1")       \
                 : WEFT_D_16(d, 0), WEFT_D_16(d, 16), WEFT_D_16(d, 32), WEFT_D_16(d, 48)                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))
#define WEFT_D_32(d, i) WEFT_D_16(d, i), WEFT_D_16(d, i + 16)
// The same with the transposition of both operands as template arguments LEFT and RIGHT.
#define WEFT_WGMMA_128_OF(type)                                                                              \
    asm volatile(WEFT_WGMMA("m64n256k16", type, WEFT_D_NAMES_128, "%130", "%128, %129", "%131, %132")        \
                 : WEFT_D_32(d, 0), WEFT_D_32(d, 32), WEFT_D_32(d, 64), WEFT_D_32(d, 96)                     \
                 : "l"(a), "l"(b), "r"(add), "n"(LEFT), "n"(RIGHT))
template <typename T> constexpr bool is_half = std::is_same_v<T, __half>;

// d (64 x N) [+]= a (64 x 16) b (N x 16)^T; d has N / 2 values
template <typename T> __device__ inline void multiply(float (&d)[32], uint64_t a, uint64_t b, int add) {
    if constexpr (is_half<T>)
        WEFT_WGMMA_32("f16", "0, 0");
    else
        WEFT_WGMMA_32("bf16", "0, 0");
}
template <typename T> __device__ inline void multiply(float (&d)[64], uint64_t a, uint64_t b, int add) {
    if constexpr (is_half<T>)
        WEFT_WGMMA_64("f16", "0, 0");
    else
        WEFT_WGMMA_64("bf16", "0, 0");
}
// d (64 x 256) [+]= a b. Without LEFT, a is stored as (64 x 16), and with it as (16 x 64); without RIGHT, b
// is stored as (256 x 16), and with it as (16 x 256).
template <typename T, bool LEFT, bool RIGHT>
__device__ inline void multiply_stored(float (&d)[128], uint64_t a, uint64_t b, int add) {
    if constexpr (is_half<T>)
        WEFT_WGMMA_128_OF("f16");
    else
        WEFT_WGMMA_128_OF("bf16");
}
// d (64 x 64) [+]= a (16 x 64)^T b (16 x 64)
template <typename T>
__device__ inline void multiply_transposed(float (&d)[32], uint64_t a, uint64_t b, int add) {
    if constexpr (is_half<T>)
        WEFT_WGMMA_32("f16", "1, 1");
    else
        WEFT_WGMMA_32("bf16", "1, 1");
}
// d (64 x N) [+]= a (64 x 16) b (16 x N), with a in registers
template <typename T>
__device__ inline void multiply_registers(float (&d)[32], const uint32_t *a, uint64_t b, int add) {
    if constexpr (is_half<T>)
        WEFT_WGMMA_32_REGISTERS("f16");
    else
        WEFT_WGMMA_32_REGISTERS("bf16");
}
template <typename T>
__device__ inline void multiply_registers(float (&d)[64], const uint32_t *a, uint64_t b, int add) {
    if constexpr (is_half<T>)
        WEFT_WGMMA_64_REGISTERS("f16");
    else
        WEFT_WGMMA_64_REGISTERS("bf16");
}

// d = 64 rows, from `first` on, of `mine` times the transpose of all rows of `other`, all of width D
template <typename T, int D, int N, int MINE, int OTHER>
__device__ inline void multiply_rows(float (&d)[N], const uint16_t (&mine)[MINE], int first,
                                     const uint16_t (&other)[OTHER]) {
    static_assert(OTHER == 2 * N * D, "d has a column for each row of other");
    uint64_t a = tile_of(mine + first * width), b = tile_of(other);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        int half = k / 4, column = k % 4;
        multiply<T>(d, a + column * next_columns + half * (MINE / D * row_bytes >> 4),
                    b + column * next_columns + half * (OTHER / D * row_bytes >> 4), k > 0);
    }
}
// d (64 x D) [+]= packed times all rows of `other`; d has D / 2 values
template <typename T, int N, int PACKED, int OTHER>
__device__ inline void multiply_packed(float (&d)[N], const uint32_t (&packed)[PACKED],
                                       const uint16_t (&other)[OTHER], bool add) {
    constexpr int D = 2 * N, rows = OTHER / D;
    static_assert(rows == 4 * PACKED, "packed has a column for each row of other");
    uint64_t b = tile_of(other, rows * row_bytes);
#pragma unroll
    for (int k = 0; k < rows / 16; k++)
        multiply_registers<T>(d, packed + 4 * k, b + k * next_rows, add || k > 0);
}

// ---- results ----

// Stores four 8 x 8 matrices; lanes 8m .. 8m + 7 pass the addresses of the rows of matrix m.
__device__ inline void store_matrices(uint32_t row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}
// The lane's address for storing 16 rows from `row` on and the first 16 columns of a tile. XOR 16 n selects
// the 16 columns from 8 n on (n even, below 8).
__device__ inline uint32_t matrices_at(const void *tile, int row) {
    int lane = threadIdx.x % 32;
    row += lane % 16;
    return shared_address(tile) + row * row_bytes + (lane / 16 ^ row % 8) * 16;
}

} // namespace hopper

#endif
