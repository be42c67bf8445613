/* Uploading a batch to the device: one copy, and tensor views of exactly what the task uses. */
#include "files.h"

typedef struct Upload {
    Device *device;
    Stream *stream;
    Buffer to;
    Micro micro;
} Upload;

static void upload(Upload *up, const HostBatch *batch) {
    assert_ok(device_new_cpu(&up->device, 1));
    assert_ok(stream_new(&up->stream, up->device));
    assert_ok(dev_alloc(up->device, MEM_ACTIVATIONS,
                        host_batch_bytes(batch->B, batch->T, batch->length, batch->outputs), &up->to));
    memset(up->to.data, 0xee, up->to.bytes);
    assert_ok(host_batch_upload(batch, up->stream, up->to, 12, &up->micro));
}

static void upload_done(Upload *up) {
    dev_free(&up->to);
    stream_free(up->stream);
    device_free(up->device);
}

static void assert_view(Tensor found, const int32_t *expected, int64_t count) {
    assert_non_null(found.data);
    assert_int_equal(found.dtype, DT_I32);
    assert_int_equal(tensor_count(found), count);
    assert_memory_equal(found.data, expected, (size_t)count * sizeof *expected);
}

static HostBatch *filled(Files *files, const char *text, Task task, bool pairs) {
    files->count = 0;
    files_add_text(files, task == TASK_SPAN || task == TASK_CLASSIFY ? "x.jsonl" : "x.txt", text);
    DataSpec spec = files_spec(files, 8);
    spec.task = task;
    spec.types = task == TASK_LM ? 0 : 2;
    spec.next_sentence = pairs;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_ok(host_batch_new(&batch, 2, 8));
    assert_ok(dataset_fill(data, 0, true, batch));
    return batch;
}

static void test_lm(void **state) {
    CLEANUP(host_batch_freep) HostBatch *batch = filled(*state, "a text of some length", TASK_LM, false);
    CLEANUP(upload_done) Upload up = {0};
    upload(&up, batch);
    assert_int_equal(up.micro.first, 12);
    assert_view(up.micro.tokens, batch->tokens, 16);
    assert_view(up.micro.labels, batch->labels, 16);
    assert_int_equal(up.micro.labels.ndim, 1);
    assert_null(up.micro.types.data);
    assert_null(up.micro.lens.data);
    assert_null(up.micro.picks.data);
    assert_null(up.micro.nsp.data);
}

static void test_documents(void **state) {
    CLEANUP(host_batch_freep) HostBatch *batch = filled(*state, "a text of some length", TASK_LM, false);
    CLEANUP(upload_done) Upload up = {0}, plain = {0};
    upload(&plain, batch);
    assert_null(plain.micro.starts.data);
    assert_null(plain.micro.positions.data);
    int32_t *t = batch->tokens;
    for (int i = 0; i < 16; i++) t[i] = batch->labels[i] = 5;
    t[2] = t[3] = t[7] = t[8] = 9;
    host_batch_split(batch, 9);
    upload(&up, batch);
    assert_view(up.micro.starts, (int32_t[]){0, 0, 0, 3, 4, 4, 4, 4, 0, 1, 1, 1, 1, 1, 1, 1}, 16);
    assert_view(up.micro.positions, (int32_t[]){0, 1, 2, 0, 0, 1, 2, 3, 0, 0, 1, 2, 3, 4, 5, 6}, 16);
    assert_view(up.micro.labels, (int32_t[]){5, 5, -100, -100, 5, 5, 5, -100, -100, 5, 5, 5, 5, 5, 5, 5}, 16);
    batch->lens[0] = 3; /* the padding belongs to the last document */
    host_batch_split(batch, 9);
    assert_memory_equal(batch->starts, ((int32_t[]){0, 0, 0, 0, 0, 0, 0, 0}), 32);
}

