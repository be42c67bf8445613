/* Checkpoints: Hugging Face directories, and beside them what a run needs to go on.
 *
 *   DIR/config.json, model.safetensors (or shards and model.safetensors.index.json)
 *   DIR/int8.safetensors        instead, of a model that is quantized; see hf_int8.c
 *   DIR/sparse.safetensors      instead, of one stored without the weights that are 0; see hf_sparse.h
 *   DIR/optimizer.safetensors   first and second moments: "exp_avg.NAME", "exp_avg_sq.NAME"
 *   DIR/weft.json               step, seed, run progress; its presence says the directory is whole
 */
#ifndef WEFT_CHECKPOINT_CHECKPOINT_H
#define WEFT_CHECKPOINT_CHECKPOINT_H

#include "base/json.h"
#include "comm/mesh.h"
#include "data/data.h"
#include "data/labels.h"
#include "model/model.h"

/* config.json of a checkpoint directory as a ModelConfig; what weft cannot do is refused by name. */
MUST_USE Status hf_config_read(const char *dir, ModelConfig *ret_config);
/* The tokens that generation starts from and ends at, from the directory's generation_config.json where it
 * names them, as transformers does; without it they stay what config.json says. */
MUST_USE Status hf_generation_read(const char *dir, ModelConfig *config);
/* The same as hf_config_read from parsed JSON; `from` names it in messages. */
MUST_USE Status hf_config_parse(const json_t *json, const char *from, ModelConfig *ret_config);
/* What transformers expects to find, architectures and model_type included; caller owns it. */
MUST_USE Status hf_config_json(const ModelConfig *config, json_t **ret_json);

/* The names that the directory's config.json gives to the model's `count` labels: "LABEL_0" and so on where
 * it gives none. */
MUST_USE Status hf_labels_read(const char *dir, int64_t count, LabelSet *ret_labels);

/* The numbers of [PAD], [CLS], [SEP] and [MASK] by the directory's vocab.txt or, without one, its
 * tokenizer.json; -1 for each that is not named there, all of them when neither file exists. They are not
 * held against a model's vocabulary. */
MUST_USE Status special_tokens_read(const char *dir, SpecialTokens *ret_tokens);

/* Names that did not meet while loading. */
typedef struct LoadReport {
    char **missing; /* the model's parameters that the files do not hold: left as they were */
    size_t missing_count, missing_capacity;
    char **unknown; /* tensors in the files that the model has no place for */
    size_t unknown_count, unknown_capacity;
} LoadReport;

void load_report_done(LoadReport *report);
/* Fails, naming them, when parameters are missing; with `fresh_outputs`, BERT's heads may be. */
MUST_USE Status load_report_check(const LoadReport *report, const char *dir, const ModelConfig *config,
                                  bool fresh_outputs);

/* Whether a directory's tensors fit the model, before memory is taken for it. */
MUST_USE Status hf_weights_check(const char *dir, const Model *model, LoadReport *ret_report);
/* Fills params from a directory's tensors (any floating type, prefixes there or not): what the store holds,
 * of which no more than that is read. Every rank checks, and reports, all of it. */
MUST_USE Status hf_weights_load(const char *dir, Store *params, Stream *stream, LoadReport *ret_report);

/* A parameter of 8 or 4 bits on its way into a file; see hf_int8.c. */
typedef struct Int8Param {
    char name[PARAM_NAME];
    int bits;
    int64_t rows, cols; /* outputs, inputs */
    int8_t *w;          /* (rows,cols); of 4 bits (rows,(cols+1)/2), see int4_pack */
    int8_t *step;       /* of 4 bits: (rows,groups) */
    float *scale;       /* (rows) */
    float *factor;      /* (cols), or NULL: all 1 */
    bool held;          /* its inputs are rounded by ... */
    float largest;      /* ... this, see int8_hold_largest */
    int64_t at;         /* its first byte in the file's data */
} Int8Param;

typedef struct Int8List {
    Int8Param *param;
    size_t count, capacity;
} Int8List;

void int8_list_done(Int8List *list);
/* Adds a parameter with room for w and scale; valid until the next one is added. */
MUST_USE Status int8_list_add(Int8List *list, const char *name, int bits, int64_t rows, int64_t cols,
                              Int8Param **ret_param);
/* Gives the model its int8 parameters from a directory's tensors; nothing to do where it has none. Before a
 * store of it is bound. */
MUST_USE Status hf_int8_load(const char *dir, Model *model, const Exec *exec);
/* The same for weights that are mostly 0, where config.sparse_products is set. */
MUST_USE Status hf_sparse_load(const char *dir, Model *model, const Exec *exec);
/* Whether a model that may be quantized runs on a device in a type; `dir` names it in messages. */
MUST_USE Status hf_int8_suits(const char *dir, const ModelConfig *config, const Device *device, DType dtype);

typedef struct SaveOptions {
    DType dtype;               /* of the tensors in the file */
    int64_t max_file_bytes;    /* 0: one file */
    const char *assets_dir;    /* a directory whose tokenizer files come along, or NULL */
    const char *tokenizer_dir; /* ... from here instead, where it is not NULL */
    const LabelSet *labels;    /* names of the labels, where there are as many as the model has; or NULL */
    bool sparse;               /* without the layers' weights that are 0; the model's config says so too */
    Int8List *int8;            /* all of the model's int8 parameters; NULL: it has none */
} SaveOptions;

/* Writes config.json, the weights of one rank that has them all, and the assets as the directory `dir`,
 * which must be absent or empty: all of it or, after a failure, nothing. Fields of the config.json in
 * assets_dir that we have no use for (names of labels, say) are kept. A finite value that the type cannot
 * hold is an error. */
MUST_USE Status hf_save(const char *dir, const Store *params, Stream *stream, const SaveOptions *options);
/* Whether `dir` is absent or empty, for asking before the work begins. */
MUST_USE Status hf_save_check(const char *dir);

/* A run's checkpoint, as RUN/checkpoints/step-N, then RUN/latest is moved to it, then all but the
 * last `keep` (0: none) are removed. `progress` is stored as it is. All ranks of the mesh save together, in
 * a directory that all of them see; its bytes do not depend on the layout. When one fails, all do, with its
 * sentence. */
typedef struct CheckpointState {
    const Store *params, *m, *v;
    const json_t *progress;
    const char *assets_dir, *tokenizer_dir; /* as in SaveOptions... */
    const LabelSet *labels;                 /* ... and this */
    Mesh *mesh;                             /* the ranks that save together; NULL: this one alone */
} CheckpointState;

MUST_USE Status ckpt_save(const char *run_dir, int64_t step, const CheckpointState *state, Stream *stream,
                          int keep);
/* Finishes what a save that was killed left undone, with `step` the newest checkpoint. */
MUST_USE Status ckpt_tidy(const char *run_dir, int64_t step, int keep);
/* The directory of the newest whole checkpoint of a run, NULL when there is none. Leftovers of a
 * killed save are ignored. */
MUST_USE Status ckpt_latest(const char *run_dir, char **ret_dir);
/* What `--model PATH` means: of a run its newest checkpoint, else PATH itself; caller owns it. */
MUST_USE Status ckpt_model_dir(const char *path, char **ret_dir);
/* Loads what the three stores hold, in whatever layout, and the progress back, bit for bit. */
MUST_USE Status ckpt_load(const char *dir, Store *params, Store *m, Store *v, Stream *stream,
                          json_t **ret_progress);

#endif
