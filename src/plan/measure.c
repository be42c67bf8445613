/* Measures in this order: memory bandwidth by copies, links within a node by all-reduces of one element and
 * of a large buffer, links between nodes by messages (plan/links.h), and kernels in training steps of small
 * models (measure_models.c). The results are written as a cluster description. */
#include "plan/measure.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/setting.h"
#include "device/registry.h"
#include "plan/links.h"

enum { SMALL_REPEATS = 200, LARGE_REPEATS = 7 };

typedef struct Links {
    Link within, between;
    bool has_within, has_between;
    int host_ranks; /* ranks on this host */
} Links;

/* ---- memory ---- */

/* Bandwidth of copies that exceed the caches: bytes read plus bytes written, per second. */
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

static Status time_all_reduce(Group *group, Stream *stream, Tensor data, int repeats, double *ret_s) {
    double best = INFINITY;
    for (int i = 0; i <= repeats; i++) { /* the first is a warm-up */
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

/* Derives latency and bandwidth from all-reduce times; the inverse of the model in plan/cost.c. */
static Status measure_link(Group *group, Device *device, Link *ret_link) {
    size_t bytes = (size_t)(device_is_host(device) ? 64 : 256)
                   << 20; /* beyond the caches, as gradients are */
    CLEANUP(stream_freep) Stream *stream = NULL;
    CLEANUP(dev_free) Buffer buffer = {0};
    double small_s = 0, large_s = 0, size = group->size;
    TRY(stream_new(&stream, device));
    TRY(dev_alloc(device, MEM_COMM, bytes, &buffer));
    TRY(stream_zero(stream, buffer.data, bytes));
    Tensor data = tensor_1d(buffer.data, DT_F32, (int64_t)bytes / 4);
    TRY(time_all_reduce(group, stream, tensor_slice(data, 0, 1), SMALL_REPEATS, &small_s));
    TRY(time_all_reduce(group, stream, data, LARGE_REPEATS, &large_s));
    double moved = 2 * (double)bytes * (size - 1) / size;
    *ret_link = (Link){.latency_s = small_s / (2 * ceil(log2(size))),
                       .bandwidth = moved / fmax(large_s - small_s, 0.01 * large_s),
                       .share = 1};
    return OK;
}

/* Ranks are grouped by host name; the first rank of a host identifies its group. The bandwidth of a node's
 * link to others is divided among its ranks. */
static Status measure_links(const MeasureSpec *spec, Device *device, Links *links) {
    Group *world = spec->world;
    CLEANUP(link_table_done) LinkTable table = {0};
    CLEANUP(group_freep) Group *host_group = NULL;
    char host[HOST_SIZE], other[HOST_SIZE];
    group_host(world, world->rank, host);
    int first = 0;
    while (strcmp(host, group_host(world, first, other))) first++;
    for (int r = 0; r < world->size; r++) links->host_ranks += !strcmp(host, group_host(world, r, other));
    TRY(group_split(world, first, world->rank, GROUP_TENSORS, &host_group));
    if (host_group->size > 1) TRY(measure_link(host_group, device, &links->within));
    links->has_within = host_group->size > 1;
    links->has_between = links->host_ranks < world->size;
    if (!links->has_between) return OK;
    TRY(links_measure(&table, world, device));
    PairLink slowest = links_slowest(table.between, table.betweens);
    links->between = (Link){
        .latency_s = slowest.latency_s, .bandwidth = slowest.bandwidth / links->host_ranks, .share = 1};
    return OK;
}

/* ---- the cluster description ---- */

static json_t *figure(double value, const char *source) {
    return json_pack("{s:f, s:s}", "value", value, "source", source);
}

static json_t *link_json(const Link *link, bool measured, const char *how) {
    return json_pack("{s:o, s:o, s:o}", "latency_s", figure(link->latency_s, how), "bandwidth",
                     figure(link->bandwidth, how), "share",
                     figure(link->share, measured ? "included in the measured bandwidth" : how));
}

static json_t *links_json(const Links *links, double memory) {
    char measured[64];
    setting_print(measured, sizeof measured, "measured: all-reduces (weft plan {measure})");
    static const char *const messages = "measured: messages between nodes, in both directions; the bandwidth "
                                        "is divided by the ranks of a node";
    static const char *const guess = "not measured: a guess";
    Link alone = {.latency_s = 5e-6, .bandwidth = memory / 4, .share = 1};
    Link far = {.latency_s = 3e-5, .bandwidth = 1e9, .share = 1};
    Link host = {.latency_s = 1e-7, .bandwidth = memory, .share = 1};
    return json_pack("{s:o, s:o, s:o}", "within",
                     link_json(links->has_within ? &links->within : &alone, links->has_within,
                               links->has_within ? measured : guess),
                     "between",
                     link_json(links->has_between ? &links->between : &far, links->has_between,
                               links->has_between ? messages : guess),
                     "host", link_json(&host, false, "same as device memory: a guess on GPUs"));
}

static double device_memory(const MeasureSpec *spec, const Device *device, int host_ranks, double *ret_host) {
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    *ret_host = memory;
    if (strcmp(spec->device, "cuda")) return memory / host_ranks;
    CudaInfo info;
    device_cuda_info(&info);
    return device->index < info.devices ? (double)info.device[device->index].memory : memory / host_ranks;
}

/* 0 on a CPU. */
static double gpu_capability(const MeasureSpec *spec, const Device *device) {
    CudaInfo info;
    if (strcmp(spec->device, "cuda")) return 0;
    device_cuda_info(&info);
    return device->index < info.devices ? info.device[device->index].capability / 10.0 : 0;
}

/* Figures that are used only for kernels that were not measured. */
static void put_figures(json_t *json, double memory, double peak) {
    static const char *const guess = "a guess, for kernels that were not measured";
    json_object_set_new(json, "memory_bandwidth", figure(memory, "measured: copies"));
    json_object_set_new(json, "memory_share", figure(1, "included in the measured bandwidth"));
    json_object_set_new(json, "product_wave", figure(0, guess));
    json_object_set_new(json, "product_depth", figure(0, guess));
    json_object_set_new(json, "vector_flops", figure(peak / 4, guess));
    json_object_set_new(
        json, "attention_share",
        json_pack("{s:o, s:o}", "forward", figure(0.3, guess), "backward", figure(0.3, guess)));
}

static Status describe(const MeasureSpec *spec, const Device *device, const Links *links, double memory,
                       const MeasuredModels *models, json_t **ret_json) {
    double host, bytes = device_memory(spec, device, links->host_ranks, &host), slowest = INFINITY;
    json_t *peaks = json_object(), *shares = json_object(), *kernels = json_object();
    for (Rate rate = 0; rate < RATE_COUNT; rate++) {
        if (!(models->peak[rate] > 0)) continue;
        slowest = fmin(slowest, models->peak[rate]);
        json_object_set_new(peaks, rate_name(rate), figure(models->peak[rate], "measured: a large GEMM"));
        json_object_set_new(shares, rate_name(rate), figure(1, "included in the measured peak"));
        json_object_set_new(kernels, rate_name(rate), kernel_curves_json(&models->kernels[rate]));
    }
    json_object_set_new(kernels, "source",
                        json_string("measured: every call in training steps of small models"));
    json_t *json = json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kind", spec->device, "name", spec->name,
        "memory_bytes", figure(bytes, "GPU memory; on a CPU, host memory divided by the ranks on the host"),
        "reserve_bytes",
        figure(fmin(bytes / 20, 2e9), "a guess: memory of the program, drivers and libraries"), "peak_flops",
        peaks, "product_share", shares, "kernels", kernels, "launch_s",
        figure(models->launch_s, "a guess on GPUs; 0 on CPUs, where kernels run on the host"), "kernel_s",
        figure(models->kernel_s, "measured: time between kernels"), "attention_share", json_object());
    if (gpu_capability(spec, device) > 0)
        json_object_set_new(json, "compute_capability",
                            figure(gpu_capability(spec, device), "reported by the driver"));
    put_figures(json, memory, slowest);
    *ret_json =
        json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "name", "measured", "title", "a measured cluster",
                  "device", json, "devices_per_node",
                  figure(links->host_ranks, "ranks on the host during the measurement"), "host_memory_bytes",
                  figure(host, "reported by the operating system"), "links", links_json(links, memory));
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
