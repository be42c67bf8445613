/* A batch of sequences with a KV cache, so that appending a token costs one position of work. The sequences
 * of a session advance together but may differ in length. */
#ifndef WEFT_INFER_SESSION_H
#define WEFT_INFER_SESSION_H

#include "infer/engine.h"

typedef struct Session Session;

/* Allocates caches for `batch` sequences of up to `context` tokens. New tokens are processed in chunks of up
 * to `chunk` tokens, on each rank, which bounds the memory of a long prompt. The engine must outlive the
 * session. With several ranks, all make the same calls. */
MUST_USE Status session_new(Session **ret_session, Engine *engine, int64_t batch, int64_t context,
                            int64_t chunk);
void session_free(Session *session);
DEFINE_FREEP(Session, session)

/* Bytes of KV cache per sequence of `context` tokens, on all ranks together. */
size_t session_cache_bytes(const ModelConfig *config, int64_t context, DType dtype);

/* New tokens of one sequence (borrowed). */
typedef struct Feed {
    const int32_t *ids;
    int64_t count;
} Feed;

/* Appends feed[b] to sequence b for b < count; afterwards session_logits(b) are the logits of the next token.
 * The logits of a sequence whose feed was empty are undefined. Fails if a sequence would exceed its context.
 */
MUST_USE Status session_feed(Session *session, const Feed *feed, int64_t count);
/* (V) logits, valid until the next session_feed. */
const float *session_logits(const Session *session, int64_t sequence);
/* From now on session_feed copies only the argmax to the host, not the logits. session_argmax returns it:
 * ties go to the lowest token; -1 if a logit is NaN or the largest is infinite. session_logits(b) then needs
 * session_fetch_logits(b) first. */
void session_enable_argmax(Session *session);
/* With session_enable_argmax: whether a step may be followed by another one that is started before the caller
 * has seen the argmax, in the expectation that all sequences, or the first ones, will be fed theirs. This
 * hides the time between two steps and changes no result. A step that fills the context is not followed. Off
 * at first. */
void session_run_ahead(Session *session, bool run_ahead);
int32_t session_argmax(const Session *session, int64_t sequence);
MUST_USE Status session_fetch_logits(Session *session, int64_t sequence);
int64_t session_length(const Session *session, int64_t sequence);

/* Makes sequence `to` a copy of sequence `from`, logits included. */
MUST_USE Status session_copy(Session *session, int64_t to, int64_t from);
/* Makes all sequences empty, or one of them. */
void session_reset(Session *session);
void session_clear(Session *session, int64_t sequence);
/* Makes a sequence at most `length` tokens long. Its logits are undefined until it is fed. */
void session_truncate(Session *session, int64_t sequence, int64_t length);
int64_t session_context(const Session *session);

#endif
