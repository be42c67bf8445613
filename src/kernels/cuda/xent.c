/* Cross-entropy on a GPU: slots for xent.cu. */
#include "kernels/cuda/cuda.h"

static XentPart part_of(VocabPart part, Tensor logits) {
    return (XentPart){.start = part.start,
                      .valid = part.valid,
                      .V = tensor_cols(logits),
                      .real = vocab_columns(part, tensor_cols(logits))};
}

Status xent_partial_cuda(Stream *stream, Tensor stats, Tensor logits, Tensor labels, VocabPart part) {
    LAUNCH(launch_xent_partial(cuda_stream(stream), logits.dtype, stats.data, logits.data, labels.data,
                               tensor_rows(logits), part_of(part, logits)));
    return OK;
}

Status xent_combine_cuda(Stream *stream, Tensor stats, Tensor parts) {
    LAUNCH(
        launch_xent_combine(cuda_stream(stream), stats.data, parts.data, parts.dim[0], tensor_rows(stats)));
    return OK;
}

Status xent_finish_cuda(Stream *stream, Tensor losses, Tensor logits, Tensor stats, Tensor labels,
                        VocabPart part, float scale, bool gradient) {
    LAUNCH(launch_xent_finish(cuda_stream(stream), logits.dtype, losses.data, logits.data, stats.data,
                              labels.data, tensor_rows(logits), part_of(part, logits), scale, gradient));
    return OK;
}

Status xent_loss_cuda(Stream *stream, Tensor losses, Tensor stats, Tensor logits, Tensor labels,
                      VocabPart part, float scale, bool gradient) {
    LAUNCH(launch_xent_loss(cuda_stream(stream), logits.dtype, losses.data, stats.data, logits.data,
                            labels.data, tensor_rows(logits), part_of(part, logits), scale, gradient,
                            cuda_device(stream)->shared_memory, cuda_device(stream)->processors));
    return OK;
}

/* In two steps if rows are too long for one. */
Status xent_loss_fp8_cuda(Stream *stream, Tensor losses, Tensor stats, Tensor logits, Tensor labels,
                          VocabPart part, float scale, Fp8Gradient gradient) {
    bool done = false;
    LAUNCH(launch_xent_loss_fp8(cuda_stream(stream), losses.data, stats.data, logits.data,
                                gradient.plain.data, gradient.scale.scale.data, labels.data,
                                tensor_rows(logits), part_of(part, logits), scale,
                                cuda_device(stream)->shared_memory, cuda_device(stream)->processors, &done));
    if (done) return OK;
    TRY(xent_loss_cuda(stream, losses, stats, logits, labels, part, scale, true));
    CudaFp8Tensor tensor = {.x = logits.data,
                            .rows = tensor_rows(logits),
                            .cols = tensor_cols(logits),
                            .type = DT_E5M2,
                            .plain = gradient.plain.data,
                            .given = gradient.scale.scale.data};
    LAUNCH(launch_fp8_quantize(cuda_stream(stream), &tensor, 1, NULL));
    return OK;
}

Status xent_hits_cuda(Stream *stream, Tensor hits, Tensor stats, Tensor labels, int64_t valid) {
    LAUNCH(
        launch_xent_hits(cuda_stream(stream), hits.data, stats.data, labels.data, tensor_rows(stats), valid));
    return OK;
}
