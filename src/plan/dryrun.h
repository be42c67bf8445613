/* Dry run of one rank: the real runner on a device, kernels and groups that only count. The result is exactly
 * the memory and communication of a real run, because the same code allocates and sends. */
#ifndef WEFT_PLAN_DRYRUN_H
#define WEFT_PLAN_DRYRUN_H

#include "plan/step_events.h"

/* Peak bytes of a rank, by tag and in total. */
typedef struct RankMemory {
    size_t tag[MEM_TAGS], total;
    size_t host;     /* host memory for what is offloaded */
    size_t needed;   /* the total; that of another program, if the cluster describes one */
    size_t snapshot; /* host memory to save in the background, if there is room */
} RankMemory;

typedef struct DryRunRank {
    RankMemory memory;
    CommBytes sent[COMM_KINDS];   /* per step */
    CommBytes synced[COMM_KINDS]; /* the part of them that synchronizes workers */
    double exchanged;             /* bytes of weights that a worker's rank exchanges per interval */
    int64_t params;               /* parameters of the rank's stage, tensor shard and experts */
    int64_t experts;              /* those of them in experts */
    int64_t kept;                 /* parameters stored permanently; fewer than `params` with ZeRO-3 */
    int blocks;                   /* blocks of its stage */
    bool overlaps;                /* weight gradients run beside backward (train/runner_overlap.c) */
    StepEvents events;            /* events of a step, if DryRunSpec.timed */
} DryRunRank;

/* `spec` needs no mesh and no kernel table. */
typedef struct DryRunSpec {
    const Model *model;
    RunnerSpec spec;
    MeshSpec mesh;
    const char *device;     /* "cpu" or "cuda" */
    int capability;         /* of the GPU: 90 is 9.0; 0: not known */
    int threads;            /* CPU threads per rank */
    int per_node;           /* ranks per node; 0: all on one */
    const HostBatch *batch; /* used for every micro-batch; only its sizes matter */
    const HostBatch *first; /* the same in the first step; NULL: batch */
    int evals;              /* micro-batches of an evaluation; 0: no evaluation */
    bool scores;            /* evaluations also read the scores of the model's first head */
    bool timed;             /* record the events of a step */
} DryRunSpec;

void dryrun_rank_done(DryRunRank *rank);
MUST_USE Status dryrun_rank_copy(DryRunRank *ret_rank, const DryRunRank *rank);
/* Executes an evaluation, if requested, and two steps as this rank. */
MUST_USE Status dryrun_rank(const DryRunSpec *run, int rank, DryRunRank *ret_rank);

#endif
