/* SQuAD v1.1 and v2.0: the official JSON, and the official score.
 *
 *   squad.c           the file as paragraphs, questions and answers
 *   squad_text.c      texts as the scorer compares them
 *   squad_score.c     exact match and F1, as evaluate-v2.0.py computes them
 */
#ifndef WEFT_DATA_SQUAD_H
#define WEFT_DATA_SQUAD_H

#include <stdint.h>

#include "base/json.h"

/* Decompressed bytes of a file. */
#define SQUAD_FILE_LIMIT ((size_t)1 << 30)

/* A text in the set; valid UTF-8, perhaps with NULs in it. */
typedef struct SquadText {
    const char *data;
    size_t size;
} SquadText;

typedef struct SquadAnswer {
    SquadText text;
    int64_t start; /* in characters of the context; -1: not given */
} SquadAnswer;

typedef struct SquadQuestion {
    const char *id;
    SquadText text;
    size_t paragraph;
    size_t first_answer, answers;
    bool impossible; /* there is no answer to learn: is_impossible, or no answers at all */
} SquadQuestion;

typedef struct SquadParagraph {
    SquadText context;
    size_t first_question, questions;
} SquadParagraph;

/* One file or several after each other; start with zeroes. */
typedef struct SquadSet {
    SquadParagraph *paragraph;
    SquadQuestion *question;
    SquadAnswer *answer;
    size_t paragraphs, questions, answers;
    size_t paragraph_capacity, question_capacity, answer_capacity;
    json_t *files; /* an array; texts point into it */
} SquadSet;

/* A JSON file, plain or .gz. What is no JSON is an error that names the line. */
MUST_USE Status squad_json_read(const char *path, json_t **ret_json);
/* Adds the questions of a file. Whatever is not as the format has it is an error that names the place. */
MUST_USE Status squad_set_read(SquadSet *set, const char *path);
/* The same from parsed JSON, of which a reference is kept. */
MUST_USE Status squad_set_add(SquadSet *set, json_t *json, const char *from);
void squad_set_done(SquadSet *set);

/* ---- texts as the scorer compares them ---- */

/* A text in lower case, without punctuation, articles and more than single spaces: exactly what the official
 * normalize_answer gives in Python. Memory is used again; start with zeroes. */
typedef struct NormalAnswer {
    uint32_t *chars;
    size_t count;
    struct NormalWord {
        size_t start, size;
    } * word;
    size_t words;
    size_t capacity, word_capacity;
} NormalAnswer;

MUST_USE Status normal_answer_set(NormalAnswer *answer, const char *text, size_t size);
bool normal_answer_same(const NormalAnswer *a, const NormalAnswer *b);
/* F1 over words. Sorts the words of both. */
double normal_answer_f1(NormalAnswer *gold, NormalAnswer *found);
void normal_answer_done(NormalAnswer *answer);

/* ---- the score ---- */

/* Means in percent over a set of questions. */
typedef struct SquadMean {
    double exact, f1;
    int64_t total;
} SquadMean;

typedef struct SquadScore {
    SquadMean all, has_answer, no_answer;
    int64_t missing; /* questions without a prediction: they count nowhere */
    bool has_best;   /* the best thresholds, where there are null odds */
    double best_exact, best_exact_thresh, best_f1, best_f1_thresh;
} SquadScore;

typedef struct SquadPredictions {
    const json_t *answers; /* {id: text} */
    const char *from;      /* for messages */
    const json_t *na_prob; /* {id: number}: above na_thresh the answer counts as none; NULL: none */
    const char *na_from;
    double na_thresh; /* the official default is 1 */
    bool some;        /* questions without a prediction were not asked: they count nowhere */
} SquadPredictions;

/* Sums are taken in the order of the questions, so every digit is the script's (as run by a Python before
 * 3.12, whose sum() rounds at each step). Fails when not one question has a prediction. */
MUST_USE Status squad_score(const SquadSet *set, const SquadPredictions *predictions, SquadScore *ret_score);
/* With the names that the script prints. */
MUST_USE Status squad_score_json(const SquadScore *score, json_t **ret_json);

#endif
