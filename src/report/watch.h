/* Follows a run by polling its directory; the run itself is not contacted. */
#ifndef WEFT_REPORT_WATCH_H
#define WEFT_REPORT_WATCH_H

#include "report/table.h"

typedef enum {
    WATCH_STARTING, /* no step yet */
    WATCH_RUNNING,
    WATCH_FINISHED,
    WATCH_INTERRUPTED, /* stopped on request, with a checkpoint */
    WATCH_LOST         /* no process is running it, and it did not finish */
} WatchState;

typedef struct Watch Watch;

/* Fails if the directory contains no run. */
MUST_USE Status watch_new(Watch **ret_watch, const char *dir);
void watch_free(Watch *watch);
DEFINE_FREEP(Watch, watch)

/* Reads what is new in the directory. *ret_news: there are new steps, or the state has changed. */
MUST_USE Status watch_look(Watch *watch, bool *ret_news);
WatchState watch_state(const Watch *watch);
/* Whether the run has ended and nothing more will change. */
bool watch_over(const Watch *watch);

/* The current state as several lines, each narrower than the terminal; or as one line for a log, without a
 * newline. Control characters in names are replaced by '?'. The caller frees *ret_text. */
MUST_USE Status watch_block(const Watch *watch, TableLook look, char **ret_text);
MUST_USE Status watch_line(const Watch *watch, char **ret_text);
/* {"dir", "state", "step", "steps", "loss", "val_loss", "tokens_per_s", ...} */
MUST_USE Status watch_json(const Watch *watch, json_t **ret_json);

#endif
