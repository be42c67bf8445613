#include "plan/measure.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "device/registry.h"
#include "plan/measure_models.h"

enum { SMALL_REPEATS = 200, LARGE_REPEATS = 7, HOST_NAME = 64 };

typedef struct Links {
    Link within, between;
    bool has_within, has_between;
    int here; /* ranks of this machine */
} Links;

/* ---- memory ---- */

/* Of copies that no cache holds: bytes read and written a second. */
static Status measure_memory(const MeasureSpec *spec, Device *device, double *ret_bandwidth) {
    size_t bytes = device_is_host(device) ? (size_t)96 << 20 : (size_t)1 << 30;
    CLEANUP(stream_freep) Stream *stream = NULL;
    CLEANUP(dev_free) Buffer from = {0};
    CLEANUP(dev_free) Buffer to = {0};
    double best = 0;
    TRY(stream_new(&stream, device));
    TRY(dev_alloc(device, MEM_SCRATCH, bytes, &from));
    TRY(dev_alloc(device, MEM_SCRATCH, bytes, &to));
    TRY(stream_zero(stream, from.data, bytes));
    for (int i = 0; i < LARGE_REPEATS; i++) {
        TRY(barrier(spec->world));
        double start = clock_wall();
        TRY(stream_copy(stream, to.data, from.data, bytes, COPY_ON_DEVICE));
        TRY(stream_sync(stream));
        double rate = 2 * (double)bytes / (clock_wall() - start);
        if (i) best = fmax(best, rate);
    }
    *ret_bandwidth = best;
    return OK;
}

/* ---- links ---- */

static Status time_sum(Group *group, Stream *stream, Tensor data, int repeats, double *ret_s) {
    double best = INFINITY;
    for (int i = 0; i <= repeats; i++) { /* the first warms up */
        TRY(barrier(group));
        double start = clock_wall();
        TRY(all_reduce(group, stream, data, REDUCE_SUM, NULL));
        TRY(stream_sync(stream));
        double seconds = clock_wall() - start;
        TRY(host_reduce(group, &seconds, 1, DT_F64, REDUCE_MAX));
        if (i) best = fmin(best, seconds);
    }
    *ret_s = best;
    return OK;
}

/* From the time of sums, as plan/cost.c makes one of them. */
static Status measure_link(Group *group, Device *device, Link *ret_link) {
    size_t bytes = device_is_host(device) ? (size_t)8 << 20 : (size_t)256 << 20;
    CLEANUP(stream_freep) Stream *stream = NULL;
    CLEANUP(dev_free) Buffer buffer = {0};
    double small_s = 0, large_s = 0, size = group->size;
    TRY(stream_new(&stream, device));
    TRY(dev_alloc(device, MEM_COMM, bytes, &buffer));
    TRY(stream_zero(stream, buffer.data, bytes));
    Tensor data = tensor_1d(buffer.data, DT_F32, (int64_t)bytes / 4);
    TRY(time_sum(group, stream, tensor_slice(data, 0, 1), SMALL_REPEATS, &small_s));
    TRY(time_sum(group, stream, data, LARGE_REPEATS, &large_s));
    double moved = 2 * (double)bytes * (size - 1) / size;
    *ret_link = (Link){.latency_s = small_s / (2 * ceil(log2(size))),
                       .bandwidth = moved / fmax(large_s - small_s, 0.01 * large_s),
                       .share = 1};
    return OK;
}

/* Ranks are numbered by the first one of their machine. */
static Status measure_links(const MeasureSpec *spec, Device *device, Links *links) {
    Group *world = spec->world;
    CLEANUP(mem_freep) char *hosts = NULL;
    CLEANUP(group_freep) Group *near = NULL;
    char host[HOST_NAME] = {0};
    gethostname(host, sizeof host - 1);
    TRY(mem_new((size_t)world->size, sizeof host, &hosts));
    TRY(host_gather(world, hosts, host, sizeof host));
    int first = 0;
    while (memcmp(hosts + (size_t)first * sizeof host, host, sizeof host)) first++;
    for (int r = 0; r < world->size; r++)
        links->here += !memcmp(hosts + (size_t)r * sizeof host, host, sizeof host);
    TRY(group_split(world, first, world->rank, &near));
    if (near->size > 1) TRY(measure_link(near, device, &links->within));
    links->has_within = near->size > 1;
    links->has_between = links->here < world->size;
    if (links->has_between) TRY(measure_link(world, device, &links->between));
    return OK;
}

/* ---- the description ---- */

static json_t *figure(double value, const char *source) {
    return json_pack("{s:f, s:s}", "value", value, "source", source);
}