static void test_parts_of_sequences(void **state) {
    CLEANUP(host_batch_freep) HostBatch *batch = filled(*state, "a text of some length", TASK_LM, false);
    CLEANUP(upload_done) Upload up = {0};
    int32_t *t = batch->tokens;
    for (int i = 0; i < 16; i++) t[i] = batch->labels[i] = 5;
    host_batch_divide(batch, 8);
    assert_false(batch->documents);
    host_batch_divide(batch, 3);
    upload(&up, batch);
    assert_view(up.micro.starts, (int32_t[]){0, 0, 0, 3, 3, 3, 6, 6, 0, 0, 0, 3, 3, 3, 6, 6}, 16);
    assert_view(up.micro.positions, (int32_t[]){0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 2, 0, 1}, 16);
    assert_view(up.micro.labels, (int32_t[]){5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, 16);
    t[2] = t[3] = t[8] = 9; /* documents begin at 3 and 4, and at 1 */
    host_batch_split(batch, 9);
    host_batch_divide(batch, 5);
    assert_memory_equal(batch->starts, ((int32_t[]){0, 0, 0, 3, 4, 5, 5, 5, 0, 1, 1, 1, 1, 5, 5, 5}), 64);
    assert_memory_equal(batch->positions, ((int32_t[]){0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 1, 2, 3, 0, 1, 2}), 64);
}

static void test_mlm(void **state) {
    for (int pairs = 0; pairs < 2; pairs++) {
        CLEANUP(host_batch_freep) HostBatch *batch = filled(*state, "a text of some length", TASK_MLM, pairs);
        CLEANUP(upload_done) Upload up = {0};
        upload(&up, batch);
        assert_view(up.micro.types, batch->types, 16);
        assert_view(up.micro.picks, batch->picks, batch->pick_count);
        assert_view(up.micro.pick_labels, batch->pick_labels, batch->pick_count);
        assert_null(up.micro.labels.data);
        if (pairs)
            assert_view(up.micro.nsp, batch->nsp, 2);
        else
            assert_null(up.micro.nsp.data);
    }
}

static void test_span_and_classify(void **state) {
    const char *lines = "{\"ids\": [1, 2], \"start\": 0, \"end\": 1, \"label\": 2}\n"
                        "{\"ids\": [1, 2, 3], \"start\": 1, \"end\": 2, \"label\": 0}\n";
    CLEANUP(host_batch_freep) HostBatch *span = filled(*state, lines, TASK_SPAN, false);
    CLEANUP(host_batch_freep) HostBatch *classify = filled(*state, lines, TASK_CLASSIFY, false);
    CLEANUP(upload_done) Upload one = {0};
    CLEANUP(upload_done) Upload two = {0};
    upload(&one, span);
    upload(&two, classify);
    assert_view(one.micro.lens, span->lens, 2);
    assert_view(one.micro.span, span->span, 4);
    assert_int_equal(one.micro.span.dim[0], 2);
    assert_null(one.micro.classes.data);
    assert_view(two.micro.classes, classify->classes, 2);
    assert_null(two.micro.span.data);
}

/* Targets replace classes; a blank batch ignores them. */
static void test_targets(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "x.jsonl",
                   "{\"ids\": [1], \"label\": [1, -2.5]}\n{\"ids\": [2], \"label\": [3, 4]}\n");
    DataSpec spec = files_spec(files, 8);
    spec.task = TASK_CLASSIFY;
    spec.problem = PROBLEM_REGRESSION;
    spec.labels = 2;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL, *plain = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_ok(host_batch_new_targets(&batch, 2, 8, 2));
    assert_ok(dataset_fill(data, 0, false, batch));
    CLEANUP(upload_done) Upload up = {0};
    upload(&up, batch);
    assert_null(up.micro.classes.data);
    assert_int_equal(up.micro.targets.dtype, DT_F32);
    assert_int_equal(up.micro.targets.dim[0], 2);
    assert_int_equal(up.micro.targets.dim[1], 2);
    assert_memory_equal(up.micro.targets.data, ((float[]){1, -2.5f, 3, 4}), 16);
    assert_view(up.micro.tokens, batch->tokens, 16);
    host_batch_blank(batch);
    assert_int_equal(batch->loss_count[LOSS_CLASSIFY], 0);
    for (int i = 0; i < 4; i++) assert_true(batch->targets[i] != batch->targets[i]);
    assert_ok(host_batch_new(&plain, 2, 8));
    assert_fails(dataset_fill(data, 0, false, plain), 1, "internal: a batch with 0 targets");
}

