/* A model's answers are collected in the form of predictions.json and scored like a predictions file, so both
 * paths give identical scores. */
#include "train/squad.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "data/table.h"
#include "train/predictions.h"
#include "train/replicas.h"

/* ---- predictions files ---- */

/* Refuses options that would be silently ignored with a predictions file. */
static Status check_options(const EvalConfig *config) {
    if (strcmp(config->settings.model.task, "squad") && strcmp(config->settings.model.task, "auto"))
        return USAGE("{predictions} applies to {task} squad, not to %s", config->settings.model.task);
    if (config->settings.model.name)
        return USAGE("{model} and {predictions} cannot be combined; choose whose answers to score");
    if (config->squad.out || config->squad.write_n_best)
        return USAGE("{%s} writes a model's answers and cannot be combined with {predictions}",
                     config->squad.out ? "out" : "nbest");
    return OK;
}

Status squad_eval_predictions(const EvalConfig *config, json_t **ret_result) {
    const SquadEval *squad = &config->squad;
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(json_decrefp) json_t *answers = NULL;
    CLEANUP(json_decrefp) json_t *na_prob = NULL;
    TRY(check_options(config));
    for (int i = 0; i < config->settings.data.files_count; i++)
        TRY(squad_set_read(&set, config->settings.data.files[i]));
    TRY(squad_json_read(squad->predictions, &answers));
    if (squad->na_prob) TRY(squad_json_read(squad->na_prob, &na_prob));
    SquadPredictions given = {.answers = answers,
                              .from = squad->predictions,
                              .na_prob = na_prob,
                              .na_from = squad->na_prob,
                              .na_thresh = squad->na_thresh};
    SquadScore score;
    TRY(squad_score(&set, &given, &score));
    return squad_score_json(&score, ret_result);
}

/* ---- running the model ---- */

typedef struct ScoringContext {
    const Job *job;
    const SquadFeatures *features;
    SquadScores *scores;
    SquadLoss loss;
} ScoringContext;

static Status fill_batch(void *context, int64_t first, HostBatch *batch) {
    const ScoringContext *scoring = context;
    const Job *job = scoring->job;
    int64_t B = batch->B, T = batch->T;
    int32_t pad = job->special.pad > 0 ? job->special.pad : 0;
    batch->task = TASK_SPAN;
    batch->has_types = job->model->config.types > 0;
    batch->padded = false;
    memset(batch->types, 0, (size_t)(B * T) * sizeof *batch->types);
    for (int64_t b = 0; b < B; b++) {
        int32_t *tokens = batch->tokens + b * T;
        int32_t length =
            squad_feature_fill(scoring->features, (size_t)(first + b), tokens, batch->types + b * T);
        for (int64_t t = length; t < T; t++) tokens[t] = pad;
        batch->lens[b] = length;
        batch->padded |= length < T;
        batch->span[b] = batch->span[B + b] = (int32_t)T;
    }
    return OK;
}

/* Cross-entropy of the label over all positions, padding included, as in training. Logits have stride 2. */
static double loss_of(const float *logits, int64_t T, int32_t label) {
    double max = -INFINITY, sum = 0;
    for (int64_t t = 0; t < T; t++)
        if ((double)logits[2 * t] > max) max = (double)logits[2 * t];
    for (int64_t t = 0; t < T; t++) sum += exp((double)logits[2 * t] - max);
    return max + log(sum) - (double)logits[2 * (int64_t)label];
}

static Status consume_batch(void *context, int64_t first, const HostBatch *batch, const float *logits) {
    ScoringContext *scoring = context;
    int64_t T = batch->T;
    for (int64_t b = 0; b < batch->B; b++) {
        const SquadFeature *feature = &scoring->features->feature[first + b];
        const float *own = logits + 2 * b * T;
        squad_scores_take(scoring->scores, scoring->features, (size_t)(first + b), own, T);
        if (feature->start >= T || feature->end >= T) continue;
        scoring->loss.start += loss_of(own, T, feature->start);
        scoring->loss.end += loss_of(own + 1, T, feature->end);
        scoring->loss.count++;
    }
    return OK;
}

Status squad_run_model(const Job *job, const SquadFeatures *features, size_t count, int64_t T,
                       SquadScores *scores, SquadLoss *ret_loss) {
    ScoringContext scoring = {.job = job, .features = features, .scores = scores};
    ScoreWork work = {.head = HEAD_SPAN,
                      .seq = T,
                      .width = 2 * T,
                      .context = &scoring,
                      .fill = fill_batch,
                      .consume = consume_batch};
    TRY(job_scores(job, (int64_t)count, &work));
    if (!isfinite(scoring.loss.start + scoring.loss.end))
        return FAILED("the model's logits are not finite; its weights are corrupt or diverged");
    *ret_loss = scoring.loss;
    return OK;
}

