/* Attention backward. A thread takes a head, or a stretch of its keys where there are few heads, and goes
 * through blocks of keys and queries. The weights are computed again from lse, so nothing of size T x T
 * exists. With P the weights, Z dropout's factors, g the gradient of the output o:
 *
 *   dV = (P Z)^T g;  dP = g v^T;  dS = P (dP Z - g . o) scale;  dQ = dS k;  dK = dS^T q
 *
 * Scores of a block lie in panels of MICRO_COLS keys, a row per query, which is how dV and dK take them;
 * for dQ, which sums over keys, dS is turned. All sums are held transposed, as panels (D, MICRO_COLS). dQ
 * is summed over the blocks of keys in order; stretches of one head sum their own and are added in order
 * afterwards.
 */
#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/attention.h"

/* Both a multiple of MICRO_ROWS and MICRO_COLS. */
enum { BLOCK = 96, PANELS = BLOCK / MICRO_COLS };

/* One thread's memory. Panels of lines: of MICRO_ROWS queries (D, MICRO_ROWS), of MICRO_ROWS dims
 * (T, MICRO_ROWS), of MICRO_COLS keys (D, MICRO_COLS). */
typedef struct Space {
    float *query_lines, *grad_lines;          /* q and g by query, for the scores */
    float *query_dims, *grad_dims, *key_dims; /* q, g and k by dim, for dK, dV and dQ */
    float *keys, *values;                     /* k * scale and v of one block of keys */
    float *weights, *slopes;                  /* (PANELS, BLOCK, MICRO_COLS): P Z and dS */
    float *turned;                            /* (BLOCK, MICRO_COLS): dS by key, for MICRO_COLS queries */
    float *dkeys, *dvalues;                   /* PANELS of (D, MICRO_COLS) */
    float *dquery;                            /* T / MICRO_COLS panels (D, MICRO_COLS) */
    float *through, *factors;                 /* (T): g . o;  (BLOCK, BLOCK): Z */
    float *stage;                             /* (STAGE_ROWS, D), see attention.h */
} Space;

static float *floats(Bump *bump, int64_t count) {
    return bump_take(bump, (size_t)count * sizeof(float));
}

static Space space_take(Bump *bump, HeadShape s) {
    int64_t lines = round_to(s.T, MICRO_ROWS) * s.D, dims = s.T * s.rows, block = s.rows * BLOCK;
    return (Space){
        .query_lines = floats(bump, lines),
        .grad_lines = floats(bump, lines),
        .query_dims = floats(bump, dims),
        .grad_dims = floats(bump, dims),
        .key_dims = floats(bump, dims),
        .keys = floats(bump, s.D * BLOCK),
        .values = floats(bump, s.D * BLOCK),
        .weights = floats(bump, BLOCK * BLOCK),
        .slopes = floats(bump, BLOCK * BLOCK),
        .turned = floats(bump, BLOCK * MICRO_COLS),
        .dkeys = floats(bump, block),
        .dvalues = floats(bump, block),
        .dquery = floats(bump, round_to(s.T, MICRO_COLS) * s.rows),
        .through = floats(bump, s.T),
        .factors = floats(bump, BLOCK * BLOCK),
        .stage = floats(bump, STAGE_ROWS * s.D),
    };
}

typedef struct Head {
    HeadShape shape;
    const Attention *spec;
    int64_t b, h, keys; /* keys: how many may be seen at all */
    Rows q, k, v;       /* T each */
    Rows grad, out;
    const float *lse; /* (T) */
} Head;

/* The part of the scores at hand: queries [q, q + queries), keys [k, k + keys). */
typedef struct Block {
    int64_t q, queries, k, keys;
} Block;

/* What all blocks of keys use. */
static void head_pack(const Space *space, const Head *head) {
    HeadShape s = head->shape;
    int64_t tall = s.T * MICRO_ROWS;
    rows_across(space->query_lines, MICRO_ROWS, head->q, s.T, s.D * MICRO_ROWS, space->stage);
    rows_across(space->grad_lines, MICRO_ROWS, head->grad, s.T, s.D * MICRO_ROWS, space->stage);
    rows_along(space->query_dims, MICRO_ROWS, head->q, s.T, tall, space->stage);
    rows_along(space->grad_dims, MICRO_ROWS, head->grad, s.T, tall, space->stage);
    rows_along(space->key_dims, MICRO_ROWS, head->k, head->keys, tall, space->stage);
    for (int64_t t = 0; t < s.T; t++) {
        const float *grad = run_in(head->grad.in, head->grad.at + t * head->grad.stride, s.D, space->stage);
        const float *out = run_in(head->out.in, head->out.at + t * head->out.stride, s.D, space->stage + s.D);
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t d = 0; d < s.D; d++) dot += grad[d] * out[d];
        space->through[t] = dot;
    }
}

