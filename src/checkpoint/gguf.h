/* GGUF, the model files of llama.cpp: causal models, and BERT as an embedding model. This writes them;
 * gguf_read.h reads them.
 *
 * A file (version 3, little-endian) is a header, metadata, a list of tensors, and their data, aligned to 32
 * bytes. Matrices are rows of input features, as in weft; those of experts are one tensor with three dims.
 * Norms, biases, routers, position and type embeddings are always fp32; matrices have the type of the file.
 */
#ifndef WEFT_CHECKPOINT_GGUF_H
#define WEFT_CHECKPOINT_GGUF_H

#include "checkpoint/checkpoint.h"

/* Types of tensors, numbered as in the file. Q8_0 and Q4_0 have blocks of 32 values with an fp16 scale. */
typedef enum { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q4_0 = 2, GGUF_Q8_0 = 8, GGUF_BF16 = 30 } GgufType;

enum { GGUF_BLOCK = 32, GGUF_ALIGNMENT = 32 };

/* "fp32", "fp16", "bf16", "q8_0" or "q4_0"; false if the name is none of them. */
bool gguf_type_find(const char *name, GgufType *ret_type);
const char *gguf_type_name(GgufType type);

/* Whether the name ends in .gguf. */
bool gguf_is_path(const char *path);
/* Writes a model, all of whose weights are on this rank, to the file `path`, which must not exist. The
 * tokenizer is that of `dir`, or bytes; without one, the file has no vocabulary, and llama.cpp accepts token
 * ids only. In a Q4_0 file, the token embedding and the output matrix are Q8_0, and a matrix whose rows are
 * not whole blocks is fp16. A model with a window gets its length as context length, within which llama.cpp
 * computes what weft does. Fails for models that it does not compute as weft does. */
MUST_USE Status gguf_save(const char *path, const char *dir, const Store *params, Stream *stream,
                          GgufType type);
/* Fails unless gguf_save can write the model to `path`; for an early check. */
MUST_USE Status gguf_check(const char *path, const ModelConfig *config);

/* Bytes of `count` values, a multiple of GGUF_BLOCK if the type has blocks. */
size_t gguf_bytes(GgufType type, int64_t count);
/* Converts values with the rounding of ggml's reference; the sizes are those of gguf_bytes. */
void gguf_convert(GgufType type, const float *values, int64_t count, void *ret_data);

#endif