/* ---- the model's answers ---- */

typedef struct Answers {
    json_t *predictions, *odds, *n_best; /* by question id; odds: NULL if no question is unanswerable */
    Predictions *rows;                   /* NULL: not wanted */
    bool named;                          /* of these: a question has an id */
    bool may_be_none;
} Answers;

static void answers_done(Answers *answers) {
    json_decref(answers->predictions);
    json_decref(answers->odds);
    json_decref(answers->n_best);
}

static json_t *text_json(SquadText context, const SquadChoice *choice) {
    if (!choice || choice->none) return json_string("");
    return json_stringn(context.data + choice->start, choice->end - choice->start);
}

static json_t *choices_json(SquadText context, const SquadBest *best) {
    json_t *list = json_array();
    for (size_t i = 0; i < best->count; i++) {
        const SquadChoice *choice = &best->choice[i];
        json_array_append_new(list,
                              json_pack("{s:o s:f s:f s:f}", "text", text_json(context, choice),
                                        "probability", choice->probability, "start_logit",
                                        (double)choice->start_score, "end_logit", (double)choice->end_score));
    }
    return list;
}

static json_int_t chars_before(SquadText text, size_t end) {
    json_int_t count = 0;
    for (size_t i = 0; i < end; i++) count += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return count;
}

Status squad_put_choice(json_t *json, SquadText context, const SquadChoice *choice) {
    bool none = !choice || choice->none;
    size_t start = none ? 0 : choice->start, end = none ? 0 : choice->end;
    TRY(json_put(json, "answer", none ? json_null() : json_stringn(context.data + start, end - start)));
    TRY(json_put(json, "start", none ? json_null() : json_integer(chars_before(context, start))));
    return json_put(json, "end", none ? json_null() : json_integer(chars_before(context, end)));
}

static Status put_row(const Answers *answers, const SquadSet *set, const SquadQuestion *question,
                      const SquadBest *best) {
    CLEANUP(json_decrefp) json_t *row = NULL;
    const json_t *name = !question->name && answers->named ? json_null() : question->name;
    TRY(predictions_named(answers->rows, name, &row));
    if (!row) return OK;
    TRY(squad_put_choice(row, set->paragraph[question->paragraph].context, best->answer));
    TRY(json_put(row, "probability",
                 json_finite(best->answer ? best->answer->probability : best->none_probability)));
    if (answers->may_be_none)
        TRY(json_put(row, "no_answer_probability", json_finite(best->none_probability)));
    json_t *targets = answers->rows->labeled ? json_array() : NULL;
    if (targets) TRY(json_put(row, "targets", targets));
    for (size_t i = 0; targets && i < question->answers; i++) {
        SquadText text = set->answer[question->first_answer + i].text;
        if (json_array_append_new(targets, json_stringn(text.data, text.size)) != 0)
            return FAILED("out of memory while writing answers");
    }
    return predictions_put(answers->rows, row);
}

static Status put_files(const Answers *answers, const SquadQuestion *question, SquadText context,
                        const SquadBest *best) {
    int failed = json_object_set_new(answers->predictions, question->id, text_json(context, best->answer));
    if (answers->odds) failed |= json_object_set_new(answers->odds, question->id, json_real(best->null_odds));
    if (answers->n_best)
        failed |= json_object_set_new(answers->n_best, question->id, choices_json(context, best));
    return failed ? FAILED("out of memory while collecting answers") : OK;
}

static bool has_names(const SquadSet *set) {
    for (size_t i = 0; i < set->questions; i++)
        if (set->question[i].name) return true;
    return false;
}

/* Collects the answers of questions whose windows have all been scored. */
static Status collect(const SquadEval *squad, const SquadSet *set, const SquadFeatures *features,
                      const SquadScores *scores, size_t scored, Answers *answers) {
    CLEANUP(squad_best_done) SquadBest best = {0};
    SquadAnswerSpec spec = {squad->max_answer, answers->may_be_none, squad->null_threshold};
    for (size_t i = 0; i < features->queries; i++) {
        const SquadQuery *asked = &features->query[i];
        const SquadQuestion *question = &set->question[asked->number];
        SquadText context = set->paragraph[question->paragraph].context;
        if (asked->feature + (size_t)asked->features > scored) break;
        TRY(squad_best_find(&best, features, scores, i, context, &spec));
        if (answers->predictions) TRY(put_files(answers, question, context, &best));
        if (answers->rows) TRY(put_row(answers, set, question, &best));
    }
    return OK;
}

