/* Activations over whole tensors, which are split across threads. */
#include "kernels/cpu/act.h"

#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

/* The arguments of both kernels; y is dx in backward. */
typedef struct ActJob {
    Tensor y, dy, x;
    Act act;
} ActJob;

static void forward_range(const void *context, Range mine) {
    const ActJob *f = context;
    BY_TYPE(f->x.dtype, act_map, run_at(f->y, mine.from), run_at(f->x, mine.from), mine.to - mine.from,
            f->act);
}

static Status act_forward_cpu(Stream *stream, Tensor y, Tensor x, Act act) {
    ActJob context = {.y = y, .x = x, .act = act};
    ranges_run(stream, tensor_count(x), 16, tensor_count(x), forward_range, &context);
    return OK;
}

static void backward_range(const void *context, Range mine) {
    const ActJob *f = context;
    BY_TYPE(f->x.dtype, act_backward_map, run_at(f->y, mine.from), run_at(f->dy, mine.from),
            run_at(f->x, mine.from), mine.to - mine.from, f->act);
}

static Status act_backward_cpu(Stream *stream, Tensor dx, Tensor dy, Tensor x, Act act) {
    ActJob context = {dx, dy, x, act};
    ranges_run(stream, tensor_count(x), 16, tensor_count(x), backward_range, &context);
    return OK;
}

void VARIANT(act_override)(KernelTable *table) {
    table->act_forward = act_forward_cpu;
    table->act_backward = act_backward_cpu;
}
