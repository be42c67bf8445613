/* Downloads or copies a single file.
 *
 * NAME.part is the beginning of a file. NAME.part.json identifies the file: its URL, its length and the tag
 * (ETag or modification time) of this version. A new attempt requests the remaining bytes on condition that
 * the tag still matches. If the file has changed, or if the server does not support ranges, the server sends
 * the whole file and the part is discarded first. Two versions are therefore never mixed. Should it happen
 * anyway, the checksum catches it and the file is downloaded once more from the start. SHA-256 is computed as
 * bytes arrive. With a known checksum, another host may send the rest.
 *
 * Temporary failures are retried with exponential backoff. An attempt that made good progress resets the
 * failure count.
 */
#include "data/fetch_part.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/progress.h"

enum { CHUNK = 1 << 18, GOOD_PROGRESS = 1 << 20, RESTARTS = 2, CHECK_SHOWN = 256 << 20 };

typedef struct Part {
    const PartSpec *spec;
    char *path, *state; /* NAME.part, NAME.part.json */
    int fd;
    int64_t size, total; /* bytes in the part, and in the complete file; -1: not known */
    char tag[HTTP_TAG_SIZE];
    char reported[SHA256_TEXT]; /* SHA-256 reported by the server; empty: not reported */
    Sha256 hash;
    int64_t received; /* bytes received in this call */
    bool changed;     /* the server's file is not the one that the part belongs to */
    bool resumed;     /* the part was started by an earlier call or attempt */
    PartFailure why;  /* what a failure is due to */
    Progress *progress;
    double start;
    int64_t start_size;
} Part;

static void part_done(Part *part) {
    if (part->fd >= 0) close(part->fd);
    progress_free(part->progress);
    free(part->path);
    free(part->state);
}

static bool is_stopped(const FetchSpec *spec) {
    return spec->stop && *spec->stop;
}

/* Passes a status on; if it is a failure, no other source would help. */
static Status here(Part *part, Status status) {
    if (status) part->why = PART_HERE;
    return status;
}

static Status write_failed(const char *path, int error) {
    if (error == ENOSPC || error == EDQUOT) return FAILED("%s: the disk is full", path);
    return FAILED("%s: cannot write: %s", path, strerror(error));
}

/* ---- the part and its state ---- */

/* Discards everything received so far. */
static Status part_empty(Part *part) {
    if (ftruncate(part->fd, 0) != 0 || lseek(part->fd, 0, SEEK_SET) != 0)
        return write_failed(part->path, errno);
    unlink(part->state);
    part->size = 0;
    part->total = part->spec->file->size ? part->spec->file->size : -1;
    part->tag[0] = 0;
    part->resumed = false;
    part->received = 0;
    sha256_init(&part->hash);
    return OK;
}

/* Hashes the `size` bytes on disk, with a progress display if there are many. */
static Status part_rehash(Part *part, int64_t size) {
    const FetchSpec *fetch = part->spec->fetch;
    CLEANUP(mem_freep) unsigned char *buffer = NULL;
    CLEANUP(progress_freep) Progress *checking = NULL;
    TRY(mem_new(CHUNK, 1, &buffer));
    TRY(progress_new(&checking, fetch->log, "checking", size, 5, fetch->quiet || size < CHECK_SHOWN));
    while (part->size < size) {
        if (is_stopped(fetch)) return STOPPED("stopped by a signal");
        int64_t left = size - part->size;
        ssize_t got = read(part->fd, buffer, left < CHUNK ? (size_t)left : CHUNK);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return FAILED("%s: cannot read: %s", part->path, strerror(errno));
        if (got == 0) return FAILED("%s was truncated while it was being read", part->path);
        sha256_add(&part->hash, buffer, (size_t)got);
        part->size += got;
        progress_update(checking, part->size, part->path);
    }
    progress_end(checking);
    return OK;
}

/* Reads NAME.part.json; false if it is unusable or belongs to another file. */
static bool read_state(Part *part) {
    json_t *json = NULL;
    const char *from = NULL, *tag = NULL, *sha256 = NULL, *expected = part->spec->expected;
    int64_t total = -1;
    Status status = json_read_file(part->state, &json);
    if (!status) status = json_get_string(json, part->state, "from", &from);
    if (!status) status = json_get_string(json, part->state, "tag", &tag);
    if (!status) status = json_get_string(json, part->state, "sha256", &sha256);
    if (!status) status = json_get_int(json, part->state, "size", -1, PART_LIMIT, &total);
    bool same_url = !status && from && !strcmp(from, part->spec->from);
    bool same_sum = !status && sha256 && expected && !strcmp(sha256, expected);
    bool ours = (same_url || same_sum) && strlen(tag ? tag : "") < HTTP_TAG_SIZE;
    if (ours) {
        if (same_url) snprintf(part->tag, sizeof part->tag, "%s", tag ? tag : "");
        if (part->total < 0) part->total = total;
        ours = total < 0 || part->total == total;
    }
    status_free(status);
    json_decref(json);
    return ours;
}

