/* Token shards and tokenizers, for `weft info`. */
#ifndef WEFT_CLI_INFO_TOKENS_H
#define WEFT_CLI_INFO_TOKENS_H

#include <stdio.h>

#include "base/json.h"

/* A shard, or a directory with the sets "train" and "val". With `verify`, every checksum is looked at. */
MUST_USE Status info_token_files(json_t *result, const char *path, bool verify);
void info_token_files_show(const json_t *result, FILE *out);

/* A directory with a tokenizer's files. */
MUST_USE Status info_tokenizer(json_t *result, const char *path);
void info_tokenizer_show(const json_t *result, FILE *out);

#endif
