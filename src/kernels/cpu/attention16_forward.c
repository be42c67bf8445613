/* Attention forward with bf16 products; see attention16.h. A thread takes a head, or some of its queries if
 * there are few heads, packs the head's keys and values, and then processes panels of SIDE queries. The
 * softmax is computed online over blocks of SCORE_KEYS keys, in powers of two:
 *
 *   scores (keys, queries) = k q^T;  weights = 2^(scores * scale / ln 2 - base);  out^T (D, queries) = v^T
 * weights
 */
#if defined(__x86_64__)

#include "kernels/cpu/attention16_parts.h"

enum { SCORE_KEYS = 256 };

/* Scratch memory of a thread. */
typedef struct Scratch {
    uint16_t *keys;    /* blocks of SIDE rows */
    uint16_t *values;  /* blocks of SIDE keys: (D, SIDE) each */
    uint16_t *query;   /* a panel with D steps */
    float *scores;     /* (SCORE_KEYS, SIDE) */
    uint16_t *weights; /* a panel with SCORE_KEYS steps */
    float *sums;       /* (D, SIDE) */
} Scratch;

static Scratch scratch_take(Bump *bump, int64_t T, int64_t D) {
    size_t rows = (size_t)(round_up(T, SIDE) * D), panel = (size_t)(D * SIDE);
    return (Scratch){
        .keys = bump_take(bump, rows * sizeof(uint16_t)),
        .values = bump_take(bump, rows * sizeof(uint16_t)),
        .query = bump_take(bump, panel * sizeof(uint16_t)),
        .scores = bump_take(bump, SCORE_KEYS * SIDE * sizeof(float)),
        .weights = bump_take(bump, SCORE_KEYS * SIDE * sizeof(uint16_t)),
        .sums = bump_take(bump, panel * sizeof(float)),
    };
}

size_t attention16_head_scratch(int64_t keys, int64_t D) {
    Bump count = {0};
    scratch_take(&count, keys, D);
    return (size_t)round_up((int64_t)count.used, BUMP_ALIGN);
}

/* The online softmax of a panel: the exponent that weights are relative to, and their sum. */
typedef struct OnlineSoftmax {
    Lanes base, sum;
} OnlineSoftmax;

/* The maxima of `keys` rows, a multiple of 4. */
static Lanes columns_max(const float *scores, int64_t keys) {
    VecF low[4], high[4];
    for (int i = 0; i < 4; i++) low[i] = high[i] = vec_set(-INFINITY);
    for (int64_t k = 0; k < keys; k += 4)
        for (int i = 0; i < 4; i++, scores += SIDE) {
            low[i] = vec_max(low[i], vec_load(scores));
            high[i] = vec_max(high[i], vec_load(scores + VEC));
        }
    return (Lanes){vec_max(vec_max(low[0], low[1]), vec_max(low[2], low[3])),
                   vec_max(vec_max(high[0], high[1]), vec_max(high[2], high[3]))};
}

/* Weights of keys [k, to), multiples of KEPT_KEYS, from their scores, times `unit`. Returns the sums before
 * dropout. */
static ALWAYS_INLINE Lanes weights_of(uint16_t *weights, const float *scores, float unit, Lanes base,
                                      int64_t k, int64_t to, const Kept *kept, Ahead *ahead) {
    Lanes even = {0}, odd = {0};
    for (int64_t step = 0; k < to; k += KEPT_KEYS) {
        KeptBits bits = kept_bits(k);
        ahead_run(ahead, KEPT_KEYS / 2);
#pragma GCC unroll 4
        for (int i = 0; i < KEPT_KEYS; i += 2, step += 2, scores += 2 * SIDE) {
            VecF w0 = exp2_of(vec_load(scores) * unit - base.low);
            VecF w1 = exp2_of(vec_load(scores + VEC) * unit - base.high);
            VecF w2 = exp2_of(vec_load(scores + SIDE) * unit - base.low);
            VecF w3 = exp2_of(vec_load(scores + SIDE + VEC) * unit - base.high);
            even.low += w0, even.high += w1, odd.low += w2, odd.high += w3;
            __mmask16 k0 = 0xffff, k1 = k0, k2 = k0, k3 = k0;
            if (kept) {
                k0 = kept_lanes(kept, bits, i, 0), k1 = kept_lanes(kept, bits, i, 1);
                k2 = kept_lanes(kept, bits, i + 1, 0), k3 = kept_lanes(kept, bits, i + 1, 1);
            }
            uint16_t *at = pair_at(weights, step);
            _mm512_storeu_si512(at, pair_of_kept(w0, w2, k0, k2));
            _mm512_storeu_si512(at + TILE, pair_of_kept(w1, w3, k1, k3));
        }
    }
    return (Lanes){even.low + odd.low, even.high + odd.high};
}

/* Weights of a block of keys with dropout, one group of draws at a time. */
static Lanes weights_dropped(const Scratch *scratch, const HeadJob *job, float unit, Lanes base, int64_t q,
                             int64_t k0, int64_t end, Ahead *ahead) {
    Lanes sum = {0};
    for (int64_t k = k0, to; k < end; k = to) {
        to = min_of(end, (k / DROPOUT_GROUP + 1) * DROPOUT_GROUP);
        Kept kept;
        kept_draw(&kept, job->dropout, job->b, job->h, q, k);
        Lanes some = weights_of(scratch->weights + (k - k0) * SIDE, scratch->scores + (k - k0) * SIDE, unit,
                                base, k, to, &kept, ahead);
        sum.low += some.low, sum.high += some.high;
    }
    return sum;
}

