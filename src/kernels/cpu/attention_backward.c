/* Attention backward. A task (attention_backward.h) is a head, or a range of its keys, and iterates over
 * blocks of keys and queries. The weights are recomputed from lse, so no T x T matrix exists. With the
 * weights P, the dropout factors Z and the gradient g of the output o:
 *
 *   dV = (P Z)^T g;  dP = g v^T;  dS = P (dP Z - g . o) scale;  dQ = dS k;  dK = dS^T q
 *
 * The scores of a block are panels of MICRO_COLS keys with one row per query, the format that dV and dK
 * need. For dQ, which sums over keys, dS is transposed. All accumulators are transposed panels (D,
 * MICRO_COLS). dQ is accumulated over the blocks of keys in order. If query heads share keys and values, a
 * task has all of them, one after the other, and keeps dK and dV of all of its keys. */
#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/attention16.h"
#include "kernels/cpu/columns.h"
#include "kernels/ref/ref.h"

/* Multiples of MICRO_ROWS and MICRO_COLS. */
enum { BLOCK = 96, PANELS = BLOCK / MICRO_COLS };

/* Scratch memory of a thread, for T queries and K keys. There are panels of MICRO_ROWS queries (D,
 * MICRO_ROWS), of MICRO_ROWS dims (T or K, MICRO_ROWS) and of MICRO_COLS keys (D, MICRO_COLS). */
typedef struct Scratch {
    float *query_lines, *grad_lines;          /* q and g by query, for the scores */
    float *query_dims, *grad_dims, *key_dims; /* q, g and k by dim, for dK, dV and dQ */
    float *keys, *values;                     /* k * scale and v of one block of keys */
    float *weights, *dscores;                 /* (PANELS, BLOCK, MICRO_COLS): P Z and dS */
    float *transposed;                        /* (BLOCK, MICRO_COLS): dS by key, for MICRO_COLS queries */
    float *dkeys, *dvalues;                   /* PANELS of (D, MICRO_COLS), or as many as K has */
    float *dquery;                            /* T / MICRO_COLS panels (D, MICRO_COLS), see partial_of */
    float *delta, *factors;                   /* (T): g . o;  (BLOCK, BLOCK): Z */
    float *lse;   /* (T); 0 instead of -infinity, so that weights are 0, not NaN */
    float *stage; /* (2 MICRO_COLS, D), for rows_unpack and rows_add */
} Scratch;

static Scratch scratch_take(Bump *bump, HeadShape s) {
    int64_t lines = round_up(s.T, MICRO_ROWS) * s.D, dims = s.T * s.rows, keys = s.qkv.keys;
    int64_t block = s.rows * (s.qkv.group > 1 ? round_up(keys, BLOCK) : BLOCK);
    return (Scratch){
        .query_lines = floats(bump, lines),
        .grad_lines = floats(bump, lines),
        .query_dims = floats(bump, dims),
        .grad_dims = floats(bump, dims),
        .key_dims = floats(bump, keys * s.rows),
        .keys = floats(bump, s.D * BLOCK),
        .values = floats(bump, s.D * BLOCK),
        .weights = floats(bump, BLOCK * BLOCK),
        .dscores = floats(bump, BLOCK * BLOCK),
        .transposed = floats(bump, BLOCK * MICRO_COLS),
        .dkeys = floats(bump, block),
        .dvalues = floats(bump, block),
        .delta = floats(bump, s.T),
        .lse = floats(bump, s.T),
        .factors = floats(bump, BLOCK * BLOCK),
        .stage = floats(bump, 2 * MICRO_COLS * s.D),
    };
}

/* A block of the scores: queries [q, q + queries), keys [k, k + keys). */
typedef struct Block {
    int64_t q, queries, k, keys;
} Block;

