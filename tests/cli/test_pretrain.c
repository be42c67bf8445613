/* BERT pretraining through the program, from text: sentences, pairs and masks are created on the fly, and
 * every layout gives the same run. Also next-sentence prediction alone, classification and dialogues. */
#include <math.h>

#include "base/json.h"
#include "cli/corpus.h"
#include "comm/mpi.h"

/* Articles of generated sentences. Each article has its own words. */
static void put_articles(const char *name) {
    CLEANUP(mem_freep) char *text = calloc(1, 1 << 20);
    size_t size = 0;
    for (int article = 0; article < 60; article++) {
        size += (size_t)sprintf(text + size, "{\"text\": \"Article %d\\n\\n", article);
        for (int sentence = 0; sentence < 12; sentence++)
            size += (size_t)sprintf(text + size, "Dr. Word%c%d saw the word%c at %d.%d p.m. in it. ",
                                    'a' + article % 26, article, 'a' + sentence, sentence, article);
        size += (size_t)sprintf(text + size, "\"}\n");
    }
    put_file(name, text, size);
}

static void put_vocab(const char *dir) {
    char name[96];
    CLEANUP(mem_freep) char *text = calloc(1, 1 << 16);
    size_t size = (size_t)sprintf(text, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    for (char c = '!'; c < '~'; c++)
        if (c < 'A' || c > 'Z') size += (size_t)sprintf(text + size, "%c\n##%c\n", c, c);
    size += (size_t)sprintf(text + size, "the\nsaw\nword\nat\nin\nit\narticle\n##or\n##rd\ndr\n");
    assert_int_equal(mkdir(at(dir), 0755), 0);
    snprintf(name, sizeof name, "%s/vocab.txt", dir);
    put_file(name, text, size);
}

/* The lines of metrics.jsonl as an array. */
static json_t *metrics(const char *run) {
    char name[96], line[4096];
    snprintf(name, sizeof name, "%s/metrics.jsonl", run);
    FILE *file = fopen(at(name), "r");
    assert_non_null(file);
    json_t *lines = json_array();
    while (fgets(line, sizeof line, file)) {
        json_t *json = json_loads(line, 0, NULL);
        assert_non_null(json);
        json_array_append_new(lines, json);
    }
    fclose(file);
    return lines;
}

static void assert_same_numbers(const json_t *a, const json_t *b, const char *name) {
    const json_t *x = json_object_get(a, name), *y = json_object_get(b, name);
    assert_true(!x == !y);
    if (!x) return;
    double p = json_number_value(x), q = json_number_value(y);
    if (fabs(p - q) > 1e-4 * fabs(p)) fail_msg("%s differs: %.9g and %.9g", name, p, q);
}

static void train(const char *run, const char *ranks, const char *layout, const char *value,
                  const char *more) {
    assert_runs(program_run("train", "--model", "bert-tiny", "--tokenizer", at("vocab"), "--data",
                            at("articles.jsonl"), "--seq", "48", "--steps", "4", "--batch", "8",
                            "--micro-batch", "2", "--eval-every", "2", "--eval-batches", "2", "--out",
                            at(run), "--quiet", "--ranks", ranks, layout, value, more));
}

static void test_layouts(void **state) {
    put_articles("articles.jsonl");
    put_vocab("vocab");
    train("one", "1", "--dp", "1", "--whole-word-masking");
    CLEANUP(json_decrefp) json_t *one = metrics("one");
    assert_int_equal(json_array_size(one), 7); /* 4 steps, and evaluations before, between and after them */
    const json_t *last = json_array_get(one, 6);
    double right = json_number_value(json_object_get(last, "val_next_sentence_accuracy"));
    assert_true(right >= 0 && right <= 1 && fmod(right * 16, 1) == 0);
    assert_non_null(json_object_get(last, "val_token_accuracy"));
    assert_non_null(json_object_get(last, "val_token"));
    CLEANUP(json_decrefp) json_t *summary = NULL;
    assert_ok(json_read_file(at("one/summary.json"), &summary));
    assert_same_numbers(summary, last, "val_next_sentence_accuracy");
    if (!mpi_built()) return;
    static const char *const layouts[] = {"--dp", "--tp", "--pp", "--cp"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        train(layouts[i] + 2, "2", layouts[i], "2", "--whole-word-masking");
        CLEANUP(json_decrefp) json_t *other = metrics(layouts[i] + 2);
        assert_int_equal(json_array_size(other), json_array_size(one));
        for (size_t k = 0; k < json_array_size(one); k++) {
            static const char *const names[] = {"loss",          "token",
                                                "next_sentence", "tokens",
                                                "val_loss",      "val_token_accuracy",
                                                "val_token",     "val_next_sentence_accuracy"};
            for (size_t n = 0; n < sizeof names / sizeof *names; n++)
                assert_same_numbers(json_array_get(one, k), json_array_get(other, k), names[n]);
        }
    }
}

/* Next-sentence prediction alone gives a checkpoint of the matching transformers class, from which eval
 * detects its task. */
static void test_next_sentence_alone(void **state) {
    train("alone", "1", "--dp", "1", "--no-masked-tokens");
    CLEANUP(json_decrefp) json_t *lines = metrics("alone");
    const json_t *last = json_array_get(lines, json_array_size(lines) - 1);
    assert_null(json_object_get(last, "val_token"));
    assert_non_null(json_object_get(last, "val_next_sentence"));
    Ran ran =
        program_run("eval", "--model", at("alone"), "--data", at("articles.jsonl"), "--seq", "48", "--json");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp) json_t *json = json_loads(ran.out, 0, NULL);
    const json_t *parts = json_object_get(json, "parts");
    assert_int_equal(json_object_size(parts), 1);
    assert_non_null(json_object_get(json_object_get(parts, "next_sentence"), "accuracy"));
    ran_done(&ran);
    assert_refused(2, "no objective left", "train", "--model", "bert-tiny", "--data", at("articles.jsonl"),
                   "--no-masked-tokens", "--no-next-sentence");
    assert_refused(2, "needs a WordPiece tokenizer", "train", "--model", "bert-tiny", "--data", "self",
                   "--whole-word-masking");
}

