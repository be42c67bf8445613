/* Quantized parameters in a checkpoint's weight file, for the readers and writers of the other tensors. */
#ifndef WEFT_CHECKPOINT_HF_INT8_H
#define WEFT_CHECKPOINT_HF_INT8_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/hf_files.h"

enum { INT8_NAME = PARAM_NAME + 16 };

/* Declares the tensors of all parameters in the list; after the file is created, writes their data. */
MUST_USE Status int8_declare(Int8List *list, SafeWriter *writer);
MUST_USE Status int8_write(const Int8List *list, SafeWriter *writer);

/* A parameter's tensors; NULL if absent. */
typedef struct Int8Tensors {
    const SafeTensor *w, *step, *scale, *factor; /* step: int4 only */
    const SafeTensor *largest;                   /* only with config.int8_held */
    bool complete;                               /* all required tensors are present */
} Int8Tensors;
/* Finds a parameter's tensors and marks them as used. Fails if a type or shape is wrong. */
MUST_USE Status int8_find(HfFiles *files, const ModelConfig *config, const ParamDesc *desc,
                          Int8Tensors *ret_tensors);

#endif
