/* Times CPU kernels that are bound by memory next to a plain loop with the same traffic, attention alone, and
 * linear layers of experts next to one layer for as many rows.
 *
 *     kernels [THREADS[,THREADS...] [NAME [MS]]]
 *     kernels cuda [NAME [MS]]
 *
 * For each number of threads and each kernel whose name contains NAME, prints the median and the fastest call
 * of both, in ms, the kernel's bandwidth, and the plain loop's time relative to the kernel's. Calls alternate
 * and iterate over enough copies of the operands to evict them from a core's own caches. MS is the time
 * per kernel (default: 100). On the first GPU, only layers of experts are timed. Build it with the target
 * `bench_kernels`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/clock.h"
#include "base/memory.h"
#include "device/pool.h"
#include "kernels/kernels.h"

enum { TENSORS = 6, SETS = 64, CALLS = 4096, WIDTH = 768, BATCH = 4, VOCAB = 50304 };
static const size_t SETS_BYTES = 96 << 20;

/* The operands of a call. `small` has room for statistics, labels and parameters of norms. */
typedef struct Set {
    Tensor t[TENSORS];
} Set;

typedef struct Bench {
    Exec exec;
    Device *device;
    DType dtype;
    float *small;
    int64_t T;
} Bench;

enum { READ = 1, WRITE = 2, BOTH = 3 };

typedef struct Case {
    const char *name;
    Status (*run)(Bench *bench, const Tensor *t);
    /* A letter per tensor: read, written or both; lower case: in the compute type, upper case: in fp32. */
    const char *operands;
    int64_t rows, cols;
    int64_t T; /* of attention, which has no plain loop; else 0 */
} Case;

static int access_of(char operand) {
    return operand == 'r' || operand == 'R' ? READ : operand == 'w' || operand == 'W' ? WRITE : BOTH;
}
static bool is_fp32(char operand) {
    return operand < 'a';
}

static Tensor small_at(const Bench *bench, int64_t at, int64_t count) {
    return tensor_1d(bench->small + at, DT_F32, count);
}
/* Parameters of norms, in the compute type, and statistics. */
static Tensor weights_at(const Bench *bench, int64_t at) {
    return tensor_1d(bench->small + at, bench->dtype, WIDTH);
}

static Dropout dropout_of(Tensor t, int64_t T) {
    int64_t C = tensor_cols(t);
    return (Dropout){.p = 0.1f, .key = rng_key(1, "bench", 3), .extent = {T, C}};
}
static Tensor as_batch(Tensor t) {
    return tensor_3d(t.data, t.dtype, BATCH, tensor_rows(t) / BATCH, tensor_cols(t));
}

