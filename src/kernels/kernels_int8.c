/* The functions of kernels.h, continued: packing of int8 and int4 weights, linear layers and embeddings that
 * use them, and fused linear layers of generation. See int8.h for the format. */
#include <math.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/dispatch.h"
#include "kernels/int8.h"

static Status check_backend(const char *function, const Exec *exec) {
    if (exec->table->linear_int8_forward) return OK;
    return FAILED("internal: %s: the %s backend does not support int8 weights", function, exec->table->name);
}

static Status header_for(const Exec *exec, int bits, int64_t N, int64_t K, Int8Header *ret_head) {
    Int8Tile tile = {0};
    TRY(exec->table->int8_tile(bits, &tile));
    *ret_head = (Int8Header){.mark = INT8_MARK,
                             .tile = tile,
                             .outputs = N,
                             .inputs = K,
                             .padded = int8_round_up(N, tile.cols),
                             .depth = int8_round_up(K, INT8_DEPTH),
                             .bits = bits};
    return OK;
}

static Status packed_bytes(const Exec *exec, int bits, int64_t N, int64_t K, size_t *ret_bytes) {
    TRY(check_backend(__func__, exec));
    if (N < 1 || K < 1 || K > INT8_MAX_INPUTS)
        return FAILED(
            "int%d weights with %lld outputs and %lld inputs are not supported; expected 1 to %d inputs",
            bits, (long long)N, (long long)K, INT8_MAX_INPUTS);
    Int8Header header = {0};
    TRY(header_for(exec, bits, N, K, &header));
    size_t panels = 0;
    if (!mul_size((size_t)(header.padded / header.tile.cols), (size_t)int8_panel_bytes(&header), &panels) ||
        panels > PTRDIFF_MAX / 2)
        return FAILED("int%d weights with %lld outputs and %lld inputs do not fit in memory", bits,
                      (long long)N, (long long)K);
    *ret_bytes = int8_stride(&header);
    return OK;
}

Status int8_bytes(const Exec *exec, int64_t N, int64_t K, size_t *ret_bytes) {
    return packed_bytes(exec, 8, N, K, ret_bytes);
}

Status int4_bytes(const Exec *exec, int64_t N, int64_t K, size_t *ret_bytes) {
    return packed_bytes(exec, 4, N, K, ret_bytes);
}

Status packed_matrix(const Exec *exec, Tensor stack, int64_t at, Tensor *ret_matrix) {
    int64_t N = stack.dim[1], K = stack.dim[2];
    size_t bytes = 0;
    TRY(packed_bytes(exec, stack.dtype == DT_Q4 ? 4 : 8, N, K, &bytes));
    *ret_matrix = tensor_2d((char *)stack.data + (size_t)at * bytes, stack.dtype, N, K);
    return OK;
}

/* Writes the header, scales and factors of packed weights and zeroes everything else. */
static Status pack_begin(const Exec *exec, int bits, Tensor packed, Tensor scale, Tensor factor,
                         Int8View *ret_view) {
    int64_t rows = tensor_rows(packed), K = tensor_cols(packed);
    size_t bytes = 0;
    TRY(packed_bytes(exec, bits, rows, K, &bytes));
    if (factor.data) CHECK_COUNT(factor, DT_F32, K);
    memset(packed.data, 0, bytes);
    Int8Header header = {0};
    TRY(header_for(exec, bits, rows, K, &header));
    header.factors = factor.data != NULL;
    memcpy(packed.data, &header, sizeof header);
    *ret_view = int8_view(packed);
    memcpy(ret_view->scale, scale.data, tensor_bytes(scale));
    if (factor.data) memcpy(ret_view->factor, factor.data, (size_t)K * sizeof(float));
    return OK;
}

/* Packs one output and returns the sum of its weights. */
static int32_t pack_row(const Int8View *view, const int8_t *row, int64_t output) {
    const Int8Header *header = view->header;
    int group = header->tile.group;
    int32_t total = 0;
    int8_t *panel = int8_panel(view, output);
    for (int64_t k = 0; k < header->inputs; k += group) {
        int64_t count = header->inputs - k < group ? header->inputs - k : group;
        int8_t *to = panel + int8_index(header->tile, output, k);
        for (int64_t i = 0; i < count; i++) {
            to[i] = row[k + i];
            total += row[k + i];
        }
    }
    return total;
}

Status int8_pack(const Exec *exec, Tensor packed, Tensor w, Tensor scale, Tensor factor) {
    int64_t N = tensor_rows(w), K = tensor_cols(w), rows = tensor_rows(packed);
    CHECK_MATRIX(w, DT_I8, N, K);
    CHECK_MATRIX(packed, DT_Q8, rows < N ? N : rows, K);
    CHECK_COUNT(scale, DT_F32, N);
    Int8View view = {0};
    TRY(pack_begin(exec, 8, packed, scale, factor, &view));
#pragma omp parallel for schedule(static) if (N * K > 65536)
    for (int64_t n = 0; n < N; n++) view.sums[n] = pack_row(&view, (const int8_t *)w.data + n * K, n);
    return OK;
}

