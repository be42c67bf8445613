/* Sequences that grow: keys and values of all positions so far are cached, so that a new token costs one
 * position of work. Sequences of a session advance together and need not be equally long. */
#ifndef WEFT_INFER_SESSION_H
#define WEFT_INFER_SESSION_H

#include "infer/engine.h"

typedef struct Session Session;

/* Room for `batch` sequences of up to `context` positions. New tokens go through the model in chunks of
 * `chunk` positions, which bounds the memory a long prompt takes. The engine must outlive it. */
MUST_USE Status session_new(Session **ret_session, Engine *engine, int64_t batch, int64_t context,
                            int64_t chunk);
void session_free(Session *session);
DEFINE_FREEP(Session, session)

/* Bytes that the caches of one sequence take. */
size_t session_cache_bytes(const ModelConfig *config, int64_t context, DType dtype);

/* New tokens of one sequence. */
typedef struct Feed {
    const int32_t *ids;
    int64_t count;
} Feed;

/* Appends feed[b] to sequence b, for b below `count`; afterwards session_scores(b) are for the token that
 * follows. Those of a sequence that was fed nothing are undefined. */
MUST_USE Status session_feed(Session *session, const Feed *feed, int64_t count);
/* (V) scores, until the next session_feed. */
const float *session_scores(const Session *session, int64_t sequence);
/* From now on session_feed brings no scores to the host but only whose is the largest: session_best, the
 * lowest token among equals, or -1 where scores are not numbers or the largest is infinite. Then
 * session_scores(b) are there after session_fetch_scores(b) only. */
void session_want_best(Session *session);
int32_t session_best(const Session *session, int64_t sequence);
MUST_USE Status session_fetch_scores(Session *session, int64_t sequence);
int64_t session_length(const Session *session, int64_t sequence);

/* Makes sequence `to` a copy of sequence `from`, scores included. */
MUST_USE Status session_copy(Session *session, int64_t to, int64_t from);
/* All sequences are empty again. */
void session_reset(Session *session);

#endif
