/* Tuning: measures which of cuBLASLt's algorithms is fastest, once per kind of GEMM and kind of GPU.
 *
 * cuBLASLt proposes about eight. For large GEMMs, a search then varies the fastest of them, one attribute at
 * a time (option, cluster shape, tile), because better ones are often not among the proposals: on an H200
 * some GEMMs of GPT-2 run up to a quarter faster. The result of what the search finds is compared with that
 * of a proposal before it is used.
 *
 * Algorithms add in different orders, so choosing by time alone would make results vary from run to run.
 * Choices are therefore stored in a file in the user's cache directory, named after the GPU and the library
 * version, and are reused from there. A line of the file is one choice: the file version, the numbers of the
 * key, the words of the algorithm and a period. The file is append-only. If a key occurs twice, the first
 * line wins. A line that is incomplete, or whose algorithm the library does not accept, is ignored. Ranks
 * that measure at the same time agree, because each looks again, under a lock, before it appends its own
 * choice. The lock is not held while the device works, since that work may wait for another rank.
 *
 * Nothing is measured if choices cannot be stored, for small GEMMs, during graph capture, or with
 * WEFT_CUDA_TUNE=0. The library's own first choice is then used, which is deterministic as well. */
#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "kernels/cuda/blas.h"

static const double min_flops = 1e9;         /* below this, launching costs more than tuning could save */
static const double min_search_flops = 2e10; /* below this, there is no search, which takes about 0.2 s */

enum { FILE_VERSION = 4, REPEATS = 4, FILE_LIMIT = 64 << 20 };
enum { ALGO_WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t) };

Status blas_choices_find(Blas *blas, int device) {
    const char *tune = getenv("WEFT_CUDA_TUNE");
    CLEANUP(mem_freep) char *root = NULL, *name = NULL;
    if (tune && !strcmp(tune, "0")) return OK;
    TRY(user_cache(&root));
    if (!root) return OK;
    struct cudaDeviceProp properties;
    CUDA_TRY(cudaGetDeviceProperties(&properties, device));
    for (char *c = properties.name; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '-';
    TRY(str_format(&name, "cublaslt-%s-%zu.txt", properties.name, blas->api.version()));
    return path_join(&blas->choices_path, root, name);
}

static const Choice *find_choice(const Blas *blas, const GemmKey *key) {
    for (size_t i = 0; i < blas->choices; i++)
        if (!memcmp(&blas->choice[i].key, key, sizeof *key)) return &blas->choice[i];
    return NULL;
}

static Status add_choice(Blas *blas, const Choice *choice) {
    TRY(mem_grow(&blas->choice, &blas->choices_capacity, blas->choices + 1, sizeof *choice));
    blas->choice[blas->choices++] = *choice;
    return OK;
}

/* Parses one line, without its newline. */
static bool parse_choice(const char *line, Choice *ret_choice) {
    char *end;
    if (strtoll(line, &end, 10) != FILE_VERSION || end == line) return false;
    int64_t *key = (int64_t *)&ret_choice->key;
    for (int i = 0; i < GEMM_KEY_SIZE; i++) {
        line = end;
        key[i] = strtoll(line, &end, 10);
        if (end == line) return false;
    }
    for (int i = 0; i < ALGO_WORDS; i++) {
        line = end;
        ret_choice->algo.data[i] = strtoull(line, &end, 16);
        if (end == line) return false;
    }
    return !strcmp(end, " .");
}

/* Replaces the known choices by those in the file. A file that cannot be read is ignored. */
static Status read_choices(Blas *blas) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    blas->choices_read = true;
    if (!path_exists(blas->choices_path)) return OK;
    Status status = file_read(blas->choices_path, FILE_LIMIT, &text, &size);
    if (status) {
        status_free(status);
        return OK;
    }
    blas->choices = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        Choice choice;
        *end = '\0';
        if (parse_choice(line, &choice)) TRY(add_choice(blas, &choice));
    }
    return OK;
}

/* A complete line, for a single write. It starts with a newline, in case the previous writer left its line
 * incomplete. */
static Status format_choice(const Choice *choice, char **ret_line) {
    char *text = NULL;
    size_t size = 0;
    FILE *line = open_memstream(&text, &size);
    if (!line) return FAILED("out of memory while storing a tuning result");
    fprintf(line, "\n%d", FILE_VERSION);
    for (int i = 0; i < GEMM_KEY_SIZE; i++)
        fprintf(line, " %lld", (long long)((const int64_t *)&choice->key)[i]);
    for (int i = 0; i < ALGO_WORDS; i++) fprintf(line, " %llx", (unsigned long long)choice->algo.data[i]);
    fprintf(line, " .\n");
    if (fclose(line) != 0) {
        free(text);
        return FAILED("out of memory while storing a tuning result");
    }
    *ret_line = text;
    return OK;
}