static Status write_state(const Part *part) {
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:s, s:s, s:s?, s:I}", "from", part->spec->from, "tag", part->tag, "sha256",
                             part->spec->expected, "size", (json_int_t)part->total);
    if (!json) return FAILED("%s: the download state cannot be saved", part->path);
    return json_write_file(part->state, json);
}

/* Without a tag or a checksum, a changed file could not be detected. */
static bool can_resume(const Part *part) {
    return *part->tag || part->spec->expected;
}

static Status part_open(Part *part) {
    part->fd = open(part->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (part->fd < 0) return write_failed(part->path, errno);
    struct stat st;
    if (fstat(part->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return FAILED("%s: expected a regular file", part->path);
    bool known = part->spec->http && st.st_size > 0 && path_exists(part->state) && read_state(part);
    if (!known || !can_resume(part) || (part->total >= 0 && st.st_size > part->total))
        return part_empty(part);
    TRY(part_rehash(part, st.st_size));
    part->resumed = part->size > 0;
    return OK;
}

/* ---- receiving data ---- */

static void show(Part *part) {
    char here[FORMAT_SIZE], all[FORMAT_SIZE], rate[FORMAT_SIZE], note[4 * FORMAT_SIZE];
    double seconds = clock_wall() - part->start;
    format_bytes(here, (double)part->size);
    format_bytes(rate, seconds > 0 ? (double)(part->size - part->start_size) / seconds : 0);
    if (part->total > 0)
        snprintf(note, sizeof note, "%s of %s, %s/s", here, format_bytes(all, (double)part->total), rate);
    else
        snprintf(note, sizeof note, "%s, %s/s", here, rate);
    progress_total(part->progress, part->total > 0 ? part->total : 0);
    progress_update(part->progress, part->size, note);
}

/* Checks that the rest of the file fits on the disk. If the file system does not report free space, a full
 * disk shows up as a write error instead. */
static Status check_disk_space(const Part *part) {
    struct statvfs fs;
    char need[FORMAT_SIZE], space[FORMAT_SIZE];
    if (part->total < 0 || fstatvfs(part->fd, &fs) != 0) return OK;
    double left = (double)(part->total - part->size), here = (double)fs.f_bavail * (double)fs.f_frsize;
    if (left <= here) return OK;
    return FAILED("%s: needs %s more, but the disk has only %s free", part->spec->path,
                  format_bytes(need, left), format_bytes(space, here));
}

/* Sets the total length as reported by the server or the file system. */
static Status set_total(Part *part, int64_t total) {
    int64_t published = part->spec->file->size;
    if (published && total >= 0 && total != published)
        return FAILED("%s has %lld bytes, but the published file has %lld", part->spec->from,
                      (long long)total, (long long)published);
    if (total > PART_LIMIT)
        return FAILED("%s has %lld bytes, more than any file expected here", part->spec->from,
                      (long long)total);
    if (total >= 0) part->total = total;
    return here(part, check_disk_space(part));
}

static Status on_begin(void *user, const HttpResponse *response) {
    Part *part = user;
    if (response->from == 0 && part->size > 0) TRY(here(part, part_empty(part)));
    if (response->from > 0) {
        bool resized = part->total >= 0 && response->total >= 0 && part->total != response->total;
        bool renamed = *part->tag && *response->tag && strcmp(part->tag, response->tag) != 0;
        part->changed = resized || renamed;
        if (part->changed) return FAILED("%s: changed during the download", part->spec->from);
        part->resumed = true;
    }
    memcpy(part->tag, response->tag, sizeof part->tag);
    memcpy(part->reported, response->sha256, sizeof part->reported);
    TRY(set_total(part, response->total));
    return here(part, write_state(part));
}

static Status on_data(void *user, const void *data, size_t size) {
    Part *part = user;
    int64_t limit = part->total >= 0 ? part->total : part->spec->limit;
    if ((int64_t)size > limit - part->size) {
        TRY(here(part, part_empty(part)));
        return FAILED("%s: longer than the expected %lld bytes", part->spec->from, (long long)limit);
    }
    for (const unsigned char *from = data; size > 0;) {
        ssize_t wrote = write(part->fd, from, size);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return here(part, write_failed(part->path, errno));
        sha256_add(&part->hash, from, (size_t)wrote);
        part->size += wrote;
        part->received += wrote;
        from += wrote;
        size -= (size_t)wrote;
    }
    show(part);
    return OK;
}

/* ---- attempts ---- */

/* Whether there is nothing left to request. */
static bool is_complete(const Part *part) {
    return part->total > 0 && part->size == part->total;
}

static Status attempt(Part *part, HttpOutcome *outcome) {
    const PartSpec *spec = part->spec;
    HttpRequest request = {.url = spec->from,
                           .from = part->size,
                           .timeout_s = spec->fetch->timeout_s,
                           .stop = spec->fetch->stop,
                           .begin = on_begin,
                           .data = on_data,
                           .user = part};
    char tag[HTTP_TAG_SIZE]; /* on_begin overwrites part->tag */
    memcpy(tag, part->tag, sizeof tag);
    request.tag = tag;
    TRY(http_get(spec->http, &request, outcome));
    if (part->total >= 0 && part->size < part->total) {
        outcome->retry = true; /* the connection broke, and the server had not sent a length */
        return FAILED("%s: transfer ended after %lld of %lld bytes", spec->from, (long long)part->size,
                      (long long)part->total);
    }
    return OK;
}

static Status back_off(const Part *part, int failures) {
    double seconds = part->spec->fetch->backoff_s;
    for (int i = 1; i < failures && seconds < 60; i++) seconds *= 2;
    for (double end = clock_wall() + seconds; clock_wall() < end; usleep(20000))
        if (is_stopped(part->spec->fetch)) return STOPPED("stopped by a signal");
    return OK;
}

static PartFailure why_failed(const Part *part, const HttpOutcome *outcome) {
    if (is_stopped(part->spec->fetch)) return PART_HERE;
    if (outcome->response.status == 404 || outcome->response.status == 410) return PART_ABSENT;
    return outcome->retry ? PART_TEMPORARY : part->why;
}

static Status download(Part *part) {
    for (int failures = 0, restarts = 0; !is_complete(part);) {
        HttpOutcome outcome;
        if (part->size > 0 && !can_resume(part)) TRY(part_empty(part));
        int64_t before = part->size;
        part->changed = false;
        Status status = attempt(part, &outcome);
        if (!status) return OK;
        bool restart = part->changed || (outcome.response.status == 416 && before > 0);
        if (restart) {
            CLEANUP(status_freep) Status emptied = part_empty(part);
            if (emptied || restarts++ == RESTARTS) return status;
            status_free(status);
            continue;
        }
        part->why = why_failed(part, &outcome);
        if (part->why != PART_TEMPORARY) return status;
        failures = part->size - before >= GOOD_PROGRESS ? 1 : failures + 1;
        if (failures > part->spec->retries) return status;
        progress_line(part->progress, "%s; retrying", status_message(status));
        status_free(status);
        TRY(here(part, back_off(part, failures)));
        part->why = PART_REFUSED;
    }
    return OK;
}

static Status copy(Part *part) {
    const char *from = part->spec->from;
    CLEANUP(mem_freep) unsigned char *buffer = NULL;
    TRY(mem_new(CHUNK, 1, &buffer));
    CLEANUP(fd_closep) int fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        if (errno == ENOENT || errno == ENOTDIR) part->why = PART_ABSENT;
        return FAILED("%s: cannot open: %s", from, strerror(errno));
    }
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return FAILED("%s: expected a regular file", from);
    TRY(set_total(part, st.st_size));
    for (;;) {
        if (is_stopped(part->spec->fetch)) return here(part, STOPPED("stopped by a signal"));
        ssize_t got = read(fd, buffer, CHUNK);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return FAILED("%s: cannot read: %s", from, strerror(errno));
        if (got == 0) break;
        TRY(on_data(part, buffer, (size_t)got));
    }
    if (part->size != part->total) return FAILED("%s was truncated while it was being copied", from);
    return OK;
}

static Status fetch_once(Part *part) {
    return part->spec->http ? download(part) : copy(part);
}

/* ---- the complete file ---- */

static Status wrong_checksum(const PartSpec *spec, const char *sum, const char *expected) {
    if (!spec->expected)
        return FAILED("%s: does not match the checksum that the server reports: SHA-256 is %s instead of %s",
                      spec->from, sum, expected);
    if (spec->recorded)
        return FAILED("%s: not the same file as on the first download: SHA-256 is %s and was %s; to accept "
                      "it, remove fetched.json next to %s",
                      spec->from, sum, expected, spec->path);
    return FAILED("%s: not the published file: SHA-256 is %s instead of %s", spec->from, sum, expected);
}

/* Fetches the file and checks its SHA-256. A mismatch in a file assembled from several attempts is retried
 * once, from the start. */
static Status fetch_verified(Part *part, char sum[SHA256_TEXT]) {
    for (bool last = false;; last = true) {
        TRY(fetch_once(part));
        sha256_text(&part->hash, sum);
        const char *expected = part->spec->expected ? part->spec->expected : part->reported;
        if (!*expected || !strcmp(sum, expected)) return OK;
        bool resumed = part->resumed;
        TRY(here(part, part_empty(part)));
        if (!resumed || last) return wrong_checksum(part->spec, sum, expected);
        progress_line(part->progress, "%s: the parts do not match; downloading the whole file again",
                      part->spec->from);
    }
}

static Status sync_parent(const char *path) {
    CLEANUP(mem_freep) char *copied = NULL;
    TRY(str_dup(path, &copied));
    return dir_sync(dirname(copied));
}

static Status commit(Part *part) {
    if (fsync(part->fd) != 0) return write_failed(part->path, errno);
    if (rename(part->path, part->spec->path) != 0)
        return FAILED("%s: cannot rename: %s", part->path, strerror(errno));
    unlink(part->state);
    return sync_parent(part->spec->path);
}

/* Removes a part that no later call could resume. */
static void remove_unusable(const Part *part) {
    if (part->fd < 0 || (part->size > 0 && part->spec->http)) return;
    unlink(part->path);
    unlink(part->state);
}

static FetchProof part_proof(const Part *part) {
    if (part->spec->expected) return part->spec->recorded ? FETCH_RECORDED : FETCH_PUBLISHED;
    return *part->reported ? FETCH_STATED : FETCH_FIRST;
}

static Status run(Part *part, FetchedFile *file) {
    const PartSpec *spec = part->spec;
    TRY(str_format(&part->path, "%s.part", spec->path));
    TRY(str_format(&part->state, "%s.part.json", spec->path));
    TRY(progress_new(&part->progress, spec->fetch->log, spec->file->name, 0, 5, spec->fetch->quiet));
    TRY(part_open(part));
    part->start = clock_wall();
    part->start_size = part->size;
    part->why = PART_REFUSED;
    TRY(fetch_verified(part, file->sha256));
    TRY(here(part, commit(part)));
    progress_end(part->progress);
    file->size = part->size;
    file->received = part->received;
    file->proof = part_proof(part);
    return OK;
}

Status part_fetch(const PartSpec *spec, FetchedFile *ret_file, PartFailure *ret_why) {
    CLEANUP(part_done)
    Part part = {.spec = spec, .fd = -1, .total = spec->file->size ? spec->file->size : -1};
    sha256_init(&part.hash);
    Status status = run(&part, ret_file);
    if (status) remove_unusable(&part);
    *ret_why = part.why;
    return status;
}

Status part_resumable(const char *path, Status failure) {
    char part[PATH_MAX], state[PATH_MAX], size[FORMAT_SIZE];
    struct stat st;
    snprintf(part, sizeof part, "%s.part", path);
    snprintf(state, sizeof state, "%s.part.json", path);
    if (stat(part, &st) != 0 || !st.st_size || !path_exists(state)) return failure;
    CLEANUP(status_freep) Status cause = failure;
    return status_new(
        status_kind(cause), __FILE__, __LINE__,
        "%s; the %s received so far are kept, and running the same command again resumes the download",
        status_message(cause), format_bytes(size, (double)st.st_size));
}

Status part_sum(const FetchSpec *spec, const char *path, int64_t *ret_size, char ret_text[SHA256_TEXT]) {
    PartSpec no_transfer = {.fetch = spec};
    CLEANUP(part_done)
    Part part = {.spec = &no_transfer, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    TRY(str_dup(path, &part.path));
    struct stat st;
    if (part.fd < 0) return FAILED("%s: cannot open: %s", path, strerror(errno));
    if (fstat(part.fd, &st) != 0 || !S_ISREG(st.st_mode)) return FAILED("%s: expected a regular file", path);
    sha256_init(&part.hash);
    TRY(part_rehash(&part, st.st_size));
    sha256_text(&part.hash, ret_text);
    *ret_size = part.size;
    return OK;
}
