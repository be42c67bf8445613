/* What a run ran on, for its summary. */
#ifndef WEFT_TRAIN_MACHINE_H
#define WEFT_TRAIN_MACHINE_H

#include "train/job.h"

/* CPU, memory, GPUs and libraries of this host, the names of all hosts, weft's version and the time of day;
 * NULL if out of memory. The hosts of a run are assumed to be alike. */
json_t *machine_json(const Job *job);

#endif
