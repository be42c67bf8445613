/* Progress of long work: a bar that redraws itself on a terminal, plain lines in a log. */
#ifndef WEFT_BASE_PROGRESS_H
#define WEFT_BASE_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

typedef struct Progress Progress;

/* `out` is where it shows (stderr as a rule). On a terminal a bar of `total` steps; otherwise a line
 * at most every `interval_s` seconds and at the end. quiet: nothing. */
MUST_USE Status progress_new(Progress **ret_progress, FILE *out, const char *title, int64_t total,
                             double interval_s, bool quiet);
/* Changes the number of steps, when it becomes known. */
void progress_total(Progress *progress, int64_t total);
/* `note` is what else to show: "loss 3.21  12.3k tok/s  1.2 GB". The bar adds percent and time left. */
void progress_update(Progress *progress, int64_t done, const char *note);
/* A line of its own above the bar. */
void progress_line(Progress *progress, const char *fmt, ...) PRINTF_LIKE(2, 3);
void progress_end(Progress *progress);
void progress_free(Progress *progress);
DEFINE_FREEP(Progress, progress)

#endif
