/* The safetensors file format, read and written.
 *
 *   8 bytes   length of the header, little-endian
 *   header    JSON: {"NAME": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {...}},
 *             padded with spaces
 *   data      the tensors, row-major, little-endian, each byte belonging to exactly one tensor
 *
 * A reader checks all of that before it hands out a pointer: whoever holds a SafeTensor may read
 * `bytes` bytes at `data`. The data need not be aligned to its type.
 */
#ifndef WEFT_CHECKPOINT_SAFETENSORS_H
#define WEFT_CHECKPOINT_SAFETENSORS_H

#include "base/json.h"
#include "tensor/dtype.h"

enum { SAFE_DIMS = 8 };

typedef struct SafeTensor {
    const char *name;
    const char *type; /* as the format spells it: "F32", "BOOL" ... */
    DType dtype;      /* DT_COUNT for types that a Tensor cannot have */
    int ndim;
    int64_t dim[SAFE_DIMS];
    const unsigned char *data;
    size_t bytes;
} SafeTensor;

typedef struct SafeFile SafeFile;

MUST_USE Status safe_open(SafeFile **ret_file, const char *path);
/* The same over memory that stays the caller's; `from` names it in messages. */
MUST_USE Status safe_parse(SafeFile **ret_file, const void *data, size_t size, const char *from);
void safe_free(SafeFile *file);
DEFINE_FREEP(SafeFile, safe)

const char *safe_path(const SafeFile *file);
size_t safe_count(const SafeFile *file);
const SafeTensor *safe_at(const SafeFile *file, size_t index); /* in the order of the data */
const SafeTensor *safe_find(const SafeFile *file, const char *name);
const json_t *safe_metadata(const SafeFile *file); /* NULL when there is none */

/* "(2, 3)", cut short when it does not fit. */
enum { SHAPE_TEXT = 200 };
const char *safe_shape_text(char text[SHAPE_TEXT], int ndim, const int64_t *dim);
/* A name from a file as a message can show it: control characters replaced, overlong ones cut. */
enum { NAME_TEXT = 160 };
const char *safe_name_text(char text[NAME_TEXT], const char *name);

/* Writing, by one or by several ranks at the same time, into a directory that is not yet in its place. All
 * declare the same tensors; one creates the file, with its header and its final size; then the others open
 * it. Each places data at offsets, in pieces of any size, and closes the file, which syncs what it wrote. */
typedef struct SafeWriter SafeWriter;

MUST_USE Status safe_writer_new(SafeWriter **ret_writer, const char *path);
MUST_USE Status safe_writer_declare(SafeWriter *writer, const char *name, DType dtype, int ndim,
                                    const int64_t *dim);
/* Bytes of data declared so far: where the next tensor will begin. */
int64_t safe_writer_declared(const SafeWriter *writer);
MUST_USE Status safe_writer_create(SafeWriter *writer);
MUST_USE Status safe_writer_open(SafeWriter *writer); /* nothing to do for the one that created it */
MUST_USE Status safe_writer_place(SafeWriter *writer, int64_t at, const void *data, size_t size);
MUST_USE Status safe_writer_close(SafeWriter *writer);
void safe_writer_free(SafeWriter *writer);
DEFINE_FREEP(SafeWriter, safe_writer)

#endif
