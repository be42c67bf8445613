/* Routing to experts. Threads take rows.
 *
 * Choosing compares integers that are ordered as the keys, a vector at a time. The scores that keys are made
 * of must be those of the reference bit for bit, or other experts would be chosen, so they are computed in
 * double; everything else is in fp32.
 *
 * M rows, E experts, K of them per row */
#include <math.h>
#include <string.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/variant.h"

/* A value for each expert, in full vectors. */
enum { ROW = EXPERTS_MAX };
_Static_assert(ROW % VEC == 0, "full vectors");

/* ---- scores ---- */

typedef double VecD __attribute__((vector_size(4 * VEC)));
typedef int64_t VecL __attribute__((vector_size(4 * VEC)));
typedef float VecHalf __attribute__((vector_size(2 * VEC)));
enum { VECD = VEC / 2 };

static inline VecD vecd_set(double value) {
    return value - (VecD){0};
}
static inline VecD vecd_load(const float *from) {
    VecHalf v;
    memcpy(&v, from, sizeof v);
    return __builtin_convertvector(v, VecD);
}
static inline void vecd_store(float *to, VecD value) {
    VecHalf v = __builtin_convertvector(value, VecHalf);
    memcpy(to, &v, sizeof v);
}
static inline VecD vecd_select(VecL mask, VecD a, VecD b) {
    return (VecD)((mask & (VecL)a) | (~mask & (VecL)b));
}

/* e^x, with x clamped to [-200, 200]; a Taylor series on |r| <= ln2 / 2. */
static inline VecD vecd_exp(VecD x) {
    static const double inverse[] = {1.0 / 6227020800,
                                     1.0 / 479001600,
                                     1.0 / 39916800,
                                     1.0 / 3628800,
                                     1.0 / 362880,
                                     1.0 / 40320,
                                     1.0 / 5040,
                                     1.0 / 720,
                                     1.0 / 120,
                                     1.0 / 24,
                                     1.0 / 6,
                                     0.5,
                                     1,
                                     1};
    const double shift = 0x1.8p52;
    x = vecd_select(x > 200.0, vecd_set(200), vecd_select(x < -200.0, vecd_set(-200), x));
    VecD shifted = x * 0x1.71547652b82fep0 + shift, n = shifted - shift;
    VecD r = x - n * 0x1.62e42fee00000p-1 - n * 0x1.a39ef35793c76p-33, p = vecd_set(inverse[0]);
    for (size_t i = 1; i < sizeof inverse / sizeof *inverse; i++) p = p * r + inverse[i];
    return (VecD)((VecL)p + ((VecL)shifted << 52));
}

/* The scores of a row, as precise as those of the reference. */
static void scores_exact(const float *logits, int64_t E, RouteScore kind, float *score) {
    float padded[ROW];
    VecD max = vecd_set(0), factor = vecd_set(1);
    memcpy(padded, logits, (size_t)E * sizeof *padded);
    for (int64_t e = E; e < round_up(E, VEC); e++) padded[e] = -INFINITY;
    if (kind == ROUTE_SOFTMAX) {
        double largest = -INFINITY, sum = 0;
        for (int64_t e = 0; e < E; e++) largest = fmax(largest, logits[e]);
        max = vecd_set(largest);
        for (int64_t e = 0; e < E; e += VECD) {
            VecD part = vecd_exp(vecd_load(padded + e) - max);
            for (int lane = 0; lane < VECD && e + lane < E; lane++) sum += part[lane];
        }
        factor = vecd_set(1 / sum);
    }
    for (int64_t e = 0; e < E; e += VECD) {
        VecD x = vecd_load(padded + e);
        vecd_store(score + e,
                   kind == ROUTE_SOFTMAX ? vecd_exp(x - max) * factor : 1.0 / (1.0 + vecd_exp(-x)));
    }
}

/* Elements i .. i + VEC - 1 of n; those past the end are -infinity. */
static inline VecF row_get(const float *x, int64_t i, int64_t n) {
    if (i + VEC <= n) return vec_load(x + i);
    return vec_select(vec_count(0) < (int32_t)(n - i), vec_get_some(x, DT_F32, i, n - i), vec_set(-INFINITY));
}

static float row_max(const float *x, int64_t n) {
    VecF max = vec_set(-INFINITY);
    for (int64_t i = 0; i < n; i += VEC) {
        VecF v = row_get(x, i, n);
        max = vec_select(v > max, v, max);
    }
    return vec_max_of(max);
}

/* y (n) = e^(x - max), in full vectors; returns the sum. */
static float row_exp(float *y, const float *x, float max, int64_t n) {
    VecF sum = {0};
    for (int64_t i = 0; i < n; i += VEC) {
        VecF e = vec_exp(row_get(x, i, n) - max);
        vec_store(y + i, e);
        sum += e;
    }
    return vec_sum_of(sum);
}