/* Opens and locks the file; -1 if that is not possible. */
static Status open_choices(const Blas *blas, int *ret_fd) {
    CLEANUP(mem_freep) char *dir = NULL;
    TRY(str_dup(blas->choices_path, &dir));
    *strrchr(dir, '/') = '\0';
    Status status = dir_make(dir);
    int fd = status ? -1 : open(blas->choices_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    status_free(status);
    if (fd >= 0 && flock(fd, LOCK_EX) != 0) fd_closep(&fd), fd = -1;
    *ret_fd = fd;
    return OK;
}

/* Appends the choice unless another process was first; *choice becomes the one that is in effect. If it
 * cannot be stored, *ret_kept is false and the caller turns tuning off. */
static Status keep_choice(Blas *blas, Choice *choice, bool *ret_kept) {
    CLEANUP(fd_closep) int fd = -1;
    CLEANUP(mem_freep) char *line = NULL;
    TRY(format_choice(choice, &line));
    TRY(open_choices(blas, &fd));
    *ret_kept = false;
    if (fd < 0) return OK;
    TRY(read_choices(blas));
    const Choice *other = find_choice(blas, &choice->key);
    if (other) {
        *choice = *other;
        *ret_kept = true;
        return OK;
    }
    size_t size = strlen(line);
    if (write(fd, line, size) != (ssize_t)size) return OK;
    *ret_kept = true;
    return add_choice(blas, choice);
}

typedef struct Clock {
    cudaEvent_t start, stop;
} Clock;

static void clock_done(Clock *clock) {
    if (clock->start) cudaEventDestroy(clock->start);
    if (clock->stop) cudaEventDestroy(clock->stop);
}

static void arena_freep(void **data) {
    if (*data) cudaFree(*data);
}

/* A GEMM that is being measured, and the fastest algorithm so far. */
typedef struct Race {
    const Blas *blas;
    const GemmPlan *plan;
    const CudaGemm *gemm;
    void *out, *workspace;
    cudaStream_t stream;
    Clock clock;
    cublasLtMatmulAlgo_t best;
    float time; /* of `best`, in milliseconds per run; 0: none yet */
} Race;

/* The time per run in milliseconds, or -1 if the algorithm fails. */
static Status measure(const Race *race, const cublasLtMatmulAlgo_t *algo, int repeats, float *ret_time) {
    *ret_time = -1;
    for (int i = -1; i < repeats; i++) {
        if (i == 0) CUDA_TRY(cudaEventRecord(race->clock.start, race->stream)); /* after one warm-up run */
        if (blas_run(race->blas, race->plan, race->gemm, race->out, algo, race->workspace, race->stream) !=
            CUBLAS_STATUS_SUCCESS)
            return OK;
    }
    float total = 0;
    CUDA_TRY(cudaEventRecord(race->clock.stop, race->stream));
    CUDA_TRY(cudaEventSynchronize(race->clock.stop));
    CUDA_TRY(cudaEventElapsedTime(&total, race->clock.start, race->clock.stop));
    *ret_time = total / (float)repeats;
    return OK;
}

static Status enter(Race *race, const cublasLtMatmulAlgo_t *algo, int repeats) {
    float time;
    TRY(measure(race, algo, repeats, &time));
    if (time < 0 || (race->time > 0 && time >= race->time)) return OK;
    race->best = *algo;
    race->time = time;
    return OK;
}

static bool is_valid(const Blas *blas, const GemmPlan *plan, const cublasLtMatmulAlgo_t *algo) {
    cublasLtMatmulHeuristicResult_t result = {0};
    return blas->api.check(blas->handle, plan->desc, plan->right, plan->left, plan->out, plan->out, algo,
                           &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= BLAS_WORKSPACE;
}

/* ---- search ---- */

static const uint16_t options[] = {0, 1, 2, 3, 4, 5, 6, 7}; /* those that an algorithm has */
static const uint16_t clusters[] = {CUBLASLT_CLUSTER_SHAPE_1x1x1, CUBLASLT_CLUSTER_SHAPE_2x1x1,
                                    CUBLASLT_CLUSTER_SHAPE_4x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1,
                                    CUBLASLT_CLUSTER_SHAPE_2x2x1, CUBLASLT_CLUSTER_SHAPE_1x4x1};
static const uint16_t tiles[] = {
    CUBLASLT_MATMUL_TILE_64x256,  CUBLASLT_MATMUL_TILE_96x128,  CUBLASLT_MATMUL_TILE_128x96,
    CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_MATMUL_TILE_128x160, CUBLASLT_MATMUL_TILE_128x192,
    CUBLASLT_MATMUL_TILE_128x256, CUBLASLT_MATMUL_TILE_160x128, CUBLASLT_MATMUL_TILE_192x128,
    CUBLASLT_MATMUL_TILE_256x64,  CUBLASLT_MATMUL_TILE_256x128,
#if CUBLAS_VERSION >= 130000
    CUBLASLT_MATMUL_TILE_112x128, CUBLASLT_MATMUL_TILE_128x112, CUBLASLT_MATMUL_TILE_128x144,
    CUBLASLT_MATMUL_TILE_128x176, CUBLASLT_MATMUL_TILE_128x208, CUBLASLT_MATMUL_TILE_144x128,
    CUBLASLT_MATMUL_TILE_176x128, CUBLASLT_MATMUL_TILE_192x192, CUBLASLT_MATMUL_TILE_256x96,
#endif
};

static const struct {
    cublasLtMatmulAlgoConfigAttributes_t name;
    size_t size;
    const uint16_t *value;
    size_t count;
} attributes[] = {
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4, options, sizeof options / sizeof *options},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2, clusters, sizeof clusters / sizeof *clusters},
    {CUBLASLT_ALGO_CONFIG_TILE_ID, 4, tiles, sizeof tiles / sizeof *tiles},
};
enum { ATTRIBUTES = sizeof attributes / sizeof *attributes, SEARCH_ROUNDS = 2, SAMPLES = 2048 };