static inline VecF finite_base(VecF base) {
    return vec_select(base == -INFINITY, vec_set(0.0f), base);
}

/* Turns the scores of keys [k0, end) into weights relative to the new maximum and rescales `sums` to it. */
static void softmax_carry(OnlineSoftmax *run, const Scratch *scratch, const HeadJob *job, int64_t q,
                          int64_t k0, int64_t end, bool first, Ahead *ahead) {
    float unit = job->scale * 1.44269504f;
    Lanes max = columns_max(scratch->scores, end - k0);
    Lanes base = {vec_max(run->base.low, max.low * unit), vec_max(run->base.high, max.high * unit)};
    Lanes from = {finite_base(base.low), finite_base(base.high)};
    Lanes carry = {exp2_of(run->base.low - from.low), exp2_of(run->base.high - from.high)};
    Lanes sum = job->dropout
                    ? weights_dropped(scratch, job, unit, from, q, k0, end, ahead)
                    : weights_of(scratch->weights, scratch->scores, unit, from, k0, end, NULL, ahead);
    run->base = base;
    run->sum.low = run->sum.low * carry.low + sum.low;
    run->sum.high = run->sum.high * carry.high + sum.high;
    if (first) return;
    for (float *at = scratch->sums; at < scratch->sums + job->D * SIDE; at += SIDE) {
        vec_store(at, vec_load(at) * carry.low);
        vec_store(at + VEC, vec_load(at + VEC) * carry.high);
    }
}

/* Divides by the sums and writes out and lse. A query that sees no key gets 0 and -infinity. */
static void panel_finish(const Scratch *scratch, const HeadJob *job, const OnlineSoftmax *run, int64_t q,
                         int64_t queries) {
    float base[SIDE], sum[SIDE], inverse[SIDE];
    float factor = job->dropout ? dropout_scale(job->dropout->p) : 1.0f;
    vec_store(base, run->base.low), vec_store(base + VEC, run->base.high);
    vec_store(sum, run->sum.low), vec_store(sum + VEC, run->sum.high);
    for (int64_t i = 0; i < SIDE; i++) {
        inverse[i] = sum[i] == 0 ? 0.0f : factor / sum[i];
        if (i < queries) job->lse[q + i] = base[i] * 0.693147181f + logf(sum[i]);
    }
    unpack_transposed(rows_from(job->out, q), scratch->sums, queries,
                      (Lanes){vec_load(inverse), vec_load(inverse + VEC)}, false);
}

/* Processes queries q .. q + queries - 1, at most SIDE. */
static void panel_run(const Product16 *product, const Scratch *scratch, const HeadJob *job, int64_t q,
                      int64_t queries, Ahead *ahead) {
    int64_t D = job->D;
    pack_columns(scratch->query, rows_from(job->q, q), queries);
    memset(scratch->sums, 0, (size_t)(D * SIDE) * sizeof(float));
    OnlineSoftmax run = {.base = {vec_set(-INFINITY), vec_set(-INFINITY)}};
    Sight sight = sight_of(&job->mask, q, queries);
    int64_t begin = mask_first(&job->mask, q) / SIDE * SIDE, seen = mask_end(&job->mask, q + queries - 1);
    for (int64_t k0 = begin; k0 < seen; k0 += SCORE_KEYS) {
        int64_t keys = round_up(min_of(SCORE_KEYS, seen - k0), SIDE);
        for (int64_t k = 0; k < keys; k += SIDE) {
            ahead_run(ahead, SIDE / 2);
            product->run(D, &(Left16){scratch->keys + (k0 + k) * D, SIDE, SIDE * SIDE}, scratch->query,
                         scratch->scores + k * SIDE, SIDE, false);
        }
        hide(scratch->scores, &sight, k0, k0 + keys);
        softmax_carry(&run, scratch, job, q, k0, k0 + keys, k0 == begin, ahead);
        for (int64_t d = 0; d < D; d += SIDE)
            product->run(keys, &(Left16){scratch->values + k0 * D + d * SIDE, SIDE, D * SIDE},
                         scratch->weights, scratch->sums + d * SIDE, SIDE, k0 > begin);
    }
    panel_finish(scratch, job, &run, q, queries);
}

void attention16_head(const Product16 *product, const HeadJob *job, Range queries, void *memory) {
    if (queries.to <= queries.from) return;
    Bump bump = {.base = memory};
    Scratch scratch = scratch_take(&bump, job->mask.keys, job->D);
    int64_t D = job->D, end = mask_end(&job->mask, queries.to - 1);
    int64_t from = min_of(mask_first(&job->mask, queries.from) / SIDE * SIDE, end / SIDE * SIDE);
    Ahead ahead = {0};
    ahead_add(&ahead, job->k, from, end, false);
    ahead_add(&ahead, job->v, from, end, false);
    ahead_add(&ahead, job->q, queries.from, min_of(queries.from + SIDE, queries.to), false);
    ahead_run(&ahead, AHEAD_ROWS);
    pack_rows(scratch.keys + from * D, rows_from(job->k, from), end - from, &ahead);
    pack_transposed(scratch.values + from * D, rows_from(job->v, from), end - from, &ahead);
    product->begin();
    for (int64_t q = queries.from, next; q < queries.to; q = next) {
        next = min_of(q + SIDE, queries.to);
        ahead_add(&ahead, job->q, next, min_of(next + SIDE, queries.to), false);
        ahead_add(&ahead, job->out, q, next, true);
        panel_run(product, &scratch, job, q, next - q, &ahead);
    }
    product->end();
}

#endif
