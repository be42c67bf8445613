/* The result of `weft generate`: JSON, or text for people. */
#ifndef WEFT_CLI_GENERATE_RESULT_H
#define WEFT_CLI_GENERATE_RESULT_H

#include <stdio.h>

#include "base/json.h"
#include "infer/generate.h"
#include "infer/text.h"

typedef struct ResultSpec {
    const Generated *generated;
    const TextStream *texts; /* one per sequence; NULL: no tokenizer */
    const Tokenizer *tokenizer;
    const Engine *engine;
    int64_t samples, top_logprobs; /* samples: sequences per prompt */
    bool scored;                   /* samples have a score */
} ResultSpec;

/* One object; the caller releases it. */
MUST_USE Status result_pack(const ResultSpec *spec, json_t **ret_result);
/* The samples as JSON lines. */
MUST_USE Status result_print_lines(const json_t *result, FILE *out);
/* The texts, with headings if there are several; `samples` per prompt. */
void result_show(const json_t *result, int64_t samples, FILE *out);
void result_show_speed(const json_t *result, FILE *out);

#endif
