/* Polls a run directory. metrics.jsonl is read incrementally from the offset of the last poll; an incomplete
 * line is buffered until its end arrives. A file that was replaced or has shrunk is read again from the
 * start. */
#include "report/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "report/watch_internal.h"
#include "tokenizer/tokenizer.h"
#include "train/rundir.h"

/* An unlocked run that has written nothing for this long is considered dead. */
#define LOST_NS ((int64_t)20 * 1000000000)
enum { CHUNK = 1 << 16, RECENT = 20 /* steps that the remaining time is estimated from */ };

/* ---- the run directory ---- */

/* Replaces *ret_object by the JSON object in a file, or by NULL if the file is missing or damaged. *ret_wrong
 * says why it is damaged, else it is NULL. */
static Status read_object(const char *dir, const char *name, json_t **ret_object, char **ret_wrong) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(path_join(&path, dir, name));
    CLEANUP(status_freep) Status unread = path_exists(path) ? json_read_file(path, &json) : OK;
    json_decref(*ret_object);
    *ret_object = json_is_object(json) ? json_incref(json) : NULL;
    free(*ret_wrong);
    *ret_wrong = NULL;
    if (unread) return str_dup(status_message(unread), ret_wrong);
    if (json && !*ret_object) return str_format(ret_wrong, "%s: expected a JSON object", path);
    return OK;
}

static int64_t written_ns(const char *dir, const char *name) {
    char path[4096];
    struct stat info;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path || stat(path, &info) != 0)
        return 0;
    return (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static Status name_of(const char *path, char **ret_name) {
    size_t length = strlen(path), size;
    while (length > 1 && path[length - 1] == '/') length--;
    return text_to_utf8(path, length, ret_name, &size);
}

Status watch_new(Watch **ret_watch, const char *dir) {
    CLEANUP(watch_freep) Watch *watch = NULL;
    CLEANUP(mem_freep) char *comparison = NULL;
    bool news;
    if (!path_exists(dir)) return USAGE("%s: no such directory", dir);
    if (!path_is_dir(dir)) return USAGE("%s: not a run directory", dir);
    TRY(path_join(&comparison, dir, "results.json"));
    if (path_exists(comparison))
        return USAGE("%s: contains a comparison; name the directory of one of its runs", dir);
    TRY(mem_new(1, sizeof *watch, &watch));
    TRY(str_dup(dir, &watch->dir));
    TRY(name_of(dir, &watch->name));
    TRY(path_join(&watch->metrics, dir, "metrics.jsonl"));
    watch->lowest = INFINITY;
    watch->summary = run_summary_take(NULL);
    if (!path_exists(watch->metrics) && !rundir_held(dir))
        return USAGE("%s: contains no run: there is no metrics.jsonl, and no process is training there", dir);
    TRY(watch_look(watch, &news));
    *ret_watch = watch;
    watch = NULL;
    return OK;
}

static void reset(Watch *watch) {
    Curve *const curves[] = {&watch->loss, &watch->val_loss, &watch->rate, &watch->step_ms};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) curves[i]->count = 0;
    json_decref(watch->last);
    watch->last = NULL;
    watch->lowest = INFINITY;
    watch->bad = watch->rest_size = 0;
    watch->offset = 0;
}

void watch_free(Watch *watch) {
    if (!watch) return;
    Curve *const curves[] = {&watch->loss, &watch->val_loss, &watch->rate, &watch->step_ms};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) curve_done(curves[i]);
    json_decref(watch->config);
    run_summary_done(&watch->summary);
    json_decref(watch->last);
    free(watch->dir);
    free(watch->name);
    free(watch->metrics);
    free(watch->rest);
    free(watch->config_wrong);
    free(watch->summary_wrong);
    free(watch);
}

/* ---- metrics ---- */

static Status add_if(Curve *curve, double step, double value) {
    return isfinite(value) ? curve_add(curve, step, value) : OK;
}

/* Drops values from `step` on: a run that was resumed or restarted repeats steps. */
static void drop_from(Watch *watch, double step) {
    Curve *const curves[] = {&watch->loss, &watch->val_loss, &watch->rate, &watch->step_ms};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        while (curves[i]->count && curves[i]->step[curves[i]->count - 1] >= step) curves[i]->count--;
    watch->lowest = INFINITY;
    for (size_t i = 0; i < watch->loss.count; i++) watch->lowest = fmin(watch->lowest, watch->loss.value[i]);
}

static Status take_line(Watch *watch, const char *line, size_t size) {
    CLEANUP(json_decrefp) json_t *entry = json_loadb(line, size, 0, NULL);
    double step = json_number_or(entry, "step", NAN), loss = json_number_or(entry, "loss", NAN);
    if (!isfinite(step)) {
        watch->bad += size > 0;
        return OK;
    }
    if (!isfinite(loss)) return add_if(&watch->val_loss, step, json_number_or(entry, "val_loss", NAN));
    if (watch->loss.count && step <= watch->loss.step[watch->loss.count - 1]) drop_from(watch, step);
    TRY(curve_add(&watch->loss, step, loss));
    TRY(add_if(&watch->rate, step, json_number_or(entry, "tokens_per_s", NAN)));
    TRY(add_if(&watch->step_ms, step, json_number_or(entry, "step_ms", NAN)));
    watch->lowest = fmin(watch->lowest, loss);
    json_decref(watch->last);
    watch->last = json_incref(entry);
    return OK;
}

