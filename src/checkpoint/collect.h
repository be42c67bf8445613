/* Sending what ranks write to rank 0, which alone has the files (root_disk.h).
 *
 * Each rank writes its parts of the files as usual, but elsewhere than on rank 0 the bytes go to a buffer,
 * with their place in the files. In rounds, which are collective, all ranks send their buffers to rank 0,
 * which writes them. A rank that is done or has failed takes part until all are done, or one has failed. The
 * buffers have a fixed size, so the memory does not depend on the model's size. Senders compute the checksums
 * of what they send.
 */
#ifndef WEFT_CHECKPOINT_COLLECT_H
#define WEFT_CHECKPOINT_COLLECT_H

#include "checkpoint/root_disk.h"
#include "checkpoint/snapshot.h"

typedef struct Collector Collector;

/* How this rank takes part in a round: it calls collector_round, or lets another thread do so and waits. */
typedef Status (*RoundFunc)(void *context);

/* `bytes`: what this rank writes to all files together. Collective. */
MUST_USE Status collector_new(Collector **ret_collector, const RootDisk *disk, size_t bytes);
void collector_free(Collector *collector);
DEFINE_FREEP(Collector, collector)

/* Begins to collect what is written to the list's files, which rank 0 has created. */
void collector_begin(Collector *collector, SaveList *list, RoundFunc round, void *context);
/* The same; this thread takes part in the rounds. */
void collector_begin_here(Collector *collector, SaveList *list);
/* Call this after writing `bytes` bytes; rank 0 then takes part in rounds now and then. */
MUST_USE Status collector_wrote(Collector *collector, int64_t bytes);
/* Call this after the last write, with its outcome: takes part in rounds until all ranks are done. A failure
 * that was caused by another rank's is not returned. */
MUST_USE Status collector_end(Collector *collector, Status status);

/* Exchanges the buffers of all ranks. Collective. */
MUST_USE Status collector_round(Collector *collector);
/* Whether the last round is over. */
bool collector_over(const Collector *collector);
/* Makes the next round the last one, because this rank cannot write. */
void collector_fail(Collector *collector);
/* There are no further rounds, because a round has failed. */
void collector_abandon(Collector *collector);

#endif
