/* The SQuAD scorer matches the official script as copied in transformers (tests/golden/squad) to the last
 * digit; also the command around it. */
#include "data/squad.h"

#include "cli/program.h"
#include "data/files.h"

#define GOLDEN WEFT_TEST_DIR "/golden/squad/"
#define REAL   WEFT_SOURCE_DIR "/../shared/data/squad/"

static json_t *golden(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, GOLDEN "%s", name);
    json_t *json = NULL;
    assert_ok(squad_json_read(path, &json));
    return json;
}

/* Every value that `expected` contains is equal in `found`. */
static void assert_same(const json_t *found, const json_t *expected) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)expected, key, value) {
        const json_t *other = json_object_get(found, key);
        if (!other) fail_msg("%s is missing", key);
        if (json_number_value(other) != json_number_value(value))
            fail_msg("%s: %.17g; expected %.17g", key, json_number_value(other), json_number_value(value));
    }
}

static void assert_score(const SquadSet *set, const json_t *answers, const json_t *odds, double thresh,
                         const json_t *expected) {
    SquadPredictions given = {
        .answers = answers, .from = "p", .na_prob = odds, .na_from = "n", .na_thresh = thresh};
    SquadScore score;
    assert_ok(squad_score(set, &given, &score));
    CLEANUP(json_decrefp) json_t *found = NULL;
    assert_ok(squad_score_json(&score, &found));
    assert_same(found, expected);
    assert_int_equal(json_object_size(found), json_object_size(expected) + 1); /* plus "missing" */
}

static void each_answer_matches_the_official_script(void **state) {
    CLEANUP(json_decrefp) json_t *answers = golden("score_predictions.json");
    CLEANUP(json_decrefp) json_t *expected = golden("score_expected.json");
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(normal_answer_done) NormalAnswer gold = {0};
    CLEANUP(normal_answer_done) NormalAnswer found = {0};
    assert_ok(squad_set_read(&set, GOLDEN "score_data.json"));
    size_t at = 0;
    for (size_t i = 0; i < set.questions; i++) {
        const SquadQuestion *question = &set.question[i];
        const json_t *text = json_object_get(answers, question->id);
        assert_ok(normal_answer_set(&found, json_string_value(text), json_string_length(text)));
        for (size_t k = 0; k < question->answers; k++) {
            const SquadAnswer *answer = &set.answer[question->first_answer + k];
            const json_t *row = json_array_get(json_object_get(expected, "each"), at++);
            assert_ok(normal_answer_set(&gold, answer->text.data, answer->text.size));
            if (normal_answer_same(&gold, &found) != json_integer_value(json_object_get(row, "exact")) ||
                normal_answer_f1(&gold, &found) != json_number_value(json_object_get(row, "f1")))
                fail_msg("%s: wrong score for '%s', correct answer '%s'", question->text.data,
                         json_string_value(text), answer->text.data);
        }
    }
    assert_int_equal(at, json_array_size(json_object_get(expected, "each")));
}

static void scores_match_the_official_script(void **state) {
    CLEANUP(json_decrefp) json_t *answers = golden("score_predictions.json");
    CLEANUP(json_decrefp) json_t *odds = golden("score_na_prob.json");
    CLEANUP(json_decrefp) json_t *expected = golden("score_expected.json");
    CLEANUP(squad_set_done) SquadSet set = {0};
    assert_ok(squad_set_read(&set, GOLDEN "score_data.json"));
    assert_score(&set, answers, NULL, 1, json_object_get(expected, "plain"));
    assert_score(&set, answers, odds, 1, json_object_get(expected, "odds"));
    assert_score(&set, answers, odds, 0.5, json_object_get(expected, "odds_at_0.5"));
    json_object_del(answers, "q03");
    json_object_del(answers, "q24");
    assert_score(&set, answers, NULL, 1, json_object_get(expected, "missing"));
}

static const char one_question[] =
    "{\"data\": [{\"paragraphs\": [{\"context\": \"It is red.\", \"qas\": [{\"id\": "
    "\"x\", \"question\": \"What?\", \"answers\": [{\"text\": \"red\", "
    "\"answer_start\": 6}]}]}]}]}";

static void refuses_invalid_predictions(void **state) {
    Files *files = *state;
    const char *data = files_add_text(files, "data.json", one_question);
    const char *other = files_add_text(files, "other.json", "{\"y\": \"red\"}");
    const char *list = files_add_text(files, "list.json", "[1]");
    const char *number = files_add_text(files, "number.json", "{\"x\": 3}");
    const char *good = files_add_text(files, "good.json", "{\"x\": \"the Red\", \"unknown\": \"\"}");
    const char *broken = files_add_text(files, "broken.json", "{\"x\": \"red\",\n\n \"y\" \"z\"}\n");
    assert_refused(1, "other.json: no answer for any of the 1 questions", "eval", "--task", "squad", "--data",
                   data, "--predictions", other);
    assert_refused(1, "list.json: expected an object", "eval", "--task", "squad", "--data", data,
                   "--predictions", list);
    assert_refused(1, "number.json: the answer to question x must be a string", "eval", "--task", "squad",
                   "--data", data, "--predictions", number);
    assert_refused(1, "broken.json: not valid JSON at line 3", "eval", "--task", "squad", "--data", data,
                   "--predictions", broken);
    assert_refused(1, "other.json: question x has a prediction", "eval", "--task", "squad", "--data", data,
                   "--predictions", good, "--na-prob", other);
    assert_refused(2, "--model DIR is required besides the data", "eval", "--task", "squad", "--data", data);
    assert_refused(2, "applies to --task squad", "eval", "--task", "lm", "--data", data, "--predictions",
                   good);
    assert_ran(program_run("eval", "--task", "squad", "--data", data, "--predictions", good), 0, out,
               "exact 100.00  F1 100.00  (1 question)");
    files->count = 0;
}

/* The scores that were published with these predictions. */
static void published_predictions_match_published_scores(void **state) {
    if (!path_exists(REAL "dev-v2.0.json.gz")) skip();
    Ran ran = program_run("eval", "--task", "squad", "--data", REAL "dev-v2.0.json.gz", "--predictions",
                          REAL "predictions-bert-googleai.json.gz", "--json");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp) json_t *found = json_loads(ran.out, 0, NULL);
    CLEANUP(json_decrefp)
    json_t *expected = json_pack("{sf sf si sf sf si sf sf si}", "exact", 78.74168280973638, "f1",
                                 81.77528052374723, "total", 11873, "HasAns_exact", 74.10593792172739,
                                 "HasAns_f1", 80.18183293833508, "HasAns_total", 5928, "NoAns_exact",
                                 83.36417157275021, "NoAns_f1", 83.36417157275021, "NoAns_total", 5945);
    assert_same(found, expected);
    ran_done(&ran);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_answer_matches_the_official_script),
        cmocka_unit_test(scores_match_the_official_script),
        cmocka_unit_test(published_predictions_match_published_scores),
        cmocka_unit_test_setup_teardown(refuses_invalid_predictions, files_setup, files_teardown),
    };
    return cmocka_run_group_tests(tests, program_setup, NULL);
}
