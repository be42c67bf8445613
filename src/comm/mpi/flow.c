/* Operations and their flows: posting and completing chunks. */
#include "base/memory.h"
#include "comm/mpi/traffic.h"

Status op_add_flows(Op *op, int flows, int messages) {
    op->flow_count = flows;
    op->messages = messages;
    op->requests = flows * WINDOW * messages;
    if (flows == 0) return OK;
    TRY(mem_new((size_t)flows, sizeof *op->flow, &op->flow));
    TRY(mem_new((size_t)op->requests, sizeof *op->request, &op->request));
    TRY(mem_new((size_t)op->requests, sizeof *op->index, &op->index));
    for (int i = 0; i < op->requests; i++) op->request[i] = MPI_REQUEST_NULL;
    return OK;
}

Status op_new(Op **ret_op, Group *group, Device *device, int flows) {
    CLEANUP(op_freep) Op *op = NULL;
    TRY(mem_new(1, sizeof *op, &op));
    op->group = group;
    op->device = device;
    op->comm = ((MpiGroup *)group->impl)->comm;
    op->peers = group->size - 1;
    op->step = op_step_move;
    TRY(mem_new(2 * (size_t)group->size, sizeof *op->exchange.source, &op->exchange.source));
    TRY(op_add_flows(op, flows, 1));
    return MOVE(ret_op, op);
}

void op_free(Op *op) {
    if (!op) return;
    dev_free(&op->buffer);
    free(op->flow);
    free(op->request);
    free(op->index);
    free(op->exchange.source);
    free(op);
}

void flow_set(Flow *flow, int peer, int tag, bool sends, void *base, int64_t bytes, int64_t piece) {
    int64_t count = (bytes + piece - 1) / piece;
    *flow = (Flow){.peer = peer,
                   .tag = tag,
                   .sends = sends,
                   .base = base,
                   .bytes = bytes,
                   .piece = piece,
                   .count = count,
                   .shorts = count,
                   .limit = count};
}

/* The requests of a chunk. */
static MPI_Request *requests_of(const Op *op, const Flow *flow, int64_t chunk) {
    int64_t slot = (flow - op->flow) * WINDOW + chunk % WINDOW;
    return op->request + slot * op->messages;
}

static int flow_post(const Op *op, Flow *flow) {
    int64_t at = flow->posted * flow->piece, left = flow->bytes - at;
    int64_t bytes = left < flow->piece ? left : flow->piece;
    int64_t most = op->messages > 1 && flow->posted < flow->shorts ? MESSAGE : bytes;
    int64_t slot = (int64_t)((flow->turn + (uint64_t)flow->posted) % WINDOW);
    char *data = flow->base + (flow->stride ? slot * flow->stride : at);
    MPI_Request *request = requests_of(op, flow, flow->posted++);
    int code = 0;
    for (int64_t done = 0; done < bytes && !code; done += most, request++) {
        int count = (int)(bytes - done < most ? bytes - done : most);
        code = flow->sends
                   ? MPI_Isend(data + done, count, MPI_BYTE, flow->peer, flow->tag, op->comm, request)
                   : MPI_Irecv(data + done, count, MPI_BYTE, flow->peer, flow->tag, op->comm, request);
    }
    return code;
}

static bool chunk_done(const Op *op, const Flow *flow, int64_t chunk) {
    const MPI_Request *request = requests_of(op, flow, chunk);
    for (int i = 0; i < op->messages; i++)
        if (request[i] != MPI_REQUEST_NULL) return false;
    return true;
}

bool flows_move(Traffic *traffic, Op *op) {
    int taken = 0, code = 0;
    bool moved = false;
    if (op->flow_count == 0) return false;
    code = MPI_Testsome(op->requests, op->request, &taken, op->index, MPI_STATUSES_IGNORE);
    if (taken != MPI_UNDEFINED && taken > 0) moved = true;
    for (int i = 0; i < op->flow_count && !code; i++) {
        Flow *flow = &op->flow[i];
        while (flow->done < flow->posted && chunk_done(op, flow, flow->done)) flow->done++;
        while (flow->posted < flow->limit && flow->posted < flow->done + WINDOW && !code) {
            code = flow_post(op, flow);
            moved = true;
        }
    }
    if (code && !traffic->error) traffic->error = code;
    return moved;
}

bool flows_done(const Op *op) {
    for (int i = 0; i < op->flow_count; i++)
        if (op->flow[i].done < op->flow[i].count) return false;
    return true;
}

bool op_step_move(Traffic *traffic, Op *op) {
    bool moved = flows_move(traffic, op);
    op->done = flows_done(op);
    return moved;
}
