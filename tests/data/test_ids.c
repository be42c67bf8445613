/* Token id examples in JSON lines: the batches that each task builds from them, and errors for invalid
 * lines. */
#include "data/ids.h"
#include "files.h"

/* Opens one file of lines for a task and fills one batch in file order. */
static void fill_lines(Files *files, const char *text, Task task, int64_t T, int64_t B,
                       HostBatch **ret_batch) {
    files->count = 0;
    files_add_text(files, "x.jsonl", text);
    DataSpec spec = files_spec(files, T);
    spec.task = task;
    spec.next_sentence = task == TASK_MLM;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_int_equal(dataset_count(data), B);
    assert_ok(host_batch_new(ret_batch, B, T));
    assert_ok(dataset_fill(data, 0, false, *ret_batch));
}

static void test_lm(void **state) {
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    fill_lines(*state,
               "{\"ids\": [1, 2, 3, 4]}\r\n"
               "\n  \n"
               "{\"ids\": [5, 6], \"labels\": null}\n"
               "{\"ids\": [7]}\n"
               "{\"ids\": [8, 9, 10], \"labels\": [-100, 9, 11]}",
               TASK_LM, 4, 4, &batch);
    assert_tokens(batch->tokens, (int32_t[]){1, 2, 3, 4, 5, 6, 257, 257, 7, 257, 257, 257, 8, 9, 10, 257},
                  16);
    assert_tokens(batch->labels,
                  (int32_t[]){2, 3, 4, -100, 6, -100, -100, -100, -100, -100, -100, -100, 9, 11, -100, -100},
                  16);
    assert_tokens(batch->lens, (int32_t[]){4, 2, 1, 3}, 4);
    assert_true(batch->padded);
    assert_int_equal(batch->loss_count[LOSS_TOKEN], 6);
}

static void test_mlm_given(void **state) {
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    fill_lines(*state,
               "{\"ids\": [258, 260, 3, 259], \"labels\": [-100, 2, -100, -100], \"next\": 1}\n"
               "{\"ids\": [258, 5, 260], \"types\": [0, 1, 1], \"labels\": [-100, 4, 6], \"next\": 0}\n",
               TASK_MLM, 4, 2, &batch);
    assert_tokens(batch->tokens, (int32_t[]){258, 260, 3, 259, 258, 5, 260, 257}, 8);
    assert_tokens(batch->types, (int32_t[]){0, 0, 0, 0, 0, 1, 1, 0}, 8);
    assert_tokens(batch->labels, (int32_t[]){-100, 2, -100, -100, -100, 4, 6, -100}, 8);
    assert_int_equal(batch->pick_count, 3);
    assert_tokens(batch->picks, (int32_t[]){1, 5, 6}, 3);
    assert_tokens(batch->pick_labels, (int32_t[]){2, 4, 6}, 3);
    assert_tokens(batch->nsp, (int32_t[]){1, 0}, 2);
    assert_int_equal(batch->loss_count[LOSS_TOKEN], 3);
    assert_int_equal(batch->loss_count[LOSS_NSP], 2);
}

static void test_mlm_drawn(void **state) {
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    fill_lines(*state,
               "{\"ids\": [258, 1, 2, 259, 3, 259], \"types\": [0, 0, 0, 0, 1, 1], \"next\": 0}\n"
               "{\"ids\": [258, 259], \"next\": 1}\n",
               TASK_MLM, 8, 2, &batch);
    assert_int_equal(batch->pick_count, 1);
    assert_true(batch->picks[0] == 1 || batch->picks[0] == 2 || batch->picks[0] == 4);
    const int32_t ids[] = {258, 1, 2, 259, 3, 259};
    assert_int_equal(batch->pick_labels[0], ids[batch->picks[0]]);
    for (int i = 8; i < 16; i++) assert_int_equal(batch->labels[i], -100);
}

static void test_span(void **state) {
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    fill_lines(*state,
               "{\"ids\": [1, 2, 3], \"start\": 0, \"end\": 2}\n"
               "{\"ids\": [1, 2, 3], \"start\": 2, \"end\": 3, \"label\": 1}\n"
               "{\"ids\": [1, 2, 3, 4], \"start\": 4, \"end\": 4}\n",
               TASK_SPAN, 4, 3, &batch);
    assert_tokens(batch->span, (int32_t[]){0, 2, 4, 2, 4, 4}, 6);
    assert_int_equal(batch->loss_count[LOSS_SPAN_START], 2);
    assert_int_equal(batch->loss_count[LOSS_SPAN_END], 1);
    assert_int_equal(batch->loss_count[LOSS_TOKEN], 0);
}

