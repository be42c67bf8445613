/* Which steps of a run are traced, and the file that comes of them.
 *
 * From its first step to its last, runner->trace and the mesh's groups record what each rank does. Then the
 * first rank writes all ranks' spans as one file. Everything here is collective, tracer_rescue excepted, and
 * does nothing without a tracer. */
#ifndef WEFT_TRAIN_TRACER_H
#define WEFT_TRAIN_TRACER_H

#include "train/runner.h"

typedef struct Tracer Tracer;

/* Records `steps` steps from number `first` on, as counted by tracer_next's callers. */
MUST_USE Status tracer_new(Tracer **ret_tracer, Runner *runner, const char *path, int64_t first,
                           int64_t steps);
void tracer_free(Tracer *tracer);
DEFINE_FREEP(Tracer, tracer)

/* Step number `step` is about to begin. */
MUST_USE Status tracer_next(Tracer *tracer, int64_t step);
/* No step follows. */
MUST_USE Status tracer_finish(Tracer *tracer);
/* After a failure: what this rank has recorded so far, by itself, since the others may be gone. The first
 * rank writes the file itself, another one NAME-rank-N.json. No operation between ranks succeeds afterwards.
 */
MUST_USE Status tracer_rescue(Tracer *tracer);

#endif
