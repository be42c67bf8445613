/* Rotary position embeddings: the settings in config.json, and the table of cosines and sines that
 * rope_forward takes.
 *
 * With ROPE_DYNAMIC and ROPE_LONGROPE, frequencies depend on the length of the sequence, as in transformers:
 * - in training and evaluation, the configured sequence length, so they are the same for every batch,
 * document and rank (transformers: the longest position of the call);
 * - in generation, the length that a sequence has reached when its tokens are fed. Cached keys keep the
 * rotation that they got then. Unlike in transformers, other sequences have no influence.
 */
#ifndef WEFT_MODEL_ROPE_H
#define WEFT_MODEL_ROPE_H

#include "base/json.h"
#include "device/device.h"
#include "model/config.h"

/* Frequency of each of the D / 2 pairs of a head in a sequence of `length` tokens. */
void rope_frequencies(const ModelConfig *config, int64_t length, float *ret_frequency);
/* Whether they depend on the length. */
bool rope_varies(const ModelConfig *config);
/* What cosines and sines are multiplied by. */
float rope_attention_factor(const Rope *rope);
/* The context length before scaling. */
int64_t rope_original(const ModelConfig *config);

/* Rows of the table for `count` positions from `first` on, (count,D): cosines, then sines. The sequence has
 * `length` tokens, or if that is 0, it ends at each of the positions, as when it grows by one token at a
 * time. */
MUST_USE Status rope_rows(const ModelConfig *config, int64_t length, int64_t first, int64_t count,
                          float *ret_rows);
/* Allocates the table for positions 0 .. rows - 1, fp32 (rows,D), of sequences of so many tokens. Does
 * nothing for models without rotary embeddings. */
MUST_USE Status rope_table_new(const ModelConfig *config, int64_t rows, Device *device, Stream *stream,
                               Buffer *ret_buffer, Tensor *ret_table);
/* The same for sequences that grow by one token at a time. */
MUST_USE Status rope_table_growing(const ModelConfig *config, int64_t rows, Device *device, Stream *stream,
                                   Buffer *ret_buffer, Tensor *ret_table);

/* The settings in config.json, which transformers 5 writes as rope_parameters, and before as rope_theta and
 * rope_scaling. */
MUST_USE Status rope_read(const json_t *json, const char *from, ModelConfig *config);
/* The object rope_parameters, or NULL if memory runs out. */
json_t *rope_write(const ModelConfig *config);
/* The name in config.json: "yarn". */
const char *rope_scaling_name(RopeScaling scaling);
/* Whether it scales with another ramp than the published one of yarn. */
bool rope_yarn_changed(const Rope *rope);
/* A usage error if the settings are inconsistent. */
MUST_USE Status rope_check(const ModelConfig *config);

/* Extends the context as {rope-scaling} says, "yarn:4": the kind of scaling, and the factor relative to the
 * original context. Does nothing if the model has it already. */
MUST_USE Status rope_extend(const char *text, ModelConfig *config);
/* The value of {rope-scaling} that extends the context to `length`, or "" if there is none. */
enum { ROPE_TEXT = 48 };
const char *rope_extension(const ModelConfig *config, int64_t length, char text[ROPE_TEXT]);

#endif
