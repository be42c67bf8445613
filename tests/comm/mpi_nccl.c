/* Tests groups over NCCL against groups over MPI: every operation and data type, tickets, batches, splits and
 * messages. With one GPU per rank each has its own; otherwise ranks share GPUs. Skipped without a GPU or
 * NCCL.
 *
 * Ranks: 1 2 3 4 */
#include "ranks.h"

#include <math.h>

#include "comm/nccl.h"
#include "device/registry.h"

typedef struct Rig {
    Device *device, *cpu;
    Stream *stream, *host_stream;
    Group *group; /* over NCCL */
    Group *host;  /* the same ranks over MPI */
    Buffer from, to;
    unsigned char *own, *expected, *found; /* in host memory */
} Rig;

enum { COUNT = 4 * 10007, BYTES = COUNT * sizeof(double) };

static int setup(void **state) {
    static Rig rig;
    CudaInfo info;
    char version[32], note[GPU_NOTE];
    GpuShare share;
    Group *world = NULL;
    *state = NULL;
    device_cuda_info(&info);
    Status missing = nccl_version(version, sizeof version);
    bool can = info.devices > 0 && !missing;
    status_free(missing);
    if (!can) return 0;
    setenv("WEFT_TEST_GROUPS", "nccl", 1);
    assert_ok(mpi_world_new(&world));
    assert_ok(group_split(world, 0, world->rank, GROUP_TENSORS, &rig.host));
    assert_ok(gpus_share(world, &share));
    assert_ok(device_new_cuda(&rig.device, share.index));
    assert_ok(device_new_cpu(&rig.cpu, 1));
    assert_ok(stream_new(&rig.stream, rig.device));
    assert_ok(stream_new(&rig.host_stream, rig.cpu));
    if (world->size > 1)
        assert_ok(group_over_gpus(&rig.group, world, rig.device, &share, note));
    else
        assert_ok(group_new_nccl(&rig.group, world, rig.device));
    assert_string_equal(rig.group->ops->name, "nccl");
    assert_ok(dev_alloc(rig.device, MEM_COMM, BYTES, &rig.from));
    assert_ok(dev_alloc(rig.device, MEM_COMM, BYTES, &rig.to));
    rig.own = calloc(3, BYTES);
    assert_non_null(rig.own);
    rig.expected = rig.own + BYTES;
    rig.found = rig.expected + BYTES;
    *state = &rig;
    return 0;
}

static int teardown(void **state) {
    Rig *rig = *state;
    if (!rig) return 0;
    dev_free(&rig->from);
    dev_free(&rig->to);
    group_free(rig->host);
    group_free(rig->group);
    stream_free(rig->stream);
    stream_free(rig->host_stream);
    device_free(rig->device);
    device_free(rig->cpu);
    free(rig->own);
    return 0;
}

static Rig *rig_of(void **state) {
    if (!*state) skip();
    return *state;
}

/* Any bytes for types that are only moved; otherwise numbers whose sum depends on the order. */
static void fill(unsigned char *bytes, DType dtype, int rank, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        double value = sin((double)(i + 1) * (rank + 1.7));
        float single = (float)value;
        int32_t number = (int32_t)(1000 * value);
        int64_t wide = (int64_t)(1e12 * value);
        uint16_t half = dtype == DT_BF16 ? f32_to_bf16(single) : f32_to_f16(single);
        uint64_t bits = (uint64_t)(i * 7 + rank) * 0x0101010101010101;
        const void *const sources[DT_COUNT] = {[DT_F32] = &single, [DT_BF16] = &half,  [DT_F16] = &half,
                                               [DT_F64] = &value,  [DT_I32] = &number, [DT_I64] = &wide};
        size_t size = dtype_size(dtype);
        memcpy(bytes + (size_t)i * size, sources[dtype] ? sources[dtype] : (const void *)&bits, size);
    }
}

static double value_of(const unsigned char *bytes, DType dtype, int64_t i) {
    const void *at = bytes + (size_t)i * dtype_size(dtype);
    switch (dtype) {
    case DT_F32: return *(const float *)at;
    case DT_F64: return *(const double *)at;
    case DT_BF16: return bf16_to_f32(*(const uint16_t *)at);
    default: return f16_to_f32(*(const uint16_t *)at);
    }
}

