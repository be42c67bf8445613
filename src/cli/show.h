/* Helpers for building JSON results and reading them for display; members may be absent. */
#ifndef WEFT_CLI_SHOW_H
#define WEFT_CLI_SHOW_H

#include <stdio.h>

#include "base/json.h"

/* The peak_bytes of rank 0 in a training summary, or NULL. */
const json_t *show_rank_peak(const json_t *summary);
/* What a recipe's study published: its title, hardware and note. Nothing if `study` is NULL. */
void show_study(const json_t *study, FILE *out);
/* A path or argument as a shell word. */
void show_word(FILE *out, const char *word);
/* The same as a string, which the caller frees. */
MUST_USE Status show_word_text(const char *word, char **ret_text);
/* A JSON array of the names. */
json_t *show_names(char *const *names, size_t count);

#endif
