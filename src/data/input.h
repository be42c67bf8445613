/* Sequential reader with bounded memory, over a file, a .gz file of one or more members, a block of memory,
 * or a function. */
#ifndef WEFT_DATA_INPUT_H
#define WEFT_DATA_INPUT_H

#include <stdint.h>

#include "base/status.h"

typedef struct Input Input;

/* Opens a regular file or a pipe. gzip data is decompressed; it is recognized by the suffix .gz or, in
 * regular files, by its first bytes. */
MUST_USE Status input_open(Input **ret_input, const char *path);
/* Borrows `data`, which must outlive the input; `name` is for messages. */
MUST_USE Status input_open_memory(Input **ret_input, const char *name, const void *data, size_t size);
/* Reads up to `size` bytes; *ret_got is 0 at the end. */
typedef Status (*InputFunc)(void *context, char *to, size_t size, size_t *ret_got);
/* Reads what `func` does. */
MUST_USE Status input_open_func(Input **ret_input, const char *name, InputFunc func, void *context);
void input_free(Input *input);
DEFINE_FREEP(Input, input)

/* Reads the next `size` bytes; *ret_got is smaller only at the end. */
MUST_USE Status input_read(Input *input, char *to, size_t size, size_t *ret_got);
/* Reads up to `size` bytes that the next calls of input_read return again. To be called once, before them. */
MUST_USE Status input_peek(Input *input, size_t size, const char **ret_text, size_t *ret_got);
/* Whether the file is being decompressed. */
bool input_compressed(const Input *input);
/* Bytes of the file consumed so far, including those that were only peeked at; compressed bytes for gzip. */
int64_t input_used(const Input *input);
/* Whether the file's size or modification time has changed since it was opened. */
bool input_changed(const Input *input);

#endif