static void test_classify(void **state) {
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    fill_lines(*state, "{\"ids\": [1], \"label\": 2}\n{\"ids\": [1], \"label\": 0}\n", TASK_CLASSIFY, 4, 2,
               &batch);
    assert_tokens(batch->classes, (int32_t[]){2, 0}, 2);
    assert_int_equal(batch->loss_count[LOSS_CLASSIFY], 2);
}

static void test_pad_token_may_be_absent(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "x.jsonl", "{\"ids\": [9]}");
    DataSpec spec = files_spec(files, 3);
    spec.special = (SpecialTokens){-1, -1, -1, -1, -1, -1};
    spec.types = 0;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_ok(host_batch_new(&batch, 1, 3));
    assert_ok(dataset_fill(data, 0, true, batch));
    assert_tokens(batch->tokens, (int32_t[]){9, 0, 0}, 3);
    assert_false(batch->has_types);
}

static void test_files_gz_and_parts(void **state) {
    Files *files = *state;
    files->count = 0;
    const char *lines = "{\"ids\": [1, 2]}\n{\"ids\": [3]}\n{\"ids\": [4]}\n";
    files_add_gz(files, "a.jsonl.gz", lines, strlen(lines));
    files_add_text(files, "b.jsonl", "{\"ids\": [5]}\n{\"ids\": [6]}");
    DataSpec spec = files_spec(files, 2);
    CLEANUP(dataset_freep) Dataset *train = NULL;
    CLEANUP(dataset_freep) Dataset *val = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    spec.part.first = 0.6;
    assert_ok(dataset_open(&train, &spec));
    assert_int_equal(dataset_count(train), 3);
    assert_int_equal(dataset_tokens(train), 4);
    spec.part.first = 0;
    spec.part.last = 0.4;
    assert_ok(dataset_open(&val, &spec));
    assert_int_equal(dataset_count(val), 2);
    assert_ok(host_batch_new(&batch, 2, 2));
    assert_ok(dataset_fill(val, 0, false, batch));
    assert_int_equal(batch->tokens[0], 5);
    assert_int_equal(batch->tokens[2], 6);
    Dataset *none = NULL;
    spec.part.last = 0.01;
    assert_fails(dataset_open(&none, &spec), 1, "too little data: 0 of 5 examples; expected at least 1");
}

static const struct {
    Task task;
    int code;
    const char *line, *message;
} errors[] = {
    {TASK_LM, 1, "{\"ids\": [1, 2}", "line 2, column 14: not valid JSON"},
    {TASK_LM, 1, "{\"ids\": [1], \"ids\": [1]}", "not valid JSON: duplicate object key"},
    {TASK_LM, 1, "{\"ids\": [1]} x", "not valid JSON: end of file expected"},
    {TASK_LM, 1, "{\"ids\": \"\\u0000\"}", "not valid JSON: \\u0000 is not allowed"},
    {TASK_LM, 1, "[1, 2]", "line 2: expected an object"},
    {TASK_LM, 1, "{}", "line 2: 'ids' must be an array of at least one token"},
    {TASK_LM, 1, "{\"ids\": []}", "'ids' must be an array of at least one token"},
    {TASK_LM, 1, "{\"ids\": 3}", "'ids' must be an array of at least one token"},
    {TASK_LM, 2, "{\"ids\": [1,1,1,1,1]}", "line 2: 'ids' has 5 tokens, more than the sequence length of 4"},
    {TASK_LM, 1, "{\"ids\": [1, 262]}", "line 2: 'ids'[1] is 262; expected 0 to 261"},
    {TASK_LM, 1, "{\"ids\": [-1]}", "'ids'[0] is -1; expected 0 to 261"},
    {TASK_LM, 1, "{\"ids\": [9223372036854775807]}", "'ids'[0] is 9223372036854775807; expected"},
    {TASK_LM, 1, "{\"ids\": [9223372036854775808]}", "not valid JSON: too big integer"},
    {TASK_LM, 1, "{\"ids\": [1.0]}", "'ids'[0] must be an integer from 0 to 261"},
    {TASK_LM, 1, "{\"ids\": [\"1\"]}", "'ids'[0] must be an integer"},
    {TASK_LM, 1, "{\"ids\": [1], \"types\": [2]}", "'types'[0] is 2; expected 0 to 1"},
    {TASK_LM, 1, "{\"ids\": [1], \"types\": [0, 0]}",
     "'types' must be an array with as many entries as 'ids' (1), not 2"},
    {TASK_LM, 1, "{\"ids\": [1], \"types\": 0}",
     "'types' must be an array with as many entries as 'ids' (1)"},
    {TASK_LM, 1, "{\"ids\": [1], \"labels\": [-1]}", "'labels'[0] is -1; expected 0 to 261 or -100"},
    {TASK_LM, 1, "{\"ids\": [1], \"lables\": [1]}", "line 2: unknown field 'lables'; expected labels"},
    {TASK_LM, 1, "{\"ids\": [1], \"anything\": 1}", "unknown field 'anything'; expected ids, types"},
    {TASK_MLM, 1, "{\"ids\": [1], \"labels\": [1]}", "'next' is missing; expected 0 to 1"},
    {TASK_MLM, 1, "{\"ids\": [1], \"next\": 2}", "'next' is 2; expected 0 to 1"},
    {TASK_SPAN, 1, "{\"ids\": [1], \"start\": 0}", "'end' is missing; expected 0 to 4"},
    {TASK_SPAN, 1, "{\"ids\": [1], \"start\": 5, \"end\": 1}", "'start' is 5; expected 0 to 4"},
    {TASK_SPAN, 1, "{\"ids\": [1], \"start\": 1, \"end\": -1}", "'end' is -1; expected 0 to 4"},
    {TASK_CLASSIFY, 1, "{\"ids\": [1]}", "'label' is missing; expected 0 to 2"},
    {TASK_CLASSIFY, 1, "{\"ids\": [1], \"label\": 3}", "x.jsonl: line 2: 'label' is 3; expected 0 to 2"},
    {TASK_CLASSIFY, 1, "{\"ids\": [1], \"label\": true}", "'label' must be an integer from 0 to 2"},
};

