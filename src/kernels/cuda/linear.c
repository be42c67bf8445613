/* Linear layers on a GPU: GEMMs with cuBLASLt, plus separate passes for what it does not do.
 *
 * Forward, y = x w^T + b: cuBLASLt adds the bias before rounding. An activation is a separate pass over the
 * stored result, as kernels.h requires. cuBLASLt's fused GELU would be free, but it sees the sum before it
 * is rounded to 16 bits: a quarter of the results then differ in the last bit, and y is not
 * act_forward(pre).
 *
 * Backward to the input, dx = dy w: a derivative is a pass over the GEMM's result, which is kept in fp32 if
 * it is small enough to stay in the cache, and otherwise in dx itself. The pass also computes column sums of
 * dx, if requested. In bf16 on Hopper and later, cuBLASLt multiplies large results by the derivative of GELU
 * (tanh approximation) itself, from pre as stored and before rounding; for small ones its kernels take longer
 * than the pass, and older GPUs have no fast kernels for it.
 *
 * Backward to the weights: dw [+]= dy^T x in fp32, and the column sums of dy.
 *
 * For GEMMs with few columns, cuBLASLt uses kernels that round to 16 bits before they add a bias,
 * accumulate, or multiply by a derivative (observed up to 67 columns, and for accumulating at 301 x 520).
 * So do those for rows that do not start at multiples of 16 bytes, which split a long inner dimension
 * (observed at 64 x 200 with 2100 inputs). Their results, and small ones to be accumulated, are therefore
 * kept in fp32, and a separate pass does the rest.
 *
 * Forward with few rows in 16 bits, as in generation, uses our own kernel (linear_few.cu), including the
 * activation.
 *
 * A call takes one block of scratch memory: first the workspace of cuBLASLt, then its own. */
#include "kernels/cuda/blas.h"

static bool aligned(const void *pointer) {
    return (uintptr_t)pointer % 16 == 0;
}

Status blas_scratch(Stream *stream, size_t bytes, void **ret_blas, char **ret_own) {
    void *scratch = NULL;
    TRY(stream_workspace(stream, BLAS_WORKSPACE + bytes, &scratch));
    *ret_blas = scratch;
    *ret_own = (char *)scratch + BLAS_WORKSPACE;
    return OK;
}

/* Runs a GEMM with cuBLASLt if possible. If it cannot add a bias to an fp32 result, that is done
 * afterwards; in 16 bits this would round twice. */
static Status run_gemm(Stream *stream, const CudaGemm *gemm, void *scratch) {
    bool done;
    TRY(cuda_gemm(stream, gemm, scratch, &done));
    if (!done && gemm->bias && gemm->out_type == DT_F32) {
        CudaGemm plain = *gemm;
        plain.bias = NULL;
        TRY(cuda_gemm(stream, &plain, scratch, &done));
        if (done) LAUNCH(launch_bias(cuda_stream(stream), gemm->out, gemm->bias, gemm->rows, gemm->cols));
    }
    if (!done) LAUNCH(launch_gemm(cuda_stream(stream), gemm));
    return OK;
}

/* Whether cuBLASLt multiplies dx by the derivative of GELU: rows have a multiple of 8 elements, and both
 * tensors are 16-byte aligned. */
static bool fuses_slope(Stream *stream, Tensor dx, Act act, Tensor pre) {
    int64_t cols = tensor_cols(dx);
    return act == ACT_GELU_TANH && dx.dtype == DT_BF16 && cuda_device(stream)->capability >= 90 &&
           cols % 8 == 0 && aligned(dx.data) && aligned(pre.data) && !gemm_rounds_early(dx.dtype, cols);
}

Status linear_forward_cuda(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act) {
    Tensor sum = act != ACT_NONE && pre.data ? pre : y; /* receives the result of the GEMM */
    CudaGemm gemm = {.rows = tensor_rows(x), .cols = tensor_rows(w), .inner = tensor_cols(x)};
    gemm.left = x.data;
    gemm.right = w.data;
    gemm.left_type = gemm.right_type = x.dtype;
    gemm.right_transposed = true;
    gemm.out = y.data;
    gemm.out_type = y.dtype;
    gemm.bias = b.data;
    if (gemm_skinny_supports(&gemm)) {
        LAUNCH(launch_gemm_skinny(cuda_stream(stream), &gemm, act, pre.data));
        return OK;
    }
    bool fp32_result = linear_in_fp32(sum.dtype, gemm.cols, gemm.inner, b.data);
    gemm.out_type = fp32_result ? DT_F32 : sum.dtype;
    bool copy = b.data && (b.dtype != gemm.out_type || !aligned(b.data));
    size_t copy_bytes = copy ? gpu_align((size_t)gemm.cols * dtype_size(gemm.out_type)) : 0;
    size_t result_bytes = fp32_result ? gpu_align((size_t)tensor_count(sum) * sizeof(float)) : 0;
    void *scratch = NULL;
    char *extra = NULL;
    TRY(blas_scratch(stream, copy_bytes + result_bytes, &scratch, &extra));
    gemm.out = fp32_result ? extra + copy_bytes : sum.data;
    if (copy) {
        TRY(convert_cuda(stream, tensor_1d(extra, gemm.out_type, gemm.cols), b));
        gemm.bias = extra;
    }
    TRY(run_gemm(stream, &gemm, scratch));
    if (fp32_result) TRY(convert_cuda(stream, sum, tensor_1d(gemm.out, DT_F32, tensor_count(sum))));
    return act == ACT_NONE ? OK : act_forward_cuda(stream, y, sum, act);
}

