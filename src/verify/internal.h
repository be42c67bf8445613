/* The state of a verification, for its parts:
 *
 *   verify.c     each rank alone; the order of everything
 *   layouts.c    layouts against one rank; the smallest one that shows a difference
 *   moves.c      checkpoints saved in one layout and loaded in another
 *   findings.c   what was found, as JSON
 */
#ifndef WEFT_VERIFY_INTERNAL_H
#define WEFT_VERIFY_INTERNAL_H

#include "verify/cover.h"
#include "verify/record.h"
#include "verify/verify.h"

/* ---- findings.c ---- */

typedef enum {
    CHECK_KERNELS, /* one rank against reference kernels */
    CHECK_RANKS,   /* ranks against each other, each alone */
    CHECK_LAYOUTS,
    CHECK_REPEATS,  /* the same layout again has the same bits */
    CHECK_REPLICAS, /* copies of weights are equal */
    CHECK_MOVES,    /* of checkpoints */
    CHECK_KINDS
} CheckKind;

/* Cases of a check in one precision. */
typedef struct Tally {
    int cases, failed;
    double worst[DIFF_KINDS];
    double limit[DIFF_KINDS]; /* 0: nothing of this kind is compared */
} Tally;

typedef struct Findings {
    Tally tally[CHECK_KINDS][COVER_PRECISIONS];
    json_t *failures;
    Group *world;
} Findings;

/* A difference. */
typedef struct Fault {
    CheckKind check;
    const char *layout, *smallest; /* smallest: NULL if it was not searched for */
    int step;                      /* from 1; 0: none in particular */
    const char *what;
    const TrialSpec *spec;    /* of the model: */
    int param;                /* number of the parameter; -1: it is not one */
    double difference, limit; /* limit 0: bits, or not a number */
    const bool *rank;         /* on which of the world's ranks */
} Fault;

MUST_USE Status verify_findings_init(Findings *ret_findings, Group *world);
void verify_findings_done(Findings *findings);
/* Counts a case. `diff` may be NULL. */
void verify_case(Findings *findings, CheckKind check, int precision, const TrialSpec *spec, const Diff *diff,
                 bool failed);
MUST_USE Status verify_fault(Findings *findings, const Fault *fault);
MUST_USE Status verify_findings_json(const Findings *findings, const Precision *precision, int precisions,
                                     json_t **ret_checks, bool *ret_ok);

/* ---- the rest ---- */

/* The groups of a layout, kept for others with the same. */
typedef struct KeptMesh {
    MeshSpec spec;
    Group *part; /* its ranks, if they are not all */
    Mesh *mesh;  /* NULL on ranks that are not in it */
} KeptMesh;

typedef struct Verify {
    const VerifySpec *spec;
    const KernelTable *table;
    Precision precision[COVER_PRECISIONS];
    int precisions, jobs, batch;
    Record *record; /* by job and precision: one rank's */
    bool *bad;      /* ranks that compute wrongly alone */
    Findings findings;
    KeptMesh *mesh;
    size_t meshes, mesh_capacity;
    double end; /* clock_wall */
    struct Progress *progress;
    int64_t pairs, pairs_covered;
    int failing; /* layouts */
} Verify;

/* The precision and the record of a trial. */
int verify_precision(const Verify *v, const TrialSpec *spec);
const Record *verify_record(const Verify *v, const TrialSpec *spec);
/* The groups of a layout, whose ranks are the world's first. */
MUST_USE Status verify_mesh(Verify *v, MeshSpec spec, Mesh **ret_mesh);
/* Whether rank 0's time is not over yet; all ranks agree. */
MUST_USE Status verify_has_time(Verify *v, double end, bool *ret_has);

MUST_USE Status verify_layouts(Verify *v);
MUST_USE Status verify_moves(Verify *v);

#endif
