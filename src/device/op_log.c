#include "device/op_log.h"

#include <string.h>

#include "base/memory.h"

void op_log_done(OpLog *op_log) {
    free(op_log->record);
    *op_log = (OpLog){0};
}

Status op_log_add(OpLog *op_log, OpRecord record) {
    if (!op_log) return OK;
    TRY(mem_grow(&op_log->record, &op_log->capacity, op_log->count + 1, sizeof record));
    op_log->record[op_log->count++] = record;
    return OK;
}

Status op_log_kernel(OpLog *op_log, const void *stream, int kernel, double flops, double bytes,
                     double seconds) {
    OpRecord record = {.kind = OP_KERNEL,
                       .what = kernel,
                       .stream = stream,
                       .flops = flops,
                       .bytes = bytes,
                       .seconds = seconds,
                       .traits = op_log->traits};
    memcpy(record.size, op_log->size, sizeof record.size);
    memset(op_log->size, 0, sizeof op_log->size);
    op_log->traits = 0;
    return op_log_add(op_log, record);
}