/* Appends to the buffered incomplete line. */
static Status buffer(Watch *watch, const char *text, size_t size) {
    TRY(mem_grow(&watch->rest, &watch->rest_capacity, watch->rest_size + size + 1, 1));
    memcpy(watch->rest + watch->rest_size, text, size);
    watch->rest_size += size;
    return OK;
}

static Status take(Watch *watch, const char *text, size_t size) {
    for (const char *end; size && (end = memchr(text, '\n', size));) {
        size_t length = (size_t)(end - text);
        TRY(buffer(watch, text, length));
        TRY(take_line(watch, watch->rest, watch->rest_size));
        watch->rest_size = 0;
        size -= length + 1;
        text = end + 1;
    }
    return size ? buffer(watch, text, size) : OK;
}

static Status read_from(Watch *watch, int file) {
    char text[CHUNK];
    for (;;) {
        ssize_t got = pread(file, text, sizeof text, watch->offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return FAILED("%s: cannot read: %s", watch->metrics, strerror(errno));
        if (got == 0) return OK;
        watch->offset += got;
        TRY(take(watch, text, (size_t)got));
    }
}

static Status read_metrics(Watch *watch) {
    struct stat info;
    int file = open(watch->metrics, O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno == ENOENT) return OK;
    if (file < 0) return FAILED("%s: cannot read: %s", watch->metrics, strerror(errno));
    bool replaced = fstat(file, &info) != 0 || info.st_ino != watch->inode || info.st_size < watch->offset;
    if (replaced) reset(watch);
    watch->inode = info.st_ino;
    Status status = read_from(watch, file);
    close(file);
    return status;
}

/* ---- state ---- */

/* Whether the summary is of the metrics, not of a run that was since resumed and killed. Times may have been
 * lost in a copy, so it is enough that both end at the same step. */
static bool is_summed_up(const Watch *watch) {
    const Curve *loss = &watch->loss;
    if (!watch->summary.json) return false;
    if (written_ns(watch->dir, RUN_SUMMARY_FILE) >= watch->written_ns) return true;
    return loss->count && loss->step[loss->count - 1] == watch->summary.steps;
}

static WatchState find_state(const Watch *watch) {
    if (!rundir_held(watch->dir)) {
        if (is_summed_up(watch)) return watch->summary.interrupted ? WATCH_INTERRUPTED : WATCH_FINISHED;
        if (watch->summary_wrong || now_ns() - watch->written_ns > LOST_NS) return WATCH_LOST;
    }
    return watch->loss.count ? WATCH_RUNNING : WATCH_STARTING;
}

Status watch_look(Watch *watch, bool *ret_news) {
    size_t before = watch->loss.count + watch->val_loss.count;
    WatchState state = watch->state;
    CLEANUP(json_decrefp) json_t *summary = NULL;
    TRY(read_object(watch->dir, "config.json", &watch->config, &watch->config_wrong));
    TRY(read_object(watch->dir, RUN_SUMMARY_FILE, &summary, &watch->summary_wrong));
    run_summary_replace(&watch->summary, json_incref(summary));
    TRY(read_metrics(watch));
    watch->written_ns = written_ns(watch->dir, "metrics.jsonl");
    if (!watch->written_ns) watch->written_ns = written_ns(watch->dir, ".");
    watch->state = find_state(watch);
    *ret_news = watch->loss.count + watch->val_loss.count != before || watch->state != state;
    return OK;
}

WatchState watch_state(const Watch *watch) {
    return watch->state;
}

bool watch_over(const Watch *watch) {
    return watch->state >= WATCH_FINISHED;
}

/* ---- derived values ---- */

double watch_steps(const Watch *watch) {
    if (watch->state == WATCH_FINISHED && isfinite(watch->summary.steps)) return watch->summary.steps;
    return json_number_or(watch->config, "steps", NAN);
}

double watch_left(const Watch *watch) {
    size_t count = watch->step_ms.count, from = count > RECENT ? count - RECENT : 0;
    double sum = 0;
    if (!count || !watch->loss.count) return NAN;
    for (size_t i = from; i < count; i++) sum += watch->step_ms.value[i];
    double left = watch_steps(watch) - watch->loss.step[watch->loss.count - 1];
    return 1e-3 * sum / (double)(count - from) * fmax(left, 0);
}

double watch_memory(const Watch *watch) {
    double largest = json_number_or(json_object_get(watch->last, "peak_bytes"), "total", NAN);
    const json_t *rank;
    size_t i;
    if (isfinite(largest)) return largest;
    json_array_foreach(watch->summary.ranks, i, rank) {
        double bytes = json_number_or(json_object_get(rank, "peak_bytes"), "total", NAN);
        if (isfinite(bytes) && !(bytes <= largest)) largest = bytes;
    }
    return largest;
}

Status watch_json(const Watch *watch, json_t **ret_json) {
    static const char *const states[] = {"starting", "running", "finished", "interrupted", "lost"};
    const json_t *step = json_object_get(watch->last, "step"), *loss = json_object_get(watch->last, "loss");
    json_t *json = json_pack("{s:s, s:s, s:O?, s:O?, s:O?, s:O?}", "dir", watch->name, "state",
                             states[watch->state], "step", step, "loss", loss, "tokens_per_s",
                             json_object_get(watch->last, "tokens_per_s"), "summary", watch->summary.json);
    if (!json) return FAILED("out of memory");
    if (isfinite(watch_steps(watch))) json_object_set_new(json, "steps", json_real(watch_steps(watch)));
    if (watch->val_loss.count)
        json_object_set_new(json, "val_loss", json_real(watch->val_loss.value[watch->val_loss.count - 1]));
    *ret_json = json;
    return OK;
}
