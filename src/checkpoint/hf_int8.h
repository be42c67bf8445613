/* The int8 part of a checkpoint's file, for those that read and write the rest. */
#ifndef WEFT_CHECKPOINT_HF_INT8_H
#define WEFT_CHECKPOINT_HF_INT8_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/hf_files.h"

enum { INT8_NAME = PARAM_NAME + 16 };

/* Declares the tensors of all parameters, and puts their data into the created file. */
MUST_USE Status int8_declare(Int8List *list, SafeWriter *writer);
MUST_USE Status int8_place(const Int8List *list, SafeWriter *writer);

/* A parameter's tensors, NULL where a file has none; types and shapes are checked. */
typedef struct Int8Tensors {
    const SafeTensor *w, *step, *scale, *factor; /* step: of 4 bits only */
    const SafeTensor *largest;                   /* of config.int8_held only */
    bool complete;                               /* none is lacking */
} Int8Tensors;
MUST_USE Status int8_find(HfFiles *files, const ModelConfig *config, const ParamDesc *desc,
                          Int8Tensors *ret_tensors);

#endif
