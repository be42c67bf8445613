#include "data/squad_answers.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

/* ---- scores ---- */

Status squad_scores_init(SquadScores *scores, const SquadFeatures *features, int64_t n_best) {
    CLEANUP(squad_scores_done) SquadScores made = {.n = n_best};
    if (n_best < 1 || n_best > SQUAD_N_BEST_LIMIT)
        return USAGE("the number of candidate answers is %lld; expected 1 to %d", (long long)n_best,
                     SQUAD_N_BEST_LIMIT);
    TRY(mem_new(2 * features->features * (size_t)n_best, sizeof *made.top, &made.top));
    TRY(mem_new(2 * features->features, sizeof *made.count, &made.count));
    TRY(mem_new(2 * features->features, sizeof *made.none, &made.none));
    return MOVE(scores, made);
}

void squad_scores_done(SquadScores *scores) {
    free(scores->top);
    free(scores->count);
    free(scores->none);
    *scores = (SquadScores){0};
}

/* Inserts a candidate into a list of the best `n`; among equal scores the earlier one comes first. */
static int32_t put_top(SquadTop *top, int32_t count, int64_t n, SquadTop next) {
    if (count == n && !(next.score > top[count - 1].score)) return count;
    int32_t at = count < n ? count++ : count - 1;
    for (; at > 0 && next.score > top[at - 1].score; at--) top[at] = top[at - 1];
    top[at] = next;
    return count;
}

void squad_scores_take(SquadScores *scores, const SquadFeatures *features, size_t index, const float *logits,
                       int64_t T) {
    const SquadFeature *feature = &features->feature[index];
    int32_t offset = squad_feature_offset(features, feature);
    size_t none = (size_t)squad_feature_none(features, feature);
    for (size_t side = 0; side < 2; side++) {
        size_t row = 2 * index + side;
        SquadTop *top = scores->top + row * (size_t)scores->n;
        int32_t count = 0;
        for (int64_t t = 0; t < T; t++) {
            bool inside = t >= offset && t < offset + feature->count;
            SquadTop next = {inside ? feature->first + (int32_t)t - offset : -1,
                             logits[2 * t + (int64_t)side]};
            count = put_top(top, count, scores->n, next);
        }
        scores->count[row] = count;
        scores->none[row] = logits[2 * none + side];
    }
}

/* ---- pairs ---- */

struct SquadPair {
    double score;        /* sum of both sides */
    float side[2];       /* start and end */
    int32_t first, last; /* context tokens; -1: no answer */
    size_t order;        /* insertion order, breaks ties */
};

void squad_best_done(SquadBest *best) {
    free(best->choice);
    free(best->pair);
    *best = (SquadBest){0};
}

