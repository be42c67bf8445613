/* From prompts to continuations. */
#ifndef WEFT_INFER_GENERATE_H
#define WEFT_INFER_GENERATE_H

#include "infer/engine.h"
#include "infer/sampler.h"

/* One sequence to continue. */
typedef struct Prompt {
    const int32_t *ids;
    int64_t count;     /* at least 1 */
    uint64_t sequence; /* its number for the sampler; equal prompts of equal number come out equal */
} Prompt;

/* Called with each new token as it is chosen. *ret_stop, false so far, ends the sequence with this token when
 * set. A failure ends the generation with it. */
typedef Status (*TokenSink)(void *context, int64_t prompt, int32_t token, bool *ret_stop);

typedef struct GenerateSpec {
    const Prompt *prompts;
    int64_t count;
    int64_t max_tokens;       /* new ones, at least 1 */
    int64_t end_token;        /* a sequence stops after it; -1: none */
    const int64_t *more_ends; /* as it stops after any of these */
    int more_end_count;
    Sampling sampling;
    int64_t batch, chunk; /* sequences at once, positions of a prompt at once; 0: as memory suggests */
    TokenSink sink;       /* NULL: none */
    void *context;
} GenerateSpec;

/* Why a sequence ended: there was no room for more, by an end token, or because the sink said so. */
typedef enum { ENDED_LENGTH, ENDED_END, ENDED_STOP } Ended;

/* A prompt and its continuation, its end token included. */
typedef struct Sample {
    int32_t *ids;
    int64_t count, prompt_count;
    Ended ended;
} Sample;

typedef struct Generated {
    Sample *samples; /* in the order of the prompts */
    int64_t count;
    int64_t prompt_tokens, new_tokens;
    double prefill_s, decode_s; /* prompts until the first new tokens; the rest */
} Generated;

/* Continues all prompts. What a prompt gives does not depend on the others or on the batch: on the CPU in no
 * bit, on a GPU but for the last bits of rounding, as it is with the chunk. A prompt without room for
 * max_tokens is refused before anything runs. */
MUST_USE Status generate(Engine *engine, const GenerateSpec *spec, Generated **ret_generated);
void generated_free(Generated *generated);
DEFINE_FREEP(Generated, generated)

#endif
