/* A rank's run on paper: the runner itself, over a device, kernels and groups that count and do nothing. What
 * comes out is what the run would hold and send, since it is the same code that would hold and send it. */
#ifndef WEFT_PLAN_DRYRUN_H
#define WEFT_PLAN_DRYRUN_H

#include "plan/step_events.h"

/* The most bytes of each tag that a rank holds at once, and of all together. */
typedef struct RankMemory {
    size_t tag[MEM_TAGS], total;
    size_t host;   /* of the host's memory, for what is offloaded */
    size_t saving; /* of all together, if a checkpoint is written, too */
} RankMemory;

typedef struct DryRunRank {
    RankMemory memory;
    uint64_t sent[COMM_KINDS]; /* bytes of a step */
    int64_t params;    /* elements that it holds while it computes: its stage's, cut over tensor ranks */
    int64_t kept;      /* ... of which it keeps so many (--zero 3) */
    int blocks;        /* of its stage */
    StepEvents events; /* of a step, where it was asked for */
} DryRunRank;

/* What runs: `spec` is the runner's, without mesh and kernels. */
typedef struct DryRunSpec {
    const Model *model;
    RunnerSpec spec;
    MeshSpec mesh;
    const char *device;     /* "cpu" or "cuda" */
    int threads;            /* that a rank computes with on the CPU */
    const HostBatch *batch; /* a micro-batch; its contents do not matter */
    int evals;              /* micro-batches of an evaluation; 0: there is none */
    bool timed;             /* with a tape */
} DryRunSpec;

/* Carries out some steps, and an evaluation, as this rank. */
void dryrun_rank_done(DryRunRank *rank);
MUST_USE Status dryrun_rank_copy(DryRunRank *ret_rank, const DryRunRank *rank);
MUST_USE Status dryrun_rank(const DryRunSpec *run, int rank, DryRunRank *ret_rank);
/* Elements that the tensor ranks of one replica hold together: what they all have counts for each, and
 * vocabularies with their padding. */
MUST_USE Status params_stored(const Model *model, int tp, int64_t *ret_count);

#endif
