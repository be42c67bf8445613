/* Internal interface between the files of a session: session.c, which has the description, and
 * session_prompt.c. */
#ifndef WEFT_INFER_SESSION_INTERNAL_H
#define WEFT_INFER_SESSION_INTERNAL_H

#include "infer/session.h"
#include "model/cache_split.h"

enum { MAX_RECORDED = 64 }; /* record steps of up to this many sequences */
enum { STEP_ROWS = 16 };    /* sequences per decode step on the CPU */
enum { RING = 2 };          /* steps whose results the host has not read: the one fed and the one after it */

/* State of decode steps with a given number of sequences. */
typedef struct StepState {
    bool done_once, not_recordable;
    Recording *recording; /* NULL: not recorded yet */
} StepState;

/* The step after the last one that was fed, if it was started already. It feeds the argmax. */
typedef struct Ahead {
    int64_t count; /* sequences; 0: not started */
    int64_t valid; /* the first ones, whose results may be used */
    bool finished; /* results are in Session.next */
    int event;     /* in Session.event */
} Ahead;

struct Session {
    Engine *engine;
    bool best_only, run_ahead, separate; /* separate: one sequence per chunk */
    int64_t B, S, K;
    Buffer memory, scratch, rope, prompt_rope;
    Tensor rope_table;   /* see Pass.rope */
    Tensor prompt_table; /* of the prompt that is being fed; absent if it would be the same */
    KvCache *cache;      /* per layer */
    KvCache *active;     /* per layer: the part that belongs to the current chunk */
    CacheSplit split;    /* the positions of this rank */
    Tensor inputs; /* (B*(K+2)+2N) int32: the chunk's tokens (b,T), past (b), fresh (b), and with rows of
                    * their own on N ranks past (N), fresh (N) */
    Tensor x, y;   /* (B,K,C), or less if chunks have one sequence */
    Tensor last;   /* (B,C) */
    Tensor logits; /* (B,V) */
    Tensor best;   /* (B) int32 */
    Buffer saved;  /* part of `memory`, reused by every layer */
    int64_t *length, *fed; /* (B) in host memory: tokens in the cache, tokens of the current feed processed */
    int32_t *input, *next; /* (B) in host memory: tokens of the last step, argmax of the step ahead */
    Ahead ahead;
    void *event[RING]; /* ends of steps, in turn */
    StepState step_state[MAX_RECORDED + 1];
    /* Host buffers for transfers to and from the device. */
    Buffer stage;  /* int32: like `inputs` */
    Buffer scores; /* (B,V) fp32 */
    Buffer chosen; /* (B) int32: like `best` */
    Buffer ring;   /* (B,RING) int32: argmax of steps, which the device writes; see argmax_advance */
};

/* A range of sequences that go through the model together. */
typedef struct Range {
    int64_t first, count;
} Range;

/* The next range: up to `max` sequences, or all of them. */
static inline Range session_range(int64_t first, int64_t count, bool separate, int64_t max) {
    return (Range){first, !separate ? count : count - first < max ? count - first : max};
}

/* Offsets of past and fresh in `inputs`. */
static inline int64_t past_at(Shape shape) {
    return shape.B * shape.T;
}
static inline int64_t fresh_at(Shape shape) {
    return past_at(shape) + shape.B;
}

Shape session_shape(const Session *s, int64_t B, int64_t T);
/* Copies the staged inputs to the device. */
MUST_USE Status session_upload(Session *s, Shape shape);
/* Runs the chunk in `inputs`, of sequences first .., through all blocks but the head; *ret_x is the output.
 */
MUST_USE Status session_run(Session *s, int64_t first, Shape shape, Tensor rope, Tensor *ret_x);
/* Computes logits of the next tokens from x (b,C), for sequences first .., and copies them to the host unless
 * only the argmax is needed there. */
MUST_USE Status session_compute_logits(Session *s, int64_t first, Tensor x, Tensor *ret_logits);

/* session_feed for other than steps. */
MUST_USE Status session_feed_chunks(Session *s, const Feed *feed, int64_t count);

#endif