/* Equal bits, except sums of floating-point numbers over more than two ranks. */
static void assert_result(Rig *rig, Tensor found, bool sums) {
    static const double tolerance[DT_COUNT] = {
        [DT_F32] = 1e-6, [DT_BF16] = 2e-2, [DT_F16] = 3e-3, [DT_F64] = 1e-14};
    assert_ok(stream_copy(rig->stream, rig->found, found.data, tensor_bytes(found), COPY_TO_HOST));
    assert_ok(stream_sync(rig->stream));
    if (!sums || tolerance[found.dtype] == 0 || rig->group->size < 3) {
        assert_memory_equal(rig->found, rig->expected, tensor_bytes(found));
        return;
    }
    for (int64_t i = 0; i < tensor_count(found); i++) {
        double got = value_of(rig->found, found.dtype, i), want = value_of(rig->expected, found.dtype, i);
        assert_true(fabs(got - want) <= tolerance[found.dtype] * rig->group->size);
    }
}

static Tensor on_device(Rig *rig, Buffer buffer, DType dtype, int64_t count) {
    assert_ok(
        stream_copy(rig->stream, buffer.data, rig->own, (size_t)count * dtype_size(dtype), COPY_TO_DEVICE));
    return tensor_1d(buffer.data, dtype, count);
}

static void check_reductions(Rig *rig, Group *group, Group *host, DType dtype, int64_t count, ReduceOp op) {
    int64_t part = count / group->size;
    Tensor want = tensor_1d(rig->expected, dtype, count);
    bool sums = op == REDUCE_SUM;
    fill(rig->own, dtype, group->rank, count);
    memcpy(rig->expected, rig->own, tensor_bytes(want));
    assert_ok(all_reduce(host, rig->host_stream, want, op, NULL));
    Tensor data = on_device(rig, rig->from, dtype, count);
    assert_ok(all_reduce(group, rig->stream, data, op, NULL));
    assert_result(rig, data, sums);
    memmove(rig->expected, rig->expected + (size_t)(group->rank * part) * dtype_size(dtype),
            (size_t)part * dtype_size(dtype));
    data = on_device(rig, rig->from, dtype, count);
    Tensor to = tensor_1d(rig->to.data, dtype, part);
    assert_ok(reduce_scatter(group, rig->stream, to, data, op, NULL));
    assert_result(rig, to, sums);
    Tensor inside = tensor_slice(data, group->rank * part, part);
    assert_ok(reduce_scatter(group, rig->stream, inside, data, op, NULL));
    assert_result(rig, inside, sums);
}

static void check_moves(Rig *rig, Group *group, Group *host, DType dtype, int64_t count) {
    int64_t part = count / group->size;
    size_t bytes = (size_t)part * dtype_size(dtype);
    fill(rig->own, dtype, group->rank, count);
    assert_ok(all_gather(host, rig->host_stream, tensor_1d(rig->expected, dtype, count),
                         tensor_1d(rig->own, dtype, part), NULL));
    Tensor all = tensor_1d(rig->to.data, dtype, count), own = on_device(rig, rig->from, dtype, part);
    assert_ok(all_gather(group, rig->stream, all, own, NULL));
    assert_result(rig, all, false);
    Tensor inside = tensor_slice(all, group->rank * part, part);
    assert_ok(stream_copy(rig->stream, inside.data, rig->own, bytes, COPY_TO_DEVICE));
    assert_ok(all_gather(group, rig->stream, all, inside, NULL));
    assert_result(rig, all, false);
    for (int root = 0; root < group->size; root++) {
        fill(rig->expected, dtype, root, count);
        Tensor data = on_device(rig, rig->from, dtype, count);
        assert_ok(broadcast(group, rig->stream, data, root, NULL));
        assert_result(rig, data, false);
    }
}

static void check_group(Rig *rig, Group *group, Group *host) {
    static const int64_t counts[] = {12, 12 * 800, COUNT / 12 * 12};
    for (DType dtype = DT_F32; dtype < DT_COUNT; dtype++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            for (ReduceOp op = REDUCE_SUM; dtype < DT_U8 && op <= REDUCE_MAX; op++)
                check_reductions(rig, group, host, dtype, counts[i], op);
            if (i < 2) check_moves(rig, group, host, dtype, counts[i]);
        }
}

