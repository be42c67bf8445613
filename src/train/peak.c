/* GEMMs grow until one takes long enough to time, so that slow kernels do not take longer than fast ones. A
 * rank alone on a host is faster than one of several, so cached values are keyed by the number of ranks on
 * the host too.
 *
 * Other load on the host should not lower the result. With one thread, CPU time is used where it is less than
 * wall-clock time (the CPU clock of several threads lags behind), and a set of cores is assumed to be at
 * least as fast as any smaller set that was measured. */
#include "train/peak.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/memory.h"

/* Realistic operand values (normally distributed), because a GPU's power draw, and so its clock, depends on
 * them. */
static Status fill_random(Stream *stream, Tensor matrix) {
    enum { CHUNK = 1 << 18 };
    size_t size = dtype_size(matrix.dtype), bytes = tensor_bytes(matrix), chunk = CHUNK * size;
    CLEANUP(mem_freep) float *values = NULL;
    CLEANUP(mem_freep) char *typed = NULL;
    TRY(mem_new(CHUNK, sizeof *values, &values));
    TRY(mem_new(CHUNK, size, &typed));
    RngKey key = rng_key(1, "peak", 0);
    for (uint64_t i = 0; i < CHUNK; i++) values[i] = rng_normal(key, i);
    TRY(dtype_convert(typed, matrix.dtype, values, DT_F32, CHUNK));
    for (size_t at = 0; at < bytes; at += chunk)
        TRY(stream_copy(stream, (char *)matrix.data + at, typed, chunk < bytes - at ? chunk : bytes - at,
                        COPY_TO_DEVICE));
    return stream_sync(stream);
}

typedef struct GemmBench {
    Exec exec;
    Buffer memory;
    DType dtype;
    int64_t largest; /* side of the largest matrices */
} GemmBench;

static Status time_gemm(GemmBench *p, int64_t side, double *ret_seconds) {
    Tensor matrix[3];
    for (int i = 0; i < 3; i++)
        matrix[i] =
            tensor_2d((char *)p->memory.data + (size_t)i * (p->memory.bytes / 3), p->dtype, side, side);
    double start = clock_wall(), cpu = clock_cpu();
    TRY(linear_forward(&p->exec, matrix[0], TENSOR_NONE, matrix[1], matrix[2], TENSOR_NONE, ACT_NONE));
    TRY(stream_sync(p->exec.stream));
    *ret_seconds = clock_wall() - start;
    const Device *device = p->exec.stream->device;
    if (device_is_host(device) && device->threads == 1) *ret_seconds = fmin(*ret_seconds, clock_cpu() - cpu);
    return OK;
}

static Status best_gemm(GemmBench *p, double budget_s, double *ret_flops) {
    const double enough_s = 0.01;
    TRY(fill_random(p->exec.stream, tensor_1d(p->memory.data, p->dtype, 3 * p->largest * p->largest)));
    double best = 0, begun = clock_wall(), seconds;
    int64_t side = p->largest < 8192 ? 256 : p->largest;
    TRY(time_gemm(p, side, &seconds));
    while (side < p->largest && seconds < enough_s) {
        side *= 2;
        TRY(time_gemm(p, side, &seconds));
    }
    do {
        TRY(time_gemm(p, side, &seconds));
        best = fmax(best, 2.0 * (double)(side * side * side) / seconds);
    } while (clock_wall() - begun < budget_s);
    *ret_flops = best;
    return OK;
}

static Status measure(const Job *job, double budget_s, double *ret_flops) {
    CLEANUP(stream_freep) Stream *stream = NULL;
    CLEANUP(dev_free) Buffer memory = {0};
    TRY(stream_new(&stream, job->device));
    GemmBench bench = {.exec = {.stream = stream, .table = job->runner->exec.table},
                       .dtype = job->settings.run.dtype,
                       .largest = device_is_host(job->device) ? 1024 : 8192};
    for (;; bench.largest /= 2) { /* as large as the free memory allows */
        size_t side = (size_t)bench.largest;
        CLEANUP(status_freep)
        Status status =
            dev_alloc(job->device, MEM_SCRATCH, 3 * side * side * dtype_size(bench.dtype), &memory);
        if (!status) break;
        if (side <= 512) return FAILED("not enough memory to measure the peak throughput");
    }
    bench.memory = memory;
    return best_gemm(&bench, budget_s, ret_flops);
}

