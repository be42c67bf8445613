/* GPUs are listed as CUDA reports them. */
#include "cli/info.h"

#include <string.h>
#include <sys/utsname.h>

#include "base/format.h"
#include "base/host.h"
#include "device/device.h"
#include "device/registry.h"
#include "kernels/kernels.h"

/* 13000 as "13.0". */
static json_t *cuda_version(int version) {
    return version ? json_sprintf("%d.%d", version / 1000, version % 1000 / 10) : json_null();
}

/* Versions by library name; null if a library is not found. */
static json_t *libraries_json(void) {
    CudaLibrary library[CUDA_LIBRARIES];
    json_t *versions = json_object();
    for (int i = 0, count = device_cuda_libraries(library); i < count; i++)
        json_object_set_new(versions, library[i].name,
                            library[i].version[0] ? json_string(library[i].version) : json_null());
    return versions;
}

static json_t *cuda_json(void) {
    CudaInfo info;
    device_cuda_info(&info);
    json_t *devices = json_array();
    for (int i = 0; i < info.devices && i < CUDA_DEVICES_SHOWN; i++)
        json_array_append_new(
            devices,
            json_pack("{s:s, s:I, s:o, s:i}", "name", info.device[i].name, "memory_bytes",
                      (json_int_t)info.device[i].memory, "compute_capability",
                      json_sprintf("%d.%d", info.device[i].capability / 10, info.device[i].capability % 10),
                      "processors", info.device[i].processors));
    return json_pack("{s:b, s:o, s:o, s:s, s:o, s:o}", "built", info.built, "runtime",
                     cuda_version(info.runtime), "driver", cuda_version(info.driver), "problem", info.problem,
                     "devices", devices, "libraries", libraries_json());
}

/* The values of --device that work here. */
static json_t *device_names(void) {
    CudaInfo info;
    device_cuda_info(&info);
    return info.devices ? json_pack("[s, s]", "cpu", "cuda") : json_pack("[s]", "cpu");
}

Status machine_describe(json_t *result) {
    CLEANUP(device_freep) Device *device = NULL;
    TRY(kernels_cpu_check_variables());
    TRY(device_new_cpu(&device, 0));
    char cpu[CPU_NAME];
    host_cpu(cpu);
    struct utsname system = {0};
    uname(&system);
    json_t *facts =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:I, s:o, s:o}", "kind", "machine",
                  "version", WEFT_VERSION, "cpu", cpu, "architecture", system.machine, "threads",
                  device->threads, "instruction_set", kernels_cpu_isa(), "matrix_library", kernels_cpu_blas(),
                  "bf16_products", kernels_cpu_bf16(), "int8_products", kernels_cpu_int8(), "memory_bytes",
                  (json_int_t)host_ram(), "devices", device_names(), "cuda", cuda_json());
    int failed = !facts || json_object_update(result, facts);
    json_decref(facts);
    return failed ? FAILED("out of memory while writing the result") : OK;
}

static void show_devices(const json_t *cuda, FILE *out) {
    char text[FORMAT_SIZE];
    size_t i;
    json_t *device;
    json_array_foreach(json_object_get(cuda, "devices"), i, device) fprintf(
        out, "GPU %-8zu %s, %s, compute capability %s, %lld multiprocessors\n", i,
        json_string_at(device, "name"), format_bytes(text, (double)json_int_at(device, "memory_bytes")),
        json_string_at(device, "compute_capability"), (long long)json_int_at(device, "processors"));
}

static void show_cuda(const json_t *cuda, FILE *out) {
    const char *runtime = json_string_at(cuda, "runtime");
    const char *driver = json_string_at(cuda, "driver");
    const char *problem = json_string_at(cuda, "problem");
    if (!runtime) {
        fprintf(out, "CUDA         %s\n", problem);
        return;
    }
    fprintf(out, "CUDA         %s, driver supports %s%s%s\n", runtime, driver ? driver : "none",
            *problem ? "; no GPU: " : "", problem);
    show_devices(cuda, out);
    const char *name;
    json_t *version;
    json_object_foreach((json_t *)(uintptr_t)json_object_get(cuda, "libraries"), name, version)
        fprintf(out, "%-12s %s\n", name, json_is_string(version) ? json_string_value(version) : "not found");
}

void machine_show(const json_t *result, FILE *out) {
    char text[FORMAT_SIZE];
    fprintf(out, "weft         %s\n", json_string_at(result, "version"));
    fprintf(out, "CPU          %s (%s)\n", json_string_at(result, "cpu"),
            json_string_at(result, "architecture"));
    fprintf(out, "threads      %lld\n", (long long)json_int_at(result, "threads"));
    fprintf(out, "SIMD         %s\n", json_string_at(result, "instruction_set"));
    fprintf(out, "GEMM         %s (bf16: %s, int8: %s)\n", json_string_at(result, "matrix_library"),
            json_string_at(result, "bf16_products"), json_string_at(result, "int8_products"));
    fprintf(out, "memory       %s\n", format_bytes(text, (double)json_int_at(result, "memory_bytes")));
    show_cuda(json_object_get(result, "cuda"), out);
}
