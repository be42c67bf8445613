/* The AdamW update on a GPU: slot for optim.cu. */
#include "kernels/cuda/cuda.h"

static CudaAdamWPart part_of(const AdamWPart *part) {
    return (CudaAdamWPart){.param = part->param.data,
                           .m = part->m.data,
                           .v = part->v.data,
                           .copy = part->copy.data,
                           .grad = part->grad.data,
                           .count = tensor_count(part->param),
                           .lr = part->lr,
                           .decay = part->decay,
                           .keep_zeros = part->keep_zeros};
}

/* As launch_adamw takes it. */
static DType type_of(const AdamWPart *part) {
    if (part->param.dtype == DT_REST) return DT_REST;
    return part->copy.data ? part->copy.dtype : DT_F32;
}

/* Multiprocessors for an update. Where forward runs beside it on a stream with precedence, 40 of an H200's
 * 132 take little longer than 66 and leave more to forward; alone, all of them take a sixth less time
 * than 66. */
static int update_processors(const CudaDevice *device) {
    return device->urgent ? device->processors * 10 / 33 : device->processors;
}

Status adamw_step_cuda(Stream *stream, const AdamWPart *part, int parts, AdamW spec) {
    CudaAdamW step = {.beta1 = spec.beta1,
                      .beta2 = spec.beta2,
                      .rest1 = (float)(1 - (double)spec.beta1),
                      .rest2 = (float)(1 - (double)spec.beta2),
                      .eps = spec.eps,
                      .correct1 = (float)(1 / (double)spec.correction1),
                      .correct2 = (float)(1 / (double)spec.correction2),
                      .grad_scale = spec.grad_scale};
    for (int i = 0; i < parts;) {
        CudaAdamWParts all = {0};
        DType type = type_of(&part[i]);
        for (; i < parts && all.parts < CUDA_ADAMW_PARTS && type_of(&part[i]) == type; i++)
            if (tensor_count(part[i].param)) all.part[all.parts++] = part_of(&part[i]);
        const CudaDevice *device = cuda_device(stream);
        if (all.parts)
            LAUNCH(launch_adamw(cuda_stream(stream), type, &all, step, update_processors(device),
                                device->shared_memory));
    }
    return OK;
}