Status peak_measure(const Job *job, double budget_s, double *ret_flops) {
    Device *device = job->device;
    MemStat before[MEM_TAGS + 1];
    memcpy(before, device->mem, sizeof device->mem);
    before[MEM_TAGS] = device->total;
    Status status = measure(job, budget_s, ret_flops);
    for (int tag = 0; tag < MEM_TAGS; tag++) device->mem[tag].peak = before[tag].peak;
    device->total.peak = before[MEM_TAGS].peak;
    return status;
}

/* ---- cached measurements ---- */

/* How the ranks on this host share its cores. A GPU counts as one core. */
typedef struct Cores {
    int ranks;   /* ranks on this host */
    double part; /* fraction of time that each thread runs: below 1 if there are more threads than cores */
    double used; /* cores used by all ranks on this host */
    int index;   /* of this rank among them */
} Cores;

/* Cache key of a rank: host, device, precision and kernels. */
static Status describe(const Job *job, const char *precision, char **ret_name) {
    char host[65] = "";
    if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
    return str_format(ret_name, "%s, %s %d, %s, %s %s", host, job->device->ops->name, job->device->index,
                      precision, job->runner->exec.table->name, kernels_cpu_isa());
}

/* Reads a cache file; a missing or damaged one reads as an empty object. */
static Status read_cache(const char *path, json_t **ret_cache) {
    json_t *cache = NULL;
    CLEANUP(status_freep) Status ignored = path_exists(path) ? json_read_file(path, &cache) : OK;
    if (!json_is_object(cache)) {
        json_decref(cache);
        cache = json_object();
    }
    *ret_cache = cache;
    return cache ? OK : FAILED("out of memory");
}

static Status save(const char *dir, const char *path, const char *name, double flops) {
    CLEANUP(json_decrefp) json_t *cache = NULL;
    TRY(dir_make(dir));
    TRY(read_cache(path, &cache));
    if (json_object_set_new(cache, name, json_real(flops)) != 0) return FAILED("out of memory");
    return json_write_file(path, cache);
}

static Cores cores_of(bool host, int ranks, int threads) {
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN), wanted = (double)ranks * threads;
    if (!host) return (Cores){.ranks = ranks, .part = 1, .used = ranks};
    double part = cores > 0 && wanted > cores ? cores / wanted : 1;
    return (Cores){.ranks = ranks, .part = part, .used = part * wanted};
}

/* The best cached total of this host with no more cores than now, per current rank. On a GPU, its best cached
 * value. */
static double best_of_fewer_cores(json_t *cache, const char *key, bool host, const Cores *here) {
    double best = 0;
    const char *name;
    json_t *value;
    json_object_foreach(cache, name, value) {
        int threads, ranks;
        size_t length = strlen(key);
        if (strncmp(name, key, length)) continue;
        if (sscanf(name + length, ", %d threads, %d ranks", &threads, &ranks) != 2) continue;
        if (threads < 1 || ranks < 1) continue;
        Cores entry = cores_of(host, ranks, threads);
        if (host && entry.used > here->used + 1e-9) continue;
        double together = json_number_value(value) * entry.part * ranks;
        best = fmax(best, host ? together / here->ranks : json_number_value(value));
    }
    return best;
}

static Status measure_cached(const Job *job, const char *key, const Cores *here, double *ret_flops) {
    const double brief_s = 0.02, first_s = 0.2;
    CLEANUP(mem_freep) char *dir = NULL;
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(mem_freep) char *name = NULL;
    CLEANUP(json_decrefp) json_t *cache = NULL;
    TRY(str_format(&name, "%s, %d threads, %d ranks", key, job->device->threads, here->ranks));
    TRY(user_cache(&dir));
    if (dir) TRY(path_join(&path, dir, "peak.json"));
    if (path) TRY(read_cache(path, &cache));
    double cached = json_number_at(cache, name), flops = 0;
    TRY(peak_measure(job, cached > 0 ? brief_s : first_s, &flops));
    if (flops > cached && path && job->runner->mesh->rank == 0) {
        /* If the cache cannot be written, the next run just measures again. */
        CLEANUP(status_freep) Status ignored = save(dir, path, name, flops);
        (void)ignored;
    }
    flops = fmax(flops, cached) * here->part;
    *ret_flops = fmax(flops, best_of_fewer_cores(cache, key, device_is_host(job->device), here));
    return OK;
}