/* The first query of a block that sees key k, as a row of the block. */
static int64_t first_row(const Head *head, const Block *at, int64_t k) {
    return head->spec->causal && k > at->q ? least_of(k - at->q, at->queries) : 0;
}

/* weights = q k^T * scale and slopes = g v^T, for tiles that some query of theirs sees. */
static void scores(const Space *space, const Head *head, const Block *at) {
    int64_t D = head->shape.D;
    for (int64_t k = 0; k < at->keys; k += MICRO_COLS) {
        int64_t panel = k * BLOCK;
        for (int64_t q = first_row(head, at, at->k + k) / MICRO_ROWS * MICRO_ROWS; q < at->queries;
             q += MICRO_ROWS) {
            micro_tile(D, space->query_lines + (at->q + q) * D, space->keys + k * D,
                       space->weights + panel + q * MICRO_COLS, MICRO_COLS, false);
            micro_tile(D, space->grad_lines + (at->q + q) * D, space->values + k * D,
                       space->slopes + panel + q * MICRO_COLS, MICRO_COLS, false);
        }
    }
}

/* Scores of a panel's keys that a query does not see become -infinity, so that their weights are 0.
 * `panel` holds rows from `first` on, of the keys from k on. */
static void hide(float *panel, const Head *head, const Block *at, int64_t first, int64_t k) {
    for (int64_t q = first; q < at->queries; q++) {
        int64_t seen = keys_seen(head->keys, head->spec->causal, at->q + q) - k;
        if (seen >= MICRO_COLS) return;
        for (int64_t i = seen < 0 ? 0 : seen; i < MICRO_COLS; i++) panel[q * MICRO_COLS + i] = -INFINITY;
    }
}

/* Turns `rows` queries' scores against a panel into P Z and dS. `factors`: Z, rows BLOCK apart. */
static inline __attribute__((always_inline)) void panel_softmax(float *weights, float *slopes,
                                                                const float *factors, bool drop,
                                                                const float *lse, const float *through,
                                                                float scale, int64_t rows) {
    for (int64_t q = 0; q < rows; q++, weights += MICRO_COLS, slopes += MICRO_COLS, factors += BLOCK) {
        VecF p0 = vec_load(weights), p1 = vec_load(weights + VEC), p2 = vec_load(weights + 2 * VEC);
        VecF s0 = vec_load(slopes), s1 = vec_load(slopes + VEC), s2 = vec_load(slopes + 2 * VEC);
        p0 = vec_exp(p0 - lse[q]), p1 = vec_exp(p1 - lse[q]), p2 = vec_exp(p2 - lse[q]);
        VecF z0 = p0, z1 = p1, z2 = p2;
        if (drop) {
            VecF f0 = vec_load(factors), f1 = vec_load(factors + VEC), f2 = vec_load(factors + 2 * VEC);
            s0 *= f0, s1 *= f1, s2 *= f2;
            z0 *= f0, z1 *= f1, z2 *= f2;
        }
        s0 = p0 * ((s0 - through[q]) * scale);
        s1 = p1 * ((s1 - through[q]) * scale);
        s2 = p2 * ((s2 - through[q]) * scale);
        vec_store(weights, z0), vec_store(weights + VEC, z1), vec_store(weights + 2 * VEC, z2);
        vec_store(slopes, s0), vec_store(slopes + VEC, s1), vec_store(slopes + 2 * VEC, s2);
    }
}

static void softmax(const Space *space, const Head *head, const Block *at) {
    const Attention *spec = head->spec;
    bool drop = spec->dropout.p > 0;
    for (int64_t q = 0; drop && q < at->queries; q++) {
        int64_t seen = keys_seen(head->keys, spec->causal, at->q + q) - at->k;
        dropout_factors(space->factors + q * BLOCK, &spec->dropout,
                        dropout_scores(&spec->dropout, head->b, head->h, at->q + q) + (uint64_t)at->k,
                        least_of(round_to(seen, MICRO_COLS), BLOCK));
    }
    for (int64_t k = 0; k < at->keys; k += MICRO_COLS) {
        int64_t first = first_row(head, at, at->k + k), from = first * MICRO_COLS;
        float *weights = space->weights + k * BLOCK, *slopes = space->slopes + k * BLOCK;
        memset(weights, 0, (size_t)from * sizeof *weights);
        memset(slopes, 0, (size_t)from * sizeof *slopes);
        hide(weights, head, at, first, at->k + k);
        const float *factors = space->factors + first * BLOCK + k;
        const float *lse = head->lse + at->q + first, *through = space->through + at->q + first;
        if (drop)
            panel_softmax(weights + from, slopes + from, factors, true, lse, through, spec->scale,
                          at->queries - first);
        else
            panel_softmax(weights + from, slopes + from, factors, false, lse, through, spec->scale,
                          at->queries - first);
    }
}

