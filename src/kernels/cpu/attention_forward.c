/* Attention forward. A thread takes a head and some of its queries, packs the head's keys and values, and
 * then processes panels of MICRO_COLS queries. The scores of a panel against up to SCORE_KEYS keys form a
 * matrix with one column per query, so maxima and sums run down the columns, one vector of queries at a
 * time. The softmax is computed online from block to block: when the maximum increases, the sums so far are
 * scaled down. Keys that no query of a panel sees are skipped.
 *
 *   scores (keys, queries) = k q^T;  weights = exp(scores - maximum);  out^T (D, queries) = v^T weights */
#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/attention16.h"

enum { SCORE_KEYS = 6144 / MICRO_COLS / MICRO_ROWS * MICRO_ROWS };

/* Scratch memory of a thread; rows is D rounded up to full tiles. */
typedef struct Scratch {
    int64_t rows;
    float *keys;   /* panels of MICRO_ROWS keys: (D, MICRO_ROWS) each */
    float *values; /* panels of MICRO_ROWS of the D dims: (keys, MICRO_ROWS) each */
    float *query;  /* (D, MICRO_COLS) */
    float *scores; /* (SCORE_KEYS, MICRO_COLS) */
    float *sums;   /* (rows, MICRO_COLS) */
    float *stage;  /* (MICRO_COLS, D), for rows_unpack */
} Scratch;

static Scratch scratch_take(Bump *bump, int64_t keys, int64_t D) {
    int64_t rows = round_up(D, MICRO_ROWS);
    return (Scratch){
        .rows = rows,
        .keys = floats(bump, round_up(keys, MICRO_ROWS) * D),
        .values = floats(bump, keys * rows),
        .query = floats(bump, D * MICRO_COLS),
        .scores = floats(bump, SCORE_KEYS * MICRO_COLS),
        .sums = floats(bump, rows * MICRO_COLS),
        .stage = floats(bump, MICRO_COLS * D),
    };
}

size_t attention_head_scratch(int64_t keys, int64_t D) {
    Bump count = {0};
    scratch_take(&count, keys, D);
    return (count.used + BUMP_ALIGN - 1) / BUMP_ALIGN * BUMP_ALIGN;
}

/* The online softmax of a panel: one lane per query. */
typedef struct OnlineSoftmax {
    VecF max[3], sum[3];
} OnlineSoftmax;

/* Sets the scores of masked keys to -infinity: those past the keys that the first query of the panel sees,
 * for other queries. */
static void mask_scores(float *scores, const Mask *mask, int64_t q, int64_t queries, int64_t k0,
                        int64_t keys) {
    int64_t from = mask_end(mask, q) - k0;
    if (from >= keys) return;
    VecI end[3];
    for (int i = 0; i < MICRO_COLS; i++)
        end[i / VEC][i % VEC] = (int32_t)(mask_end(mask, q + min_of(i, queries - 1)) - k0);
    for (int64_t k = from < 0 ? 0 : from; k < keys; k++)
        for (int i = 0; i < 3; i++) {
            float *at = scores + k * MICRO_COLS + i * VEC;
            vec_store(at, vec_select(end[i] <= (int32_t)k, vec_set(-INFINITY), vec_load(at)));
        }
}

/* The same for keys before the window or the document of a query. */
static void mask_before(float *scores, const Mask *mask, int64_t q, int64_t queries, int64_t k0,
                        int64_t keys) {
    int64_t last = mask_first(mask, q + queries - 1) - k0; /* the row from which all queries see */
    if (last <= 0) return;
    VecI first[3];
    for (int i = 0; i < MICRO_COLS; i++)
        first[i / VEC][i % VEC] = (int32_t)(mask_first(mask, q + min_of(i, queries - 1)) - k0);
    for (int64_t k = 0; k < min_of(last, keys); k++)
        for (int i = 0; i < 3; i++) {
            float *at = scores + k * MICRO_COLS + i * VEC;
            vec_store(at, vec_select(first[i] > (int32_t)k, vec_set(-INFINITY), vec_load(at)));
        }
}

/* A row of scores is three vectors with independent maxima. */
static void columns_max(const float *scores, int64_t keys, VecF max[3]) {
    VecF m0 = max[0], m1 = max[1], m2 = max[2];
    for (int64_t k = 0; k < keys; k++, scores += MICRO_COLS) {
        m0 = vec_max(m0, vec_load(scores));
        m1 = vec_max(m1, vec_load(scores + VEC));
        m2 = vec_max(m2, vec_load(scores + 2 * VEC));
    }
    max[0] = m0, max[1] = m1, max[2] = m2;
}

