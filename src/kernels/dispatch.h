/* Building blocks of the functions of kernels.h: shape and type checks, and the timed call of a slot. */
#ifndef WEFT_KERNELS_DISPATCH_H
#define WEFT_KERNELS_DISPATCH_H

#include "kernels/kernels.h"

/* A failed check returns an "internal:" error that names the kernel, the tensor, what it is and what was
 * expected. A tensor with NULL data passes only if its shape has no elements. */

/* A compute type: fp32, bf16 or fp16. */
MUST_USE Status check_float(const char *kernel, const char *name, Tensor tensor);
/* `rows` x `cols` of the given type, with all leading dims counted as rows. */
MUST_USE Status check_matrix(const char *kernel, const char *name, Tensor tensor, DType dtype, int64_t rows,
                             int64_t cols);
/* `count` elements of the given type, in any shape. */
MUST_USE Status check_count(const char *kernel, const char *name, Tensor tensor, DType dtype, int64_t count);
/* `count` elements of int32, in any shape. */
MUST_USE Status check_index(const char *kernel, const char *name, Tensor tensor, int64_t count);
/* Exactly the type and shape of `like`, whose data is ignored. */
MUST_USE Status check_like(const char *kernel, const char *name, Tensor tensor, Tensor like);
/* p in [0, 1); if p > 0, `tensor` is (B,T,C) and lies within the global extent. */
MUST_USE Status check_dropout(const char *kernel, const Dropout *dropout, Tensor tensor);
/* `heads` selects heads of the tensor (..., N, D). *ret_rows is the number of their rows of D elements. */
MUST_USE Status check_heads(const char *kernel, Tensor tensor, HeadRange heads, int64_t *ret_rows);
MUST_USE Status check_act(const char *kernel, Act act);

#define CHECK_FLOAT(tensor) TRY(check_float(__func__, #tensor, tensor))
#define CHECK_MATRIX(tensor, dtype, rows, cols)                                                              \
    TRY(check_matrix(__func__, #tensor, tensor, dtype, rows, cols))
#define CHECK_COUNT(tensor, dtype, count) TRY(check_count(__func__, #tensor, tensor, dtype, count))
#define CHECK_INDEX(tensor, count)        TRY(check_index(__func__, #tensor, tensor, count))
#define CHECK_LIKE(tensor, like)          TRY(check_like(__func__, #tensor, tensor, like))

/* Total bytes of the tensors that are present. */
double bytes_of(size_t count, const Tensor *tensors);
#define BYTES(...) bytes_of(sizeof((Tensor[]){__VA_ARGS__}) / sizeof(Tensor), (Tensor[]){__VA_ARGS__})

/* FLOPs per element of activations and their derivatives. */
extern const double act_forward_flops[ACT_COUNT], act_backward_flops[ACT_COUNT];

/* Time a call if exec has a profile, and record it in the op log if the device has one. */
MUST_USE Status measure_start(const Exec *exec, double *ret_start);
MUST_USE Status measure_stop(const Exec *exec, KernelId id, double start, double flops, double bytes);

/* The status of a slot on a dry-run device, where requesting workspace ends the slot with an error: OK if
 * the slot got that far. */
MUST_USE Status dryrun_outcome(Stream *stream, Status status);

/* Records the sizes of the call that is about to run in the op log of a dry run; see OpRecord. */
#define SIZES(a, b, c, traits) op_log_size(exec->stream->device->op_log, a, b, c, traits)

/* Runs the slot, with the timing and counting that the profile and the op log need, and returns from the
 * function. */
#define RUN(id, flops, bytes, slot, ...)                                                                     \
    do {                                                                                                     \
        double start_ = 0;                                                                                   \
        TRY(measure_start(exec, &start_));                                                                   \
        if (!device_is_dryrun(exec->stream->device))                                                         \
            TRY(exec->table->slot(exec->stream, __VA_ARGS__));                                               \
        else if (exec->table->slot)                                                                          \
            TRY(dryrun_outcome(exec->stream, exec->table->slot(exec->stream, __VA_ARGS__)));                 \
        return measure_stop(exec, id, start_, flops, bytes);                                                 \
    } while (0)

#endif
