/* Traces a range of a run's steps to a file.
 *
 * During these steps the runner and the mesh's groups record spans on every rank; afterwards rank 0 writes
 * the spans of all ranks to one file. All functions are collective except tracer_rescue and tracer_free. A
 * NULL tracer does nothing.
 */
#ifndef WEFT_TRAIN_TRACER_H
#define WEFT_TRAIN_TRACER_H

#include "base/progress.h"
#include "train/runner.h"

typedef struct Tracer Tracer;

/* Records `steps` steps starting with step `first`, in the numbering passed to tracer_next. If the file
 * cannot be written, it is tried again at the end and reported through `progress`; without one, it is an
 * error. */
MUST_USE Status tracer_new(Tracer **ret_tracer, Runner *runner, const char *path, int64_t first,
                           int64_t steps, Progress *progress);
void tracer_free(Tracer *tracer);
DEFINE_FREEP(Tracer, tracer)

/* Call before step number `step`. */
MUST_USE Status tracer_next(Tracer *tracer, int64_t step);
/* Call after the last step. */
MUST_USE Status tracer_finish(Tracer *tracer);
/* After a failure: writes what this rank has recorded so far, without the other ranks, which may be gone.
 * Rank 0 writes the trace file, rank N NAME-rank-N.json. Cancels pending communication; later collectives
 * fail. */
MUST_USE Status tracer_rescue(Tracer *tracer);

#endif