static Status write_answers(const char *out, const Answers *answers) {
    const struct {
        const char *name;
        const json_t *json;
    } files[] = {{"predictions.json", answers->predictions},
                 {"null_odds.json", answers->odds},
                 {"nbest_predictions.json", answers->n_best}};
    TRY(dir_make(out));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CLEANUP(mem_freep) char *path = NULL;
        TRY(path_join(&path, out, files[i].name));
        /* A file of an earlier evaluation would not match these answers. */
        if (files[i].json)
            TRY(json_write_file(path, files[i].json));
        else if (unlink(path) != 0 && errno != ENOENT)
            return FAILED("%s: cannot remove: %s", path, strerror(errno));
    }
    return OK;
}

static bool has_impossible(const SquadSet *set) {
    for (size_t i = 0; i < set->questions; i++)
        if (set->question[i].impossible) return true;
    return false;
}

static Status score_answers(const SquadSet *set, const Answers *answers, json_t **ret_json) {
    SquadPredictions given = {.answers = answers->predictions,
                              .from = "the model's answers",
                              .na_prob = answers->odds,
                              .na_from = "the null odds",
                              .na_thresh = INFINITY,
                              .some = true};
    SquadScore score;
    TRY(squad_score(set, &given, &score));
    TRY(squad_score_json(&score, ret_json));
    if (!score.no_answer.total) return OK;
    double none = 100.0 * (double)score.no_answer.total / (double)score.all.total;
    if (json_object_set_new(*ret_json, "no_answer_baseline", json_real(none)) != 0)
        return FAILED("out of memory while writing the score");
    return OK;
}

/* ---- evaluation ---- */

static json_t *part_json(double sum, int64_t count) {
    return json_pack("{s:f, s:I}", "loss", sum / (double)count, "count", (json_int_t)count);
}

static Status put_loss(json_t *json, const SquadLoss *loss, size_t windows, double seconds) {
    json_t *more = json_pack("{s:s s:I s:f s:f}", "task", "squad", "examples", (json_int_t)windows,
                             "runtime_s", seconds, "samples_per_s", (double)windows / seconds);
    int failed = !more || json_object_update(json, more);
    json_decref(more);
    if (loss->count) {
        double mean = 0.5 * (loss->start + loss->end) / (double)loss->count;
        failed |= json_object_set_new(json, "loss", json_real(mean));
        failed |=
            json_object_set_new(json, "parts",
                                json_pack("{s:o s:o}", "span_start", part_json(loss->start, loss->count),
                                          "span_end", part_json(loss->end, loss->count)));
    }
    if (failed) return FAILED("out of memory while writing the result");
    return OK;
}

/* Questions without answers, in SQuAD's format or in tables. */
static Status read_unlabeled(const Job *job, const char *path, SquadSet *set) {
    const TextOptions *text = &job->settings.data.text;
    bool squad = false;
    TRY(data_is_squad(path, &squad));
    if (squad || !path_is_table(path)) return squad_set_read(set, path);
    return squad_set_read_rows(set, path, text->text_field ? text->text_field : "question",
                               text->pair_field ? text->pair_field : "context", text->id_field);
}

static Status read_features(const Job *job, const char *const *paths, int count, SquadSet *set,
                            SquadFeatures *features) {
    SquadSpec spec = {.seq = job->seq,
                      .doc_stride = job->settings.data.text.doc_stride,
                      .types = job->model->config.types,
                      .max_query = job->settings.data.text.max_query,
                      .keep_lost = true};
    set->unlabeled = job->settings.data.unlabeled;
    for (int i = 0; i < count; i++)
        TRY(set->unlabeled ? read_unlabeled(job, paths[i], set) : squad_set_read(set, paths[i]));
    return squad_features_make(features, set, job->tokenizer, &spec);
}

static Status start_job(Job *job, Progress *progress) {
    CLEANUP(load_report_done) LoadReport report = {0};
    TRY(job_start(job, &report));
    TRY(load_report_check(&report, job->model_dir, &job->model->config, false));
    TRY(replicas_check(job->runner));
    job_report(job, &report, progress);
    return OK;
}

static Status windows_to_score(const EvalConfig *config, const SquadFeatures *features, size_t *ret_count) {
    size_t count = features->features,
           limit = (size_t)(config->max_batches * config->settings.run.micro_batch);
    if (limit && limit < count) count = limit;
    if (count < features->features && (size_t)features->query[0].features > count)
        return USAGE("{max-batches} %lld: no question is complete in the first %zu of %zu windows; use a "
                     "larger number",
                     (long long)config->max_batches, count, features->features);
    *ret_count = count;
    return OK;
}

