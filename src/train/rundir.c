/* The lock is a flock on the directory itself: it needs no lock file and is released when the process ends.
 */
#include "train/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "train/events.h"
#include "train/log_file.h"
#include "train/run_summary.h"

enum { WAIT_US = 20000, WAIT_LIMIT_US = 5000000 };

struct RunDir {
    char *path;
    int lock;
    json_t *config; /* as written */
    LogFile *metrics;
    Events *events;
    Progress *progress;
};

/* Start of the name of the file by which ranks recognize a shared directory. */
#define SHARED_TOKEN ".shared-"

enum { METRICS_LIMIT = 1 << 30 };

/* Moves the complete lines up to `step` to the beginning and returns their size. *ret_first: the size of
 * those that were there already. */
static size_t keep_lines(char *text, size_t size, int64_t step, size_t *ret_first) {
    size_t kept = 0;
    *ret_first = 0;
    for (char *line = text, *end; (end = memchr(line, '\n', size - (size_t)(line - text))); line = end + 1) {
        CLEANUP(json_decrefp) json_t *entry = json_loadb(line, (size_t)(end - line), 0, NULL);
        const json_t *at = json_object_get(entry, "step");
        if (!json_is_integer(at) || json_integer_value(at) > step) continue;
        size_t length = (size_t)(end - line) + 1;
        if (line == text + kept) *ret_first += length;
        memmove(text + kept, line, length);
        kept += length;
    }
    return kept;
}

/* Drops the metrics of later steps and a line cut short when the process was killed. They are usually at the
 * end of the file, which can be truncated even if the disk is full. */
static Status trim_metrics(const char *path, int64_t step) {
    if (!path_exists(path)) return OK;
    CLEANUP(mem_freep) char *text = NULL;
    size_t size, first;
    TRY(file_read(path, METRICS_LIMIT, &text, &size));
    size_t kept = keep_lines(text, size, step, &first);
    if (kept > first) return file_replace(path, text, kept);
    if (kept < size && truncate(path, (off_t)kept) != 0)
        return FAILED("%s: cannot write: %s", path, strerror(errno));
    return OK;
}

bool rundir_is_config(const json_t *config) {
    bool length = json_object_get(config, "steps") || json_object_get(config, "epochs");
    return length && json_object_get(config, "data");
}

static bool is_run_config(const char *path) {
    json_t *json = NULL;
    Status status = json_read_file(path, &json);
    bool is_run = !status && rundir_is_config(json);
    status_free(status);
    json_decref(json);
    return is_run;
}

/* A report reads a directory as one or the other, so that a run must not start in that of a comparison. */
static Status refuse_comparison(const char *path) {
    CLEANUP(mem_freep) char *results = NULL;
    bool run;
    TRY(path_join(&results, path, "results.json"));
    TRY(rundir_has_run(path, &run));
    return run || !path_exists(results) ? OK : USAGE("%s contains a comparison; choose another {out}", path);
}

static bool is_real_dir(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The first checkpoint could not be saved if the links to checkpoints were directories. */
static Status refuse_copied_links(const char *path) {
    CLEANUP(mem_freep) char *latest = NULL, *best = NULL;
    TRY(path_join(&latest, path, "latest"));
    TRY(path_join(&best, path, "best"));
    bool bad_latest = is_real_dir(latest), bad_best = is_real_dir(best);
    if (!bad_latest && !bad_best) return OK;
    return USAGE("%s has a directory instead of a link to a checkpoint, as in a copy that followed links; "
                 "remove %s%s%s, then resume",
                 path, bad_latest ? latest : best, bad_latest && bad_best ? " and " : "",
                 bad_latest && bad_best ? best : "");
}

/* Refuses a directory that is not a run's, and removes temporary files left by a killed run. */
static Status inspect(const char *path) {
    CLEANUP(mem_freep) char *config = NULL;
    TRY(path_join(&config, path, "config.json"));
    if (path_exists(config) && !is_run_config(config))
        return USAGE("%s contains a config.json that is not from a weft run; choose another {out}", path);
    TRY(refuse_comparison(path));
    TRY(refuse_copied_links(path));
    DIR *dir = opendir(path);
    if (!dir) return FAILED("%s: cannot read directory: %s", path, strerror(errno));
    Status status = OK;
    for (struct dirent *entry; !status && (entry = readdir(dir));) {
        const char *name = entry->d_name;
        if (!strstr(name, ".json.tmp.") && !strstr(name, ".jsonl.tmp.") &&
            strncmp(name, SHARED_TOKEN, strlen(SHARED_TOKEN)))
            continue;
        CLEANUP(mem_freep) char *leftover = NULL;
        status = path_join(&leftover, path, entry->d_name);
        if (!status) status = dir_remove(leftover);
    }
    closedir(dir);
    return status;
}

/* A killed process keeps its lock until its memory is freed, which takes a while if there is much of it, so
 * that a run that is resumed at once may have to wait. */
static Status lock_dir(RunDir *dir) {
    dir->lock = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->lock < 0) return FAILED("%s: cannot open directory: %s", dir->path, strerror(errno));
    for (int waited = 0; flock(dir->lock, LOCK_EX | LOCK_NB) != 0; waited += WAIT_US) {
        if (errno != EWOULDBLOCK) return OK; /* the file system has no locks */
        if (waited >= WAIT_LIMIT_US) return FAILED("%s: this run is in use by another process", dir->path);
        usleep(WAIT_US);
    }
    return OK;
}

