/* Scores of weft eval against transformers, SciPy and scikit-learn, in any batch size. */
#include <math.h>

#include "test.h"

#include "train/classify.h"
#include "train/train.h"

static const char *const cases[] = {"bert-regression", "bert-regression-3", "bert-multilabel"};
enum { CASES = sizeof cases / sizeof *cases };

static json_t *evaluate(const char *dir, const char *file, int64_t batch) {
    json_t *result = NULL;
    EvalConfig config = {.settings = {.model = {.name = dir, .task = "auto", .seq = 12},
                                      .data = {.files = &file, .files_count = 1, .format = "auto"},
                                      .run = {.micro_batch = batch},
                                      .device = {.name = "cpu", .threads = 1},
                                      .report = {.quiet = true, .log = stderr}}};
    assert_ok(eval_run(&config, &result));
    return result;
}

static void test_scores(void **state) {
    for (int i = 0; i < CASES; i++) {
        char dir[256], file[300], facts_file[300];
        snprintf(dir, sizeof dir, WEFT_TEST_DIR "/golden/cases/%s", cases[i]);
        snprintf(file, sizeof file, "%s/eval.jsonl", dir);
        snprintf(facts_file, sizeof facts_file, "%s/golden.json", dir);
        CLEANUP(json_decrefp) json_t *facts = NULL;
        assert_ok(json_read_file(facts_file, &facts));
        for (int64_t batch = 4; batch <= 64; batch *= 4) {
            CLEANUP(json_decrefp) json_t *result = evaluate(dir, file, batch);
            const char *key;
            json_t *expected;
            assert_true(json_object_size(json_object_get(facts, "eval")) >= 4);
            json_object_foreach(json_object_get(facts, "eval"), key, expected) {
                double found = json_number_value(json_object_get(result, key));
                if (!(fabs(found - json_number_value(expected)) <= 1e-6))
                    fail_msg("%s: %s is %.9g; expected %.9g", cases[i], key, found,
                             json_number_value(expected));
            }
        }
    }
}

/* sklearn.metrics.matthews_corrcoef of scikit-learn for these labels and predictions. */
static void test_mcc(void **state) {
    static const struct {
        const char *given, *predicted;
        double expected;
    } rows[] = {{"00111011", "01110011", 0.4666666666666667},
                {"012210221", "022211201", 0.4807692307692308},
                {"111", "111", 0},
                {"0101", "1111", 0},
                {"0101", "1010", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t given[3] = {0}, predicted[3] = {0}, hits = 0;
        for (size_t k = 0; rows[i].given[k]; k++) {
            given[rows[i].given[k] - '0']++;
            predicted[rows[i].predicted[k] - '0']++;
            hits += rows[i].given[k] == rows[i].predicted[k];
        }
        assert_float_equal(classify_mcc(given, predicted, 3, hits), rows[i].expected, 1e-15);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scores), cmocka_unit_test(test_mcc)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