/* Examples of token ids need no labels for next-sentence prediction alone. Data on which no loss is computed
 * is an error before the first step, on one rank and on two. */
static void test_ids_counted(void **state) {
    put_text("next.jsonl", "{\"ids\": [1, 2, 3], \"next\": 0}\n{\"ids\": [4, 5], \"next\": 1}\n");
    Ran ran = program_run("train", "--model", "bert-tiny", "--task", "mlm", "--no-masked-tokens", "--format",
                          "ids", "--data", at("next.jsonl"), "--seq", "8", "--batch", "2", "--steps", "1",
                          "--val-fraction", "0", "--quiet");
    assert_runs(ran);
    put_text("ignored.jsonl", "{\"ids\": [1, 2], \"labels\": [-100, -100]}\n"
                              "{\"ids\": [3, 4], \"labels\": [-100, -100]}\n");
    for (int ranks = 1; ranks <= 2; ranks++)
        assert_refused(1, "ignored.jsonl: nothing to predict: every label is -100", "train", "--model",
                       "gpt2-tiny", "--format", "ids", "--data", at("ignored.jsonl"), "--seq", "8", "--batch",
                       "2", "--steps", "1", "--val-fraction", "0", "--ranks", ranks == 1 ? "1" : "2",
                       "--quiet");
}

