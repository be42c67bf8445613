/* Questions answered from a text by a BERT with a span head. */
#ifndef WEFT_INFER_ANSWER_H
#define WEFT_INFER_ANSWER_H

#include "base/json.h"

typedef struct AnswerConfig {
    const char *model, *tokenizer; /* as in TrainConfig */
    const char *context;           /* a file; "-": standard input */
    const char **questions;
    int questions_count;
    int64_t seq, doc_stride, max_query; /* as in data/squad_features.h; seq 0: 384, or what the model has */
    int64_t n_best, max_answer, shown;  /* shown: answers to name for each question */
    double null_threshold;              /* as in data/squad_answers.h */
    bool always;                        /* never say that there is no answer */
    const char *device, *kernels, *precision;
    int64_t batch, threads;
} AnswerConfig;

/* {"answers": [{"question", "answer" (null: none), "start", "end" (characters of the context), "probability",
 * "no_answer_probability", "null_odds", "best": [{"answer", "start", "end", "probability"}, ...]}, ...]}.
 * A long context is read in windows. */
MUST_USE Status answer_questions(const AnswerConfig *config, json_t **ret_result);

#endif