/* Replaces scores by exp(score - base) and returns their sums. */
static void columns_exp(float *scores, int64_t keys, const VecF base[3], VecF sum[3]) {
    VecF b0 = base[0], b1 = base[1], b2 = base[2];
    VecF s0 = {0}, s1 = {0}, s2 = {0};
    for (int64_t k = 0; k < keys; k++, scores += MICRO_COLS) {
        VecF x0 = vec_load(scores), x1 = vec_load(scores + VEC), x2 = vec_load(scores + 2 * VEC);
        x0 = vec_exp(x0 - b0), x1 = vec_exp(x1 - b1), x2 = vec_exp(x2 - b2);
        vec_store(scores, x0), vec_store(scores + VEC, x1), vec_store(scores + 2 * VEC, x2);
        s0 += x0, s1 += x1, s2 += x2;
    }
    sum[0] = s0, sum[1] = s1, sum[2] = s2;
}

/* Replaces scores by weights relative to the new maximum and rescales `sums` to it. */
static void softmax_carry(OnlineSoftmax *run, const Scratch *scratch, int64_t keys, bool first) {
    VecF max[3] = {run->max[0], run->max[1], run->max[2]}, base[3], carry[3], sum[3];
    columns_max(scratch->scores, keys, max);
    for (int i = 0; i < 3; i++) {
        base[i] = vec_select(max[i] == -INFINITY, vec_set(0.0f), max[i]);
        carry[i] = vec_exp(run->max[i] - base[i]);
    }
    columns_exp(scratch->scores, keys, base, sum);
    for (int i = 0; i < 3; i++) {
        run->max[i] = max[i];
        run->sum[i] = run->sum[i] * carry[i] + sum[i];
    }
    for (int64_t d = 0; d < scratch->rows && !first; d++)
        for (int i = 0; i < 3; i++) {
            float *at = scratch->sums + d * MICRO_COLS + i * VEC;
            vec_store(at, vec_load(at) * carry[i]);
        }
}

/* Applies dropout to the weights of keys at positions [k, end) for queries from position q on. Each vector
 * lane draws for one query, which is the order of the weights. */
static void drop_keys(float *weights, const HeadJob *job, int64_t q, int64_t k, int64_t end) {
    const Dropout *dropout = job->dropout;
    uint32_t stride = (uint32_t)(4 * dropout_groups(dropout)), threshold = dropout_threshold(dropout->p);
    VecU offset = (VecU)vec_count(0) * stride;
    float factor = dropout_scale(dropout->p);
    for (int64_t to; k < end; k = to) {
        to = min_of(end, (k / DROPOUT_GROUP + 1) * DROPOUT_GROUP);
        VecU kept[4][3];
        for (int t = 0; t < 4; t++)
            for (int i = 0; i < 3; i++) {
                uint64_t word = dropout_word(dropout, job->b, job->h, q + i * VEC, k / 8 * 8 + 2 * t);
                kept[t][i] = philox_kept(dropout->key, word, offset, threshold);
            }
        for (int64_t key = k; key < to; key++)
            for (int i = 0; i < 3; i++, weights += VEC) {
                VecI bit = (VecI)((kept[key % 8 / 2][i] & 1u << dropout_bit(key)) != 0);
                vec_store(weights, (VecF)(bit & (VecI)(vec_load(weights) * factor)));
            }
    }
}

/* The same for rows k0 .. k0 + keys - 1 of the keys and queries from row q on. */
static void drop(const Scratch *scratch, const HeadJob *job, int64_t q, int64_t k0, int64_t keys) {
    const Positions *at = &job->mask.key_at;
    int64_t query = position_of(&job->mask.query_at, q);
    for (int64_t k = k0, to; k < k0 + keys; k = to) {
        int64_t first = position_of(at, k);
        to = rows_together(at, k, k0 + keys);
        drop_keys(scratch->scores + (k - k0) * MICRO_COLS, job, query, first, first + to - k);
    }
}

