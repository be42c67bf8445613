/* Activations over whole tensors, which are split across threads. */
#include "kernels/cpu/act.h"

#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

static Status act_forward_cpu(Stream *stream, Tensor y, Tensor x, Act act) {
    int64_t count = tensor_count(x);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        BY_TYPE(x.dtype, act_map, run_at(y, mine.from), run_at(x, mine.from), mine.to - mine.from, act);
    }
    return OK;
}

static Status act_backward_cpu(Stream *stream, Tensor dx, Tensor dy, Tensor x, Act act) {
    int64_t count = tensor_count(x);
#pragma omp parallel num_threads(threads_for(stream, count))
    {
        Range mine = range_mine(count, 16);
        BY_TYPE(x.dtype, act_backward_map, run_at(dx, mine.from), run_at(dy, mine.from), run_at(x, mine.from),
                mine.to - mine.from, act);
    }
    return OK;
}

void VARIANT(act_override)(KernelTable *table) {
    table->act_forward = act_forward_cpu;
    table->act_backward = act_backward_cpu;
}
