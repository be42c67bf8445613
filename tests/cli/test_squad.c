/* SQuAD end to end: a small BERT memorizes a dozen questions, with accents, quotes and numbers in their
 * answers, and returns the answers through train, eval and answer. */
#include <math.h>

#include "corpus.h"

#define VOCAB WEFT_TEST_DIR "/golden/squad/vocab.txt"
#define CAFE                                                                                                 \
    "A caf\u00e9 in Z\u00fcrich is named \u201cOd\u00e9on\u201d. It opened in 1911, on the 1st of July, "    \
    "and James Joyce sat there."
#define RIVER                                                                                                \
    "The river Ilm (128 km long) starts at 744.5 m and ends near Gro\u00dfheringen. Its name was: Ilmena."
#define SHAPE                                                                                                \
    "--model", "bert-tiny", "--layers", "2", "--hidden", "64", "--heads", "2", "--seq", "96", "--dropout", "0"

typedef struct Question {
    const char *context, *question, *answer; /* NULL: no answer */
} Question;

static const Question questions[] = {
    {CAFE, "Which cafe?", "\u201cOd\u00e9on\u201d"},
    {CAFE, "When did it open?", "1911"},
    {CAFE, "Who sat there?", "James Joyce"},
    {CAFE, "Which city?", "Z\u00fcrich"},
    {CAFE, "Which day?", "1st of July"},
    {CAFE, "What did it cost?", NULL},
    {RIVER, "How long is it?", "128 km"},
    {RIVER, "How high?", "744.5 m"},
    {RIVER, "Where does it end?", "Gro\u00dfheringen"},
    {RIVER, "What was the name?", "Ilmena"},
    {RIVER, "Which river?", "Ilm"},
    {RIVER, "Who owns it?", NULL},
};

enum { COUNT = sizeof questions / sizeof *questions };

static int characters(const char *from, const char *to) {
    int count = 0;
    for (; from < to; from++) count += ((unsigned char)*from & 0xC0) != 0x80;
    return count;
}

/* The offset, in characters, of the first occurrence of a text. */
static int offset_of(const char *context, const char *text) {
    return characters(context, strstr(context, text));
}

static char *inside(const char *name) {
    char *path = NULL;
    assert_ok(path_join(&path, corpus_root, name));
    return path;
}

static void write_questions(const char *path) {
    json_t *paragraphs = json_array(), *qas = NULL;
    for (int i = 0; i < COUNT; i++) {
        const Question *q = &questions[i];
        if (i == 0 || strcmp(q->context, questions[i - 1].context)) {
            json_t *paragraph = json_pack("{ss s[]}", "context", q->context, "qas");
            qas = json_object_get(paragraph, "qas");
            json_array_append_new(paragraphs, paragraph);
        }
        char id[16];
        snprintf(id, sizeof id, "id%d", i);
        json_t *entry = json_pack("{ss ss sb s[]}", "id", id, "question", q->question, "is_impossible",
                                  !q->answer, "answers");
        if (q->answer)
            json_array_append_new(
                json_object_get(entry, "answers"),
                json_pack("{ss si}", "text", q->answer, "answer_start", offset_of(q->context, q->answer)));
        json_array_append_new(qas, entry);
    }
    CLEANUP(json_decrefp)
    json_t *json =
        json_pack("{ss s[{ss so}]}", "version", "v2.0", "data", "title", "made up", "paragraphs", paragraphs);
    assert_non_null(json);
    assert_ok(json_write_file(path, json));
}

static json_t *run_json(const char *const *argv) {
    Ran ran = program_run_to(NULL, argv);
    if (ran.code) fail_msg("%s: %s", argv[0], ran.err);
    json_t *json = json_loads(ran.out, 0, NULL);
    assert_non_null(json);
    ran_done(&ran);
    return json;
}

#define json_of(...) run_json((const char *const[]){__VA_ARGS__, "--json", NULL})

