/* Beam search for one prompt, step for step like transformers' generate.
 *
 * N beams run at a time. A step expands every beam by its K likeliest tokens, merges these and keeps the best
 * K continuations overall. Of these, the ones among the first N that end (end token, stop string, maximum
 * length) become hypotheses, and the best N that do not end continue. K is large enough for N to continue. A
 * hypothesis is scored by its summed log probabilities divided by length^length_penalty; the N best are kept.
 * The search is done when no running beam can improve on them, by the rule that `early_stopping` names.
 *
 * The caller runs the model: it expands each beam from its logits, advances the search, moves the model's
 * caches from each new beam's parent, and feeds each new beam's token.
 */
#ifndef WEFT_INFER_BEAM_H
#define WEFT_INFER_BEAM_H

#include "infer/logits.h"

/* When a prompt with N hypotheses is done. */
typedef enum {
    EARLY_FALSE, /* when the best running beam, scored at its present length, is worse than all of them */
    EARLY_TRUE,  /* at once */
    EARLY_NEVER, /* like EARLY_FALSE, but scored at the maximum length if length_penalty is positive */
} EarlyStopping;

/* Why a sequence ended: max_tokens reached, an end token, or a stop string (or the sink; see generate.h). */
typedef enum { ENDED_LENGTH, ENDED_END, ENDED_STOP } Ended;

typedef struct BeamOptions {
    int64_t beams;         /* N, at least 1 */
    double length_penalty; /* above 0 favors long hypotheses */
    EarlyStopping early_stopping;
    int64_t max_tokens; /* new tokens, at least 1 */
    int64_t vocab;
    const int64_t *ends; /* end tokens; must outlive the search */
    int end_count;
} BeamOptions;

/* Whether a stop string occurs in the new text of ids (count), of which the first prompt_count are the
 * prompt. */
typedef Status (*StopCheck)(void *context, const int32_t *ids, int64_t prompt_count, int64_t count,
                            bool *ret_stop);

/* A prompt and its continuation. */
typedef struct Hypothesis {
    int32_t *ids;
    int64_t count;
    float score;
    bool finished; /* false: an empty place */
    Ended ended;
} Hypothesis;

typedef struct BeamSearch BeamSearch;

MUST_USE Status beam_search_new(BeamSearch **ret_search, const BeamOptions *options, const int32_t *prompt,
                                int64_t prompt_count);
void beam_search_free(BeamSearch *search);
DEFINE_FREEP(BeamSearch, beam_search)

/* Expands a beam from its logits (V), which are overwritten. Threads may expand different beams. Before the
 * first token, all beams have the prompt's logits. */
MUST_USE Status beam_expand(BeamSearch *search, int64_t beam, LogitProcessor *processor, float *logits);
/* Chooses the new beams after every beam was expanded. `check` may be NULL. */
MUST_USE Status beam_advance(BeamSearch *search, StopCheck check, void *context);
bool beam_done(const BeamSearch *search);
/* The old beam that a new one continues, and its tokens, which end with the new one. */
int64_t beam_parent(const BeamSearch *search, int64_t beam);
const int32_t *beam_ids(const BeamSearch *search, int64_t beam, int64_t *ret_count);
/* The hypotheses of a search that is done, the best first: rank < N. */
const Hypothesis *beam_result(const BeamSearch *search, int64_t rank);

#endif