/* Parameters in halves. */
static Status run_adamw(Bench *bench, const Tensor *t) {
    Tensor flat[TENSORS];
    for (int i = 0; i < 5; i++) flat[i] = tensor_1d(t[i].data, t[i].dtype, tensor_count(t[i]));
    flat[3].dtype = DT_F32_LOWER;
    AdamWPart part = {flat[3], flat[0], flat[1], flat[4], flat[2], 1e-4f, 0.1f, false};
    AdamW spec = {0.9f, 0.999f, 1e-8f, 0.1f, 0.001f, 1.0f};
    return adamw_step(&bench->exec, &part, 1, spec);
}
static Status run_sum_squares(Bench *bench, const Tensor *t) {
    double total = 0;
    return sum_squares(&bench->exec, tensor_1d(&total, DT_F64, 1), t[0]);
}
static Status run_xent(Bench *bench, const Tensor *t) {
    int64_t M = tensor_rows(t[0]);
    Tensor labels = tensor_1d(bench->small, DT_I32, M);
    for (int64_t i = 0; i < M; i++) tensor_i32(labels)[i] = (int32_t)(i * 7919 % VOCAB);
    Tensor stats = tensor_2d(bench->small + 2 * M, DT_F32, M, 3);
    return xent_loss(&bench->exec, small_at(bench, M, M), stats, t[0], labels, (VocabPart){0, VOCAB}, 1.0f,
                     true);
}
static Status run_dropout_add(Bench *bench, const Tensor *t) {
    Tensor y = as_batch(t[1]);
    return dropout_add_forward(&bench->exec, as_batch(t[2]), as_batch(t[0]), y, dropout_of(y, y.dim[1]));
}
static Status run_dropout_backward(Bench *bench, const Tensor *t) {
    Tensor dy = as_batch(t[0]);
    return dropout_backward(&bench->exec, as_batch(t[1]), TENSOR_NONE, dy, dropout_of(dy, dy.dim[1]));
}
static Status run_dropout_add_norm(Bench *bench, const Tensor *t) {
    Tensor y = as_batch(t[1]);
    int64_t rows = tensor_rows(y);
    return dropout_add_norm_forward(&bench->exec, as_batch(t[2]), as_batch(t[3]), small_at(bench, 4096, rows),
                                    small_at(bench, 8192, rows), as_batch(t[0]), y, weights_at(bench, 0),
                                    weights_at(bench, WIDTH), 1e-5f, dropout_of(y, y.dim[1]));
}
static Status run_layernorm(Bench *bench, const Tensor *t) {
    int64_t rows = tensor_rows(t[0]);
    return layernorm_forward(&bench->exec, t[1], small_at(bench, 4096, rows), small_at(bench, 8192, rows),
                             t[0], weights_at(bench, 0), weights_at(bench, WIDTH), 1e-5f);
}
static Status run_layernorm_backward(Bench *bench, const Tensor *t) {
    int64_t rows = tensor_rows(t[0]);
    return layernorm_backward(&bench->exec, t[3], small_at(bench, 2 * WIDTH, WIDTH),
                              small_at(bench, 3 * WIDTH, WIDTH), t[0], t[1], small_at(bench, 4096, rows),
                              small_at(bench, 8192, rows), weights_at(bench, 0), t[2], (NormSums){0});
}
static Status run_rmsnorm(Bench *bench, const Tensor *t) {
    return rmsnorm_forward(&bench->exec, t[1], small_at(bench, 8192, tensor_rows(t[0])), t[0],
                           weights_at(bench, 0), 1e-5f, (HeadRange){0});
}
static Status run_rmsnorm_backward(Bench *bench, const Tensor *t) {
    return rmsnorm_backward(&bench->exec, t[3], small_at(bench, 2 * WIDTH, WIDTH), t[0], t[1],
                            small_at(bench, 8192, tensor_rows(t[0])), weights_at(bench, 0), t[2],
                            (HeadRange){0});
}
static Status run_add(Bench *bench, const Tensor *t) {
    return add(&bench->exec, t[1], t[0]);
}

enum { HEADS = 12, HEAD = 64 };

static Attention attention_of(const Bench *bench) {
    return (Attention){.causal = bench->T == 256,
                       .scale = 0.125f,
                       .dropout = {.p = 0.1f, .key = rng_key(1, "bench", 4), .extent = {HEADS, bench->T}}};
}
static Tensor heads_of(const Bench *bench, Tensor t) {
    return tensor_4d(t.data, t.dtype, tensor_rows(t) / bench->T, bench->T, HEADS, HEAD);
}
static Tensor qkv_of(const Bench *bench, Tensor t) {
    return tensor_5d(t.data, t.dtype, tensor_rows(t) / bench->T / 3, bench->T, 3, HEADS, HEAD);
}
static Tensor lse_of(const Bench *bench, Tensor t) {
    return tensor_3d(bench->small + 16384, DT_F32, tensor_rows(t) / bench->T / 3, HEADS, bench->T);
}
static Status run_attention(Bench *bench, const Tensor *t) {
    return attention_forward(&bench->exec, heads_of(bench, tensor_slice(t[1], 0, tensor_rows(t[1]) / 3)),
                             lse_of(bench, t[0]), qkv_of(bench, t[0]), TENSOR_NONE, attention_of(bench));
}
static Status run_attention_backward(Bench *bench, const Tensor *t) {
    Tensor out = tensor_slice(t[1], 0, tensor_rows(t[1]) / 3);
    Tensor dout = tensor_slice(t[2], 0, tensor_rows(t[2]) / 3);
    return attention_backward(&bench->exec, qkv_of(bench, t[3]), heads_of(bench, dout), heads_of(bench, out),
                              lse_of(bench, t[0]), qkv_of(bench, t[0]), TENSOR_NONE, attention_of(bench));
}