static void test_collectives(void **state) {
    Rig *rig = rig_of(state);
    check_group(rig, rig->group, rig->host);
}

/* Waits for concurrent operations in a different order than they started; more of them than the ring of
 * operations has room for at first. */
static void test_tickets(void **state) {
    enum { MANY = 200 };
    Rig *rig = rig_of(state);
    Group *group = rig->group;
    int64_t waited = group_waited(group), part = 120, count = part * group->size;
    for (int round = 0; round < 3; round++) {
        Ticket ticket[MANY];
        fill(rig->own, DT_I32, group->rank, count);
        Tensor data = on_device(rig, rig->from, DT_I32, count), all = tensor_1d(rig->to.data, DT_I32, count);
        memcpy(rig->expected, rig->own, tensor_bytes(data));
        for (int i = 0; i < MANY; i++)
            assert_ok(i % 2 ? all_reduce(group, rig->stream, data, REDUCE_MAX, &ticket[i])
                            : all_gather(group, rig->stream, all, tensor_slice(data, 0, part), &ticket[i]));
        for (int i = MANY - 1; i >= 0; i--) assert_ok(ticket_wait(rig->stream, &ticket[i]));
        assert_null(ticket[0].group);
        assert_ok(all_reduce(rig->host, rig->host_stream, tensor_1d(rig->expected, DT_I32, count), REDUCE_MAX,
                             NULL));
        assert_result(rig, data, false);
    }
    int64_t after = group_waited(group); /* in nanoseconds: less than the test's duration */
    assert_true(after >= waited && after - waited < 600000000000);
}

static void test_batch(void **state) {
    Rig *rig = rig_of(state);
    Ticket batched[2];
    fill(rig->own, DT_I64, rig->group->rank, COUNT);
    Tensor a = on_device(rig, rig->from, DT_I64, COUNT), b = on_device(rig, rig->to, DT_I64, COUNT);
    assert_ok(comm_batch_begin(rig->group));
    assert_ok(all_reduce(rig->group, rig->stream, a, REDUCE_SUM, &batched[0]));
    assert_ok(all_reduce(rig->group, rig->stream, b, REDUCE_MAX, &batched[1]));
    assert_ok(comm_batch_end(rig->group));
    for (int i = 0; i < 2; i++) assert_ok(ticket_wait(rig->stream, &batched[i]));
    for (int i = 0; i < 2; i++) {
        memcpy(rig->expected, rig->own, tensor_bytes(a));
        assert_ok(all_reduce(rig->host, rig->host_stream, tensor_1d(rig->expected, DT_I64, COUNT),
                             i ? REDUCE_MAX : REDUCE_SUM, NULL));
        assert_result(rig, i ? b : a, true);
    }
}

/* Every rank sends to all others and receives from all: in one batch, or in batches of different directions
 * on the two sides of a pair. */
static void swap(Rig *rig, Group *group, DType dtype, bool lopsided) {
    enum { PART = 700 };
    Ticket ticket[8];
    int tickets = 0, size = group->size;
    fill(rig->own, dtype, group->rank, PART);
    Tensor own = on_device(rig, rig->from, dtype, PART), all = tensor_1d(rig->to.data, dtype, PART * size);
    assert_ok(comm_batch_begin(group));
    for (int turn = 0; turn < 2; turn++) {
        for (int k = 1; k < size; k++) {
            int to = (group->rank + k) % size, from = (group->rank + size - k) % size;
            bool sends_now = !lopsided || (group->rank < to) == !turn;
            bool receives_now = !lopsided || (from < group->rank) == !turn;
            if (turn && !lopsided) continue;
            if (sends_now) assert_ok(comm_send(group, rig->stream, own, to, &ticket[tickets++]));
            if (receives_now)
                assert_ok(comm_receive(group, rig->stream, tensor_slice(all, from * PART, PART), from,
                                       &ticket[tickets++]));
        }
        if (turn) break;
        assert_ok(comm_batch_end(group));
        assert_ok(comm_batch_begin(group));
    }
    assert_ok(comm_batch_end(group));
    for (int i = 0; i < tickets; i++) assert_ok(ticket_wait(rig->stream, &ticket[i]));
    for (int r = 0; r < size; r++) {
        fill(rig->expected, dtype, r, PART);
        if (r != group->rank) assert_result(rig, tensor_slice(all, r * PART, PART), false);
    }
}

