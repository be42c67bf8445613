/* Records that are not written yet form one byte queue, so a record cut short by a full disk is completed by
 * the next write that succeeds. When the queue is full, new records are dropped. */
#include "train/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"
#include "base/memory.h"

enum { QUEUE_LIMIT = 16 << 20 };

struct LogFile {
    char *path;
    int fd;
    Progress *progress;
    char *queue;
    size_t size, capacity;
    int64_t dropped; /* records */
    bool failing;    /* since the last warning */
    bool moved;      /* the path no longer names this file */
};

Status log_file_new(LogFile **ret_file, const char *path, bool append, Progress *progress) {
    CLEANUP(log_file_freep) LogFile *file = NULL;
    TRY(mem_new(1, sizeof *file, &file));
    file->progress = progress;
    file->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | (append ? 0 : O_TRUNC), 0666);
    if (file->fd < 0) return FAILED("%s: cannot write: %s", path, strerror(errno));
    TRY(str_dup(path, &file->path));
    return MOVE(ret_file, file);
}

/* Returns 0 or the error's number. */
static int write_queue(LogFile *file) {
    size_t done = 0;
    int failed = 0;
    while (done < file->size && !failed) {
        ssize_t wrote = write(file->fd, file->queue + done, file->size - done);
        if (wrote >= 0)
            done += (size_t)wrote;
        else if (errno != EINTR)
            failed = errno;
    }
    memmove(file->queue, file->queue + done, file->size - done);
    file->size -= done;
    return failed;
}

static void report(LogFile *file, int failed) {
    if (failed && !file->failing && file->progress)
        progress_line(file->progress,
                      "warning: %s: cannot write: %s; training continues, and lines are kept in memory",
                      file->path, strerror(failed));
    if (!failed && file->failing && file->progress)
        progress_line(file->progress, "%s can be written again", file->path);
    file->failing = failed != 0;
}

/* Someone moved or deleted the file or its directory, and the writes go where no one looks. */
static void notice_move(LogFile *file) {
    struct stat open_file, named;
    if (file->moved || fstat(file->fd, &open_file) != 0) return;
    bool gone = stat(file->path, &named) != 0;
    file->moved = gone || open_file.st_dev != named.st_dev || open_file.st_ino != named.st_ino;
    if (file->moved && file->progress)
        progress_line(
            file->progress,
            "warning: %s was %s while the run writes to it; a new file starts at the next checkpoint",
            file->path, open_file.st_nlink ? "moved" : "deleted");
}

bool log_file_moved(const LogFile *file) {
    return file->moved;
}

void log_file_add(LogFile *file, const void *data, size_t size) {
    bool fits = file->size + size <= QUEUE_LIMIT;
    Status grown = fits ? mem_grow(&file->queue, &file->capacity, file->size + size, 1) : OK;
    if (!fits || grown) {
        file->dropped++;
        status_free(grown);
    } else {
        memcpy(file->queue + file->size, data, size);
        file->size += size;
    }
    report(file, write_queue(file));
    notice_move(file);
}

bool log_file_flush(LogFile *file) {
    if (file->size) report(file, write_queue(file));
    return !file->size;
}

void log_file_free(LogFile *file) {
    if (!file) return;
    log_file_flush(file);
    if ((file->size || file->dropped) && file->progress)
        progress_line(file->progress,
                      "warning: %s is incomplete: %zu bytes and %lld record%s were not written", file->path,
                      file->size, (long long)file->dropped, PLURAL(file->dropped));
    if (file->fd >= 0) close(file->fd);
    free(file->queue);
    free(file->path);
    free(file);
}
