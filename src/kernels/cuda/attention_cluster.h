/* attention_cluster.cu: attention over KV caches of one new position per sequence, on Hopper and later. */
#ifndef WEFT_KERNELS_CUDA_ATTENTION_CLUSTER_H
#define WEFT_KERNELS_CUDA_ATTENTION_CLUSTER_H

#include "kernels/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As launch_attention_decode; "supports" tells whether the device has clusters and the kernel handles the
 * call. A block attends with up to `queries` query heads that share keys (8, with wide heads fewer), and
 * `blocks` blocks, 1, 2, 4 or 8, share the keys. The result is the same for all. */
bool attention_cluster_supports(DType type, DType cache, const CudaAttention *call, CudaHeads k, CudaHeads v);
cudaError_t launch_attention_cluster(cudaStream_t stream, DType type, const CudaAttention *call, CudaHeads k,
                                     CudaHeads v, int blocks, int queries);

#ifdef __cplusplus
}
#endif

#endif