/* Packs what all blocks of keys use and computes g . o of every query. */
static void head_pack(const Scratch *scratch, const Head *head) {
    HeadShape s = head->f->shape;
    int64_t tall = s.T * MICRO_ROWS, keys = s.qkv.keys * MICRO_ROWS;
    rows_across(scratch->query_lines, MICRO_ROWS, head->q, s.T, s.D * MICRO_ROWS);
    rows_across(scratch->grad_lines, MICRO_ROWS, head->grad, s.T, s.D * MICRO_ROWS);
    rows_along(scratch->query_dims, MICRO_ROWS, head->q, s.T, tall);
    rows_along(scratch->grad_dims, MICRO_ROWS, head->grad, s.T, tall);
    rows_along(scratch->key_dims, MICRO_ROWS, head->k, head->mask.keys, keys);
    for (int64_t t = 0; t < s.T; t++) {
        const float *grad = run_in(head->grad.in, head->grad.at + t * head->grad.stride, s.D, scratch->stage);
        const float *out =
            run_in(head->out.in, head->out.at + t * head->out.stride, s.D, scratch->stage + s.D);
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t d = 0; d < s.D; d++) dot += grad[d] * out[d];
        scratch->delta[t] = dot;
        scratch->lse[t] = head->lse[t] == -INFINITY ? 0 : head->lse[t];
    }
}

/* The first row (query) of a block that sees key k. */
static int64_t first_row(const Head *head, const Block *at, int64_t k) {
    int64_t first = mask_sees(&head->mask, head->f->shape.T, k) - at->q;
    return first < 0 ? 0 : min_of(first, at->queries);
}

/* The row after the last that sees a key of the panel at k. */
static int64_t end_row(const Head *head, const Block *at, int64_t k) {
    int64_t end = at->queries;
    while (end > 0 && mask_first(&head->mask, at->q + end - 1) >= k + MICRO_COLS) end--;
    return end;
}

/* weights = q k^T * scale and dscores = g v^T, for tiles that are not fully masked. */
static void scores(const Scratch *scratch, const Head *head, const Block *at) {
    int64_t D = head->f->shape.D;
    for (int64_t k = 0; k < at->keys; k += MICRO_COLS) {
        int64_t panel = k * BLOCK, end = end_row(head, at, at->k + k);
        for (int64_t q = first_row(head, at, at->k + k) / MICRO_ROWS * MICRO_ROWS; q < end; q += MICRO_ROWS) {
            micro_tile(D, scratch->query_lines + (at->q + q) * D, scratch->keys + k * D,
                       scratch->weights + panel + q * MICRO_COLS, MICRO_COLS, false);
            micro_tile(D, scratch->grad_lines + (at->q + q) * D, scratch->values + k * D,
                       scratch->dscores + panel + q * MICRO_COLS, MICRO_COLS, false);
        }
    }
}

/* Sets the scores of masked keys to -infinity, so that their weights become 0. `panel` has rows from
 * `first` and keys from k. */
static void mask_scores(float *panel, const Head *head, const Block *at, int64_t first, int64_t k) {
    for (int64_t q = first; q < at->queries; q++) {
        int64_t seen = mask_end(&head->mask, at->q + q) - k;
        if (seen >= MICRO_COLS) return;
        for (int64_t i = seen < 0 ? 0 : seen; i < MICRO_COLS; i++) panel[q * MICRO_COLS + i] = -INFINITY;
    }
}

/* The same for keys before the window or the document of a query. */
static void mask_before(float *panel, const Head *head, const Block *at, Range rows, int64_t k) {
    for (int64_t q = rows.from; q < rows.to; q++) {
        int64_t hidden = mask_first(&head->mask, at->q + q) - k;
        for (int64_t i = 0; i < min_of(hidden, MICRO_COLS); i++) panel[q * MICRO_COLS + i] = -INFINITY;
    }
}

/* Replaces the scores of `rows` queries against a panel by P Z and dS. `factors` is Z, with rows BLOCK
 * apart. */
