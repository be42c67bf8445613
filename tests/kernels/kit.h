/* Fixture for kernel tests: a device, a stream, and tensors that the kit owns and frees.
 *
 * A CPU tensor is a heap block of exactly its size, so that the address sanitizer detects accesses past its
 * end. A GPU tensor lies in host memory shared with the GPU, which no sanitizer covers; guard bytes behind
 * each tensor are checked when the kit is cleared. New tensors are filled with NaN. Kernel calls are
 * synchronous, because the kit has a profile. */
#ifndef WEFT_TESTS_KERNELS_KIT_H
#define WEFT_TESTS_KERNELS_KIT_H

#include "device.h"
#include "kernels/kernels.h"
#include "test.h"

enum {
    KIT_OUTPUTS = 8,
    KIT_DRAWN = 16,
    KIT_GUARD = 64,
    KIT_GUARD_BYTE = 0xa5,
    KIT_CHUNK = 32 << 20,
    KIT_CHUNKS = 64
};

typedef struct Output {
    const char *name;
    Tensor tensor;
} Output;

typedef struct Kit {
    Device *device;
    Stream *stream;
    Profile profile;
    Exec exec;
    bool cuda;
    struct {
        char *data;
        size_t bytes;
    } * block;
    size_t blocks, capacity;
    Buffer chunk[KIT_CHUNKS]; /* cuda: memory from which blocks are allocated consecutively */
    int chunk_at;             /* current chunk */
    size_t chunk_used;        /* bytes used of the current chunk */
    uint64_t draws;           /* number of tensors filled so far, so that each gets different random values */
    DType compute;            /* type of activations and weights; see typed() */
    Output output[KIT_OUTPUTS];
    int outputs;
    const struct Kit *first; /* the kit that has run the same case before; NULL: none */
    bool is_first;           /* others will run the same case */
    Tensor drawn[KIT_DRAWN]; /* is_first: the tensors filled, before kernels changed them */
    Tensor kept[2];          /* what a case computes once, in the first kit */
} Kit;

static inline void kit_init(Kit *kit, const char *backend, int threads) {
    *kit = (Kit){.cuda = strcmp(backend, "cuda") == 0};
    if (kit->cuda)
        test_device_new(&kit->device, threads);
    else
        assert_ok(device_new_cpu(&kit->device, threads));
    assert_ok(stream_new(&kit->stream, kit->device));
    kit->exec = (Exec){.stream = kit->stream, .profile = &kit->profile};
    assert_ok(kernels_find(backend, &kit->exec.table));
}

/* GPUs before Ampere have no instructions for bf16. */
static inline bool kit_has_bf16(const Kit *kit) {
    CLEANUP(status_freep) Status without = device_check_precision(kit->device, "bf16");
    return !without;
}

/* Number of guard bytes that were overwritten (cuda only). */
static inline int64_t kit_overruns(const Kit *kit) {
    int64_t count = 0;
    for (size_t i = 0; kit->cuda && i < kit->blocks; i++) {
        const unsigned char *guard = (unsigned char *)kit->block[i].data + kit->block[i].bytes;
        for (int k = 0; k < KIT_GUARD; k++) count += guard[k] != KIT_GUARD_BYTE;
    }
    return count;
}

/* Frees all tensors and restarts the random numbers. */
static inline void kit_clear(Kit *kit) {
    assert_int_equal(kit_overruns(kit), 0);
    for (size_t i = 0; !kit->cuda && i < kit->blocks; i++) free(kit->block[i].data);
    kit->blocks = 0;
    kit->chunk_at = 0;
    kit->chunk_used = 0;
    kit->draws = 0;
    kit->outputs = 0;
}

static inline void kit_done(Kit *kit) {
    kit_clear(kit);
    free(kit->block);
    for (int i = 0; i < KIT_CHUNKS; i++) dev_free(&kit->chunk[i]);
    stream_free(kit->stream);
    if (kit->cuda)
        test_device_free(kit->device);
    else
        device_free(kit->device);
}

/* Allocates 64-byte aligned memory that the GPU can access, followed by guard bytes. */
static inline char *kit_shared(Kit *kit, size_t bytes) {
    size_t needed = (bytes + KIT_GUARD + 63) / 64 * 64;
    if (kit->chunk[kit->chunk_at].data && kit->chunk_used + needed > kit->chunk[kit->chunk_at].bytes) {
        kit->chunk_at++;
        kit->chunk_used = 0;
    }
    assert_true(kit->chunk_at < KIT_CHUNKS);
    Buffer *chunk = &kit->chunk[kit->chunk_at];
    if (chunk->bytes < needed) {
        dev_free(chunk);
        assert_ok(dev_alloc_host(kit->device, needed > KIT_CHUNK ? needed : KIT_CHUNK, chunk));
    }
    char *data = (char *)chunk->data + kit->chunk_used;
    kit->chunk_used += needed;
    memset(data + bytes, KIT_GUARD_BYTE, KIT_GUARD);
    return data;
}

