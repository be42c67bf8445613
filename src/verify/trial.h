/* A small training job that runs in any layout: tiny models of every family and synthetic batches, which
 * depend only on the job, the step and the sequence's index. `weft verify` and the tests of layouts compare
 * such jobs with one rank. */
#ifndef WEFT_VERIFY_TRIAL_H
#define WEFT_VERIFY_TRIAL_H

#include "train/runner.h"

enum {
    TRIAL_SEQ = 8,
    TRIAL_BATCH = 8,
    TRIAL_VOCAB = 61,
    TRIAL_LARGE_VOCAB = 1100,
    TRIAL_LABELS = 3,
    TRIAL_EXPERTS = 4,
    TRIAL_STEPS = 200,
    TRIAL_SEED = 3,
    TRIAL_PATTERNS = 3
};

/* What a model is trained for: one job for each causal family, one for each task of an encoder. */
typedef struct TrialJob {
    const Family *family;
    Task task;
    unsigned outputs;
    const char *name; /* the family's, for an encoder's later tasks with the task's */
} TrialJob;

/* Jobs are numbered in the order of the families; false past the last one. */
bool trial_job(int number, TrialJob *ret_job);

typedef struct TrialSpec {
    int job;
    MeshSpec mesh;
    int batch; /* sequences per step; 0: TRIAL_BATCH */
    int zero, chunks, micro_batch;
    ScheduleKind schedule;
    Recompute recompute;
    ContextMode cp_mode; /* AUTO: heads */
    int experts;         /* of mixtures; 0: TRIAL_EXPERTS */
    int top_k;    /* 0: all, since rounding errors would choose between two with almost the same score */
    int mlp_rows; /* tests: see Shape */
    bool sequence, keep;
    Offload offload;
    DType dtype;
    bool wide;       /* 2 layers, hidden size 64 and inner size 128: large enough for fp8 */
    bool wide_heads; /* hidden size 128: heads of width 32, for which CPUs have 16-bit kernels */
    bool words;      /* TRIAL_LARGE_VOCAB tokens, so that ZeRO-3 gathers vocabulary matrices in pieces; layers
                      * are so wide that the last piece of two tensor-parallel ranks ends with padding */
    bool untied;     /* the output matrix is not the embedding */
    bool fp8;
    Fp8Scaling fp8_scaling;
    bool fp8_head;
    FakeQuant fake_quant;
    double loss_scale;
    bool frozen;                        /* learning rate 0, so that every step uses the initial weights */
    int optimizer;                      /* row of the table of optimizers */
    const OptimGroup *group;            /* one parameter group; NULL: none */
    const char *freeze[TRIAL_PATTERNS]; /* frozen parameters, see model_freeze; NULL: no more */
    int lora;       /* rank of adapters, which alone are trained unless `freeze` says more; 0: none */
    BlockCode base; /* how the matrices beside adapters are kept */
    const char *lora_target; /* a pattern; NULL: all linear layers */
    GradType grad_type;
    OuterSpec outer; /* workers that synchronize from time to time */
    bool plain;      /* no dropout, no clipping */
    int perturb;     /* tests: seed of a last-bit perturbation of the initial weights; 0: none */
} TrialSpec;

/* "dp 2 tp 2 zero 1 recompute block micro-batch 1 bf16": what differs from the defaults. */
enum { TRIAL_TEXT = 256 };
const char *trial_text(char text[TRIAL_TEXT], const TrialSpec *spec);

void trial_config(const TrialSpec *spec, ModelConfig *ret_config);
/* The same as the runner takes it, without table and mesh, for a mesh with `dp` replicas. */
RunnerSpec trial_run_spec(const TrialSpec *spec, int dp);
/* Adds the trial's adapters, and freezes the parameters that it does not train. */
MUST_USE Status trial_freeze(Model *model, const TrialSpec *spec);
double trial_lr(const TrialSpec *spec);
/* Sequences first .. first + count - 1 of a step's batch. BERT sequences vary in length; in every other step,
 * sequences of a language model have several documents. */
MUST_USE Status trial_batch(HostBatch **ret_batch, int job, int64_t vocab, int64_t step, int64_t first,
                            int64_t count);

typedef struct Trial {
    TrialSpec spec;
    Model *model;
    Runner *runner;
} Trial;

/* A job before its first step. Device and mesh (NULL: one rank) must outlive it. */
MUST_USE Status trial_new(Trial *ret_trial, const TrialSpec *spec, const KernelTable *table, Device *device,
                          Mesh *mesh);
void trial_done(Trial *trial);
/* A replica's micro-batches of a step, counted from 0; the caller frees them, also after a failure. */
MUST_USE Status trial_micros(const Trial *trial, int replica, int step, HostBatch **ret_micros);
/* Looks at a step's gradients before the update. */
typedef Status TrialLook(void *context, const Trial *trial, int step, const StepResult *result);
/* A step, counted from 0. `look` may be NULL. Collective over the mesh. */
MUST_USE Status trial_step(Trial *trial, int step, TrialLook *look, void *context, StepResult *ret_result);

#endif
