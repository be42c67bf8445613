/* Model families. Everything that is specific to one is in its folder, src/model/NAME/, and reaches the rest
 * of the program through one row of the table in families.def: how its config.json maps to the properties of
 * ModelConfig, what its tensors are called in files, its presets and output heads. Nothing else in the tree
 * asks which family a model belongs to. docs/adding-a-model.md shows how to add one. */
#ifndef WEFT_MODEL_FAMILY_H
#define WEFT_MODEL_FAMILY_H

#include "base/json.h"
#include "model/config.h"

/* A class of transformers, as `architectures` in config.json names it. */
typedef struct Architecture {
    char name[64];
    unsigned heads; /* OutputHead bits */
    bool pooler;
    bool tied; /* the class has no output matrix: the embedding serves as one, regardless of the config */
    bool bare; /* the class has no output matrix: unless the config ties it, it is new */
} Architecture;

/* Which part of a parameter a tensor in a file contains: all of it, all of it with the first two dims merged,
 * or an index of the first dim. With PART_EACH, the file has a tensor for each of these; with PART_EVEN and
 * PART_ODD, for every second one, from 0 or 1 on. */
enum { PART_WHOLE = -1, PART_FUSED = -2, PART_EACH = -3, PART_EVEN = -4, PART_ODD = -5 };

/* Maps a parameter to a tensor of a Hugging Face checkpoint. Each '*' stands for a number, such as the
 * layer's; with PART_EACH, PART_EVEN and PART_ODD, `theirs` has one more, which counts the tensors from 0. A
 * rule covers the parameter of exactly that name, or a pair with ".weight" and ".bias" appended on both
 * sides. Several rules may name the same parameter, one per part. */
typedef struct HfRule {
    const char *ours, *theirs;
    int part;
    bool body;       /* belongs to the base model: the name may have the family's prefix */
    bool transposed; /* matrices are stored as (in, out) */
} HfRule;

/* The same for a GGUF file, where PART_EACH, PART_EVEN and PART_ODD are one tensor. */
typedef struct GgufRule {
    const char *ours, *theirs;
    int part;
    bool plain; /* always fp32 */
    bool heads; /* rows are heads whose halves rotate together; if the family says so, in pairs in the file */
} GgufRule;

/* An obstacle of any family (gguf_obstacle). */
#define GGUF_ACT "this activation function in this family"

/* A named size. */
typedef struct Preset {
    const char *name;
    int64_t layers, hidden, heads;
    bool tied;
    int64_t kv_heads, head_width; /* 0: the heads; hidden / heads */
    int64_t inner;                /* 0: 4 x hidden */
    int64_t vocab, positions;     /* 0: the family's default */
    float theta;                  /* of rotary positions; 0: the family's default */
} Preset;

typedef struct BlockOps BlockOps;

struct Family {
    const char *type;  /* model_type in config.json, and the name in weft's results */
    const char *title; /* in messages: "GPT-2" */
    unsigned outputs;  /* the output heads that it supports */
    const BlockOps *output;

    /* Sets every field to the value that transformers assumes for an absent one. */
    void (*defaults)(ModelConfig *config);
    /* Reads the family's own fields of config.json over the defaults; `from` names the file in errors. */
    Status (*read)(const json_t *json, const char *from, ModelConfig *config);
    /* The same fields as a new object, or NULL if memory runs out. */
    json_t *(*write)(const ModelConfig *config);
    /* Its classes in transformers begin with `classes`, as in BertForMaskedLM. `own_class` follows in the one
     * with all heads of the family's first task, unless NULL: then that of its head does. */
    const char *classes, *own_class;
    bool base_tied; /* without an output matrix, a decoder's base model ties it, regardless of the config */

    const Family *mixture; /* of a dense decoder: the family of its mixtures of experts; NULL: none */
    bool shared;           /* mixtures of this family always have a shared expert */

    const Preset *presets; /* ends with {0} */
    /* What the presets differ in besides their sizes, which are set already. Or NULL. */
    void (*preset)(const Preset *preset, ModelConfig *config);
    bool byte_specials; /* its byte vocabulary includes [CLS], [SEP], [MASK] and the like */

    const HfRule *names;        /* ends with {0} */
    const char *prefix;         /* of the base model's tensors */
    const char *output_matrix;  /* tensor that a tied model may repeat */
    const char *output_bias[2]; /* one bias under two names; an untied model uses the second. Or NULL */
    const char *const *buffers; /* patterns of tensors that are not parameters, without prefix */

    const char *gguf; /* architecture in a GGUF file; NULL: weft does not write one */
    const GgufRule *gguf_names;
    bool gguf_pairs; /* llama.cpp rotates neighbors of this architecture's heads, not halves */
    /* What the model has that llama.cpp does not support, for a message; NULL: llama.cpp can run it. */
    const char *(*gguf_obstacle)(const ModelConfig *config);
};

/* All families, NULL-terminated. */
const Family *const *families(void);
/* The titles of the families that support one of these output heads: "GPT-2, Llama or Qwen2", where `last` is
 * "or". Returns `text`. */
enum { FAMILY_TITLES = 256 };
const char *family_titles(unsigned outputs, const char *last, char text[FAMILY_TITLES]);
/* By model_type; NULL if there is none. */
const Family *family_find(const char *type);
/* The first task whose heads it supports. */
Task family_task(const Family *family);
/* Its classes, numbered from 0 in the order in which one is chosen for a model: the first of whose heads it
 * has all. The last one is the base model, which has the fewest. False past it. */
bool family_class(const Family *family, int number, Architecture *ret_class);

#define FAMILY(name) extern const Family family_##name;
#include "model/families.def"
#undef FAMILY

#endif