static inline __attribute__((always_inline)) void panel_softmax(float *weights, float *dscores,
                                                                const float *factors, bool drop,
                                                                const float *lse, const float *delta,
                                                                float scale, int64_t rows) {
    for (int64_t q = 0; q < rows; q++, weights += MICRO_COLS, dscores += MICRO_COLS, factors += BLOCK) {
        VecF p0 = vec_load(weights), p1 = vec_load(weights + VEC), p2 = vec_load(weights + 2 * VEC);
        VecF s0 = vec_load(dscores), s1 = vec_load(dscores + VEC), s2 = vec_load(dscores + 2 * VEC);
        p0 = vec_exp(p0 - lse[q]), p1 = vec_exp(p1 - lse[q]), p2 = vec_exp(p2 - lse[q]);
        VecF z0 = p0, z1 = p1, z2 = p2;
        if (drop) {
            VecF f0 = vec_load(factors), f1 = vec_load(factors + VEC), f2 = vec_load(factors + 2 * VEC);
            s0 *= f0, s1 *= f1, s2 *= f2;
            z0 *= f0, z1 *= f1, z2 *= f2;
        }
        s0 = p0 * ((s0 - delta[q]) * scale);
        s1 = p1 * ((s1 - delta[q]) * scale);
        s2 = p2 * ((s2 - delta[q]) * scale);
        vec_store(weights, z0), vec_store(weights + VEC, z1), vec_store(weights + 2 * VEC, z2);
        vec_store(dscores, s0), vec_store(dscores + VEC, s1), vec_store(dscores + 2 * VEC, s2);
    }
}

/* The dropout factors of a block, where positions of queries and of keys follow one another. */
static void draw(const Scratch *scratch, const Head *head, const Block *at) {
    const Dropout *dropout = &head->f->spec->dropout;
    const Positions *query_at = &head->mask.query_at, *key_at = &head->mask.key_at;
    for (int64_t q = 0, past = at->queries, q_to; q < past; q = q_to) {
        q_to = rows_together(query_at, at->q + q, at->q + past) - at->q;
        for (int64_t k = 0, end = at->keys, to; k < end; k = to) {
            int64_t first = position_of(key_at, at->k + k), query = position_of(query_at, at->q + q);
            float *factors = scratch->factors + q * BLOCK + k;
            to = rows_together(key_at, at->k + k, at->k + end) - at->k;
            if (first % 16 == 0 && k % 16 == 0) {
                dropout_factors(factors, BLOCK, dropout, head->b, head->h, query, q_to - q, first, to - k);
                continue;
            }
            for (int64_t i = 0; i < q_to - q; i++)
                for (int64_t j = 0; j < to - k; j++)
                    factors[i * BLOCK + j] = dropout_weight(dropout, head->b, head->h, query + i, first + j);
        }
    }
}

static void softmax(const Scratch *scratch, const Head *head, const Block *at) {
    const Attention *spec = head->f->spec;
    bool drop = spec->dropout.p > 0;
    if (drop) draw(scratch, head, at);
    for (int64_t k = 0; k < at->keys; k += MICRO_COLS) {
        int64_t first = first_row(head, at, at->k + k), end = end_row(head, at, at->k + k);
        float *weights = scratch->weights + k * BLOCK, *dscores = scratch->dscores + k * BLOCK;
        if (end < first) end = first;
        int64_t from = first * MICRO_COLS, to = end * MICRO_COLS, all = at->queries * MICRO_COLS;
        memset(weights, 0, (size_t)from * sizeof *weights);
        memset(dscores, 0, (size_t)from * sizeof *dscores);
        memset(dscores + to, 0, (size_t)(all - to) * sizeof *dscores);
        mask_scores(weights, head, at, first, at->k + k);
        if (spec->window || head->mask.starts) mask_before(weights, head, at, (Range){first, end}, at->k + k);
        const float *factors = scratch->factors + first * BLOCK + k;
        const float *lse = scratch->lse + at->q + first, *delta = scratch->delta + at->q + first;
        if (drop)
            panel_softmax(weights + from, dscores + from, factors, true, lse, delta, spec->scale,
                          end - first);
        else
            panel_softmax(weights + from, dscores + from, factors, false, lse, delta, spec->scale,
                          end - first);
    }
}

/* The first of the block's panels in dkeys and dvalues. */
static int64_t panels_at(HeadShape s, int64_t k) {
    return s.qkv.group > 1 ? k * s.rows : 0;
}

