/* The prompts of one generation, from what a person gives. */
#ifndef WEFT_INFER_PROMPT_H
#define WEFT_INFER_PROMPT_H

#include "infer/generate.h"

typedef struct PromptList {
    int32_t **ids; /* of each prompt, owned */
    int64_t *count;
    size_t used, ids_capacity, count_capacity;
    Prompt *prompts; /* one per sequence, after prompt_list_finish */
} PromptList;

void prompt_list_done(PromptList *list);

/* Each byte a token. */
MUST_USE Status prompt_list_add_bytes(PromptList *list, const char *text, size_t size);
/* The bytes of a file; "-" is standard input. */
MUST_USE Status prompt_list_add_file(PromptList *list, const char *path);
/* "1,2,3" */
MUST_USE Status prompt_list_add_ids(PromptList *list, const char *text);

/* Lets empty prompts, or none at all, start from the model's end token and makes `samples` sequences of
 * each prompt, numbered so that more samples or prompts leave the earlier ones as they are. */
MUST_USE Status prompt_list_finish(PromptList *list, const ModelConfig *model, int64_t samples);

#endif
