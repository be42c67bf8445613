/* weft plan --measure: benchmarks this machine and writes a cluster file. */
#include <string.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "cli/hosts.h"
#include "cli/info.h"
#include "cli/plan.h"
#include "comm/mpi.h"
#include "device/registry.h"
#include "plan/measure.h"

enum { SECONDS = 30 };

/* "2 threads of Neoverse-V1", or the name of the GPU. */
static Status name_device(const Settings *config, char name[CLUSTER_NAME]) {
    CLEANUP(json_decrefp) json_t *machine = json_object();
    if (strcmp(config->device.name, "cuda") == 0) {
        CudaInfo info;
        device_cuda_info(&info);
        snprintf(name, CLUSTER_NAME, "%.60s", info.devices ? info.device[0].name : "a GPU");
        return OK;
    }
    TRY(machine_describe(machine));
    const char *cpu = json_string_at(machine, "cpu");
    int threads = device_host_threads((int)config->device.threads);
    snprintf(name, CLUSTER_NAME, threads > 1 ? "%d threads of %.40s" : "%d thread of %.40s", threads,
             cpu ? cpu : "this machine");
    return OK;
}

/* Finds errors before the measurement starts. */
static Status check_measure(const Invocation *call) {
    static const char *const known[] = {"measure",   "out",     "ranks",  "hosts",     "hostfile", "verbose",
                                        "log-ranks", "threads", "device", "precision", "kernels",  NULL};
    const PlanArgs *args = call->config;
    const Settings *config = &args->train.config;
    int64_t ranks = args->train.layout.ranks ? args->train.layout.ranks : 1, cores = device_host_cores();
    char label[LABEL_SIZE];
    TRY(plan_only(call, "measure", known));
    if (call->operand_count)
        return USAGE("'%s': --measure takes no argument; name the file to write with --out",
                     call->operands[0]);
    if (!args->out) return USAGE("--measure requires --out FILE, the cluster file to write");
    if (path_is_dir(args->out)) return USAGE("--out %s is a directory; expected a file", args->out);
    CLEANUP(file_writer_freep) FileWriter *trial = NULL;
    if (mpi_launched().rank == 0 && !path_is_special(args->out)) TRY(file_writer_new(&trial, args->out));
    int64_t threads = config->device.threads ? config->device.threads : 1;
    if (!call->world && !hosts_named(call) && strcmp(config->device.name, "cuda") && ranks * threads > cores)
        return USAGE("%s %lld: %lld threads on %lld cores would distort the measurement; use fewer ranks or "
                     "threads",
                     invocation_label(call, ranks > 1 ? "ranks" : "threads", label),
                     (long long)(ranks > 1 ? ranks : threads), (long long)(ranks * threads),
                     (long long)cores);
    return OK;
}

Status plan_measure(Invocation *call, json_t **ret_result) {
    PlanArgs *args = call->config;
    Settings *config = &args->train.config;
    char name[CLUSTER_NAME];
    bool here;
    CLEANUP(json_decrefp) json_t *cluster = NULL;
    double start = clock_wall();
    TRY(check_measure(call));
    TRY(layout_enter(call, &args->train, false, &here));
    if (!here) return OK;
    TRY(name_device(config, name));
    MeasureSpec spec = {.device = config->device.name,
                        .precision = config->device.precision,
                        .name = name,
                        .threads = (int)config->device.threads,
                        .on = config->device.on,
                        .world = config->run.mesh->world,
                        .log = call->world && call->world->rank > 0 ? NULL : stderr,
                        .start = start,
                        .seconds = SECONDS};
    TRY(measure_cluster(&spec, &cluster));
    if (spec.world->rank == 0) TRY(json_write_file(args->out, cluster));
    *ret_result = json_pack("{s:s, s:O}", "file", args->out, "cluster", cluster);
    return *ret_result ? OK : FAILED("out of memory while describing the machine");
}

static double value_of(const json_t *object, const char *key) {
    return json_number_at(json_object_get(object, key), "value");
}

void plan_measure_show(const json_t *result, FILE *out) {
    const json_t *cluster = json_object_get(result, "cluster"), *device = json_object_get(cluster, "device");
    const json_t *links = json_object_get(cluster, "links"), *within = json_object_get(links, "within");
    const json_t *between = json_object_get(links, "between");
    const char *source = json_string_at(json_object_get(between, "bandwidth"), "source");
    double ranks = value_of(cluster, "devices_per_node");
    char text[FORMAT_SIZE];
    const char *key;
    json_t *peak;
    fprintf(out, "%s", json_string_at(device, "name"));
    json_object_foreach(json_object_get(device, "peak_flops"), key, peak)
        fprintf(out, ", %s %sFLOP/s", key, format_si(text, json_number_at(peak, "value")));
    fprintf(out, ", memory %s/s, %.2f us between kernels\n",
            format_bytes(text, value_of(device, "memory_bandwidth")), 1e6 * value_of(device, "kernel_s"));
    if (ranks > 1)
        fprintf(out, "%.0f ranks: latency %.1f us, %s per rank\n", ranks, 1e6 * value_of(within, "latency_s"),
                format_rate(text, value_of(within, "bandwidth")));
    if (source && !strncmp(source, "measured", 8))
        fprintf(out, "between nodes: latency %.1f us, %s per node\n", 1e6 * value_of(between, "latency_s"),
                format_rate(text, ranks * value_of(between, "bandwidth")));
    fprintf(out, "wrote %s\n", json_string_at(result, "file"));
}
