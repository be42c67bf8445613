/* A log of all operations of a device, mainly in dry runs (device_new_dryrun): kernels and collectives with
 * their sizes, copies, waits, in order. The planner derives step times from it (plan/time.h). Entries are
 * added by the real code path: the functions of kernels.h, dry-run groups and the runner. */
#ifndef WEFT_DEVICE_OP_LOG_H
#define WEFT_DEVICE_OP_LOG_H

#include <stdint.h>

#include "base/status.h"

typedef enum {
    OP_KERNEL, /* what: KernelId */
    OP_ZERO,
    OP_COPY,   /* what: CopyKind */
    OP_SYNC,   /* the host waits for the stream */
    OP_JOIN,   /* the stream waits for stream `other`, except its last `number` copies */
    OP_START,  /* a collective of group `other` starts; what: CommKind */
    OP_WAIT,   /* wait for operation `number` of group `other` */
    OP_ACTION, /* a schedule action begins; what: ActionKind; size: micro-batch, chunk */
    OP_END,    /* the schedule has ended */
} OpKind;

enum { OP_SIZES = 3 };

/* What makes a kernel slower than its sizes say, as bits. */
enum {
    OP_ACT = 1,        /* matmul with an activation or its derivative */
    OP_DROPOUT = 2,    /* attention and residuals */
    OP_PARTIAL = 4,    /* attention with shared keys, a window or documents, which cuDNN does not serve */
    OP_DELAYED = 8,    /* fp8 matmul with delayed scaling, which is faster: it reads operands once */
    OP_QUANTIZED = 16, /* fp8 matmul whose input is quantized already */
    OP_VARIANTS = 32   /* combinations of these bits */
};

typedef struct OpRecord {
    OpKind kind;
    int what;
    unsigned traits; /* OP_ACT and the like */
    const void *stream;
    const void *other;     /* see OpKind */
    uint64_t number;       /* see OpKind; of a collective: sequence number in its group */
    double flops, bytes;   /* as in the kernel profile; for a collective, the size of the full tensor */
    double size[OP_SIZES]; /* matmul: M, N, K; attention: heads x sequences, positions, head width; loss:
                            * rows, vocabulary; update: parameters; collective: bytes that this rank sends to
                            * other nodes and on its own */
    double seconds;        /* measured kernel time; 0 if not measured */
} OpRecord;

typedef struct OpLog {
    OpRecord *record;
    size_t count, capacity;
    double size[OP_SIZES]; /* for the next kernel */
    unsigned traits;
} OpLog;

void op_log_done(OpLog *op_log);
/* Does nothing if op_log is NULL. */
MUST_USE Status op_log_add(OpLog *op_log, OpRecord record);
/* Sets size and traits of the next kernel. */
static inline void op_log_size(OpLog *op_log, int64_t a, int64_t b, int64_t c, unsigned traits) {
    if (!op_log) return;
    op_log->size[0] = (double)a;
    op_log->size[1] = (double)b;
    op_log->size[2] = (double)c;
    op_log->traits = traits;
}
MUST_USE Status op_log_kernel(OpLog *op_log, const void *stream, int kernel, double flops, double bytes,
                              double seconds);

#endif
