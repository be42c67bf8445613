/* Checkpoints: Hugging Face model directories, plus the state a run needs to resume.
 *
 *   DIR/config.json, model.safetensors (or several weight files and model.safetensors.index.json)
 *   DIR/adapter_model.safetensors, adapter_config.json   instead of these, for a run of adapters; see
 * adapter.h DIR/int8.safetensors        instead of these, for a quantized model; see hf_quantized.c
 *   DIR/sparse.safetensors      instead of these, for a model stored without zero weights; see hf_sparse.h
 *   DIR/optimizer.safetensors   the optimizer's state, for AdamW "exp_avg.NAME" and "exp_avg_sq.NAME"; with
 *                               workers, "worker-N.exp_avg.NAME" and so on, see WorkerState
 *   DIR/weft.json               step and progress of the run, and checksums of all tensors (checksums.h);
 *                               written last, so it marks a complete checkpoint
 */
#ifndef WEFT_CHECKPOINT_CHECKPOINT_H
#define WEFT_CHECKPOINT_CHECKPOINT_H

#include "base/json.h"
#include "checkpoint/root_disk.h"
#include "comm/mesh.h"
#include "data/data.h"
#include "data/labels.h"
#include "model/model.h"
#include "optim/optim.h"

/* Reads config.json of a checkpoint directory. Unsupported settings are errors that name the field. */
MUST_USE Status hf_config_read(const char *dir, ModelConfig *ret_config);
/* Overrides the BOS and EOS tokens with those of the directory's generation_config.json, as transformers
 * does. Without that file, or for tokens it does not set, config.json's values remain. */
MUST_USE Status hf_generation_read(const char *dir, ModelConfig *config);
/* Like hf_config_read, from parsed JSON; `from` names the source in errors. */
MUST_USE Status hf_config_parse(const json_t *json, const char *from, ModelConfig *ret_config);
/* config.json as transformers expects it, including architectures and model_type; the caller releases it. */
MUST_USE Status hf_config_json(const ModelConfig *config, json_t **ret_json);

/* Names of the model's `count` labels from the directory's config.json; "LABEL_0" and so on for labels
 * without a name. */
MUST_USE Status hf_labels_read(const char *dir, int64_t count, LabelSet *ret_labels);

/* Ids of [PAD], [CLS], [SEP] and [MASK] from the directory's vocab.txt or, without one, its
 * tokenizer.json; -1 for tokens that are not found or if neither file exists. They are not checked against
 * the model's vocabulary. */
MUST_USE Status special_tokens_read(const char *dir, SpecialTokens *ret_tokens);

/* Differences between the model's parameters and the tensors of a checkpoint. */
typedef struct LoadReport {
    char **missing; /* parameters without a tensor in the files; left unchanged */
    size_t missing_count, missing_capacity;
    char **unexpected; /* tensors in the files without a parameter */
    size_t unexpected_count, unexpected_capacity;
} LoadReport;

void load_report_done(LoadReport *report);
/* Fails if parameters are missing, naming the first. With `fresh_outputs`, BERT's output heads may be
 * missing, and the output matrix of a base model. */
MUST_USE Status load_report_check(const LoadReport *report, const char *dir, const ModelConfig *config,
                                  bool fresh_outputs);

/* Checks a directory's tensors against the model without allocating memory for it. ret_report may be NULL. */
MUST_USE Status hf_weights_check(const char *dir, const Model *model, LoadReport *ret_report);
/* Fills params from a directory's tensors, of any floating-point type and with or without the family's
 * name prefix. Each rank reads only the elements its store contains, but checks and reports all tensors.
 * ret_report may be NULL. */
MUST_USE Status hf_weights_load(const char *dir, Store *params, Stream *stream, LoadReport *ret_report);
/* The same if only rank 0 has the directory and `dir` is a mirror elsewhere. Collective; NULL: all have it.
 */
MUST_USE Status hf_weights_receive(const char *dir, const RootDisk *disk, Store *params, Stream *stream,
                                   LoadReport *ret_report);

