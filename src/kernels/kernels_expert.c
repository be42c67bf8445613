/* The functions of kernels.h, continued: mixtures of experts. */
#include "base/memory.h"
#include "kernels/backend.h"
#include "kernels/dispatch.h"

/* FLOPs per logit of a softmax or sigmoid and of the choice, and of their gradient. */
enum { ROUTE_FLOPS = 6, ROUTE_BACKWARD_FLOPS = 12 };

/* Checks the experts (M,K) of logits (M,E). */
static Status check_experts(const char *kernel, Tensor logits, Tensor experts) {
    int64_t M = tensor_rows(logits), E = tensor_cols(logits), K = tensor_cols(experts);
    TRY(check_matrix(kernel, "logits", logits, DT_F32, M, E));
    TRY(check_matrix(kernel, "experts", experts, DT_I32, M, K));
    if (K >= 1 && K <= E && E <= EXPERTS_MAX && M <= INT32_MAX / K) return OK;
    return FAILED("internal: %s: %lld of %lld experts for %lld rows; expected at most %d experts", kernel,
                  (long long)K, (long long)E, (long long)M, EXPERTS_MAX);
}

static Status check_route(const char *kernel, Tensor logits, Tensor experts, const Route *spec) {
    int64_t E = tensor_cols(logits), K = tensor_cols(experts);
    TRY(check_experts(kernel, logits, experts));
    if (spec->bias.data) TRY(check_count(kernel, "bias", spec->bias, DT_F32, E));
    if (spec->score != ROUTE_SOFTMAX && spec->score != ROUTE_SIGMOID)
        return FAILED("internal: %s: unknown score %d", kernel, (int)spec->score);
    if (spec->groups == 0) return OK;
    if (spec->groups > 0 && E % spec->groups == 0 && spec->top_groups > 0 &&
        spec->top_groups <= spec->groups && K <= E / spec->groups * spec->top_groups)
        return OK;
    return FAILED("internal: %s: %lld of %lld experts cannot be chosen from %d of %d groups", kernel,
                  (long long)K, (long long)E, spec->top_groups, spec->groups);
}

Status route_forward(Exec *exec, Tensor weights, Tensor experts, Tensor logits, Tensor lens, Positions at,
                     Route spec) {
    if (logits.ndim != 3 || experts.ndim != 3)
        return FAILED("internal: %s: logits and experts must be (B, T, E) and (B, T, K)", __func__);
    TRY(check_route(__func__, logits, experts, &spec));
    CHECK_LIKE(experts, tensor_3d(NULL, DT_I32, logits.dim[0], logits.dim[1], experts.dim[2]));
    CHECK_COUNT(weights, DT_F32, tensor_count(experts));
    if (lens.data) CHECK_INDEX(lens, logits.dim[0]);
    if (tensor_count(experts) == 0) return OK;
    RUN(KERNEL_ROUTE_FORWARD, ROUTE_FLOPS * (double)tensor_count(logits), BYTES(weights, experts, logits),
        route_forward, weights, experts, logits, lens, at, spec);
}

Status route_backward(Exec *exec, Tensor dlogits, Tensor dweights, Tensor place, Tensor logits,
                      Tensor experts, RouteLoss loss, Route spec) {
    TRY(check_route(__func__, logits, experts, &spec));
    int64_t E = tensor_cols(logits), slots = tensor_count(experts);
    CHECK_COUNT(dlogits, DT_F32, tensor_count(logits));
    CHECK_COUNT(dweights, DT_F32, slots);
    CHECK_INDEX(place, slots);
    if (loss.load.data) CHECK_COUNT(loss.load, DT_F32, E);
    if (slots == 0) return OK;
    RUN(KERNEL_ROUTE_BACKWARD, ROUTE_BACKWARD_FLOPS * (double)tensor_count(logits),
        BYTES(dlogits, dweights, place, logits, experts), route_backward, dlogits, dweights, place, logits,
        experts, loss, spec);
}

Status route_count(Exec *exec, Tensor counts, Tensor totals, Tensor logits, Tensor experts, Tensor load,
                   Route spec) {
    TRY(check_route(__func__, logits, experts, &spec));
    int64_t E = tensor_cols(logits);
    CHECK_COUNT(counts, DT_I64, E);
    CHECK_COUNT(totals, DT_F64, 3);
    if (load.data) CHECK_COUNT(load, DT_F32, E);
    if (tensor_count(experts) == 0) return OK;
    RUN(KERNEL_ROUTE_COUNT, ROUTE_FLOPS * (double)tensor_count(logits), BYTES(logits, experts), route_count,
        counts, totals, logits, experts, load, spec);
}