/* The same for sigmoids. */
static float row_sigmoid(float *y, const float *x, int64_t n) {
    VecF sum = {0};
    for (int64_t i = 0; i < n; i += VEC) {
        VecF s = 1.0f / (1.0f + vec_exp(vec_min(vec_set(88.0f), -row_get(x, i, n))));
        vec_store(y + i, s);
        sum += s;
    }
    return vec_sum_of(sum);
}

/* ---- choosing ---- */

/* Keys as integers of the same order. NaN is the smallest of them, and TAKEN smaller still. */
enum { TAKEN = INT32_MIN };

static inline VecI order_of(VecF key) {
    VecI bits = (VecI)(key + 0.0f); /* -0 becomes 0 */
    VecI order = bits ^ ((bits >> 31) & INT32_MAX), nan = key != key;
    return (nan & (TAKEN + 1)) | (~nan & order);
}

/* order (n) of keys, in full vectors. */
static void order_all(int32_t *order, const float *key, int64_t n) {
    for (int64_t i = 0; i < n; i += VEC) {
        VecI v = order_of(vec_get_some(key, DT_F32, i, min_of(VEC, n - i)));
        memcpy(order + i, &v, sizeof v);
    }
    for (int64_t i = n; i < round_up(n, VEC); i++) order[i] = TAKEN;
}

/* The first of the largest, which is then taken. */
static int32_t take_best(int32_t *order, int64_t n) {
    VecI best = (VecI)vec_set_u32((uint32_t)TAKEN), place = {0}, here = vec_count(0);
    for (int64_t i = 0; i < n; i += VEC, here += VEC) {
        VecI v;
        memcpy(&v, order + i, sizeof v);
        VecI better = v > best;
        best = (better & v) | (~better & best);
        place = (better & here) | (~better & place);
    }
    int32_t at = place[0], largest = best[0];
    for (int lane = 1; lane < VEC; lane++)
        if (best[lane] > largest || (best[lane] == largest && place[lane] < at))
            largest = best[lane], at = place[lane];
    order[at] = TAKEN;
    return at;
}

/* Takes the experts of all groups but the best. */
static void take_groups(int32_t *order, const float *key, int64_t E, const Route *spec) {
    int64_t size = E / spec->groups;
    int32_t best[ROW], kept[ROW];
    float sum[ROW];
    for (int64_t g = 0; g < spec->groups; g++) {
        order_all(best, key + g * size, size);
        sum[g] = key[g * size + take_best(best, size)];
        if (size > 1) sum[g] += key[g * size + take_best(best, size)];
    }
    memcpy(kept, order, (size_t)E * sizeof *kept);
    for (int64_t e = 0; e < E; e++) order[e] = TAKEN;
    order_all(best, sum, spec->groups);
    for (int i = 0; i < spec->top_groups; i++) {
        int64_t first = take_best(best, spec->groups) * size;
        memcpy(order + first, kept + first, (size_t)size * sizeof *order);
    }
}

static void row_choose(const float *logits, int64_t E, int64_t K, const Route *spec, int32_t *experts) {
    float key[ROW];
    int32_t order[ROW];
    if (spec->bias.data || spec->groups) {
        scores_exact(logits, E, spec->score, key);
        for (int64_t e = 0; spec->bias.data && e < E; e++) key[e] += tensor_f32(spec->bias)[e];
        order_all(order, key, E);
        if (spec->groups) take_groups(order, key, E, spec);
    } else {
        order_all(order, logits, E);
    }
    for (int64_t k = 0; k < K; k++) experts[k] = take_best(order, E);
}

/* The weights of the chosen experts before they are scaled, in full vectors. */
static void row_shares(const float *logits, int64_t E, const int32_t *experts, int64_t K, const Route *spec,
                       float *share) {
    float chosen[ROW], all[ROW], sum;
    bool softmax = spec->score == ROUTE_SOFTMAX;
    chosen[0] = logits[experts[0]];
    for (int64_t k = 1; k < K; k++) chosen[k] = logits[experts[k]];
    if (softmax && spec->normalize) {
        sum = row_exp(share, chosen, row_max(chosen, K), K);
    } else if (softmax) {
        float max = row_max(logits, E);
        sum = row_exp(all, logits, max, E);
        row_exp(share, chosen, max, K);
    } else {
        sum = row_sigmoid(share, chosen, K) + 1e-20f;
        if (!spec->normalize) return;
    }
    for (int64_t k = 0; k < K; k++) share[k] /= sum;
}

static float scale_of(const Route *spec) {
    return spec->scale == 0 ? 1 : spec->scale;
}

