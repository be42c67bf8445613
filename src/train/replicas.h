/* Whether all replicas of the model have the same weights. */
#ifndef WEFT_TRAIN_REPLICAS_H
#define WEFT_TRAIN_REPLICAS_H

#include "train/runner.h"

/* Compares a checksum of each parameter across the ranks that hold the same elements. For use once, after
 * loading. Collective; an error names the first parameter that differs, the ranks and their hosts. */
MUST_USE Status replicas_check(Runner *runner);

#endif
