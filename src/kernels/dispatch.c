/* Checks and timing for the functions of kernels.h. A failed check is a bug in the caller, not a user error,
 * so each message starts with "internal:". */
#include "kernels/dispatch.h"

#include "base/clock.h"
#include "kernels/backend.h"

enum { SHAPE_TEXT = 160 };

/* "fp32 (2, 3)", or "absent" for TENSOR_NONE. */
static const char *describe(Tensor tensor, char text[SHAPE_TEXT]) {
    if (tensor.ndim < 1 || tensor.ndim > TENSOR_DIMS) {
        snprintf(text, SHAPE_TEXT, "absent");
        return text;
    }
    int used = snprintf(text, SHAPE_TEXT, "%s%s (", tensor.data ? "" : "NULL data for ",
                        tensor.dtype < DT_COUNT ? dtype_name(tensor.dtype) : "?");
    for (int i = 0; i < tensor.ndim && used < SHAPE_TEXT; i++)
        used += snprintf(text + used, SHAPE_TEXT - (size_t)used, "%s%lld", i ? ", " : "",
                         (long long)tensor.dim[i]);
    if (used < SHAPE_TEXT) snprintf(text + used, SHAPE_TEXT - (size_t)used, ")");
    return text;
}

static bool is_valid(Tensor tensor) {
    if (tensor.ndim < 1 || tensor.ndim > TENSOR_DIMS) return false;
    for (int i = 0; i < tensor.ndim; i++)
        if (tensor.dim[i] < 0) return false;
    return tensor.data || tensor_count(tensor) == 0;
}

static bool is_float(Tensor tensor) {
    return is_valid(tensor) && (tensor.dtype == DT_F32 || tensor.dtype == DT_BF16 || tensor.dtype == DT_F16);
}

Status check_float(const char *kernel, const char *name, Tensor tensor) {
    char text[SHAPE_TEXT];
    if (is_float(tensor)) return OK;
    return FAILED("internal: %s: %s is %s; expected a floating-point tensor (fp32, bf16 or fp16)", kernel,
                  name, describe(tensor, text));
}

Status check_matrix(const char *kernel, const char *name, Tensor tensor, DType dtype, int64_t rows,
                    int64_t cols) {
    char text[SHAPE_TEXT];
    if (is_valid(tensor) && tensor.dtype == dtype && tensor_cols(tensor) == cols &&
        tensor_count(tensor) == rows * cols)
        return OK;
    return FAILED("internal: %s: %s is %s; expected %s (%lld, %lld)", kernel, name, describe(tensor, text),
                  dtype_name(dtype), (long long)rows, (long long)cols);
}

Status check_count(const char *kernel, const char *name, Tensor tensor, DType dtype, int64_t count) {
    char text[SHAPE_TEXT];
    if (is_valid(tensor) && tensor.dtype == dtype && tensor_count(tensor) == count) return OK;
    return FAILED("internal: %s: %s is %s; expected %lld elements of %s", kernel, name,
                  describe(tensor, text), (long long)count, dtype_name(dtype));
}

Status check_index(const char *kernel, const char *name, Tensor tensor, int64_t count) {
    return check_count(kernel, name, tensor, DT_I32, count);
}

Status check_like(const char *kernel, const char *name, Tensor tensor, Tensor like) {
    char text[SHAPE_TEXT], expected[SHAPE_TEXT];
    bool same = is_valid(tensor) && tensor.dtype == like.dtype && tensor.ndim == like.ndim;
    for (int i = 0; same && i < like.ndim; i++) same = tensor.dim[i] == like.dim[i];
    if (same) return OK;
    like.data = &like;
    return FAILED("internal: %s: %s is %s; expected %s", kernel, name, describe(tensor, text),
                  describe(like, expected));
}

Status check_dropout(const char *kernel, const Dropout *dropout, Tensor tensor) {
    char text[SHAPE_TEXT];
    if (!(dropout->p >= 0 && dropout->p < 1))
        return FAILED("internal: %s: dropout of %g; expected 0 <= p < 1", kernel, (double)dropout->p);
    if (dropout->p == 0) return OK;
    const int64_t *origin = dropout->origin, *extent = dropout->extent;
    if (dropout->step.data) TRY(check_count(kernel, "dropout.step", dropout->step, DT_I64, 1));
    if (tensor.ndim != 3)
        return FAILED("internal: %s: dropout on %s; expected (B, T, C)", kernel, describe(tensor, text));
    int64_t rows = dropout->rows;
    int64_t end = rows > 0 ? position_of(&dropout->at, rows - 1) + 1 : origin[1] + tensor.dim[1];
    if (origin[0] < 0 || origin[1] < 0 || origin[2] < 0 || rows < 0 || end > extent[0] ||
        origin[2] + tensor.dim[2] > extent[1])
        return FAILED("internal: %s: dropout on %s is outside the global extent of %lld x %lld", kernel,
                      describe(tensor, text), (long long)extent[0], (long long)extent[1]);
    return OK;
}