/* Allocates a tensor of this shape and type, filled with NaN. */
static inline Tensor kit_take(Kit *kit, Tensor shape) {
    size_t bytes = tensor_bytes(shape);
    assert_ok(mem_grow(&kit->block, &kit->capacity, kit->blocks + 1, sizeof *kit->block));
    shape.data = kit->cuda ? kit_shared(kit, bytes) : malloc(bytes ? bytes : 1);
    assert_non_null(shape.data);
    memset(shape.data, 0xff, bytes);
    kit->block[kit->blocks].data = shape.data;
    kit->block[kit->blocks++].bytes = bytes;
    return shape;
}

static inline RngKey kit_key(Kit *kit) {
    return rng_key(1, "kit", kit->draws++);
}

/* The values of a tensor; SplitMix64, because a Philox block per element would take most of a sweep's time.
 */
static inline uint64_t kit_draw(RngKey key, int64_t index) {
    uint64_t z = key.key + key.step * 0xd1342543de82ef95 + (uint64_t)index * 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* Returns the shape with the kit's compute type. */
static inline Tensor typed(const Kit *kit, Tensor shape) {
    shape.dtype = kit->compute;
    return shape;
}

static inline void kit_fill(Tensor tensor, RngKey key, double low, double high) {
    int64_t count = tensor_count(tensor);
    double scale = (high - low) * 0x1p-53;
    if (tensor.dtype == DT_F32) { /* most tensors */
        float *values = tensor.data;
        for (int64_t i = 0; i < count; i++)
            values[i] = (float)(low + scale * (double)(kit_draw(key, i) >> 11));
        return;
    }
    for (int64_t i = 0; i < count; i++) tensor_put(tensor, i, low + scale * (double)(kit_draw(key, i) >> 11));
}

static inline Tensor kit_copy(Kit *kit, Tensor from) {
    Tensor tensor = kit_take(kit, from);
    memcpy(tensor.data, from.data, tensor_bytes(from));
    return tensor;
}

/* Allocates a tensor with uniform values in [low, high), rounded to the shape's floating-point type. The
 * kits of a case draw the same values, so only the first computes them. */
static inline Tensor kit_uniform(Kit *kit, Tensor shape, double low, double high) {
    uint64_t number = kit->draws;
    RngKey key = kit_key(kit);
    if (kit->first && number < KIT_DRAWN) {
        assert_int_equal(tensor_bytes(shape), tensor_bytes(kit->first->drawn[number]));
        return kit_copy(kit, kit->first->drawn[number]);
    }
    Tensor tensor = kit_take(kit, shape);
    kit_fill(tensor, key, low, high);
    if (kit->is_first && number < KIT_DRAWN) kit->drawn[number] = kit_copy(kit, tensor);
    return tensor;
}

static inline Tensor kit_random(Kit *kit, Tensor shape) {
    return kit_uniform(kit, shape, -1.5, 1.5);
}

/* Allocates an int32 tensor with uniform values in [low, high). */
static inline Tensor kit_index(Kit *kit, Tensor shape, int64_t low, int64_t high) {
    shape.dtype = DT_I32;
    Tensor tensor = kit_take(kit, shape);
    RngKey key = kit_key(kit);
    for (int64_t i = 0; i < tensor_count(tensor); i++)
        tensor_i32(tensor)[i] = (int32_t)(low + (int64_t)(kit_draw(key, i) % (uint64_t)(high - low)));
    return tensor;
}

/* Copies a tensor, converted to another type. */
static inline Tensor kit_as(Kit *kit, Tensor from, DType dtype) {
    Tensor shape = from;
    shape.dtype = dtype;
    Tensor tensor = kit_take(kit, shape);
    for (int64_t i = 0; i < tensor_count(tensor); i++) tensor_put(tensor, i, tensor_get(from, i));
    return tensor;
}

/* Registers a tensor as an output to compare. */
static inline void kit_output(Kit *kit, const char *name, Tensor tensor) {
    assert_true(kit->outputs < KIT_OUTPUTS);
    kit->output[kit->outputs++] = (Output){.name = name, .tensor = tensor};
}

/* fp32 shapes without data. */
static inline Tensor shape1(int64_t a) {
    return tensor_1d(NULL, DT_F32, a);
}
static inline Tensor shape2(int64_t a, int64_t b) {
    return tensor_2d(NULL, DT_F32, a, b);
}
static inline Tensor shape3(int64_t a, int64_t b, int64_t c) {
    return tensor_3d(NULL, DT_F32, a, b, c);
}
static inline Tensor shape4(int64_t a, int64_t b, int64_t c, int64_t d) {
    return tensor_4d(NULL, DT_F32, a, b, c, d);
}
static inline Tensor shape_qkv(int64_t B, int64_t T, int64_t H, int64_t D) {
    return tensor_5d(NULL, DT_F32, B, T, 3, H, D);
}

#endif