static int by_score(const void *a, const void *b) {
    const struct SquadPair *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static Status add_pair(SquadBest *best, SquadTop start, SquadTop end) {
    TRY(mem_grow(&best->pair, &best->pair_capacity, best->pairs + 1, sizeof *best->pair));
    best->pair[best->pairs] = (struct SquadPair){(double)start.score + (double)end.score,
                                                 {start.score, end.score},
                                                 start.token,
                                                 end.token,
                                                 best->pairs};
    best->pairs++;
    return OK;
}

static Status add_window(SquadBest *best, const SquadFeatures *features, const SquadScores *scores,
                         size_t index, int64_t max_answer) {
    const SquadFeature *feature = &features->feature[index];
    const SquadTop *start = scores->top + 2 * index * (size_t)scores->n, *end = start + scores->n;
    for (int32_t i = 0; i < scores->count[2 * index]; i++) {
        if (start[i].token < 0 || !squad_is_max_context(features, feature, start[i].token)) continue;
        for (int32_t k = 0; k < scores->count[2 * index + 1]; k++) {
            int64_t length = (int64_t)end[k].token - start[i].token + 1;
            if (end[k].token < 0 || length < 1 || length > max_answer) continue;
            TRY(add_pair(best, start[i], end[k]));
        }
    }
    return OK;
}

/* The lowest "no answer" score over the windows, because every window must be without an answer. */
static SquadChoice choose_none(const SquadScores *scores, const SquadQuery *query) {
    SquadChoice lowest = {.none = true, .score = INFINITY};
    for (size_t i = query->feature; i < query->feature + (size_t)query->features; i++) {
        const float *side = scores->none + 2 * i;
        double score = (double)side[0] + (double)side[1];
        if (score >= lowest.score) continue;
        lowest.score = score;
        lowest.start_score = side[0];
        lowest.end_score = side[1];
    }
    return lowest;
}

/* ---- choices ---- */

static bool continues(SquadText text, size_t at) {
    return at < text.size && ((unsigned char)text.data[at] & 0xC0) == 0x80;
}

/* Converts a pair of tokens to a byte range of the context, extended to complete characters. */
static SquadChoice choice_of(const SquadFeatures *features, const SquadQuery *query, SquadText context,
                             const struct SquadPair *pair) {
    SquadChoice choice = {.none = pair->first < 0,
                          .start_score = pair->side[0],
                          .end_score = pair->side[1],
                          .score = pair->score};
    if (choice.none) return choice;
    const SquadOffsets *offsets = features->offsets + query->context.at;
    choice.start = offsets[pair->first].start;
    choice.end = offsets[pair->last].end;
    while (choice.start > 0 && continues(context, choice.start)) choice.start--;
    while (continues(context, choice.end)) choice.end++;
    return choice;
}

static bool is_new(const SquadBest *best, SquadText context, const SquadChoice *choice) {
    size_t size = choice->end - choice->start;
    for (size_t i = 0; i < best->count; i++) {
        const SquadChoice *other = &best->choice[i];
        if (choice->none || other->none) {
            if (choice->none && other->none) return false;
            continue;
        }
        if (other->end - other->start == size &&
            !memcmp(context.data + other->start, context.data + choice->start, size))
            return false;
    }
    return true;
}

static Status add_choice(SquadBest *best, SquadChoice choice) {
    TRY(mem_grow(&best->choice, &best->capacity, best->count + 1, sizeof choice));
    best->choice[best->count++] = choice;
    return OK;
}

static void set_probabilities(SquadBest *best) {
    double sum = 0, highest = -INFINITY;
    for (size_t i = 0; i < best->count; i++)
        if (best->choice[i].score > highest) highest = best->choice[i].score;
    for (size_t i = 0; i < best->count; i++)
        sum += best->choice[i].probability = exp(best->choice[i].score - highest);
    for (size_t i = 0; i < best->count; i++) {
        best->choice[i].probability /= sum;
        if (best->choice[i].none) best->none_probability = best->choice[i].probability;
    }
}

Status squad_best_find(SquadBest *best, const SquadFeatures *features, const SquadScores *scores,
                       size_t number, SquadText context, const SquadAnswerSpec *spec) {
    const SquadQuery *query = &features->query[number];
    bool none_seen = false;
    best->pairs = best->count = 0;
    best->null_odds = best->none_probability = 0;
    best->answer = NULL;
    for (size_t i = query->feature; i < query->feature + (size_t)query->features; i++)
        TRY(add_window(best, features, scores, i, spec->max_answer));
    SquadChoice none = choose_none(scores, query);
    if (spec->may_be_none)
        TRY(add_pair(best, (SquadTop){-1, none.start_score}, (SquadTop){-1, none.end_score}));
    if (best->pairs) qsort(best->pair, best->pairs, sizeof *best->pair, by_score);
    for (size_t i = 0; i < best->pairs && best->count < (size_t)scores->n; i++) {
        SquadChoice choice = choice_of(features, query, context, &best->pair[i]);
        if (is_new(best, context, &choice)) TRY(add_choice(best, choice));
        none_seen |= choice.none;
    }
    if (spec->may_be_none && !none_seen) TRY(add_choice(best, none));
    set_probabilities(best);
    const SquadChoice *answer = best->choice, *end = best->choice + best->count;
    while (answer < end && answer->none) answer++;
    if (spec->may_be_none && answer < end) best->null_odds = none.score - answer->score;
    if (answer < end && !(spec->may_be_none && best->null_odds > spec->null_threshold)) best->answer = answer;
    return OK;
}