Status expert_sort(Exec *exec, Tensor place, Tensor slots, Tensor offsets, Tensor experts) {
    int64_t R = tensor_count(experts), E = tensor_count(offsets) - 1;
    CHECK_INDEX(experts, R);
    CHECK_INDEX(place, R);
    CHECK_INDEX(slots, R);
    CHECK_INDEX(offsets, E + 1);
    if (E < 1 || E > EXPERTS_MAX || R > INT32_MAX)
        return FAILED("internal: %s: %lld slots of %lld experts; expected 1 to %d experts", __func__,
                      (long long)R, (long long)E, EXPERTS_MAX);
    if (R == 0) return stream_zero(exec->stream, offsets.data, tensor_bytes(offsets));
    RUN(KERNEL_EXPERT_SORT, (double)R, 2 * BYTES(experts) + BYTES(place, slots, offsets), expert_sort, place,
        slots, offsets, experts);
}

Status expert_gather(Exec *exec, Tensor out, Tensor out_weights, Tensor x, Tensor weights, Tensor slots,
                     int64_t K) {
    CHECK_FLOAT(out);
    int64_t R = tensor_rows(out), C = tensor_cols(out), M = tensor_rows(x);
    CHECK_MATRIX(out, out.dtype, R, C);
    CHECK_MATRIX(x, out.dtype, M, C);
    CHECK_INDEX(slots, R);
    if (K < 1) return FAILED("internal: %s: %lld experts per row", __func__, (long long)K);
    if (!out_weights.data != !weights.data)
        return FAILED("internal: %s: weights and out_weights require each other", __func__);
    if (weights.data) CHECK_COUNT(weights, DT_F32, M * K);
    if (weights.data) CHECK_COUNT(out_weights, DT_F32, R);
    if (R == 0) return OK;
    RUN(KERNEL_EXPERT_GATHER, 0, 2 * BYTES(out, out_weights) + BYTES(slots), expert_gather, out, out_weights,
        x, weights, slots, K);
}

Status expert_combine(Exec *exec, Tensor y, Tensor xs, Tensor place, bool accumulate) {
    CHECK_FLOAT(y);
    int64_t M = tensor_rows(y), C = tensor_cols(y), K = tensor_cols(place);
    CHECK_MATRIX(y, y.dtype, M, C);
    CHECK_MATRIX(xs, y.dtype, tensor_rows(xs), C);
    CHECK_MATRIX(place, DT_I32, M, K);
    if (K > EXPERTS_MAX) return FAILED("internal: %s: %lld experts per row", __func__, (long long)K);
    if (M == 0) return OK;
    RUN(KERNEL_EXPERT_COMBINE, (double)K * (double)tensor_count(y), BYTES(y, xs, place), expert_combine, y,
        xs, place, accumulate);
}

/* Checks x of y (R,F), or their gradients, and weights and offsets. */
static Status check_expert_act(const char *kernel, Tensor y, Tensor x, Tensor weights, Tensor offsets,
                               Act act) {
    TRY(check_float(kernel, "y", y));
    int64_t R = tensor_rows(y), F = tensor_cols(y);
    bool gated = tensor_count(x) != tensor_count(y);
    TRY(check_act(kernel, act));
    TRY(check_matrix(kernel, "y", y, y.dtype, R, F));
    TRY(check_count(kernel, "x", x, y.dtype, (gated ? 2 : 1) * R * F));
    if (weights.data) TRY(check_count(kernel, "weights", weights, DT_F32, R));
    return check_index(kernel, "offsets", offsets, tensor_count(offsets));
}

Status expert_act_forward(Exec *exec, Tensor y, Tensor x, Tensor weights, Tensor offsets, Act act) {
    TRY(check_expert_act(__func__, y, x, weights, offsets, act));
    double count = (double)tensor_count(y);
    if (count == 0) return OK;
    RUN(KERNEL_EXPERT_ACT_FORWARD, (2 + act_forward_flops[act]) * count, BYTES(y, x, weights),
        expert_act_forward, y, x, weights, offsets, act);
}

