/* Attention backward with bf16 products; see attention16.h, and attention_backward.c for the formulas. A
 * task (attention_backward.h) is a head, or a range of its keys, and iterates over blocks of keys and
 * queries. In a block, panels of SIDE queries are processed one after the other: scores and dP against SIDE
 * keys at a time, their softmax, and dQ^T for all keys that the panel sees. dV and dK follow for the whole
 * block. Factors that all elements share (the scale and that of dropout) are applied when results are stored.
 *
 * A block's keys and queries are packed when they are first needed. The rows of the next ones, and those of
 * the results, are prefetched meanwhile.
 *
 * dQ is accumulated over the blocks of keys in order. If query heads share keys and values, a task has all of
 * them, one after the other, and keeps dK and dV of all of its keys. */
#if defined(__x86_64__)

#include "kernels/cpu/attention16_parts.h"

enum { BLOCK = 128, PANELS = BLOCK / SIDE };

/* Scratch memory of a thread. T is rounded up to SIDE. */
typedef struct Scratch {
    uint16_t *keys, *values;          /* blocks of SIDE rows: left operands of scores and dP */
    uint16_t *keys_across;            /* blocks of SIDE keys, (D, SIDE): left operand of dQ^T */
    uint16_t *query, *grad;           /* panels of SIDE queries with D steps, for scores and dP */
    uint16_t *query_dims, *grad_dims; /* panels of SIDE dims with T steps, for dK and dV */
    float *scores[2], *dweights[2];   /* (SIDE, SIDE), used alternately */
    uint16_t *weights, *dscores;      /* PANELS of (BLOCK, SIDE): left operands of dV and dK */
    uint16_t *pairs;                  /* dscores as a panel with BLOCK steps, for dQ^T */
    float *dkeys, *dvalues;           /* (BLOCK, D), or (T, D) if query heads share keys */
    float *dquery;                    /* T / SIDE panels (D, SIDE), see partial_of */
    float *lse, *delta;               /* (T): lse / ln 2, infinite for queries that see no key;  -(g . o) */
} Scratch;

static uint16_t *halves(Bump *bump, int64_t count) {
    return bump_take(bump, (size_t)count * sizeof(uint16_t));
}

static Scratch scratch_take(Bump *bump, HeadShape s) {
    int64_t T = round_up(s.T, SIDE), all = T * s.D, block = s.qkv.group > 1 ? round_up(T, BLOCK) : BLOCK;
    return (Scratch){
        .keys = halves(bump, all),
        .values = halves(bump, all),
        .keys_across = halves(bump, all),
        .query = halves(bump, all),
        .grad = halves(bump, all),
        .query_dims = halves(bump, all),
        .grad_dims = halves(bump, all),
        .scores = {floats(bump, SIDE * SIDE), floats(bump, SIDE * SIDE)},
        .dweights = {floats(bump, SIDE * SIDE), floats(bump, SIDE * SIDE)},
        .weights = halves(bump, BLOCK * BLOCK),
        .dscores = halves(bump, BLOCK * BLOCK),
        .pairs = halves(bump, BLOCK * SIDE),
        .dkeys = floats(bump, block * s.D),
        .dvalues = floats(bump, block * s.D),
        .lse = floats(bump, T),
        .delta = floats(bump, T),
    };
}

/* A block: queries [q, q + queries) and keys [k, k + keys). Each panel of queries sees keys [from, to) of
 * them, in multiples of SIDE. */
typedef struct Block {
    int64_t q, queries, k, keys;
    Range seen[PANELS];
} Block;

static float dot_bf16(const uint16_t *x, const uint16_t *y, int64_t D) {
    VecF even = {0}, odd = {0};
    for (int64_t d = 0; d < D; d += 2 * VEC) {
        even += vec_load_bf16(x + d) * vec_load_bf16(y + d);
        odd += vec_load_bf16(x + d + VEC) * vec_load_bf16(y + d + VEC);
    }
    return vec_sum_of(even + odd);
}

