/* What encode and decode work with: a tokenizer by its name, and bytes from the command line, a file or
 * standard input. */
#ifndef WEFT_CLI_TOKENIZER_INPUT_H
#define WEFT_CLI_TOKENIZER_INPUT_H

#include "base/fs.h"
#include "tokenizer/tokenizer.h"

/* A tokenizer's files, or the word "bytes". */
MUST_USE Status open_tokenizer(Tokenizer **ret_tokenizer, const char *name);

typedef struct TextInput {
    const char *name; /* for messages */
    const char *data;
    size_t size;
    FileMap map;
    char *owned;
} TextInput;

/* `text`, which `option` gave, or the file, of which - is standard input; when both are NULL, standard input.
 * Both at once are a usage error. */
MUST_USE Status text_input_init(TextInput *ret_input, const char *option, const char *text, const char *path);
void text_input_done(TextInput *input);

#endif
