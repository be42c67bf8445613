/* Products grow until one takes long enough to be timed, so that slow kernels take no longer than fast ones.
 * A rank alone on a machine is faster than one of several, hence what is kept is kept by their number too.
 *
 * Nobody else's work on the machine should show: a product on one core takes as long as it had the core (the
 * clock of several lags behind), and no less is assumed of some cores than was seen of fewer. */
#include "train/peak.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/memory.h"

/* Numbers as products meet them: a GPU's clock depends on what it multiplies.
 */
static Status put_numbers(Stream *stream, Tensor matrix) {
    enum { PIECE = 1 << 18 };
    size_t size = dtype_size(matrix.dtype), bytes = tensor_bytes(matrix), piece = PIECE * size;
    CLEANUP(mem_freep) float *values = NULL;
    CLEANUP(mem_freep) char *typed = NULL;
    TRY(mem_new(PIECE, sizeof *values, &values));
    TRY(mem_new(PIECE, size, &typed));
    RngKey key = rng_key(1, "peak", 0);
    for (uint64_t i = 0; i < PIECE; i++) values[i] = rng_normal(key, i);
    TRY(dtype_convert(typed, matrix.dtype, values, DT_F32, PIECE));
    for (size_t at = 0; at < bytes; at += piece)
        TRY(stream_copy(stream, (char *)matrix.data + at, typed, piece < bytes - at ? piece : bytes - at,
                        COPY_TO_DEVICE));
    return stream_sync(stream);
}

typedef struct Products {
    Exec exec;
    Buffer memory;
    DType dtype;
    int64_t largest; /* side */
} Products;