static double number(const json_t *json, const char *key) {
    const json_t *value = json_object_get(json, key);
    if (!json_is_number(value)) fail_msg("key '%s' is missing or not a number", key);
    return json_number_value(value);
}

static int setup(void **state) {
    if (corpus_setup(state) || program_setup(state)) return -1;
    CLEANUP(mem_freep) char *data = inside("squad.json");
    CLEANUP(mem_freep) char *run = inside("run");
    write_questions(data);
    json_t *summary =
        json_of("train", "--task", "squad", SHAPE, "--tokenizer", VOCAB, "--data", data, "--val", data,
                "--steps", "200", "--batch", "12", "--lr", "4e-3", "--warmup", "10", "--out", run,
                "--eval-every", "0", "--eval-batches", "0", "--threads", "2", "--quiet");
    json_decref(summary);
    return 0;
}

static void small_model_memorizes_its_questions(void **state) {
    CLEANUP(mem_freep) char *data = inside("squad.json");
    CLEANUP(mem_freep) char *run = inside("run");
    CLEANUP(mem_freep) char *out = inside("answers");
    CLEANUP(mem_freep) char *predictions = inside("answers/predictions.json");
    CLEANUP(mem_freep) char *odds = inside("answers/null_odds.json");
    CLEANUP(mem_freep) char *n_best = inside("answers/nbest_predictions.json");
    CLEANUP(mem_freep) char *summary_path = inside("run/summary.json");
    CLEANUP(json_decrefp)
    json_t *result = json_of("eval", "--task", "squad", "--model", run, "--data", data, "--out", out,
                             "--nbest", "--quiet");
    assert_true(number(result, "exact") == 100 && number(result, "f1") == 100);
    assert_int_equal(number(result, "HasAns_total"), 10);
    assert_int_equal(number(result, "NoAns_total"), 2);
    assert_true(number(result, "NoAns_exact") == 100);
    assert_true(number(result, "best_f1") == 100);
    /* Every answer matches exactly. */
    CLEANUP(json_decrefp) json_t *given = NULL;
    assert_ok(json_read_file(predictions, &given));
    for (int i = 0; i < COUNT; i++) {
        char id[16];
        snprintf(id, sizeof id, "id%d", i);
        assert_string_equal(json_string_value(json_object_get(given, id)),
                            questions[i].answer ? questions[i].answer : "");
    }
    /* Two ranks with sharded data and parameters give the same result. */
    CLEANUP(json_decrefp)
    json_t *shared = json_of("eval", "--task", "squad", "--model", run, "--data", data, "--ranks", "2",
                             "--zero", "3", "--batch", "5", "--quiet");
    assert_true(number(shared, "f1") == 100 && number(shared, "total") == COUNT);
    assert_true(fabs(number(result, "loss") - number(shared, "loss")) < 1e-6);
    assert_true(number(result, "best_f1_thresh") == number(shared, "best_f1_thresh"));
    CLEANUP(json_decrefp)
    json_t *split = json_of("eval", "--task", "squad", "--model", run, "--data", data, "--tp", "2",
                            "--sequence-parallel", "--batch", "5", "--quiet");
    CLEANUP(json_decrefp)
    json_t *staged =
        json_of("eval", "--task", "squad", "--model", run, "--data", data, "--pp", "2", "--quiet");
    CLEANUP(json_decrefp)
    json_t *parts = json_of("eval", "--task", "squad", "--model", run, "--data", data, "--cp", "2",
                            "--cp-mode", "ring", "--batch", "5", "--quiet");
    const json_t *ways[] = {split, staged, parts};
    for (int i = 0; i < 3; i++) {
        assert_true(number(ways[i], "f1") == 100 && number(ways[i], "total") == COUNT);
        assert_true(fabs(number(result, "loss") - number(ways[i], "loss")) < 1e-5);
        assert_true(fabs(number(result, "best_f1_thresh") - number(ways[i], "best_f1_thresh")) < 1e-3);
    }
    /* Questions that were not evaluated do not affect the score. A file of an earlier evaluation, which this
     * one does not write, is removed. */
    CLEANUP(mem_freep) char *reused = inside("reused");
    CLEANUP(mem_freep) char *stale = inside("reused/nbest_predictions.json");
    assert_ok(dir_make(reused));
    assert_ok(file_replace(stale, "{}", 2));
    CLEANUP(json_decrefp)
    json_t *some = json_of("eval", "--task", "squad", "--model", run, "--data", data, "--batch", "3",
                           "--max-batches", "1", "--out", reused, "--quiet");
    assert_false(path_exists(stale));
    assert_true(number(some, "missing") > 0 && number(some, "best_f1") <= 100);
    /* The loss equals the validation loss of training. */
    CLEANUP(json_decrefp) json_t *summary = NULL;
    assert_ok(json_read_file(summary_path, &summary));
    assert_true(fabs(number(result, "loss") - number(summary, "val_loss")) < 1e-5);
    assert_true(number(summary, "exact") == 1 && number(summary, "f1") == 1);
    /* Scoring the prediction files gives the same result as evaluating the model. */
    CLEANUP(json_decrefp)
    json_t *again = json_of("eval", "--task", "squad", "--data", data, "--predictions", predictions,
                            "--na-prob", odds, "--na-prob-thresh", "1e9");
    const char *key;
    json_t *value;
    json_object_foreach(again, key, value) assert_true(number(result, key) == json_number_value(value));
    /* The first n-best candidate is the answer, with its two scores. */
    CLEANUP(json_decrefp) json_t *looked_at = NULL;
    assert_ok(json_read_file(n_best, &looked_at));
    const json_t *first = json_array_get(json_object_get(looked_at, "id0"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "text")), questions[0].answer);
    const json_t *none = NULL, *choice;
    for (size_t i = 0; (choice = json_array_get(json_object_get(looked_at, "id0"), i)); i++)
        if (!*json_string_value(json_object_get(choice, "text"))) none = choice;
    CLEANUP(json_decrefp) json_t *null_odds = NULL;
    assert_ok(json_read_file(odds, &null_odds));
    double apart = number(none, "start_logit") + number(none, "end_logit") - number(first, "start_logit") -
                   number(first, "end_logit");
    assert_true(fabs(apart - number(null_odds, "id0")) < 1e-5);
    assert_refused(2, "--out writes a model's answers", "eval", "--data", data, "--predictions", predictions,
                   "--out", out);
    CLEANUP(mem_freep) char *unused = inside("unused");
    assert_refused(2, "--max-batches 1: no question is complete in the first 1 of", "eval", "--task", "squad",
                   "--model", run, "--data", data, "--seq", "20", "--doc-stride", "4", "--batch", "1",
                   "--max-batches", "1", "--out", unused);
    assert_false(path_exists(unused));
    assert_refused(2, "requires --na-prob", "eval", "--data", data, "--predictions", predictions,
                   "--na-prob-thresh", "0");
}

