/* Quantized parameters in a checkpoint's weight file, for the readers and writers of the other tensors. */
#ifndef WEFT_CHECKPOINT_HF_QUANTIZED_H
#define WEFT_CHECKPOINT_HF_QUANTIZED_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/hf_files.h"

enum { INT8_NAME = PARAM_NAME + 16 };

/* Declares the tensors of all parameters in the list; after the file is created, writes their data. */
MUST_USE Status quantized_declare(QuantizedList *list, SafeWriter *writer);
MUST_USE Status quantized_write(const QuantizedList *list, SafeWriter *writer);

/* A parameter's tensors; NULL if absent. */
typedef struct QuantizedTensors {
    const SafeTensor *w, *step, *scale, *factor; /* step: int4 only */
    const SafeTensor *largest;                   /* only with config.static_scales */
    bool complete;                               /* all required tensors are present */
} QuantizedTensors;
/* Finds a parameter's tensors and marks them as used. Fails if a type or shape is wrong. */
MUST_USE Status quantized_find(HfFiles *files, const ModelConfig *config, const ParamDesc *desc,
                               QuantizedTensors *ret_tensors);

#endif