/* dK and dV of the block's keys gain the queries' part. */
static void add_keys(const Space *space, const Head *head, const Block *at, bool add) {
    HeadShape s = head->shape;
    for (int64_t k = 0; k < at->keys; k += MICRO_COLS) {
        int64_t q = first_row(head, at, at->k + k), from = k * BLOCK + q * MICRO_COLS;
        for (int64_t d = 0; d < s.rows; d += MICRO_ROWS) {
            int64_t left = d * s.T + (at->q + q) * MICRO_ROWS, to = (k * s.rows) + d * MICRO_COLS;
            micro_tile(at->queries - q, space->grad_dims + left, space->weights + from, space->dvalues + to,
                       MICRO_COLS, add);
            micro_tile(at->queries - q, space->query_dims + left, space->slopes + from, space->dkeys + to,
                       MICRO_COLS, add);
        }
    }
}

/* dQ of the block's queries gains the keys' part. */
static void add_queries(const Space *space, const Head *head, const Block *at) {
    HeadShape s = head->shape;
    for (int64_t q = 0; q < at->queries; q += MICRO_COLS) {
        int64_t queries = least_of(MICRO_COLS, at->queries - q);
        int64_t keys = keys_seen(head->keys, head->spec->causal, at->q + q + queries - 1) - at->k;
        keys = keys < 0 ? 0 : least_of(keys, at->keys);
        for (int64_t k = 0; k < keys; k += MICRO_COLS)
            pack_across(space->turned + k * MICRO_COLS, MICRO_COLS,
                        space->slopes + k * BLOCK + q * MICRO_COLS, MICRO_COLS, queries, MICRO_COLS, 0);
        float *to = space->dquery + (at->q + q) * s.rows;
        for (int64_t d = 0; d < s.rows; d += MICRO_ROWS)
            micro_tile(keys, space->key_dims + d * s.T + at->k * MICRO_ROWS, space->turned,
                       to + d * MICRO_COLS, MICRO_COLS, true);
    }
}

static void panels_unpack(Rows to, const float *panels, HeadShape s, int64_t lines, float *stage) {
    for (int64_t line = 0; line < lines; line += MICRO_COLS)
        rows_unpack(rows_from(to, line), panels + line * s.rows, least_of(MICRO_COLS, lines - line), stage);
}

/* dK and dV of keys [range.from, range.to); dQ's part from them stays in space->dquery. */
static void keys_run(const Space *space, const Head *head, Rows dk, Rows dv, Range range) {
    HeadShape s = head->shape;
    memset(space->dquery, 0, (size_t)(round_to(s.T, MICRO_COLS) * s.rows) * sizeof(float));
    for (int64_t k = range.from; k < range.to; k += BLOCK) {
        int64_t keys = least_of(BLOCK, range.to - k);
        rows_across(space->keys, MICRO_COLS, rows_from(head->k, k), keys, s.D * MICRO_COLS, space->stage);
        for (int64_t i = 0; i < round_to(keys, MICRO_COLS) * s.D; i++) space->keys[i] *= head->spec->scale;
        rows_across(space->values, MICRO_COLS, rows_from(head->v, k), keys, s.D * MICRO_COLS, space->stage);
        int64_t first = head->spec->causal ? k / BLOCK * BLOCK : 0;
        for (int64_t q = first; q < s.T; q += BLOCK) {
            Block at = {q, least_of(BLOCK, s.T - q), k, keys};
            scores(space, head, &at);
            softmax(space, head, &at);
            add_keys(space, head, &at, q > first);
            add_queries(space, head, &at);
        }
        panels_unpack(rows_from(dk, k), space->dkeys, s, keys, space->stage);
        panels_unpack(rows_from(dv, k), space->dvalues, s, keys, space->stage);
    }
}

/* How the work is cut. */
typedef struct Plan {
    int threads;
    int64_t heads, cuts; /* each head into so many stretches of keys */
    size_t each;         /* bytes of a thread's Space */
    size_t partial;      /* floats of a stretch's dQ */
} Plan;

