/* How busy a GPU is, by NVML: the part of the last sample period, between a sixth of a second and a second,
 * during which a kernel of any process ran. The library comes with the driver and is opened when it is first
 * asked; its few functions are declared here, so that its header is not needed. */
#include "base/memory.h"
#include "device/cuda/cuda.h"

typedef struct NvmlRates {
    unsigned gpu, memory; /* percent */
} NvmlRates;

/* Each gives 0 where it succeeds. */
typedef struct NvmlCalls {
    int (*init)(void);
    int (*shutdown)(void);
    int (*handle_by_bus)(const char *bus, void **ret_handle);
    int (*rates)(void *handle, NvmlRates *ret_rates);
} NvmlCalls;

typedef struct Nvml {
    bool failed; /* it was not there, and is not looked for again */
    void *handle;
    NvmlCalls call;
} Nvml;

static Status nvml_init(Nvml *nvml, int index) {
    static const char *const names[] = {"libnvidia-ml.so.1", "libnvidia-ml.so", NULL};
    static const char *const functions[] = {"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetHandleByPciBusId_v2",
                                            "nvmlDeviceGetUtilizationRates"};
    void *library;
    char bus[64];
    TRY(library_open(&library, names, "a GPU's utilization"));
    TRY(library_bind(library, functions, sizeof functions / sizeof *functions, &nvml->call));
    CUDA_TRY(cudaDeviceGetPCIBusId(bus, sizeof bus, index));
    if (nvml->call.init() != 0) return FAILED("NVML cannot be initialised");
    if (nvml->call.handle_by_bus(bus, &nvml->handle) == 0) return OK;
    nvml->call.shutdown();
    nvml->handle = NULL;
    return FAILED("NVML does not know GPU %d", index);
}

Status utilization_cuda(Device *device, double *ret_share) {
    CudaDevice *cuda = device->impl;
    NvmlRates rates = {0};
    if (!cuda->nvml) {
        TRY(mem_new(1, sizeof *cuda->nvml, &cuda->nvml));
        Status status = nvml_init(cuda->nvml, cuda->index);
        cuda->nvml->failed = status != OK;
        TRY(status);
    }
    if (cuda->nvml->failed) return FAILED("NVML is not there");
    if (cuda->nvml->call.rates(cuda->nvml->handle, &rates) != 0)
        return FAILED("NVML does not say how busy GPU %d is", cuda->index);
    *ret_share = (double)rates.gpu / 100;
    return OK;
}

void nvml_close(CudaDevice *cuda) {
    if (cuda->nvml && cuda->nvml->handle) cuda->nvml->call.shutdown();
    free(cuda->nvml);
    cuda->nvml = NULL;
}
