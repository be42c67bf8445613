/* Attention forward. A thread takes a head and some of its queries, packs the head's keys and values,
 * and then works on panels of MICRO_COLS queries: one panel's scores against up to SCORE_KEYS keys are a
 * matrix with a column per query, so that maxima and sums run down the columns, a vector of queries at a
 * time. The softmax is carried on from one block of keys to the next: when a larger maximum is met, what was
 * summed so far is scaled down. What a causal mask hides is not computed, except inside the tiles it cuts.
 *
 *   scores (keys, queries) = k q^T;  weights = exp(scores - maximum);  out^T (D, queries) = v^T weights
 */
#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/attention.h"

enum { SCORE_KEYS = 6144 / MICRO_COLS / MICRO_ROWS * MICRO_ROWS, MASK_KEYS = 64 };

/* One thread's memory. */
typedef struct Space {
    float *keys;    /* panels of MICRO_ROWS keys: (D, MICRO_ROWS) each */
    float *values;  /* panels of MICRO_ROWS of the D dims: (T, MICRO_ROWS) each */
    float *query;   /* (D, MICRO_COLS) */
    float *scores;  /* (SCORE_KEYS, MICRO_COLS) */
    float *mixed;   /* (D, MICRO_COLS) */
    float *factors; /* (MICRO_COLS, MASK_KEYS) */
} Space;

static Space space_take(Bump *bump, HeadShape s) {
    return (Space){
        .keys = bump_take(bump, (size_t)(round_to(s.T, MICRO_ROWS) * s.D) * sizeof(float)),
        .values = bump_take(bump, (size_t)(s.T * s.rows) * sizeof(float)),
        .query = bump_take(bump, (size_t)(s.D * MICRO_COLS) * sizeof(float)),
        .scores = bump_take(bump, SCORE_KEYS * MICRO_COLS * sizeof(float)),
        .mixed = bump_take(bump, (size_t)(s.rows * MICRO_COLS) * sizeof(float)),
        .factors = bump_take(bump, MICRO_COLS * MASK_KEYS * sizeof(float)),
    };
}

/* The softmax of a panel so far: a lane per query. */
typedef struct Running {
    VecF most[3], sum[3];
} Running;

typedef struct Head {
    HeadShape shape;
    const Attention *spec;
    int64_t b, h, keys; /* keys: how many may be seen at all */
} Head;

/* Scores of keys a query does not see become -infinity. Only rows past what the panel's first query sees
 * need it. */
static void hide(float *scores, const Head *head, int64_t q, int64_t k0, int64_t keys) {
    if (!head->spec->causal) return;
    for (int64_t k = q + 1 > k0 ? q + 1 - k0 : 0; k < keys; k++)
        for (int i = 0; i < 3; i++) {
            float *at = scores + k * MICRO_COLS + i * VEC;
            VecI hidden = vec_count((int32_t)(q - k0) + i * VEC) < (int32_t)k;
            vec_store(at, vec_select(hidden, vec_set(-INFINITY), vec_load(at)));
        }
}

/* Scores become weights relative to the maximum so far; `mixed` is scaled to it. */
static void softmax_carry(Running *run, const Space *space, HeadShape s, int64_t keys, bool first) {
    for (int i = 0; i < 3; i++) {
        float *scores = space->scores + i * VEC;
        VecF most = run->most[i], other = run->most[i], sum = {0}, sum2 = {0};
        int64_t k = 0;
        for (; k + 2 <= keys; k += 2) {
            most = vec_max(most, vec_load(scores + k * MICRO_COLS));
            other = vec_max(other, vec_load(scores + (k + 1) * MICRO_COLS));
        }
        if (k < keys) most = vec_max(most, vec_load(scores + k * MICRO_COLS));
        most = vec_max(most, other);
        VecF base = vec_select(most == -INFINITY, vec_set(0.0f), most);
        VecF carry = vec_exp(run->most[i] - base);
        for (k = 0; k + 2 <= keys; k += 2) {
            VecF weight = vec_exp(vec_load(scores + k * MICRO_COLS) - base);
            VecF weight2 = vec_exp(vec_load(scores + (k + 1) * MICRO_COLS) - base);
            vec_store(scores + k * MICRO_COLS, weight);
            vec_store(scores + (k + 1) * MICRO_COLS, weight2);
            sum += weight;
            sum2 += weight2;
        }
        if (k < keys) {
            VecF weight = vec_exp(vec_load(scores + k * MICRO_COLS) - base);
            vec_store(scores + k * MICRO_COLS, weight);
            sum += weight;
        }
        run->most[i] = most;
        run->sum[i] = run->sum[i] * carry + (sum + sum2);
        for (int64_t d = 0; d < s.rows && !first; d++) {
            float *at = space->mixed + d * MICRO_COLS + i * VEC;
            vec_store(at, vec_load(at) * carry);
        }
    }
}

/* Dropout on the weights. Draws run along a query's keys, so they are made in rows and turned. */
static void drop(const Space *space, const Head *head, int64_t q, int64_t queries, int64_t k0, int64_t keys) {
    const Dropout *dropout = &head->spec->dropout;
    if (!(dropout->p > 0)) return;
    float turned[MASK_KEYS][MICRO_COLS];
    for (int64_t from = 0; from < keys; from += MASK_KEYS) {
        int64_t n = least_of(MASK_KEYS, keys - from);
        for (int64_t i = 0; i < MICRO_COLS; i++)
            dropout_factors(space->factors + i * MASK_KEYS, dropout,
                            dropout_scores(dropout, head->b, head->h, least_of(q + i, q + queries - 1)) +
                                (uint64_t)(k0 + from),
                            n);
        pack_across(turned[0], MICRO_COLS, space->factors, MASK_KEYS, MICRO_COLS, n, 0);
        float *weights = space->scores + from * MICRO_COLS;
        const float *factors = turned[0];
#pragma omp simd
        for (int64_t i = 0; i < n * MICRO_COLS; i++) weights[i] *= factors[i];
    }
}