static void test_errors(void **state) {
    Files *files = *state;
    const char *good[] = {
        [TASK_LM] = "{\"ids\": [1]}",
        [TASK_MLM] = "{\"ids\": [1], \"next\": 0}",
        [TASK_SPAN] = "{\"ids\": [1], \"start\": 0, \"end\": 0}",
        [TASK_CLASSIFY] = "{\"ids\": [1], \"label\": 0}",
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s\n%s\n", good[errors[i].task], errors[i].line);
        files->count = 0;
        files_add_text(files, "x.jsonl", text);
        DataSpec spec = files_spec(files, 4);
        spec.task = errors[i].task;
        spec.next_sentence = true;
        Dataset *data = NULL;
        assert_fails(dataset_open(&data, &spec), errors[i].code, errors[i].message);
        assert_null(data);
    }
}

static void test_hostile_lines(void **state) {
    Files *files = *state;
    CLEANUP(mem_freep) char *line = NULL;
    size_t size = IDS_LINE_LIMIT + 1;
    assert_ok(mem_new(size, 1, &line));
    Dataset *data = NULL;

    memset(line, '[', size);
    files->count = 0;
    files_add(files, "long.jsonl", line, size);
    DataSpec spec = files_spec(files, 4);
    assert_fails(dataset_open(&data, &spec), 1, "long.jsonl: line 1: longer than 16777216 bytes");

    files->count = 0;
    files_add(files, "deep.jsonl", line, 1 << 20);
    assert_fails(dataset_open(&data, &spec), 1, "deep.jsonl: line 1, column");

    files->count = 0;
    files_add(files, "zero.jsonl", "{\"ids\": [1]}\n\0\n", 15);
    assert_fails(dataset_open(&data, &spec), 1, "zero.jsonl: line 2");

    files->count = 0;
    files_add_text(files, "blank.jsonl", "\n \n\t\n");
    assert_fails(dataset_open(&data, &spec), 1, "too little data: 0 examples; expected at least 1");
}

static void test_no_special_tokens(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "x.jsonl", "{\"ids\": [1]}");
    DataSpec spec = files_spec(files, 4);
    spec.task = TASK_MLM;
    const SpecialTokens good = spec.special;
    Dataset *data = NULL;
    spec.special.mask = -1;
    assert_fails(dataset_open(&data, &spec), 1,
                 "line 1: 'labels' is missing, and masks cannot be drawn because the vocabulary lacks a mask "
                 "([MASK]) token");
    spec.special = good;
    spec.special.cls = -1;
    assert_fails(dataset_open(&data, &spec), 1, "the vocabulary lacks a start ([CLS]) token");
    spec.special = good;
    spec.special.sep = -1;
    assert_fails(dataset_open(&data, &spec), 1, "the vocabulary lacks a separator ([SEP]) token");
    spec.special = (SpecialTokens){-1, -1, -1, -1, -1, -1};
    files->count = 0;
    files_add_text(files, "given.jsonl", "{\"ids\": [1], \"labels\": [2]}");
    assert_ok(dataset_open(&data, &spec));
    dataset_free(data);
}