/* Trains and scores rows with named labels; config.json stores the names as transformers does. */
static void test_classify(void **state) {
    CLEANUP(mem_freep) char *text = calloc(1, 1 << 16);
    size_t size = (size_t)sprintf(text, "review,stars,id\n");
    for (int i = 0; i < 120; i++)
        size += (size_t)sprintf(text + size, "\"%s, %c%d\",%s,%d\n",
                                i % 3 == 0   ? "the word"
                                : i % 3 == 1 ? "it saw"
                                             : "article at",
                                'a' + i % 26, i % 7,
                                i % 3 == 0   ? "low"
                                : i % 3 == 1 ? "high"
                                             : "middle",
                                i);
    put_file("reviews.csv", text, size);
    assert_ran(program_run("train", "--model", "bert-tiny", "--task", "classify", "--tokenizer", at("vocab"),
                           "--data", at("reviews.csv"), "--text-field", "review", "--label-field", "stars",
                           "--seq", "16", "--steps", "60", "--batch", "12", "--lr", "1e-3", "--dropout", "0",
                           "--eval-every", "0", "--val-fraction", "0.2", "--out", at("stars")),
               0, out, " FILE --text-field review --label-field stars\n");
    CLEANUP(json_decrefp) json_t *config = NULL;
    assert_ok(json_read_file(at("stars/latest/config.json"), &config));
    const json_t *names = json_object_get(config, "id2label"), *numbers = json_object_get(config, "label2id");
    assert_string_equal(json_string_value(json_object_get(names, "0")), "high");
    CLEANUP(json_decrefp) json_t *summary = NULL;
    assert_ok(json_read_file(at("stars/summary.json"), &summary));
    assert_true(json_number_value(json_object_get(summary, "accuracy")) == 1);
    assert_true(json_number_value(json_object_get(summary, "f1")) == 1);
    assert_true(json_number_value(json_object_get(summary, "mcc")) == 1);
    assert_int_equal(json_array_size(json_object_get(summary, "epochs")), 7); /* 60 x 12 of 96 rows each */
    assert_string_equal(json_string_value(json_object_get(names, "2")), "middle");
    assert_int_equal(json_integer_value(json_object_get(numbers, "low")), 1);
    Ran ran = program_run("eval", "--model", at("stars"), "--data", at("reviews.csv"), "--text-field",
                          "review", "--label-field", "stars", "--seq", "16", "--batch", "7", "--dp", "2",
                          "--tp", "2", "--sequence-parallel", "--json");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp) json_t *json = json_loads(ran.out, 0, NULL);
    assert_true(json_number_value(json_object_get(json, "accuracy")) == 1);
    assert_true(json_number_value(json_object_get(json, "f1_macro")) == 1);
    const json_t *matrix = json_object_get(json, "confusion");
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(json_integer_value(json_array_get(json_array_get(matrix, i), k)),
                             i == k ? 40 : 0);
    ran_done(&ran);
    /* A model quantized with the same rows classifies them as well. */
    ran = program_run("quantize", "--model", at("stars"), "--out", at("stars8"), "--calibrate",
                      at("reviews.csv"), "--text-field", "review", "--label-field", "stars");
    assert_runs(ran);
    ran = program_run("eval", "--model", at("stars"), "--against", at("stars8"), "--data", at("reviews.csv"),
                      "--text-field", "review", "--label-field", "stars", "--seq", "16", "--json");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp) json_t *both = json_loads(ran.out, 0, NULL);
    for (size_t i = 0; i < 2; i++)
        assert_true(json_number_value(json_object_get(json_array_get(json_object_get(both, "models"), i),
                                                      "accuracy")) == 1);
    ran_done(&ran);
    assert_refused(1, "no field \"text\"; found: review, stars, id; choose the field with --text-field",
                   "train", "--model", "bert-tiny", "--task", "classify", "--tokenizer", at("vocab"),
                   "--data", at("reviews.csv"), "--label-field", "stars");
    put_file("sorted.csv", "text,label\nit,a\nsaw,a\nthe,a\nword,b\n", 35);
    assert_ran(program_run("train", "--model", "bert-tiny", "--layers", "1", "--task", "classify",
                           "--tokenizer", at("vocab"), "--data", at("sorted.csv"), "--seq", "16", "--steps",
                           "1", "--batch", "1", "--val-fraction", "0.25", "--quiet"),
               0, err, "the training part has no example of the label 'b'");
    ran = program_run("train", "--model", "bert-tiny", "--layers", "1", "--task", "classify", "--tokenizer",
                      at("vocab"), "--data", at("sorted.csv"), "--seq", "16", "--steps", "1", "--batch", "2",
                      "--val-fraction", "0.25", "--ranks", "2", "--quiet");
    assert_int_equal(ran.code, 0);
    const char *warning = strstr(ran.err, "warning: ");
    assert_non_null(warning);
    assert_null(strstr(warning + 1, "warning: ")); /* once, not once per rank */
    ran_done(&ran);
    put_file("more.csv", "review,stars\nit,huge\n", 21);
    assert_refused(1, "unknown label 'huge'; the model has 3 labels", "eval", "--model", at("stars"),
                   "--data", at("more.csv"), "--text-field", "review", "--label-field", "stars", "--seq",
                   "16");
}