/* dy converted to the type of the other operand; `copy` has room for it if necessary. */
static Status operand(Stream *stream, Tensor dy, DType type, void *copy, const void **ret_data) {
    *ret_data = dy.data;
    if (dy.dtype == type) return OK;
    TRY(convert_cuda(stream, tensor_1d(copy, type, tensor_count(dy)), dy));
    *ret_data = copy;
    return OK;
}

static size_t operand_bytes(Tensor dy, DType type) {
    return dy.dtype == type ? 0 : gpu_align((size_t)tensor_count(dy) * dtype_size(type));
}

/* Where the GEMM stores its result before it is multiplied by the derivative or added: dx, or scratch
 * memory (data is NULL until that is allocated). */
static Tensor result_tensor(Tensor dx, Act act, bool accumulate) {
    LinearResult how = linear_result(dx.dtype, tensor_rows(dx), tensor_cols(dx), act != ACT_NONE, accumulate);
    dx.dtype = how.type;
    if (how.separate) dx.data = NULL;
    return dx;
}

/* What follows the GEMM: dx [+]= result * act'(pre), and sums. `partial` is scratch memory for sums. */
static Status finish_input(Stream *stream, Tensor dx, Tensor sums, Tensor result, Act act, Tensor pre,
                           bool accumulate, void *partial) {
    if (act != ACT_NONE && sums.data && !accumulate)
        return act_backward_sums(stream, dx, sums, result, pre, act, partial);
    if (act != ACT_NONE)
        TRY(act_backward_onto(stream, dx, result, pre, act, accumulate));
    else if (result.data != dx.data)
        TRY(add_cuda(stream, dx, result));
    return sums.data ? column_sums(stream, sums, dx, partial) : OK;
}

/* Reads w, and pre if the input is the output of an activation. */
Status linear_backward_input_cuda(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Tensor w, Act act,
                                  Tensor pre, bool accumulate) {
    CudaGemm gemm = {.rows = tensor_rows(dy), .cols = tensor_cols(w), .inner = tensor_cols(dy)};
    Tensor result = result_tensor(dx, act, accumulate);
    size_t copy_bytes = operand_bytes(dy, w.dtype),
           result_bytes = result.data ? 0 : gpu_align(tensor_bytes(result)),
           sums_bytes = sums.data ? gpu_align(column_sums_bytes(gemm.rows, gemm.cols)) : 0;
    void *scratch = NULL;
    char *extra = NULL;
    TRY(blas_scratch(stream, copy_bytes + result_bytes + sums_bytes, &scratch, &extra));
    if (!result.data) result.data = extra + copy_bytes;
    void *partial = extra + copy_bytes + result_bytes;
    TRY(operand(stream, dy, w.dtype, extra, &gemm.left));
    gemm.right = w.data;
    gemm.left_type = gemm.right_type = w.dtype;
    gemm.out = dx.data;
    gemm.out_type = dx.dtype;
    if (!accumulate && result.data == dx.data && fuses_slope(stream, dx, act, pre)) {
        gemm.slope = pre.data;
        bool done;
        TRY(cuda_gemm(stream, &gemm, scratch, &done));
        if (done) return finish_input(stream, dx, sums, dx, ACT_NONE, pre, false, partial);
        gemm.slope = NULL;
    }
    gemm.out = result.data;
    gemm.out_type = result.dtype;
    gemm.accumulate = act == ACT_NONE && accumulate && result.data == dx.data;
    TRY(run_gemm(stream, &gemm, scratch));
    return finish_input(stream, dx, sums, result, act, pre, accumulate, partial);
}

/* Reads forward's x. */
Status linear_backward_weight_cuda(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x,
                                   bool accumulate) {
    CudaGemm gemm = {.rows = tensor_cols(dy), .cols = dw.data ? tensor_cols(x) : 1, .inner = tensor_rows(dy)};
    size_t copy_bytes = operand_bytes(dy, x.dtype);
    size_t sums = db.data ? gpu_align(column_sums_bytes(gemm.inner, gemm.rows)) : 0;
    void *scratch = NULL;
    char *extra = NULL;
    if (!dw.data) {
        TRY(stream_workspace(stream, sums, &scratch));
        return column_sums(stream, db, dy, scratch);
    }
    TRY(blas_scratch(stream, copy_bytes + sums, &scratch, &extra));
    TRY(operand(stream, dy, x.dtype, extra, &gemm.left));
    gemm.left_transposed = true;
    gemm.right = x.data;
    gemm.left_type = gemm.right_type = x.dtype;
    gemm.out = dw.data;
    gemm.out_type = DT_F32;
    gemm.accumulate = accumulate;
    TRY(run_gemm(stream, &gemm, scratch));
    return db.data ? column_sums(stream, db, dy, extra + copy_bytes) : OK;
}
