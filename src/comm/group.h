/* A group of ranks that compute together, behind one table of operations. `comm/self.c` is the group
 * of one that every axis uses until there are more ranks; with it each collective is a no-op or a
 * copy, so code above never asks how many ranks there are. Bytes that leave a rank are counted. */
#ifndef WEFT_COMM_GROUP_H
#define WEFT_COMM_GROUP_H

#include "device/device.h"
#include "tensor/tensor.h"

typedef enum { REDUCE_SUM, REDUCE_MAX } ReduceOp;

typedef struct Group Group;

typedef struct GroupOps {
    const char *name;
    Status (*all_reduce)(Group *group, Stream *stream, Tensor data, ReduceOp op); /* in place */
    /* dst = this rank's part of the sum of src; src has size times as many elements as dst. */
    Status (*reduce_scatter)(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op);
    Status (*all_gather)(Group *group, Stream *stream, Tensor dst, Tensor src);
    Status (*broadcast)(Group *group, Stream *stream, Tensor data, int root);
    Status (*barrier)(Group *group);
    void (*free)(Group *group);
} GroupOps;

struct Group {
    const GroupOps *ops;
    int rank, size;
    uint64_t bytes_sent;
    void *impl;
};

MUST_USE Status group_new_self(Group **ret_group);
void group_free(Group *group);
DEFINE_FREEP(Group, group)

MUST_USE Status all_reduce(Group *group, Stream *stream, Tensor data, ReduceOp op);
MUST_USE Status reduce_scatter(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op);
MUST_USE Status all_gather(Group *group, Stream *stream, Tensor dst, Tensor src);
MUST_USE Status broadcast(Group *group, Stream *stream, Tensor data, int root);
MUST_USE Status barrier(Group *group);

#endif
