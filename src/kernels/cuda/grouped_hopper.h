/* Grouped matmuls on Hopper; see grouped_hopper.cu. */
#ifndef WEFT_KERNELS_CUDA_GROUPED_HOPPER_H
#define WEFT_KERNELS_CUDA_GROUPED_HOPPER_H

#include "kernels/cuda/grouped.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the kernel runs on the current device, supports the call, and is the fastest for it. */
bool grouped_hopper_serves(const CudaGrouped *call);
/* With GROUPED_TURNS bytes of workspace; only GROUPED_WEIGHT uses it. */
cudaError_t grouped_hopper(cudaStream_t stream, const CudaGrouped *call, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
