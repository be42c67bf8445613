/* Fuzzes SQuAD's JSON: an accepted file yields sequences that fit, labels inside them, and answers made of
 * complete characters of their context; any predictions for it can be scored. */
#include <math.h>

#include "data/squad_answers.h"
#include "fuzz.h"

enum { T = 12 };

static void check_features(const SquadSet *set, const SquadFeatures *features) {
    int32_t tokens[T], types[T];
    for (size_t i = 0; i < features->features; i++) {
        const SquadFeature *feature = &features->feature[i];
        int32_t length = squad_feature_fill(features, i, tokens, types);
        fuzz_require(length >= 3 && length <= T);
        fuzz_require(feature->start <= feature->end && feature->start >= 0);
        fuzz_require(feature->start == T ? feature->end == T : feature->end < length - 1);
        fuzz_require(feature->query < features->queries);
        for (int32_t t = 0; t < length; t++) fuzz_require(tokens[t] >= 0 && tokens[t] < BYTE_VOCAB_BERT);
    }
    for (size_t i = 0; i < features->queries; i++) {
        const SquadQuery *asked = &features->query[i];
        fuzz_require(asked->number < set->questions && asked->features > 0);
        fuzz_require(asked->first <= asked->last && asked->last < asked->context.count);
        for (int32_t k = 0; k < asked->context.count;
             k++) { /* exactly one window has each token's best context */
            int best = 0;
            for (int32_t w = 0; w < asked->features; w++)
                best += squad_is_max_context(features, &features->feature[asked->feature + (size_t)w], k);
            fuzz_require(best == 1);
        }
    }
}

static bool starts_char(SquadText text, size_t at) {
    return at == text.size || ((unsigned char)text.data[at] & 0xC0) != 0x80;
}

/* Uses the input's bytes as scores. */
static void check_answers(const SquadSet *set, const SquadFeatures *features, const uint8_t *data,
                          size_t size) {
    CLEANUP(squad_scores_done) SquadScores scores = {0};
    CLEANUP(squad_best_done) SquadBest best = {0};
    CLEANUP(json_decrefp) json_t *predictions = json_object();
    float logits[2 * T];
    if (!fuzz_succeeded(squad_scores_init(&scores, features, 3))) return;
    for (size_t i = 0; i < features->features; i++) {
        for (size_t k = 0; k < 2 * T; k++) logits[k] = (float)data[(i + k) % size];
        squad_scores_take(&scores, features, i, logits, T);
    }
    for (size_t i = 0; i < features->queries; i++) {
        const SquadQuestion *question = &set->question[features->query[i].number];
        SquadText context = set->paragraph[question->paragraph].context;
        SquadAnswerSpec spec = {.max_answer = 4, .may_be_none = i % 2 == 0};
        fuzz_require(fuzz_succeeded(squad_best_find(&best, features, &scores, i, context, &spec)));
        fuzz_require(best.count <= 4 && isfinite(best.null_odds));
        if (!best.answer) continue;
        size_t start = best.answer->start, end = best.answer->end;
        fuzz_require(start < end && end <= context.size);
        fuzz_require(starts_char(context, start) && starts_char(context, end));
        json_object_set_new(predictions, question->id, json_stringn(context.data + start, end - start));
    }
    SquadPredictions given = {.answers = predictions, .from = "p", .na_thresh = 1};
    SquadScore score;
    if (!fuzz_succeeded(squad_score(set, &given, &score))) return;
    fuzz_require(score.all.exact >= 0 && score.all.exact <= score.all.f1 + 1e-9 && score.all.f1 <= 100);
    fuzz_require(score.all.total == score.has_answer.total + score.no_answer.total);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP(json_decrefp) json_t *json = json_loadb((const char *)data, size, JSON_ALLOW_NUL, NULL);
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(squad_features_done) SquadFeatures features = {0};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    SquadSpec spec = {.seq = T, .doc_stride = 2, .keep_lost = size % 2};
    if (!json || !fuzz_succeeded(squad_set_add(&set, json, "input"))) return 0;
    if (!fuzz_succeeded(tokenizer_new_bytes(&tokenizer, true))) return 0;
    if (!fuzz_succeeded(squad_features_make(&features, &set, tokenizer, &spec))) return 0;
    check_features(&set, &features);
    check_answers(&set, &features, data, size);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        ("{\"version\":\"v2.0\",\"data\":[{\"title\":\"t\",\"paragraphs\":[{\"context\":\"Caf\u00e9 der "
         "Stra\u00dfe 12 "
         "\u6771\u4eac\",\"qas\":[{\"id\":\"a\",\"question\":\"where\",\"answers\":[{\"text\":"
         "\"Stra\u00dfe\","
         "\"answer_start\":9}],\"is_impossible\":false},{\"id\":\"b\",\"question\":\"\",\"answers\":[],"
         "\"is_impossible\":true}]}]}]}"),
        ("{\"data\":[{\"paragraphs\":[{\"context\":\"a b\\tc  "
         "d\",\"qas\":[{\"id\":\"a\",\"question\":\"which is it?\","
         "\"answers\":[{\"text\":\"b c\",\"answer_start\":1},{\"text\":\"The "
         "\u03a3\",\"answer_start\":99}]}]},"
         "{\"context\":\"\",\"qas\":[{\"id\":\"a\",\"question\":\"q\",\"answers\":[{\"text\":\"\"}]}]}]}]}"),
        "{\"data\":[{\"paragraphs\":[{\"context\":\"\\u0000x\",\"qas\":[{\"id\":\"\",\"question\":\"\",\"is_"
        "impossible\":true}]}]}]}",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
