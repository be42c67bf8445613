/* The state shared by watch.c, which reads it, and watch_show.c, which formats it. */
#ifndef WEFT_REPORT_WATCH_INTERNAL_H
#define WEFT_REPORT_WATCH_INTERNAL_H

#include "report/watch.h"

struct Watch {
    char *dir, *name, *metrics; /* name: dir as valid UTF-8; metrics: path of metrics.jsonl */
    WatchState state;
    json_t *config;                     /* NULL: missing or damaged */
    RunSummary summary;                 /* without json: missing or damaged */
    char *config_wrong, *summary_wrong; /* why the file is damaged; NULL: it is not */
    json_t *last;                       /* the newest line with a loss; NULL: none yet */
    Curve loss, val_loss, rate, step_ms;
    double lowest; /* lowest loss so far */
    size_t bad;    /* unreadable lines */
    /* position in metrics.jsonl */
    uint64_t inode;
    int64_t offset, written_ns; /* bytes read; time of the last write */
    char *rest;                 /* an incomplete line at the end */
    size_t rest_size, rest_capacity;
};

double watch_steps(const Watch *watch);  /* total steps of the run; NAN: unknown */
double watch_left(const Watch *watch);   /* estimated seconds to the end; NAN: unknown */
double watch_memory(const Watch *watch); /* peak bytes of the largest rank; NAN: unknown */

#endif
