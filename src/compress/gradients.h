/* Gradients of a checkpoint's loss, by which pruning may rank weights. */
#ifndef WEFT_COMPRESS_GRADIENTS_H
#define WEFT_COMPRESS_GRADIENTS_H

#include "train/job.h"

/* The mean gradient over a few batches of config->data, without dropout, computed in fp32 on the CPU so that
 * the choice does not depend on device or layout. `dir`: the checkpoint. (*ret_job)->runner->grads holds it.
 */
MUST_USE Status gradients_new(const char *dir, const Settings *config, Job **ret_job);

#endif
