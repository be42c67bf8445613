/* Labels of regression and multi-label classification: targets from tables and from ids, what labels say
 * about the problem, and errors for invalid ones. */
#include "data/targets.h"

#include "files.h"

enum { T = 12 };

/* Opens one file of records or, if `encoder` is NULL, of ids. */
static Status open_file(Files *files, const char *name, const char *text, const char *field,
                        const Tokenizer *encoder, ProblemType problem, int64_t labels,
                        const char *const *names, Dataset **ret_data) {
    files->count = 0;
    files_add_text(files, name, text);
    DataSpec spec = files_spec(files, T);
    spec.format = encoder ? FORMAT_RECORDS : FORMAT_IDS;
    spec.task = TASK_CLASSIFY;
    spec.encoder = encoder;
    spec.label_field = field;
    spec.problem = problem;
    spec.labels = labels;
    spec.label_names = names;
    return dataset_open(ret_data, &spec);
}

static void assert_targets(Files *files, const char *name, const char *text, const char *field,
                           const Tokenizer *encoder, ProblemType problem, int64_t labels,
                           const char *const *names, const float *expected, int64_t rows) {
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(open_file(files, name, text, field, encoder, problem, labels, names, &data));
    assert_int_equal(dataset_count(data), rows);
    assert_ok(host_batch_new_targets(&batch, rows, T, labels));
    assert_ok(dataset_fill(data, 0, false, batch));
    assert_int_equal(batch->loss_count[LOSS_CLASSIFY], rows * labels);
    for (int64_t i = 0; i < rows * labels; i++) assert_true(batch->targets[i] == expected[i]);
}

static const char *const names_abc[] = {"a", "b", "c"};

static void test_regression(void **state) {
    CLEANUP(tokenizer_freep) Tokenizer *bytes = NULL;
    assert_ok(tokenizer_new_bytes(&bytes, true));
    /* The second row has special tokens only. */
    assert_targets(*state, "a.csv", "text,label\nx,2.5\n,9\ny, -1e1 \n", "label", bytes, PROBLEM_REGRESSION,
                   1, NULL, (const float[]){2.5f, 9, -10}, 3);
    const float pairs[] = {0.5f, -1, 3, 4};
    assert_targets(*state, "b.csv", "y,text,x\n-1,t,0.5\n4,t,3\n", "x,y", bytes, PROBLEM_REGRESSION, 2, NULL,
                   pairs, 2);
    assert_targets(*state, "c.tsv", "text\tlabel\nt\t[0.5, -1]\nt\t[3, 4]\n", "label", bytes,
                   PROBLEM_REGRESSION, 2, NULL, pairs, 2);
    assert_targets(*state, "d.jsonl",
                   "{\"text\": \"t\", \"label\": [0.5, -1]}\n{\"text\": \"t\", \"label\": [3, 4]}\n", "label",
                   bytes, PROBLEM_REGRESSION, 2, NULL, pairs, 2);
    assert_targets(*state, "e.jsonl",
                   "{\"ids\": [1], \"label\": [0.5, -1]}\n{\"ids\": [1], \"label\": [3, 4]}\n", NULL, NULL,
                   PROBLEM_REGRESSION, 2, NULL, pairs, 2);
    assert_targets(*state, "f.jsonl", "{\"ids\": [1], \"label\": 7}\n{\"ids\": [1], \"label\": [0.5]}\n",
                   NULL, NULL, PROBLEM_REGRESSION, 1, NULL, (const float[]){7, 0.5f}, 2);
}