/* An int8 or int4 parameter to be written to a file; see hf_quantized.c. The list owns the arrays. */
typedef struct QuantizedParam {
    char name[PARAM_NAME];
    int bits;
    int64_t rows, cols; /* output and input features; the rows of all matrices */
    int64_t matrices;   /* of experts; otherwise 1 */
    int8_t *w;          /* (rows,cols); int4: (rows,(cols+1)/2), see int4_pack */
    int8_t *step;       /* int4 only: (rows,groups), integer scales of the groups; else NULL */
    float *scale;       /* (rows) */
    float *factor;      /* (matrices,cols), or NULL: all 1 */
    bool is_static;     /* static activation quantization: */
    float *amax;        /* (matrices) largest input magnitude, see int8_set_static_amax */
    int64_t offset;     /* offset in the file's data; set by quantized_declare */
} QuantizedParam;

typedef struct QuantizedList {
    QuantizedParam *param;
    size_t count, capacity;
} QuantizedList;

void quantized_list_done(QuantizedList *list);
/* Adds a parameter with w, scale, amax and, for int4, step allocated. The pointer is valid until the next
 * call. */
MUST_USE Status quantized_list_add(QuantizedList *list, const char *name, int bits, int64_t matrices,
                                   int64_t rows, int64_t cols, QuantizedParam **ret_param);
/* Loads a quantized model's int8 and int4 parameters from a directory; does nothing for other models. Must
 * be called before a store of the model is bound. */
MUST_USE Status hf_quantized_load(const char *dir, Model *model, const Exec *exec);
/* The same for sparse weights, if config.packed_layers is PACK_SPARSE, which hf_sparse_choose sets where
 * sparse weights can stay sparse: for inference in fp32 on a CPU. */
void hf_sparse_choose(ModelConfig *config, const Device *device, DType dtype);
MUST_USE Status hf_sparse_load(const char *dir, Model *model, const Exec *exec);
/* Fails if the model is quantized and cannot run on the device in this type; `dir` names it in errors. */
MUST_USE Status hf_quantized_check(const char *dir, const ModelConfig *config, const Device *device,
                                   DType dtype);

typedef struct SaveOptions {
    DType dtype;               /* type of the tensors in the file */
    int64_t max_file_bytes;    /* start a new weight file beyond this size; 0: a single file */
    const char *assets_dir;    /* directory to copy tokenizer files and config fields from, or NULL */
    const char *tokenizer_dir; /* directory to copy tokenizer files from instead, or NULL */
    const char *chat_template; /* contents of chat_template.jinja, instead of a copy, or NULL */
    bool bytes;                /* without tokenizer files to copy, write those of the byte vocabulary */
    const LabelSet *labels;    /* label names, used if their number matches the model's; or NULL */
    bool adapter;              /* only what is trained, as PEFT stores it (adapter.h) */
    bool sparse;               /* omit zero weights of the layers' matrices and note it in config.json */
    QuantizedList *quantized;  /* all quantized parameters of the model; NULL if it has none */
} SaveOptions;

/* Saves a model, all of whose weights are on this rank, as the directory `dir`, which must be absent or
 * empty: writes config.json, weights and assets, or on failure nothing. Fields of assets_dir's config.json
 * that weft does not use (label names, for example) are kept. A finite value that overflows in the type is
 * an error. */
MUST_USE Status hf_save(const char *dir, const Store *params, Stream *stream, const SaveOptions *options);
/* Fails unless `dir` is absent or empty; for an early check. */
MUST_USE Status hf_save_check(const char *dir);

/* The state of low-communication data parallelism (parallel/shard.h) in optimizer.safetensors, beside the
 * optimizer's, which each worker has: "worker-N.param.NAME", "outer_momentum.NAME" and, for units of the
 * fragment that is being exchanged, "worker-N.outer_grad.NAME". The weights are the synchronized ones. */
typedef struct WorkerState {
    int count, index; /* number of workers; the one that this rank belongs to */
    Store *params, *outer_momentum, *outer_grad;
    const bool *pending; /* saving: per unit, whether it has an outer_grad */
} WorkerState;

/* What replicas have not sent yet of their gradients (shard_residual), as "replica-N.grad_residual.NAME". If
 * `experts` adjacent ones divide the experts, these have one tensor of experts' residuals. */
typedef struct ReplicaState {
    int count, index; /* number of replicas; the one that this rank belongs to */
    int experts;
    Store *residual;
} ReplicaState;

