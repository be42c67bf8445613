/* What the functions of kernels.h are made of: checks of shapes, and the measured call of a slot. */
#ifndef WEFT_KERNELS_DISPATCH_H
#define WEFT_KERNELS_DISPATCH_H

#include "kernels/kernels.h"

/* Each check fails with one sentence that names the kernel, the tensor, what it is and what was
 * expected. A tensor with data NULL passes only where its shape has no elements. */

/* Of a floating type that kernels compute in: fp32, bf16 or fp16. */
MUST_USE Status check_float(const char *kernel, const char *name, Tensor tensor);
/* `rows` x `cols` of a type, with leading dims taken together. */
MUST_USE Status check_matrix(const char *kernel, const char *name, Tensor tensor, DType dtype, int64_t rows,
                             int64_t cols);
/* `count` elements of a type in any shape. */
MUST_USE Status check_count(const char *kernel, const char *name, Tensor tensor, DType dtype, int64_t count);
/* int32, `count` elements in any shape. */
MUST_USE Status check_index(const char *kernel, const char *name, Tensor tensor, int64_t count);
/* Exactly the type and shape of `like`, whose data is not looked at. */
MUST_USE Status check_like(const char *kernel, const char *name, Tensor tensor, Tensor like);
/* p in [0, 1) and, when on, (b, t, c) within the global extent. */
MUST_USE Status check_dropout(const char *kernel, const Dropout *dropout, Tensor tensor);
MUST_USE Status check_act(const char *kernel, Act act);

#define CHECK_FLOAT(tensor) TRY(check_float(__func__, #tensor, tensor))
#define CHECK_MATRIX(tensor, dtype, rows, cols)                                                              \
    TRY(check_matrix(__func__, #tensor, tensor, dtype, rows, cols))
#define CHECK_COUNT(tensor, dtype, count) TRY(check_count(__func__, #tensor, tensor, dtype, count))
#define CHECK_INDEX(tensor, count)        TRY(check_index(__func__, #tensor, tensor, count))
#define CHECK_LIKE(tensor, like)          TRY(check_like(__func__, #tensor, tensor, like))

/* Bytes of the tensors that are not none. */
double bytes_of(size_t count, const Tensor *tensors);
#define BYTES(...) bytes_of(sizeof((Tensor[]){__VA_ARGS__}) / sizeof(Tensor), (Tensor[]){__VA_ARGS__})

MUST_USE Status measure_start(const Exec *exec, double *ret_start);
MUST_USE Status measure_stop(const Exec *exec, KernelId id, double start, double flops, double bytes);

/* A slot's outcome on paper, where asking for the workspace ends it. */
MUST_USE Status dryrun_outcome(Stream *stream, Status status);

/* On paper, says more of the call that is about to run; see Note. */
#define SIZES(a, b, c, act) op_log_size(exec->stream->device->op_log, a, b, c, act)

/* Runs the slot and returns; with a profile, counts the call, and on paper notes it. */
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