static void test_multi(void **state) {
    CLEANUP(tokenizer_freep) Tokenizer *bytes = NULL;
    assert_ok(tokenizer_new_bytes(&bytes, true));
    const float expected[] = {1, 0, 1, 0, 0, 0, 0, 1, 0};
    static const char *const same[] = {
        "{\"text\": \"t\", \"label\": [\"c\", \"a\"]}\n{\"text\": \"t\", \"label\": []}\n"
        "{\"text\": \"t\", \"label\": [\"b\"]}\n",
        "{\"text\": \"t\", \"label\": [0, 2]}\n{\"text\": \"t\", \"label\": []}\n"
        "{\"text\": \"t\", \"label\": [1]}\n",
        "{\"text\": \"t\", \"label\": [1, 0, 1]}\n{\"text\": \"t\", \"label\": [0, 0, 0]}\n"
        "{\"text\": \"t\", \"label\": [false, true, false]}\n",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_targets(*state, "a.jsonl", same[i], "label", bytes, PROBLEM_MULTI_LABEL, 3, names_abc,
                       expected, 3);
    /* Columns are assigned to labels by name, or in order if no name is known. */
    const char *columns = "b,c,text,a\n0,1,t,1\n0,0,t,0\n1,0,t,0\n";
    assert_targets(*state, "b.csv", columns, "c,b,a", bytes, PROBLEM_MULTI_LABEL, 3, names_abc, expected, 3);
    assert_targets(*state, "b.csv", columns, "a,b,c", bytes, PROBLEM_MULTI_LABEL, 3, NULL, expected, 3);
    assert_targets(*state, "c.csv", "text,label\nt,\"[1, 0, 0.25]\"\n", "label", bytes, PROBLEM_MULTI_LABEL,
                   3, NULL, (const float[]){1, 0, 0.25f}, 1);
    assert_targets(*state, "d.jsonl", "{\"ids\": [1], \"label\": [\"c\"]}\n{\"ids\": [1], \"label\": [1]}\n",
                   NULL, NULL, PROBLEM_MULTI_LABEL, 3, names_abc, (const float[]){0, 0, 1, 0, 1, 0}, 2);
}

static void test_wrong(void **state) {
    static const struct {
        ProblemType problem;
        int64_t labels;
        const char *label, *says;
    } wrong[] = {
        {PROBLEM_REGRESSION, 1, "\"high\"", "line 2: the label 'high' is not a number"},
        {PROBLEM_REGRESSION, 1, "\"nan\"", "the label 'nan' is not a number"},
        {PROBLEM_REGRESSION, 1, "\"\"", "the label '' is not a number"},
        {PROBLEM_REGRESSION, 1, "1e39", "is not a number"},
        {PROBLEM_REGRESSION, 1, "[1, 2]", "the label has 2 values, but the model has 1 output"},
        {PROBLEM_REGRESSION, 2, "3", "the label has 1 value, but the model has 2 outputs"},
        {PROBLEM_REGRESSION, 2, "[1, \"2\"]", "label[1] is not a number"},
        {PROBLEM_REGRESSION, 2, "[\"a\"]", "label[0] is not a number"},
        {PROBLEM_MULTI_LABEL, 3, "\"a\"", "the label is not a list"},
        {PROBLEM_MULTI_LABEL, 3, "[\"a\", \"x\"]",
         "unknown label 'x'; the model has 3 labels, such as \"a\""},
        {PROBLEM_MULTI_LABEL, 3, "[\"a\", \"0\"]", "label[1] repeats the label 0"},
        {PROBLEM_MULTI_LABEL, 3, "[3]", "label[0] is not a label; expected names or numbers from 0 to 2"},
        {PROBLEM_MULTI_LABEL, 3, "[-1]", "label[0] is not a label"},
        {PROBLEM_MULTI_LABEL, 3, "[null]", "label[0] is not a label"},
        {PROBLEM_MULTI_LABEL, 3, "[0.5, 1.5, 0.0]",
         "has the value 1.5, but multi-label targets must be 0 to 1"},
        {PROBLEM_MULTI_LABEL, 3, "[0.5, 1.0]", "the label has 2 values, but the model has 3 outputs"},
    };
    CLEANUP(tokenizer_freep) Tokenizer *bytes = NULL;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    assert_ok(tokenizer_new_bytes(&bytes, true));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[256];
        snprintf(text, sizeof text, "\n{\"text\": \"t\", \"label\": %s}\n", wrong[i].label);
        assert_fails(open_file(*state, "w.jsonl", text, "label", bytes, wrong[i].problem, wrong[i].labels,
                               wrong[i].labels == 3 ? names_abc : NULL, &data),
                     1, wrong[i].says);
    }
    /* A file with vectors must not continue with label numbers: a vector may be incomplete. */
    assert_fails(open_file(*state, "w.jsonl",
                           "{\"ids\": [1], \"label\": [0, 1, 1]}\n{\"ids\": [1], \"label\": [0, 1]}\n", NULL,
                           NULL, PROBLEM_MULTI_LABEL, 3, NULL, &data),
                 1, "line 2: the label is a list of 2, but earlier rows have vectors");
    assert_fails(
        open_file(*state, "w.jsonl", "{\"ids\": [1]}\n", NULL, NULL, PROBLEM_REGRESSION, 1, NULL, &data), 1,
        "line 1: 'label' is missing");
    assert_fails(
        open_file(*state, "w.csv", "text,a,b\nt,1,0\n", "a,b", bytes, PROBLEM_SINGLE_LABEL, 2, NULL, &data),
        2, "single-label classification uses one label field");
    assert_fails(open_file(*state, "w.csv", "text,a,b\nt,1,0\n", "a,b", bytes, PROBLEM_MULTI_LABEL, 3,
                           names_abc, &data),
                 2, "--label-field names 2 fields, but the model has 3 outputs");
    assert_fails(open_file(*state, "w.csv", "text,a,b,d\nt,1,0,0\n", "a,b,d", bytes, PROBLEM_MULTI_LABEL, 3,
                           names_abc, &data),
                 2, "--label-field names 2 of the model's 3 labels");
    assert_fails(
        open_file(*state, "w.csv", "text,a,b\nt,1,x\n", "a,b", bytes, PROBLEM_REGRESSION, 2, NULL, &data), 1,
        "line 2: the label 'x' is not a number");
    assert_fails(
        open_file(*state, "w.csv", "text,a,b\nt,1,0\n", "a,,b", bytes, PROBLEM_REGRESSION, 2, NULL, &data), 2,
        "a name is empty");
    assert_fails(
        open_file(*state, "w.csv", "text,a,b\nt,1,0\n", "a,a", bytes, PROBLEM_REGRESSION, 2, NULL, &data), 2,
        "names a twice");
}

