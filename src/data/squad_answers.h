/* From a model's scores to answers, as BERT's run_squad has it: of each window the `n_best` likeliest starts
 * and ends, all pairs of them that make an answer, the likeliest of those over all windows of a question, and
 * the score of [CLS], "no answer", beside them.
 *
 * Only positions in the context are candidates, so that what stands in the padding does not matter. Answers
 * are pieces of the context itself, from the first character of their first token to the last of their last.
 */
#ifndef WEFT_DATA_SQUAD_ANSWERS_H
#define WEFT_DATA_SQUAD_ANSWERS_H

#include "data/squad_features.h"

enum { SQUAD_N_BEST = 20, SQUAD_ANSWER = 30, SQUAD_N_BEST_LIMIT = 1000 };

/* What is kept of each window's scores. */
typedef struct SquadTop {
    int32_t token; /* of the context */
    float score;
} SquadTop;

typedef struct SquadScores {
    int64_t n;
    SquadTop *top;  /* (windows, 2, n): starts and ends, the best first */
    int32_t *count; /* (windows, 2) */
    float *none;    /* (windows, 2): of [CLS] */
} SquadScores;

MUST_USE Status squad_scores_init(SquadScores *scores, const SquadFeatures *features, int64_t n_best);
void squad_scores_done(SquadScores *scores);
/* Takes a window's scores: (T,2), start and end of each position. */
void squad_scores_take(SquadScores *scores, const SquadFeatures *features, size_t index, const float *logits);

typedef struct SquadChoice {
    bool none;         /* "no answer" */
    size_t start, end; /* else bytes of the context */
    float start_score, end_score;
    double score; /* of both together */
    double probability;
} SquadChoice;

/* The best answers to one question; memory is used again, start with zeroes. */
typedef struct SquadBest {
    SquadChoice *choice; /* the best first */
    size_t count;
    double null_odds; /* score of "no answer" less that of the best answer; 0 where it is not allowed */
    const SquadChoice *answer; /* in `choice`; NULL: there is none */
    double none_probability;
    size_t capacity;
    struct SquadPair *pair;
    size_t pairs, pair_capacity;
} SquadBest;

typedef struct SquadAnswerSpec {
    int64_t max_answer; /* tokens */
    bool may_be_none;
    double null_threshold; /* odds above it are "no answer" */
} SquadAnswerSpec;

MUST_USE Status squad_best_find(SquadBest *best, const SquadFeatures *features, const SquadScores *scores,
                                size_t asked, SquadText context, const SquadAnswerSpec *spec);
void squad_best_done(SquadBest *best);

#endif
