/* The tensors that make up a parameter in a Hugging Face checkpoint. */
#ifndef WEFT_CHECKPOINT_HF_NAMES_H
#define WEFT_CHECKPOINT_HF_NAMES_H

#include "model/family.h"
#include "param/param.h"

enum { HF_NAME = 128, HF_DIMS = PARAM_DIMS };

/* One tensor of a checkpoint file and the part of a parameter that it contains. */
typedef struct HfTensor {
    char name[HF_NAME]; /* without the family's prefix */
    bool body;          /* belongs to the base model: the name may have the family's prefix */
    bool transposed;    /* stored as (in, out) */
    int part;           /* index of the parameter's first dim; -1: the complete parameter */
    int ndim;
    int64_t dim[HF_DIMS]; /* shape in the file */
} HfTensor;

typedef struct HfTensorList {
    HfTensor *tensor;
    size_t count, capacity;
} HfTensorList;

/* The tensors that make up a parameter: one, or for example q, k and v; for an adapter, as PEFT names it. */
MUST_USE Status hf_tensors(const Family *family, const ParamDesc *desc, HfTensorList *ret_list);
void hf_tensors_done(HfTensorList *list);
/* Renames a parameter by a rule's patterns (model/family.h); `part` is the number of PART_EACH. *ret_applies
 * is false if the rule is for another parameter. */
MUST_USE Status hf_rename(const char *ours, const char *theirs, const char *name, int64_t part,
                          char ret_name[HF_NAME], bool *ret_applies);
/* Number of elements. */
int64_t hf_tensor_count(const HfTensor *tensor);
/* Whether a tensor is a buffer rather than a parameter: masks and position ids that older versions stored. */
bool hf_is_buffer(const Family *family, const char *name);

#endif