static json_t *eval_json(const char *model, const char *file, const char *field, const char *axis) {
    Ran ran =
        program_run("eval", "--model", at(model), "--data", at(file), "--label-field", field, "--seq", "16",
                    "--batch", "7", "--dp", "2", axis ? axis : "--tp", axis ? "2" : "1", "--json");
    if (ran.code) fail_msg("%s", ran.err);
    json_t *json = json_loads(ran.out, 0, NULL);
    ran_done(&ran);
    return json;
}

static void assert_problem(const char *config_path, const char *expected) {
    CLEANUP(json_decrefp) json_t *config = NULL;
    assert_ok(json_read_file(config_path, &config));
    assert_string_equal(json_string_value(json_object_get(config, "problem_type")), expected);
}

static double value_of(const json_t *json, const char *key) {
    return json_number_value(json_object_get(json, key));
}

#define train_rows(file, field, out, ...)                                                                    \
    program_run("train", "--model", "bert-tiny", "--task", "classify", "--tokenizer", at("vocab"), "--data", \
                at(file), "--label-field", field, "--seq", "16", "--steps", "80", "--batch", "12", "--lr",   \
                "1e-3", "--dropout", "0", "--val-fraction", "0.2", "--out", at(out), "--quiet", __VA_ARGS__)

/* Numbers as labels: a regression, whose scores do not depend on the layout. */
static void test_regression(void **state) {
    CLEANUP(mem_freep) char *text = calloc(1, 1 << 16);
    size_t size = (size_t)sprintf(text, "text,mood,size\n");
    for (int i = 0; i < 120; i++)
        size += (size_t)sprintf(text + size, "%s %c,%s,%d\n",
                                i % 3 == 0   ? "the word"
                                : i % 3 == 1 ? "it saw"
                                             : "article at",
                                'a' + i % 26,
                                i % 3 == 0   ? "-1.5"
                                : i % 3 == 1 ? "0"
                                             : "2.25",
                                i % 5);
    put_file("moods.csv", text, size);
    Ran ran = train_rows("moods.csv", "mood", "mood", "--eval-every", "0");
    assert_runs(ran);
    assert_problem(at("mood/latest/config.json"), "regression");
    CLEANUP(json_decrefp) json_t *json = eval_json("mood", "moods.csv", "mood", NULL);
    CLEANUP(json_decrefp) json_t *split = eval_json("mood", "moods.csv", "mood", "--tp");
    CLEANUP(json_decrefp) json_t *parts = eval_json("mood", "moods.csv", "mood", "--cp");
    static const char *const scores[] = {"loss", "mse", "pearson", "spearman"};
    for (size_t i = 0; i < 4; i++) {
        assert_float_equal(value_of(json, scores[i]), value_of(split, scores[i]), 1e-5);
        assert_float_equal(value_of(json, scores[i]), value_of(parts, scores[i]), 1e-5);
    }
    assert_float_equal(value_of(json, "mse"), value_of(json, "loss"), 1e-5);
    assert_true(value_of(json, "pearson") > 0.95 && value_of(json, "spearman") > 0.8);
    assert_null(json_object_get(json, "accuracy"));
    assert_null(json_object_get(json_object_get(json_object_get(json, "parts"), "classify"), "accuracy"));
    ran = program_run("eval", "--model", at("mood"), "--data", at("moods.csv"), "--label-field", "mood",
                      "--seq", "16");
    assert_contains(ran.out, ", Pearson 1.0");
    ran_done(&ran);
    /* Two columns are two outputs, which eval finds by name. */
    ran = train_rows("moods.csv", "mood,size", "both", "--steps", "2");
    assert_runs(ran);
    CLEANUP(json_decrefp) json_t *both = eval_json("both", "moods.csv", "size,mood", NULL);
    const json_t *first = json_array_get(json_object_get(both, "outputs"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "label")), "mood");
    assert_refused(2, "has the problem_type regression", "eval", "--model", at("mood"), "--data",
                   at("moods.csv"), "--label-field", "mood", "--seq", "16", "--problem-type", "multi-label");
    assert_refused(1, "line 2: the label 'the word a' is not a number", "eval", "--model", at("mood"),
                   "--data", at("moods.csv"), "--label-field", "text", "--seq", "16");
    assert_refused(2, "needs at least 2 labels", "train", "--model", "bert-tiny", "--task", "classify",
                   "--tokenizer", at("vocab"), "--data", at("moods.csv"), "--label-field", "mood", "--labels",
                   "1", "--problem-type", "single-label");
    /* A run cannot continue with another loss. */
    put_text("bits.csv", "text,a,b\nit saw,0,1\nthe word,1,1\narticle at,1,0\n");
    ran = train_rows("bits.csv", "a,b", "bits", "--steps", "1", "--problem-type", "regression");
    assert_runs(ran);
    ran = train_rows("bits.csv", "a,b", "bits", "--steps", "2", "--resume", "--problem-type", "multi-label");
    assert_int_equal(ran.code, 2);
    assert_contains(ran.err, "the task is multi_label_classification, but that of the run in ");
    assert_contains(ran.err, " is regression; pass the same --task and --problem-type");
    ran_done(&ran);
}

