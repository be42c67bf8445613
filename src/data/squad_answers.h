/* Turns a model's scores into answers, as BERT's run_squad does. Each window contributes its `n_best` most
 * likely starts and ends; all valid pairs of them are ranked over all windows of a question, together with
 * "no answer", whose score is that of [CLS].
 *
 * The most likely positions are chosen from the whole sequence, padding included, as in run_squad and in
 * transformers' run_qa; only those in the context are used. An answer is a substring of the context, from the
 * first character of its first token to the last character of its last token.
 */
#ifndef WEFT_DATA_SQUAD_ANSWERS_H
#define WEFT_DATA_SQUAD_ANSWERS_H

#include "data/squad_features.h"

enum { SQUAD_N_BEST = 20, SQUAD_ANSWER = 30, SQUAD_N_BEST_LIMIT = 1000 };

/* A candidate start or end of a window. */
typedef struct SquadTop {
    int32_t token; /* index in the context; -1: outside of it */
    float score;
} SquadTop;

typedef struct SquadScores {
    int64_t n;
    SquadTop *top;  /* (windows, 2, n) starts and ends, best first */
    int32_t *count; /* (windows, 2) number of entries in `top` */
    float *none;    /* (windows, 2) scores of [CLS] */
} SquadScores;

MUST_USE Status squad_scores_init(SquadScores *scores, const SquadFeatures *features, int64_t n_best);
void squad_scores_done(SquadScores *scores);
/* Records the scores of one window: `logits` (T,2), start and end of each position. */
void squad_scores_take(SquadScores *scores, const SquadFeatures *features, size_t index, const float *logits,
                       int64_t T);

typedef struct SquadChoice {
    bool none;         /* this choice is "no answer" */
    size_t start, end; /* otherwise: byte range of the context */
    float start_score, end_score;
    double score; /* sum of the start and end scores */
    double probability;
} SquadChoice;

/* The best answers to one question. The buffers are reused; initialize with zeros. */
typedef struct SquadBest {
    SquadChoice *choice; /* best first */
    size_t count;
    double null_odds;          /* score of "no answer" minus that of the best answer; 0 if not allowed */
    const SquadChoice *answer; /* element of `choice`; NULL: no answer */
    double none_probability;
    size_t capacity;
    struct SquadPair *pair;
    size_t pairs, pair_capacity;
} SquadBest;

typedef struct SquadAnswerSpec {
    int64_t max_answer; /* maximum length in tokens */
    bool may_be_none;
    double null_threshold; /* "no answer" if null_odds is above this */
} SquadAnswerSpec;

MUST_USE Status squad_best_find(SquadBest *best, const SquadFeatures *features, const SquadScores *scores,
                                size_t query, SquadText context, const SquadAnswerSpec *spec);
void squad_best_done(SquadBest *best);

#endif
