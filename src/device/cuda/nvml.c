/* GPU utilization and energy from NVML. Utilization is the fraction of the last sample period (1/6 s to 1 s)
 * in which a kernel of any process ran. The library ships with the driver and is loaded on first use; its few
 * functions are declared here, so its header is not needed. */
#include "base/memory.h"
#include "device/cuda/cuda.h"

typedef struct NvmlRates {
    unsigned gpu, memory; /* percent */
} NvmlRates;

/* All return 0 on success. */
typedef struct NvmlCalls {
    int (*init)(void);
    int (*shutdown)(void);
    int (*handle_by_bus)(const char *bus, void **ret_handle);
    int (*rates)(void *handle, NvmlRates *ret_rates);
    int (*energy)(void *handle, unsigned long long *ret_millijoules);
} NvmlCalls;

typedef struct Nvml {
    bool failed; /* loading failed; do not retry */
    void *handle;
    NvmlCalls call;
} Nvml;

static Status nvml_init(Nvml *nvml, int index) {
    static const char *const names[] = {"libnvidia-ml.so.1", "libnvidia-ml.so", NULL};
    static const char *const functions[] = {"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetHandleByPciBusId_v2",
                                            "nvmlDeviceGetUtilizationRates",
                                            "nvmlDeviceGetTotalEnergyConsumption"};
    void *library;
    char bus[64];
    TRY(library_open(&library, names, "GPU utilization"));
    TRY(library_bind(library, functions, sizeof functions / sizeof *functions, &nvml->call));
    CUDA_TRY(cudaDeviceGetPCIBusId(bus, sizeof bus, index));
    if (nvml->call.init() != 0) return FAILED("cannot initialize NVML");
    if (nvml->call.handle_by_bus(bus, &nvml->handle) == 0) return OK;
    nvml->call.shutdown();
    nvml->handle = NULL;
    return FAILED("NVML cannot find GPU %d", index);
}

static Status nvml_open(CudaDevice *cuda) {
    if (!cuda->nvml) {
        TRY(mem_new(1, sizeof *cuda->nvml, &cuda->nvml));
        Status status = nvml_init(cuda->nvml, cuda->index);
        cuda->nvml->failed = status != OK;
        TRY(status);
    }
    return cuda->nvml->failed ? FAILED("NVML is not available") : OK;
}

Status utilization_cuda(Device *device, double *ret_share) {
    CudaDevice *cuda = device->impl;
    NvmlRates rates = {0};
    TRY(nvml_open(cuda));
    if (cuda->nvml->call.rates(cuda->nvml->handle, &rates) != 0)
        return FAILED("NVML does not report the utilization of GPU %d", cuda->index);
    *ret_share = (double)rates.gpu / 100;
    return OK;
}

Status energy_cuda(Device *device, double *ret_joules) {
    CudaDevice *cuda = device->impl;
    unsigned long long millijoules = 0;
    TRY(nvml_open(cuda));
    if (cuda->nvml->call.energy(cuda->nvml->handle, &millijoules) != 0)
        return FAILED("NVML does not report the energy of GPU %d", cuda->index);
    *ret_joules = 1e-3 * (double)millijoules;
    return OK;
}

void nvml_close(CudaDevice *cuda) {
    if (cuda->nvml && cuda->nvml->handle) cuda->nvml->call.shutdown();
    free(cuda->nvml);
    cuda->nvml = NULL;
}
