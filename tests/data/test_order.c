/* The order of examples: each example occurs once per epoch, epochs differ, filling can start at any
 * position, and the content at a position does not depend on how positions are grouped into batches. */
#include <pthread.h>

#include "files.h"

enum { T = 8, COUNT = 97 };

/* 97 windows; every token of a window is the window's index. */
static void add_numbered(Files *files) {
    uint16_t tokens[COUNT * T + 1];
    for (int i = 0; i <= COUNT * T; i++) tokens[i] = (uint16_t)(i / T);
    files->count = 0;
    files_add(files, "numbered.u16", tokens, sizeof tokens);
}

static void order_of_epoch(const Dataset *data, int epoch, int32_t *ret_order) {
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(host_batch_new(&batch, 1, T));
    for (int i = 0; i < COUNT; i++) {
        assert_ok(dataset_fill(data, (uint64_t)(epoch * COUNT + i), true, batch));
        ret_order[i] = batch->tokens[0];
    }
}

static void test_each_once_per_epoch(void **state) {
    Files *files = *state;
    add_numbered(files);
    DataSpec spec = files_spec(files, T);
    CLEANUP(dataset_freep) Dataset *data = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_int_equal(dataset_count(data), COUNT);
    int32_t order[4][COUNT];
    for (int epoch = 0; epoch < 4; epoch++) {
        order_of_epoch(data, epoch, order[epoch]);
        int seen[COUNT] = {0}, same = 0;
        for (int i = 0; i < COUNT; i++) seen[order[epoch][i]]++;
        for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
        for (int other = 0; other < epoch; other++) {
            same = 0;
            for (int i = 0; i < COUNT; i++) same += order[epoch][i] == order[other][i];
            assert_true(same < COUNT / 4);
        }
        /* Really shuffled, not just rotated. */
        int steps = 0;
        for (int i = 1; i < COUNT; i++) steps += order[epoch][i] == order[epoch][i - 1] + 1;
        assert_true(steps < COUNT / 4);
    }
}

/* Later epochs shift all windows by the same amount, except the last, which must stay inside the data. */
static void test_windows_move(void **state) {
    Files *files = *state;
    add_numbered(files);
    DataSpec spec = files_spec(files, T);
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_ok(host_batch_new(&batch, 1, T));
    int moved = 0;
    for (int epoch = 0; epoch < 6; epoch++) {
        int cuts[T] = {0}; /* number of windows that contain t tokens of the next window */
        for (int i = 0; i < COUNT; i++) {
            int next = 0;
            assert_ok(dataset_fill(data, (uint64_t)(epoch * COUNT + i), true, batch));
            for (int t = 0; t < T; t++) next += batch->tokens[t] != batch->tokens[0];
            if (batch->tokens[0] < COUNT - 1) cuts[next]++;
        }
        int whole = 0;
        for (int t = 0; t < T; t++) whole += cuts[t] == COUNT - 1;
        assert_int_equal(whole, 1);
        if (epoch == 0) assert_int_equal(cuts[0], COUNT - 1);
        moved += cuts[0] == 0;
    }
    assert_true(moved >= 3);
}

static void test_seed_changes_order(void **state) {
    Files *files = *state;
    add_numbered(files);
    int32_t order[3][COUNT];
    const uint64_t seeds[] = {7, 7, 8};
    for (int i = 0; i < 3; i++) {
        DataSpec spec = files_spec(files, T);
        spec.seed = seeds[i];
        CLEANUP(dataset_freep) Dataset *data = NULL;
        assert_ok(dataset_open(&data, &spec));
        order_of_epoch(data, 0, order[i]);
    }
    assert_memory_equal(order[0], order[1], sizeof order[0]);
    assert_memory_not_equal(order[0], order[2], sizeof order[0]);
}

static void test_unshuffled_is_the_files_order(void **state) {
    Files *files = *state;
    add_numbered(files);
    DataSpec spec = files_spec(files, T);
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_ok(host_batch_new(&batch, 5, T));
    assert_ok(dataset_fill(data, COUNT - 2, false, batch));
    for (int b = 0; b < 5; b++) assert_int_equal(batch->tokens[b * T], (COUNT - 2 + b) % COUNT);
}

