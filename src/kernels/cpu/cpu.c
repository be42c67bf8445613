/* The cpu backend: so far the reference alone. */
#include "kernels/backend.h"

void kernels_cpu_override(KernelTable *table) {
    (void)table;
}

const char *kernels_cpu_isa(void) {
    return "generic";
}

const char *kernels_cpu_blas(void) {
    return "none";
}