Status expert_act_backward(Exec *exec, Tensor dx, Tensor y, Tensor dweights, Tensor dy, Tensor x,
                           Tensor weights, Tensor offsets, Act act) {
    TRY(check_expert_act(__func__, dy, x, weights, offsets, act));
    CHECK_COUNT(dx, dy.dtype, tensor_count(x));
    if (y.data) CHECK_LIKE(y, dy);
    if (dweights.data) CHECK_COUNT(dweights, DT_F32, tensor_rows(dy));
    double count = (double)tensor_count(dy);
    if (count == 0) return OK;
    RUN(KERNEL_EXPERT_ACT_BACKWARD, (6 + act_forward_flops[act] + act_backward_flops[act]) * count,
        BYTES(dx, y, dweights, dy, x, weights), expert_act_backward, dx, y, dweights, dy, x, weights, offsets,
        act);
}

/* The sizes of grouped linear layers: rows (R,N) and (R,K), and a matrix (E,N,K). */
typedef struct Grouped {
    int64_t R, N, K, E;
    double flops;
    double used; /* the least part of the matrices that is read: each expert used has a row */
} Grouped;

static Status check_grouped(const char *kernel, Tensor outer, Tensor inner, Tensor w, Tensor offsets,
                            Grouped *ret_sizes) {
    TRY(check_float(kernel, "w", w));
    if (w.ndim != 3 || w.dim[0] > EXPERTS_MAX)
        return FAILED("internal: %s: the matrices must be (E, N, K), E at most %d", kernel, EXPERTS_MAX);
    int64_t R = tensor_rows(outer), E = w.dim[0], N = w.dim[1], K = w.dim[2];
    TRY(check_float(kernel, "rows", outer));
    TRY(check_matrix(kernel, "rows", outer, outer.dtype, R, N));
    TRY(check_matrix(kernel, "rows", inner, outer.dtype, R, K));
    TRY(check_index(kernel, "offsets", offsets, E + 1));
    double flops = 2.0 * (double)R * (double)N * (double)K;
    *ret_sizes = (Grouped){R, N, K, E, flops, E > R ? (double)R / (double)E : 1};
    return OK;
}

/* The weights of expert e. */
static Status expert_matrix(const Exec *exec, Tensor w, int64_t e, Tensor *ret_matrix) {
    if (w.dtype == DT_Q8 || w.dtype == DT_Q4) return packed_matrix(exec, w, e, ret_matrix);
    Tensor one = tensor_slice(w, e, 1);
    *ret_matrix = tensor_matrix(one);
    return OK;
}

/* Shows the rows of an expert to the observer or, with packed weights, computes them. */
static Status one_expert(Exec *exec, Tensor y, Tensor x, Tensor w, int64_t e) {
    Tensor one;
    TRY(expert_matrix(exec, w, e, &one));
    if (w.dtype == DT_Q8 || w.dtype == DT_Q4)
        return linear_forward(exec, y, TENSOR_NONE, x, one, TENSOR_NONE, ACT_NONE);
    return exec->observer->observe(exec->observer, exec->stream, x, one);
}

/* The same for all experts, one after the other: the host waits for the offsets. */
static Status each_expert(Exec *exec, Tensor y, Tensor x, Tensor w, Tensor offsets) {
    CLEANUP(mem_freep) int32_t *start = NULL;
    if (w.ndim != 3) return FAILED("internal: %s: needs matrices (E, N, K)", __func__);
    CHECK_INDEX(offsets, w.dim[0] + 1);
    Tensor read = offsets;
    TRY(mem_new((size_t)tensor_count(offsets), sizeof *start, &start));
    read.data = start;
    TRY(stream_copy(exec->stream, start, offsets.data, tensor_bytes(offsets), COPY_TO_HOST));
    TRY(stream_sync(exec->stream));
    TRY(kernels_check_offsets(__func__, read, tensor_rows(x)));
    for (int64_t e = 0; e < w.dim[0]; e++) {
        int64_t first = start[e], rows = start[e + 1] - first;
        if (rows)
            TRY(one_expert(exec, tensor_slice(tensor_matrix(y), first, rows),
                           tensor_slice(tensor_matrix(x), first, rows), w, e));
    }
    return OK;
}