/* Divides by the sums and writes out and lse. A query that sees no key gets 0 and -infinity. */
static void panel_finish(const Scratch *scratch, const HeadJob *job, const OnlineSoftmax *run, int64_t q,
                         int64_t queries) {
    float inverse[MICRO_COLS];
    for (int64_t i = 0; i < MICRO_COLS; i++) {
        float sum = run->sum[i / VEC][i % VEC];
        inverse[i] = sum == 0 ? 0.0f : 1.0f / sum;
        if (job->lse && i < queries) job->lse[q + i] = run->max[i / VEC][i % VEC] + logf(sum);
    }
    for (int64_t d = 0; d < job->D; d++)
        for (int64_t i = 0; i < MICRO_COLS; i++) scratch->sums[d * MICRO_COLS + i] *= inverse[i];
    rows_unpack(rows_from(job->out, q), scratch->sums, queries, scratch->stage);
}

/* Processes queries q .. q + queries - 1, at most MICRO_COLS, whose positions follow one another. */
static void panel_run(const Scratch *scratch, const HeadJob *job, int64_t q, int64_t queries) {
    const Mask *mask = &job->mask;
    int64_t D = job->D;
    rows_across(scratch->query, MICRO_COLS, rows_from(job->q, q), queries, 0);
    for (int64_t i = 0; i < D * MICRO_COLS; i++) scratch->query[i] *= job->scale;
    memset(scratch->sums, 0, (size_t)(scratch->rows * MICRO_COLS) * sizeof(float));
    OnlineSoftmax run;
    for (int i = 0; i < 3; i++) run.max[i] = vec_set(-INFINITY), run.sum[i] = vec_set(0.0f);
    int64_t seen = mask_end(mask, q + queries - 1), begin = mask_first(mask, q) / MICRO_ROWS * MICRO_ROWS;
    for (int64_t k0 = begin; k0 < seen; k0 += SCORE_KEYS) {
        int64_t keys = min_of(SCORE_KEYS, seen - k0);
        for (int64_t k = 0; k < keys; k += MICRO_ROWS)
            micro_tile(D, scratch->keys + (k0 + k) * D, scratch->query, scratch->scores + k * MICRO_COLS,
                       MICRO_COLS, false);
        mask_scores(scratch->scores, mask, q, queries, k0, keys);
        mask_before(scratch->scores, mask, q, queries, k0, keys);
        softmax_carry(&run, scratch, keys, k0 == begin);
        if (job->dropout) drop(scratch, job, q, k0, keys);
        for (int64_t d = 0; d < scratch->rows; d += MICRO_ROWS)
            micro_tile(keys, scratch->values + d * mask->keys + k0 * MICRO_ROWS, scratch->scores,
                       scratch->sums + d * MICRO_COLS, MICRO_COLS, k0 > begin);
    }
    panel_finish(scratch, job, &run, q, queries);
}

void attention_head(const HeadJob *job, Range queries, void *memory) {
    if (queries.to <= queries.from) return;
    const Mask *mask = &job->mask;
    Bump bump = {.base = memory};
    Scratch scratch = scratch_take(&bump, mask->keys, job->D);
    int64_t end = mask_end(mask, queries.to - 1);
    int64_t from = min_of(mask_first(mask, queries.from) / MICRO_ROWS * MICRO_ROWS, end);
    rows_across(scratch.keys + from * job->D, MICRO_ROWS, rows_from(job->k, from), end - from,
                job->D * MICRO_ROWS);
    rows_along(scratch.values + from * MICRO_ROWS, MICRO_ROWS, rows_from(job->v, from), end - from,
               mask->keys * MICRO_ROWS);
    for (int64_t q = queries.from, to; q < queries.to; q = to) {
        to = min_of(q + MICRO_COLS, rows_together(&mask->query_at, q, queries.to));
        panel_run(&scratch, job, q, to - q);
    }
}

/* What the tasks of attention_forward share. */
typedef struct Forward {
    Tensor out, lse, qkv, lens;
    const Attention *spec;
    const Product16 *product; /* NULL in fp32 */
    HeadShape shape;
    int64_t splits;
    unsigned char *memory;
    size_t each;
} Forward;

