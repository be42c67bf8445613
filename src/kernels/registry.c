/* The registry of backends. Tables are built once, on first use, and are immutable afterwards. */
#include <pthread.h>
#include <string.h>

#include "device/registry.h"
#include "kernels/backend.h"

static struct {
    pthread_once_t once;
    KernelTable ref, cpu, cuda, dryrun_cpu, dryrun_cuda;
    bool has_cuda;
} tables = {.once = PTHREAD_ONCE_INIT};

static void build_tables(void) {
    kernels_ref_fill(&tables.ref);
    kernels_ref_fill(&tables.cpu);
    kernels_cpu_override(&tables.cpu);
    tables.has_cuda = kernels_cuda_fill(&tables.cuda);
    tables.ref.name = "ref";
    tables.cpu.name = "cpu";
    tables.cuda.name = "cuda";
    kernels_dryrun_fill_cpu(&tables.dryrun_cpu, &tables.cpu);
    kernels_dryrun_fill_cuda(&tables.dryrun_cuda);
}

Status kernels_find(const char *name, const KernelTable **ret_table) {
    pthread_once(&tables.once, build_tables);
    if (strcmp(name, tables.cpu.name) == 0) TRY(kernels_cpu_check());
    const KernelTable *const all[] = {&tables.cpu, &tables.ref, &tables.cuda};
    size_t count = tables.has_cuda ? 3 : 2;
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, all[i]->name) == 0) {
            *ret_table = all[i];
            return OK;
        }
    return USAGE("unknown kernels '%s'; expected 'cpu'%s or 'ref'", name, tables.has_cuda ? ", 'cuda'" : "");
}

Status kernels_dryrun(const char *device, const KernelTable **ret_table) {
    pthread_once(&tables.once, build_tables);
    *ret_table = strcmp(device, "cuda") == 0 ? &tables.dryrun_cuda : &tables.dryrun_cpu;
    return OK;
}

Status kernels_check_device(const char *device, const char *name) {
    bool gpu = strcmp(device, "cuda") == 0;
    if (!name || gpu == (strcmp(name, "cuda") == 0)) return OK;
    return USAGE("{kernels} %s does not support {device} %s; use {kernels} %s", name, device,
                 gpu ? "cuda" : "cpu or ref");
}

Status kernels_for(const char *device, const char *name, const KernelTable **ret_table) {
    TRY(kernels_check_device(device, name));
    return kernels_find(name ? name : device, ret_table);
}

Status kernels_precision(const char *device, const char *name, Precision *ret_precision) {
    static const Precision known[] = {{"fp32", DT_F32, false, false},
                                      {"bf16", DT_BF16, false, false},
                                      {"fp16", DT_F16, false, false},
                                      {"tf32", DT_F32, true, false},
                                      {"fp8", DT_BF16, false, true}};
    bool gpu = strcmp(device, "cuda") == 0;
    int oldest = name || !gpu ? 0 : device_oldest_capability();
    if (!name) name = !gpu ? "fp32" : oldest && oldest < 80 ? "fp16" : "bf16";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) || ((known[i].tf32 || known[i].fp8) && !gpu)) continue;
        *ret_precision = known[i];
        return OK;
    }
    if (!gpu) return USAGE("{precision} %s is not supported on a CPU; use fp32, bf16 or fp16", name);
    return USAGE("unknown {precision} %s; expected fp8, bf16, fp16, tf32 or fp32", name);
}
