/* SQuAD: sequences match those that transformers builds (tests/golden/squad), misplaced answers are found or
 * counted, invalid files are refused, and scores are turned back into answers. */
#include "data/squad.h"

#include "data/files.h"
#include "data/squad_answers.h"
#include "tokenizer/internal.h"

#define GOLDEN WEFT_TEST_DIR "/golden/squad/"
#define SHARED WEFT_SOURCE_DIR "/../shared/data/"

static void load_golden(SquadSet *set, Tokenizer **tokenizer) {
    assert_ok(squad_set_read(set, GOLDEN "features_data.json"));
    assert_ok(tokenizer_load(tokenizer, GOLDEN "vocab.txt"));
}

static int32_t number(const json_t *object, const char *key) {
    return (int32_t)json_integer_value(json_object_get(object, key));
}

static void assert_feature(const SquadFeatures *features, size_t index, const json_t *expected) {
    const SquadFeature *feature = &features->feature[index];
    const json_t *ids = json_object_get(expected, "ids"), *best = json_object_get(expected, "max_context");
    int32_t tokens[SQUAD_SEQ], types[SQUAD_SEQ], second = 0;
    int32_t length = squad_feature_fill(features, index, tokens, types);
    assert_int_equal(length, json_array_size(ids));
    for (int32_t t = 0; t < length; t++) {
        assert_int_equal(tokens[t], json_integer_value(json_array_get(ids, (size_t)t)));
        second += types[t];
        assert_true(t == 0 || types[t] >= types[t - 1]);
    }
    assert_int_equal(second, number(expected, "types"));
    assert_int_equal(feature->start, number(expected, "start"));
    assert_int_equal(feature->end, number(expected, "end"));
    int32_t offset = squad_feature_offset(features, feature);
    int64_t low = json_array_size(best) ? json_integer_value(json_array_get(best, 0)) : length;
    int64_t high = json_array_size(best) ? json_integer_value(json_array_get(best, 1)) : -1;
    for (int32_t i = 0; i < feature->count; i++)
        assert_int_equal(squad_is_max_context(features, feature, feature->first + i),
                         i + offset >= low && i + offset <= high);
}

static void sequences_match_transformers(void **state) {
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(json_decrefp) json_t *cases = NULL;
    load_golden(&set, &tokenizer);
    assert_ok(squad_json_read(GOLDEN "features_expected.json", &cases));
    assert_int_equal(json_array_size(cases), 3);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *list = json_object_get(one, "features");
        SquadSpec spec = {.seq = number(one, "seq"),
                          .doc_stride = number(one, "doc_stride"),
                          .max_query = number(one, "max_query")};
        CLEANUP(squad_features_done) SquadFeatures features = {0};
        assert_ok(squad_features_make(&features, &set, tokenizer, &spec));
        assert_int_equal(features.features, json_array_size(list));
        for (size_t k = 0; k < features.features; k++) assert_feature(&features, k, json_array_get(list, k));
        assert_int_equal(features.counts.moved + features.counts.lost + features.counts.empty, 0);
        assert_int_equal(features.counts.questions, set.questions);
    }
}

/* Counts the answers, and those that are recovered exactly from the offsets of their tokens. */
static void count_same(const SquadSet *set, const SquadFeatures *features, size_t *ret_with,
                       size_t *ret_same) {
    *ret_with = *ret_same = 0;
    for (size_t i = 0; i < features->queries; i++) {
        const SquadQuery *asked = &features->query[i];
        const SquadQuestion *question = &set->question[asked->number];
        if (asked->first < 0) continue;
        const SquadAnswer *answer = &set->answer[question->first_answer];
        const SquadOffsets *place = features->offsets + asked->context.at;
        SquadText context = set->paragraph[question->paragraph].context;
        size_t start = place[asked->first].start, size = place[asked->last].end - start;
        *ret_same += size == answer->text.size && !memcmp(context.data + start, answer->text.data, size);
        ++*ret_with;
    }
}

static void answers_are_recovered(void **state) {
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(squad_features_done) SquadFeatures features = {0};
    SquadSpec spec = {.seq = 384};
    size_t with, same;
    load_golden(&set, &tokenizer);
    assert_ok(squad_features_make(&features, &set, tokenizer, &spec));
    count_same(&set, &features, &with, &same);
    assert_true(with > 20);
    assert_int_equal(same, with);
}