static const Case cases[] = {
    {"adamw_step", run_adamw, "BBRbb", 32768, 1024, 0},
    {"sum_squares", run_sum_squares, "R", 131072, 1024, 0},
    {"xent_loss", run_xent, "B", 512, VOCAB, 0},
    {"add", run_add, "rb", 1024, WIDTH, 0},
    {"dropout_add_forward", run_dropout_add, "rrw", 1024, WIDTH, 0},
    {"dropout_backward", run_dropout_backward, "rw", 1024, WIDTH, 0},
    {"dropout_add_norm_forward", run_dropout_add_norm, "rrww", 1024, WIDTH, 0},
    {"layernorm_forward", run_layernorm, "rw", 1024, WIDTH, 0},
    {"layernorm_backward", run_layernorm_backward, "rrrw", 1024, WIDTH, 0},
    {"rmsnorm_forward", run_rmsnorm, "rw", 1024, WIDTH, 0},
    {"rmsnorm_backward", run_rmsnorm_backward, "rrrw", 1024, WIDTH, 0},
    {"attention_forward, causal", run_attention, "rw", 3 * 1024, WIDTH, 256},
    {"attention_backward, causal", run_attention_backward, "rrrw", 3 * 1024, WIDTH, 256},
    {"attention_forward, 384", run_attention, "rw", 3 * 1536, WIDTH, 384},
    {"attention_backward, 384", run_attention_backward, "rrrw", 3 * 1536, WIDTH, 384},
};

/* The plain loop: part `part` of all operands, a few lines of each at a time. As in kernels, large results
 * that are not read are written past the caches. */
typedef struct Loop {
    const Case *of;
    const Set *set;
    int parts;
} Loop;

typedef uint64_t Line __attribute__((vector_size(64)));
enum { LINES = 32, STREAM_BYTES = 1 << 24 };

static inline void write_past(Line *to, const Line *line) {
#if defined(__x86_64__)
    for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)to + i, ((const __m128i *)line)[i]);
#else
    *to = *line;
#endif
}

/* `zero` keeps the compiler from knowing what is written. */
static inline __attribute__((always_inline)) void touch(Line *at, size_t lines, int access, bool past,
                                                        const Line *zero, Line *sum) {
    if (access == READ)
        for (size_t i = 0; i < lines; i++) *sum ^= at[i];
    else if (access == BOTH)
        for (size_t i = 0; i < lines; i++) at[i] ^= *zero;
    else if (past)
        for (size_t i = 0; i < lines; i++) write_past(&at[i], zero);
    else
        for (size_t i = 0; i < lines; i++) at[i] = *zero;
}

static inline __attribute__((always_inline)) void loop_run(const Loop *loop, int64_t part) {
    Line zero = ((uint64_t)part >> 32) + (Line){0}, sum = zero;
    int64_t lines_each = LINES / (int64_t)strlen(loop->of->operands) / 2 * 2;
    int64_t chunks = (int64_t)(tensor_bytes(loop->set->t[0]) / sizeof(Line)) / lines_each;
    int64_t from = chunks * part / loop->parts, to = chunks * (part + 1) / loop->parts;
    struct {
        Line *at;
        size_t lines;
        int access;
        bool past;
    } operand[TENSORS];
    int count = 0;
    for (; loop->of->operands[count]; count++) {
        size_t bytes = tensor_bytes(loop->set->t[count]), lines = bytes / sizeof(Line) / (size_t)chunks;
        operand[count].at = (Line *)loop->set->t[count].data + (size_t)from * lines;
        operand[count].lines = lines;
        operand[count].access = access_of(loop->of->operands[count]);
        operand[count].past = bytes >= STREAM_BYTES;
    }
    for (int64_t c = from; c < to; c++)
        for (int i = 0; i < count; i++) {
            touch(operand[i].at, operand[i].lines, operand[i].access, operand[i].past, &zero, &sum);
            operand[i].at += operand[i].lines;
        }
    __asm__ volatile("" ::"m"(sum));
}