/* What follows from one block to the next. */
typedef struct Run {
    const Scratch *scratch;
    const Head *head;
    int64_t packed; /* queries before this one are packed */
    Ahead ahead;
} Run;

/* Packs keys [k, k + keys) and their values. */
static void pack_keys(Run *run, int64_t k, int64_t keys) {
    const Scratch *scratch = run->scratch;
    int64_t at = k * run->head->q.D;
    pack_rows(scratch->keys + at, rows_from(run->head->k, k), keys, &run->ahead);
    pack_rows(scratch->values + at, rows_from(run->head->v, k), keys, &run->ahead);
    pack_transposed(scratch->keys_across + at, rows_from(run->head->k, k), keys, &run->ahead);
}

/* Packs queries [q, q + queries) and their gradients. */
static void pack_queries(Run *run, int64_t q, int64_t queries) {
    const Scratch *scratch = run->scratch;
    const Head *head = run->head;
    int64_t D = head->q.D, steps = round_up(head->f->shape.T, SIDE);
    Rows query = rows_from(head->q, q), grad = rows_from(head->grad, q), out = rows_from(head->out, q);
    pack_columns_all(scratch->query + q * D, query, queries, &run->ahead);
    pack_columns_all(scratch->grad + q * D, grad, queries, &run->ahead);
    pack_steps(scratch->query_dims + q * SIDE, query, queries, steps * SIDE);
    pack_steps(scratch->grad_dims + q * SIDE, grad, queries, steps * SIDE);
    for (int64_t t = 0; t < round_up(queries, SIDE); t++) {
        bool sees = t < queries && head->lse[q + t] != -INFINITY;
        scratch->lse[q + t] = sees ? head->lse[q + t] * 1.44269504f : INFINITY;
        scratch->delta[q + t] = t < queries ? -dot_bf16(rows_at(grad, t), rows_at(out, t), D) : 0;
    }
    run->packed = q + queries;
}

static Block block_of(const Head *head, int64_t q, int64_t k, int64_t keys) {
    Block at = {.q = q, .queries = min_of(BLOCK, head->f->shape.T - q), .k = k, .keys = keys};
    for (int64_t panel = 0; panel * SIDE < at.queries; panel++) {
        int64_t first = mask_first(&head->mask, q + panel * SIDE) - k;
        int64_t to = head->f->spec->causal ? q + (panel + 1) * SIDE - k : keys;
        at.seen[panel].from = first > 0 ? first / SIDE * SIDE : 0;
        at.seen[panel].to = round_up(to < 0 ? 0 : min_of(to, keys), SIDE);
    }
    return at;
}

/* What the softmax of a panel needs for all keys of a block. */
typedef struct Panel {
    Lanes lse, delta;
    Sight sight;
    Kept kept;
    float unit, factor;
    uint16_t *weights, *dscores, *pairs; /* of the block's first key */
} Panel;

static void panel_begin(Panel *panel, const Run *run, const Block *at, int64_t number) {
    const Scratch *scratch = run->scratch;
    const Head *head = run->head;
    const Attention *spec = head->f->spec;
    int64_t q = at->q + number * SIDE;
    const float *lse = scratch->lse + q, *delta = scratch->delta + q;
    panel->lse = (Lanes){vec_load(lse), vec_load(lse + VEC)};
    panel->delta = (Lanes){vec_load(delta), vec_load(delta + VEC)};
    panel->sight = sight_of(&head->mask, q, min_of(SIDE, at->queries - number * SIDE));
    panel->unit = spec->scale * 1.44269504f;
    panel->factor = 1;
    panel->weights = scratch->weights + number * BLOCK * SIDE;
    panel->dscores = scratch->dscores + number * BLOCK * SIDE;
    panel->pairs = scratch->pairs;
    if (!(spec->dropout.p > 0)) return;
    /* Keys of a block, which starts at a multiple of DROPOUT_GROUP, share their draws. */
    _Static_assert((int)BLOCK == (int)DROPOUT_GROUP, "a block is one group of draws");
    kept_draw(&panel->kept, &spec->dropout, head->b, head->h, q, at->k);
    panel->factor = dropout_scale(spec->dropout.p);
}

