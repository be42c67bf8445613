/* Linear layers on a GPU: products by cuBLASLt, with what it does not do done around them.
 *
 * Forward, y = x w^T + b: cuBLASLt adds the bias before it rounds. An activation is a pass of its own over
 * what was stored, as kernels.h asks. cuBLASLt's GELU would be free but sees the sum before it is rounded to
 * 16 bits: a quarter of the results then differ in their last bit, and y is not what act_forward(pre) gives.
 *
 * Backward to the input, dx = dy w: in bf16 cuBLASLt multiplies by the slope of GELU (by tanh) itself, from
 * pre as stored and before it rounds. Other slopes are a pass over the product, which waits in fp32 as long
 * as it is small (it then stays in the cache), else in dx itself.
 *
 * Backward to the weights: dw += dy^T x in fp32, and the column sums of dy.
 *
 * Products of few columns are summed by kernels of cuBLASLt's that round to 16 bits before they add a bias or
 * what was there, or multiply by a slope (seen up to 67 columns). So these wait in fp32, and a pass does the
 * rest.
 *
 * WEFT_CUDA_EPILOGUE lists what cuBLASLt may do besides: "gelu" forward, "slope" backward, "sums" for the
 * bias, in whatever type. Unset, that is the slope in bf16, from Hopper on (it has no fast kernels before).
 *
 * Forward of few rows in 16 bits, which generation is made of, is our own (linear_few.cu), activation
 * included. WEFT_CUDA_LINEAR=blas leaves it to cuBLASLt, too.
 *
 * A call takes one block of scratch: cuBLASLt's first, then what the call itself needs.
 */
#include <string.h>

#include "kernels/cuda/blas.h"

_Static_assert((int)ACT_NONE == (int)CUDA_ACT_NONE && (int)ACT_GELU_TANH == (int)CUDA_ACT_GELU_TANH &&
                   (int)ACT_GELU_ERF == (int)CUDA_ACT_GELU_ERF && (int)ACT_RELU == (int)CUDA_ACT_RELU &&
                   (int)ACT_TANH == (int)CUDA_ACT_TANH && (int)ACT_COUNT == (int)CUDA_ACT_TANH + 1,
               "launch.h numbers activations as kernels.h does");

enum {
    ALIGN = 256,
    WIDE_BYTES = 64 << 20, /* of a product that waits in fp32 */
    NARROW = 128,          /* columns from which on cuBLASLt rounds once */
};

