/* The text and its questions become a SQuAD set of one paragraph, and are then handled by the code for SQuAD.
 */
#include "infer/answer.h"

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "data/released.h"
#include "infer/prompt.h"
#include "train/squad.h"

static Status make_set(const AnswerConfig *config, const char *text, size_t size, SquadSet *set) {
    CLEANUP(json_decrefp) json_t *json = json_pack("{s:[{s:[{s:[]}]}]}", "data", "paragraphs", "qas");
    json_t *paragraph =
        json_array_get(json_object_get(json_array_get(json_object_get(json, "data"), 0), "paragraphs"), 0);
    json_t *context = json_stringn(text, size);
    if (!context) return FAILED("%s is not UTF-8 text", config->context);
    if (json_object_set_new(paragraph, "context", context) != 0) return FAILED("out of memory");
    for (int i = 0; i < config->questions_count; i++) {
        json_t *question = json_string(config->questions[i]);
        if (!question) return FAILED("question %d is not UTF-8 text", i + 1);
        json_t *entry = json_pack("{s:s s:o s:b}", "id", "", "question", question, "is_impossible", 1);
        if (json_array_append_new(json_object_get(paragraph, "qas"), entry) != 0)
            return FAILED("out of memory");
    }
    return squad_set_add(set, json, config->context);
}

/* A model of the wrong family is the most likely mistake, so its message says what to use instead. */
static Status check_family(const char *model) {
    CLEANUP(model_dir_done) ModelDir dir = {0};
    ModelConfig config;
    if (path_is_dir(model)) {
        TRY(model_dir_open(&dir, model));
        TRY(hf_config_read(dir.path, &config));
    } else {
        TRY(config_preset(model, &config));
    }
    if (config.family->outputs & OUTPUT_SPAN) return OK;
    return USAGE(
        "{model} %s is a %s, which cannot extract answers from a text; use a BERT trained with 'weft "
        "train {task} squad', or continue a prompt with 'weft generate'",
        model, config.family->title);
}

static Status open_job(const AnswerConfig *config, Job **ret_job) {
    Settings settings = config->settings;
    settings.model.task = settings.data.format = "squad";
    CLEANUP(job_freep) Job *job = NULL;
    TRY(check_family(settings.model.name));
    TRY(job_new(&job, &settings, JOB_EVAL));
    char hint[RELEASED_HINT];
    if (!job->model_dir)
        return USAGE("{model} %s: not a checkpoint directory%s", settings.model.name,
                     released_hint(settings.model.name, false, hint));
    TRY(job_need_tokenizer(job));
    return MOVE(ret_job, job);
}

/* Loads the weights; called last, after the text and questions have been checked. */
static Status load_weights(Job *job) {
    CLEANUP(load_report_done) LoadReport report = {0};
    TRY(job_start(job, &report));
    return load_report_check(&report, job->model_dir, &job->model->config, false);
}

/* Length of the longest window: more padding costs time and changes nothing. */
static int64_t longest(const SquadFeatures *features) {
    int64_t length = 1;
    for (size_t i = 0; i < features->features; i++) {
        const SquadFeature *feature = &features->feature[i];
        int64_t own = squad_feature_length(features, feature);
        if (own > length) length = own;
    }
    return length;
}

/* ---- the result ---- */

static Status put_answer(json_t *list, const SquadQuestion *question, SquadText context,
                         const SquadBest *best, int64_t shown) {
    double probability = best->answer ? best->answer->probability : best->none_probability;
    json_t *json = json_pack("{s:s%}", "question", question->text.data, question->text.size);
    CLEANUP(json_decrefp)
    json_t *more = json_pack("{s:f s:f s:f s:[]}", "probability", probability, "no_answer_probability",
                             best->none_probability, "null_odds", best->null_odds, "best");
    int failed = json_array_append_new(list, json);
    if (!failed) TRY(squad_put_choice(json, context, best->answer));
    failed = failed || !more || json_object_update(json, more);
    for (size_t i = 0; !failed && i < best->count && (int64_t)i < shown; i++) {
        json_t *one = json_pack("{s:f}", "probability", best->choice[i].probability);
        failed = !one || json_array_append_new(json_object_get(json, "best"), one);
        if (!failed) TRY(squad_put_choice(one, context, &best->choice[i]));
    }
    if (failed) return FAILED("out of memory while writing the answers");
    return OK;
}

static Status collect(const AnswerConfig *config, const SquadSet *set, const SquadFeatures *features,
                      const SquadScores *scores, json_t **ret_result) {
    CLEANUP(squad_best_done) SquadBest best = {0};
    CLEANUP(json_decrefp) json_t *result = json_pack("{s:[]}", "answers");
    SquadAnswerSpec spec = {config->max_answer, !config->always, config->null_threshold};
    SquadText context = set->paragraph[0].context;
    for (size_t i = 0; i < features->queries; i++) {
        TRY(squad_best_find(&best, features, scores, i, context, &spec));
        TRY(put_answer(json_object_get(result, "answers"), &set->question[features->query[i].number], context,
                       &best, config->shown));
    }
    *ret_result = json_incref(result);
    return OK;
}

Status answer_questions(const AnswerConfig *config, json_t **ret_result) {
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(squad_features_done) SquadFeatures features = {0};
    CLEANUP(squad_scores_done) SquadScores scores = {0};
    CLEANUP(job_freep) Job *job = NULL;
    size_t size = 0;
    SquadLoss loss;
    if (config->questions_count == 0) return USAGE("no question; pass at least one {question}");
    for (int i = 0; i < config->questions_count; i++)
        if (!config->questions[i][strspn(config->questions[i], " \t\r\n")])
            return USAGE("{question} '%s' is empty; pass a question", config->questions[i]);
    TRY(open_job(config, &job));
    TRY(prompt_read(config->context, &text, &size));
    TRY(make_set(config, text, size, &set));
    SquadSpec spec = {.seq = job->seq,
                      .doc_stride = config->settings.data.text.doc_stride,
                      .max_query = config->settings.data.text.max_query,
                      .types = job->model->config.types};
    TRY(squad_features_make(&features, &set, job->tokenizer, &spec));
    if (features.counts.empty) return FAILED("%s contains no text to find an answer in", config->context);
    TRY(squad_scores_init(&scores, &features, config->n_best));
    TRY(load_weights(job));
    TRY(squad_run_model(job, &features, features.features, longest(&features), &scores, &loss));
    return collect(config, &set, &features, &scores, ret_result);
}
