/* Saving checkpoints while training continues.
 *
 * background_begin creates the files and starts copying this rank's part of the values to host memory
 * (snapshot.h), and a thread writes and syncs it. The values must not change before background_copied
 * returns. Once the threads of all ranks are done, the ranks combine their checksums, and a thread of the
 * first rank writes the rest, renames the directory and moves `latest`. Threads neither communicate nor use
 * the device; the ranks agree in background_advance, which the caller calls on all of them when it knows,
 * from a vote of its own, that no rank is busy. A single rank does everything in one go. Threads write at low
 * priority; a caller that waits for one takes over its work.
 *
 * If only rank 0 has the directory (root_disk.h), threads of other ranks fill a buffer at a time, and each
 * background_advance sends all buffers to rank 0 (collect.h), whose thread writes them.
 *
 * The files are those of ckpt_save, byte for byte. A run that is killed before the directory is renamed
 * resumes from the checkpoint before.
 */
#ifndef WEFT_CHECKPOINT_BACKGROUND_H
#define WEFT_CHECKPOINT_BACKGROUND_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/snapshot.h"

typedef struct Background Background;

/* Takes over the snapshot, whose memory is allocated. `stream` computes the values; mesh NULL: one rank;
 * `disk`: only rank 0 has the directory, else NULL. Collective. */
MUST_USE Status background_new(Background **ret_background, Snapshot *snapshot, Stream *stream, Mesh *mesh,
                               const RootDisk *disk);
/* A single rank completes a pending save first; several abandon it, since they cannot agree any more. */
void background_free(Background *background);
DEFINE_FREEP(Background, background)

/* Starts to save; arguments as in ckpt_save. None may be pending. `progress` is copied; the rest of the state
 * must outlive the save. Collective. */
MUST_USE Status background_begin(Background *background, const char *run_dir, int64_t step,
                                 const CheckpointState *state, int keep);
/* After a failure: saves the same values once more. Collective. */
MUST_USE Status background_retry(Background *background);
/* Waits until the values are copied. Call it on each rank before they change. */
MUST_USE Status background_copied(Background *background);

/* The step being saved; 0: none is pending. */
int64_t background_pending(const Background *background);
/* Whether a thread of this rank is at work. Call it now and then: if the thread is late, another one, of
 * normal priority, takes its place. */
bool background_busy(Background *background);
/* Continues a pending save. It is done, or has failed, when none is pending any more. Completes what this
 * rank's thread does. Collective; all ranks return the same outcome. */
MUST_USE Status background_advance(Background *background);
/* Completes a pending save, if any. Collective; all ranks return the same outcome. */
MUST_USE Status background_wait(Background *background);

#endif