/* Copies everything that the batch contains for sequence b to `out`. */
static size_t record(const HostBatch *batch, int64_t b, int32_t *out) {
    size_t size = (size_t)batch->T * sizeof *out;
    memcpy(out, batch->tokens + b * batch->T, size);
    memcpy(out + batch->T, batch->types + b * batch->T, size);
    memcpy(out + 2 * batch->T, batch->labels + b * batch->T, size);
    out[3 * batch->T] = batch->task == TASK_MLM ? batch->nsp[b] : 0;
    return (size_t)(3 * batch->T + 1);
}

/* Batches of size B, starting at `from`, contain the same sequences as batches of size 1. */
static void check_batches(const Dataset *data, int64_t length, int64_t B, uint64_t from, int32_t *expected) {
    CLEANUP(host_batch_freep) HostBatch *one = NULL;
    CLEANUP(host_batch_freep) HostBatch *many = NULL;
    assert_ok(host_batch_new(&one, 1, length));
    assert_ok(host_batch_new(&many, B, length));
    for (uint64_t at = from; at < from + 60; at += (uint64_t)B) {
        assert_ok(dataset_fill(data, at, true, many));
        int64_t picks = 0;
        for (int64_t b = 0; b < B; b++) {
            int32_t found[3 * 64 + 1];
            assert_ok(dataset_fill(data, at + (uint64_t)b, true, one));
            size_t size = record(one, 0, expected);
            assert_int_equal(record(many, b, found), size);
            assert_memory_equal(found, expected, size * sizeof *found);
            for (int64_t i = 0; i < one->pick_count; i++) {
                assert_int_equal(many->picks[picks + i], one->picks[i] + b * length);
                assert_int_equal(many->pick_labels[picks + i], one->pick_labels[i]);
            }
            picks += one->pick_count;
        }
        assert_int_equal(many->pick_count, picks);
    }
}

static void test_batch_size_does_not_matter(void **state) {
    Files *files = *state;
    files->count = 0;
    char text[700];
    for (int i = 0; i < 700; i++) text[i] = (char)(32 + i * i % 90);
    files_add(files, "text", text, sizeof text);
    int32_t expected[3 * 64 + 1];
    for (int kind = 0; kind < 3; kind++) {
        DataSpec spec = files_spec(files, 24);
        spec.task = kind ? TASK_MLM : TASK_LM;
        spec.next_sentence = kind == 2;
        CLEANUP(dataset_freep) Dataset *data = NULL;
        assert_ok(dataset_open(&data, &spec));
        check_batches(data, 24, 1, 0, expected);
        check_batches(data, 24, 7, 0, expected);
        check_batches(data, 24, 7, 3, expected);
        check_batches(data, 24, 40, 11, expected);
    }
}

typedef struct Work {
    const Dataset *data;
    uint64_t sum;
} Work;

static void *fill_many(void *argument) {
    Work *work = argument;
    HostBatch *batch = NULL;
    Status status = host_batch_new(&batch, 4, 24);
    for (uint64_t at = 0; !status && at < 400; at += 4) {
        status = dataset_fill(work->data, at, true, batch);
        for (int i = 0; i < 4 * 24; i++) work->sum = work->sum * 31 + (uint32_t)batch->tokens[i];
    }
    host_batch_free(batch);
    return status;
}

static void test_threads_share_a_dataset(void **state) {
    Files *files = *state;
    add_numbered(files);
    DataSpec spec = files_spec(files, 24);
    spec.task = TASK_MLM;
    spec.next_sentence = true;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    assert_ok(dataset_open(&data, &spec));
    Work work[3] = {{.data = data}, {.data = data}, {.data = data}};
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&thread[i], NULL, fill_many, &work[i]), 0);
    for (int i = 0; i < 3; i++) {
        void *result;
        assert_int_equal(pthread_join(thread[i], &result), 0);
        assert_ok((Status)result);
    }
    assert_true(work[0].sum == work[1].sum && work[1].sum == work[2].sum);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once_per_epoch),
        cmocka_unit_test(test_windows_move),
        cmocka_unit_test(test_seed_changes_order),
        cmocka_unit_test(test_unshuffled_is_the_files_order),
        cmocka_unit_test(test_batch_size_does_not_matter),
        cmocka_unit_test(test_threads_share_a_dataset),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