static void test_sizes(void **state) {
    CLEANUP(host_batch_freep) HostBatch *batch = filled(*state, "a text of some length", TASK_LM, false);
    CLEANUP(upload_done) Upload up = {0};
    upload(&up, batch);
    Buffer small = up.to;
    small.bytes--;
    assert_fails(host_batch_upload(batch, up.stream, small, 0, &up.micro), 1, "internal");
    HostBatch *none = NULL;
    assert_fails(host_batch_new(&none, 1 << 20, 1 << 20), 2, "invalid batch");
    assert_fails(host_batch_new(&none, 0, 4), 2, "invalid batch");
}

/* The parts of two ranks that have a sequence's ends and its middle: each position once, with losses of whole
 * sequences in the first. */
static void test_parts(void **state) {
    enum { B = 2, LENGTH = 8, T = 4 };
    static const Positions at[] = {{.first = 0, .turn = 2, .second = 6}, {.first = 2}};
    for (int mlm = 0; mlm < 2; mlm++) {
        CLEANUP(host_batch_freep)
        HostBatch *whole = filled(*state, "a text of some length", mlm ? TASK_MLM : TASK_LM, mlm);
        int64_t tokens = 0, pairs = 0;
        if (!mlm) host_batch_split(whole, whole->tokens[3]);
        host_batch_count(whole);
        for (int r = 0; r < 2; r++) {
            CLEANUP(host_batch_freep) HostBatch *part = NULL;
            CLEANUP(upload_done) Upload up = {0};
            assert_ok(host_batch_new_part(&part, whole, T));
            host_batch_part(part, whole, at[r]);
            upload(&up, part);
            assert_view(up.micro.positions, part->positions, B * T);
            for (int64_t i = 0; i < B * T; i++) {
                int64_t position = position_of(&at[r], i % T), from = i / T * LENGTH + position;
                assert_int_equal(part->tokens[i], whole->tokens[from]);
                assert_int_equal(part->labels[i], whole->labels[from]);
                assert_int_equal(part->positions[i], mlm ? position : whole->positions[from]);
            }
            if (!mlm) assert_view(up.micro.starts, whole->starts, B * LENGTH);
            tokens += part->loss_count[LOSS_TOKEN];
            pairs += part->loss_count[LOSS_NSP];
            assert_int_equal(part->loss_count[LOSS_NSP] > 0, mlm && r == 0);
        }
        assert_int_equal(tokens, whole->loss_count[LOSS_TOKEN]);
        assert_int_equal(pairs, whole->loss_count[LOSS_NSP]);
    }
}

/* Batches are alike if the same kernels process them, whatever their tokens. */
static void test_alike(void **state) {
    CLEANUP(host_batch_freep) HostBatch *batch = filled(*state, "a text of some length", TASK_LM, false);
    CLEANUP(host_batch_freep) HostBatch *other = filled(*state, "another text, as long", TASK_LM, false);
    assert_true(host_batch_alike(batch, other));
    other->padded = !other->padded;
    assert_false(host_batch_alike(batch, other));
    other->padded = batch->padded;
    host_batch_split(other, 'x');
    assert_false(host_batch_alike(batch, other));
    assert_false(host_batch_alike(batch, &(HostBatch){0}));
    HostBatch picked = *batch, more = *batch;
    picked.task = more.task = TASK_MLM;
    assert_true(host_batch_alike(&picked, &more));
    more.pick_count++;
    assert_false(host_batch_alike(&picked, &more));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lm),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_parts_of_sequences),
        cmocka_unit_test(test_mlm),
        cmocka_unit_test(test_span_and_classify),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_alike),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