static void loop_task(const void *context, int64_t part, int thread) {
    (void)thread;
    loop_run(context, part);
}
#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void loop_task_avx512(const void *context, int64_t part,
                                                                int thread) {
    (void)thread;
    loop_run(context, part);
}
static PoolTask *loop_choose(void) {
    return __builtin_cpu_supports("avx512f") ? loop_task_avx512 : loop_task;
}
#else
static PoolTask *loop_choose(void) {
    return loop_task;
}
#endif

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Finite values of moderate size, in either type. */
static void fill_random(Tensor t) {
    uint32_t state = 12345;
    int64_t count = tensor_count(t);
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        float value = (float)(state >> 8) * 0x1p-23f - 1;
        if (t.dtype == DT_F32)
            tensor_f32(t)[i] = value;
        else
            ((uint16_t *)t.data)[i] = f32_to_bf16(value);
    }
}

static size_t set_take(Bump *bump, const Case *of, DType dtype, Set *set) {
    size_t before = bump->used;
    for (int i = 0; of->operands[i]; i++)
        set->t[i] =
            tensor_take(bump, tensor_2d(NULL, is_fp32(of->operands[i]) ? DT_F32 : dtype, of->rows, of->cols));
    return bump->used - before;
}

static Status measure(Bench *bench, const Case *of, double ms) {
    static double kernel[CALLS], plain[CALLS];
    CLEANUP(dev_free) Buffer memory = {0};
    Set set[SETS];
    Bump count = {0};
    size_t each = set_take(&count, of, bench->dtype, &set[0]), bytes = 0;
    int sets = each >= SETS_BYTES ? 1 : (int)(SETS_BYTES / each) + 1, calls = 0;
    if (sets > SETS) sets = SETS;
    TRY(dev_alloc(bench->device, MEM_SCRATCH, (each + 4096) * (size_t)sets, &memory));
    Bump bump = {.base = memory.data, .size = memory.bytes};
    for (int s = 0; s < sets; s++) {
        set_take(&bump, of, bench->dtype, &set[s]);
        for (int i = 0; of->operands[i]; i++) fill_random(set[s].t[i]);
    }
    for (int i = 0; of->operands[i]; i++)
        bytes += tensor_bytes(set[0].t[i]) * (access_of(of->operands[i]) == BOTH ? 2 : 1);
    bench->T = of->T;
    double start = clock_wall();
    for (int64_t call = -4; calls < 5 || (calls < CALLS && clock_wall() - start < ms * 1e-3); call++) {
        const Set *at = &set[(call + 4) % sets];
        double begin = clock_wall();
        TRY(of->run(bench, at->t));
        double middle = clock_wall();
        Loop loop = {of, &set[(call + 4 + sets / 2) % sets], 4 * bench->device->threads};
        double again = clock_wall();
        if (!of->T) pool_run(bench->device->pool, loop.parts, loop_choose(), &loop);
        if (call < 0) continue;
        plain[calls] = (clock_wall() - again) * 1e3;
        kernel[calls++] = (middle - begin) * 1e3;
    }
    qsort(kernel, (size_t)calls, sizeof *kernel, by_value);
    qsort(plain, (size_t)calls, sizeof *plain, by_value);
    printf("%-28s %-5s %3d  %8.4f %8.4f", of->name, dtype_name(bench->dtype), bench->device->threads,
           kernel[calls / 2], kernel[0]);
    if (!of->T)
        printf("  %8.4f %8.4f  %6.1f GB/s %4.0f%% %4.0f%%", plain[calls / 2], plain[0],
               (double)bytes / kernel[calls / 2] * 1e-6, 100 * plain[calls / 2] / kernel[calls / 2],
               100 * plain[0] / kernel[0]);
    printf("\n");
    fflush(stdout);
    return OK;
}

/* ---- linear layers of experts ---- */

/* R rows, E experts, K inputs, N outputs */
typedef struct Size {
    int64_t R, N, K, E;
} Size;

static const Size cpu_sizes[] = {{4096, 1536, WIDTH, 8}, {4096, 1536, WIDTH, 64}};
/* The first layers of Mixtral's and OLMoE's experts, in training and for few tokens. */
static const Size gpu_sizes[] = {
    {16384, 28672, 4096, 8}, {65536, 2048, 2048, 64}, {16, 28672, 4096, 8}, {64, 2048, 2048, 64}};

typedef struct Layer {
    Tensor y, x, w, dw, offsets;
} Layer;

