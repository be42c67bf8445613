/* Writes SQuAD questions as JSON lines of token ids (the format `ids`), exactly as training would see them,
 * for inspection or use in other programs. */
#ifndef WEFT_DATA_SQUAD_PREPARE_H
#define WEFT_DATA_SQUAD_PREPARE_H

#include "data/squad_features.h"

/* Reads the files and writes one line per window: {"ids", "types", "start", "end"}. */
MUST_USE Status squad_prepare(const char *const *paths, int count, const Tokenizer *tokenizer,
                              const SquadSpec *spec, const char *out, SquadCounts *ret_counts,
                              int64_t *ret_tokens);

#endif
