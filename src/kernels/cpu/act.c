/* Activations over whole tensors: threads take runs of elements. */
#include "kernels/cpu/act.h"

#include "kernels/cpu/variant.h"
#include "kernels/ref/ref.h"

static Status act_forward_cpu(Stream *stream, Tensor y, Tensor x, Act act) {
    FP32_ELSE(act_forward_ref(stream, y, x, act), y, x);
    int64_t count = tensor_count(x);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        act_run(tensor_f32(y) + mine.from, tensor_f32(x) + mine.from, mine.to - mine.from, act);
    }
    return OK;
}

static Status act_backward_cpu(Stream *stream, Tensor dx, Tensor dy, Tensor x, Act act) {
    FP32_ELSE(act_backward_ref(stream, dx, dy, x, act), dx, dy, x);
    int64_t count = tensor_count(x);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        act_slope_run(tensor_f32(dx) + mine.from, tensor_f32(dy) + mine.from, tensor_f32(x) + mine.from,
                      mine.to - mine.from, act);
    }
    return OK;
}

void VARIANT(act_override)(KernelTable *table) {
    table->act_forward = act_forward_cpu;
    table->act_backward = act_backward_cpu;
}