/* Next-sentence prediction alone needs neither labels nor special tokens to draw masks with. */
static void test_next_sentence_alone(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "next.jsonl", "{\"ids\": [1, 2], \"next\": 1}\n{\"ids\": [3], \"next\": 0}\n");
    DataSpec spec = files_spec(files, 2);
    spec.task = TASK_MLM;
    spec.next_sentence = spec.no_masks = true;
    spec.special = (SpecialTokens){-1, -1, -1, -1, -1, -1};
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_ok(dataset_check_counted(data, spec.paths));
    assert_ok(host_batch_new(&batch, 2, 2));
    assert_ok(dataset_fill(data, 0, false, batch));
    assert_tokens(batch->tokens, (int32_t[]){1, 2, 3, 0}, 4);
    assert_tokens(batch->nsp, (int32_t[]){1, 0}, 2);
    assert_int_equal(batch->loss_count[LOSS_NSP], 2);
    assert_int_equal(batch->loss_count[LOSS_TOKEN], 0);
}

/* NULL: something is counted. */
static const struct {
    Task task;
    bool next_sentence;
    const char *lines, *message;
} counted[] = {
    {TASK_LM, false, "{\"ids\": [1, 2]}", NULL},
    {TASK_LM, false, "{\"ids\": [1]}\n{\"ids\": [1, 2], \"labels\": [1, -100]}", "which nothing predicts"},
    {TASK_LM, false, "{\"ids\": [1, 2], \"labels\": [-100, -100]}\n{\"ids\": [1, 2, 3]}", NULL},
    {TASK_MLM, false, "{\"ids\": [1, 2], \"labels\": [-100, -100]}",
     "nothing to predict: every label is -100"},
    {TASK_MLM, false, "{\"ids\": [1, 2], \"labels\": [7, -100]}", NULL},
    {TASK_MLM, false, "{\"ids\": [258, 259]}", "no token can be masked"},
    {TASK_MLM, false, "{\"ids\": [258, 1, 259]}", NULL},
    {TASK_MLM, true, "{\"ids\": [1, 2], \"labels\": [-100, -100], \"next\": 1}", NULL},
    {TASK_SPAN, false, "{\"ids\": [1], \"start\": 3, \"end\": 4}", "every answer lies outside its example"},
    {TASK_SPAN, false, "{\"ids\": [1], \"start\": 0, \"end\": 4}", NULL},
    {TASK_CLASSIFY, false, "{\"ids\": [1], \"label\": 0}", NULL},
};

static void test_nothing_counted(void **state) {
    Files *files = *state;
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
        files->count = 0;
        files_add_text(files, "good.jsonl",
                       "{\"ids\": [1, 2, 3], \"next\": 0, \"start\": 0, \"end\": 0, \"label\": 1}\n");
        files_add_text(files, "other.jsonl", counted[i].lines);
        DataSpec spec = files_spec(files, 4);
        spec.task = counted[i].task;
        spec.next_sentence = counted[i].next_sentence;
        CLEANUP(dataset_freep) Dataset *data = NULL;
        assert_ok(dataset_open(&data, &spec));
        if (counted[i].message)
            assert_fails(dataset_check_counted(data, spec.paths), 1, counted[i].message);
        else
            assert_ok(dataset_check_counted(data, spec.paths));
        /* A file outside the used part does not matter. */
        spec.part.first = 0.3;
        CLEANUP(dataset_freep) Dataset *first = NULL;
        assert_ok(dataset_open(&first, &spec));
        assert_ok(dataset_check_counted(first, spec.paths));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lm),
        cmocka_unit_test(test_mlm_given),
        cmocka_unit_test(test_mlm_drawn),
        cmocka_unit_test(test_span),
        cmocka_unit_test(test_classify),
        cmocka_unit_test(test_pad_token_may_be_absent),
        cmocka_unit_test(test_files_gz_and_parts),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_hostile_lines),
        cmocka_unit_test(test_no_special_tokens),
        cmocka_unit_test(test_next_sentence_alone),
        cmocka_unit_test(test_nothing_counted),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