/* Lists of names as labels. */
static void test_multi_label(void **state) {
    CLEANUP(mem_freep) char *text = calloc(1, 1 << 16);
    size_t size = 0;
    for (int i = 0; i < 120; i++)
        size +=
            (size_t)sprintf(text + size, "{\"text\": \"%s%s %c\", \"label\": [%s%s%s]}\n",
                            i % 2 ? "the " : "saw ", i % 3 ? "word" : "it", 'a' + i % 26,
                            i % 2 ? "\"odd\"" : "", i % 2 && i % 3 ? ", " : "", i % 3 ? "\"article\"" : "");
    put_file("tags.jsonl", text, size);
    Ran ran = train_rows("tags.jsonl", "label", "tags", "--eval-every", "0");
    assert_runs(ran);
    assert_problem(at("tags/latest/config.json"), "multi_label_classification");
    CLEANUP(json_decrefp) json_t *json = eval_json("tags", "tags.jsonl", "label", NULL);
    CLEANUP(json_decrefp) json_t *split = eval_json("tags", "tags.jsonl", "label", "--tp");
    static const char *const scores[] = {"accuracy", "f1_micro", "f1_macro", "f1_weighted"};
    for (size_t i = 0; i < 4; i++) {
        assert_true(value_of(json, scores[i]) == value_of(split, scores[i]));
        assert_true(value_of(json, scores[i]) > 0.8);
    }
    assert_null(json_object_get(json, "confusion"));
    const json_t *article = json_array_get(json_object_get(json, "classes"), 0);
    assert_string_equal(json_string_value(json_object_get(article, "label")), "article");
    assert_int_equal(json_integer_value(json_object_get(article, "count")), 80);
    ran = program_run("eval", "--model", at("tags"), "--data", at("tags.jsonl"), "--seq", "16");
    assert_contains(ran.out, "exact-match accuracy ");
    assert_contains(ran.out, "%, micro F1 ");
    ran_done(&ran);
}

/* Dialogues, with next-sentence prediction alone. */
static void test_dialogues(void **state) {
    CLEANUP(mem_freep) char *text = calloc(1, 1 << 16);
    size_t size = 0;
    for (int i = 0; i < 100; i++)
        size += (size_t)sprintf(text + size, "{\"q\": \"the word %d\", \"a\": \"it saw %d\"}\n", i, i);
    put_file("pairs.jsonl", text, size);
    assert_runs(program_run("train", "--model", "bert-tiny", "--tokenizer", at("vocab"), "--data",
                            at("pairs.jsonl"), "--seq", "24", "--steps", "2", "--batch", "4",
                            "--no-masked-tokens", "--out", at("dialogues"), "--quiet"));
    CLEANUP(json_decrefp) json_t *lines = metrics("dialogues");
    assert_non_null(
        json_object_get(json_array_get(lines, json_array_size(lines) - 1), "val_next_sentence_accuracy"));
    assert_refused(2, "which require BERT and --task mlm", "train", "--model", "gpt2-tiny", "--tokenizer",
                   at("vocab"), "--data", at("pairs.jsonl"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),     cmocka_unit_test(test_next_sentence_alone),
        cmocka_unit_test(test_ids_counted), cmocka_unit_test(test_classify),
        cmocka_unit_test(test_regression),  cmocka_unit_test(test_multi_label),
        cmocka_unit_test(test_dialogues)};
    return cmocka_run_group_tests(tests, corpus_setup, corpus_teardown);
}
