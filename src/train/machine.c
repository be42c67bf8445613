#include "train/trainer.h"

#include <string.h>
#include <time.h>

#include "base/host.h"
#include "base/version.h"
#include "comm/mpi.h"
#include "device/registry.h"

enum { MAX_HOSTS = 64 };

/* Different host names, in order of ranks. */
static json_t *hosts_json(const Group *world) {
    json_t *hosts = json_array();
    char host[HOST_SIZE];
    for (int r = 0; r < world->size && json_array_size(hosts) < MAX_HOSTS; r++) {
        const json_t *known;
        bool listed = false;
        size_t i;
        group_host(world, r, host);
        json_array_foreach(hosts, i, known) listed |= !strcmp(json_string_value(known), host);
        if (!listed) json_array_append_new(hosts, json_string(host));
    }
    return hosts;
}

/* Names of the GPUs in this host; empty for a run on CPUs. */
static json_t *gpus_json(const Job *job) {
    CudaInfo info = {0};
    json_t *gpus = json_array();
    if (!device_is_host(job->device)) device_cuda_info(&info);
    for (int i = 0; i < info.devices && i < CUDA_DEVICES_SHOWN; i++)
        json_array_append_new(gpus, json_pack("{s:s, s:I}", "name", info.device[i].name, "memory_bytes",
                                              (json_int_t)info.device[i].memory));
    return gpus;
}

json_t *machine_json(const Job *job) {
    const Group *world = job->runner->mesh->world;
    char cpu[CPU_NAME], date[32];
    time_t now = time(NULL);
    struct tm utc;
    host_cpu(cpu);
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return json_pack("{s:s, s:s, s:s, s:i, s:I, s:s, s:s, s:o, s:s, s:i, s:o}", "date", date, "weft",
                     weft_build(), "cpu", cpu, "cores", host_cores(), "memory_bytes", (json_int_t)host_ram(),
                     "instruction_set", kernels_cpu_isa(), "matrix_library", kernels_cpu_blas(), "gpus",
                     gpus_json(job), "mpi", world->size > 1 ? mpi_library() : "", "host_count",
                     group_hosts(world), "hosts", hosts_json(world));
}