/* Enters all algorithms that differ from the best so far in one attribute. A single run excludes slow ones.
 */
static Status vary(Race *race, int which) {
    const cublasLtMatmulAlgo_t from = race->best;
    for (size_t i = 0; i < attributes[which].count; i++) {
        cublasLtMatmulAlgo_t algo = from;
        uint32_t value = attributes[which].value[i]; /* little-endian, so that two bytes are enough */
        float time = -1;
        if (race->blas->api.config_set(&algo, attributes[which].name, &value, attributes[which].size) !=
                CUBLAS_STATUS_SUCCESS ||
            !memcmp(&algo, &from, sizeof algo) || !is_valid(race->blas, race->plan, &algo))
            continue;
        TRY(measure(race, &algo, 1, &time));
        if (time > 0 && time < 1.2f * race->time) TRY(enter(race, &algo, REPEATS));
    }
    return OK;
}

/* Elements of the result of an algorithm, spread over all of it. */
static Status sample(const Race *race, const cublasLtMatmulAlgo_t *algo, size_t bytes, size_t size,
                     void *ret_samples) {
    int64_t step = race->gemm->rows * race->gemm->cols / SAMPLES;
    step -= step % 2 == 0; /* odd, for elements of all columns */
    CUDA_TRY(cudaMemsetAsync(race->out, race->gemm->accumulate ? 0 : 0xff, bytes, race->stream));
    if (blas_run(race->blas, race->plan, race->gemm, race->out, algo, race->workspace, race->stream) !=
        CUBLAS_STATUS_SUCCESS)
        return FAILED("cuBLASLt failed in a matrix multiplication that it had accepted");
    CUDA_TRY(cudaMemcpy2DAsync(ret_samples, size, race->out, (size_t)step * size, size, SAMPLES,
                               cudaMemcpyDeviceToHost, race->stream));
    CUDA_TRY(cudaStreamSynchronize(race->stream));
    return OK;
}

/* Whether two algorithms produce the same result except for rounding. */
static Status agree(const Race *race, const cublasLtMatmulAlgo_t *a, const cublasLtMatmulAlgo_t *b,
                    bool *ret_agree) {
    uint32_t buffer[2][SAMPLES];
    size_t size = dtype_size(race->gemm->out_type);
    size_t bytes = (size_t)(race->gemm->rows * race->gemm->cols) * size;
    TRY(sample(race, a, bytes, size, buffer[0]));
    TRY(sample(race, b, bytes, size, buffer[1]));
    Tensor x = tensor_1d(buffer[0], race->gemm->out_type, SAMPLES), y = x;
    y.data = buffer[1];
    double largest = 0, difference = 0;
    *ret_agree = true;
    for (int64_t i = 0; i < SAMPLES; i++) {
        double one = tensor_get(x, i), other = tensor_get(y, i);
        if (isfinite(one) != isfinite(other)) *ret_agree = false;
        if (!isfinite(one) || !isfinite(other)) continue;
        largest = fmax(largest, fabs(one));
        difference = fmax(difference, fabs(one - other));
    }
    if (difference > largest / 64) *ret_agree = false;
    return OK;
}

