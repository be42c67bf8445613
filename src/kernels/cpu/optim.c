/* AdamW: one pass over the flat buffers, which also writes the copy in the compute type. */
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
    void *param; /* fp32, or the rest of bf16 */
    float *m, *v;
    const float *grad;
    void *copy; /* may be NULL */
} Buffers;

/* `type` is that of the copies, fp32 if there may be none, or DT_F32_LOWER if parameters are in two halves.
 */
static ALWAYS_INLINE VecF get_param(DType type, const Buffers *at, int64_t i) {
    if (type == DT_F32_LOWER)
        return vec_load_halves((const uint16_t *)at->copy + i, (const uint16_t *)at->param + i);
    return vec_load((const float *)at->param + i);
}
static ALWAYS_INLINE void put_param(DType type, const Buffers *at, int64_t i, VecF v) {
    if (type == DT_F32_LOWER) {
        vec_store_halves((uint16_t *)at->copy + i, (uint16_t *)at->param + i, v);
        return;
    }
    vec_store((float *)at->param + i, v);
    if (at->copy) vec_put(at->copy, type, i, v);
}

static ALWAYS_INLINE void adamw_at(DType type, const Buffers *at, int64_t i, Rule rule, bool keep_zeros) {
    VecF m = vec_load(at->m + i), v = vec_load(at->v + i);
    VecF next = adamw_vec(get_param(type, at, i), &m, &v, vec_load(at->grad + i), rule, keep_zeros);
    vec_store(at->m + i, m), vec_store(at->v + i, v);
    put_param(type, at, i, next);
}

/* Copies fewer than VEC elements. */
static inline void copy_some(void *to, const void *from, int64_t n, DType type) {
    if (from && to) memcpy(to, from, (size_t)n * dtype_size(type));
}

/* The last, fewer than VEC elements, in buffers of that size. */
static ALWAYS_INLINE void adamw_rest(DType type, const Buffers *at, int64_t i, int64_t n, Rule rule,
                                     bool keep_zeros) {
    DType own = type == DT_F32_LOWER ? DT_F32_LOWER : DT_F32, other = type == DT_F32_LOWER ? DT_BF16 : type;
    float param[VEC] = {0}, m[VEC] = {0}, v[VEC] = {0}, grad[VEC] = {0}, copy[VEC] = {0};
    void *to = (char *)at->param + (size_t)i * dtype_size(own),
         *also = at->copy ? (char *)at->copy + (size_t)i * dtype_size(other) : NULL;
    const Buffers some = {param, m, v, grad, at->copy ? copy : NULL};
    copy_some(param, to, n, own), copy_some(copy, also, n, other);
    copy_some(m, at->m + i, n, DT_F32), copy_some(v, at->v + i, n, DT_F32);
    copy_some(grad, at->grad + i, n, DT_F32);
    adamw_at(type, &some, 0, rule, keep_zeros);
    copy_some(to, param, n, own), copy_some(also, copy, n, other);
    copy_some(at->m + i, m, n, DT_F32), copy_some(at->v + i, v, n, DT_F32);
}

static ALWAYS_INLINE void adamw_run(DType type, const Buffers *at, int64_t n, Rule rule, bool keep_zeros) {
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) adamw_at(type, at, i, rule, keep_zeros);
    if (i < n) adamw_rest(type, at, i, n - i, rule, keep_zeros);
}

/* Elements of a task. Those of background work take about 10 us, by which they may delay a job. */
enum { TASK_COUNT = 32768, BACKGROUND_COUNT = 4096 };

typedef struct UpdatePart {
    AdamWPart part;
    int64_t end; /* tasks of the parts up to this one */
} UpdatePart;

/* The parts of a call, as one job. */
typedef struct Update {
    AdamW spec;
    int64_t chunk; /* elements of a task */
    int parts;
    UpdatePart part[];
} Update;

static Buffers buffers_of(const AdamWPart *part, int64_t at) {
    return (Buffers){run_at(part->param, at), tensor_f32(part->m) + at, tensor_f32(part->v) + at,
                     tensor_f32(part->grad) + at, run_at(part->copy, at)};
}

static void update_range(const Update *update, const AdamWPart *part, Range mine) {
    Rule rule = rule_of(part, update->spec);
    Buffers at = buffers_of(part, mine.from);
    int64_t n = mine.to - mine.from;
    DType copy = part->copy.data ? part->copy.dtype : DT_F32;
    bool halves = part->param.dtype == DT_F32_LOWER;
    if (halves && part->keep_zeros)
        adamw_run(DT_F32_LOWER, &at, n, rule, true);
    else if (halves)
        adamw_run(DT_F32_LOWER, &at, n, rule, false);
    else if (part->keep_zeros)
        BY_TYPE(copy, adamw_run, &at, n, rule, true);
    else
        BY_TYPE(copy, adamw_run, &at, n, rule, false);
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
    *update =
        (Update){.spec = spec, .parts = parts, .chunk = stream->background ? BACKGROUND_COUNT : TASK_COUNT};
    for (int i = 0; i < parts; i++) {
        int64_t count = tensor_count(part[i].param);
        all += count;
        tasks += (count + update->chunk - 1) / update->chunk;
        update->part[i] = (UpdatePart){part[i], tasks};
    }
    if (!stream->background || all < BACKGROUND_COUNT) {
        pool_run(pool_for(stream, all), tasks, update_task, update);
        return OK;
    }
    PoolWork work = {.tasks = tasks, .task = update_task, .context = update, .bytes = bytes};
    return pool_add_background(stream->device->pool, &work, &stream->background_work);
}

void VARIANT(optim_override)(KernelTable *table) {
    table->adamw_step = adamw_step_cpu;
}
