/* Progress reporting: a live bar on a terminal, plain lines in a log. */
#ifndef WEFT_BASE_PROGRESS_H
#define WEFT_BASE_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

typedef struct Progress Progress;

/* Writes to `out`, usually stderr: a bar of `total` steps on a terminal, otherwise a line at most every
 * `interval_s` seconds and one at the end. `quiet`, or no `out`, prints nothing. */
MUST_USE Status progress_new(Progress **ret_progress, FILE *out, const char *title, int64_t total,
                             double interval_s, bool quiet);
/* A phase of something longer, such as loading a model or validating: its bar disappears at the end, and a
 * log gets a line only every few seconds. `total` 0: of unknown length; shows the elapsed time without
 * updates. */
MUST_USE Status progress_new_phase(Progress **ret_progress, FILE *out, const char *title, int64_t total,
                                   bool quiet);
/* Shows "UNIT 12/2000" besides the percentage; `unit` is borrowed. */
void progress_unit(Progress *progress, const char *unit);
/* What is counted are bytes: "30.8 kB" instead of "30778". */
void progress_bytes(Progress *progress);
/* Sets the total when it becomes known later. */
void progress_total(Progress *progress, int64_t total);
/* `note` is shown after the bar, for example "loss 3.21  12.3 k tokens/s". Percent and time left are added.
 */
void progress_update(Progress *progress, int64_t done, const char *note);
/* Says whether work goes on that may take long until the next update: on a terminal, the elapsed time then
 * advances. A phase is always busy. */
void progress_busy(Progress *progress, bool busy);
/* Prints a separate line above the bar. A line that starts with "warning: " is also printed with `quiet`,
 * unless there is no `out`. */
void progress_line(Progress *progress, const char *fmt, ...) PRINTF_LIKE(2, 3);
void progress_end(Progress *progress);
void progress_free(Progress *progress);
DEFINE_FREEP(Progress, progress)

#endif
