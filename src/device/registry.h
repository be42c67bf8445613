/* Information about GPUs and CUDA libraries. */
#ifndef WEFT_DEVICE_REGISTRY_H
#define WEFT_DEVICE_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>

enum { CUDA_DEVICES_SHOWN = 16, CUDA_LIBRARIES = 4 };

/* A library loaded on demand. */
typedef struct CudaLibrary {
    const char *name; /* "cuBLASLt" ... */
    char version[32]; /* empty: not found */
} CudaLibrary;

/* PCI address of a GPU, which identifies it independently of device numbering. */
typedef struct CudaPlace {
    char text[32];
} CudaPlace;

typedef struct CudaInfo {
    bool built;          /* compiled with CUDA */
    int runtime, driver; /* CUDA version numbers: 13000 is 13.0; driver 0: no driver */
    int devices;
    char problem[128]; /* why no device is available; empty otherwise */
    struct {
        char name[64];
        CudaPlace place;
        size_t memory;
        int capability; /* 90 is 9.0 */
        int processors;
    } device[CUDA_DEVICES_SHOWN];
} CudaInfo;

/* Does not allocate GPU memory. */
void device_cuda_info(CudaInfo *ret_info);
/* The lowest compute capability of this host's GPUs (90 is 9.0); 0: there are none. */
int device_oldest_capability(void);
/* Loads the CUDA libraries and reports their versions. Returns the number of entries, 0 in a build without
 * CUDA. */
int device_cuda_libraries(CudaLibrary ret_library[CUDA_LIBRARIES]);

#endif