/* The real files: as many windows as in transformers, and almost all answers are recovered. The others start
 * or end inside a token, like "six" in "sixth". */
static void real_answers_are_recovered(void **state) {
    static const struct {
        const char *path;
        size_t questions, features, with, same;
    } files[] = {
        {SHARED "squad/cs224n-dev-v2.0.json.gz", 6078, 6372, 2910, 2908},
        {SHARED "squad/train-v2.0.first10articles.json.gz", 4719, 4825, 4371, 4341},
    };
    if (!path_exists(files[0].path)) skip();
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    assert_ok(tokenizer_load(&tokenizer, SHARED "tokenizers/bert-base-uncased"));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CLEANUP(squad_set_done) SquadSet set = {0};
        CLEANUP(squad_features_done) SquadFeatures features = {0};
        SquadSpec spec = {.seq = SQUAD_SEQ};
        size_t with, same;
        assert_ok(squad_set_read(&set, files[i].path));
        assert_ok(squad_features_make(&features, &set, tokenizer, &spec));
        count_same(&set, &features, &with, &same);
        assert_int_equal(set.questions, files[i].questions);
        assert_int_equal(features.features, files[i].features);
        assert_int_equal(features.counts.moved + features.counts.lost, 0);
        assert_int_equal(with, files[i].with);
        assert_int_equal(same, files[i].same);
    }
}

/* With byte tokens, an answer may start inside what other tokenizers treat as a word. */
static void byte_tokens_work(void **state) {
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(squad_features_done) SquadFeatures features = {0};
    SquadSpec spec = {.seq = 512};
    size_t with, same;
    assert_ok(squad_set_read(&set, GOLDEN "features_data.json"));
    assert_ok(tokenizer_new_bytes(&tokenizer, true));
    assert_ok(squad_features_make(&features, &set, tokenizer, &spec));
    count_same(&set, &features, &with, &same);
    assert_int_equal(same, with);
}

/* ---- misplaced answers ---- */

#define QUESTION(context, answer, start)                                                                     \
    "{\"data\": [{\"paragraphs\": [{\"context\": \"" context "\", \"qas\": [{\"id\": \"x\", \"question\": "  \
    "\"which tea\", \"answers\": [{\"text\": \"" answer "\", \"answer_start\": " start "}]}]}]}]}"

static SquadFeatures features_of(const char *json, SquadSet *set, Tokenizer *tokenizer,
                                 const SquadSpec *spec) {
    SquadFeatures features = {0};
    json_t *parsed = json_loads(json, 0, NULL);
    assert_non_null(parsed);
    assert_ok(squad_set_add(set, parsed, "test"));
    assert_ok(squad_features_make(&features, set, tokenizer, spec));
    json_decref(parsed);
    return features;
}

static void assert_found(const char *json, int32_t first, int32_t last, int64_t moved, int64_t lost) {
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    SquadSpec spec = {.seq = 64, .keep_lost = true};
    assert_ok(tokenizer_load(&tokenizer, GOLDEN "vocab.txt"));
    CLEANUP(squad_features_done) SquadFeatures features = features_of(json, &set, tokenizer, &spec);
    assert_int_equal(features.query[0].first, first);
    assert_int_equal(features.query[0].last, last);
    assert_int_equal(features.counts.moved, moved);
    assert_int_equal(features.counts.lost, lost);
}

static void misplaced_answers_are_found_and_counted(void **state) {
    assert_found(QUESTION("tea and a cup of tea", "tea", "0"), 0, 0, 0, 0);
    assert_found(QUESTION("tea and a cup of tea", "tea", "17"), 5, 5, 0, 0);
    assert_found(QUESTION("tea and a cup of tea", "tea", "15"), 5, 5, 1, 0);
    assert_found(QUESTION("tea and a cup of tea", "tea", "900"), 5, 5, 1, 0);
    assert_found(QUESTION("tea and a cup of tea", "tea", "4"), 0, 0, 1, 0);
    assert_found(QUESTION("a  cup\\nof tea", "cup of tea", "3"), 1, 3, 1, 0);
    assert_found(QUESTION("tea and a cup of tea", " cup ", "9"), 3, 3, 0, 0);
    assert_found(QUESTION("tea and a cup of tea", "coffee", "4"), -1, -1, 0, 1);
    assert_found(QUESTION("tea", "", "0"), -1, -1, 0, 1);
    assert_found(QUESTION("", "tea", "0"), -1, -1, 0, 1);
}