/* For a block of keys that no query sees. */
static void clear_keys(const Scratch *scratch, HeadShape s, int64_t k, int64_t keys) {
    size_t bytes = (size_t)(round_up(keys, MICRO_COLS) * s.rows) * sizeof(float);
    memset(scratch->dkeys + panels_at(s, k), 0, bytes);
    memset(scratch->dvalues + panels_at(s, k), 0, bytes);
}

/* Accumulates dK and dV of the block's keys. If no query sees them, dK and dV are set to 0. */
static void add_keys(const Scratch *scratch, const Head *head, const Block *at, bool add) {
    HeadShape s = head->f->shape;
    float *dkeys = scratch->dkeys + panels_at(s, at->k), *dvalues = scratch->dvalues + panels_at(s, at->k);
    for (int64_t k = 0; k < at->keys; k += MICRO_COLS) {
        int64_t q = first_row(head, at, at->k + k), from = k * BLOCK + q * MICRO_COLS;
        int64_t end = end_row(head, at, at->k + k), depth = end > q ? end - q : 0;
        for (int64_t d = 0; d < s.rows; d += MICRO_ROWS) {
            int64_t left = d * s.T + (at->q + q) * MICRO_ROWS, to = (k * s.rows) + d * MICRO_COLS;
            micro_tile(depth, scratch->grad_dims + left, scratch->weights + from, dvalues + to, MICRO_COLS,
                       add);
            micro_tile(depth, scratch->query_dims + left, scratch->dscores + from, dkeys + to, MICRO_COLS,
                       add);
        }
    }
}

/* Accumulates dQ of the block's queries. */
static void add_queries(const Scratch *scratch, const Head *head, const Block *at) {
    HeadShape s = head->f->shape;
    for (int64_t q = 0; q < at->queries; q += MICRO_COLS) {
        int64_t queries = min_of(MICRO_COLS, at->queries - q);
        int64_t keys = mask_end(&head->mask, at->q + q + queries - 1) - at->k;
        int64_t hidden = mask_first(&head->mask, at->q + q) - at->k;
        int64_t begin = hidden > 0 ? hidden / MICRO_COLS * MICRO_COLS : 0;
        keys = keys < 0 ? 0 : min_of(keys, at->keys);
        if (begin >= keys) continue;
        for (int64_t k = begin; k < keys; k += MICRO_COLS)
            micro_pack(scratch->transposed + k * MICRO_COLS, MICRO_COLS,
                       (PackSource){scratch->dscores + k * BLOCK + q * MICRO_COLS, DT_F32, true, MICRO_COLS,
                                    queries, MICRO_COLS},
                       0);
        float *to = scratch->dquery + (at->q + q) * s.rows;
        int64_t tall = s.qkv.keys;
        for (int64_t d = 0; d < s.rows; d += MICRO_ROWS)
            micro_tile(keys - begin, scratch->key_dims + d * tall + (at->k + begin) * MICRO_ROWS,
                       scratch->transposed + begin * MICRO_COLS, to + d * MICRO_COLS, MICRO_COLS, true);
    }
}

/* Stores gradients or, with kv, adds them. `stage` has (2 MICRO_COLS, D). */
static void panels_unpack(const Head *head, Rows to, const float *panels, int64_t lines, float *stage) {
    bool add = head->f->spec->kv.data;
    for (int64_t line = 0; line < lines; line += MICRO_COLS) {
        const float *panel = panels + line * head->f->shape.rows;
        int64_t count = min_of(MICRO_COLS, lines - line);
        if (add)
            rows_add(rows_from(to, line), panel, count, stage);
        else
            rows_unpack(rows_from(to, line), panel, count, stage);
    }
}

