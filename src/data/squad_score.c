/* The metrics of evaluate-v2.0.py, step by step: raw scores per question (the best over its answers),
 * predictions replaced by "no answer" if its probability exceeds the threshold, means over all questions and
 * over those with and without an answer, and the thresholds that would have been best.
 *
 * As in the script, questions are identified by their ids: of two with the same id the later one is scored,
 * in the position of the first. A question has an answer if its "answers" are not empty.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "data/squad.h"

typedef struct Row {
    const SquadQuestion *question;
    bool has_answer, found; /* found: there is a prediction */
    bool empty;             /* the prediction is the empty string */
    double exact, f1;       /* before applying the threshold */
    double na_prob;
} Row;

typedef struct Scoring {
    const SquadSet *set;
    const SquadPredictions *given;
    Row *row;
    size_t rows;
    json_t *index; /* id to row index */
    NormalAnswer gold, found;
} Scoring;

static void scoring_done(Scoring *scoring) {
    free(scoring->row);
    json_decref(scoring->index);
    normal_answer_done(&scoring->gold);
    normal_answer_done(&scoring->found);
}

static Row *find_row(const Scoring *scoring, const char *id) {
    const json_t *index = json_object_get(scoring->index, id);
    return index ? &scoring->row[json_integer_value(index)] : NULL;
}

static Status collect_rows(Scoring *scoring) {
    const SquadSet *set = scoring->set;
    TRY(mem_new(set->questions, sizeof *scoring->row, &scoring->row));
    scoring->index = json_object();
    for (size_t i = 0; i < set->questions; i++) {
        const SquadQuestion *question = &set->question[i];
        Row *row = find_row(scoring, question->id);
        if (!row) {
            json_t *index = json_integer((json_int_t)scoring->rows);
            if (json_object_set_new_nocheck(scoring->index, question->id, index) != 0)
                return FAILED("out of memory while scoring");
            row = &scoring->row[scoring->rows++];
        }
        row->question = question;
        row->has_answer = question->answers > 0;
    }
    return OK;
}

/* Scores the best match among the answers that contain more than articles and punctuation. Without such an
 * answer, the empty prediction is correct. */
static Status score_row(Scoring *scoring, Row *row, const json_t *prediction) {
    NormalAnswer *gold = &scoring->gold, *found = &scoring->found;
    const SquadAnswer *answer = scoring->set->answer + row->question->first_answer;
    TRY(normal_answer_set(found, json_string_value(prediction), json_string_length(prediction)));
    bool any = false;
    row->exact = row->f1 = 0;
    for (size_t i = 0; i < row->question->answers; i++) {
        TRY(normal_answer_set(gold, answer[i].text.data, answer[i].text.size));
        if (gold->count == 0) continue;
        any = true;
        double f1 = normal_answer_f1(gold, found);
        if (normal_answer_same(gold, found)) row->exact = 1;
        if (f1 > row->f1) row->f1 = f1;
    }
    if (!any) row->exact = row->f1 = found->count == 0;
    row->found = true;
    row->empty = json_string_length(prediction) == 0;
    return OK;
}

static Status score_rows(Scoring *scoring) {
    const SquadPredictions *given = scoring->given;
    for (size_t i = 0; i < scoring->rows; i++) {
        Row *row = &scoring->row[i];
        const char *id = row->question->id;
        const json_t *prediction = json_object_get(given->answers, id);
        if (!prediction) continue;
        if (!json_is_string(prediction))
            return FAILED("%s: the answer to question %s must be a string", given->from, id);
        TRY(score_row(scoring, row, prediction));
        if (!given->na_prob) continue;
        const json_t *na_prob = json_object_get(given->na_prob, id);
        if (!json_is_number(na_prob))
            return FAILED("%s: question %s has a prediction, but no numeric no-answer probability",
                          given->na_from, id);
        row->na_prob = json_number_value(na_prob);
    }
    return OK;
}

/* Means over the rows with and/or without an answer. */
static SquadMean mean_of(const Scoring *scoring, bool with, bool without) {
    SquadMean mean = {0};
    for (size_t i = 0; i < scoring->rows; i++) {
        const Row *row = &scoring->row[i];
        if (!row->found || !(row->has_answer ? with : without)) continue;
        bool none = row->na_prob > scoring->given->na_thresh;
        mean.exact += none ? !row->has_answer : row->exact;
        mean.f1 += none ? !row->has_answer : row->f1;
        mean.total++;
    }
    if (!mean.total) return mean;
    mean.exact = 100.0 * mean.exact / (double)mean.total;
    mean.f1 = 100.0 * mean.f1 / (double)mean.total;
    return mean;
}