static size_t room(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool rounds_early(DType type, int64_t cols) {
    return type != DT_F32 && cols < NARROW;
}

static bool aligned(const void *pointer) {
    return (uintptr_t)pointer % 16 == 0;
}

/* cuBLASLt's scratch and `bytes` more. */
Status blas_scratch(Stream *stream, size_t bytes, void **ret_blas, char **ret_own) {
    void *scratch = NULL;
    TRY(stream_workspace(stream, BLAS_WORKSPACE + bytes, &scratch));
    *ret_blas = scratch;
    *ret_own = (char *)scratch + BLAS_WORKSPACE;
    return OK;
}

/* By cuBLASLt if it can. A bias that it cannot add to fp32 is added afterwards; in 16 bits that would round
 * twice. */
static Status run_product(Stream *stream, const CudaProduct *product, void *scratch) {
    bool done;
    TRY(blas_product(stream, product, scratch, &done));
    if (!done && product->bias && product->out_type == DT_F32) {
        CudaProduct plain = *product;
        plain.bias = NULL;
        TRY(blas_product(stream, &plain, scratch, &done));
        if (done)
            LAUNCH(
                launch_bias(cuda_stream(stream), product->out, product->bias, product->rows, product->cols));
    }
    if (!done) LAUNCH(launch_product(cuda_stream(stream), product));
    return OK;
}

/* Whether cuBLASLt may do `what`, in this type. */
static bool may_fuse(Stream *stream, const char *what, DType type) {
    const char *asked = getenv("WEFT_CUDA_EPILOGUE");
    if (asked) return strstr(asked, what) != NULL;
    return !strcmp(what, "slope") && type == DT_BF16 && cuda_device(stream)->capability >= 90;
}

/* Whether GELU's aux can lie there: rows of a multiple of 8 elements, on both sides from multiples of 16
 * bytes. */
static bool suits_gelu(Act act, int64_t cols, const void *out, const void *aux) {
    return act == ACT_GELU_TANH && cols % 8 == 0 && aligned(out) && aligned(aux);
}

static Status forward_fused(Stream *stream, const CudaProduct *plain, Tensor y, Tensor pre, void *scratch,
                            bool *ret_done) {
    CudaProduct product = *plain;
    product.out = y.data;
    product.epilogue = CUDA_EPILOGUE_GELU;
    product.aux = pre.data;
    return blas_product(stream, &product, scratch, ret_done);
}

/* Whether our own product of few rows takes it. */
static bool is_few(const CudaProduct *product) {
    const char *asked = getenv("WEFT_CUDA_LINEAR");
    return product_few_suits(product) && !(asked && !strcmp(asked, "blas"));
}

Status linear_forward_cuda(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act) {
    Tensor sum = act != ACT_NONE && pre.data ? pre : y; /* what the product gives */
    CudaProduct product = {.rows = tensor_rows(x), .cols = tensor_rows(w), .inner = tensor_cols(x)};
    product.left = x.data;
    product.right = w.data;
    product.left_type = product.right_type = x.dtype;
    product.right_turned = true;
    product.out = y.data;
    product.out_type = y.dtype;
    product.bias = b.data;
    if (is_few(&product)) {
        LAUNCH(launch_product_few(cuda_stream(stream), &product, (CudaAct)act, pre.data));
        return OK;
    }
    bool wait = b.data && rounds_early(sum.dtype, product.cols), done = false;
    product.out_type = wait ? DT_F32 : sum.dtype;
    bool copy = b.data && (b.dtype != product.out_type || !aligned(b.data));
    size_t copied = copy ? room((size_t)product.cols * dtype_size(product.out_type)) : 0;
    size_t waiting = wait ? room((size_t)tensor_count(sum) * sizeof(float)) : 0;
    void *scratch = NULL;
    char *own = NULL;
    TRY(blas_scratch(stream, copied + waiting, &scratch, &own));
    product.out = wait ? own + copied : sum.data;
    if (copy) {
        LAUNCH(launch_convert(cuda_stream(stream), product.out_type, own, b.dtype, b.data, product.cols));
        product.bias = own;
    }
    if (!wait && suits_gelu(act, product.cols, y.data, pre.data) && may_fuse(stream, "gelu", y.dtype))
        TRY(forward_fused(stream, &product, y, pre, scratch, &done));
    if (done) return OK;
    TRY(run_product(stream, &product, scratch));
    if (wait)
        LAUNCH(
            launch_convert(cuda_stream(stream), sum.dtype, sum.data, DT_F32, product.out, tensor_count(sum)));
    if (act == ACT_NONE) return OK;
    LAUNCH(launch_act(cuda_stream(stream), y.dtype, y.data, sum.data, (CudaAct)act, tensor_count(y)));
    return OK;
}

/* dy in the type of the other operand; `copy` has room for it where it is not. */
static Status operand(Stream *stream, Tensor dy, DType type, void *copy, const void **ret_data) {
    *ret_data = dy.data;
    if (dy.dtype == type) return OK;
    LAUNCH(launch_convert(cuda_stream(stream), type, copy, dy.dtype, dy.data, tensor_count(dy)));
    *ret_data = copy;
    return OK;
}

static size_t operand_room(Tensor dy, DType type) {
    return dy.dtype == type ? 0 : room((size_t)tensor_count(dy) * dtype_size(type));
}

/* Where the product waits for its slope, or to be added: in dx, or in scratch (data NULL until there is
 * some). */
static Tensor waiting_product(Tensor dx, Act act, bool accumulate) {
    size_t wide = (size_t)tensor_count(dx) * sizeof(float);
    Tensor product = dx;
    if (act == ACT_NONE && !(accumulate && rounds_early(dx.dtype, tensor_cols(dx)))) return dx;
    if (dx.dtype != DT_F32 && wide <= WIDE_BYTES) product.dtype = DT_F32;
    if (accumulate || product.dtype != dx.dtype) product.data = NULL;
    return product;
}

/* Needs: w, and pre where the input came out of an activation. */
Status linear_backward_input_cuda(Stream *stream, Tensor dx, Tensor dy, Tensor w, Act act, Tensor pre,
                                  bool accumulate) {
    CudaProduct product = {.rows = tensor_rows(dy), .cols = tensor_cols(w), .inner = tensor_cols(dy)};
    Tensor wait = waiting_product(dx, act, accumulate);
    size_t copied = operand_room(dy, w.dtype), waiting = wait.data ? 0 : room(tensor_bytes(wait));
    void *scratch = NULL;
    char *own = NULL;
    TRY(blas_scratch(stream, copied + waiting, &scratch, &own));
    if (!wait.data) wait.data = own + copied;
    TRY(operand(stream, dy, w.dtype, own, &product.left));
    product.right = w.data;
    product.left_type = product.right_type = w.dtype;
    product.out = dx.data;
    product.out_type = dx.dtype;
    if (!accumulate && suits_gelu(act, product.cols, dx.data, pre.data) &&
        !rounds_early(dx.dtype, product.cols) && may_fuse(stream, "slope", dx.dtype)) {
        product.epilogue = CUDA_EPILOGUE_GELU_SLOPE;
        product.aux = pre.data;
        bool done;
        TRY(blas_product(stream, &product, scratch, &done));
        if (done) return OK;
        product.epilogue = CUDA_EPILOGUE_NONE;
        product.aux = NULL;
    }
    product.out = wait.data;
    product.out_type = wait.dtype;
    product.accumulate = act == ACT_NONE && accumulate && wait.data == dx.data;
    TRY(run_product(stream, &product, scratch));
    if (act == ACT_NONE && wait.data != dx.data)
        LAUNCH(launch_add(cuda_stream(stream), dx.dtype, dx.data, wait.dtype, wait.data, tensor_count(dx)));
    if (act == ACT_NONE) return OK;
    LAUNCH(launch_slope(cuda_stream(stream), dx.dtype, dx.data, wait.dtype, wait.data, pre.data, (CudaAct)act,
                        tensor_count(dx), accumulate));
    return OK;
}

/* The product and the column sums of dy, which lie in `scratch` until they are added to db. */
static Status weight_fused(Stream *stream, const CudaProduct *plain, Tensor db, void *blas, void *scratch,
                           bool *ret_done) {
    CudaProduct product = *plain;
    product.epilogue = CUDA_EPILOGUE_LEFT_SUMS;
    product.sums = scratch;
    TRY(blas_product(stream, &product, blas, ret_done));
    if (*ret_done) LAUNCH(launch_add(cuda_stream(stream), DT_F32, db.data, DT_F32, scratch, product.rows));
    return OK;
}

/* Needs: x. */
Status linear_backward_weight_cuda(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x) {
    CudaProduct product = {.rows = tensor_cols(dy), .cols = tensor_cols(x), .inner = tensor_rows(dy)};
    size_t copied = operand_room(dy, x.dtype);
    size_t sums = db.data ? room(column_sums_room(product.inner, product.rows)) : 0;
    void *scratch = NULL;
    char *own = NULL;
    bool done = false;
    TRY(blas_scratch(stream, copied + sums, &scratch, &own));
    TRY(operand(stream, dy, x.dtype, own, &product.left));
    product.left_turned = true;
    product.right = x.data;
    product.left_type = product.right_type = x.dtype;
    product.out = dw.data;
    product.out_type = DT_F32;
    product.accumulate = true;
    if (db.data && may_fuse(stream, "sums", x.dtype))
        TRY(weight_fused(stream, &product, db, scratch, own + copied, &done));
    if (done) return OK;
    TRY(run_product(stream, &product, scratch));
    if (!db.data) return OK;
    LAUNCH(launch_column_sums(cuda_stream(stream), db.data, dy.dtype, dy.data, product.inner, product.rows,
                              (float *)(own + copied)));
    return OK;
}