/* One split of one head. */
static void forward_task(const void *context, int64_t at, int thread) {
    const Forward *f = context;
    const Attention *spec = f->spec;
    HeadShape s = f->shape;
    int64_t b = at / f->splits / s.H, h = at / f->splits % s.H;
    Tensor kv = spec->kv.data ? spec->kv : f->qkv;
    HeadJob job = {
        .T = s.T,
        .D = s.D,
        .mask = mask_of(s, spec, f->lens, b),
        .scale = spec->scale,
        .q = head_part(f->qkv, s, PART_Q, b, h),
        .k = head_part(kv, s, PART_K, b, h),
        .v = head_part(kv, s, PART_V, b, h),
        .out = head_out(f->out, s, b, h),
        .lse = tensor_f32(f->lse) + (b * s.H + h) * s.T,
        .dropout = spec->dropout.p > 0 ? &spec->dropout : NULL,
        .b = b,
        .h = h,
    };
    /* Later queries of a causal head take longer, so start with them. */
    Range queries = range_part(s.T, f->product ? SIDE : MICRO_COLS, (int)(f->splits - 1 - at % f->splits),
                               (int)f->splits);
    void *memory = f->memory + (size_t)thread * f->each;
#if defined(__AVX512F__)
    if (f->product) {
        attention16_head(f->product, &job, queries, memory);
        return;
    }
#endif
    attention_head(&job, queries, memory);
}

static Status attention_forward_cpu(Stream *stream, Tensor out, Tensor lse, Tensor qkv, Tensor lens,
                                    Attention spec) {
    HeadShape s = head_shape(qkv, &spec);
    const Product16 *product = NULL;
    size_t each = attention_head_scratch(s.qkv.keys, s.D);
#if defined(__AVX512F__)
    TRY(product16_choose(&product, qkv, &spec));
    if (product) each = attention16_head_scratch(s.T, s.D);
#endif
    int threads = threads_for(stream, s.B * s.H * s.T * s.D);
    /* Split heads only if there are too few of them, because each split packs the keys again. */
    int64_t heads = s.B * s.H, splits = heads >= 2 * threads ? 1 : (2 * threads + heads - 1) / heads;
    void *memory;
    TRY(stream_workspace(stream, (size_t)threads * each, &memory));
    Forward forward = {out, lse, qkv, lens, &spec, product, s, splits, memory, each};
    pool_run(threads > 1 ? stream->device->pool : NULL, heads * splits, forward_task, &forward);
    return OK;
}

/* What the tasks of attention_combine share. */
typedef struct Combine {
    Tensor out, lse, part, part_lse;
} Combine;

/* to = own to + other part, over D elements of a row from `at` on. A factor of 0 is that of an undefined row.
 */
static void combine_row(const Combine *c, int64_t at, int64_t D, float own, float other) {
    enum { SOME = 64 };
    float a[SOME], b[SOME];
    for (int64_t d = 0; d < D; d += SOME) {
        int64_t n = min_of(SOME, D - d);
        const float *had = run_in(c->out, at + d, n, a), *more = run_in(c->part, at + d, n, b);
        float *to = run_out(c->out, at + d, a);
        for (int64_t i = 0; i < n; i++)
            to[i] = (own == 0 ? 0 : own * had[i]) + (other == 0 ? 0 : other * more[i]);
        run_end(c->out, at + d, n, to);
    }
}

/* The rows of a head of a sequence. */
static void combine_task(const void *context, int64_t task, int thread) {
    const Combine *c = context;
    int64_t T = c->out.dim[1], H = c->out.dim[2], D = c->out.dim[3], b = task / H, h = task % H;
    float *lse = tensor_f32(c->lse) + task * T;
    const float *part = tensor_f32(c->part_lse) + task * T;
    (void)thread;
    for (int64_t t = 0; t < T; t++) {
        float largest = fmaxf(lse[t], part[t]);
        if (largest == -INFINITY) largest = 0;
        float own = expf(lse[t] - largest), other = expf(part[t] - largest), sum = own + other;
        float inverse = sum == 0 ? 0 : 1 / sum;
        combine_row(c, ((b * T + t) * H + h) * D, D, own * inverse, other * inverse);
        lse[t] = largest + logf(sum);
    }
}

static Status attention_combine_cpu(Stream *stream, Tensor out, Tensor lse, Tensor part, Tensor part_lse) {
    Combine combine = {out, lse, part, part_lse};
    int threads = threads_for(stream, tensor_count(out));
    pool_run(threads > 1 ? stream->device->pool : NULL, out.dim[0] * out.dim[2], combine_task, &combine);
    return OK;
}

void VARIANT(attention_forward_override)(KernelTable *table) {
    table->attention_forward = attention_forward_cpu;
    table->attention_combine = attention_combine_cpu;
}