static Status find_cores(const Job *job, Cores *ret_cores) {
    Group *world = job->runner->mesh->world;
    char own[64] = "";
    int here = 0;
    CLEANUP(mem_freep) char(*hosts)[sizeof own] = NULL;
    if (gethostname(own, sizeof own - 1) != 0) own[0] = 0;
    TRY(mem_new((size_t)world->size, sizeof *hosts, &hosts));
    TRY(host_gather(world, hosts, own, sizeof own));
    for (int r = 0; r < world->size; r++) here += !memcmp(hosts[r], own, sizeof own);
    *ret_cores = cores_of(device_is_host(job->device), here, job->device->threads);
    for (int r = 0; r < world->rank; r++) ret_cores->index += !memcmp(hosts[r], own, sizeof own);
    return OK;
}

/* Ranks that share cores would all wait for each other's measurement: as many measure as run at once. */
static Status measure_share(const Job *job, const char *key, const Cores *here, double *ret_flops) {
    int threads = device_is_host(job->device) ? job->device->threads : 1, ranks = (int)(here->used / threads);
    if (here->part == 1 || ranks < 1) ranks = here->part == 1 ? here->ranks : 1;
    *ret_flops = 0;
    if (here->index >= ranks) return OK;
    TRY(measure_cached(job, key, here, ret_flops));
    *ret_flops *= (double)here->ranks / ranks;
    return OK;
}

/* ---- one value for several runs ---- */

/* The value in $WEFT_PEAK_FILE for the total number of cores: stored by the first run, used unchanged by
 * later ones. Returns 0 if the file has no such value, and on all ranks but rank 0. */
static double read_shared(const Job *job, const char *name) {
    const char *path = getenv("WEFT_PEAK_FILE");
    CLEANUP(json_decrefp) json_t *cache = NULL;
    if (!path || !*path || job->runner->mesh->rank > 0) return 0;
    CLEANUP(status_freep) Status failed = read_cache(path, &cache);
    double flops = failed ? 0 : json_number_at(cache, name);
    return flops > 0 ? flops : 0;
}

static void write_shared(const Job *job, const char *name, double flops) {
    const char *path = getenv("WEFT_PEAK_FILE");
    CLEANUP(json_decrefp) json_t *cache = NULL;
    if (!path || !*path || job->runner->mesh->rank > 0 || !(flops > 0)) return;
    CLEANUP(status_freep) Status failed = read_cache(path, &cache);
    if (failed || json_object_set_new(cache, name, json_real(flops)) != 0) return;
    CLEANUP(status_freep) Status ignored = json_write_file(path, cache);
    (void)ignored;
}

Status peak_of_ranks(const Job *job, const char *precision, double *ret_flops) {
    Group *world = job->runner->mesh->world;
    CLEANUP(mem_freep) char *key = NULL;
    CLEANUP(mem_freep) char *name = NULL;
    Cores here = {0};
    TRY(find_cores(job, &here));
    TRY(describe(job, precision, &key));
    double used = here.used / here.ranks, flops = NAN;
    TRY(host_reduce(world, &used, 1, DT_F64, REDUCE_SUM));
    TRY(str_format(&name, "%s, %.6g cores", key, used));
    double shared = read_shared(job, name);
    TRY(host_reduce(world, &shared, 1, DT_F64, REDUCE_MAX));
    *ret_flops = shared;
    if (shared > 0) return OK;
    CLEANUP(status_freep) Status failed = measure_share(job, key, &here, &flops);
    if (failed) flops = NAN;
    TRY(host_reduce(world, &flops, 1, DT_F64, REDUCE_SUM));
    write_shared(job, name, flops);
    *ret_flops = flops;
    return OK;
}