static void quantized_model_answers_the_same(void **state) {
    CLEANUP(mem_freep) char *data = inside("squad.json");
    CLEANUP(mem_freep) char *run = inside("run");
    CLEANUP(mem_freep) char *dynamic = inside("int8");
    CLEANUP(mem_freep) char *held = inside("int8-static");
    CLEANUP(mem_freep) char *none = inside("none");
    CLEANUP(json_decrefp) json_t *made = json_of("quantize", "--model", run, "--out", dynamic);
    CLEANUP(json_decrefp)
    json_t *other = json_of("quantize", "--model", run, "--out", held, "--int8-embedding", "--activations",
                            "static", "--calibrate", data);
    CLEANUP(json_decrefp)
    json_t *both = json_of("eval", "--task", "squad", "--model", run, "--against", dynamic, held, "--data",
                           data, "--quiet");
    const json_t *models = json_object_get(both, "models"), *first = json_array_get(models, 0), *row;
    size_t at = 0;
    json_array_foreach(models, at, row) {
        assert_true(number(row, "f1") == 100 && number(row, "exact") == 100);
        assert_true(fabs(number(row, "loss") - number(first, "loss")) < 0.02);
        assert_true((number(row, "loss") == number(first, "loss")) == (at == 0));
    }
    assert_refused(2, "saves the answers of a single model", "eval", "--task", "squad", "--model", run,
                   "--against", dynamic, "--data", data, "--out", held);
    assert_refused(2, "/nowhere: no such directory; expected a run or a checkpoint", "eval", "--task",
                   "squad", "--model", run, "--against", "/nowhere", "--data", data);
    assert_refused(2, "is a question-answering model", "quantize", "--model", run, "--out", none,
                   "--calibrate", VOCAB);
}

