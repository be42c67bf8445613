/* Helpers for building JSON results and reading them for display; members may be absent. */
#ifndef WEFT_CLI_SHOW_H
#define WEFT_CLI_SHOW_H

#include <stdio.h>

#include "base/json.h"
#include "base/status.h"
#include "report/results.h"

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

/* Prints a comparison: the table, then its summary in prose. */
MUST_USE Status show_results(const Results *results, FILE *out);
/* Writes the summary, then each conclusion with its verdict; nothing if the summary is empty. */
MUST_USE Status show_findings(const char *summary, const json_t *findings, FILE *out);

/* ---- errors of standard output ---- */

/* To be called after a write to stdout has failed. If the reader of a pipe has ended, as `head` does when it
 * has enough, the process ends quietly, with exit code 0. A rank of several reports an error even then,
 * because the other ranks would otherwise wait for it. */
MUST_USE Status stdout_failed(void);

/* For results of ranks whose launcher could not write them: `error` is errno; 0 if all were written. It is no
 * failure if the reader has ended. */
MUST_USE Status stdout_check(int error);

#endif
