#include "base/staging.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"

void staging_done(StagingDir *staging) {
    if (staging->path) {
        Status status = dir_remove(staging->path);
        status_free(status);
    }
    if (staging->lock >= 0) close(staging->lock);
    free(staging->path);
    free(staging->parent);
    free(staging->target);
}

Status staging_make(StagingDir *staging, const char *target) {
    TRY(str_dup(target, &staging->target));
    for (size_t n = strlen(target); n > 1 && staging->target[n - 1] == '/'; n--) staging->target[n - 1] = 0;
    const char *slash = strrchr(staging->target, '/');
    if (slash)
        TRY(str_format(&staging->parent, "%.*s",
                       slash == staging->target ? 1 : (int)(slash - staging->target), staging->target));
    else
        TRY(str_dup(".", &staging->parent));
    TRY(dir_make(staging->parent));
    TRY(path_clear_leftovers(staging->target));
    TRY(str_format(&staging->path, "%s.tmp.%ld", staging->target, (long)getpid()));
    TRY(dir_remove(staging->path)); /* of a killed process that had this one's id */
    TRY(dir_make(staging->path));
    staging->lock = path_hold(staging->path);
    return OK;
}

Status staging_commit(StagingDir *staging, bool exchange) {
    TRY(dir_sync(staging->path));
    unsigned flags = exchange ? RENAME_EXCHANGE : 0;
    if (renameat2(AT_FDCWD, staging->path, AT_FDCWD, staging->target, flags) != 0)
        return FAILED("%s: cannot be %s: %s", staging->target, exchange ? "replaced" : "created",
                      strerror(errno));
    if (!exchange) {
        free(staging->path);
        staging->path = NULL;
    }
    return dir_sync(staging->parent);
}

Status staging_merge(StagingDir *staging, const char *const *names, int count) {
    if (!path_exists(staging->target)) return staging_commit(staging, false);
    for (int i = 0; i < count; i++) {
        CLEANUP(mem_freep) char *from = NULL, *to = NULL;
        TRY(path_join(&from, staging->path, names[i]));
        TRY(path_join(&to, staging->target, names[i]));
        if (rename(from, to) != 0) return FAILED("%s: cannot be written: %s", to, strerror(errno));
    }
    return dir_sync(staging->target);
}
