/* Reduces block by block: an accumulator in L1 cache adds one rank's block after another and is stored after
 * the last. Memory is thus read and written once, every element is summed in rank order, and dst may alias a
 * part. Blocks are independent, so results do not depend on chunking. 16-bit types accumulate in fp32 and are
 * rounded once.
 */
#include "comm/mpi/reduce.h"

enum { BLOCK = 1024 };

#if defined(__aarch64__)
typedef __fp16 Half;
static inline float half_load(Half value) {
    return (float)value;
}
static inline Half half_store(float value) {
    return (Half)value;
}
#else
typedef uint16_t Half;
static inline float half_load(Half bits) {
    return f16_to_f32(bits);
}
static inline Half half_store(float value) {
    return f32_to_f16(value);
}
#endif

static inline float same_f32(float value) {
    return value;
}
static inline double same_f64(double value) {
    return value;
}
/* Signed integers wrap around. */
static inline uint32_t same_u32(uint32_t value) {
    return value;
}
static inline uint64_t same_u64(uint64_t value) {
    return value;
}

#define SUM(a, b) ((a) + (b))
/* NaN propagates. */
#define FLOAT_MAX(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define I32_MAX(a, b)   ((int32_t)(b) > (int32_t)(a) ? (b) : (a))
#define I64_MAX(a, b)   ((int64_t)(b) > (int64_t)(a) ? (b) : (a))

/* name(): one block of up to BLOCK elements of `Type`, accumulated as `Wide`. Two parts, the most common
 * case, need no accumulator. `out` either equals a part or is disjoint from all, which the compiler cannot
 * infer. */
#define DEFINE_BLOCK(name, Type, Wide, LOAD, STORE, OP)                                                      \
    static void name(void *dst, const void *const *part, int parts, int64_t first, int64_t count) {          \
        Wide sum[BLOCK];                                                                                     \
        const Type *x = (const Type *)part[0] + first;                                                       \
        Type *out = (Type *)dst + first;                                                                     \
        if (parts == 2) {                                                                                    \
            const Type *y = (const Type *)part[1] + first;                                                   \
            _Pragma("omp simd") for (int64_t i = 0; i < count; i++) {                                        \
                Wide value = LOAD(x[i]), other = LOAD(y[i]);                                                 \
                out[i] = STORE(OP(value, other));                                                            \
            }                                                                                                \
            return;                                                                                          \
        }                                                                                                    \
        for (int64_t i = 0; i < count; i++) sum[i] = LOAD(x[i]);                                             \
        for (int p = 1; p < parts; p++) {                                                                    \
            x = (const Type *)part[p] + first;                                                               \
            for (int64_t i = 0; i < count; i++) {                                                            \
                Wide value = LOAD(x[i]);                                                                     \
                sum[i] = OP(sum[i], value);                                                                  \
            }                                                                                                \
        }                                                                                                    \
        for (int64_t i = 0; i < count; i++) out[i] = STORE(sum[i]);                                          \
    }

DEFINE_BLOCK(sum_f32, float, float, same_f32, same_f32, SUM)
DEFINE_BLOCK(sum_bf16, uint16_t, float, bf16_to_f32, f32_to_bf16, SUM)
DEFINE_BLOCK(sum_f16, Half, float, half_load, half_store, SUM)
DEFINE_BLOCK(sum_f64, double, double, same_f64, same_f64, SUM)
DEFINE_BLOCK(sum_i32, uint32_t, uint32_t, same_u32, same_u32, SUM)
DEFINE_BLOCK(sum_i64, uint64_t, uint64_t, same_u64, same_u64, SUM)
DEFINE_BLOCK(max_f32, float, float, same_f32, same_f32, FLOAT_MAX)
DEFINE_BLOCK(max_bf16, uint16_t, float, bf16_to_f32, f32_to_bf16, FLOAT_MAX)
DEFINE_BLOCK(max_f16, Half, float, half_load, half_store, FLOAT_MAX)
DEFINE_BLOCK(max_f64, double, double, same_f64, same_f64, FLOAT_MAX)
DEFINE_BLOCK(max_i32, uint32_t, uint32_t, same_u32, same_u32, I32_MAX)
DEFINE_BLOCK(max_i64, uint64_t, uint64_t, same_u64, same_u64, I64_MAX)

typedef void BlockFunction(void *dst, const void *const *part, int parts, int64_t first, int64_t count);

static BlockFunction *const blocks[DT_U8][2] = {
    [DT_F32] = {sum_f32, max_f32}, [DT_BF16] = {sum_bf16, max_bf16}, [DT_F16] = {sum_f16, max_f16},
    [DT_F64] = {sum_f64, max_f64}, [DT_I32] = {sum_i32, max_i32},    [DT_I64] = {sum_i64, max_i64},
};

void reduce_parts(void *dst, const void *const *part, int parts, int64_t count, DType dtype, ReduceOp op) {
    BlockFunction *block = blocks[dtype][op];
    for (int64_t first = 0; first < count; first += BLOCK)
        block(dst, part, parts, first, count - first < BLOCK ? count - first : BLOCK);
}