/* The arguments of the routing kernels. */
typedef struct Routing {
    Tensor weights, experts, logits, lens, dlogits, dweights, place;
    Positions at;
    Route spec;
    RouteLoss loss;
    double (*totals)[3]; /* of each part */
} Routing;

static void forward_rows(const void *context, Range mine) {
    const Routing *f = context;
    int64_t T = f->logits.dim[1], E = tensor_cols(f->logits), K = tensor_cols(f->experts);
    float share[ROW], scale = scale_of(&f->spec);
    for (int64_t m = mine.from; m < mine.to; m++) {
        const float *row = tensor_f32(f->logits) + m * E;
        int32_t *chosen = tensor_i32(f->experts) + m * K;
        float *weight = tensor_f32(f->weights) + m * K;
        bool padding = f->lens.data && position_of(&f->at, m % T) >= tensor_i32(f->lens)[m / T];
        for (int64_t k = 0; padding && k < K; k++) chosen[k] = -1, weight[k] = 0;
        if (padding) continue;
        row_choose(row, E, K, &f->spec, chosen);
        row_shares(row, E, chosen, K, &f->spec, share);
        for (int64_t k = 0; k < K; k++) weight[k] = scale * share[k];
    }
}

static Status route_forward_cpu(Stream *stream, Tensor weights, Tensor experts, Tensor logits, Tensor lens,
                                Positions at, Route spec) {
    Routing f = {
        .weights = weights, .experts = experts, .logits = logits, .lens = lens, .at = at, .spec = spec};
    ranges_run(stream, tensor_rows(logits), 1, 4 * tensor_count(logits), forward_rows, &f);
    return OK;
}

/* ---- gradients and statistics ---- */

/* A row's distributions over experts. */
typedef struct Spread {
    float softmax[ROW], sigmoid[ROW];
    float log_sum;  /* log of the sum of e^logit */
    float sigmoids; /* their sum, plus 1e-20 */
    const float *p; /* that of the balancing loss, divided by `factor` */
    float factor;
} Spread;

static void spread_of(Spread *s, const float *logits, int64_t E, RouteScore kind) {
    float max = row_max(logits, E), sum = row_exp(s->softmax, logits, max, E);
    for (int64_t e = 0; e < E; e++) s->softmax[e] /= sum;
    s->log_sum = max + logf(sum);
    s->p = s->softmax;
    s->factor = 1;
    if (kind == ROUTE_SOFTMAX) return;
    s->sigmoids = row_sigmoid(s->sigmoid, logits, E) + 1e-20f;
    s->p = s->sigmoid;
    s->factor = 1 / s->sigmoids;
}

/* The sum of load_e p_e. */
static float spread_load(const Spread *s, Tensor load, int64_t E) {
    VecF sum = {0};
    for (int64_t e = 0; load.data && e < E; e += VEC)
        sum += vec_get_some(load.data, DT_F32, e, min_of(VEC, E - e)) * vec_load(s->p + e);
    return vec_sum_of(sum) * s->factor;
}

static bool is_padding(const int32_t *experts, int64_t K) {
    for (int64_t k = 0; k < K; k++)
        if (experts[k] < 0) return true;
    return false;
}

/* grad (E) = the gradient of both losses and of `common` times the sum of scores. */
static void row_losses(const Spread *s, int64_t E, const RouteLoss *loss, bool softmax, float common,
                       float *grad) {
    float mean = spread_load(s, loss->load, E), z = loss->z * 2 * s->log_sum;
    for (int64_t e = 0; e < E; e++) {
        float slope = softmax ? 1 : 1 - s->p[e];
        float balance = loss->load.data ? loss->balance * (tensor_f32(loss->load)[e] - mean) : 0;
        grad[e] = s->p[e] * s->factor * slope * balance;
        if (loss->z != 0) grad[e] += z * s->softmax[e];
        if (softmax) grad[e] += common * s->softmax[e];
    }
}

static void backward_rows(const void *context, Range mine) {
    const Routing *f = context;
    int64_t E = tensor_cols(f->logits), K = tensor_cols(f->experts);
    bool softmax = f->spec.score == ROUTE_SOFTMAX, normalize = f->spec.normalize;
    float share[ROW], grad[ROW], gradient[ROW], scale = scale_of(&f->spec);
    for (int64_t m = mine.from; m < mine.to; m++) {
        const float *row = tensor_f32(f->logits) + m * E;
        const int32_t *chosen = tensor_i32(f->experts) + m * K, *places = tensor_i32(f->place) + m * K;
        float *out = tensor_f32(f->dlogits) + m * E, mean = 0;
        if (is_padding(chosen, K)) {
            memset(out, 0, (size_t)E * sizeof *out);
            continue;
        }
        Spread s;
        spread_of(&s, row, E, f->spec.score);
        row_shares(row, E, chosen, K, &f->spec, share);
        for (int64_t k = 0; k < K; k++) {
            gradient[k] = places[k] < 0 ? 0 : tensor_f32(f->dweights)[places[k]];
            mean += share[k] * gradient[k];
        }
        row_losses(&s, E, &f->loss, softmax, normalize ? 0 : -scale * mean, grad);
        for (int64_t k = 0; k < K; k++) {
            float slope = softmax ? 1 : 1 - s.sigmoid[chosen[k]];
            grad[chosen[k]] += scale * share[k] * slope * (gradient[k] - (normalize ? mean : 0));
        }
        memcpy(out, grad, (size_t)E * sizeof *out);
    }
}

