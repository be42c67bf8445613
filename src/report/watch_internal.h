/* What watch.c reads and watch_show.c shows. */
#ifndef WEFT_REPORT_WATCH_INTERNAL_H
#define WEFT_REPORT_WATCH_INTERNAL_H

#include "report/watch.h"

struct Watch {
    char *dir, *name, *metrics;
    WatchState state;
    json_t *config, *summary;           /* NULL: not there */
    char *config_wrong, *summary_wrong; /* a sentence, where they are damaged */
    json_t *last;                       /* the newest line with a loss */
    Curve loss, val_loss, rate, step_ms;
    double lowest; /* of the losses */
    size_t bad;    /* lines that cannot be read */
    /* where reading goes on */
    uint64_t inode;
    int64_t offset, written_ns; /* when the metrics were written last */
    char *rest;                 /* a line that is not whole */
    size_t rest_size, rest_capacity;
};

double watch_steps(const Watch *watch); /* of the whole run; NAN: not known */
double watch_left(const Watch *watch);  /* seconds; NAN: not known */
double watch_memory(const Watch *watch);

#endif
