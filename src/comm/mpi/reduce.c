/* Reduces block by block along the tree of comm/placement.h: an accumulator in L1 cache for each level.
 * Memory is thus read and written once, and dst may alias a source. Blocks are independent, so results do not
 * depend on chunking. 16-bit types accumulate in fp32 and are rounded once.
 */
#include "comm/mpi/reduce.h"

#include "comm/placement.h"

enum { BLOCK = 1024, LEVELS = 32 };
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

/* Functions on up to BLOCK elements of `Type`, accumulated as `Wide`: sum = x, sum = x op y, sum = sum op x,
 * out = sum. Sums and sources are disjoint, which the compiler cannot infer. */
#define DEFINE_FOLD(name, Type, Wide, LOAD, STORE, OP)                                                       \
    static void name##_load(void *sum, const void *x, int64_t count) {                                       \
        Wide *s = sum;                                                                                       \
        const Type *a = x;                                                                                   \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) s[i] = LOAD(a[i]);                           \
    }                                                                                                        \
    static void name##_pair(void *sum, const void *x, const void *y, int64_t count) {                        \
        Wide *s = sum;                                                                                       \
        const Type *a = x, *b = y;                                                                           \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) {                                            \
            Wide value = LOAD(a[i]), other = LOAD(b[i]);                                                     \
            s[i] = OP(value, other);                                                                         \
        }                                                                                                    \
    }                                                                                                        \
    static void name##_add(void *sum, const void *x, int64_t count) {                                        \
        Wide *s = sum;                                                                                       \
        const Type *a = x;                                                                                   \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) {                                            \
            Wide value = s[i], other = LOAD(a[i]);                                                           \
            s[i] = OP(value, other);                                                                         \
        }                                                                                                    \
    }                                                                                                        \
    static void name##_store(void *out, const void *sum, int64_t count) {                                    \
        Type *o = out;                                                                                       \
        const Wide *s = sum;                                                                                 \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) o[i] = STORE(s[i]);                          \
    }

DEFINE_FOLD(sum_f32, float, float, same_f32, same_f32, SUM)
DEFINE_FOLD(sum_bf16, uint16_t, float, bf16_to_f32, f32_to_bf16, SUM)
DEFINE_FOLD(sum_f16, Half, float, half_load, half_store, SUM)
DEFINE_FOLD(sum_f64, double, double, same_f64, same_f64, SUM)
DEFINE_FOLD(sum_i32, uint32_t, uint32_t, same_u32, same_u32, SUM)
DEFINE_FOLD(sum_i64, uint64_t, uint64_t, same_u64, same_u64, SUM)
DEFINE_FOLD(max_f32, float, float, same_f32, same_f32, FLOAT_MAX)
DEFINE_FOLD(max_bf16, uint16_t, float, bf16_to_f32, f32_to_bf16, FLOAT_MAX)
DEFINE_FOLD(max_f16, Half, float, half_load, half_store, FLOAT_MAX)
DEFINE_FOLD(max_f64, double, double, same_f64, same_f64, FLOAT_MAX)
DEFINE_FOLD(max_i32, uint32_t, uint32_t, same_u32, same_u32, I32_MAX)
DEFINE_FOLD(max_i64, uint64_t, uint64_t, same_u64, same_u64, I64_MAX)

typedef struct Fold {
    int64_t size;
    void (*load)(void *sum, const void *x, int64_t count);
    void (*pair)(void *sum, const void *x, const void *y, int64_t count);
    void (*add)(void *sum, const void *x, int64_t count);
    void (*store)(void *out, const void *sum, int64_t count);
} Fold;

#define FOLD(name, bytes)                                                                                    \
    { bytes, name##_load, name##_pair, name##_add, name##_store }
static const Fold folds[DT_U8][2] = {
    [DT_F32] = {FOLD(sum_f32, 4), FOLD(max_f32, 4)}, [DT_BF16] = {FOLD(sum_bf16, 2), FOLD(max_bf16, 2)},
    [DT_F16] = {FOLD(sum_f16, 2), FOLD(max_f16, 2)}, [DT_F64] = {FOLD(sum_f64, 8), FOLD(max_f64, 8)},
    [DT_I32] = {FOLD(sum_i32, 4), FOLD(max_i32, 4)}, [DT_I64] = {FOLD(sum_i64, 8), FOLD(max_i64, 8)},
};

/* A block of the reduction. */
typedef struct Block {
    const Source *source;
    const Fold *raw, *wide; /* of single values and of partial sums */
    int64_t first, count;
    double (*sum)[BLOCK]; /* accumulators by level */
} Block;

static const Fold *fold_of(const Block *block, const Source *source) {
    return source->wide ? block->wide : block->raw;
}

static const void *block_of(const Block *block, const Source *source) {
    return (const char *)source->data + block->first * fold_of(block, source)->size;
}

/* Sums ranks [first, end) into the accumulator of `level`. */
static void fold(const Block *block, int first, int end, int level) {
    const Source *x = &block->source[first];
    void *sum = block->sum[level];
    if (x->end == end) {
        fold_of(block, x)->load(sum, block_of(block, x), block->count);
        return;
    }
    int middle = tree_split(first, end);
    const Source *y = &block->source[middle];
    if (x->end == middle && y->end == end && x->wide == y->wide) {
        fold_of(block, x)->pair(sum, block_of(block, x), block_of(block, y), block->count);
        return;
    }
    fold(block, first, middle, level);
    if (y->end == end) {
        fold_of(block, y)->add(sum, block_of(block, y), block->count);
    } else {
        fold(block, middle, end, level + 1);
        block->wide->add(sum, block->sum[level + 1], block->count);
    }
}

static DType wide_type(DType dtype) {
    return dtype == DT_BF16 || dtype == DT_F16 ? DT_F32 : dtype;
}

void reduce_tree(void *dst, const Source *source, RankSpan span, int64_t count, DType dtype, ReduceOp op,
                 bool wide) {
    double sum[LEVELS][BLOCK];
    Block block = {
        .source = source, .raw = &folds[dtype][op], .wide = &folds[wide_type(dtype)][op], .sum = sum};
    const Fold *out = wide ? block.wide : block.raw;
    for (; block.first < count; block.first += BLOCK) {
        block.count = count - block.first < BLOCK ? count - block.first : BLOCK;
        fold(&block, span.first, span.end, 0);
        out->store((char *)dst + block.first * out->size, sum[0], block.count);
    }
}