/* What rank `from` has for rank `to`, of parts of up to `part` elements: any number of elements, also 0. */
static int64_t uneven(int64_t part, int from, int to) {
    return part * ((from + 3 * to) % 4) / 4;
}

/* Exchanges `count` elements, or as many as `uneven` says, twice in flight, and as a batch if `batched`. */
static void check_all_to_all(Rig *rig, Group *group, Group *host, DType dtype, int64_t count, bool even,
                             bool batched) {
    int64_t in[4], out[4], sends = 0, receives = 0, part = count / group->size;
    for (int r = 0; r < group->size; r++) {
        sends += out[r] = even ? part : uneven(part, group->rank, r);
        receives += in[r] = even ? part : uneven(part, r, group->rank);
    }
    fill(rig->own, dtype, group->rank, sends);
    assert_ok(all_to_all(host, rig->host_stream, tensor_1d(rig->expected, dtype, receives),
                         tensor_1d(rig->own, dtype, sends), even ? NULL : in, even ? NULL : out, NULL));
    Tensor src = on_device(rig, rig->from, dtype, sends), dst[2];
    Ticket ticket[2];
    for (int i = 0; i < 2; i++) dst[i] = tensor_1d((char *)rig->to.data + i * BYTES / 2, dtype, receives);
    if (batched) assert_ok(comm_batch_begin(group));
    for (int i = 0; i < 2; i++)
        assert_ok(
            all_to_all(group, rig->stream, dst[i], src, even ? NULL : in, even ? NULL : out, &ticket[i]));
    if (batched) assert_ok(comm_batch_end(group));
    for (int i = 0; i < 2; i++) assert_ok(ticket_wait(rig->stream, &ticket[i]));
    for (int i = 0; i < 2; i++) assert_result(rig, dst[i], false);
}