/* Computes dK and dV of keys [range.from, range.to). Their contribution to dQ stays in scratch->dquery. */
static void keys_run(const Scratch *scratch, const Head *head, Range range) {
    HeadShape s = head->f->shape;
    int64_t turn = head->h % s.qkv.group;
    memset(scratch->dquery, 0, (size_t)(round_up(s.T, MICRO_COLS) * s.rows) * sizeof(float));
    for (int64_t k = range.from; k < range.to; k += BLOCK) {
        int64_t keys = min_of(BLOCK, range.to - k);
        rows_across(scratch->keys, MICRO_COLS, rows_from(head->k, k), keys, s.D * MICRO_COLS);
        for (int64_t i = 0; i < round_up(keys, MICRO_COLS) * s.D; i++)
            scratch->keys[i] *= head->f->spec->scale;
        rows_across(scratch->values, MICRO_COLS, rows_from(head->v, k), keys, s.D * MICRO_COLS);
        int64_t first = mask_sees(&head->mask, s.T, k) / BLOCK * BLOCK, q = first;
        for (; q < s.T && mask_first(&head->mask, q) < k + keys; q += BLOCK) {
            Block at = {q, min_of(BLOCK, s.T - q), k, keys};
            scores(scratch, head, &at);
            softmax(scratch, head, &at);
            add_keys(scratch, head, &at, turn > 0 || q > first);
            add_queries(scratch, head, &at);
        }
        if (q == first && turn == 0) clear_keys(scratch, s, k, keys);
        if (turn + 1 < s.qkv.group) continue;
        panels_unpack(head, rows_from(head->dk, k), scratch->dkeys + panels_at(s, k), keys, scratch->stage);
        panels_unpack(head, rows_from(head->dv, k), scratch->dvalues + panels_at(s, k), keys, scratch->stage);
    }
}

static void head_run(const Head *head, Bump *bump, Range splits, int thread) {
    const Backward *f = head->f;
    Scratch scratch = scratch_take(bump, f->shape);
    head_pack(&scratch, head);
    for (int64_t split = splits.from; split < splits.to; split++) {
        scratch.dquery = partial_of(f, head->at, split, thread);
        keys_run(&scratch, head, range_part(head->mask.keys, BLOCK, (int)split, (int)f->plan.splits));
        if (f->plan.whole && split > 0) partial_add(f, partial_of(f, head->at, 0, thread), scratch.dquery);
    }
}

static void store_query(const Head *head, Bump *bump, const float *sum) {
    HeadShape s = head->f->shape;
    panels_unpack(head, head->dq, sum, s.T, scratch_take(bump, s).stage);
}

static size_t partial_floats(HeadShape s) {
    return (size_t)(round_up(s.T, MICRO_COLS) * s.rows);
}

static void reserve(Bump *bump, HeadShape s) {
    scratch_take(bump, s);
}

static const BackwardType attention32_backward = {BLOCK, partial_floats, reserve, head_run, store_query};

/* ---- all types ---- */

/* Heads that are enough for 16 threads, and the blocks of keys from which on one is split: the sum of its
 * splits' dQ then takes less than a tenth of the time. */
enum { ENOUGH_HEADS = 32, SPLIT_BLOCKS = 2 };

static Plan plan_of(const Stream *stream, HeadShape s, const BackwardType *type) {
    Plan plan = {.threads = threads_for(stream, s.B * s.H * s.T * s.D), .heads = s.B * s.G, .splits = 1};
    int64_t most = s.qkv.keys / (SPLIT_BLOCKS * type->block);
    Bump scratch = {0};
    type->reserve(&scratch, s);
    if (plan.heads < ENOUGH_HEADS && most > 1)
        plan.splits = min_of((ENOUGH_HEADS + plan.heads - 1) / plan.heads, most);
    plan.whole = plan.splits == 1 || plan.threads == 1 || plan.heads >= 2 * plan.threads;
    plan.each = (size_t)round_up((int64_t)scratch.used, BUMP_ALIGN);
    plan.partial = type->partial(s);
    return plan;
}

static Head head_of(const Backward *f, int64_t at) {
    HeadShape s = f->shape;
    int64_t b = at / s.H, h = at % s.H;
    bool parts = f->spec->kv.data;
    Tensor kv = parts ? f->spec->kv : f->qkv, dkv = parts ? f->spec->dkv : f->dqkv;
    return (Head){
        .f = f,
        .at = at,
        .b = b,
        .h = h,
        .mask = mask_of(s, f->spec, f->lens, b),
        .q = head_part(f->qkv, s, PART_Q, b, h),
        .k = head_part(kv, s, PART_K, b, h),
        .v = head_part(kv, s, PART_V, b, h),
        .dq = head_part(f->dqkv, s, PART_Q, b, h),
        .dk = head_part(dkv, s, PART_K, b, h),
        .dv = head_part(dkv, s, PART_V, b, h),
        .grad = head_out(f->dout, s, b, h),
        .out = head_out(f->out, s, b, h),
        .lse = tensor_f32(f->lse) + at * s.T,
    };
}

