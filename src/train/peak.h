/* Peak throughput of the hardware, the denominator of MFU: the rate of a large GEMM in the job's compute
 * type. */
#ifndef WEFT_TRAIN_PEAK_H
#define WEFT_TRAIN_PEAK_H

#include "train/job.h"

/* FLOP/s of one rank: the best GEMM within about `budget_s` seconds. Its memory is not counted in the
 * device's peak statistics. Fails if there is not enough memory. */
MUST_USE Status peak_measure(const Job *job, double budget_s, double *ret_flops);

/* FLOP/s of all ranks together. The best value ever measured for such a rank is kept in the user's cache
 * directory, so that later runs measure only briefly; the result is never lower than what fewer cores have
 * reached. Runs that share a $WEFT_PEAK_FILE all use the value that the first of them measured for the same
 * number of cores. `precision` is the job's. NAN if the peak cannot be measured. Collective. */
MUST_USE Status peak_of_ranks(const Job *job, const char *precision, double *ret_flops);

#endif
