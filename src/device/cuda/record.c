/* Recordings as CUDA graphs. WEFT_CUDA_GRAPHS=off disables them. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"

/* Thread-local capture mode: other threads may use their own streams meanwhile. */
Status record_begin_cuda(Stream *stream, bool *ret_begun) {
    const char *asked = getenv("WEFT_CUDA_GRAPHS");
    if (asked && !strcmp(asked, "off")) {
        *ret_begun = false;
        return OK;
    }
    CUDA_TRY(cudaStreamBeginCapture(cuda_stream(stream), cudaStreamCaptureModeThreadLocal));
    *ret_begun = true;
    return OK;
}

Status record_end_cuda(Stream *stream, void **ret_recorded) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    CUDA_TRY(cudaStreamEndCapture(cuda_stream(stream), &graph));
    /* Work of several streams keeps their priorities. */
    cudaError_t error = cudaGraphInstantiateWithFlags(&made, graph, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(graph);
    TRY(cuda_status(error, "instantiating a CUDA graph"));
    *ret_recorded = made;
    return OK;
}

Status replay_cuda(Stream *stream, void *recorded) {
    return cuda_status(cudaGraphLaunch(recorded, cuda_stream(stream)), "launching a CUDA graph");
}

void recorded_free_cuda(void *recorded) {
    cudaGraphExecDestroy(recorded);
}