/* Before a group is connected through host memory, then between all pairs. */
static void test_all_to_all(void **state) {
    Rig *rig = rig_of(state);
    static const int64_t counts[] = {0, 12, 12 * 800, COUNT / 24 * 12};
    CLEANUP(group_freep) Group *group = NULL, *pair = NULL, *pair_host = NULL;
    assert_ok(group_split(rig->group, 0, rig->group->rank, GROUP_TENSORS, &group));
    for (int connected = 0; connected < 2; connected++) {
        if (connected) assert_ok(group_connect(group, EVERY_RANK));
        for (DType dtype = DT_F32; dtype < DT_COUNT; dtype++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                for (int even = 0; even < 2; even++)
                    check_all_to_all(rig, group, rig->host, dtype, counts[i], even, connected && i % 2);
    }
    /* What is counted is the same as over MPI. */
    assert_int_equal(comm_bytes_sum(group->sent[COMM_ALL_TO_ALL]),
                     2 * comm_bytes_sum(rig->host->sent[COMM_ALL_TO_ALL]));
    int rank = rig->group->rank;
    assert_ok(group_split(rig->group, rank / 2, -rank, GROUP_TENSORS, &pair));
    assert_ok(group_split(rig->host, rank / 2, -rank, GROUP_TENSORS, &pair_host));
    assert_ok(group_connect(pair, EVERY_RANK));
    check_all_to_all(rig, pair, pair_host, DT_BF16, 1200, false, false);
    check_all_to_all(rig, rig->group, rig->host, DT_F32, 1200, true, false); /* alone, still over NCCL */
}

static void test_messages(void **state) {
    Rig *rig = rig_of(state);
    for (int connected = 0; connected < 2; connected++) {
        if (connected) assert_ok(group_connect(rig->group, EVERY_RANK));
        for (DType dtype = DT_F32; dtype < DT_COUNT; dtype++) swap(rig, rig->group, dtype, dtype % 2);
    }
}

/* Neighbors of a ring: a receive that was posted first does not hold up a send, in either direction. */
static void pass_around(Rig *rig, Group *ring) {
    enum { PART = 5000, ROUNDS = 6 };
    int size = ring->size, next = (ring->rank + 1) % size, previous = (ring->rank + size - 1) % size;
    for (int round = 0; round < ROUNDS; round++) {
        int from = round % 2 ? next : previous, to = round % 2 ? previous : next;
        Ticket in, out;
        fill(rig->own, DT_F32, ring->rank, PART);
        Tensor own = on_device(rig, rig->from, DT_F32, PART), got = tensor_1d(rig->to.data, DT_F32, PART);
        assert_ok(comm_receive(ring, rig->stream, got, from, &in));
        assert_ok(comm_send(ring, rig->stream, own, to, &out));
        assert_ok(ticket_wait(rig->stream, &out));
        assert_ok(ticket_wait(rig->stream, &in));
        fill(rig->expected, DT_F32, from, PART);
        assert_result(rig, got, false);
    }
}

static void test_ring(void **state) {
    Rig *rig = rig_of(state);
    CLEANUP(group_freep) Group *whole = NULL, *pair = NULL;
    assert_ok(group_split(rig->group, 0, rig->group->rank, GROUP_RING, &whole));
    if (whole->size > 1) pass_around(rig, whole);
    assert_ok(group_split(rig->group, rig->group->rank / 2, rig->group->rank, GROUP_RING, &pair));
    if (pair->size > 1) pass_around(rig, pair);
    assert_ok(barrier(rig->group));
}

/* Splits of splits, with ranks in another order, and of different sizes. */
static void test_splits(void **state) {
    Rig *rig = rig_of(state);
    int rank = rig->group->rank;
    const int colors[][2] = {{0, -rank}, {rank % 2, rank}, {rank > 0, rank}};
    for (size_t i = 0; i < sizeof colors / sizeof *colors; i++) {
        CLEANUP(group_freep) Group *part = NULL, *host = NULL, *inner = NULL, *control = NULL;
        assert_ok(group_split(rig->group, colors[i][0], colors[i][1], GROUP_TENSORS, &part));
        assert_ok(group_split(rig->host, colors[i][0], colors[i][1], GROUP_TENSORS, &host));
        assert_int_equal(part->size, host->size);
        assert_int_equal(part->rank, host->rank);
        if (part->size > 1) {
            check_reductions(rig, part, host, DT_F32, 1200, REDUCE_SUM);
            check_moves(rig, part, host, DT_BF16, 1200);
        }
        assert_ok(group_split(part, 0, -part->rank, GROUP_TENSORS, &inner));
        assert_ok(group_split(part, 0, part->rank, GROUP_HOST, &control));
        double value = part->rank + 1;
        assert_ok(host_reduce(control, &value, 1, DT_F64, REDUCE_SUM));
        assert_true(value == part->size * (part->size + 1) / 2.0);
        fill(rig->own, DT_I32, part->rank, 100);
        fill(rig->expected, DT_I32, part->size - 1, 100);
        Tensor data = on_device(rig, rig->from, DT_I32, 100);
        assert_ok(broadcast(inner, rig->stream, data, 0, NULL));
        assert_result(rig, data, false);
    }
}

static void test_host(void **state) {
    Rig *rig = rig_of(state);
    double value = 3, all[4];
    int size = rig->group->size;
    assert_ok(host_reduce(rig->group, &value, 1, DT_F64, REDUCE_SUM));
    assert_true(value == 3.0 * size);
    value = rig->group->rank;
    assert_ok(host_gather(rig->group, all, &value, sizeof value));
    for (int r = 0; r < size; r++) assert_true(all[r] == r);
    assert_ok(host_broadcast(rig->group, &value, sizeof value, size - 1));
    assert_true(value == size - 1);
    assert_ok(barrier(rig->group));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_collectives), cmocka_unit_test(test_tickets),
                                       cmocka_unit_test(test_batch),       cmocka_unit_test(test_messages),
                                       cmocka_unit_test(test_ring),        cmocka_unit_test(test_splits),
                                       cmocka_unit_test(test_host),        cmocka_unit_test(test_all_to_all)};
    ranks_prepare();
    if (getenv("WEFT_TEST_FILTER")) cmocka_set_test_filter(getenv("WEFT_TEST_FILTER"));
    return cmocka_run_group_tests(tests, setup, teardown);
}
