/* A build without CUDA: it has no kernels for it. */
#include "kernels/backend.h"

bool kernels_cuda_fill(KernelTable *table) {
    (void)table;
    return false;
}