static Status tell_counts(const char *path, const SquadFeatures *features, Progress *progress) {
    CLEANUP(mem_freep) char *note = NULL;
    TRY(squad_counts_text(&features->counts, &note));
    if (note) progress_line(progress, "warning: %s: %s", path, note);
    return OK;
}

Status squad_eval_model(const EvalConfig *config, Job *job, Progress *progress, json_t **ret_result) {
    const SquadEval *squad = &config->squad;
    const char *dir = squad->out && row_format_of(squad->out) == ROW_FILE_NONE ? squad->out : NULL;
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(squad_features_done) SquadFeatures features = {0};
    CLEANUP(squad_scores_done) SquadScores scores = {0};
    CLEANUP(predictions_done) Predictions rows = {.labeled = true};
    if (job->task != TASK_SPAN)
        return USAGE("%s is SQuAD data; use {task} squad", config->settings.data.files[0]);
    if (squad->write_n_best && !dir)
        return USAGE("{nbest} needs {out} with a directory, where its file is written");
    TRY(job_need_tokenizer(job));
    TRY(read_features(job, config->settings.data.files, config->settings.data.files_count, &set, &features));
    TRY(tell_counts(config->settings.data.files[0], &features, progress));
    TRY(squad_scores_init(&scores, &features, squad->n_best));
    size_t count = 0;
    TRY(windows_to_score(config, &features, &count));
    if (dir) TRY(dir_make(dir));
    if (squad->out && !dir) TRY(predictions_init(&rows, job, squad->out, NULL));
    TRY(start_job(job, progress));

    SquadLoss loss;
    double start = clock_wall();
    TRY(squad_run_model(job, &features, count, job->seq, &scores, &loss));
    bool may_be_none = has_impossible(&set);
    CLEANUP(answers_done)
    Answers answers = {.predictions = json_object(),
                       .odds = may_be_none ? json_object() : NULL,
                       .n_best = squad->write_n_best ? json_object() : NULL,
                       .rows = squad->out && !dir ? &rows : NULL,
                       .may_be_none = may_be_none};
    CLEANUP(json_decrefp) json_t *result = NULL;
    TRY(collect(squad, &set, &features, &scores, count, &answers));
    double seconds = clock_wall() - start;
    TRY(score_answers(&set, &answers, &result));
    TRY(put_loss(result, &loss, count, seconds));
    if (dir && job->runner->mesh->rank == 0) TRY(write_answers(dir, &answers));
    TRY(predictions_commit(&rows));
    *ret_result = json_incref(result);
    return OK;
}

Status squad_predict(const PredictConfig *config, Job *job, Progress *progress, Predictions *out) {
    const DataSettings *data = &config->settings.data;
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(squad_features_done) SquadFeatures features = {0};
    CLEANUP(squad_scores_done) SquadScores scores = {0};
    SquadLoss loss;
    TRY(job_need_tokenizer(job));
    TRY(read_features(job, data->files, data->files_count, &set, &features));
    TRY(tell_counts(data->files[0], &features, progress));
    TRY(squad_scores_init(&scores, &features, config->squad.n_best));
    TRY(start_job(job, progress));
    TRY(squad_run_model(job, &features, features.features, job->seq, &scores, &loss));
    Answers answers = {.rows = out, .named = has_names(&set), .may_be_none = !config->always};
    return collect(&config->squad, &set, &features, &scores, features.features, &answers);
}

Status squad_score_job(const Job *job, const char *const *paths, int count, int64_t limit, double *ret_exact,
                       double *ret_f1) {
    static const SquadEval squad = {.n_best = 20, .max_answer = 30};
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(squad_features_done) SquadFeatures features = {0};
    CLEANUP(squad_scores_done) SquadScores scores = {0};
    CLEANUP(json_decrefp) json_t *result = NULL;
    SquadLoss loss;
    TRY(read_features(job, paths, count, &set, &features));
    TRY(squad_scores_init(&scores, &features, squad.n_best));
    size_t windows = features.features;
    if (limit > 0 && (size_t)limit < windows) windows = (size_t)limit;
    TRY(squad_run_model(job, &features, windows, job->seq, &scores, &loss));
    CLEANUP(answers_done)
    Answers answers = {.predictions = json_object(),
                       .odds = has_impossible(&set) ? json_object() : NULL,
                       .may_be_none = has_impossible(&set)};
    TRY(collect(&squad, &set, &features, &scores, windows, &answers));
    if (!json_object_size(answers.predictions)) return OK; /* not a single question is complete */
    TRY(score_answers(&set, &answers, &result));
    *ret_exact = 0.01 * json_number_at(result, "exact");
    *ret_f1 = 0.01 * json_number_at(result, "f1");
    return OK;
}