/* Keys that no query sees have gradient 0. */
static void clear_hidden(const Head *head, Rows rows) {
    size_t bytes = (size_t)rows.D * dtype_size(rows.in.dtype);
    for (int64_t t = head->mask.keys; t < head->f->shape.qkv.keys; t++)
        memset(run_at(rows.in, rows.at + t * rows.stride), 0, bytes);
}

/* A thread's scratch memory. */
static Bump bump_of(const Backward *f, int thread) {
    return (Bump){.base = f->memory + (size_t)thread * f->plan.each, .size = f->plan.each};
}

/* Splits of the query heads that share a key head. */
static void heads_task(const void *context, int64_t task, int thread) {
    const Backward *f = context;
    const Plan *plan = &f->plan;
    int64_t group = f->shape.qkv.group, own = plan->whole ? 0 : task % plan->splits;
    Range splits = plan->whole ? (Range){0, plan->splits} : (Range){own, own + 1};
    for (int64_t i = 0; i < group; i++) {
        Head head = head_of(f, (plan->whole ? task : task / plan->splits) * group + i);
        Bump bump = bump_of(f, thread), again = bump;
        f->type->head(&head, &bump, splits, thread);
        if (splits.from == 0 && i == 0 && !f->spec->kv.data)
            clear_hidden(&head, head.dk), clear_hidden(&head, head.dv);
        if (plan->whole) f->type->store(&head, &again, partial_of(f, head.at, 0, thread));
    }
}

/* dQ of a query head after its splits ran as tasks of their own. */
static void sum_task(const void *context, int64_t at, int thread) {
    const Backward *f = context;
    float *sum = partial_of(f, at, 0, 0);
    for (int64_t split = 1; split < f->plan.splits; split++) partial_add(f, sum, partial_of(f, at, split, 0));
    Head head = head_of(f, at);
    Bump bump = bump_of(f, thread);
    f->type->store(&head, &bump, sum);
}

static Status backward_heads(Stream *stream, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                             Tensor lens, Attention spec) {
    const Product16 *product = NULL;
    const BackwardType *type = &attention32_backward;
#if defined(__AVX512F__)
    TRY(product16_choose(&product, qkv, &spec));
    if (product) type = &attention16_backward;
#endif
    HeadShape s = head_shape(qkv, &spec);
    Plan plan = plan_of(stream, s, type);
    int64_t slots = plan.whole ? min_of(plan.splits, 2) * plan.threads : s.B * s.H * plan.splits;
    size_t scratch_bytes = (size_t)plan.threads * plan.each;
    void *memory;
    TRY(stream_workspace(stream, scratch_bytes + (size_t)slots * plan.partial * sizeof(float), &memory));
    Backward f = {dqkv, dout, out, lse, qkv, lens, &spec, type, product, s, plan, memory, NULL};
    f.partial = (float *)(void *)(f.memory + scratch_bytes);
    Pool *pool = plan.threads > 1 ? stream->device->pool : NULL;
    pool_run(pool, plan.heads * (plan.whole ? 1 : plan.splits), heads_task, &f);
    if (!plan.whole) pool_run(pool, s.B * s.H, sum_task, &f);
    return OK;
}

static Status attention_backward_cpu(Stream *stream, Tensor dqkv, Tensor dout, Tensor out, Tensor lse,
                                     Tensor qkv, Tensor lens, Attention spec) {
    TRY(backward_heads(stream, dqkv, dout, out, lse, qkv, lens, spec));
    return column_sums(stream, spec.sums, qkv_rows(dqkv));
}

void VARIANT(attention_backward_override)(KernelTable *table) {
    table->attention_backward = attention_backward_cpu;
}
