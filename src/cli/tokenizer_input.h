/* Input of encode and decode: a tokenizer by name, and bytes from the command line, a file or standard input.
 */
#ifndef WEFT_CLI_TOKENIZER_INPUT_H
#define WEFT_CLI_TOKENIZER_INPUT_H

#include "base/fs.h"
#include "tokenizer/tokenizer.h"

/* `name`: a directory or file of a tokenizer, or "bytes". */
MUST_USE Status open_tokenizer(Tokenizer **ret_tokenizer, const char *name);

typedef struct TextInput {
    const char *name; /* for error messages */
    const char *data;
    size_t size;
    FileMap map;
    char *owned;
} TextInput;

/* Reads `text`, the value of --`option`, or the file `path` (- is standard input). If both are NULL, reads
 * standard input; both together are a usage error. */
MUST_USE Status text_input_init(TextInput *ret_input, const char *option, const char *text, const char *path);
void text_input_done(TextInput *input);

#endif
