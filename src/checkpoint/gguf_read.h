/* Reads GGUF files (checkpoint/gguf.h): metadata, tensors, and from both the model and its tokenizer. Tensors
 * may be fp32, fp16, bf16, q8_0 or q4_0; others are refused by name. */
#ifndef WEFT_CHECKPOINT_GGUF_READ_H
#define WEFT_CHECKPOINT_GGUF_READ_H

#include "base/fs.h"
#include "checkpoint/gguf.h"
#include "checkpoint/hf_names.h"
#include "checkpoint/safetensors.h"

enum { GGUF_DIMS = 4 };

typedef struct GgufTensor {
    char *name;
    GgufType type;
    int ndim;
    int64_t dim[GGUF_DIMS]; /* row-major: the last one is contiguous */
    const unsigned char *data;
} GgufTensor;

typedef struct GgufFile {
    char *path;
    FileMap map;
    json_t *meta; /* an object; arrays are lists */
    GgufTensor *tensor;
    size_t count, capacity;
} GgufFile;

/* Maps a file and validates it. */
MUST_USE Status gguf_file_open(GgufFile *ret_file, const char *path);
void gguf_file_done(GgufFile *file);
const GgufTensor *gguf_find(const GgufFile *file, const char *name); /* NULL: not found */

/* The family of the file's architecture. */
MUST_USE Status gguf_family(const GgufFile *file, const Family **ret_family);
MUST_USE Status gguf_config(const GgufFile *file, ModelConfig *ret_config);
/* Writes tokenizer.json, or vocab.txt, and tokenizer_config.json to a directory; nothing if the file has no
 * vocabulary. */
MUST_USE Status gguf_write_tokenizer(const GgufFile *file, const char *dir);

/* The file's tensors as those of a checkpoint, under their own names: those of experts one by one, "NAME.0"
 * and so on. Rows of heads are in weft's order. */
MUST_USE Status gguf_open(SafeFile **ret_file, const char *path);
/* The tensors of such a file that make up a parameter. */
MUST_USE Status gguf_tensors(const Family *family, const ParamDesc *desc, HfTensorList *ret_list);

#define GGUF_WEIGHTS "model.gguf"
/* Makes a temporary directory with a model's config.json, tokenizer, and a link to the file as GGUF_WEIGHTS;
 * the caller frees *ret_dir and removes it. */
MUST_USE Status gguf_unpack(const char *path, char **ret_dir);

#endif
