/* Writing a model's files into a directory that is not yet in its place. */
#ifndef WEFT_CHECKPOINT_HF_SAVE_H
#define WEFT_CHECKPOINT_HF_SAVE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

/* Files of hf_save into the existing directory `dir`. */
MUST_USE Status hf_write(const char *dir, const Store *params, Stream *stream, const SaveOptions *options);
/* The tensor's values, from the device, in pieces; `turned` writes a matrix (in, out). */
MUST_USE Status hf_write_values(SafeWriter *writer, DType dtype, Tensor values, bool turned, Stream *stream);

#endif
