/* What groups over NCCL have in common: communicators with a stream each, the operations on them, and a
 * thread that watches both.
 *
 * A link is a communicator and a stream. An operation runs on that stream after an event of the caller's
 * stream and records an event at its end, so the host never waits for it. Communicators block: without
 * connections to make, NCCL starts an operation at once, while a communicator that does not block would start
 * a thread for each. So a call can block the caller, as can any call of CUDA's when a device waits for a rank
 * that does not answer. Therefore a thread watches the operations, for the watchdog of the ranks. */
#ifndef WEFT_COMM_CUDA_NET_H
#define WEFT_COMM_CUDA_NET_H

#include <nccl.h>
#include <pthread.h>

#include "comm/watchdog.h"
#include "device/cuda/cuda.h"

typedef struct Nccl {
    ncclResult_t (*version)(int *version);
    ncclResult_t (*unique_id)(ncclUniqueId *id);
    ncclResult_t (*init)(ncclComm_t *comm, int size, ncclUniqueId id, int rank);
    ncclResult_t (*split)(ncclComm_t comm, int color, int key, ncclComm_t *ret_comm, ncclConfig_t *config);
    ncclResult_t (*destroy)(ncclComm_t comm);
    ncclResult_t (*give_up)(ncclComm_t comm);
    ncclResult_t (*state)(ncclComm_t comm, ncclResult_t *ret_state);
    ncclResult_t (*all_reduce)(const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*reduce_scatter)(const void *src, void *dst, size_t count, ncclDataType_t type,
                                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*all_gather)(const void *src, void *dst, size_t count, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream);
    ncclResult_t (*broadcast)(const void *src, void *dst, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*send)(const void *src, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                         cudaStream_t stream);
    ncclResult_t (*receive)(void *dst, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                            cudaStream_t stream);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    const char *(*error)(ncclResult_t result);
    const char *(*last_error)(ncclComm_t comm);
} Nccl;

MUST_USE Status nccl_open(Nccl *ret_nccl);

/* An operation, from its start until it is complete and its ticket was waited for. */
typedef struct NetOp {
    cudaEvent_t before; /* the caller's earlier work */
    cudaEvent_t after;  /* the end of the operation */
    CommLabel label;
    const CommNames *names;
    Trace *trace; /* may be NULL */
    StreamSpan span;
    bool launched, waited;
} NetOp;

typedef struct Net Net;

typedef struct Link {
    struct Link *next;
    ncclComm_t comm;
    Stream *stream;
    NetOp *op; /* a ring: operation n is at n % capacity */
    size_t capacity;
    uint64_t head, tail; /* the oldest operation that is not forgotten; the number of the next one */
    uint64_t id;
    uint64_t seen;     /* the oldest operation that the thread has not seen complete */
    double seen_since; /* when it first saw it run; 0: not yet */
} Link;

/* Shared by a group and its splits. */
struct Net {
    Nccl nccl;
    Device *device;
    Buffer bytes; /* of messages that only connect */
    int users;
    uint64_t links; /* made so far */
    bool batch;
    pthread_mutex_t lock; /* of the rest, and of the links' operations; never held during a call of CUDA's or
                             NCCL's that can block */
    pthread_cond_t changed;
    pthread_t thread;
    bool threaded, quitting, looking;
    Link *first;
    bool broken;         /* communicators were given up */
    const char *calling; /* what the caller does in NCCL; NULL: nothing */
    uint64_t calls;
    DeviceWait seen; /* by the thread, at the time looked_at */
    double looked_at;
    char *error;
};

/* Starts the thread. The device must outlive the net. */
MUST_USE Status net_new(Net **ret_net, Device *device);
/* Frees the net with its last user. */
void net_leave(Net *net);
/* For DeviceWatch. */
void net_look(void *net, DeviceWait *ret_wait);
/* Gives up all communicators if operations are in flight that do not end: a rank has failed. */
void net_drop(Net *net);

/* A call that may wait for other ranks, between the two. `what` must be static. */
void net_call(Net *net, const char *what);
MUST_USE Status net_called(Net *net, ncclResult_t result);

/* A new communicator of all ranks, or of the ranks with the same color; NCCL_SPLIT_NOCOLOR: *ret_link is
 * NULL. Collective over the ranks of the id or the parent. */
MUST_USE Status link_new(Net *net, Link **ret_link, int size, ncclUniqueId id, int rank);
MUST_USE Status link_split(Net *net, Link *parent, int color, int key, Link **ret_link);
void link_free(Net *net, Link *link);

/* Begins an operation on the link after the work on `stream`: the link's stream waits. Between begin and end,
 * the caller calls NCCL. In a batch, operations are launched by net_batch. */
MUST_USE Status link_begin(Net *net, Link *link, const Group *group, const Stream *stream,
                           uint64_t *ret_number);
MUST_USE Status link_end(Net *net, Link *link, uint64_t number, ncclResult_t result);
MUST_USE Status net_batch(Net *net, bool begins);
/* Makes the stream wait for an operation. */
MUST_USE Status link_wait(Net *net, Link *link, uint64_t number, const Stream *stream);

#endif