static void answers_have_offsets(void **state) {
    CLEANUP(mem_freep) char *run = inside("run");
    CLEANUP(mem_freep) char *context = inside("context.txt");
    for (int i = 0; i < COUNT; i++) {
        const Question *q = &questions[i];
        assert_ok(file_replace(context, q->context, strlen(q->context)));
        CLEANUP(json_decrefp)
        json_t *json = json_of("answer", "--model", run, "--context", context, "--question", q->question);
        const json_t *answer = json_array_get(json_object_get(json, "answers"), 0);
        if (q->answer) {
            assert_string_equal(json_string_value(json_object_get(answer, "answer")), q->answer);
            assert_int_equal(number(answer, "start"), offset_of(q->context, q->answer));
            assert_int_equal(number(answer, "end"), offset_of(q->context, q->answer) +
                                                        characters(q->answer, q->answer + strlen(q->answer)));
        } else {
            assert_true(json_is_null(json_object_get(answer, "answer")));
            assert_true(number(answer, "no_answer_probability") == number(answer, "probability"));
        }
        assert_true(number(answer, "probability") > 0.5);
    }
    Ran ran = program_run("answer", "--model", run, "--context", context, "--question", "Who owns it?",
                          "--question", "Which river?");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "Who owns it?: no answer  (probability ");
    assert_contains(ran.out, "Which river?: Ilm  (characters 10-13, probability ");
    ran_done(&ran);
    ran =
        program_run("answer", "--model", run, "--context", context, "--question", "Who owns it?", "--always");
    assert_int_equal(ran.code, 0);
    assert_null(strstr(ran.out, "no answer"));
    ran_done(&ran);
    ran =
        program_run("answer", run, context, "Which river?", "--always", "--n-best", "1", "--max-answer", "1");
    assert_int_equal(ran.code, 0);
    assert_string_equal(ran.out,
                        "no start and end candidates form an answer; raise --n-best or --max-answer\n");
    ran_done(&ran);
}

static void prepared_questions_train_like_the_file(void **state) {
    CLEANUP(mem_freep) char *data = inside("squad.json");
    CLEANUP(mem_freep) char *out = inside("prepared");
    CLEANUP(mem_freep) char *lines = inside("prepared/squad.jsonl");
    CLEANUP(json_decrefp)
    json_t *made = json_of("prepare", "--format", "squad", "--tokenizer", VOCAB, "--data", data, "--out", out,
                           "--seq", "96");
    const json_t *file = json_array_get(json_object_get(made, "files"), 0);
    assert_int_equal(number(file, "features"), COUNT);
    assert_int_equal(number(file, "lost_answers"), 0);
    double loss[2];
    for (int i = 0; i < 2; i++) {
        CLEANUP(json_decrefp)
        json_t *summary = json_of("train", "--task", i ? "span" : "squad", SHAPE, "--tokenizer", VOCAB,
                                  "--data", i ? lines : data, "--val-fraction", "0", "--steps", "3",
                                  "--batch", "4", "--threads", "1", "--quiet");
        loss[i] = number(summary, "loss_last");
    }
    assert_true(loss[0] == loss[1]);
    Ran ran = program_run("prepare", "--format", "squad", "--tokenizer", VOCAB, "--data", data, "--out", out,
                          "--seq", "96", "--overwrite");
    assert_contains(ran.out, "--task span --model bert-base --seq 96 --tokenizer " VOCAB " --data ");
    assert_contains(ran.out, lines);
    ran_done(&ran);
    assert_refused(2, "squad.jsonl: already exists", "prepare", "--format", "squad", "--tokenizer", VOCAB,
                   "--data", data, "--out", out);
}

