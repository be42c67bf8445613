/* The bytes of one input from its start to its end, in little memory: a file, a .gz file of one or more
 * members, or a piece of memory. */
#ifndef WEFT_DATA_INPUT_H
#define WEFT_DATA_INPUT_H

#include <stdint.h>

#include "base/status.h"

typedef struct Input Input;

/* Regular files and pipes; what ends in .gz is decompressed. */
MUST_USE Status input_open(Input **ret_input, const char *path);
/* Borrows `data`; `name` is for messages. */
MUST_USE Status input_open_memory(Input **ret_input, const char *name, const void *data, size_t size);
void input_free(Input *input);
DEFINE_FREEP(Input, input)

/* The next bytes, as many as fit; fewer only at the end. */
MUST_USE Status input_read(Input *input, char *to, size_t size, size_t *ret_got);
/* Bytes of the file, compressed ones for .gz, that have been used. */
int64_t input_used(const Input *input);
/* Whether the file has another size or time than when it was opened. */
bool input_changed(const Input *input);

#endif
