/* The parts of `weft info`. */
#ifndef WEFT_CLI_INFO_H
#define WEFT_CLI_INFO_H

#include <stdio.h>

#include "base/json.h"

/* ---- token files and tokenizers ---- */

/* `path` is a token file, or a directory with the sets "train" and "val". `verify`: check all checksums. */
MUST_USE Status info_token_files(json_t *result, const char *path, bool verify);
void info_token_files_show(const json_t *result, FILE *out);

/* `path` is a directory with a tokenizer's files. */
MUST_USE Status info_tokenizer(json_t *result, const char *path);
void info_tokenizer_show(const json_t *result, FILE *out);

/* ---- conversations ---- */

typedef struct InfoChats {
    const char *model; /* NULL: none */
    const char *chat_template;
    unsigned loss_on;
    int64_t example;
} InfoChats;

/* Whether a file has conversations. */
bool info_has_chats(const char *path);
MUST_USE Status info_chats(json_t *result, const char *path, const InfoChats *asked);
void info_chats_show(const json_t *result, FILE *out);

/* ---- without a path: this machine and build ---- */

MUST_USE Status machine_describe(json_t *result);
void machine_show(const json_t *result, FILE *out);

#endif
