/* What generate.c and generate_beams.c share: checks, the order and size of batches, and the output. */
#ifndef WEFT_INFER_BATCH_H
#define WEFT_INFER_BATCH_H

#include "infer/generate.h"
#include "infer/session.h"

MUST_USE Status batch_check(const GenerateSpec *spec, const ModelConfig *config);

/* Indices of every step-th prompt, longest first; ties keep their order. The caller frees *ret_order. */
MUST_USE Status batch_order(const GenerateSpec *spec, int64_t step, int64_t **ret_order);

/* The maximum number of new tokens after a prompt of `prompt` tokens. */
int64_t batch_new_tokens(const GenerateSpec *spec, int64_t prompt);
/* Sequences per batch and cache positions per sequence. `longest` is the number of tokens in the longest
 * prompt. */
typedef struct BatchSize {
    int64_t batch, context;
} BatchSize;
BatchSize batch_size(const Engine *engine, const GenerateSpec *spec, int64_t longest);
/* Prompt tokens per chunk for a session of `batch` sequences. */
int64_t batch_chunk(const Engine *engine, const GenerateSpec *spec, int64_t batch);

/* Samples that contain the prompts, with space for the new tokens. */
MUST_USE Status batch_output(const GenerateSpec *spec, Generated **ret_generated);

/* What the model sees after ids (count). */
Feed batch_window(const Engine *engine, const GenerateSpec *spec, const int32_t *ids, int64_t count);
/* Feeds the last of ids (count) to each sequence. A window that moves is first refilled without that token.
 */
MUST_USE Status batch_step(Session *session, Engine *engine, const GenerateSpec *spec, Feed *feed,
                           int64_t count);

bool batch_is_end(const GenerateSpec *spec, int64_t token);

/* generate() for spec->beam.beams > 1; the spec is checked. */
MUST_USE Status generate_beams(Engine *engine, const GenerateSpec *spec, Generated **ret_generated);

#endif
