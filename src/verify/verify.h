/* Does this machine, or this cluster, train correctly?
 *
 * Tiny models of every family train for a few steps in every precision: on each rank alone, against plain
 * reference kernels on its CPU and against the other ranks, and then in layouts in which every pair of
 * options occurs (verify/cover.h), against one rank. Runs are repeated for equal bits, copies of weights are
 * compared, checkpoints move between layouts, and links are measured. */
#ifndef WEFT_VERIFY_VERIFY_H
#define WEFT_VERIFY_VERIFY_H

#include "base/json.h"
#include "comm/group.h"

typedef struct VerifySpec {
    Group *world, *host; /* all ranks: for tensors on the device; for host data */
    Device *device;
    const char *kernels; /* of the device */
    double seconds;      /* approximate limit */
    FILE *log;           /* progress; NULL: none */
    int flip;            /* tests: the rank whose memory is damaged; -1: none */
} VerifySpec;

/* Collective; all ranks get the result:
 *   ok, seconds, ranks [{rank, host, device}], pairs, pairs_covered
 *   checks [{check, precision, cases, failed, loss, gradient_norm, gradient, weight, limits {...}}]
 *   failures [{check, layout, smallest, step, what, parameter, difference, limit, ranks}]
 *   links {within, between} {latency_us, mbytes_per_s} or null
 * A difference that was found is a result, not an error. */
MUST_USE Status verify_run(const VerifySpec *spec, json_t **ret_result);

#endif
