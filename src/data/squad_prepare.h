/* SQuAD's questions as JSON lines of token ids, the format `ids`: what training would make of them, to look
 * at or to use elsewhere. */
#ifndef WEFT_DATA_SQUAD_PREPARE_H
#define WEFT_DATA_SQUAD_PREPARE_H

#include "data/squad_features.h"

/* Reads the files and writes one line for each window: {"ids", "types", "start", "end"}. */
MUST_USE Status squad_prepare(const char *const *paths, int count, const Tokenizer *tokenizer,
                              const SquadSpec *spec, const char *out, SquadCounts *ret_counts,
                              int64_t *ret_tokens);

#endif
