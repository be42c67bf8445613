/* The prompts of one generation, from what a person gives. */
#ifndef WEFT_INFER_PROMPT_H
#define WEFT_INFER_PROMPT_H

#include "infer/generate.h"
#include "tokenizer/tokenizer.h"

typedef struct PromptList {
    int32_t **ids; /* of each prompt, owned */
    int64_t *count;
    size_t used, ids_capacity, count_capacity;
    bool stdin_taken;
    Prompt *prompts; /* one per sequence, after prompt_list_finish */
} PromptList;

void prompt_list_done(PromptList *list);

/* Any bytes, as tokens; names of special tokens among them are those tokens. */
MUST_USE Status prompt_list_add_text(PromptList *list, Encoder *encoder, const char *text, size_t size);
/* The bytes of a file; "-" is standard input. */
MUST_USE Status prompt_read(const char *path, char **ret_text, size_t *ret_size);
/* The text in a file, every byte of it; "-" is standard input, which can be taken once. */
MUST_USE Status prompt_list_add_file(PromptList *list, Encoder *encoder, const char *path);
/* "1,2,3" */
MUST_USE Status prompt_list_add_ids(PromptList *list, const char *text);

/* Lets empty prompts, or none at all, start from the model's end token (or that of its tokenizer, which may
 * be NULL, where the model names none) and makes `samples` sequences of each prompt, numbered so that a
 * prompt gives the same whatever others there are; the same prompt again gives other samples. */
MUST_USE Status prompt_list_finish(PromptList *list, const ModelConfig *model, const Tokenizer *tokenizer,
                                   int64_t samples);

#endif