/* ---- thresholds ---- */

typedef struct NullProb {
    Row *row;
    double value;
    size_t at; /* index in the file, breaks ties */
} NullProb;

static int by_value(const void *a, const void *b) {
    const NullProb *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Starts from "no answer" for every question and accepts predictions in ascending order of their value. */
static void best_threshold(const Scoring *scoring, const NullProb *probs, size_t count, bool exact,
                           double *ret_best, double *ret_thresh) {
    double score = 0, best, thresh = 0;
    int64_t total = 0;
    for (size_t i = 0; i < scoring->rows; i++) {
        const Row *row = &scoring->row[i];
        score += !row->has_answer && (row->found || !scoring->given->some);
        total += row->found;
    }
    best = score;
    for (size_t i = 0; i < count; i++) {
        const Row *row = probs[i].row;
        if (row->has_answer)
            score += exact ? row->exact : row->f1;
        else if (!row->empty)
            score -= 1;
        if (score > best) {
            best = score;
            thresh = probs[i].value;
        }
    }
    *ret_best = 100.0 * best / (double)total;
    *ret_thresh = thresh;
}

static Status find_best(const Scoring *scoring, SquadScore *score) {
    CLEANUP(mem_freep) NullProb *probs = NULL;
    size_t count = 0, at = 0;
    const char *id;
    json_t *value, *all = (json_t *)(uintptr_t)scoring->given->na_prob;
    TRY(mem_new(json_object_size(all) + 1, sizeof *probs, &probs));
    json_object_foreach(all, id, value) {
        Row *row = find_row(scoring, id);
        if (row && row->found) probs[count++] = (NullProb){row, json_number_value(value), at};
        at++;
    }
    qsort(probs, count, sizeof *probs, by_value);
    best_threshold(scoring, probs, count, true, &score->best_exact, &score->best_exact_thresh);
    best_threshold(scoring, probs, count, false, &score->best_f1, &score->best_f1_thresh);
    score->has_best = true;
    return OK;
}

Status squad_score(const SquadSet *set, const SquadPredictions *predictions, SquadScore *ret_score) {
    CLEANUP(scoring_done) Scoring scoring = {.set = set, .given = predictions};
    if (!json_is_object(predictions->answers))
        return FAILED("%s: expected an object that maps question ids to answers", predictions->from);
    if (predictions->na_prob && !json_is_object(predictions->na_prob))
        return FAILED("%s: expected an object that maps question ids to numbers", predictions->na_from);
    TRY(collect_rows(&scoring));
    TRY(score_rows(&scoring));
    SquadScore score = {.all = mean_of(&scoring, true, true),
                        .has_answer = mean_of(&scoring, true, false),
                        .no_answer = mean_of(&scoring, false, true)};
    if (score.all.total == 0)
        return FAILED("%s: no answer for any of the %zu questions", predictions->from, scoring.rows);
    score.missing = (int64_t)scoring.rows - score.all.total;
    if (predictions->na_prob) TRY(find_best(&scoring, &score));
    *ret_score = score;
    return OK;
}

static int put_mean(json_t *json, const char *prefix, const SquadMean *mean) {
    static const char *const names[3] = {"exact", "f1", "total"};
    json_t *values[3] = {json_real(mean->exact), json_real(mean->f1), json_integer(mean->total)};
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%s", prefix, names[i]);
        failed |= json_object_set_new(json, name, values[i]);
    }
    return failed;
}

Status squad_score_json(const SquadScore *score, json_t **ret_json) {
    CLEANUP(json_decrefp) json_t *json = json_object();
    int failed = put_mean(json, "", &score->all);
    if (score->has_answer.total) failed |= put_mean(json, "HasAns_", &score->has_answer);
    if (score->no_answer.total) failed |= put_mean(json, "NoAns_", &score->no_answer);
    if (score->has_best) {
        failed |= json_object_set_new(json, "best_exact", json_real(score->best_exact));
        failed |= json_object_set_new(json, "best_exact_thresh", json_real(score->best_exact_thresh));
        failed |= json_object_set_new(json, "best_f1", json_real(score->best_f1));
        failed |= json_object_set_new(json, "best_f1_thresh", json_real(score->best_f1_thresh));
    }
    failed |= json_object_set_new(json, "missing", json_integer(score->missing));
    if (failed) return FAILED("out of memory while writing the score");
    *ret_json = json_incref(json);
    return OK;
}