/* What is saved and loaded: the stores, whatever their layout; and for saving, what is written beside them.
 */
typedef struct CheckpointState {
    Store *params;
    Store *const *state; /* optim_states(optim) stores */
    const OptimSpec *optim;
    WorkerState workers;   /* count 0: there are none */
    ReplicaState replicas; /* count 0: they have nothing of their own */
    const RootDisk *disk;  /* only rank 0 has the directory; NULL: all ranks share it */
    const json_t *progress;
    const char *assets_dir, *tokenizer_dir; /* as in SaveOptions */
    const char *chat_template;              /* as in SaveOptions */
    bool bytes;                             /* as in SaveOptions */
    const LabelSet *labels;                 /* as in SaveOptions */
    int64_t best;                           /* step of the best checkpoint, possibly this one; 0: none */
    Mesh *mesh;                             /* the ranks that save; NULL: a single rank */
} CheckpointState;

/* Saves a run's checkpoint as RUN/checkpoints/step-N, points RUN/latest to it and RUN/best to the best one,
 * then removes all but the last `keep` checkpoints (0: keeps all of them) and the best. `progress` is stored
 * unchanged. Collective over the mesh; without `disk` all ranks must share the directory. The files do not
 * depend on the parallel layout. If one rank fails, all fail with its error. Fails with DIVERGED if a value
 * is not finite. */
MUST_USE Status ckpt_save(const char *run_dir, int64_t step, const CheckpointState *state, Stream *stream,
                          int keep);
/* Cleans up after an interrupted save; `step` is the newest checkpoint, `best` and `keep` as in ckpt_save. */
MUST_USE Status ckpt_tidy(const char *run_dir, int64_t step, int64_t best, int keep);
/* The directory of a run's newest complete checkpoint, or NULL; the caller frees it. Leftovers of an
 * interrupted save are ignored. */
MUST_USE Status ckpt_latest(const char *run_dir, char **ret_dir);
/* Whether a run has checkpoints, even damaged ones. */
MUST_USE Status ckpt_any(const char *run_dir, bool *ret_any);
/* The checkpoint from which a run continues: the newest whose checksums match, or that of step `from` if it
 * is not 0; NULL if the run has none. The caller frees it. Damaged ones that were passed over are renamed to
 * step-N.damaged, and *ret_damaged says so; it is NULL if there are none. If none is intact, or the one asked
 * for is not, it fails. `disk`: only rank 0 has the run, and checks it alone. Collective; mesh may be NULL
 * for a single rank. */
MUST_USE Status ckpt_resume_dir(const char *run_dir, int64_t from, const RootDisk *disk, Mesh *mesh,
                                char **ret_dir, char **ret_damaged);
/* A model's directory. While it is open, the run that saved it does not remove it. */
typedef struct ModelDir {
    char *path;
    FILE *lock; /* weft.json with a shared lock; NULL if it has none */
    bool temporary;
} ModelDir;

/* Whether a model's path is a file rather than a directory: GGUF. */
bool model_path_is_file(const char *path);
/* Resolves a model's path: the newest checkpoint of a run, or the directory itself, not a link to it, which
 * need not exist. A GGUF file becomes a temporary directory, with a link to the file. */
MUST_USE Status model_dir_open(ModelDir *ret_dir, const char *path);
void model_dir_done(ModelDir *dir);
/* The number of workers of a checkpoint, of replicas with residuals, and of those that divide the experts. */
typedef struct SavedCounts {
    int64_t workers, replicas, experts;
} SavedCounts;

/* Loads the elements that the stores contain, bit for bit, and the progress, which the caller releases; both
 * results may be NULL. Refuses a checkpoint of another optimizer. Worker i of a checkpoint with W becomes the
 * workers i, i + W and so on; without workers, the run continues with the optimizer state of the first. Of a
 * checkpoint without workers, all have the same state. Residuals are loaded if the number of replicas is the
 * same, and those of experts if as many divide them. What the checkpoint lacks is left unchanged. With
 * `disk`, as hf_weights_receive. */
MUST_USE Status ckpt_load(const char *dir, const CheckpointState *into, Stream *stream,
                          SavedCounts *ret_counts, json_t **ret_progress);

#endif
