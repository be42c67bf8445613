/* Mixtures of experts: routing, the rows of experts, and their linear layers.
 *
 * M rows, E experts, K of them per row, R slots, C and F widths */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

/* ---- routing ---- */

/* The softmax of a row, which may be absent; returns the log of the sum of e^logit. */
static double row_softmax(const float *logits, int64_t E, double *softmax) {
    double max = -INFINITY, sum = 0;
    for (int64_t e = 0; e < E; e++) max = fmax(max, logits[e]);
    for (int64_t e = 0; e < E; e++) sum += exp(logits[e] - max);
    for (int64_t e = 0; softmax && e < E; e++) softmax[e] = exp(logits[e] - max) / sum;
    return max + log(sum);
}

/* The scores of a row. */
static void row_scores(const float *logits, int64_t E, RouteScore kind, double *score) {
    if (kind == ROUTE_SOFTMAX) row_softmax(logits, E, score);
    for (int64_t e = 0; kind == ROUTE_SIGMOID && e < E; e++) score[e] = 1 / (1 + exp(-logits[e]));
}

/* Whether a is better than b. */
static bool precedes(float a, float b) {
    return a > b || (isnan(b) && !isnan(a));
}

/* Takes the first of the best from [from, to) that are not taken; -1 if all are. */
static int64_t take_best(const float *key, bool *taken, int64_t from, int64_t to) {
    int64_t best = -1;
    for (int64_t e = from; e < to; e++)
        if (!taken[e] && (best < 0 || precedes(key[e], key[best]))) best = e;
    if (best >= 0) taken[best] = true;
    return best;
}

/* Marks the experts that are not eligible. */
static void take_groups(const float *key, bool *taken, int64_t E, const Route *spec) {
    float sum[EXPERTS_MAX];
    bool chosen[EXPERTS_MAX] = {false};
    int64_t size = E / spec->groups;
    for (int64_t g = 0; g < spec->groups; g++) {
        int64_t best = take_best(key, taken, g * size, (g + 1) * size);
        int64_t second = take_best(key, taken, g * size, (g + 1) * size);
        sum[g] = second < 0 ? key[best] : key[best] + key[second];
    }
    for (int i = 0; i < spec->top_groups; i++) take_best(sum, chosen, 0, spec->groups);
    for (int64_t e = 0; e < E; e++) taken[e] = !chosen[e / size];
}

static void row_choose(const float *logits, const double *score, int64_t E, int64_t K, const Route *spec,
                       int32_t *experts) {
    float key[EXPERTS_MAX];
    bool taken[EXPERTS_MAX] = {false}, scored = spec->bias.data || spec->groups;
    for (int64_t e = 0; e < E; e++) {
        key[e] = scored ? (float)score[e] : logits[e];
        if (spec->bias.data) key[e] += tensor_f32(spec->bias)[e];
    }
    if (spec->groups) take_groups(key, taken, E, spec);
    for (int64_t k = 0; k < K; k++) experts[k] = (int32_t)take_best(key, taken, 0, E);
}

/* The weights of the chosen experts before they are scaled. */
static void row_shares(const float *logits, const double *score, const int32_t *experts, int64_t K,
                       const Route *spec, double *share) {
    bool softmax = spec->score == ROUTE_SOFTMAX;
    double max = -INFINITY, sum = softmax ? 0 : 1e-20;
    for (int64_t k = 0; k < K; k++) share[k] = score[experts[k]], max = fmax(max, logits[experts[k]]);
    if (!spec->normalize) return;
    for (int64_t k = 0; k < K; k++) {
        if (softmax) share[k] = exp(logits[experts[k]] - max);
        sum += share[k];
    }
    for (int64_t k = 0; k < K; k++) share[k] /= sum;
}

static double scale_of(const Route *spec) {
    return spec->scale == 0 ? 1 : spec->scale;
}