Status rundir_open(RunDir **ret_dir, const char *path) {
    CLEANUP(rundir_freep) RunDir *dir = NULL;
    TRY(mem_new(1, sizeof *dir, &dir));
    dir->lock = -1;
    if (path) {
        TRY(str_dup(path, &dir->path));
        TRY(dir_make(path));
        TRY(lock_dir(dir));
        TRY(inspect(path));
    }
    return MOVE(ret_dir, dir);
}

/* ---- shared by all ranks ---- */

/* A file that appears on another host may take a moment on a network file system. */
static bool appears(const char *path) {
    enum { TRIES = 30 };
    const struct timespec pause = {.tv_nsec = 100000000};
    for (int i = 0; i < TRIES; i++) {
        if (path_exists(path)) return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

/* "node2 and node3", each host once; `blind` tells which ranks count. */
static void name_hosts(Group *world, const int64_t *blind, char *text, size_t size) {
    size_t used = 0;
    for (int r = 0, named = 0; r < world->size; r++) {
        char host[HOST_SIZE], other[HOST_SIZE];
        bool before = false, after = false;
        group_host(world, r, host);
        for (int s = 0; s < world->size; s++) {
            bool same = !strcmp(host, group_host(world, s, other));
            before |= blind[s] && s < r && same;
            after |= blind[s] && s > r && !same;
        }
        if (!blind[r] || before || used >= size) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", named ? after ? ", " : " and " : "", host);
        named++;
    }
}

Status rundir_check_shared(const char *path, Group *world) {
    uint64_t number = 0;
    CLEANUP(mem_freep) char *name = NULL, *token = NULL;
    CLEANUP(mem_freep) int64_t *blind = NULL;
    if (!path || world->size == 1) return OK;
    if (world->rank == 0 && getrandom(&number, sizeof number, 0) != sizeof number)
        number = (uint64_t)getpid();
    TRY(host_broadcast(world, &number, sizeof number, 0));
    TRY(str_format(&name, SHARED_TOKEN "%016llx", (unsigned long long)number));
    TRY(path_join(&token, path, name));
    if (world->rank == 0) TRY(file_replace(token, "", 0));
    TRY(barrier(world));
    int64_t own = !appears(token);
    TRY(mem_new((size_t)world->size, sizeof *blind, &blind));
    TRY(host_gather(world, blind, &own, sizeof own));
    if (world->rank == 0) unlink(token);
    int64_t count = 0;
    for (int r = 0; r < world->size; r++) count += blind[r];
    if (!count) return OK;
    char first[HOST_SIZE], others[512] = "";
    name_hosts(world, blind, others, sizeof others);
    return USAGE("{out} %s is not shared by all hosts: what rank 0 writes there on %s does not appear on %s; "
                 "add {gather-checkpoints} to save on %s only, or choose a directory that all hosts mount",
                 path, group_host(world, 0, first), others, first);
}

/* Opens the metrics and a new event file. On failure, those that were open stay. */
static Status open_logs(RunDir *dir, int64_t step) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(log_file_freep) LogFile *metrics = NULL;
    CLEANUP(events_freep) Events *events = NULL;
    TRY(path_join(&path, dir->path, "metrics.jsonl"));
    if (dir->metrics && !log_file_flush(dir->metrics)) return FAILED("%s: cannot write", path);
    TRY(events_new(&events, dir->path, step, dir->progress));
    CLEANUP(status_freep) Status kept = step > 0 ? trim_metrics(path, step) : OK;
    if (kept)
        progress_line(dir->progress, "warning: %s; the metrics of steps after %lld are not removed",
                      status_message(kept), (long long)step);
    TRY(log_file_new(&metrics, path, step > 0, dir->progress));
    log_file_free(dir->metrics);
    events_free(dir->events);
    dir->metrics = metrics;
    dir->events = events;
    metrics = NULL;
    events = NULL;
    return OK;
}

void rundir_rewind(RunDir *dir, int64_t step) {
    if (!dir->path) return;
    CLEANUP(status_freep) Status status = open_logs(dir, step);
    if (status) progress_line(dir->progress, "warning: %s", status_message(status));
}

static Status config_path(const RunDir *dir, char **ret_path) {
    return path_join(ret_path, dir->path, "config.json");
}

static Status write_config(const RunDir *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(config_path(dir, &path));
    return json_write_file(path, dir->config);
}

static bool has_config(const RunDir *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(status_freep) Status failed = config_path(dir, &path);
    return path && path_exists(path);
}

/* A run that resumes has its files already, so that it continues if they cannot be written. */
static Status tolerate(const RunDir *dir, int64_t step, Status status) {
    if (!status || !step || !has_config(dir)) return status;
    progress_line(dir->progress, "warning: %s; training continues", status_message(status));
    status_free(status);
    return OK;
}

Status rundir_begin(RunDir *dir, const json_t *config, int64_t step, Progress *progress) {
    if (!dir->path) return OK;
    dir->config = json_incref((json_t *)(uintptr_t)config);
    dir->progress = progress;
    TRY(tolerate(dir, step, write_config(dir)));
    return tolerate(dir, step, open_logs(dir, step));
}

static bool was_moved(const RunDir *dir) {
    struct stat held, named;
    if (fstat(dir->lock, &held) != 0) return dir->lock < 0;
    return stat(dir->path, &named) != 0 || held.st_dev != named.st_dev || held.st_ino != named.st_ino;
}

static Status make_again(RunDir *dir) {
    progress_line(dir->progress, "warning: %s was moved or deleted; an empty directory takes its place",
                  dir->path);
    TRY(dir_make(dir->path));
    close(dir->lock);
    TRY(lock_dir(dir));
    return write_config(dir);
}

void rundir_restore(RunDir *dir, int64_t step) {
    if (!dir->path || !dir->config) return;
    bool moved = was_moved(dir), bare = !has_config(dir); /* what it contained may be deleted, too */
    if (dir->metrics)
        log_file_flush(dir->metrics); /* a run that resumes from the checkpoint does not repeat it */
    bool open = dir->metrics && !log_file_moved(dir->metrics);
    if (!moved && !bare && open) return;
    Status status = moved ? make_again(dir) : bare ? write_config(dir) : OK;
    if (!status && (moved || !open)) status = open_logs(dir, step);
    if (status) progress_line(dir->progress, "warning: %s", status_message(status));
    status_free(status);
}

void rundir_free(RunDir *dir) {
    if (!dir) return;
    log_file_free(dir->metrics);
    events_free(dir->events);
    json_decref(dir->config);
    if (dir->lock >= 0) close(dir->lock);
    free(dir->path);
    free(dir);
}

Status rundir_metrics(RunDir *dir, json_t *line) {
    CLEANUP(json_decrefp) json_t *owned = line;
    if (!dir->metrics) return OK;
    CLEANUP(mem_freep) char *text = json_serialize(owned, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (!text) return FAILED("%s: cannot encode a line of metrics", dir->path);
    size_t length = strlen(text);
    text[length] = '\n'; /* in place of the NUL */
    log_file_add(dir->metrics, text, length + 1);
    return events_add(dir->events, owned);
}

Status rundir_summary(RunDir *dir, const json_t *summary) {
    return dir->path ? run_summary_write(dir->path, summary) : OK;
}

Status rundir_has_run(const char *path, bool *ret_run) {
    CLEANUP(mem_freep) char *metrics = NULL, *summary = NULL;
    TRY(path_join(&metrics, path, "metrics.jsonl"));
    TRY(path_join(&summary, path, RUN_SUMMARY_FILE));
    *ret_run = path_exists(metrics) || path_exists(summary);
    return OK;
}

/* Reads the kernel's list of locks: taking the lock to test it could make a run that is starting fail. */
bool rundir_held(const char *path) {
    struct stat info;
    char *line = NULL;
    size_t capacity = 0;
    bool held = false;
    FILE *locks = stat(path, &info) == 0 ? fopen("/proc/locks", "re") : NULL;
    if (!locks) return false;
    while (!held && getline(&line, &capacity, locks) > 0) {
        const char *at = strstr(line, " FLOCK ");
        unsigned long long inode = 0;
        held = at && sscanf(at, " FLOCK %*s %*s %*d %*x:%*x:%llu", &inode) == 1 && inode == info.st_ino;
    }
    free(line);
    fclose(locks);
    return held;
}

bool rundir_stays_held(const char *path) {
    for (int waited = 0; rundir_held(path); waited += WAIT_US) {
        if (waited >= WAIT_LIMIT_US) return true;
        usleep(WAIT_US);
    }
    return false;
}