/* Improves race->best. Clocks vary under load, so in the end both algorithms run in turn. */
static Status search(Race *race) {
    const cublasLtMatmulAlgo_t before = race->best;
    int32_t max_option = 0;
    size_t written;
    if (race->blas->api.cap_get(&before, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, &max_option, sizeof max_option,
                                &written) != CUBLAS_STATUS_SUCCESS ||
        max_option == 0)
        return OK; /* an older kind of kernel */
    for (int round = 0; round < SEARCH_ROUNDS; round++) {
        const cublasLtMatmulAlgo_t last = race->best;
        for (int which = 0; which < ATTRIBUTES; which++) TRY(vary(race, which));
        if (!memcmp(&last, &race->best, sizeof last)) break;
    }
    if (!memcmp(&before, &race->best, sizeof before)) return OK;
    float total[2] = {0};
    bool agreed = false;
    for (int turn = 0; turn < 6; turn++) {
        float time;
        TRY(measure(race, turn % 2 ? &race->best : &before, REPEATS, &time));
        total[turn % 2] += time;
    }
    TRY(agree(race, &before, &race->best, &agreed));
    if (!agreed || total[1] > 0.99f * total[0]) race->best = before;
    return OK;
}

/* The fastest algorithm. A GEMM that accumulates is timed on a scratch output; if that cannot be allocated,
 * the first candidate is used. A GEMM that overwrites its output is timed in place, because the real run
 * follows and overwrites it again. */
static Status find_fastest(const Blas *blas, const GemmPlan *plan, const CudaGemm *gemm, void *workspace,
                           cudaStream_t stream, const cublasLtMatmulAlgo_t *candidate, int candidates,
                           double flops, cublasLtMatmulAlgo_t *ret_best) {
    CLEANUP(clock_done) Clock clock = {0};
    CLEANUP(arena_freep) void *scratch = NULL;
    *ret_best = candidate[0];
    if (gemm->accumulate) {
        size_t bytes = (size_t)(gemm->rows * gemm->cols) * dtype_size(gemm->out_type);
        if (cudaMalloc(&scratch, bytes) != cudaSuccess) {
            (void)cudaGetLastError();
            scratch = NULL;
            return OK;
        }
        CUDA_TRY(cudaMemsetAsync(scratch, 0, bytes, stream));
    }
    CUDA_TRY(cudaEventCreate(&clock.start));
    CUDA_TRY(cudaEventCreate(&clock.stop));
    Race race = {.blas = blas, .plan = plan, .gemm = gemm, .workspace = workspace, .stream = stream};
    race.out = scratch ? scratch : gemm->out;
    race.clock = clock;
    for (int i = 0; i < candidates; i++) TRY(enter(&race, &candidate[i], REPEATS));
    bool large = flops >= min_search_flops && gemm->rows * gemm->cols >= 2 * SAMPLES;
    if (race.time > 0 && large && gemm->out_type != DT_I32) TRY(search(&race));
    if (race.time > 0) *ret_best = race.best;
    return OK;
}

Status blas_choose(Blas *blas, GemmPlan *plan, const CudaGemm *gemm, void *workspace, cudaStream_t stream,
                   const cublasLtMatmulAlgo_t *candidate, int candidates) {
    plan->algo = candidate[0];
    double flops = 2.0 * (double)gemm->rows * (double)gemm->cols * (double)gemm->inner;
    if (!blas->choices_path || flops < min_flops) return OK;
    if (!blas->choices_read) TRY(read_choices(blas));
    const Choice *known = find_choice(blas, &plan->key);
    if (known) {
        if (is_valid(blas, plan, &known->algo)) plan->algo = known->algo;
        return OK;
    }
    enum cudaStreamCaptureStatus capture;
    CUDA_TRY(cudaStreamIsCapturing(stream, &capture));
    if (capture != cudaStreamCaptureStatusNone) return OK;
    Choice choice = {.key = plan->key};
    TRY(find_fastest(blas, plan, gemm, workspace, stream, candidate, candidates, flops, &choice.algo));
    bool kept = false;
    TRY(keep_choice(blas, &choice, &kept));
    if (!kept) mem_freep(&blas->choices_path);
    if (kept && is_valid(blas, plan, &choice.algo)) plan->algo = choice.algo;
    return OK;
}