/* Writes the weights, with dropout, and dS of keys [k, k + SIDE) of a block, as left operands and dS also as
 * pairs. */
static ALWAYS_INLINE void softmax_rows(const Panel *panel, const float *scores, const float *dweights,
                                       int64_t k, bool dropped, Ahead *ahead) {
    uint16_t *weights = panel->weights + k * SIDE, *dscores = panel->dscores + k * SIDE;
    Lanes lse = panel->lse, delta = panel->delta;
    __m512 scale = _mm512_set1_ps(panel->factor);
    float unit = panel->unit;
    for (int64_t to = k + SIDE; k < to; k += KEPT_KEYS) {
        KeptBits bits = kept_bits(k);
        __m512i ds[2];
        ahead_run(ahead, KEPT_KEYS / 2);
#pragma GCC unroll 8
        for (int i = 0; i < KEPT_KEYS; i++, weights += SIDE, dscores += SIDE) {
            VecF w0 = exp2_of(vec_load(scores + i * SIDE) * unit - lse.low);
            VecF w1 = exp2_of(vec_load(scores + i * SIDE + VEC) * unit - lse.high);
            VecF d0 = vec_load(dweights + i * SIDE), d1 = vec_load(dweights + i * SIDE + VEC);
            VecF z0 = w0, z1 = w1;
            if (dropped) {
                __mmask16 low = kept_lanes(&panel->kept, bits, i, 0);
                __mmask16 high = kept_lanes(&panel->kept, bits, i, 1);
                z0 = (VecF)_mm512_maskz_mov_ps(low, (__m512)w0);
                z1 = (VecF)_mm512_maskz_mov_ps(high, (__m512)w1);
                d0 = (VecF)_mm512_mask3_fmadd_ps((__m512)d0, scale, (__m512)delta.low, low);
                d1 = (VecF)_mm512_mask3_fmadd_ps((__m512)d1, scale, (__m512)delta.high, high);
            } else {
                d0 += delta.low, d1 += delta.high;
            }
            ds[i % 2] = to_bf16(w0 * d0, w1 * d1);
            _mm512_storeu_si512(weights, to_bf16(z0, z1));
            _mm512_storeu_si512(dscores, ds[i % 2]);
            if (i % 2 == 0) continue;
            uint16_t *pair = pair_at(panel->pairs, k + i - 1);
            _mm512_storeu_si512(pair, unpack_low(ds[0], ds[1]));
            _mm512_storeu_si512(pair + TILE, unpack_high(ds[0], ds[1]));
        }
        scores += KEPT_KEYS * SIDE, dweights += KEPT_KEYS * SIDE;
    }
}

/* The softmax of keys [k, k + SIDE) of a block. */
static void softmax(Run *run, const Panel *panel, const Block *at, int64_t k) {
    float *scores = run->scratch->scores[k / SIDE % 2], *dweights = run->scratch->dweights[k / SIDE % 2];
    hide(scores, &panel->sight, at->k + k, at->k + k + SIDE);
    if (run->head->f->spec->dropout.p > 0)
        softmax_rows(panel, scores, dweights, k, true, &run->ahead);
    else
        softmax_rows(panel, scores, dweights, k, false, &run->ahead);
}