/* The same for int4. offsets (INT4_GROUP) are those of the output within a slice. */
static int32_t pack_row4(const Int8View *view, const Int4Offset *offsets, const uint8_t *row,
                         const int8_t *step, int64_t output) {
    const Int8Header *header = view->header;
    int8_t *slice = int8_panel(view, output);
    int32_t total = 0;
    for (int64_t k = 0; k < header->inputs; k += INT4_GROUP, slice += int4_slice_bytes(header->tile)) {
        int64_t left = header->inputs - k, count = left < INT4_GROUP ? left : INT4_GROUP;
        int32_t sum = 0;
        for (int64_t i = 0; i < count; i++) {
            int nibble = row[(k + i) / 2] >> (i % 2 ? 4 : 0) & 15;
            int8_t *byte = slice + offsets[i].byte;
            *byte = (int8_t)(*byte | (nibble ^ offsets[i].flip) << (offsets[i].high ? 4 : 0));
            sum += (nibble ^ 8) - 8;
        }
        slice[offsets[0].step] = step[k / INT4_GROUP];
        total += sum * step[k / INT4_GROUP];
    }
    return total;
}

/* Outputs of an int4 panel share bytes, so a single thread packs each panel. */
static void pack_panel4(const Int8View *view, const uint8_t *w, const int8_t *step, int64_t first,
                        int64_t end) {
    int64_t K = view->header->inputs;
    for (int64_t n = first; n < end; n++) {
        Int4Offset offsets[INT4_GROUP];
        for (int i = 0; i < INT4_GROUP; i++) offsets[i] = int4_offset(view->header->tile, n, i);
        view->sums[n] = pack_row4(view, offsets, w + n * ((K + 1) / 2),
                                  step + n * ((K + INT4_GROUP - 1) / INT4_GROUP), n);
    }
}

/* Whether an output's sums fit 32 bits for any weights and inputs. */
static bool steps_fit(const int8_t *step, int64_t groups) {
    int64_t total = 0;
    for (int64_t g = 0; g < groups; g++) total += step[g] < 0 ? -step[g] : step[g];
    return total * INT4_GROUP * 8 * 127 <= INT32_MAX;
}

Status int4_pack(const Exec *exec, Tensor packed, Tensor w, Tensor step, Tensor scale, Tensor factor) {
    int64_t N = tensor_rows(w), rows = tensor_rows(packed), K = tensor_cols(packed);
    int64_t groups = (K + INT4_GROUP - 1) / INT4_GROUP, bytes = (K + 1) / 2;
    CHECK_MATRIX(w, DT_U8, N, bytes);
    CHECK_MATRIX(step, DT_I8, N, groups);
    CHECK_MATRIX(packed, DT_Q4, rows < N ? N : rows, K);
    CHECK_COUNT(scale, DT_F32, N);
    const int8_t *steps = step.data;
    for (int64_t n = 0; n < N; n++)
        if (!steps_fit(steps + n * groups, groups))
            return FAILED("int4 weights: the group scales of output %lld are too large; its sums could "
                          "overflow 32 bits",
                          (long long)n);
    Int8View view = {0};
    TRY(pack_begin(exec, 4, packed, scale, factor, &view));
    int64_t cols = view.header->tile.cols;
#pragma omp parallel for schedule(static) if (N * K > 65536)
    for (int64_t first = 0; first < N; first += cols)
        pack_panel4(&view, w.data, steps, first, first + cols < N ? first + cols : N);
    return OK;
}

Status int8_set_static_amax(Tensor packed, float amax) {
    Int8Header *header = packed.data;
    if (!(amax >= 0) || isinf(amax))
        return FAILED("the static amax of a layer's inputs is %g; expected a finite number >= 0",
                      (double)amax);
    header->amax = amax;
    return OK;
}

Status int8_upload(const Exec *exec, Tensor packed, void *memory) {
    Int8Header *header = packed.data;
    size_t bytes = 0;
    TRY(packed_bytes(exec, header->bits, header->outputs, header->inputs, &bytes));
    TRY(stream_copy(exec->stream, memory, packed.data, bytes, COPY_TO_DEVICE));
    TRY(stream_sync(exec->stream));
    header->device = memory;
    return OK;
}

static Status check_packed(const char *function, Tensor w) {
    DType dtype = w.dtype == DT_Q4 ? DT_Q4 : DT_Q8;
    TRY(check_matrix(function, "w", w, dtype, tensor_rows(w), tensor_cols(w)));
    const Int8Header *header = w.data;
    if (header->mark == INT8_MARK && header->bits == (dtype == DT_Q4 ? 4 : 8) &&
        tensor_rows(w) <= header->outputs && tensor_cols(w) == header->inputs)
        return OK;
    return FAILED("internal: %s: w was not packed by int8_pack or int4_pack", function);
}

