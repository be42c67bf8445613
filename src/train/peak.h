/* The machine's peak: the rate of a large matrix product in the type that a job computes with, which MFU is
 * held against. */
#ifndef WEFT_TRAIN_PEAK_H
#define WEFT_TRAIN_PEAK_H

#include "train/job.h"

/* Operations a second of one rank, the best of products during about `budget_s` seconds. What they need of
 * the device's memory does not show in its peaks. */
MUST_USE Status peak_measure(const Job *job, double budget_s, double *ret_flops);

/* The same for all ranks together, which all ask at once. The best ever seen of such a rank is kept with the
 * user's files that can be made again, so that a later run takes a short look only; it is no less than was
 * seen of fewer cores. Runs for which $WEFT_PEAK_FILE names the same file take what the first of them found
 * on as many. `precision` is the job's. NAN where there is no memory for it. */
MUST_USE Status peak_of_ranks(const Job *job, const char *precision, double *ret_flops);

#endif
