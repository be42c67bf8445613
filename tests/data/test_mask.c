/* Masked tokens and sentence pairs drawn from a stream: masking rates follow BERT's recipe, only allowed
 * tokens are masked or used as replacements, and pairs match their label. */
#include <math.h>

#include "files.h"

enum { T = 64, TOKENS = 20000 };

/* A stream in which every token encodes its own position. */
static void add_positions(Files *files) {
    static uint32_t tokens[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++) tokens[i] = 10 + i;
    files->count = 0;
    files_add(files, "places.u32", tokens, sizeof tokens);
}

static DataSpec positions_spec(const Files *files) {
    DataSpec spec = files_spec(files, T);
    spec.task = TASK_MLM;
    spec.vocab = TOKENS + 10;
    spec.special = (SpecialTokens){.pad = 0, .cls = 1, .sep = 2, .mask = 3};
    return spec;
}

static int32_t original(const HostBatch *batch, int64_t i) {
    return batch->labels[i] == -100 ? batch->tokens[i] : batch->labels[i];
}

/* Whether a count is within four standard deviations of its binomial mean. */
static bool near(double found, double share, double trials) {
    return fabs(found / trials - share) < 4 * sqrt(share * (1 - share) / trials);
}

static void test_shares(void **state) {
    Files *files = *state;
    add_positions(files);
    DataSpec spec = positions_spec(files);
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_int_equal(dataset_count(data), TOKENS / (T - 2));
    assert_ok(host_batch_new(&batch, 1, T));
    double picked = 0, masked = 0, kept = 0, changed = 0, by_position[T] = {0};
    enum { RUNS = 4000 };
    for (int run = 0; run < RUNS; run++) {
        assert_ok(dataset_fill(data, (uint64_t)run, true, batch));
        assert_int_equal(batch->pick_count, 9); /* 15% of 62 */
        assert_int_equal(batch->loss_count[LOSS_TOKEN], 9);
        assert_int_equal(batch->loss_count[LOSS_NSP], 0);
        for (int i = 0; i < batch->pick_count; i++) {
            int32_t at = batch->picks[i], shown = batch->tokens[at], token = batch->pick_labels[i];
            assert_int_equal(batch->labels[at], token);
            assert_true(token >= 10 && at > 0 && at < T - 1);
            picked++;
            by_position[at]++;
            masked += shown == 3;
            kept += shown == token;
            changed += shown != 3 && shown != token;
            assert_true(shown >= 3);
        }
    }
    assert_true(near(masked, 0.8, picked));
    assert_true(near(kept, 0.1, picked));
    assert_true(near(changed, 0.1, picked));
    for (int t = 1; t < T - 1; t++) assert_true(near(by_position[t], 9.0 / 62, RUNS));
}

static void test_single_span(void **state) {
    Files *files = *state;
    add_positions(files);
    DataSpec spec = positions_spec(files);
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_ok(host_batch_new(&batch, 3, T));
    assert_ok(dataset_fill(data, 10, false, batch));
    for (int64_t b = 0; b < 3; b++) {
        const int64_t row = b * T;
        assert_int_equal(batch->tokens[row], 1);
        assert_int_equal(batch->tokens[row + T - 1], 2);
        for (int64_t t = 0; t < T; t++) assert_int_equal(batch->types[row + t], 0);
        for (int64_t t = 1; t < T - 1; t++)
            assert_int_equal(original(batch, row + t), 10 + (10 + b) * (T - 2) + t - 1);
    }
}

/* Random replacements are uniform over the vocabulary without special tokens. */
static void test_random_tokens(void **state) {
    Files *files = *state;
    static uint16_t tokens[5000];
    for (int i = 0; i < 5000; i++) tokens[i] = 7;
    files->count = 0;
    files_add(files, "same.u16", tokens, sizeof tokens);
    DataSpec spec = files_spec(files, T);
    spec.task = TASK_MLM;
    spec.vocab = 10;
    spec.special = (SpecialTokens){.pad = 0, .cls = 9, .sep = 4, .mask = 2};
    spec.mask_rate = 1;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_ok(host_batch_new(&batch, 500, T));
    assert_ok(dataset_fill(data, 0, true, batch));
    double seen[10] = {0};
    for (int i = 0; i < batch->pick_count; i++) seen[batch->tokens[batch->picks[i]]]++;
    assert_int_equal(batch->pick_count, 500 * (T - 2));
    assert_true(seen[0] == 0 && seen[4] == 0 && seen[9] == 0);
    for (int token = 1; token < 9; token++)
        if (token != 2 && token != 4 && token != 7)
            assert_true(near(seen[token], 0.1 / 6, (double)batch->pick_count));
}

