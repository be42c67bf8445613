/* The tensors that stand for a parameter in a Hugging Face checkpoint. */
#ifndef WEFT_CHECKPOINT_HF_NAMES_H
#define WEFT_CHECKPOINT_HF_NAMES_H

#include "model/config.h"
#include "param/param.h"

enum { HF_NAME = 128, HF_PARTS = 3, HF_DIMS = PARAM_DIMS };

/* One tensor of a checkpoint file, and the part of a parameter that it holds. */
typedef struct HfTensor {
    char name[HF_NAME]; /* without the family's prefix */
    bool body;          /* below the prefix where there is one */
    bool turned;        /* stored (in, out) */
    int part;           /* which entry of the parameter's first dim; -1: all of it */
    int ndim;
    int64_t dim[HF_DIMS]; /* in the file */
} HfTensor;

/* "transformer." or "bert.". */
const char *hf_prefix(Family family);
/* The one tensor, or the three of q, k and v, that hold a parameter. */
MUST_USE Status hf_tensors(Family family, const ParamDesc *desc, HfTensor ret_tensor[HF_PARTS],
                           int *ret_count);
/* Elements of a tensor. */
int64_t hf_tensor_count(const HfTensor *tensor);
/* True for what files hold beside parameters: masks and position numbers that older versions stored. */
bool hf_is_buffer(Family family, const char *name);
/* The output matrix that a tied model has no parameter of its own for. */
const char *hf_output_name(Family family);

#endif