static void lost_answers_are_skipped_and_reported(void **state) {
    Files *files = *state;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(mem_freep) char *warning = NULL;
    assert_ok(tokenizer_load(&tokenizer, GOLDEN "vocab.txt"));
    files_add_text(files, "good.json", QUESTION("tea and a cup of tea", "tea", "15"));
    files_add_text(files, "lost.json", QUESTION("tea", "coffee", "0"));
    DataSpec spec = files_spec(files, 32);
    spec.format = FORMAT_SQUAD;
    spec.task = TASK_SPAN;
    spec.encoder = tokenizer;
    assert_ok(dataset_open(&data, &spec));
    assert_int_equal(dataset_count(data), 1);
    assert_ok(dataset_warning(data, &warning));
    assert_non_null(strstr(warning, "1 answer was not at its answer_start"));
    assert_non_null(strstr(warning, "1 answer does not occur in its context"));
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(host_batch_new(&batch, 1, 32));
    assert_ok(dataset_fill(data, 0, true, batch));
    assert_int_equal(batch->lens[0], 11); /* [CLS] which tea [SEP] tea and a cup of tea [SEP] */
    assert_int_equal(batch->span[0], 9);
    assert_int_equal(batch->span[1], 9);
    assert_int_equal(batch->loss_count[LOSS_SPAN_START], 1);
    files->count = 0;
}

static void long_questions_and_empty_contexts_fit(void **state) {
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    SquadSpec spec = {.seq = 8};
    int32_t tokens[8], types[8];
    assert_ok(tokenizer_load(&tokenizer, GOLDEN "vocab.txt"));
    CLEANUP(squad_features_done)
    SquadFeatures features = features_of("{\"data\": [{\"paragraphs\": [{\"context\": \"\", \"qas\": "
                                         "[{\"id\": \"x\", \"question\": \"which tea is it in the "
                                         "cup\", \"is_impossible\": true}]}, {\"context\": \"a b c d e f g "
                                         "h\", \"qas\": [{\"id\": \"y\", \"question\": \"\", "
                                         "\"answers\": [{\"text\": \"h\", \"answer_start\": 14}]}]}]}]}",
                                         &set, tokenizer, &spec);
    assert_int_equal(features.counts.empty, 1);
    assert_int_equal(features.counts.cut, 1);
    assert_int_equal(features.query[0].features, 1);
    assert_int_equal(squad_feature_fill(&features, 0, tokens, types), 5);
    assert_int_equal(features.query[1].features, 2);
    for (size_t i = 1; i < features.features; i++)
        assert_true(squad_feature_fill(&features, i, tokens, types) <= 8);
    assert_int_equal(features.feature[2].start, 2 + 7 - features.feature[2].first);
}

/* ---- other post-processors ---- */

/* "context <sep> question <cls>": labels, the position for "no answer" and the space for the context follow
 * the tokenizer's post-processor. */
