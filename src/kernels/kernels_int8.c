/* The functions of kernels.h, continued: weights of 8 bits. */
#include <string.h>

#include "kernels/backend.h"
#include "kernels/dispatch.h"
#include "kernels/int8.h"

static Int8Head head_of(const Exec *exec, int64_t N, int64_t K) {
    Int8Tile tile = exec->table->int8_tile();
    return (Int8Head){.mark = INT8_MARK,
                      .tile = tile,
                      .outputs = N,
                      .inputs = K,
                      .padded = int8_round_up(N, tile.cols),
                      .depth = int8_round_up(K, INT8_DEPTH)};
}

static Status check_backend(const char *function, const Exec *exec) {
    if (exec->table->linear_int8_forward && device_is_host(exec->stream->device)) return OK;
    return FAILED("internal: %s: int8 weights are for the CPU", function);
}

Status int8_bytes(const Exec *exec, int64_t N, int64_t K, size_t *ret_bytes) {
    TRY(check_backend(__func__, exec));
    if (N < 1 || K < 1 || K > INT8_DEEPEST)
        return FAILED("int8 weights of %lld outputs and %lld inputs: expected 1 to %d inputs", (long long)N,
                      (long long)K, INT8_DEEPEST);
    Int8Head head = head_of(exec, N, K);
    size_t panels;
    if (!mul_size((size_t)head.padded, (size_t)head.depth, &panels) || panels > PTRDIFF_MAX / 2)
        return FAILED("int8 weights of %lld outputs and %lld inputs do not fit into memory", (long long)N,
                      (long long)K);
    *ret_bytes = int8_part(sizeof head) + 2 * int8_part(head.padded * 4) + int8_part(head.depth * 4) + panels;
    return OK;
}

/* One output's row of weights, into its place. */
static int32_t pack_row(Int8View view, const int8_t *row, int64_t output) {
    const Int8Head *head = view.head;
    int group = head->tile.group;
    int32_t total = 0;
    for (int64_t k = 0; k < head->inputs; k += group) {
        int64_t count = head->inputs - k < group ? head->inputs - k : group;
        int8_t *to = view.panels + int8_index(head, output, k);
        for (int64_t i = 0; i < count; i++) {
            to[i] = row[k + i];
            total += row[k + i];
        }
    }
    return total;
}

Status int8_pack(const Exec *exec, Tensor packed, Tensor w, Tensor scale, Tensor factor) {
    TRY(check_backend(__func__, exec));
    int64_t N = tensor_rows(w), K = tensor_cols(w), rows = tensor_rows(packed);
    size_t bytes;
    TRY(int8_bytes(exec, rows, K, &bytes));
    CHECK_MATRIX(w, DT_I8, N, K);
    CHECK_MATRIX(packed, DT_Q8, rows < N ? N : rows, K);
    CHECK_COUNT(scale, DT_F32, N);
    if (factor.data) CHECK_COUNT(factor, DT_F32, K);
    memset(packed.data, 0, bytes);
    Int8Head head = head_of(exec, rows, K);
    head.factors = factor.data != NULL;
    memcpy(packed.data, &head, sizeof head);
    Int8View view = int8_view(packed);
    memcpy(view.scale, scale.data, (size_t)N * sizeof(float));
    if (factor.data) memcpy(view.factor, factor.data, (size_t)K * sizeof(float));
#pragma omp parallel for schedule(static) if (N * K > 65536)
    for (int64_t n = 0; n < N; n++) view.sums[n] = pack_row(view, (const int8_t *)w.data + n * K, n);
    return OK;
}

static Status check_packed(const char *function, Tensor w) {
    TRY(check_matrix(function, "w", w, DT_Q8, tensor_rows(w), tensor_cols(w)));
    const Int8Head *head = w.data;
    if (head->mark == INT8_MARK && tensor_rows(w) <= head->outputs && tensor_cols(w) == head->inputs)
        return OK;
    return FAILED("internal: %s: w is not what int8_pack left", function);
}

Status linear_int8_forward(Exec *exec, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act) {
    TRY(check_backend(__func__, exec));
    TRY(check_act(__func__, act));
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    CHECK_MATRIX(x, DT_F32, M, K);
    CHECK_MATRIX(w, DT_Q8, N, K);
    TRY(check_packed(__func__, w));
    CHECK_MATRIX(y, DT_F32, M, N);
    if (b.data) CHECK_COUNT(b, DT_F32, N);
    if (pre.data && act == ACT_NONE) return FAILED("internal: %s: pre is given without an act", __func__);
    if (pre.data) CHECK_MATRIX(pre, DT_F32, M, N);
    if (M == 0 || N == 0) return OK;
    RUN(KERNEL_LINEAR_INT8_FORWARD, 2.0 * (double)M * (double)N * (double)K, BYTES(y, pre, x, w, b),
        linear_int8_forward, y, pre, x, w, b, act);
}

static void unpack_row(Int8View view, float *to, int64_t row) {
    int group = view.head->tile.group;
    int64_t K = view.head->inputs;
    float scale = view.scale[row];
    for (int64_t k = 0; k < K; k += group) {
        const int8_t *from = view.panels + int8_index(view.head, row, k);
        for (int64_t i = 0; i < group && k + i < K; i++) to[k + i] = scale * (float)from[i];
    }
}

/* One position's sum of embeddings. */
static void embed_row(float *x, Int8View words, int64_t word, const float *position, const float *type) {
    int64_t C = words.head->inputs;
    if (word >= 0)
        unpack_row(words, x, word);
    else
        memset(x, 0, (size_t)C * sizeof *x);
    for (int64_t c = 0; position && c < C; c++) x[c] += position[c];
    for (int64_t c = 0; type && c < C; c++) x[c] += type[c];
}

Status embedding_int8_forward(Exec *exec, Tensor x, Tensor tokens, Tensor types, Tensor past, Tensor wte,
                              Tensor wpe, Tensor wtype, VocabPart part) {
    TRY(check_backend(__func__, exec));
    TRY(check_packed(__func__, wte));
    Int8View words = int8_view(wte);
    int64_t T = x.dim[1], C = x.dim[2], rows = x.dim[0] * T;
    CHECK_MATRIX(x, DT_F32, rows, words.head->inputs);
    if (words.factor) return FAILED("internal: %s: the weights have factors", __func__);
    for (int64_t i = 0; i < rows; i++) {
        int64_t place = i % T + (past.data ? tensor_i32(past)[i / T] : 0);
        int64_t type = types.data ? tensor_i32(types)[i] : 0;
        bool has_place = wpe.data && place >= 0 && place < wpe.dim[0];
        bool has_type = wtype.data && type >= 0 && type < wtype.dim[0];
        embed_row(tensor_f32(x) + i * C, words, vocab_row(part, tensor_rows(wte), tensor_i32(tokens)[i]),
                  has_place ? tensor_f32(wpe) + place * C : NULL,
                  has_type ? tensor_f32(wtype) + type * C : NULL);
    }
    return OK;
}
