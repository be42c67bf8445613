/* The prompts of a generation, from command-line text, files or token ids. */
#ifndef WEFT_INFER_PROMPT_H
#define WEFT_INFER_PROMPT_H

#include "infer/generate.h"
#include "tokenizer/tokenizer.h"

typedef struct PromptList {
    int32_t **ids; /* tokens of each prompt, owned */
    int64_t *count;
    size_t used, ids_capacity, count_capacity;
    bool stdin_used;
    bool no_special; /* texts: add no special tokens */
    Prompt *prompts; /* one per sequence; set by prompt_list_finish */
} PromptList;

void prompt_list_done(PromptList *list);

/* Adds a prompt: any bytes, tokenized, with the special tokens of the tokenizer's post-processor unless
 * no_special is set. Names of special tokens in the text become those tokens. */
MUST_USE Status prompt_list_add_text(PromptList *list, Encoder *encoder, const char *text, size_t size);
/* Reads a file; "-" is standard input. The caller frees *ret_text. */
MUST_USE Status prompt_read(const char *path, char **ret_text, size_t *ret_size);
/* Adds the unmodified content of a file as a prompt; "-" is standard input, which may be used once. */
MUST_USE Status prompt_list_add_file(PromptList *list, Encoder *encoder, const char *path);
/* Adds a prompt for each line of a file, "-" being standard input: text or, if the name ends in .jsonl or
 * .ndjson, JSON: a string, a list of token ids, or an object with one of these as "prompt". `encoder` may be
 * NULL if no prompt is text. */
MUST_USE Status prompt_list_add_lines(PromptList *list, Encoder *encoder, const char *path);
/* Adds a prompt of token ids, given as "1,2,3". */
MUST_USE Status prompt_list_add_ids(PromptList *list, const char *text);

/* Makes `samples` sequences of each prompt. Empty prompts, or an empty list, start from the model's BOS or
 * end token, else from the end token of `tokenizer` (which may be NULL). Sequences are numbered so that other
 * prompts do not affect a prompt's samples, while a repeated prompt gets different ones. */
MUST_USE Status prompt_list_finish(PromptList *list, const ModelConfig *model, const Tokenizer *tokenizer,
                                   int64_t samples);

#endif
