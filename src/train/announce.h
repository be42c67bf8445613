/* Start lines of a run. */
#ifndef WEFT_TRAIN_ANNOUNCE_H
#define WEFT_TRAIN_ANNOUNCE_H

#include "train/job.h"

/* The optimizer, unless it is AdamW, and the parameter groups with what they change. */
void announce_optimizer(const Job *job, Progress *progress);

#endif