/* The experts' layers, or that of the first for all rows. */
static Status run_layer(Bench *bench, const char *name, const Layer *l, bool dense) {
    Tensor w = tensor_matrix(tensor_slice(l->w, 0, 1)), dw = tensor_matrix(tensor_slice(l->dw, 0, 1));
    Exec *e = &bench->exec;
    if (!strcmp(name, "grouped_forward"))
        return dense ? linear_forward(e, l->y, TENSOR_NONE, l->x, w, TENSOR_NONE, ACT_NONE)
                     : grouped_forward(e, l->y, l->x, l->w, l->offsets);
    if (!strcmp(name, "grouped_backward_input"))
        return dense ? linear_backward_input(e, l->x, TENSOR_NONE, l->y, w, ACT_NONE, TENSOR_NONE, false)
                     : grouped_backward_input(e, l->x, l->y, l->w, l->offsets);
    return dense ? linear_backward_weight(e, dw, TENSOR_NONE, l->y, l->x, true)
                 : grouped_backward_weight(e, l->dw, l->y, l->x, l->offsets, true);
}

/* Rows as even as possible, or in proportion to 1, 1/2, 1/3 ... */
static void put_offsets(int32_t *offsets, const Size *size, bool zipf) {
    double total = 0, sum = 0;
    for (int64_t e = 0; e < size->E; e++) total += zipf ? 1 / (double)(e + 1) : 1;
    for (int64_t e = 0; e <= size->E; e++) {
        offsets[e] = (int32_t)(sum / total * (double)size->R + 0.5);
        sum += zipf ? 1 / (double)(e + 1) : 1;
    }
}

/* The same random values again and again, which are in host memory first. */
static Status put_random(Bench *bench, Tensor t) {
    enum { AT_ONCE = 1 << 20 };
    CLEANUP(mem_freep) float *values = NULL;
    Tensor flat = tensor_1d(t.data, t.dtype, tensor_count(t));
    TRY(mem_new(AT_ONCE, sizeof *values, &values));
    fill_random(tensor_1d(values, t.dtype, AT_ONCE));
    for (int64_t at = 0; at < tensor_count(t); at += AT_ONCE) {
        int64_t left = tensor_count(t) - at;
        Tensor some = tensor_slice(flat, at, left < AT_ONCE ? left : AT_ONCE);
        TRY(stream_copy(bench->exec.stream, some.data, values, tensor_bytes(some), COPY_TO_DEVICE));
    }
    return stream_sync(bench->exec.stream);
}

/* The time of a call. Several follow one another on a GPU, which hides what starting them takes. */
static Status time_layer(Bench *bench, const char *name, const Layer *l, bool dense, double *best) {
    int calls = device_is_host(bench->device) ? 1 : 10;
    double begin = clock_wall();
    for (int i = 0; i < calls; i++) TRY(run_layer(bench, name, l, dense));
    TRY(stream_sync(bench->exec.stream));
    *best = fmin(*best, (clock_wall() - begin) / calls);
    return OK;
}

static Status measure_load(Bench *bench, const char *name, const Layer *l, const Size *size, bool zipf,
                           double ms) {
    CLEANUP(mem_freep) int32_t *offsets = NULL;
    double best[2] = {1e9, 1e9}, flops = 2e-9 * (double)size->R * (double)size->N * (double)size->K;
    TRY(mem_new((size_t)size->E + 1, sizeof *offsets, &offsets));
    put_offsets(offsets, size, zipf);
    TRY(stream_copy(bench->exec.stream, l->offsets.data, offsets, tensor_bytes(l->offsets), COPY_TO_DEVICE));
    double start = clock_wall();
    for (int call = 0; call < 4 || (call < CALLS && clock_wall() - start < ms * 1e-3); call++)
        TRY(time_layer(bench, name, l, call % 2, &best[call % 2]));
    printf("%-23s %-5s %3d  %2lld experts, %-4s  %5lld rows  %9.3f ms  %8.1f GFLOP/s  %6.1f GB/s of weights  "
           "%4.0f%% of one layer\n",
           name, dtype_name(bench->dtype), bench->device->threads, (long long)size->E, zipf ? "zipf" : "even",
           (long long)size->R, best[0] * 1e3, flops / best[0], 1e-9 * (double)tensor_bytes(l->w) / best[0],
           100 * best[1] / best[0]);
    fflush(stdout);
    return OK;
}

