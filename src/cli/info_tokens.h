/* `weft info` for token files and tokenizers. */
#ifndef WEFT_CLI_INFO_TOKENS_H
#define WEFT_CLI_INFO_TOKENS_H

#include <stdio.h>

#include "base/json.h"

/* `path` is a token file, or a directory with the sets "train" and "val". `verify`: check all checksums. */
MUST_USE Status info_token_files(json_t *result, const char *path, bool verify);
void info_token_files_show(const json_t *result, FILE *out);

/* `path` is a directory with a tokenizer's files. */
MUST_USE Status info_tokenizer(json_t *result, const char *path);
void info_tokenizer_show(const json_t *result, FILE *out);

#endif
