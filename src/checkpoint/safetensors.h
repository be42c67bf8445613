/* The safetensors file format.
 *
 *   8 bytes   length of the header, little-endian
 *   header    JSON: {"NAME": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {...}},
 *             padded with spaces
 *   data      the tensors, row-major, little-endian; every byte belongs to exactly one tensor
 *
 * The reader validates all of this before it returns a tensor: `bytes` bytes at a SafeTensor's `data` are
 * always readable. The data need not be aligned to its type.
 */
#ifndef WEFT_CHECKPOINT_SAFETENSORS_H
#define WEFT_CHECKPOINT_SAFETENSORS_H

#include "base/fs.h"
#include "base/json.h"
#include "tensor/dtype.h"

enum { SAFE_DIMS = 8 };

typedef struct SafeTensor {
    const char *name;
    const char *type; /* the format's name: "F32", "BOOL" ... */
    DType dtype;      /* DT_COUNT for types without a DType */
    int ndim;
    int64_t dim[SAFE_DIMS];
    const unsigned char *data;
    size_t bytes;
    /* Tensors of other formats: reads `count` values from element `first` on, as fp32, by `layout`. NULL:
     * `data` has values of `dtype`, row-major. `bytes` is what these would take. */
    Status (*read)(const struct SafeTensor *tensor, int64_t first, int64_t count, float *ret_values);
    int64_t layout[SAFE_DIMS + 1];
} SafeTensor;

typedef struct SafeFile SafeFile;

/* Maps and validates a file. Tensors and their data stay valid until safe_free. */
MUST_USE Status safe_open(SafeFile **ret_file, const char *path);
/* The same for a file in memory, which the caller owns and keeps valid; `from` names it in errors. */
MUST_USE Status safe_parse(SafeFile **ret_file, const void *data, size_t size, const char *from);
/* The tensors of a file of another format, which its reader has validated. Takes over the map, the array and
 * the names in it. */
MUST_USE Status safe_adopt(SafeFile **ret_file, const char *path, FileMap *map, SafeTensor **tensor,
                           size_t count);
void safe_free(SafeFile *file);
DEFINE_FREEP(SafeFile, safe)

const char *safe_path(const SafeFile *file);
size_t safe_count(const SafeFile *file);
const SafeTensor *safe_at(const SafeFile *file, size_t index);       /* in order of data offset */
const SafeTensor *safe_find(const SafeFile *file, const char *name); /* NULL if not found */
const json_t *safe_metadata(const SafeFile *file);                   /* NULL if absent */

/* "(2, 3)", truncated if it does not fit; returns `text`. */
enum { SHAPE_TEXT = 200 };
const char *safe_shape_text(char text[SHAPE_TEXT], int ndim, const int64_t *dim);

/* Writes a file, from one rank or several at once. All ranks declare the same tensors; one creates the
 * file with its header and final size; then the others open it. Each rank writes data at byte offsets, in
 * chunks of any size, and closes the file, which fsyncs what it wrote. */
typedef struct SafeWriter SafeWriter;

MUST_USE Status safe_writer_new(SafeWriter **ret_writer, const char *path);
MUST_USE Status safe_writer_declare(SafeWriter *writer, const char *name, DType dtype, int ndim,
                                    const int64_t *dim);
/* Bytes of data declared so far: the offset of the next tensor. */
int64_t safe_writer_declared(const SafeWriter *writer);
/* The declared tensors, in order, each with the checksum (crc32c.h) of what this rank has written of it: the
 * tensor's checksum is the XOR of all ranks'. */
typedef struct SafeSum {
    const char *name;
    int64_t begin, end; /* its range of the data */
    uint32_t crc;
} SafeSum;
SafeSum *safe_writer_sums(SafeWriter *writer, size_t *ret_count);
const char *safe_writer_path(const SafeWriter *writer);
MUST_USE Status safe_writer_create(SafeWriter *writer);
MUST_USE Status safe_writer_open(SafeWriter *writer); /* does nothing on the rank that created it */
/* `at` is an offset in the data section. Every byte is written once. */
MUST_USE Status safe_writer_write(SafeWriter *writer, int64_t at, const void *data, size_t size);
/* The same without adding to the checksums: for bytes that another rank has counted and sent. */
MUST_USE Status safe_writer_put(SafeWriter *writer, int64_t at, const void *data, size_t size);
/* From now on, writes go to `to`, with `number`, instead of to the file, which need not exist. */
typedef Status (*SafePut)(void *context, int number, int64_t at, const void *data, size_t size);
void safe_writer_divert(SafeWriter *writer, SafePut to, void *context, int number);
MUST_USE Status safe_writer_close(SafeWriter *writer);
void safe_writer_free(SafeWriter *writer);
DEFINE_FREEP(SafeWriter, safe_writer)

/* Conversion between values in files and fp32 in host memory (convert.c). */

/* Reads `count` elements of a floating-point tensor, starting at element `first`, as fp32. */
MUST_USE Status values_read(float *dst, const SafeTensor *tensor, int64_t first, int64_t count);
/* Writes src as `dtype` at byte offset `at` of the file's data. */
MUST_USE Status values_write(SafeWriter *writer, int64_t at, DType dtype, const float *src, int64_t count);
/* Whether two floating-point tensors have the same values, compared bitwise as fp32. */
MUST_USE Status values_equal(const SafeTensor *a, const SafeTensor *b, bool *ret_equal);

#endif