static Status measure_grouped(Bench *bench, const char *wanted, const Size *size, double ms) {
    static const char *const names[] = {"grouped_forward", "grouped_backward_input",
                                        "grouped_backward_weight"};
    DType dtype = bench->dtype;
    for (int i = 0; i < 3; i++) {
        CLEANUP(dev_free) Buffer memory = {0};
        Bump bump = {0};
        Layer l;
        if (wanted && !strstr(names[i], wanted)) continue;
        for (int pass = 0; pass < 2; pass++) {
            l.offsets = tensor_take(&bump, tensor_1d(NULL, DT_I32, size->E + 1));
            l.y = tensor_take(&bump, tensor_2d(NULL, dtype, size->R, size->N));
            l.x = tensor_take(&bump, tensor_2d(NULL, dtype, size->R, size->K));
            l.w = tensor_take(&bump, tensor_3d(NULL, dtype, size->E, size->N, size->K));
            l.dw = tensor_take(&bump, tensor_3d(NULL, DT_F32, size->E, size->N, size->K));
            if (pass) break;
            TRY(dev_alloc(bench->device, MEM_SCRATCH, bump.used, &memory));
            bump = (Bump){.base = memory.data, .size = memory.bytes};
        }
        TRY(put_random(bench, l.y));
        TRY(put_random(bench, l.x));
        TRY(put_random(bench, l.w));
        TRY(put_random(bench, l.dw));
        for (int zipf = 0; zipf < 2; zipf++) TRY(measure_load(bench, names[i], &l, size, zipf, ms));
    }
    return OK;
}

static Status measure_sizes(Bench *bench, const char *wanted, const Size *sizes, size_t count, double ms) {
    for (int type = 0; type < 2; type++)
        for (size_t i = 0; i < count; i++) {
            bench->dtype = type ? DT_BF16 : DT_F32;
            TRY(measure_grouped(bench, wanted, &sizes[i], ms));
        }
    return OK;
}

static Status run_gpu(const char *name, double ms) {
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(stream_freep) Stream *stream = NULL;
    TRY(device_new_cuda(&device, 0));
    TRY(stream_new(&stream, device));
    Bench bench = {.device = device, .exec = {.stream = stream}};
    TRY(kernels_for("cuda", NULL, &bench.exec.table));
    return measure_sizes(&bench, name, gpu_sizes, sizeof gpu_sizes / sizeof *gpu_sizes, ms);
}

static Status run_threads(int threads, const char *name, double ms) {
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(stream_freep) Stream *stream = NULL;
    CLEANUP(dev_free) Buffer small = {0};
    TRY(device_new_cpu(&device, threads));
    TRY(stream_new(&stream, device));
    TRY(dev_alloc(device, MEM_SCRATCH, 1 << 20, &small));
    Bench bench = {.device = device, .exec = {.stream = stream}, .small = small.data};
    TRY(kernels_for("cpu", NULL, &bench.exec.table));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (name && !strstr(cases[i].name, name)) continue;
        memset(small.data, 0, small.bytes);
        bool one_type = cases[i].T || is_fp32(cases[i].operands[0]);
        for (int type = one_type; type < 2; type++) {
            bench.dtype = type ? DT_BF16 : DT_F32;
            TRY(measure(&bench, &cases[i], ms));
        }
    }
    return measure_sizes(&bench, name, cpu_sizes, sizeof cpu_sizes / sizeof *cpu_sizes, ms);
}

static Status run(int argc, char **argv) {
    double ms = argc > 3 ? atof(argv[3]) : 100;
    const char *name = argc > 2 && *argv[2] ? argv[2] : NULL, *threads = argc > 1 ? argv[1] : "1";
    if (!strcmp(threads, "cuda")) return run_gpu(name, ms);
    printf("%-28s %-5s %3s  %8s %8s  %8s %8s\n", "kernel", "type", "thr", "median", "fastest", "loop",
           "fastest");
    for (const char *at = threads; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        TRY(run_threads(atoi(at), name, ms));
    return OK;
}

int main(int argc, char **argv) {
    Status status = run(argc, argv);
    if (!status) return 0;
    fprintf(stderr, "%s\n", status_message(status));
    int code = status_exit_code(status);
    status_free(status);
    return code;
}
