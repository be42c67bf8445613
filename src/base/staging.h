/* A directory that appears complete or not at all.
 *
 * Its files are written to "TARGET.tmp.PID" next to it, which is renamed at the end. The temporary directory
 * is locked while its process lives, so the next one can recognize and remove what a killed process left
 * behind.
 */
#ifndef WEFT_BASE_STAGING_H
#define WEFT_BASE_STAGING_H

#include "base/status.h"

typedef struct StagingDir {
    char *target, *parent; /* for "a/b": "a/b" and "a" */
    char *path;            /* the temporary directory; NULL: not created yet, or already renamed */
    int lock;
} StagingDir;

#define STAGING_NONE ((StagingDir){.lock = -1})

/* Creates the temporary directory. */
MUST_USE Status staging_make(StagingDir *staging, const char *target);
/* Renames it to the target, which must be absent or empty or, with `exchange`, is replaced. */
MUST_USE Status staging_commit(StagingDir *staging, bool exchange);
/* Like staging_commit, but moves the files into the target if it exists, and keeps its other files. */
MUST_USE Status staging_merge(StagingDir *staging, const char *const *names, int count);
/* Removes the temporary directory unless it was renamed. */
void staging_done(StagingDir *staging);

#endif
