/* SQuAD v1.1 and v2.0: the official JSON format and the official metrics.
 *
 *   squad.c           parses a file into paragraphs, questions and answers
 *   squad_rows.c      the same from the rows of a table
 *   squad_text.c      normalizes answers for comparison
 *   squad_score.c     exact match and F1, as evaluate-v2.0.py computes them
 */
#ifndef WEFT_DATA_SQUAD_H
#define WEFT_DATA_SQUAD_H

#include <stdint.h>

#include "base/json.h"

/* Maximum decompressed size of a file, in bytes. */
#define SQUAD_FILE_LIMIT ((size_t)1 << 30)

/* A string of the set; valid UTF-8, may contain NUL. Points into SquadSet.files. */
typedef struct SquadText {
    const char *data;
    size_t size;
} SquadText;

typedef struct SquadAnswer {
    SquadText text;
    int64_t start; /* offset in characters of the context; -1: not given */
} SquadAnswer;

typedef struct SquadQuestion {
    const char *id;
    SquadText text;
    size_t paragraph;
    size_t first_answer, answers;
    const json_t *name; /* its id as in the file; NULL: a row without one */
    bool impossible;    /* unanswerable: is_impossible is set, or "answers" is empty */
} SquadQuestion;

typedef struct SquadParagraph {
    SquadText context;
    size_t first_question, questions;
} SquadParagraph;

/* The contents of one or more files; initialize with zeros. */
typedef struct SquadSet {
    SquadParagraph *paragraph;
    SquadQuestion *question;
    SquadAnswer *answer;
    size_t paragraphs, questions, answers;
    size_t paragraph_capacity, question_capacity, answer_capacity;
    bool unlabeled; /* questions need no answers */
    json_t *files;  /* array of the parsed files; all strings point into it */
} SquadSet;

/* Reads a JSON file, plain or .gz. Malformed JSON is an error that names the line. */
MUST_USE Status squad_json_read(const char *path, json_t **ret_json);
/* Appends the questions of a file. A deviation from the format is an error that names its position. */
MUST_USE Status squad_set_read(SquadSet *set, const char *path);
/* The same from parsed JSON, of which the set keeps a reference. */
MUST_USE Status squad_set_add(SquadSet *set, json_t *json, const char *from);
/* Appends a question without answers for each row of a table (data/table.h), with its context. `id`: the
 * field of ids; NULL: "id", if it is there. */
MUST_USE Status squad_set_read_rows(SquadSet *set, const char *path, const char *question,
                                    const char *context, const char *id);
void squad_set_done(SquadSet *set);

/* ---- normalized answers ---- */

/* An answer in lower case, without punctuation and articles, with words separated by single spaces: exactly
 * the result of the official normalize_answer in Python. The buffers are reused; initialize with zeros. */
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
/* F1 over words. Sorts the words of both answers. */
double normal_answer_f1(NormalAnswer *gold, NormalAnswer *found);
void normal_answer_done(NormalAnswer *answer);

/* ---- metrics ---- */

/* Means over a set of questions, in percent. */
typedef struct SquadMean {
    double exact, f1;
    int64_t total;
} SquadMean;

typedef struct SquadScore {
    SquadMean all, has_answer, no_answer;
    int64_t missing; /* questions without a prediction; they are excluded from all means */
    bool has_best;   /* the best thresholds are known, because na_prob was given */
    double best_exact, best_exact_thresh, best_f1, best_f1_thresh;
} SquadScore;

typedef struct SquadPredictions {
    const json_t *answers; /* {id: text} */
    const char *from;      /* for messages */
    const json_t *na_prob; /* {id: number}: above na_thresh, score as "no answer"; NULL: not given */
    const char *na_from;
    double na_thresh; /* the script's default is 1 */
    bool some;        /* answers cover only some questions: the others do not affect the best thresholds */
} SquadPredictions;

/* Sums run in question order, so every digit matches the script (run by Python before 3.12, whose sum()
 * rounds at each step). Fails if no question has a prediction. */
MUST_USE Status squad_score(const SquadSet *set, const SquadPredictions *predictions, SquadScore *ret_score);
/* The score as JSON, with the names that the script prints. */
MUST_USE Status squad_score_json(const SquadScore *score, json_t **ret_json);

#endif
