/* Tests the NCCL backend in a group of one rank: every operation and data type, tickets, batches and splits.
 * Skipped without a GPU or NCCL. Needs a single GPU, so transfers between ranks are not covered. */
#include "test.h"

#include "comm/nccl.h"
#include "device/registry.h"

typedef struct Rig {
    Device *device;
    Stream *stream;
    Group *group;
    Buffer from, to;
} Rig;

enum { COUNT = 10007 };

static int setup(void **state) {
    static Rig rig;
    CudaInfo info;
    char version[32];
    *state = NULL;
    device_cuda_info(&info);
    Status missing = nccl_version(version, sizeof version);
    bool can = info.devices > 0 && !missing;
    status_free(missing);
    if (!can) return 0;
    Group *self = NULL;
    assert_ok(device_new_cuda(&rig.device, 0));
    assert_ok(stream_new(&rig.stream, rig.device));
    assert_ok(group_new_self(&self));
    assert_ok(group_new_nccl(&rig.group, self, rig.device));
    assert_ok(dev_alloc(rig.device, MEM_COMM, COUNT * sizeof(double), &rig.from));
    assert_ok(dev_alloc(rig.device, MEM_COMM, COUNT * sizeof(double), &rig.to));
    *state = &rig;
    return 0;
}

static int teardown(void **state) {
    Rig *rig = *state;
    if (!rig) return 0;
    dev_free(&rig->from);
    dev_free(&rig->to);
    group_free(rig->group);
    stream_free(rig->stream);
    device_free(rig->device);
    return 0;
}

static Rig *rig_of(void **state) {
    if (!*state) skip();
    return *state;
}

static Tensor as_tensor(Buffer buffer, DType dtype) {
    return tensor_1d(buffer.data, dtype, COUNT);
}

/* Fills `from` with values that every data type represents exactly, also returned in `bytes`, and zeroes
 * `to`. */
static void start(Rig *rig, DType dtype, unsigned char *bytes) {
    size_t size = dtype_size(dtype);
    double value[COUNT];
    for (int i = 0; i < COUNT; i++) value[i] = i % 100;
    for (size_t i = 0; i < COUNT; i++) {
        float single = (float)value[i];
        int32_t number = i % 100;
        int64_t wide = i % 100;
        uint16_t half = dtype == DT_BF16 ? f32_to_bf16(single) : f32_to_f16(single);
        uint8_t byte = (uint8_t)(i % 100);
        const void *const sources[DT_COUNT] = {[DT_F32] = &single,   [DT_BF16] = &half,  [DT_F16] = &half,
                                               [DT_F64] = &value[i], [DT_I32] = &number, [DT_I64] = &wide};
        if (!sources[dtype]) assert_int_equal(size, 1);
        memcpy(bytes + i * size, sources[dtype] ? sources[dtype] : &byte, size);
    }
    assert_ok(stream_copy(rig->stream, rig->from.data, bytes, COUNT * size, COPY_TO_DEVICE));
    assert_ok(stream_zero(rig->stream, rig->to.data, rig->to.bytes));
}

static void assert_contents(Rig *rig, Buffer buffer, DType dtype, const unsigned char *bytes) {
    static unsigned char found[COUNT * sizeof(double)];
    assert_ok(stream_copy(rig->stream, found, buffer.data, COUNT * dtype_size(dtype), COPY_TO_HOST));
    assert_ok(stream_sync(rig->stream));
    assert_memory_equal(found, bytes, COUNT * dtype_size(dtype));
}

static void test_collectives(void **state) {
    static unsigned char bytes[COUNT * sizeof(double)];
    Rig *rig = rig_of(state);
    for (DType dtype = DT_F32; dtype < DT_COUNT; dtype++) {
        Tensor from = as_tensor(rig->from, dtype), to = as_tensor(rig->to, dtype);
        start(rig, dtype, bytes);
        if (dtype < DT_U8) {
            assert_ok(all_reduce(rig->group, rig->stream, from, REDUCE_SUM, NULL));
            assert_ok(all_reduce(rig->group, rig->stream, from, REDUCE_MAX, NULL));
            assert_ok(reduce_scatter(rig->group, rig->stream, to, from, REDUCE_SUM, NULL));
            assert_contents(rig, rig->to, dtype, bytes);
            assert_ok(stream_zero(rig->stream, rig->to.data, rig->to.bytes));
        }
        assert_ok(all_gather(rig->group, rig->stream, to, from, NULL));
        assert_ok(broadcast(rig->group, rig->stream, to, 0, NULL));
        assert_contents(rig, rig->from, dtype, bytes);
        assert_contents(rig, rig->to, dtype, bytes);
    }
}

/* Waits for concurrent operations in a different order than they started; repeats to reuse their events. */
static void test_tickets(void **state) {
    static unsigned char bytes[COUNT * sizeof(double)];
    Rig *rig = rig_of(state);
    start(rig, DT_F32, bytes);
    int64_t waited = group_waited(rig->group);
    for (int round = 0; round < 3; round++) {
        Ticket first, second;
        assert_ok(all_gather(rig->group, rig->stream, as_tensor(rig->to, DT_F32),
                             as_tensor(rig->from, DT_F32), &first));
        assert_ok(all_reduce(rig->group, rig->stream, as_tensor(rig->from, DT_F32), REDUCE_SUM, &second));
        assert_ok(ticket_wait(rig->stream, &second));
        assert_ok(ticket_wait(rig->stream, &first));
        assert_null(first.group);
    }
    assert_contents(rig, rig->to, DT_F32, bytes);
    int64_t after = group_waited(rig->group); /* in nanoseconds: less than the test's duration */
    assert_true(after >= waited && after - waited < 10000000000);
    assert_true(group_waited(rig->group) == after);
    Ticket batched[2];
    assert_ok(comm_batch_begin(rig->group));
    for (int i = 0; i < 2; i++)
        assert_ok(all_reduce(rig->group, rig->stream, as_tensor(i ? rig->to : rig->from, DT_F32), REDUCE_SUM,
                             &batched[i]));
    assert_ok(comm_batch_end(rig->group));
    for (int i = 0; i < 2; i++) assert_ok(ticket_wait(rig->stream, &batched[i]));
    assert_contents(rig, rig->from, DT_F32, bytes);
    assert_contents(rig, rig->to, DT_F32, bytes);
}

static void test_host(void **state) {
    Rig *rig = rig_of(state);
    double value = 3, all = 0;
    assert_ok(host_reduce(rig->group, &value, 1, DT_F64, REDUCE_SUM));
    assert_ok(host_gather(rig->group, &all, &value, sizeof value));
    assert_true(value == 3 && all == 3);
    assert_ok(barrier(rig->group));
    CLEANUP(group_freep) Group *part = NULL;
    assert_ok(group_split(rig->group, 0, 0, &part));
    assert_int_equal(part->size, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_collectives), cmocka_unit_test(test_tickets),
                                       cmocka_unit_test(test_host)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