/* out and lse of queries q .. q + queries - 1, at most MICRO_COLS. */
static void panel_run(const Space *space, const Head *head, const float *query, float *out, float *lse,
                      int64_t q, int64_t queries) {
    HeadShape s = head->shape;
    pack_across(space->query, MICRO_COLS, query, 3 * s.H * s.D, queries, s.D, 0);
    for (int64_t i = 0; i < s.D * MICRO_COLS; i++) space->query[i] *= head->spec->scale;
    memset(space->mixed, 0, (size_t)(s.rows * MICRO_COLS) * sizeof(float));
    Running run;
    for (int i = 0; i < 3; i++) run.most[i] = vec_set(-INFINITY), run.sum[i] = vec_set(0.0f);
    int64_t seen = keys_seen(head->keys, head->spec->causal, q + queries - 1);
    for (int64_t k0 = 0; k0 < seen; k0 += SCORE_KEYS) {
        int64_t keys = least_of(SCORE_KEYS, seen - k0);
        for (int64_t k = 0; k < keys; k += MICRO_ROWS)
            micro_tile(s.D, space->keys + (k0 + k) * s.D, space->query, space->scores + k * MICRO_COLS,
                       MICRO_COLS, false);
        hide(space->scores, head, q, k0, keys);
        softmax_carry(&run, space, s, keys, k0 == 0);
        drop(space, head, q, queries, k0, keys);
        for (int64_t d = 0; d < s.rows; d += MICRO_ROWS)
            micro_tile(keys, space->values + d * head->keys + k0 * MICRO_ROWS, space->scores,
                       space->mixed + d * MICRO_COLS, MICRO_COLS, k0 > 0);
    }
    float inverse[MICRO_COLS];
    for (int64_t i = 0; i < MICRO_COLS; i++) {
        float sum = run.sum[i / VEC][i % VEC];
        inverse[i] = sum > 0 || sum != sum ? 1.0f / sum : 0.0f;
        if (i < queries) lse[i] = run.most[i / VEC][i % VEC] + logf(sum);
    }
    for (int64_t d = 0; d < s.D; d++)
        for (int64_t i = 0; i < MICRO_COLS; i++) space->mixed[d * MICRO_COLS + i] *= inverse[i];
    panel_unpack(out, s.H * s.D, space->mixed, queries, s.D);
}

/* Queries [range.from, range.to) of one head. */
static void head_run(const Space *space, const Head *head, Tensor out, Tensor lse, Tensor qkv, Range range) {
    HeadShape s = head->shape;
    int64_t stride = 3 * s.H * s.D;
    int64_t keys = range.to > range.from ? keys_seen(head->keys, head->spec->causal, range.to - 1) : 0;
    pack_across(space->keys, MICRO_ROWS, head_part(qkv, s, PART_K, head->b, head->h), stride, keys, s.D,
                s.D * MICRO_ROWS);
    pack_along(space->values, MICRO_ROWS, head_part(qkv, s, PART_V, head->b, head->h), stride, s.D, keys,
               head->keys * MICRO_ROWS);
    const float *query = head_part(qkv, s, PART_Q, head->b, head->h);
    float *to = tensor_f32(out) + (head->b * s.T * s.H + head->h) * s.D;
    float *sums = tensor_f32(lse) + (head->b * s.H + head->h) * s.T;
    for (int64_t q = range.from; q < range.to; q += MICRO_COLS)
        panel_run(space, head, query + q * stride, to + q * s.H * s.D, sums + q, q,
                  least_of(MICRO_COLS, range.to - q));
}

static Status attention_forward_cpu(Stream *stream, Tensor out, Tensor lse, Tensor qkv, Tensor lens,
                                    Attention spec) {
    FP32_ONLY("attention_forward", out, lse, qkv);
    HeadShape s = head_shape(qkv);
    int threads = threads_for(stream, s.B * s.H * s.T * s.D);
    /* Heads are cut only where there are too few of them: each cut packs the keys again. */
    int64_t heads = s.B * s.H, cuts = heads >= 2 * threads ? 1 : (2 * threads + heads - 1) / heads;
    Bump count = {0};
    space_take(&count, s);
    size_t each = (count.used + BUMP_ALIGN - 1) / BUMP_ALIGN * BUMP_ALIGN;
    void *memory;
    TRY(stream_workspace(stream, (size_t)threads * each, &memory));
#pragma omp parallel num_threads(threads)
    {
        Bump bump = {.base = (unsigned char *)memory + (size_t)omp_get_thread_num() * each, .size = each};
        Space space = space_take(&bump, s);
#pragma omp for schedule(dynamic)
        for (int64_t job = 0; job < heads * cuts; job++) {
            int64_t at = job / cuts;
            Head head = {s, &spec, at / s.H, at % s.H, keys_of(s, lens, at / s.H)};
            head_run(&space, &head, out, lse, qkv,
                     range_part(s.T, MICRO_COLS, (int)(cuts - 1 - job % cuts), (int)cuts));
        }
    }
    return OK;
}

void VARIANT(attention_forward_override)(KernelTable *table) {
    table->attention_forward = attention_forward_cpu;
}