static void sequences_follow_the_post_processor(void **state) {
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(token_template_done) TokenTemplate one = {0};
    CLEANUP(token_template_done) TokenTemplate two = {0};
    SquadSpec spec = {.seq = 8, .doc_stride = 2, .max_query = 2};
    int32_t tokens[8], types[8];
    assert_ok(tokenizer_load(&tokenizer, GOLDEN "vocab.txt"));
    SpecialTokens special = tokenizer_special(tokenizer);
    assert_ok(token_template_add(&two, (TemplatePiece){PIECE_SECOND, 0, 1}));
    assert_ok(token_template_add(&two, (TemplatePiece){PIECE_TOKEN, special.sep, 1}));
    assert_ok(token_template_add(&two, (TemplatePiece){PIECE_FIRST, 0, 0}));
    assert_ok(token_template_add(&two, (TemplatePiece){PIECE_TOKEN, special.cls, 0}));
    assert_ok(post_processor_set_template(tokenizer, &one, &two, "test"));
    CLEANUP(squad_features_done)
    SquadFeatures features =
        features_of(QUESTION("tea and a cup of tea", "cup", "10"), &set, tokenizer, &spec);
    assert_int_equal(features.features, 2);
    const SquadFeature *first = &features.feature[0], *second = &features.feature[1];
    assert_int_equal(squad_feature_fill(&features, 0, tokens, types), 8);
    assert_int_equal(tokens[4], special.sep);
    assert_int_equal(tokens[7], special.cls);
    for (int t = 0; t < 8; t++) assert_int_equal(types[t], t < 5);
    assert_int_equal(squad_feature_offset(&features, first), 0);
    assert_int_equal(squad_feature_none(&features, first), 7);
    assert_int_equal(squad_feature_length(&features, first), 8);
    assert_int_equal(first->start, 3);
    assert_int_equal(second->start, 1);
    CLEANUP(squad_scores_done) SquadScores scores = {0};
    float logits[16] = {[14] = 5, [15] = 6};
    assert_ok(squad_scores_init(&scores, &features, 2));
    squad_scores_take(&scores, &features, 0, logits, 8);
    assert_true(scores.none[0] == 5 && scores.none[1] == 6);

    spec.types = 1;
    CLEANUP(squad_features_done) SquadFeatures refused = {0};
    assert_fails(squad_features_make(&refused, &set, tokenizer, &spec), 2, "assigns token type 1");
    assert_ok(token_template_add(&two, (TemplatePiece){PIECE_FIRST, 0, 0}));
    assert_ok(post_processor_set_template(tokenizer, &one, &two, "test"));
    assert_fails(squad_features_make(&refused, &set, tokenizer, &spec), 2,
                 "uses the first text of a pair 2 times; expected once");
}

/* ---- from scores to answers ---- */

static SquadText piece(SquadText context, const SquadChoice *choice) {
    return (SquadText){context.data + choice->start, choice->end - choice->start};
}

/* Scores for one window, "[CLS] which tea [SEP] context [SEP]". */
static void scores_become_answers(void **state) {
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(squad_scores_done) SquadScores scores = {0};
    CLEANUP(squad_best_done) SquadBest best = {0};
    SquadSpec spec = {.seq = 32, .keep_lost = true};
    SquadAnswerSpec wanted = {.max_answer = 3, .may_be_none = true};
    assert_ok(tokenizer_load(&tokenizer, GOLDEN "vocab.txt"));
    CLEANUP(squad_features_done)
    SquadFeatures features =
        features_of(QUESTION("The Caf\\u00e9 Tea, in a cup", "Caf\\u00e9", "4"), &set, tokenizer, &spec);
    SquadText context = set.paragraph[0].context;
    float logits[64];
    for (int i = 0; i < 64; i++) logits[i] = -9;
    const int at = 4;         /* the context starts here: The Café Tea , in a cup */
    logits[2 * (at + 1)] = 5; /* an answer starts at Café */
    logits[2 * (at + 2) + 1] = 4;
    logits[2 * (at + 5) + 1] = 6; /* the answer would be too long */
    logits[2 * 1] = 99;           /* inside the question */
    logits[2 * 31] = 99;          /* inside the padding */
    logits[0] = 2, logits[1] = 3;
    assert_ok(squad_scores_init(&scores, &features, 20));
    squad_scores_take(&scores, &features, 0, logits, 32);
    assert_ok(squad_best_find(&best, &features, &scores, 0, context, &wanted));
    assert_non_null(best.answer);
    SquadText text = piece(context, best.answer);
    assert_int_equal(text.size, strlen("Caf\u00e9 Tea"));
    assert_memory_equal(text.data, "Caf\u00e9 Tea", text.size);
    assert_true(best.null_odds == -4);
    double sum = 0;
    for (size_t i = 0; i < best.count; i++) sum += best.choice[i].probability;
    assert_true(sum > 0.999999 && sum < 1.000001);
    assert_true(best.answer->probability > 0.97 && best.none_probability < 0.03);
    wanted.null_threshold = -5; /* "no answer" now needs a smaller margin */
    assert_ok(squad_best_find(&best, &features, &scores, 0, context, &wanted));
    assert_null(best.answer);
    wanted.may_be_none = false;
    wanted.max_answer = 30;
    assert_ok(squad_best_find(&best, &features, &scores, 0, context, &wanted));
    text = piece(context, best.answer);
    assert_memory_equal(text.data, "Caf\u00e9 Tea, in a", text.size);
    /* Likely positions outside of the context take the place of others. */
    for (int n = 2; n <= 3; n++) {
        CLEANUP(squad_scores_done) SquadScores few = {0};
        assert_ok(squad_scores_init(&few, &features, n));
        squad_scores_take(&few, &features, 0, logits, 32);
        assert_ok(squad_best_find(&best, &features, &few, 0, context, &wanted));
        assert_int_equal(best.answer != NULL, n == 3);
    }
}

