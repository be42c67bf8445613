/* What is asked of a device, mostly one on paper (device_new_dryrun), written down in order: kernels and
 * collectives with their sizes, copies, waits. How long a run takes follows from it (plan/time.h), so the
 * list is made where the run itself passes: by the functions of kernels.h, by the groups on paper and by the
 * runner. */
#ifndef WEFT_DEVICE_OP_LOG_H
#define WEFT_DEVICE_OP_LOG_H

#include <stdint.h>

#include "base/status.h"

typedef enum {
    OP_KERNEL, /* what: its KernelId */
    OP_ZERO,
    OP_COPY,   /* what: its CopyKind */
    OP_SYNC,   /* the host waits for what is on the stream */
    OP_JOIN,   /* the stream waits for another one, `other` */
    OP_START,  /* of an operation of `other`, a group; what: its CommKind */
    OP_WAIT,   /* for operation `number` of the group `other` */
    OP_ACTION, /* of the schedule; what: its ActionKind, size: micro-batch and chunk. From here on... */
    OP_END,    /* ...to here; after the schedule's last */
} OpKind;

enum { OP_SIZES = 3 };

typedef struct OpRecord {
    OpKind kind;
    int what;
    bool act;              /* a product with an activation or its slope; attention with dropout */
    const void *stream;    /* on which it is */
    const void *other;     /* see the kind */
    uint64_t number;       /* of an operation of its group */
    double flops, bytes;   /* as the kernel's profile counts them; of a collective, all of the tensor's */
    double size[OP_SIZES]; /* products: M, N, K; attention: heads x sequences, positions, width of a
    head; losses: rows, vocabulary; updates: parameters */
    double seconds;        /* that a kernel took, where a profile measures it; else 0 */
} OpRecord;

typedef struct OpLog {
    OpRecord *note;
    size_t count, capacity;
    double size[OP_SIZES]; /* of the kernel that is about to be noted */
    bool act;
} OpLog;

void op_log_done(OpLog *op_log);
/* Does nothing where there is no ledger (NULL). */
MUST_USE Status op_log_add(OpLog *op_log, OpRecord note);
/* Says more of the next kernel. */
static inline void op_log_size(OpLog *op_log, int64_t a, int64_t b, int64_t c, bool act) {
    if (!op_log) return;
    op_log->size[0] = (double)a;
    op_log->size[1] = (double)b;
    op_log->size[2] = (double)c;
    op_log->act = act;
}
MUST_USE Status op_log_kernel(OpLog *op_log, const void *stream, int kernel, double flops, double bytes,
                              double seconds);

#endif