Status route_forward_ref(Stream *stream, Tensor weights, Tensor experts, Tensor logits, Tensor lens,
                         Positions at, Route spec) {
    (void)stream;
    int64_t T = logits.dim[1], E = tensor_cols(logits), K = tensor_cols(experts);
    double score[EXPERTS_MAX], share[EXPERTS_MAX];
    for (int64_t m = 0; m < tensor_rows(logits); m++) {
        const float *row = tensor_f32(logits) + m * E;
        int32_t *chosen = tensor_i32(experts) + m * K;
        float *weight = tensor_f32(weights) + m * K;
        bool padding = lens.data && position_of(&at, m % T) >= tensor_i32(lens)[m / T];
        for (int64_t k = 0; padding && k < K; k++) chosen[k] = -1, weight[k] = 0;
        if (padding) continue;
        row_scores(row, E, spec.score, score);
        row_choose(row, score, E, K, &spec, chosen);
        row_shares(row, score, chosen, K, &spec, share);
        for (int64_t k = 0; k < K; k++) weight[k] = (float)(scale_of(&spec) * share[k]);
    }
    return OK;
}

/* Whether a row has no experts. */
static bool is_padding(const int32_t *experts, int64_t K) {
    for (int64_t k = 0; k < K; k++)
        if (experts[k] < 0) return true;
    return false;
}

/* p, a row's distribution over experts in the balancing loss. */
static void row_distribution(const double *score, int64_t E, RouteScore kind, double *p) {
    double sum = kind == ROUTE_SOFTMAX ? 0 : 1e-20;
    for (int64_t e = 0; e < E; e++) sum += score[e];
    for (int64_t e = 0; e < E; e++) p[e] = kind == ROUTE_SOFTMAX ? score[e] : score[e] / sum;
}

/* sum_e load_e p_e. */
static double row_load(const double *p, Tensor load, int64_t E) {
    double total = 0;
    for (int64_t e = 0; load.data && e < E; e++) total += tensor_get(load, e) * p[e];
    return total;
}

/* grad = the gradient of both losses. */
static void row_losses(const float *logits, const double *score, int64_t E, const RouteLoss *loss,
                       RouteScore kind, double *grad) {
    double p[EXPERTS_MAX], softmax[EXPERTS_MAX], total = row_softmax(logits, E, softmax);
    row_distribution(score, E, kind, p);
    double mean = row_load(p, loss->load, E);
    for (int64_t e = 0; e < E; e++) {
        double slope = kind == ROUTE_SOFTMAX ? p[e] : p[e] * (1 - score[e]);
        grad[e] = loss->load.data ? loss->balance * slope * (tensor_get(loss->load, e) - mean) : 0;
        if (loss->z != 0) grad[e] += loss->z * 2 * total * softmax[e];
    }
}

static double place_gradient(Tensor dweights, int32_t place) {
    return place < 0 ? 0 : tensor_get(dweights, place);
}

Status route_backward_ref(Stream *stream, Tensor dlogits, Tensor dweights, Tensor place, Tensor logits,
                          Tensor experts, RouteLoss loss, Route spec) {
    (void)stream;
    int64_t E = tensor_cols(logits), K = tensor_cols(experts);
    double score[EXPERTS_MAX], share[EXPERTS_MAX], grad[EXPERTS_MAX];
    TRY(kernels_check_places("route_backward", "expert", experts, E));
    TRY(kernels_check_places("route_backward", "place", place, tensor_count(dweights)));
    for (int64_t m = 0; m < tensor_rows(logits); m++) {
        const float *row = tensor_f32(logits) + m * E;
        const int32_t *chosen = tensor_i32(experts) + m * K, *places = tensor_i32(place) + m * K;
        float *out = tensor_f32(dlogits) + m * E;
        if (is_padding(chosen, K)) {
            memset(out, 0, (size_t)E * sizeof *out);
            continue;
        }
        row_scores(row, E, spec.score, score);
        row_shares(row, score, chosen, K, &spec, share);
        row_losses(row, score, E, &loss, spec.score, grad);
        double mean = 0, scale = scale_of(&spec), slope = 1;
        for (int64_t k = 0; k < K; k++) mean += share[k] * place_gradient(dweights, places[k]);
        for (int64_t k = 0; k < K; k++) {
            if (spec.score == ROUTE_SIGMOID) slope = 1 - score[chosen[k]];
            double gradient = place_gradient(dweights, places[k]) - (spec.normalize ? mean : 0);
            grad[chosen[k]] += scale * share[k] * slope * gradient;
        }
        for (int64_t e = 0; e < E; e++) {
            if (spec.score == ROUTE_SOFTMAX && !spec.normalize) grad[e] -= scale * mean * score[e];
            out[e] = (float)grad[e];
        }
    }
    return OK;
}

