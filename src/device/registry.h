/* The kinds of device this build knows. */
#ifndef WEFT_DEVICE_REGISTRY_H
#define WEFT_DEVICE_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>

enum { CUDA_DEVICES_SHOWN = 16, CUDA_LIBRARIES = 4 };

/* A library that is opened where it is needed. */
typedef struct CudaLibrary {
    const char *name; /* "cuBLASLt" ... */
    char version[32]; /* empty: it is not there */
} CudaLibrary;

typedef struct CudaInfo {
    bool built;          /* compiled with CUDA */
    int runtime, driver; /* versions as CUDA counts them: 13000 is 13.0; driver 0: there is none */
    int devices;
    char problem[128]; /* why there are no devices; empty otherwise */
    struct {
        char name[64];
        size_t memory;
        int capability; /* 90 is 9.0 */
        int processors;
    } device[CUDA_DEVICES_SHOWN];
    CudaLibrary library[CUDA_LIBRARIES];
} CudaInfo;

/* Looks without taking any of a GPU's memory. */
void device_cuda_info(CudaInfo *ret_info);

#endif
