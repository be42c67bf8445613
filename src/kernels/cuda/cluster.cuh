// Thread block clusters: blocks that run at the same time, near each other, and can write to each other's
// shared memory. Hopper and later; launch_cluster must not be called unless has_clusters.
//
// Before its first store_remote, a block must know that the others have started: all threads of the cluster
// call cluster_arrive, then cluster_wait. After the last one, the same makes the values visible and keeps a
// block from exiting early.
#ifndef WEFT_KERNELS_CUDA_CLUSTER_CUH
#define WEFT_KERNELS_CUDA_CLUSTER_CUH

#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/ptx.cuh"

constexpr int cluster_size = 8; // the most blocks that every GPU with clusters supports

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ inline unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ inline void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Stores a word at the place in the shared memory of block `rank` that `to` is in this block's.
__device__ inline void store_remote(void *to, unsigned rank, uint32_t value) {
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(to)), "r"(rank));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(remote), "r"(value) : "memory");
}
#else
__device__ inline unsigned cluster_rank() {
    return 0;
}
__device__ inline void cluster_arrive() {}
__device__ inline void cluster_wait() {}
__device__ inline void store_remote(void *, unsigned, uint32_t) {}
#endif

inline bool has_clusters() {
    return cuda_limits().capability >= 90;
}

// `blocks` is the number of clusters times `size`.
template <typename... Params, typename... Args>
inline cudaError_t launch_cluster(bool chain, int size, Where at, void (*kernel)(Params...), dim3 blocks,
                                  dim3 threads, size_t shared, Args... args) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = (unsigned)size;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    return launch_with(chain, &cluster, at, kernel, blocks, threads, shared, args...);
}

#endif
