/* Detects GPUs and CUDA libraries without allocating GPU memory. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "device/registry.h"

static void describe_problem(CudaInfo *info, cudaError_t error) {
    char *text = info->problem;
    size_t size = sizeof info->problem;
    if (!info->driver)
        snprintf(text, size, "no NVIDIA driver found");
    else if (error == cudaErrorInsufficientDriver)
        snprintf(text, size, "the driver supports CUDA %d.%d, but %d.%d or newer is needed",
                 info->driver / 1000, info->driver % 1000 / 10, info->runtime / 1000,
                 info->runtime % 1000 / 10);
    else if (error == cudaErrorNoDevice)
        snprintf(text, size, "the driver reports no GPU");
    else
        snprintf(text, size, "%s", cudaGetErrorString(error));
}

void device_cuda_info(CudaInfo *ret_info) {
    CudaInfo info = {.built = true};
    cudaRuntimeGetVersion(&info.runtime);
    cudaDriverGetVersion(&info.driver);
    cudaError_t error = cudaGetDeviceCount(&info.devices);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        info.devices = 0;
    }
    if (info.devices == 0) describe_problem(&info, error == cudaSuccess ? cudaErrorNoDevice : error);
    for (int i = 0; i < info.devices && i < CUDA_DEVICES_SHOWN; i++) {
        struct cudaDeviceProp properties;
        if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
        snprintf(info.device[i].name, sizeof info.device[i].name, "%.63s", properties.name);
        snprintf(info.device[i].place.text, sizeof info.device[i].place.text, "%x:%x:%x",
                 properties.pciDomainID, properties.pciBusID, properties.pciDeviceID);
        info.device[i].memory = properties.totalGlobalMem;
        info.device[i].capability = properties.major * 10 + properties.minor;
        info.device[i].processors = properties.multiProcessorCount;
    }
    *ret_info = info;
}

int device_oldest_capability(void) {
    CudaInfo info;
    device_cuda_info(&info);
    int oldest = 0;
    for (int i = 0; i < info.devices && i < CUDA_DEVICES_SHOWN; i++)
        if (!oldest || info.device[i].capability < oldest) oldest = info.device[i].capability;
    return oldest;
}

/* ---- libraries ---- */

/* Loads the first library that exists and looks up a function; NULL if not found. The library stays loaded.
 */
static void *find_function(const char *const *names, const char *function) {
    for (size_t i = 0; names[i]; i++) {
        void *library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
        if (library) return dlsym(library, function);
    }
    return NULL;
}

/* 130002 is "13.0.2"; cuDNN before version 9 encodes 8.9.7 as 8907. */
static void put_version(CudaLibrary *library, size_t number) {
    size_t major = number < 10000 ? number / 1000 : number / 10000, rest = number < 10000 ? 1000 : 10000;
    snprintf(library->version, sizeof library->version, "%zu.%zu.%zu", major, number % rest / 100,
             number % 100);
}

/* For cuBLASLt and cuDNN, whose version function takes no arguments. */
static void read_version(CudaLibrary *library, const char *const *names, const char *function) {
    size_t (*ask)(void);
    void *address = find_function(names, function);
    if (!address) return;
    memcpy(&ask, &address, sizeof ask);
    put_version(library, ask());
}

static void ask_nccl(CudaLibrary *library) {
    static const char *const names[] = {"libnccl.so.2", "libnccl.so", NULL};
    int (*ask)(int *), number = 0;
    void *address = find_function(names, "ncclGetVersion");
    if (!address) return;
    memcpy(&ask, &address, sizeof ask);
    if (ask(&number) == 0 && number > 0) put_version(library, (size_t)number);
}

static void ask_nvml(CudaLibrary *library) {
    static const char *const names[] = {"libnvidia-ml.so.1", "libnvidia-ml.so", NULL};
    static const char *const functions[] = {"nvmlInit_v2", "nvmlSystemGetNVMLVersion", "nvmlShutdown"};
    int (*init)(void), (*ask)(char *, unsigned), (*shutdown)(void);
    void *address[3];
    for (int i = 0; i < 3; i++) address[i] = find_function(names, functions[i]);
    if (!address[0] || !address[1] || !address[2]) return;
    memcpy(&init, &address[0], sizeof init);
    memcpy(&ask, &address[1], sizeof ask);
    memcpy(&shutdown, &address[2], sizeof shutdown);
    if (init() != 0) return;
    if (ask(library->version, sizeof library->version) != 0) library->version[0] = 0;
    shutdown();
}

int device_cuda_libraries(CudaLibrary ret_library[CUDA_LIBRARIES]) {
    static const char *const blas[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
    static const char *const cudnn[] = {"libcudnn.so.9", "libcudnn.so", NULL};
    CudaLibrary library[CUDA_LIBRARIES] = {
        {.name = "cuBLASLt"}, {.name = "cuDNN"}, {.name = "NCCL"}, {.name = "NVML"}};
    read_version(&library[0], blas, "cublasLtGetVersion");
    read_version(&library[1], cudnn, "cudnnGetVersion");
    ask_nccl(&library[2]);
    ask_nvml(&library[3]);
    memcpy(ret_library, library, sizeof library);
    return CUDA_LIBRARIES;
}
