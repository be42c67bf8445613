/* Activations over whole tensors: threads take stretches of elements. */
#include "kernels/cpu/act.h"

#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

static Status act_forward_cpu(Stream *stream, Tensor y, Tensor x, Act act) {
    int64_t count = tensor_count(x);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        float buffer[RUN];
        for (int64_t at = mine.from; at < mine.to; at += RUN) {
            int64_t n = run_length(mine.to - at);
            const float *from = run_in(x, at, n, buffer);
            float *to = run_out(y, at, buffer);
            act_run(to, from, n, act);
            run_end(y, at, n, to);
        }
    }
    return OK;
}

static Status act_backward_cpu(Stream *stream, Tensor dx, Tensor dy, Tensor x, Act act) {
    int64_t count = tensor_count(x);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        float buffer[RUN], slope[RUN];
        for (int64_t at = mine.from; at < mine.to; at += RUN) {
            int64_t n = run_length(mine.to - at);
            const float *grad = run_in(dy, at, n, buffer), *from = run_in(x, at, n, slope);
            float *to = run_out(dx, at, buffer);
            act_slope_run(to, grad, from, n, act);
            run_end(dx, at, n, to);
        }
    }
    return OK;
}

void VARIANT(act_override)(KernelTable *table) {
    table->act_forward = act_forward_cpu;
    table->act_backward = act_backward_cpu;
}
