/* Text generation: continuing prompts token by token, greedily, by sampling or by beam search.
 *
 * A sequence may outgrow the model's context of S tokens. The model then sees a window, its last tokens: the
 * first `shift` tokens are dropped whenever a window of S tokens would have to grow, and the rest is
 * processed again, because positions are absolute. So after n tokens the model sees those from
 * window_start(n), at least S - shift + 1 of them, however they came about: the text does not depend on where
 * the prompt ended. */
#ifndef WEFT_INFER_GENERATE_H
#define WEFT_INFER_GENERATE_H

#include "infer/beam.h"
#include "infer/engine.h"
#include "infer/sampler.h"

/* One sequence to continue. */
typedef struct Prompt {
    const int32_t *ids;
    int64_t count;     /* at least 1 */
    uint64_t sequence; /* number for the sampler; equal prompts with equal numbers get equal output */
} Prompt;

/* Called with each new token. Setting *ret_stop (initially false) ends the sequence after this token. A
 * failure aborts the generation and is returned by it. */
typedef Status (*TokenSink)(void *context, int64_t prompt, int32_t token, bool *ret_stop);

/* Beam search. Each group of `returned` consecutive prompts is searched once: they must be equal, and get the
 * best hypotheses in order. A batch has at least the beams of one prompt. */
typedef struct BeamSpec {
    int64_t beams;    /* 0 or 1: no beam search */
    int64_t returned; /* 1 .. beams; 0: 1 */
    double length_penalty;
    EarlyStopping early_stopping;
    StopCheck check; /* may be NULL; called by one thread, with GenerateSpec's context */
} BeamSpec;

/* The KV cache of the last call, for a sequence that is continued again and again: tokens that the next
 * prompt begins with are not processed again. Initialize with {0}. */
typedef struct GenerateCache {
    struct Session *session;
    int32_t *ids; /* tokens in the cache */
    int64_t count;
    size_t capacity;
    int64_t reused; /* tokens that the last call did not process again */
} GenerateCache;

void generate_cache_done(GenerateCache *cache);

typedef struct GenerateSpec {
    const Prompt *prompts;
    int64_t count;
    int64_t max_tokens;       /* new tokens per sequence; 0: by max_length */
    int64_t max_length;       /* tokens of a prompt and its continuation, which has at least 1 */
    int64_t shift;            /* tokens dropped when the window moves, 1 .. S; 0: a quarter of the context */
    int64_t end_token;        /* ends a sequence; -1: no end token */
    const int64_t *more_ends; /* further end tokens */
    int more_end_count;
    LogitRules rules;
    Sampling sampling; /* not used by beam search */
    bool logprobs;     /* fill Sample.scores, from the model's logits before rules and sampling; no beams */
    int64_t top_logprobs; /* further tokens per position, the likeliest first */
    BeamSpec beam;
    int64_t batch, chunk; /* sequences per batch, prompt tokens per chunk; 0: chosen automatically */
    GenerateCache *cache; /* for a single prompt without beam search; NULL: none */
    TokenSink sink;       /* may be NULL; beam search calls it when a prompt is done */
    void *context;
} GenerateSpec;

/* A prompt and its continuation, including the end token. */
typedef struct Sample {
    int32_t *ids;
    int64_t count, prompt_count;
    Ended ended;
    float score;        /* beam search: see beam.h */
    TokenScore *scores; /* per new token: the token, then the top_logprobs likeliest; NULL: not requested */
} Sample;

/* prefill: up to and including the first new tokens; decode: the rest */
typedef struct GenerateTimes {
    double prefill_s, decode_s;
} GenerateTimes;

typedef struct Generated {
    Sample *samples; /* one per prompt, in order */
    int64_t count;
    int64_t prompt_tokens, new_tokens;
    double prefill_s, decode_s;
    GenerateTimes *batches; /* of each batch of prompts that ran together; NULL for beam search */
    int64_t batch_count;
} Generated;

/* The first token that the model sees after `count` tokens. */
int64_t window_start(const GenerateSpec *spec, const ModelConfig *config, int64_t count);

/* Continues all prompts. A prompt's output does not depend on the other prompts or the batch size: bit for
 * bit on the CPU, up to rounding on a GPU or on several ranks. The chunk size affects only rounding. All
 * ranks make the same call and get the same output. */
MUST_USE Status generate(Engine *engine, const GenerateSpec *spec, Generated **ret_generated);
void generated_free(Generated *generated);
DEFINE_FREEP(Generated, generated)

#endif
