/* The score of evaluate-v2.0.py, step by step: raw scores per question (the best over its answers), answers
 * taken back where the chance of "no answer" lies above a threshold, means over all questions and over those
 * with and without an answer, and the thresholds that would have been best.
 *
 * As in the script, questions are known by their ids: of two with the same id the later one counts, at the
 * place of the first. Whether a question has an answer is whether "answers" has an entry. */
#include <stdlib.h>

#include "base/memory.h"
#include "data/squad.h"

typedef struct Row {
    const SquadQuestion *question;
    bool has_answer, found; /* found: there is a prediction */
    bool empty;             /* which is the empty text */
    double exact, f1;       /* raw */
    double na_prob;
} Row;

typedef struct Scoring {
    const SquadSet *set;
    const SquadPredictions *given;
    Row *row;
    size_t rows;
    json_t *place; /* row by id */
    NormalAnswer gold, found;
} Scoring;

static void scoring_done(Scoring *scoring) {
    free(scoring->row);
    json_decref(scoring->place);
    normal_answer_done(&scoring->gold);
    normal_answer_done(&scoring->found);
}

static Row *find_row(const Scoring *scoring, const char *id) {
    const json_t *place = json_object_get(scoring->place, id);
    return place ? &scoring->row[json_integer_value(place)] : NULL;
}

static Status collect_rows(Scoring *scoring) {
    const SquadSet *set = scoring->set;
    TRY(mem_new(set->questions, sizeof *scoring->row, &scoring->row));
    scoring->place = json_object();
    for (size_t i = 0; i < set->questions; i++) {
        const SquadQuestion *question = &set->question[i];
        Row *row = find_row(scoring, question->id);
        if (!row) {
            json_t *place = json_integer((json_int_t)scoring->rows);
            if (json_object_set_new_nocheck(scoring->place, question->id, place) != 0)
                return FAILED("out of memory while scoring");
            row = &scoring->row[scoring->rows++];
        }
        row->question = question;
        row->has_answer = question->answers > 0;
    }
    return OK;
}

/* The best over the answers that are more than articles and punctuation; without any, the right answer is
 * none. */
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
            return FAILED("%s: the answer to question %s must be a text", given->from, id);
        TRY(score_row(scoring, row, prediction));
        if (!given->na_prob) continue;
        const json_t *na_prob = json_object_get(given->na_prob, id);
        if (!json_is_number(na_prob))
            return FAILED("%s: has no number for question %s, which has a prediction", given->na_from, id);
        row->na_prob = json_number_value(na_prob);
    }
    return OK;
}

/* The mean over rows of one kind. */
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

typedef struct Odds {
    Row *row;
    double value;
    size_t at; /* in the file: what is equal stays in its order */
} Odds;

static int by_value(const void *a, const void *b) {
    const Odds *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* From "no answer at all" on, giving more and more answers in the order of their odds. */
static void best_threshold(const Scoring *scoring, const Odds *odds, size_t count, bool exact,
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
        const Row *row = odds[i].row;
        if (row->has_answer)
            score += exact ? row->exact : row->f1;
        else if (!row->empty)
            score -= 1;
        if (score > best) {
            best = score;
            thresh = odds[i].value;
        }
    }
    *ret_best = 100.0 * best / (double)total;
    *ret_thresh = thresh;
}

static Status find_best(const Scoring *scoring, SquadScore *score) {
    CLEANUP(mem_freep) Odds *odds = NULL;
    size_t count = 0, at = 0;
    const char *id;
    json_t *value, *all = (json_t *)(uintptr_t)scoring->given->na_prob;
    TRY(mem_new(json_object_size(all) + 1, sizeof *odds, &odds));
    json_object_foreach(all, id, value) {
        Row *row = find_row(scoring, id);
        if (row && row->found) odds[count++] = (Odds){row, json_number_value(value), at};
        at++;
    }
    qsort(odds, count, sizeof *odds, by_value);
    best_threshold(scoring, odds, count, true, &score->best_exact, &score->best_exact_thresh);
    best_threshold(scoring, odds, count, false, &score->best_f1, &score->best_f1_thresh);
    score->has_best = true;
    return OK;
}

Status squad_score(const SquadSet *set, const SquadPredictions *predictions, SquadScore *ret_score) {
    CLEANUP(scoring_done) Scoring scoring = {.set = set, .given = predictions};
    if (!json_is_object(predictions->answers))
        return FAILED("%s: expected an object with an answer for each question's id", predictions->from);
    if (predictions->na_prob && !json_is_object(predictions->na_prob))
        return FAILED("%s: expected an object with a number for each question's id", predictions->na_from);
    TRY(collect_rows(&scoring));
    TRY(score_rows(&scoring));
    SquadScore score = {.all = mean_of(&scoring, true, true),
                        .has_answer = mean_of(&scoring, true, false),
                        .no_answer = mean_of(&scoring, false, true)};
    if (score.all.total == 0)
        return FAILED("%s: has no answer for any of the %zu questions", predictions->from, scoring.rows);
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
