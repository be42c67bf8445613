/* Timelines: records spans of time on every rank and writes them as one file for Perfetto or Chrome
 * (chrome://tracing).
 *
 * Each rank records into its own Trace, from any thread. At the end each rank packs its trace into bytes, the
 * caller gathers them on one rank, and that rank writes the file. Each rank appears as a process with a
 * compute row and a communication row. Spans that overlap without nesting are moved to additional rows.
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

/* Color names of the Trace Event Format. */
#define TRACE_BLUE   "rail_response"
#define TRACE_ORANGE "rail_idle"
#define TRACE_GREEN  "rail_load"
#define TRACE_GRAY   "grey"

enum { TRACE_NUMBERS = 3 };

/* Shared by all spans of a kind. Must be static: traces keep pointers to it. */
typedef struct TraceName {
    const char *name;
    const char *category;
    const char *color;                 /* NULL: the viewer's choice */
    const char *number[TRACE_NUMBERS]; /* labels of a span's numbers, such as "micro"; NULL: not shown */
    bool numbered;                     /* append the first number to the name: "F3" */
} TraceName;

typedef struct Trace Trace;

/* Keeps the first `capacity` spans; later ones are only counted. */
MUST_USE Status trace_new(Trace **ret_trace, size_t capacity);
void trace_free(Trace *trace);
DEFINE_FREEP(Trace, trace)

/* Nanoseconds of the host's monotonic clock. */
static inline int64_t trace_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Sets time zero of the timeline, by default the call of trace_new. All ranks call it right after a barrier,
 * so that the timelines of several hosts line up. */
void trace_start(Trace *trace);
/* Thread-safe. Does nothing if `trace` is NULL. */
void trace_add(Trace *trace, TraceLane lane, const TraceName *name, int64_t start_ns, int64_t end_ns,
               int64_t first, int64_t second);
void trace_add_numbers(Trace *trace, TraceLane lane, const TraceName *name, int64_t start_ns, int64_t end_ns,
                       const int64_t number[TRACE_NUMBERS]);
size_t trace_count(const Trace *trace);

/* Serializes this rank's trace for trace_write. `label` is its title, for example "rank 3: stage 1". */
MUST_USE Status trace_pack(const Trace *trace, int rank, const char *label, void **ret_bytes,
                           size_t *ret_size);
/* Writes the packed traces of all ranks in the Trace Event Format. */
MUST_USE Status trace_write(const char *path, const void *const *packed, const size_t *sizes, int count);

#endif
