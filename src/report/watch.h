/* A run that is going on: what it has come to so far, read again and again from its directory.
 *
 * Nothing is asked of the run itself. Metrics are read from where the last look ended; a line that is not
 * whole yet waits for the next look, and a run that starts again is read anew. */
#ifndef WEFT_REPORT_WATCH_H
#define WEFT_REPORT_WATCH_H

#include "report/table.h"

typedef enum {
    WATCH_STARTING, /* no step yet */
    WATCH_RUNNING,
    WATCH_FINISHED,
    WATCH_INTERRUPTED, /* told to stop, at a checkpoint */
    WATCH_LOST         /* nobody runs it, and it did not say goodbye */
} WatchState;

typedef struct Watch Watch;

/* Refuses a directory that no run is in. */
MUST_USE Status watch_new(Watch **ret_watch, const char *dir);
void watch_free(Watch *watch);
DEFINE_FREEP(Watch, watch)

/* Looks again. *ret_news: there are steps, or a state, that were not there before. */
MUST_USE Status watch_look(Watch *watch, bool *ret_news);
WatchState watch_state(const Watch *watch);
/* Whether there is nothing more to come. */
bool watch_over(const Watch *watch);

/* Several lines for a terminal, none wider than it; or one line for a log. To free. */
MUST_USE Status watch_block(const Watch *watch, TableLook look, char **ret_text);
MUST_USE Status watch_line(const Watch *watch, char **ret_text);
/* {"dir", "state", "step", "steps", "loss", "val_loss", "tokens_per_s", ...} */
MUST_USE Status watch_json(const Watch *watch, json_t **ret_json);

#endif