static Plan plan_of(const Stream *stream, HeadShape s) {
    Plan plan = {.threads = threads_for(stream, s.B * s.H * s.T * s.D), .heads = s.B * s.H, .cuts = 1};
    if (plan.heads < 2 * plan.threads)
        plan.cuts = least_of((2 * plan.threads + plan.heads - 1) / plan.heads, (s.T + BLOCK - 1) / BLOCK);
    Bump count = {0};
    space_take(&count, s);
    plan.each = (count.used + BUMP_ALIGN - 1) / BUMP_ALIGN * BUMP_ALIGN;
    plan.partial = (size_t)(round_to(s.T, MICRO_COLS) * s.rows);
    return plan;
}

static Head head_of(Tensor qkv, Tensor dout, Tensor out, Tensor lse, Tensor lens, const Attention *spec,
                    HeadShape s, int64_t at) {
    int64_t b = at / s.H, h = at % s.H;
    return (Head){
        .shape = s,
        .spec = spec,
        .b = b,
        .h = h,
        .keys = keys_of(s, lens, b),
        .q = head_part(qkv, s, PART_Q, b, h),
        .k = head_part(qkv, s, PART_K, b, h),
        .v = head_part(qkv, s, PART_V, b, h),
        .grad = head_out(dout, s, b, h),
        .out = head_out(out, s, b, h),
        .lse = tensor_f32(lse) + at * s.T,
    };
}

/* Keys that no query sees have no gradient. */
static void clear_hidden(const Head *head, Rows rows) {
    size_t size = dtype_size(rows.in.dtype);
    for (int64_t t = head->keys; t < head->shape.T; t++)
        memset((char *)rows.in.data + (size_t)(rows.at + t * rows.stride) * size, 0, (size_t)rows.D * size);
}

/* dQ of one head, from the parts of its stretches. */
static void dquery_sum(float *parts, const Plan *plan, HeadShape s, Rows dq, float *stage) {
    for (int64_t cut = 1; cut < plan->cuts; cut++) {
        const float *from = parts + (size_t)cut * plan->partial;
#pragma omp simd
        for (size_t i = 0; i < plan->partial; i++) parts[i] += from[i];
    }
    panels_unpack(dq, parts, s, s.T, stage);
}

static Status attention_backward_cpu(Stream *stream, Tensor dqkv, Tensor dout, Tensor out, Tensor lse,
                                     Tensor qkv, Tensor lens, Attention spec) {
    HeadShape s = head_shape(qkv);
    Plan plan = plan_of(stream, s);
    size_t held = (size_t)plan.threads * plan.each;
    size_t parts = plan.cuts > 1 ? (size_t)(plan.heads * plan.cuts) * plan.partial : 0;
    void *memory;
    TRY(stream_workspace(stream, held + parts * sizeof(float), &memory));
    float *partial = (float *)((unsigned char *)memory + held);
#pragma omp parallel num_threads(plan.threads)
    {
        Bump bump = {.base = (unsigned char *)memory + (size_t)omp_get_thread_num() * plan.each,
                     .size = plan.each};
        Space space = space_take(&bump, s);
#pragma omp for schedule(dynamic)
        for (int64_t job = 0; job < plan.heads * plan.cuts; job++) {
            Head head = head_of(qkv, dout, out, lse, lens, &spec, s, job / plan.cuts);
            Rows dq = head_part(dqkv, s, PART_Q, head.b, head.h);
            Rows dk = head_part(dqkv, s, PART_K, head.b, head.h);
            Rows dv = head_part(dqkv, s, PART_V, head.b, head.h);
            if (plan.cuts > 1) space.dquery = partial + (size_t)job * plan.partial;
            head_pack(&space, &head);
            keys_run(&space, &head, dk, dv,
                     range_part(head.keys, BLOCK, (int)(job % plan.cuts), (int)plan.cuts));
            if (job % plan.cuts == 0) clear_hidden(&head, dk), clear_hidden(&head, dv);
            if (plan.cuts == 1) panels_unpack(dq, space.dquery, s, s.T, space.stage);
        }
#pragma omp for schedule(static)
        for (int64_t head = 0; head < (plan.cuts > 1 ? plan.heads : 0); head++)
            dquery_sum(partial + (size_t)(head * plan.cuts) * plan.partial, &plan, s,
                       head_part(dqkv, s, PART_Q, head / s.H, head % s.H), space.stage);
    }
    return OK;
}

void VARIANT(attention_backward_override)(KernelTable *table) {
    table->attention_backward = attention_backward_cpu;
}