Status check_heads(const char *kernel, Tensor tensor, HeadRange heads, int64_t *ret_rows) {
    char text[SHAPE_TEXT];
    int64_t count = tensor.ndim > 1 ? tensor.dim[tensor.ndim - 2] : 1;
    if (heads.first < 0 || heads.count < (heads.first ? 1 : 0) || heads.first + heads.count > count)
        return FAILED("internal: %s: heads %lld to %lld of %s do not exist", kernel, (long long)heads.first,
                      (long long)(heads.first + heads.count - 1), describe(tensor, text));
    *ret_rows = heads.count ? tensor_rows(tensor) / count * heads.count : tensor_rows(tensor);
    return OK;
}

Status check_act(const char *kernel, Act act) {
    if ((int)act >= 0 && act < ACT_COUNT) return OK;
    return FAILED("internal: %s: unknown activation %d", kernel, (int)act);
}

Status kernels_check_rows(const char *kernel, const char *what, Tensor index, Tensor table) {
    const int32_t *at = tensor_i32(index);
    for (int64_t i = 0; index.data && table.data && i < tensor_count(index); i++)
        if (at[i] < 0 || at[i] >= tensor_rows(table))
            return FAILED("internal: %s: %s %d is out of range; expected 0 to %lld", kernel, what, at[i],
                          (long long)tensor_rows(table) - 1);
    return OK;
}

bool kernels_fp32(size_t count, const Tensor *tensors) {
    for (size_t i = 0; i < count; i++)
        if (tensors[i].data && tensors[i].dtype != DT_F32) return false;
    return true;
}

double bytes_of(size_t count, const Tensor *tensors) {
    double bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (tensors[i].data) bytes += (double)tensor_bytes(tensors[i]);
    return bytes;
}

Status dryrun_outcome(Stream *stream, Status status) {
    if (!stream->asked) return status;
    stream->asked = false;
    status_free(status);
    return OK;
}

/* The marks before and after a call that is timed ahead. The first marks belong to the runner. */
enum { FIRST_MARK = 4 };

_Static_assert(FIRST_MARK + 2 * PROFILE_AHEAD <= STREAM_MARKS, "a pair of marks per pending call");

static int mark_of(uint64_t call) {
    return FIRST_MARK + 2 * (int)(call % PROFILE_AHEAD);
}

static Status read_oldest(const Exec *exec) {
    Profile *profile = exec->profile;
    OpLog *op_log = exec->stream->device->op_log;
    const PendingCall *call = &profile->pending[profile->read % PROFILE_AHEAD];
    int mark = mark_of(profile->read++);
    double seconds = 0;
    TRY(stream_elapsed(call->stream, mark, mark + 1, &seconds));
    profile->kernel[call->id].seconds += seconds;
    if (op_log) op_log->record[call->record].seconds = seconds;
    return OK;
}

Status profile_finish(const Exec *exec) {
    while (exec->profile->read < exec->profile->started) TRY(read_oldest(exec));
    return OK;
}

Status measure_start(const Exec *exec, double *ret_start) {
    Profile *profile = exec->profile;
    if (!profile) return OK;
    if (profile->ahead) {
        if (profile->started - profile->read == PROFILE_AHEAD) TRY(read_oldest(exec));
        return stream_mark(exec->stream, mark_of(profile->started));
    }
    TRY(stream_sync(exec->stream));
    *ret_start = clock_wall();
    return OK;
}

Status measure_stop(const Exec *exec, KernelId id, double start, double flops, double bytes) {
    OpLog *op_log = exec->stream->device->op_log;
    Profile *profile = exec->profile;
    double seconds = 0;
    if (profile) {
        KernelStat *stat = &profile->kernel[id];
        if (profile->ahead) {
            TRY(stream_mark(exec->stream, mark_of(profile->started) + 1));
            profile->pending[profile->started++ % PROFILE_AHEAD] =
                (PendingCall){id, exec->stream, op_log ? op_log->count : 0};
        } else {
            TRY(stream_sync(exec->stream));
            seconds = clock_wall() - start;
        }
        stat->calls++;
        stat->seconds += seconds;
        stat->flops += flops;
        stat->bytes += bytes;
    }
    return op_log ? op_log_kernel(op_log, exec->stream, (int)id, flops, bytes, seconds) : OK;
}
