/* What a tokenizer's command works on: bytes from the command line, a file or standard input. */
#ifndef WEFT_CLI_TOKENIZER_INPUT_H
#define WEFT_CLI_TOKENIZER_INPUT_H

#include "base/fs.h"

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