static Status route_backward_cpu(Stream *stream, Tensor dlogits, Tensor dweights, Tensor place, Tensor logits,
                                 Tensor experts, RouteLoss loss, Route spec) {
    TRY(kernels_check_places("route_backward", "expert", experts, tensor_cols(logits)));
    TRY(kernels_check_places("route_backward", "place", place, tensor_count(dweights)));
    Routing f = {.experts = experts,
                 .logits = logits,
                 .dlogits = dlogits,
                 .dweights = dweights,
                 .place = place,
                 .spec = spec,
                 .loss = loss};
    ranges_run(stream, tensor_rows(logits), 1, 4 * tensor_count(logits), backward_rows, &f);
    return OK;
}

/* log(1 + t) for t in [0, 1], as 2 atanh(t / (2 + t)). */
static inline VecF vec_log1p(VecF t) {
    VecF z = t / (2.0f + t), z2 = z * z;
    VecF p = z2 * (1.0f / 11) + 1.0f / 9;
    p = p * z2 + 1.0f / 7;
    p = p * z2 + 1.0f / 5;
    p = p * z2 + 1.0f / 3;
    return 2.0f * z * (p * z2 + 1.0f);
}

/* -sum_e p_e log p_e. */
static float row_entropy(const Spread *s, const float *logits, int64_t E, RouteScore kind) {
    VecF sum = {0};
    for (int64_t e = 0; e < E; e += VEC) {
        VecF x = row_get(logits, e, E), log_p;
        if (kind == ROUTE_SOFTMAX) {
            log_p = x - s->log_sum;
        } else {
            VecF size = vec_max(x, -x);
            log_p = vec_min(vec_set(0), x) - vec_log1p(vec_exp(-size)) - logf(s->sigmoids);
        }
        sum += vec_load(s->p + e) * vec_max(vec_set(-200.0f), log_p); /* where p is 0 */
    }
    return -vec_sum_of(sum) * s->factor;
}

/* Parts of the rows, whose totals are added in order. */
enum { PARTS = 64 };

static void count_task(const void *context, int64_t part, int thread) {
    (void)thread;
    const Routing *f = context;
    int64_t E = tensor_cols(f->logits), K = tensor_cols(f->experts);
    Range mine = range_part(tensor_rows(f->logits), 1, (int)part, PARTS);
    double *total = f->totals[part];
    for (int64_t m = mine.from; m < mine.to; m++) {
        const float *row = tensor_f32(f->logits) + m * E;
        if (is_padding(tensor_i32(f->experts) + m * K, K)) continue;
        Spread s;
        spread_of(&s, row, E, f->spec.score);
        total[0] += (double)spread_load(&s, f->loss.load, E);
        total[1] += (double)s.log_sum * (double)s.log_sum;
        total[2] += (double)row_entropy(&s, row, E, f->spec.score);
    }
}

static Status route_count_cpu(Stream *stream, Tensor counts, Tensor totals, Tensor logits, Tensor experts,
                              Tensor load, Route spec) {
    int64_t E = tensor_cols(logits), K = tensor_cols(experts);
    double parts[PARTS][3] = {{0}};
    TRY(kernels_check_places("route_count", "expert", experts, E));
    Routing f = {.experts = experts, .logits = logits, .spec = spec, .loss = {.load = load}, .totals = parts};
    pool_run(pool_for(stream, 4 * tensor_count(logits)), PARTS, count_task, &f);
    for (int part = 0; part < PARTS; part++)
        for (int i = 0; i < 3; i++) ((double *)totals.data)[i] += parts[part][i];
    for (int64_t m = 0; m < tensor_rows(logits); m++) {
        const int32_t *chosen = tensor_i32(experts) + m * K;
        for (int64_t k = 0; k < K && !is_padding(chosen, K); k++) ((int64_t *)counts.data)[chosen[k]]++;
    }
    return OK;
}

void VARIANT(route_override)(KernelTable *table) {
    table->route_forward = route_forward_cpu;
    table->route_backward = route_backward_cpu;
    table->route_count = route_count_cpu;
}