static json_t *link_json(const Link *link, bool measured, const char *how) {
    return json_pack("{s:o, s:o, s:o}", "latency_s", figure(link->latency_s, how), "bandwidth",
                     figure(link->bandwidth, how), "share",
                     figure(link->share, measured ? "part of the bandwidth as measured" : how));
}

static json_t *links_json(const Links *links, double memory) {
    static const char *const measured = "measured: sums over the ranks (weft plan --measure)";
    static const char *const guess = "not measured: a guess";
    Link alone = {.latency_s = 5e-6, .bandwidth = memory / 4, .share = 1};
    Link far = {.latency_s = 3e-5, .bandwidth = 1e9, .share = 1};
    Link host = {.latency_s = 1e-7, .bandwidth = memory, .share = 1};
    return json_pack("{s:o, s:o, s:o}", "within",
                     link_json(links->has_within ? &links->within : &alone, links->has_within,
                               links->has_within ? measured : guess),
                     "between",
                     link_json(links->has_between ? &links->between : &far, links->has_between,
                               links->has_between ? measured : guess),
                     "host", link_json(&host, false, "as the memory of the device: a guess on GPUs"));
}

static double device_memory(const MeasureSpec *spec, const Device *device, int here, double *ret_host) {
    double pages = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    *ret_host = pages;
    if (strcmp(spec->device, "cuda")) return pages / here;
    CudaInfo info;
    device_cuda_info(&info);
    return device->index < info.devices ? (double)info.device[device->index].memory : pages / here;
}

/* Figures that are of use where a kernel was not measured. */
static void put_figures(json_t *json, double memory, double peak) {
    static const char *const rest = "for kernels that were not measured: a guess";
    json_object_set_new(json, "memory_bandwidth", figure(memory, "measured: copies"));
    json_object_set_new(json, "memory_share", figure(1, "part of the bandwidth as measured"));
    json_object_set_new(json, "product_wave", figure(0, rest));
    json_object_set_new(json, "product_depth", figure(0, rest));
    json_object_set_new(json, "vector_flops", figure(peak / 4, rest));
    json_object_set_new(json, "attention_share",
                        json_pack("{s:o, s:o}", "forward", figure(0.3, rest), "backward", figure(0.3, rest)));
}

static Status describe(const MeasureSpec *spec, const Device *device, const Links *links, double memory,
                       const MeasuredModels *models, json_t **ret_json) {
    double host, bytes = device_memory(spec, device, links->here, &host), slowest = INFINITY;
    json_t *peaks = json_object(), *shares = json_object(), *kernels = json_object();
    for (Rate rate = 0; rate < RATE_COUNT; rate++) {
        if (!(models->peak[rate] > 0)) continue;
        slowest = fmin(slowest, models->peak[rate]);
        json_object_set_new(peaks, rate_name(rate), figure(models->peak[rate], "measured: a large product"));
        json_object_set_new(shares, rate_name(rate), figure(1, "part of the peak as measured"));
        json_object_set_new(kernels, rate_name(rate), kernel_curves_json(&models->kernels[rate]));
    }
    json_object_set_new(kernels, "source",
                        json_string("measured: every call in training steps of small models"));
    json_t *json = json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kind", spec->device, "name", spec->name,
        "memory_bytes", figure(bytes, "the machine's, over its ranks; or the GPU's"), "reserve_bytes",
        figure(fmin(bytes / 20, 2e9), "a guess: what the program itself, drivers and libraries take"),
        "peak_flops", peaks, "product_share", shares, "kernels", kernels, "launch_s",
        figure(models->launch_s, "measured: time between kernels, where a device runs beside its host"),
        "kernel_s", figure(models->kernel_s, "measured: time between kernels"), "attention_share",
        json_object());
    put_figures(json, memory, slowest);
    *ret_json = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "name", "measured", "title",
                          "a machine that was measured", "device", json, "devices_per_node",
                          figure(links->here, "ranks that measured together"), "host_memory_bytes",
                          figure(host, "as the system tells it"), "links", links_json(links, memory));
    return *ret_json ? OK : FAILED("out of memory while describing the cluster");
}

Status measure_cluster(const MeasureSpec *spec, json_t **ret_json) {
    CLEANUP(device_freep) Device *own = NULL;
    CLEANUP(mem_freep) MeasuredModels *models = NULL;
    Links links = {0};
    double memory = 0;
    if (!spec->on) TRY(device_new(&own, spec->device, 0, spec->threads));
    Device *device = spec->on ? spec->on : own;
    TRY(mem_new(1, sizeof *models, &models));
    TRY(measure_memory(spec, device, &memory));
    TRY(measure_links(spec, device, &links));
    TRY(measure_models(spec, device, memory, models));
    return describe(spec, device, &links, memory, models, ret_json);
}
