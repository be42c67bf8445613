/* attention_cluster.cu: attention over KV caches of one new position per sequence, on Hopper and later. */
#ifndef WEFT_KERNELS_CUDA_ATTENTION_CLUSTER_H
#define WEFT_KERNELS_CUDA_ATTENTION_CLUSTER_H

#include "kernels/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As launch_attention_decode; "supports" tells whether the device has clusters and the kernel handles the
 * call. `blocks`: for each head, 1, 2 or 8; the result is the same. */
bool attention_cluster_supports(DType type, DType cache, const CudaAttention *call, CudaHeads k, CudaHeads v);
cudaError_t launch_attention_cluster(cudaStream_t stream, DType type, const CudaAttention *call, CudaHeads k,
                                     CudaHeads v, int blocks);

#ifdef __cplusplus
}
#endif

#endif
