/* Stub for builds without CUDA. */
#include "kernels/backend.h"

bool kernels_cuda_fill(KernelTable *table) {
    (void)table;
    return false;
}