static Status time_product(Products *p, int64_t side, double *ret_seconds) {
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

static Status time_products(Products *p, double budget_s, double *ret_flops) {
    const double enough_s = 0.01;
    TRY(put_numbers(p->exec.stream, tensor_1d(p->memory.data, p->dtype, 3 * p->largest * p->largest)));
    double best = 0, begun = clock_wall(), seconds;
    int64_t side = p->largest < 8192 ? 256 : p->largest;
    TRY(time_product(p, side, &seconds));
    while (side < p->largest && seconds < enough_s) {
        side *= 2;
        TRY(time_product(p, side, &seconds));
    }
    do {
        TRY(time_product(p, side, &seconds));
        best = fmax(best, 2.0 * (double)(side * side * side) / seconds);
    } while (clock_wall() - begun < budget_s);
    *ret_flops = best;
    return OK;
}

static Status measure(const Job *job, double budget_s, double *ret_flops) {
    CLEANUP(stream_freep) Stream *stream = NULL;
    CLEANUP(dev_free) Buffer memory = {0};
    TRY(stream_new(&stream, job->device));
    Products products = {.exec = {.stream = stream, .table = job->runner->exec.table},
                         .dtype = job->plan.dtype,
                         .largest = device_is_host(job->device) ? 1024 : 8192};
    for (;; products.largest /= 2) { /* as large as what training has left of the memory allows */
        size_t side = (size_t)products.largest;
        CLEANUP(status_freep)
        Status status =
            dev_alloc(job->device, MEM_SCRATCH, 3 * side * side * dtype_size(products.dtype), &memory);
        if (!status) break;
        if (side <= 512) return FAILED("there is no memory to measure the machine's peak with");
    }
    products.memory = memory;
    return time_products(&products, budget_s, ret_flops);
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

/* ---- what was seen before ---- */

/* How the ranks of this rank's machine share its cores. A GPU counts as one. */
typedef struct Cores {
    int ranks;   /* here */
    double part; /* of its threads' time that a rank gets: where there are more threads than cores, they take
                  * turns, and each is as fast in its turn as if it were alone */
    double used; /* by all ranks here */
} Cores;

/* What a rank's rate depends on, but for its threads and the other ranks. */
static Status describe(const Job *job, const char *precision, char **ret_name) {
    char host[65] = "";
    if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
    return str_format(ret_name, "%s, %s %d, %s, %s %s", host, job->device->ops->name, job->device->index,
                      precision, job->runner->exec.table->name, kernels_cpu_isa());
}

/* All that is kept, an empty object where that is nothing or damaged. */
static Status read_kept(const char *path, json_t **ret_kept) {
    json_t *kept = NULL;
    CLEANUP(status_freep) Status unread = path_exists(path) ? json_read_file(path, &kept) : OK;
    if (!json_is_object(kept)) {
        json_decref(kept);
        kept = json_object();
    }
    *ret_kept = kept;
    return kept ? OK : FAILED("out of memory");
}

static Status keep(const char *dir, const char *path, const char *name, double flops) {
    CLEANUP(json_decrefp) json_t *kept = NULL;
    TRY(dir_make(dir));
    TRY(read_kept(path, &kept));
    if (json_object_set_new(kept, name, json_real(flops)) != 0) return FAILED("out of memory");
    return json_write_file(path, kept);
}

static Cores cores_of(bool host, int ranks, int threads) {
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN), wanted = (double)ranks * threads;
    if (!host) return (Cores){ranks, 1, ranks};
    double part = cores > 0 && wanted > cores ? cores / wanted : 1;
    return (Cores){ranks, part, part * wanted};
}

/* The most that ranks here were seen to do together on no more cores, for each of the ranks at hand; of a GPU
 * the most that was seen of it. */
static double seen_of_fewer(json_t *kept, const char *machine, bool host, const Cores *here) {
    double most = 0;
    const char *name;
    json_t *value;
    json_object_foreach(kept, name, value) {
        int threads, ranks;
        size_t length = strlen(machine);
        if (strncmp(name, machine, length)) continue;
        if (sscanf(name + length, ", %d threads, %d ranks", &threads, &ranks) != 2) continue;
        if (threads < 1 || ranks < 1) continue;
        Cores then = cores_of(host, ranks, threads);
        if (host && then.used > here->used + 1e-9) continue;
        double together = json_number_value(value) * then.part * ranks;
        most = fmax(most, host ? together / here->ranks : json_number_value(value));
    }
    return most;
}

static Status measure_or_recall(const Job *job, const char *machine, const Cores *here, double *ret_flops) {
    const double look_s = 0.02, first_s = 0.2;
    CLEANUP(mem_freep) char *dir = NULL;
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(mem_freep) char *name = NULL;
    CLEANUP(json_decrefp) json_t *kept = NULL;
    TRY(str_format(&name, "%s, %d threads, %d ranks", machine, job->device->threads, here->ranks));
    TRY(user_cache(&dir));
    if (dir) TRY(path_join(&path, dir, "peak.json"));
    if (path) TRY(read_kept(path, &kept));
    double seen = json_number_value(json_object_get(kept, name)), flops = 0;
    TRY(peak_measure(job, seen > 0 ? look_s : first_s, &flops));
    if (flops > seen && path && job->runner->mesh->rank == 0) {
        /* A place that cannot be written to costs only time. */
        CLEANUP(status_freep) Status lost = keep(dir, path, name, flops);
        (void)lost;
    }
    flops = fmax(flops, seen) * here->part;
    *ret_flops = fmax(flops, seen_of_fewer(kept, machine, device_is_host(job->device), here));
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
    return OK;
}

/* ---- one for several runs ---- */

/* In the file that $WEFT_PEAK_FILE names, by what all ranks use together: what the first run with as much
 * found is taken by the others as it is. 0 where there is nothing; only the first rank looks. */
static double read_settled(const Job *job, const char *name) {
    const char *path = getenv("WEFT_PEAK_FILE");
    CLEANUP(json_decrefp) json_t *kept = NULL;
    if (!path || !*path || job->runner->mesh->rank > 0) return 0;
    CLEANUP(status_freep) Status lost = read_kept(path, &kept);
    double flops = lost ? 0 : json_number_value(json_object_get(kept, name));
    return flops > 0 ? flops : 0;
}

static void settle(const Job *job, const char *name, double flops) {
    const char *path = getenv("WEFT_PEAK_FILE");
    CLEANUP(json_decrefp) json_t *kept = NULL;
    if (!path || !*path || job->runner->mesh->rank > 0 || !(flops > 0)) return;
    CLEANUP(status_freep) Status lost = read_kept(path, &kept);
    if (lost || json_object_set_new(kept, name, json_real(flops)) != 0) return;
    CLEANUP(status_freep) Status unwritten = json_write_file(path, kept);
    (void)unwritten;
}

Status peak_of_ranks(const Job *job, const char *precision, double *ret_flops) {
    Group *world = job->runner->mesh->world;
    CLEANUP(mem_freep) char *machine = NULL;
    CLEANUP(mem_freep) char *name = NULL;
    Cores here = {0};
    TRY(find_cores(job, &here));
    TRY(describe(job, precision, &machine));
    double used = here.used / here.ranks, flops = NAN;
    TRY(host_reduce(world, &used, 1, DT_F64, REDUCE_SUM));
    TRY(str_format(&name, "%s, %.6g cores", machine, used));
    double settled = read_settled(job, name);
    TRY(host_reduce(world, &settled, 1, DT_F64, REDUCE_MAX));
    *ret_flops = settled;
    if (settled > 0) return OK;
    CLEANUP(status_freep) Status unknown = measure_or_recall(job, machine, &here, &flops);
    if (unknown) flops = NAN;
    TRY(host_reduce(world, &flops, 1, DT_F64, REDUCE_SUM));
    settle(job, name, flops);
    *ret_flops = flops;
    return OK;
}