static LabelKind kind_of(Files *files, const char *name, const char *text, const char *field,
                         ProblemType asked) {
    LabelKind kind = {0};
    files->count = 0;
    files_add_text(files, name, text);
    assert_ok(labels_inspect(&kind, files->list, 1, field, false, asked));
    return kind;
}

static void test_kinds(void **state) {
    static const struct {
        const char *labels[3];
        ProblemType problem;
        int64_t outputs;
    } kinds[] = {
        {{"\"good\"", "\"bad\"", "\"good\""}, PROBLEM_SINGLE_LABEL, 0},
        {{"3", "0", "5"}, PROBLEM_SINGLE_LABEL, 0},
        {{"3", "\"0.5\"", "\"many\""}, PROBLEM_SINGLE_LABEL, 0},
        {{"\"nan\"", "\"0.5\"", "\"many\""}, PROBLEM_SINGLE_LABEL, 0},
        {{"3", "\"none\"", "5"}, PROBLEM_SINGLE_LABEL, 0},
        {{"3", "0.5", "-2"}, PROBLEM_REGRESSION, 1},
        {{"[\"a\"]", "[]", "[\"b\", \"a\"]"}, PROBLEM_MULTI_LABEL, 0},
        {{"[1, 0, 0]", "[0, 0, 0]", "[1, 1, 1]"}, PROBLEM_MULTI_LABEL, 3},
        {{"[1, 0]", "[0]", "[6]"}, PROBLEM_MULTI_LABEL, 7},
        {{"[0.5, 1]", "[0, 0.0]", "[1, 1]"}, PROBLEM_MULTI_LABEL, 2},
        {{"[0.5, 1]", "[3, 0.0]", "[1, 1]"}, PROBLEM_REGRESSION, 2},
        {{"[3, 1]", "[-3, 2]", "[1, 1]"}, PROBLEM_REGRESSION, 2},
    };
    char text[512];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(text, sizeof text, "{\"label\": %s}\n{\"label\": %s}\n{\"label\": %s}\n", kinds[i].labels[0],
                 kinds[i].labels[1], kinds[i].labels[2]);
        LabelKind kind = kind_of(*state, "k.jsonl", text, "label", PROBLEM_AUTO);
        assert_int_equal(kind.problem, kinds[i].problem);
        assert_int_equal(kind.outputs, kinds[i].outputs);
    }
    assert_int_equal(kind_of(*state, "k.csv", "a,b\n0,1\n1,0.5\n", "a,b", PROBLEM_AUTO).problem,
                     PROBLEM_MULTI_LABEL);
    LabelKind columns = kind_of(*state, "k.csv", "a,b\n0,1\n1,7\n", "a,b", PROBLEM_AUTO);
    assert_int_equal(columns.problem, PROBLEM_REGRESSION);
    assert_int_equal(columns.outputs, 2);
    assert_true(columns.from_columns);
    assert_int_equal(kind_of(*state, "k.csv", "l\n1\n2\n", "l", PROBLEM_REGRESSION).outputs, 1);
    Files *files = *state;
    LabelKind kind;
    files->count = 0;
    files_add_text(files, "k.jsonl", "{\"label\": [1]}\n{\"label\": [0]}\n");
    assert_fails(labels_inspect(&kind, files->list, 1, "label", false, PROBLEM_AUTO), 2, "pass --labels N");
    files->count = 0;
    files_add_text(files, "k.jsonl", "{\"label\": [1]}\n{\"label\": 1}\n");
    assert_fails(labels_inspect(&kind, files->list, 1, "label", false, PROBLEM_AUTO), 1,
                 "line 2: the label is not a list, unlike");
    static const char *const lost[] = {"nan", " NaN", "-inf", "1e999", "NA", "n/a", "None", "null"};
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        snprintf(text, sizeof text, "label\n0.5\n%s\n2\n", lost[i]);
        files->count = 0;
        files_add_text(files, "k.csv", text);
        assert_fails(labels_inspect(&kind, files->list, 1, "label", false, PROBLEM_AUTO), 1,
                     "k.csv: line 3: the label is not a finite number, but all others are numbers");
    }
    files->count = 0;
    files_add_text(files, "k.csv", "label\nx\n");
    assert_fails(labels_inspect(&kind, files->list, 1, "label", false, PROBLEM_MULTI_LABEL), 1,
                 "line 2: the label is not a list");
    files->count = 0;
    files_add_text(files, "k.csv", "a,b\n0,1\n1,x\n");
    assert_fails(labels_inspect(&kind, files->list, 1, "a,b", false, PROBLEM_AUTO), 1,
                 "line 3: \"b\" is not a number");
}

/* Names in lists, from tables and from ids. */
static void test_names(void **state) {
    Files *files = *state;
    CLEANUP(label_set_done) LabelSet names = {0}, none = {0};
    files->count = 0;
    files_add_text(files, "n.jsonl", "{\"ids\": [1], \"label\": [\"z\", \"b\"]}\n{\"label\": [\"b\"]}\n");
    assert_ok(label_set_find_lists(&names, files->list, 1, NULL, true));
    assert_int_equal(names.count, 2);
    assert_string_equal(names.name[0], "b");
    assert_string_equal(names.name[1], "z");
    files->count = 0;
    files_add_text(files, "n.jsonl", "{\"label\": [\"z\"]}\n{\"label\": [3]}\n");
    assert_fails(label_set_find_lists(&none, files->list, 1, "label", false), 1,
                 "line 2: label[0] is not a name");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_regression), cmocka_unit_test(test_multi),
                                       cmocka_unit_test(test_wrong), cmocka_unit_test(test_kinds),
                                       cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
