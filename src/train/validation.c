/* Losses come from every validation. Scores need a second pass over the data and are measured only at the end
 * of an epoch and of the run. */
#include "train/validation.h"

#include <math.h>

#include "model/head.h"
#include "train/squad.h"

void validation_init(Validation *val) {
    *val = (Validation){.step = -1,
                        .loss = NAN,
                        .accuracy = NAN,
                        .f1 = NAN,
                        .mcc = NAN,
                        .exact = NAN,
                        .lowest = NAN,
                        .best = NAN};
}

/* The accuracy that a model is judged by. Regression and multi-label classification have none here, and
 * neither has a language model, unless it predicts few of the tokens, such as answers. */
static double accuracy_of(const EvalResult *result, bool decoder) {
    int64_t answers = result->counts[LOSS_TOKEN];
    if (decoder && answers && 2 * answers < result->tokens) return result->accuracy[LOSS_TOKEN];
    for (HeadId id = HEAD_COUNT; id-- > 0;) {
        const HeadTraits *head = &head_at(id)->traits;
        for (int k = 0; k < LOSS_COUNT && head->judged; k++)
            if (head->losses & 1u << k && result->counts[k]) return result->accuracy[k];
    }
    return (double)NAN;
}

void validation_take(Validation *val, int64_t step, const EvalResult *result, bool decoder) {
    val->step = step;
    val->loss = result->loss;
    val->samples = result->examples;
    val->accuracy = accuracy_of(result, decoder);
    val->f1 = val->mcc = val->exact = NAN;
    if (step > 0) {
        val->sum += result->loss;
        val->count++;
    }
    bool lower = !(result->loss >= val->lowest);
    if (lower) val->lowest = result->loss;
    val->since = lower ? 0 : val->since + 1;
}

bool validation_is_best(Validation *val, int64_t step) {
    if (val->step != step || val->loss >= val->best) return false;
    val->best = val->loss;
    val->best_step = step;
    return true;
}

Status validation_score(Validation *val, const Job *job, const Dataset *data, const char *const *paths,
                        int count, int64_t limit) {
    CLEANUP(json_decrefp) json_t *score = json_object();
    TRY(task_scores(job, data, limit, true, NULL, score));
    val->accuracy = json_number_or(score, "accuracy", val->accuracy);
    val->f1 = json_number_or(score, "f1_macro", val->f1);
    val->mcc = json_number_or(score, "mcc", val->mcc);
    if (job->squad && count) {
        TRY(squad_score_job(job, paths, count, limit, &val->exact, &val->f1));
    }
    return OK;
}

void validation_add_scores(const Validation *val, json_t *object) {
    if (isfinite(val->accuracy)) json_object_set_new(object, "accuracy", json_real(val->accuracy));
    if (isfinite(val->f1)) json_object_set_new(object, "f1", json_real(val->f1));
    if (isfinite(val->mcc)) json_object_set_new(object, "mcc", json_real(val->mcc));
    if (isfinite(val->exact)) json_object_set_new(object, "exact", json_real(val->exact));
}

void validation_summary(const Validation *val, RunSummary *summary) {
    summary->val_loss = val->loss;
    summary->val_samples = (double)val->samples;
    summary->val_loss_mean = val->sum / (double)val->count;
    summary->accuracy = val->accuracy;
    summary->f1 = val->f1;
    summary->mcc = val->mcc;
    summary->exact = val->exact;
    if (!val->best_step) return;
    summary->best_step = (double)val->best_step;
    summary->best_val_loss = val->best;
}

Status validation_save(const Validation *val, json_t **ret_json) {
    *ret_json =
        json_pack("{s:I, s:f, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:I}", "step", (json_int_t)val->step,
                  "sum", val->sum, "count", (json_int_t)val->count, "accuracy", json_finite(val->accuracy),
                  "f1", json_finite(val->f1), "mcc", json_finite(val->mcc), "exact", json_finite(val->exact),
                  "lowest", json_finite(val->lowest), "since", (json_int_t)val->since, "best",
                  json_finite(val->best), "best_step", (json_int_t)val->best_step);
    return *ret_json ? OK : FAILED("out of memory");
}

void validation_restore(Validation *val, const json_t *saved, int64_t step) {
    validation_init(val);
    val->step = step; /* checkpoints of earlier versions do not say */
    if (!saved) return;
    val->step = json_int_at(saved, "step");
    val->sum = json_number_at(saved, "sum");
    val->count = json_int_at(saved, "count");
    val->since = json_int_at(saved, "since");
    val->best_step = json_int_at(saved, "best_step");
    val->accuracy = json_number_or(saved, "accuracy", NAN);
    val->f1 = json_number_or(saved, "f1", NAN);
    val->mcc = json_number_or(saved, "mcc", NAN);
    val->exact = json_number_or(saved, "exact", NAN);
    val->lowest = json_number_or(saved, "lowest", NAN);
    val->best = json_number_or(saved, "best", NAN);
}