Status linear_int8_forward(Exec *exec, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act) {
    TRY(check_backend(__func__, exec));
    TRY(check_act(__func__, act));
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    bool fp32_only = !strcmp(exec->table->name, "cpu"); /* its int8 kernels only support fp32 */
    CHECK_MATRIX(x, fp32_only ? DT_F32 : x.dtype, M, K);
    TRY(check_packed(__func__, w));
    CHECK_MATRIX(w, w.dtype, N, K);
    CHECK_MATRIX(y, y.dtype == DT_F32 ? DT_F32 : x.dtype, M, N);
    if (b.data) CHECK_COUNT(b, x.dtype, N);
    if (pre.data && act == ACT_NONE) return FAILED("internal: %s: pre requires an activation", __func__);
    if (pre.data) CHECK_MATRIX(pre, y.dtype, M, N);
    if (M == 0 || N == 0) return OK;
    double read = (double)N * (double)K * (w.dtype == DT_Q4 ? 17.0 / 32 : 1);
    RUN(KERNEL_LINEAR_INT8_FORWARD, 2.0 * (double)M * (double)N * (double)K, BYTES(y, pre, x, b) + read,
        linear_int8_forward, y, pre, x, w, b, act);
}

bool linear_fused_supports(const Exec *exec, Tensor y, Tensor x, Tensor w, LinearFusion fusion) {
    if (!exec->table->fuses_linear || exec->observer) return false;
    return exec->table->fuses_linear(y, x, w, &fusion);
}

static bool is_packed(Tensor w) {
    return w.dtype == DT_Q8 || w.dtype == DT_Q4;
}

Status linear_fused_forward(Exec *exec, Tensor y, Tensor x, Tensor w, Tensor b, Act act,
                            LinearFusion fusion) {
    CHECK_FLOAT(x);
    TRY(check_act(__func__, act));
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w) / (fusion.gated ? 2 : 1),
            rows = fusion.gated ? 2 * N : N;
    if (is_packed(w)) {
        TRY(check_backend(__func__, exec));
        TRY(check_packed(__func__, w));
    }
    CHECK_MATRIX(w, is_packed(w) ? w.dtype : x.dtype, rows, K);
    CHECK_MATRIX(y, x.dtype, M, N);
    if (b.data) CHECK_COUNT(b, x.dtype, rows);
    if (fusion.gamma.data) CHECK_COUNT(fusion.gamma, x.dtype, K);
    if (fusion.beta.data) CHECK_COUNT(fusion.beta, x.dtype, K);
    if (fusion.beta.data && !fusion.gamma.data) return FAILED("internal: %s: beta requires gamma", __func__);
    if (fusion.res.data) CHECK_MATRIX(fusion.res, x.dtype, M, N);
    if (fusion.res.data && act != ACT_NONE)
        return FAILED("internal: %s: an activation and a residual", __func__);
    if (M == 0 || N == 0) return OK;
    double read = is_packed(w) ? (double)rows * (double)K * (w.dtype == DT_Q4 ? 17.0 / 32 : 1) : BYTES(w);
    RUN(KERNEL_LINEAR_FUSED_FORWARD, 2.0 * (double)M * (double)rows * (double)K,
        BYTES(y, x, b, fusion.gamma, fusion.beta, fusion.res) + read, linear_fused_forward, y, x, w, b, act,
        fusion);
}

static void unpack_row(const Int8View *view, float *to, int64_t row) {
    int64_t K = view->header->inputs;
    float scale = view->scale[row];
    for (int64_t k = 0; k < K; k++) to[k] = scale * (float)int8_value(view, row, k);
}

/* x (C) = token embedding + position embedding + type embedding. word is -1 if the token is not in this
 * part of the vocabulary; position and type may be NULL. */
static void embed_row(float *x, const Int8View *words, int64_t word, const float *position,
                      const float *type) {
    int64_t C = words->header->inputs;
    if (word >= 0)
        unpack_row(words, x, word);
    else
        memset(x, 0, (size_t)C * sizeof *x);
    for (int64_t c = 0; position && c < C; c++) x[c] += position[c];
    for (int64_t c = 0; type && c < C; c++) x[c] += type[c];
}

Status embedding_int8_forward(Exec *exec, Tensor x, Tensor tokens, Tensor types, Tensor positions, Tensor wte,
                              Tensor wpe, Tensor wtype, VocabPart part) {
    TRY(check_backend(__func__, exec));
    TRY(check_packed(__func__, wte));
    Int8View words = int8_view(wte);
    int64_t T = x.dim[1], C = x.dim[2], rows = x.dim[0] * T;
    CHECK_MATRIX(x, DT_F32, rows, words.header->inputs);
    if (words.factor) return FAILED("internal: %s: embedding weights must not have factors", __func__);
    for (int64_t i = 0; i < rows; i++) {
        int64_t position = wpe.data ? row_position(positions, 0, T, i / T, i % T, wpe.dim[0]) : -1;
        int64_t type = types.data ? tensor_i32(types)[i] : 0;
        bool has_type = wtype.data && type >= 0 && type < wtype.dim[0];
        embed_row(tensor_f32(x) + i * C, &words, vocab_row(part, tensor_rows(wte), tensor_i32(tokens)[i]),
                  position >= 0 ? tensor_f32(wpe) + position * C : NULL,
                  has_type ? tensor_f32(wtype) + type * C : NULL);
    }
    return OK;
}
