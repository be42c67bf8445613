/* Tuning: measures which of cuBLASLt's algorithms is fastest, once per kind of GEMM and kind of GPU.
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
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "kernels/cuda/blas.h"

static const double min_flops = 1e9; /* below this, launching costs more than tuning could save */

enum { FILE_VERSION = 3, REPEATS = 4, FILE_LIMIT = 64 << 20 };
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

static void fd_closep(int *fd) {
    if (*fd >= 0) close(*fd); /* also releases the lock */
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

/* The time of REPEATS runs in milliseconds, or -1 if the algorithm fails. */
static Status measure(const Blas *blas, const GemmPlan *plan, const CudaGemm *gemm, void *out,
                      const cublasLtMatmulAlgo_t *algo, void *workspace, cudaStream_t stream,
                      const Clock *clock, float *ret_time) {
    *ret_time = -1;
    for (int i = -1; i < REPEATS; i++) {
        if (i == 0) CUDA_TRY(cudaEventRecord(clock->start, stream)); /* after one warm-up run */
        if (blas_run(blas, plan, gemm, out, algo, workspace, stream) != CUBLAS_STATUS_SUCCESS) return OK;
    }
    CUDA_TRY(cudaEventRecord(clock->stop, stream));
    CUDA_TRY(cudaEventSynchronize(clock->stop));
    return cuda_status(cudaEventElapsedTime(ret_time, clock->start, clock->stop),
                       "timing a matrix multiplication");
}

/* A GEMM that accumulates is timed on a scratch output; if that cannot be allocated, the first candidate is
 * used. A GEMM that overwrites its output is timed in place, because the real run follows and overwrites it
 * again. */
static Status find_fastest(const Blas *blas, const GemmPlan *plan, const CudaGemm *gemm, void *workspace,
                           cudaStream_t stream, const cublasLtMatmulAlgo_t *candidate, int candidates,
                           int *ret_best) {
    CLEANUP(clock_done) Clock clock = {0};
    CLEANUP(arena_freep) void *scratch = NULL;
    *ret_best = 0;
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
    float best = -1;
    for (int i = 0; i < candidates; i++) {
        float time = -1;
        TRY(measure(blas, plan, gemm, scratch ? scratch : gemm->out, &candidate[i], workspace, stream, &clock,
                    &time));
        if (time < 0 || (best >= 0 && time >= best)) continue;
        best = time;
        *ret_best = i;
    }
    return OK;
}

static bool is_valid(const Blas *blas, const GemmPlan *plan, const cublasLtMatmulAlgo_t *algo) {
    cublasLtMatmulHeuristicResult_t result = {0};
    return blas->api.check(blas->handle, plan->desc, plan->right, plan->left, plan->out, plan->out, algo,
                           &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= BLAS_WORKSPACE;
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
    int best = 0;
    TRY(find_fastest(blas, plan, gemm, workspace, stream, candidate, candidates, &best));
    Choice choice = {.key = plan->key, .algo = candidate[best]};
    bool kept = false;
    TRY(keep_choice(blas, &choice, &kept));
    if (!kept) mem_freep(&blas->choices_path);
    if (kept && is_valid(blas, plan, &choice.algo)) plan->algo = choice.algo;
    return OK;
}