static void test_masks_change_every_epoch(void **state) {
    Files *files = *state;
    add_positions(files);
    DataSpec spec = positions_spec(files);
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *first = NULL;
    CLEANUP(host_batch_freep) HostBatch *second = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_ok(host_batch_new(&first, 4, T));
    assert_ok(host_batch_new(&second, 4, T));
    assert_ok(dataset_fill(data, 0, false, first));
    assert_ok(dataset_fill(data, (uint64_t)dataset_count(data), false, second));
    for (int i = 0; i < 4 * T; i++) assert_int_equal(original(first, i), original(second, i));
    assert_memory_not_equal(first->labels, second->labels, 4 * T * sizeof *first->labels);
    assert_ok(dataset_fill(data, 0, false, second));
    assert_memory_equal(first->tokens, second->tokens, 4 * T * sizeof *first->tokens);
}

/* Checks one pair against its label; returns the position of its middle [SEP]. */
static int64_t check_pair(const HostBatch *batch, int64_t b, int64_t low, int64_t high) {
    int64_t row = b * T, split = 0;
    assert_int_equal(batch->tokens[row], 1);
    assert_int_equal(batch->tokens[row + T - 1], 2);
    for (int64_t t = 1; t < T - 1; t++)
        if (batch->tokens[row + t] == 2 && batch->labels[row + t] == -100) split = t;
    assert_true(split > 1 && split < T - 2);
    for (int64_t t = 0; t < T; t++) assert_int_equal(batch->types[row + t], t > split);
    for (int64_t t = 2; t < T - 1; t++)
        if (t != split && t != split + 1)
            assert_int_equal(original(batch, row + t), original(batch, row + t - 1) + 1);
    int64_t start = original(batch, row + 1), second = original(batch, row + split + 1);
    assert_true(start >= low && second >= low && original(batch, row + T - 2) < high);
    if (batch->nsp[b] == 0) {
        assert_int_equal(second, original(batch, row + split - 1) + 1);
    } else {
        int64_t length = T - 2 - split;
        assert_true(second + length <= start || second >= start + T - 3);
    }
    return split;
}

static void test_pairs(void **state) {
    Files *files = *state;
    add_positions(files);
    DataSpec spec = positions_spec(files);
    spec.next_sentence = true;
    spec.part.first = 0.9;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_int_equal(dataset_count(data), 18000 / (T - 3));
    assert_ok(host_batch_new(&batch, 8, T));
    double random = 0, mean_split = 0;
    for (uint64_t at = 0; at < 4000; at += 8) {
        assert_ok(dataset_fill(data, at, true, batch));
        assert_int_equal(batch->loss_count[LOSS_NSP], 8);
        for (int64_t b = 0; b < 8; b++) {
            mean_split += (double)check_pair(batch, b, 10, 18010) / 4000;
            random += batch->nsp[b];
        }
    }
    assert_true(near(random, 0.5, 4000));
    assert_true(fabs(mean_split - T / 2) < 2);
}

/* The shortest possible stream still has room for a random second part; with one token less it is refused. */
static void test_pairs_from_short_streams(void **state) {
    Files *files = *state;
    for (uint32_t size = 2 * (T - 3) - 1; size < 2 * (T - 3) + 40; size++) {
        uint32_t tokens[2 * T + 40];
        for (uint32_t i = 0; i < size; i++) tokens[i] = 10 + i;
        files->count = 0;
        files_add(files, "little.u32", tokens, size * sizeof *tokens);
        DataSpec spec = positions_spec(files);
        spec.next_sentence = true;
        CLEANUP(dataset_freep) Dataset *data = NULL;
        CLEANUP(host_batch_freep) HostBatch *batch = NULL;
        if (size < 2 * (T - 3)) {
            assert_fails(dataset_open(&data, &spec), 1, "121 tokens; expected at least 122");
            continue;
        }
        assert_ok(dataset_open(&data, &spec));
        assert_ok(host_batch_new(&batch, 20, T));
        assert_ok(dataset_fill(data, 0, true, batch));
        for (int64_t b = 0; b < 20; b++) check_pair(batch, b, 10, 10 + size);
    }
}

static void test_at_least_one(void **state) {
    Files *files = *state;
    add_positions(files);
    for (int64_t length = 5; length < 9; length++) {
        DataSpec spec = positions_spec(files);
        spec.seq = length;
        spec.next_sentence = true;
        spec.mask_rate = 0.01;
        CLEANUP(dataset_freep) Dataset *data = NULL;
        CLEANUP(host_batch_freep) HostBatch *batch = NULL;
        assert_ok(dataset_open(&data, &spec));
        assert_ok(host_batch_new(&batch, 10, length));
        assert_ok(dataset_fill(data, 0, true, batch));
        assert_int_equal(batch->pick_count, 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),        cmocka_unit_test(test_single_span),
        cmocka_unit_test(test_random_tokens), cmocka_unit_test(test_masks_change_every_epoch),
        cmocka_unit_test(test_pairs),         cmocka_unit_test(test_pairs_from_short_streams),
        cmocka_unit_test(test_at_least_one),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
