/* The kinds of device this build knows. */
#ifndef WEFT_DEVICE_REGISTRY_H
#define WEFT_DEVICE_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>

enum { CUDA_DEVICES_SHOWN = 16 };

typedef struct CudaInfo {
    bool built;          /* compiled with CUDA */
    int runtime, driver; /* versions as CUDA counts them: 13000 is 13.0; driver 0: there is none */
    int devices;
    char problem[128]; /* why there are no devices; empty otherwise */
    struct {
        char name[64];
        size_t memory;
    } device[CUDA_DEVICES_SHOWN];
} CudaInfo;

void device_cuda_info(CudaInfo *ret_info);

#endif
