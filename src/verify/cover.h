/* Layouts for which every pair of values of two axes occurs: each family and task, precision, grid of ranks,
 * ZeRO stage, schedule and so on meets each other one in some layout, if a layout with both exists. */
#ifndef WEFT_VERIFY_COVER_H
#define WEFT_VERIFY_COVER_H

#include "verify/trial.h"

enum { COVER_GRIDS = 64, COVER_PRECISIONS = 4 };

typedef enum {
    COVER_JOB,
    COVER_PRECISION,
    COVER_GRID,
    COVER_ZERO,
    COVER_SCHEDULE,
    COVER_RECOMPUTE,
    COVER_CONTEXT,
    COVER_EXPERTS,
    COVER_SEQUENCE,
    COVER_MICRO,
    COVER_OFFLOAD,
    COVER_KEEP,
    COVER_AXES
} CoverAxis;

typedef struct CoverPoint {
    uint8_t at[COVER_AXES]; /* the number of a value on each axis */
    uint8_t left;           /* its pairs that were not covered when they were last counted */
} CoverPoint;

typedef struct Cover {
    Precision precision[COVER_PRECISIONS];
    MeshSpec grid[COVER_GRIDS];
    int precisions, grids, batch;
    int most;          /* of CoverPoint.left */
    CoverPoint *point; /* legal layouts with pairs that are not covered */
    size_t count, capacity;
    int first[COVER_AXES], values; /* numbers of each axis's first value, and of all values */
    uint8_t *pair; /* by the numbers of both values: 1 if a layout has it, 2 if it is covered */
    int64_t pairs, covered;
} Cover;

/* Sequences per step: divisible by every number of replicas, in micro-batches of two. */
int cover_batch(int ranks);
/* All legal layouts of `ranks` ranks, of GPUs or CPUs. */
MUST_USE Status cover_init(Cover *ret_cover, int ranks, bool gpu, const Precision *precision, int precisions);
void cover_done(Cover *cover);
/* The layout with the most pairs that are not covered yet; false if all are. */
bool cover_next(Cover *cover, TrialSpec *ret_spec);

/* Whether a trial can run in this layout, and whether as far as context parallelism goes. */
bool trial_splits_context(const TrialSpec *spec);
bool trial_is_legal(const TrialSpec *spec);

#endif
