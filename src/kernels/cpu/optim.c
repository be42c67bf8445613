/* AdamW: one pass over the four flat buffers, which also writes the copy in the compute type. */
#include <math.h>

#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

/* What the update of an element needs, derived from AdamW and AdamWPart. */
typedef struct Rule {
    float beta1, rest1, beta2, rest2, step, root, lr_decay, eps, factor;
} Rule;

static Rule rule_of(const AdamWPart *part, AdamW spec) {
    return (Rule){
        .beta1 = spec.beta1,
        .rest1 = 1.0f - spec.beta1,
        .beta2 = spec.beta2,
        .rest2 = 1.0f - spec.beta2,
        .step = part->lr / spec.correction1,
        .root = 1.0f / sqrtf(spec.correction2),
        .lr_decay = part->lr * part->decay,
        .eps = spec.eps,
        .factor = spec.grad_scale,
    };
}

/* Updates a vector of parameters. Pruned parameters, which are 0, stay 0 if keep_zeros is set. */
static ALWAYS_INLINE VecF adamw_vec(VecF param, VecF *m, VecF *v, VecF grad, Rule rule, bool keep_zeros) {
    VecF g = grad * rule.factor;
    VecF mi = rule.beta1 * *m + rule.rest1 * g;
    VecF vi = rule.beta2 * *v + rule.rest2 * g * g;
    VecF next = param - (rule.lr_decay * param + rule.step * mi / (vec_sqrt(vi) * rule.root + rule.eps));
    VecI pruned = keep_zeros ? param == 0 : (VecI){0};
    *m = vec_select(pruned, vec_set(0), mi);
    *v = vec_select(pruned, vec_set(0), vi);
    return vec_select(pruned, vec_set(0), next);
}

/* The buffers of a part, from some element on. */
typedef struct Buffers {
    float *param, *m, *v;
    const float *grad;
    void *copy; /* may be NULL */
} Buffers;

/* Copies that are too large to stay in a cache are written past it, so that their old contents are not read
 * first. */
static ALWAYS_INLINE void adamw_run(DType copy, const Buffers *at, int64_t n, Rule rule, bool keep_zeros,
                                    bool stream) {
    int64_t i = 0;
    for (; i + 2 * VEC <= n; i += 2 * VEC) {
        VecF next[2];
        for (int part = 0; part < 2; part++) {
            int64_t from = i + part * VEC;
            VecF m = vec_load(at->m + from), v = vec_load(at->v + from);
            next[part] =
                adamw_vec(vec_load(at->param + from), &m, &v, vec_load(at->grad + from), rule, keep_zeros);
            vec_store(at->m + from, m), vec_store(at->v + from, v), vec_store(at->param + from, next[part]);
        }
        if (stream)
            vec_stream_bf16((uint16_t *)at->copy + i, next[0], next[1]);
        else if (at->copy)
            vec_put(at->copy, copy, i, next[0]), vec_put(at->copy, copy, i + VEC, next[1]);
    }
    for (; i < n; i += VEC) {
        int64_t count = n - i < VEC ? n - i : VEC;
        VecF m = vec_get_some(at->m, DT_F32, i, count), v = vec_get_some(at->v, DT_F32, i, count);
        VecF param = vec_get_some(at->param, DT_F32, i, count),
             grad = vec_get_some(at->grad, DT_F32, i, count);
        VecF next = adamw_vec(param, &m, &v, grad, rule, keep_zeros);
        vec_put_some(at->m, DT_F32, i, m, count), vec_put_some(at->v, DT_F32, i, v, count);
        vec_put_some(at->param, DT_F32, i, next, count);
        if (at->copy) vec_put_some(at->copy, copy, i, next, count);
    }
}

/* Parameters of a call from which on copies are streamed. */
enum { STREAM_COUNT = 1 << 20 };
/* Elements of a task. Those that are left to idle threads take about 10 us, by which they may delay a job. */
enum { TASK_COUNT = 32768, LEFT_COUNT = 4096 };

typedef struct UpdatePart {
    AdamWPart part;
    int64_t end; /* tasks of the parts up to this one */
} UpdatePart;

/* The parts of a call, as one job. */
typedef struct Update {
    AdamW spec;
    int64_t chunk; /* elements of a task */
    bool streams;
    int parts;
    UpdatePart part[];
} Update;

static Buffers buffers_of(const AdamWPart *part, int64_t at) {
    return (Buffers){tensor_f32(part->param) + at, tensor_f32(part->m) + at, tensor_f32(part->v) + at,
                     tensor_f32(part->grad) + at, run_at(part->copy, at)};
}

/* Streams the copy, except for what precedes its first full cache line. */
static void update_streamed(const AdamWPart *part, Range mine, Rule rule) {
    Buffers at = buffers_of(part, mine.from);
    int64_t n = mine.to - mine.from, lead = (int64_t)((64 - (uintptr_t)at.copy % 64) % 64 / sizeof(uint16_t));
    if (lead > n) lead = n;
    adamw_run(DT_BF16, &at, lead, rule, false, false);
    at = buffers_of(part, mine.from + lead);
    adamw_run(DT_BF16, &at, n - lead, rule, false, true);
    vec_stream_end();
}

static void update_range(const Update *update, const AdamWPart *part, Range mine) {
    Rule rule = rule_of(part, update->spec);
    Buffers at = buffers_of(part, mine.from);
    DType copy = part->copy.data ? part->copy.dtype : DT_F32;
    if (part->keep_zeros)
        BY_TYPE(copy, adamw_run, &at, mine.to - mine.from, rule, true, false);
    else if (copy == DT_BF16 && update->streams)
        update_streamed(part, mine, rule);
    else
        BY_TYPE(copy, adamw_run, &at, mine.to - mine.from, rule, false, false);
}

static void update_task(const void *context, int64_t task, int thread) {
    (void)thread;
    const Update *update = context;
    int low = 0, high = update->parts - 1; /* the first part that ends after the task */
    while (low < high) {
        int middle = (low + high) / 2;
        if (update->part[middle].end > task)
            high = middle;
        else
            low = middle + 1;
    }
    const AdamWPart *part = &update->part[low].part;
    int64_t from = (task - (low ? update->part[low - 1].end : 0)) * update->chunk;
    int64_t count = tensor_count(part->param), to = from + update->chunk;
    update_range(update, part, (Range){from, to < count ? to : count});
}

static Status adamw_step_cpu(Stream *stream, const AdamWPart *part, int parts, AdamW spec) {
    size_t bytes = sizeof(Update) + (size_t)parts * sizeof(UpdatePart);
    int64_t all = 0, tasks = 0;
    void *workspace;
    TRY(stream_workspace(stream, bytes, &workspace));
    Update *update = workspace;
    *update = (Update){.spec = spec, .parts = parts, .chunk = stream->leaves ? LEFT_COUNT : TASK_COUNT};
    for (int i = 0; i < parts; i++) {
        int64_t count = tensor_count(part[i].param);
        all += count;
        tasks += (count + update->chunk - 1) / update->chunk;
        update->part[i] = (UpdatePart){part[i], tasks};
    }
    update->streams = all >= STREAM_COUNT;
    if (!stream->leaves || all < LEFT_COUNT) {
        pool_run(pool_for(stream, all), tasks, update_task, update);
        return OK;
    }
    PoolWork work = {.tasks = tasks, .task = update_task, .context = update, .bytes = bytes};
    return pool_leave(stream->device->pool, &work, &stream->left);
}

void VARIANT(optim_override)(KernelTable *table) {
    table->adamw_step = adamw_step_cpu;
}
