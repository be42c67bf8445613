/* What happened when: a recorder of spans of time, and the timeline that Chrome (chrome://tracing) and
 * Perfetto show of all ranks.
 *
 * Each rank records into its own Trace; any thread may add. At the end each rank packs its trace into bytes,
 * the caller brings them to one rank, and that one writes them all as one file. Every rank is a process
 * there, with a row for computation and one for communication; spans of one row that overlap without one
 * lying inside the other get rows of their own.
 *
 *     static const TraceName load = {.name = "load", .category = "data"};
 *     int64_t start = trace_now();
 *     ...
 *     trace_add(trace, TRACE_COMPUTE, &load, start, trace_now(), step, 0);
 */
#ifndef WEFT_BASE_TRACE_H
#define WEFT_BASE_TRACE_H

#include <stdint.h>
#include <time.h>

#include "base/status.h"

typedef enum { TRACE_COMPUTE, TRACE_COMM, TRACE_LANES } TraceLane;

/* Colors that the viewer knows. */
#define TRACE_BLUE   "rail_response"
#define TRACE_ORANGE "rail_idle"
#define TRACE_GREEN  "rail_load"
#define TRACE_GRAY   "grey"

/* What spans of a kind have in common; static, since traces keep pointers to it. */
typedef struct TraceName {
    const char *name;
    const char *category;
    const char *color;     /* NULL: the viewer's choice */
    const char *number[2]; /* what a span's two numbers are: "micro", "chunk"; NULL: not shown */
    bool numbered;         /* the first number is part of the label: "F3" */
} TraceName;

typedef struct Trace Trace;

/* Keeps the first `capacity` spans and counts those that come after. */
MUST_USE Status trace_new(Trace **ret_trace, size_t capacity);
void trace_free(Trace *trace);
DEFINE_FREEP(Trace, trace)

/* Nanoseconds since some moment of this machine. */
static inline int64_t trace_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Times are shown from this moment on. All ranks call it right after a barrier, so that those of several
 * machines line up; otherwise it is the moment of trace_new. */
void trace_start(Trace *trace);
/* From several threads at once too. Does nothing without a trace, so callers need not ask. */
void trace_add(Trace *trace, TraceLane lane, const TraceName *name, int64_t start_ns, int64_t end_ns,
               int64_t first, int64_t second);
size_t trace_count(const Trace *trace);

/* This rank's trace as bytes for trace_write. `label` is the title of its rows: "rank 3: stage 1". */
MUST_USE Status trace_pack(const Trace *trace, int rank, const char *label, void **ret_bytes,
                           size_t *ret_size);
/* Traces in the Trace Event Format, one from each rank. */
MUST_USE Status trace_write(const char *path, const void *const *packed, const size_t *sizes, int count);

#endif
