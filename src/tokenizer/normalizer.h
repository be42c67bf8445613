/* The normalizer of a pipeline: NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, BertNormalizer,
 * ByteLevel, Prepend, Replace, and Sequences of them. Bytes that are not valid UTF-8 pass through unchanged.
 */
#ifndef WEFT_TOKENIZER_NORMALIZER_H
#define WEFT_TOKENIZER_NORMALIZER_H

#include "tokenizer/internal.h"

typedef struct Normalizer Normalizer;

/* From the component of tokenizer.json; *ret_normalizer is NULL if there is nothing to do. Other types are
 * errors. */
MUST_USE Status normalizer_new(Normalizer **ret_normalizer, const json_t *json, const char *from);
void normalizer_free(Normalizer *normalizer);
DEFINE_FREEP(Normalizer, normalizer)

/* Appends the normalized text to `out`, which must be empty. `continues`: the text continues an earlier one,
 * so nothing is prepended. */
MUST_USE Status normalizer_run(const Normalizer *normalizer, const char *text, size_t size, bool continues,
                               NormalText *out);
/* Whether the text certainly stays as it is. */
bool normalizer_keeps(const Normalizer *normalizer, const char *text, size_t size);
/* Whether text may be cut where an ASCII character follows: its parts then normalize as the whole, given
 * `continues`. */
bool normalizer_is_local(const Normalizer *normalizer);
/* Whether it prepends text. */
bool normalizer_prepends(const Normalizer *normalizer);
/* Whether the character stays as it is and does not become a space. */
bool normalizer_keeps_char(const Normalizer *normalizer, uint32_t c);
/* The character that a space becomes, as the size and bytes of its UTF-8; 0 if it stays a space. */
const char *normalizer_space(const Normalizer *normalizer, size_t *ret_size);

#endif