/* Computes the weights and dS of one panel and adds to its dQ. */
static void panel_run(Run *run, const Block *at, int64_t number) {
    const Scratch *scratch = run->scratch;
    const Head *head = run->head;
    const Product16 *product = head->f->product;
    Range seen = at->seen[number];
    int64_t D = head->q.D, q = at->q + number * SIDE;
    if (seen.from >= seen.to) return;
    Panel panel;
    panel_begin(&panel, run, at, number);
    /* The softmax is one step behind the products: tiles that are being stored can not be loaded yet. */
    for (int64_t k = seen.from; k < seen.to; k += SIDE) {
        int64_t row = (at->k + k) * D;
        ahead_run(&run->ahead, SIDE / 2);
        product->run(D, &(Left16){scratch->keys + row, SIDE, SIDE * SIDE}, scratch->query + q * D,
                     scratch->scores[k / SIDE % 2], SIDE, false);
        product->run(D, &(Left16){scratch->values + row, SIDE, SIDE * SIDE}, scratch->grad + q * D,
                     scratch->dweights[k / SIDE % 2], SIDE, false);
        if (k > seen.from) softmax(run, &panel, at, k - SIDE);
    }
    softmax(run, &panel, at, seen.to - SIDE);
    for (int64_t d = 0; d < D; d += SIDE)
        product->run(seen.to - seen.from,
                     &(Left16){scratch->keys_across + (at->k + seen.from) * D + d * SIDE, SIDE, D * SIDE},
                     scratch->pairs + seen.from * SIDE, scratch->dquery + q * D + d * SIDE, SIDE, true);
}

/* The panels of a block that see keys [k, k + SIDE). */
static Range panels_seeing(const Block *at, int64_t k) {
    Range range = {0, (at->queries + SIDE - 1) / SIDE};
    while (range.from < range.to && at->seen[range.from].to <= k) range.from++;
    while (range.to > range.from && at->seen[range.to - 1].from > k) range.to--;
    return range;
}

/* to (keys, D) += a block's weights or dS, times the gradients or the queries. A panel of the right operand
 * stays in the L1 cache for all keys. */
static void add_keys(const Run *run, const Block *at, const uint16_t *weights, const uint16_t *dims,
                     float *to) {
    int64_t D = run->head->q.D, steps = round_up(run->head->f->shape.T, SIDE);
    for (int64_t d = 0; d < D; d += SIDE)
        for (int64_t k = 0; k < at->keys; k += SIDE) {
            Range panels = panels_seeing(at, k);
            if (panels.from == panels.to) continue;
            run->head->f->product->run(
                (panels.to - panels.from) * SIDE,
                &(Left16){weights + panels.from * BLOCK * SIDE + k * SIDE, SIDE, BLOCK * SIDE},
                dims + d * steps + (at->q + panels.from * SIDE) * SIDE, to + k * D + d, D, true);
        }
}

/* The first `count` rows = from (count, D), times the factor. */
static void unpack_rows(Rows rows, const float *from, int64_t count, float factor) {
    for (int64_t row = 0; row < count; row++)
        for (int64_t d = 0; d < rows.D; d += VEC, from += VEC)
            store_bf16(rows_at(rows, row) + d, vec_load(from) * factor);
}

static void ahead_queries(Run *run, int64_t q) {
    int64_t to = min_of(q + BLOCK, run->head->f->shape.T);
    ahead_add(&run->ahead, run->head->q, q, to, false);
    ahead_add(&run->ahead, run->head->grad, q, to, false);
    ahead_add(&run->ahead, run->head->out, q, to, false);
}
static void ahead_keys(Run *run, int64_t k, int64_t end) {
    ahead_add(&run->ahead, run->head->k, k, min_of(k + BLOCK, end), false);
    ahead_add(&run->ahead, run->head->v, k, min_of(k + BLOCK, end), false);
}

/* Computes a block. Meanwhile, rows that are read or written next are prefetched. */
static void block_run(Run *run, const Block *at, float *dkeys, float *dvalues) {
    if (run->packed < at->q + at->queries) pack_queries(run, at->q, at->queries);
    if (run->packed == at->q + at->queries) ahead_queries(run, run->packed);
    for (int64_t panel = 0; panel * SIDE < at->queries; panel++) panel_run(run, at, panel);
    add_keys(run, at, run->scratch->weights, run->scratch->grad_dims, dvalues);
    add_keys(run, at, run->scratch->dscores, run->scratch->query_dims, dkeys);
}

