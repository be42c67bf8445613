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

/* Where a GPU is plugged in, which tells it from others of the machine whatever their numbers. */
typedef struct CudaPlace {
    char text[32];
} CudaPlace;

typedef struct CudaInfo {
    bool built;          /* compiled with CUDA */
    int runtime, driver; /* versions as CUDA counts them: 13000 is 13.0; driver 0: there is none */
    int devices;
    char problem[128]; /* why there are no devices; empty otherwise */
    struct {
        char name[64];
        CudaPlace place;
        size_t memory;
        int capability; /* 90 is 9.0 */
        int processors;
    } device[CUDA_DEVICES_SHOWN];
} CudaInfo;

/* Looks without taking any of a GPU's memory. */
void device_cuda_info(CudaInfo *ret_info);
/* The libraries that GPU work uses, by opening them; how many there are to name, which is none in a build
 * without CUDA. */
int device_cuda_libraries(CudaLibrary ret_library[CUDA_LIBRARIES]);

#endif