Status route_count_ref(Stream *stream, Tensor counts, Tensor totals, Tensor logits, Tensor experts,
                       Tensor load, Route spec) {
    (void)stream;
    int64_t E = tensor_cols(logits), K = tensor_cols(experts);
    double score[EXPERTS_MAX], p[EXPERTS_MAX], *total = totals.data;
    TRY(kernels_check_places("route_count", "expert", experts, E));
    for (int64_t m = 0; m < tensor_rows(logits); m++) {
        const float *row = tensor_f32(logits) + m * E;
        const int32_t *chosen = tensor_i32(experts) + m * K;
        if (is_padding(chosen, K)) continue;
        for (int64_t k = 0; k < K; k++) ((int64_t *)counts.data)[chosen[k]]++;
        row_scores(row, E, spec.score, score);
        row_distribution(score, E, spec.score, p);
        total[0] += row_load(p, load, E);
        total[1] += pow(row_softmax(row, E, NULL), 2);
        for (int64_t e = 0; e < E; e++) total[2] -= p[e] == 0 ? 0 : p[e] * log(p[e]);
    }
    return OK;
}

/* ---- rows of experts ---- */

Status expert_sort_ref(Stream *stream, Tensor place, Tensor slots, Tensor offsets, Tensor experts) {
    (void)stream;
    int64_t R = tensor_count(experts), E = tensor_count(offsets) - 1;
    int32_t *start = tensor_i32(offsets), next[EXPERTS_MAX];
    TRY(kernels_check_places("expert_sort", "expert", experts, E));
    memset(start, 0, tensor_bytes(offsets));
    for (int64_t i = 0; i < R; i++)
        if (tensor_i32(experts)[i] >= 0) start[tensor_i32(experts)[i] + 1]++;
    for (int64_t e = 0; e < E; e++) start[e + 1] += next[e] = start[e];
    for (int64_t i = 0; i < R; i++) {
        int32_t e = tensor_i32(experts)[i], at = e < 0 ? -1 : next[e]++;
        tensor_i32(place)[i] = at;
        if (at >= 0) tensor_i32(slots)[at] = (int32_t)i;
    }
    for (int64_t j = start[E]; j < R; j++) tensor_i32(slots)[j] = -1;
    return OK;
}

Status expert_gather_ref(Stream *stream, Tensor out, Tensor out_weights, Tensor x, Tensor weights,
                         Tensor slots, int64_t K) {
    (void)stream;
    TRY(kernels_check_places("expert_gather", "slot", slots, tensor_rows(x) * K));
    int64_t C = tensor_cols(x);
    for (int64_t j = 0; j < tensor_count(slots); j++) {
        int32_t slot = tensor_i32(slots)[j];
        for (int64_t c = 0; c < C; c++)
            tensor_put(out, j * C + c, slot < 0 ? 0 : tensor_get(x, slot / K * C + c));
        if (weights.data) tensor_put(out_weights, j, slot < 0 ? 0 : tensor_get(weights, slot));
    }
    return OK;
}

Status expert_combine_ref(Stream *stream, Tensor y, Tensor xs, Tensor place, bool accumulate) {
    (void)stream;
    TRY(kernels_check_places("expert_combine", "place", place, tensor_rows(xs)));
    int64_t C = tensor_cols(y), K = tensor_cols(place);
    for (int64_t i = 0; i < tensor_count(y); i++) {
        const int32_t *places = tensor_i32(place) + i / C * K;
        double total = accumulate ? tensor_get(y, i) : 0;
        for (int64_t k = 0; k < K; k++)
            if (places[k] >= 0) total += tensor_get(xs, places[k] * C + i % C);
        tensor_put(y, i, total);
    }
    return OK;
}

