/* Question answering: a BERT model with a span head answers questions from a text. */
#ifndef WEFT_INFER_ANSWER_H
#define WEFT_INFER_ANSWER_H

#include "train/settings.h"

typedef struct AnswerConfig {
    Settings settings;   /* model, tokenizer, device; model.seq 0: 384, or less if the model's context is
                          * shorter; run.micro_batch: windows per batch */
    const char *context; /* path of the text; "-": standard input */
    const char **questions;
    int questions_count;
    int64_t n_best, max_answer, shown; /* shown: candidate answers listed per question */
    double null_threshold;             /* see data/squad_answers.h */
    bool always;                       /* give the best span, even if "no answer" is likelier */
} AnswerConfig;

/* Returns {"answers": [{"question", "answer" (null: no answer), "start", "end" (character offsets in the
 * context), "probability", "no_answer_probability", "null_odds", "best": [{"answer", "start", "end",
 * "probability"}, ...]}, ...]}. With `always`, "answer" is null only if no candidates form a span. A long
 * context is split into overlapping windows. */
MUST_USE Status answer_questions(const AnswerConfig *config, json_t **ret_result);

#endif