static void refuses_invalid_requests(void **state) {
    CLEANUP(mem_freep) char *data = inside("squad.json");
    CLEANUP(mem_freep) char *run = inside("run");
    CLEANUP(mem_freep) char *broken = inside("broken.json");
    CLEANUP(mem_freep) char *latin = inside("latin.txt");
    assert_ok(file_replace(broken, "{\"data\":\n[{\"paragraphs\": [}\n", 26));
    assert_ok(file_replace(latin, "caf\xe9", 4));
    assert_refused(2, "which require --task squad", "train", "--model", "gpt2-tiny", "--data", data,
                   "--quiet");
    assert_refused(1, "broken.json: not valid JSON at line 2", "train", "--task", "squad", SHAPE,
                   "--tokenizer", VOCAB, "--data", broken, "--quiet");
    assert_refused(1, "latin.txt is not UTF-8 text", "answer", "--model", run, "--context", latin,
                   "--question", "a");
    assert_refused(1, "no_such.txt: cannot open", "answer", "--model", run, "--context", "no_such.txt",
                   "--question", "a");
    assert_refused(2, "not a checkpoint directory", "answer", "--model", "bert-tiny", "--context", data,
                   "--question", "a");
    assert_refused(2, "golden/cases/gpt2 is a GPT-2, which cannot extract answers from a text; use a BERT",
                   "answer", WEFT_TEST_DIR "/golden/cases/gpt2", data, "Who?");
    assert_refused(2, "--model gpt2-tiny is a GPT-2", "answer", "gpt2-tiny", data, "Who?");
    assert_refused(2, "--na-prob needs --predictions", "eval", "--task", "squad", "--model", run, "--data",
                   data, "--na-prob", broken);
    assert_refused(2, "--nbest needs --out", "eval", "--model", run, "--data", data, "--nbest");
    assert_refused(2, "--question TEXT is required", "answer", "--model", run, "--context", data);
}

/* A misplaced answer is reported on standard error, and training continues. */
static void misplaced_answers_are_reported(void **state) {
    CLEANUP(mem_freep) char *path = inside("moved.json");
    static const char text[] = "{\"data\": [{\"paragraphs\": [{\"context\": \"a cup of tea\", \"qas\": "
                               "[{\"id\": \"x\", \"question\": \"what\", "
                               "\"answers\": [{\"text\": \"tea\", \"answer_start\": 3}]}, {\"id\": \"y\", "
                               "\"question\": \"what\", \"answers\": "
                               "[{\"text\": \"coffee\", \"answer_start\": 3}]}]}]}]}";
    assert_ok(file_replace(path, text, sizeof text - 1));
    assert_ran(program_run("train", "--task", "squad", SHAPE, "--tokenizer", VOCAB, "--data", path,
                           "--val-fraction", "0", "--steps", "1", "--batch", "1"),
               0, err,
               "1 answer was not at its answer_start and was moved to the nearest match; 1 "
               "answer does not occur in its context");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_model_memorizes_its_questions),
        cmocka_unit_test(quantized_model_answers_the_same),
        cmocka_unit_test(answers_have_offsets),
        cmocka_unit_test(prepared_questions_train_like_the_file),
        cmocka_unit_test(refuses_invalid_requests),
        cmocka_unit_test(misplaced_answers_are_reported),
    };
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
