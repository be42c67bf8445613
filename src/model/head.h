/* Output heads. Everything specific to one is in its file in src/model/heads/ and reaches the rest of the
 * program through its row of the table in heads.def: its parameters, logits and loss, and its class in
 * transformers. Nothing else in the tree asks which heads a model has. docs/adding-a-model.md shows how to
 * add one. */
#ifndef WEFT_MODEL_HEAD_H
#define WEFT_MODEL_HEAD_H

#include "model/model.h"

typedef struct HeadTraits {
    unsigned losses; /* LossId bits */
    bool vocab;      /* logits over the vocabulary */
    bool overwrites; /* its gradient of the output matrix is stored, not added, see ParamDesc.overwritten */
    bool pooled;     /* reads the first row of each sequence, through the pooler */
    bool labeled;    /* has config->labels outputs, with names in config.json */
    bool judged;     /* the accuracy of its predictions is that of the model */
} HeadTraits;

typedef struct Head {
    HeadTraits traits;
    /* Logits per row. */
    int64_t (*width)(const ModelConfig *config);
    /* fp32 targets per sequence; NULL: none, its labels are integers. */
    int64_t (*targets)(const ModelConfig *config);

    /* The rest is for the heads of encoders, which may have several (parts/encoder_output.c); that of causal
     * models is a block itself. `id` is the head's number. `loss` adds to the loss sums and, in training, to
     * dx and the gradients; it does nothing if the batch has no labels for the head. x, dx and rows have C
     * columns. `loss` and `logits` use scratch that `measure` and `logits_scratch` reserve. */
    Status (*describe)(const Block *block, HeadId id, ParamList *list);
    void (*measure)(const Block *block, HeadId id, Shape shape, Bump *scratch);
    Status (*loss)(const Block *block, Pass *pass, HeadId id, Tensor dx, Tensor x);
    Status (*logits)(const Block *block, Pass *pass, HeadId id, Tensor out, Tensor rows);
    void (*logits_scratch)(const Block *block, HeadId id, Shape shape, int64_t rows, Bump *scratch);
    double (*flops)(const ModelConfig *config); /* per token; NULL: too few to count */
} Head;

#define HEAD(NAME, name, title, class, losses)        extern const Head head_##name;
#define JOINT(NAME, name, TASK, title, class, losses) extern const Head head_##name;
#include "model/heads.def"

const Head *head_at(HeadId id);
const char *head_name(HeadId id);  /* "lm", "mlm" ... */
const char *head_class(HeadId id); /* "ForCausalLM", "ForMaskedLM" ... */
/* The bit of the head of this name, if it is in the mask; otherwise 0. */
unsigned head_find(const char *name, unsigned mask);
/* Names for a message: "mlm, span or none", where `last` is "none" and may be NULL. Returns `text`. */
enum { HEAD_NAMES = 256 };
const char *head_names(unsigned mask, const char *last, char text[HEAD_NAMES]);

/* Values that a head has per row, on a rank of `tp` that divide a vocabulary; of HEAD_NONE the hidden size.
 */
int64_t output_width(const ModelConfig *config, HeadId id, int tp);
bool output_pooled(HeadId id);

/* The first head in the mask. */
HeadId heads_first(unsigned mask);
/* Those of these properties that any head in the mask has. */
HeadTraits heads_traits(unsigned mask);

extern const char *const loss_names[]; /* "token", "next_sentence" ... */
extern const double loss_weight[];     /* of their means in the sum that is minimized */
extern const char *const task_names[]; /* "lm", "mlm" ..., NULL */
/* The heads that a task trains. */
unsigned task_heads(Task task);

#endif