/* Prefetches what comes after the block that has the last queries for keys [k, k + keys). */
static void ahead_rest(Run *run, int64_t k, int64_t keys, int64_t end) {
    HeadShape s = run->head->f->shape;
    ahead_keys(run, k + keys, end);
    if ((run->head->h + 1) % s.qkv.group) return;
    ahead_add(&run->ahead, run->head->dk, k, k + keys, true);
    ahead_add(&run->ahead, run->head->dv, k, k + keys, true);
}

/* Computes dK and dV of keys [range.from, range.to). Their contribution to dQ stays in scratch->dquery. */
static void keys_run(Run *run, Range range) {
    const Head *head = run->head;
    const Scratch *scratch = run->scratch;
    const Attention *spec = head->f->spec;
    HeadShape s = head->f->shape;
    int64_t turn = head->h % s.qkv.group;
    float factor = spec->dropout.p > 0 ? dropout_scale(spec->dropout.p) : 1;
    memset(scratch->dquery, 0, (size_t)(round_up(s.T, SIDE) * s.D) * sizeof(float));
    ahead_keys(run, range.from, range.to);
    ahead_queries(run, spec->causal ? range.from : 0);
    ahead_run(&run->ahead, AHEAD_ROWS);
    for (int64_t k = range.from; k < range.to; k += BLOCK) {
        int64_t keys = min_of(BLOCK, range.to - k), kept = s.qkv.group > 1 ? k * s.D : 0;
        float *dkeys = scratch->dkeys + kept, *dvalues = scratch->dvalues + kept;
        bool last = head->f->plan.whole && k + BLOCK >= head->mask.keys;
        pack_keys(run, k, keys);
        if (turn == 0) memset(dkeys, 0, BLOCK * (size_t)s.D * sizeof(float));
        if (turn == 0) memset(dvalues, 0, BLOCK * (size_t)s.D * sizeof(float));
        for (int64_t q = spec->causal ? k : 0; q < s.T && mask_first(&head->mask, q) < k + keys; q += BLOCK) {
            Block at = block_of(head, q, k, keys);
            if (last) ahead_add(&run->ahead, run->head->dq, q, q + at.queries, true);
            if (q + BLOCK >= s.T || mask_first(&head->mask, q + BLOCK) >= k + keys)
                ahead_rest(run, k, keys, range.to);
            block_run(run, &at, dkeys, dvalues);
        }
        if (turn + 1 < s.qkv.group) continue;
        unpack_rows(rows_from(run->head->dk, k), dkeys, keys, spec->scale);
        unpack_rows(rows_from(run->head->dv, k), dvalues, keys, factor);
    }
}

static void head_run(const Head *head, Bump *bump, Range splits, int thread) {
    const Backward *f = head->f;
    Scratch scratch = scratch_take(bump, f->shape);
    Run run = {.scratch = &scratch, .head = head};
    f->product->begin();
    for (int64_t split = splits.from; split < splits.to; split++) {
        scratch.dquery = partial_of(f, head->at, split, thread);
        keys_run(&run, range_part(head->mask.keys, BLOCK, (int)split, (int)f->plan.splits));
        if (f->plan.whole && split > 0) partial_add(f, partial_of(f, head->at, 0, thread), scratch.dquery);
    }
    f->product->end();
}

/* From panels of SIDE queries. */
static void store_query(const Head *head, Bump *bump, const float *sum) {
    (void)bump;
    VecF scale = vec_set(head->f->spec->scale);
    int64_t T = head->f->shape.T;
    for (int64_t q = 0; q < T; q += SIDE)
        unpack_transposed(rows_from(head->dq, q), sum + q * head->dq.D, min_of(SIDE, T - q),
                          (Lanes){scale, scale}, true);
}

static size_t partial_floats(HeadShape s) {
    return (size_t)(round_up(s.T, SIDE) * s.D);
}

static void reserve(Bump *bump, HeadShape s) {
    scratch_take(bump, s);
}

const BackwardType attention16_backward = {BLOCK, partial_floats, reserve, head_run, store_query};

#endif