/* Packed weights of a few rows, if the backend takes them. */
static Status few_packed(Exec *exec, Tensor y, Tensor x, Tensor w, Tensor offsets) {
    int64_t R = tensor_rows(x), E = w.dim[0], N = w.dim[1], K = w.dim[2];
    double read = (double)(E < R ? E : R) * (double)N * (double)K * (w.dtype == DT_Q4 ? 17.0 / 32 : 1);
    CHECK_FLOAT(x);
    CHECK_MATRIX(x, x.dtype, R, K);
    CHECK_MATRIX(y, x.dtype, R, N);
    CHECK_INDEX(offsets, E + 1);
    if (R == 0 || N == 0) return OK;
    SIZES(R, N, K, 0);
    RUN(KERNEL_GROUPED_FORWARD, 2.0 * (double)R * (double)N * (double)K, BYTES(y, x) + read, grouped_forward,
        y, x, w, offsets);
}

Status grouped_forward(Exec *exec, Tensor y, Tensor x, Tensor w, Tensor offsets) {
    Grouped g = {0};
    bool packed = w.dtype == DT_Q8 || w.dtype == DT_Q4;
    bool (*groups)(Tensor y, Tensor x, Tensor w) = exec->table->groups_packed;
    if (packed && w.ndim == 3 && !exec->observer && groups && groups(y, x, w))
        return few_packed(exec, y, x, w, offsets);
    if (packed || exec->observer) TRY(each_expert(exec, y, x, w, offsets));
    if (packed) return OK;
    TRY(check_grouped(__func__, y, x, w, offsets, &g));
    CHECK_COUNT(w, x.dtype, g.E * g.N * g.K);
    if (g.R == 0 || g.N == 0 || g.E == 0) return OK;
    SIZES(g.R, g.N, g.K, 0);
    RUN(KERNEL_GROUPED_FORWARD, g.flops, BYTES(y, x) + g.used * BYTES(w), grouped_forward, y, x, w, offsets);
}

Status grouped_backward_input(Exec *exec, Tensor dx, Tensor dy, Tensor w, Tensor offsets) {
    Grouped g = {0};
    TRY(check_grouped(__func__, dy, dx, w, offsets, &g));
    CHECK_COUNT(w, dy.dtype, g.E * g.N * g.K);
    if (g.R == 0 || g.K == 0 || g.E == 0) return OK;
    SIZES(g.R, g.K, g.N, 0);
    RUN(KERNEL_GROUPED_BACKWARD_INPUT, g.flops, BYTES(dx, dy) + g.used * BYTES(w), grouped_backward_input, dx,
        dy, w, offsets);
}

/* The op log's sizes are those of the products of all experts below one another, each of its share of the
 * rows. */
Status grouped_backward_weight(Exec *exec, Tensor dw, Tensor dy, Tensor x, Tensor offsets, bool accumulate) {
    Grouped g = {0};
    TRY(check_grouped(__func__, dy, x, dw, offsets, &g));
    CHECK_COUNT(dw, DT_F32, g.E * g.N * g.K);
    if (tensor_count(dw) == 0) return OK;
    if (g.R == 0) return accumulate ? OK : stream_zero(exec->stream, dw.data, tensor_bytes(dw));
    SIZES(g.E * g.N, g.K, (g.R + g.E - 1) / g.E, 0);
    RUN(KERNEL_GROUPED_BACKWARD_WEIGHT, g.flops, BYTES(dw, dy, x), grouped_backward_weight, dw, dy, x,
        offsets, accumulate);
}

Status kernels_check_places(const char *kernel, const char *what, Tensor index, int64_t count) {
    const int32_t *at = tensor_i32(index);
    for (int64_t i = 0; i < tensor_count(index); i++)
        if (at[i] < -1 || at[i] >= count)
            return FAILED("internal: %s: %s %d is out of range; expected -1 to %lld", kernel, what, at[i],
                          (long long)count - 1);
    return OK;
}

Status kernels_check_offsets(const char *kernel, Tensor offsets, int64_t R) {
    const int32_t *at = tensor_i32(offsets);
    for (int64_t e = 0; e < tensor_count(offsets); e++)
        if (at[e] < (e ? at[e - 1] : 0) || at[e] > R)
            return FAILED("internal: %s: offset %d of expert %lld; expected ascending ones up to %lld",
                          kernel, at[e], (long long)e, (long long)R);
    return OK;
}