/* ---- invalid files ---- */

static void assert_bad(Files *files, const char *text, const char *message) {
    CLEANUP(squad_set_done) SquadSet set = {0};
    const char *path = files_add_text(files, "bad.json", text);
    assert_fails(squad_set_read(&set, path), STATUS_FAILED, message);
    files->count = 0;
}

static void invalid_files_are_refused(void **state) {
    Files *files = *state;
    assert_bad(files, "{\"data\": [\n{\"paragraphs\": [\n{]}", "bad.json: not valid JSON at line 3");
    assert_bad(files, "", "bad.json: not valid JSON at line 1");
    assert_bad(files, "[]", "expected an object with \"data\"");
    assert_bad(files, "{\"data\": 3}", "bad.json: 'data' must be an array");
    assert_bad(files, "{\"data\": []}", "bad.json contains no questions");
    assert_bad(files, "{\"data\": [{}]}", "bad.json: data[0]: 'paragraphs' must be an array");
    assert_bad(files, "{\"data\": [{\"paragraphs\": []}, {\"paragraphs\": [{\"context\": 1}]}]}",
               "data[1].paragraphs[0]: 'context' must be a string");
    assert_bad(files,
               "{\"data\": [{\"paragraphs\": [{\"context\": \"\", \"qas\": [{\"question\": \"\"}]}]}]}",
               "data[0].paragraphs[0].qas[0]: 'id' must be a string");
    assert_bad(files,
               "{\"data\": [{\"paragraphs\": [{\"context\": \"\", \"qas\": [{\"id\": \"\", \"question\": "
               "\"\"}]}]}]}",
               "qas[0]: 'answers' must be an array");
    assert_bad(files, QUESTION("a", "a", "-1"), "answers[0]: 'answer_start' must be a non-negative integer");
    assert_bad(files, QUESTION("a", "a", "\"0\""), "answers[0]: 'answer_start' must be");
    assert_bad(files, "{\"data\": \"caf\xe9\"}", "line 1"); /* Latin-1 */
    assert_bad(files, "\xff\xfe{\1\"\1", "text in UTF-16"); /* UTF-16 */
}

static void compressed_files(void **state) {
    Files *files = *state;
    const char text[] = "\xef\xbb\xbf" QUESTION("tea", "tea", "0");
    CLEANUP(squad_set_done) SquadSet set = {0};
    const char *path = files_add_gz(files, "whole.json.gz", text, sizeof text - 1);
    assert_ok(squad_set_read(&set, path));
    assert_int_equal(set.questions, 1);
    CLEANUP(mem_freep) char *bytes = NULL;
    size_t size = 0;
    assert_ok(file_read(path, 1 << 20, &bytes, &size));
    const char *cut = files_add(files, "cut.json.gz", bytes, size / 2);
    assert_fails(squad_set_read(&set, cut), STATUS_FAILED, "cut.json.gz: the compressed data is truncated");
    files->count = 0;
}

static void format_is_detected_by_content(void **state) {
    Files *files = *state;
    DataFormat format;
    assert_ok(data_format_find(files_add_text(files, "a.json", QUESTION("a", "a", "0")), NULL, &format));
    assert_int_equal(format, FORMAT_SQUAD);
    assert_ok(data_format_find(files_add_text(files, "b.json", "{\"data\": 1}"), NULL, &format));
    assert_int_equal(format, FORMAT_BYTES);
    files->count = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_match_transformers),
        cmocka_unit_test(answers_are_recovered),
        cmocka_unit_test(real_answers_are_recovered),
        cmocka_unit_test(byte_tokens_work),
        cmocka_unit_test(misplaced_answers_are_found_and_counted),
        cmocka_unit_test(lost_answers_are_skipped_and_reported),
        cmocka_unit_test(long_questions_and_empty_contexts_fit),
        cmocka_unit_test(sequences_follow_the_post_processor),
        cmocka_unit_test(scores_become_answers),
        cmocka_unit_test(invalid_files_are_refused),
        cmocka_unit_test(compressed_files),
        cmocka_unit_test(format_is_detected_by_content),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