/* The first row that belongs to an expert, or the first that no longer does. */
static int64_t first_row(Tensor offsets) {
    return tensor_i32(offsets)[0];
}
static int64_t end_row(Tensor offsets) {
    return tensor_i32(offsets)[tensor_count(offsets) - 1];
}

Status expert_act_forward_ref(Stream *stream, Tensor y, Tensor x, Tensor weights, Tensor offsets, Act act) {
    (void)stream;
    TRY(kernels_check_offsets("expert_act_forward", offsets, tensor_rows(y)));
    int64_t F = tensor_cols(y), each = tensor_count(x) / tensor_count(y);
    for (int64_t i = first_row(offsets) * F; i < end_row(offsets) * F; i++) {
        int64_t gate = i / F * each * F + i % F;
        double up = each == 2 ? tensor_get(x, gate + F) : 1;
        double weight = weights.data ? tensor_get(weights, i / F) : 1;
        tensor_put(y, i, weight * act_value(act, tensor_get(x, gate)) * up);
    }
    return OK;
}

Status expert_act_backward_ref(Stream *stream, Tensor dx, Tensor y, Tensor dweights, Tensor dy, Tensor x,
                               Tensor weights, Tensor offsets, Act act) {
    (void)stream;
    TRY(kernels_check_offsets("expert_act_backward", offsets, tensor_rows(dy)));
    int64_t F = tensor_cols(dy), each = tensor_count(x) / tensor_count(dy);
    for (int64_t r = first_row(offsets); r < end_row(offsets); r++) {
        double weight = weights.data ? tensor_get(weights, r) : 1, dweight = 0;
        for (int64_t i = r * F; i < (r + 1) * F; i++) {
            int64_t at = r * each * F + i % F;
            double gate = tensor_get(x, at), up = each == 2 ? tensor_get(x, at + F) : 1;
            double value = act_value(act, gate), grad = tensor_get(dy, i);
            dweight += grad * value * up;
            tensor_put(dx, at, weight * grad * up * act_derivative(act, gate));
            if (each == 2) tensor_put(dx, at + F, weight * grad * value);
            if (y.data) tensor_put(y, i, weight * value * up);
        }
        if (dweights.data) tensor_put(dweights, r, dweight);
    }
    return OK;
}

/* ---- linear layers ---- */

/* The rows of expert e. */
static Tensor rows_of(Tensor x, Tensor offsets, int64_t e) {
    const int32_t *start = tensor_i32(offsets) + e;
    return tensor_slice(tensor_matrix(x), start[0], start[1] - start[0]);
}

static Tensor matrix_of(Tensor w, int64_t e) {
    return tensor_matrix(tensor_slice(w, e, 1));
}

Status grouped_forward_ref(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor offsets) {
    TRY(kernels_check_offsets("grouped_forward", offsets, tensor_rows(x)));
    for (int64_t e = 0; e < w.dim[0]; e++)
        TRY(linear_forward_ref(stream, rows_of(y, offsets, e), TENSOR_NONE, rows_of(x, offsets, e),
                               matrix_of(w, e), TENSOR_NONE, ACT_NONE));
    return OK;
}

Status grouped_backward_input_ref(Stream *stream, Tensor dx, Tensor dy, Tensor w, Tensor offsets) {
    TRY(kernels_check_offsets("grouped_backward_input", offsets, tensor_rows(dy)));
    for (int64_t e = 0; e < w.dim[0]; e++)
        TRY(linear_backward_input_ref(stream, rows_of(dx, offsets, e), TENSOR_NONE, rows_of(dy, offsets, e),
                                      matrix_of(w, e), ACT_NONE, TENSOR_NONE, false));
    return OK;
}

Status grouped_backward_weight_ref(Stream *stream, Tensor dw, Tensor dy, Tensor x, Tensor offsets,
                                   bool accumulate) {
    TRY(kernels_check_offsets("grouped_backward_weight", offsets, tensor_rows(dy)));
    for (int64_t e = 0; e < dw.dim[0]; e++)
        TRY(linear_backward_weight_ref(stream, matrix_of(dw, e), TENSOR_NONE, rows_of(dy, offsets, e),
                                       rows_of(x, offsets, e), accumulate));
    return OK;
}
