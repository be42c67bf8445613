/* The directory of a comparison: its results.json lists the runs, and each has a directory of its own. */
#include "compare/comparison.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "base/fs.h"
#include "base/memory.h"
#include "plan/cluster.h"
#include "report/page.h"
#include "report/study.h"
#include "train/rundir.h"

/* ---- before the first run ---- */

/* The file's name without directory and extension. */
static Status title_of(const char *path, char **ret_title) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return str_format(ret_title, "%.*s", (int)(dot && dot > name ? (size_t)(dot - name) : strlen(name)),
                      name);
}

Status comparison_describe(Results *results, const Recipe *recipe, const char *path, const char *scale,
                           bool resized) {
    TRY(title_of(path, &results->title));
    if (recipe->about) TRY(str_dup(json_string_value(recipe->about), &results->about));
    if (scale) TRY(str_dup(scale, &results->scale));
    results->study = json_incref(recipe->study);
    results->resized = recipe->resized || resized;
    return OK;
}

Status comparison_dir(const Results *results, char **ret_dir) {
    return str_format(ret_dir, "runs/%s%s%s", results->title, results->scale ? "-" : "",
                      results->scale ? results->scale : "");
}

/* A directory name: letters and digits, separated by single dashes. */
static Status slug_of(const char *name, const char *dir, char **ret_path) {
    char slug[96];
    size_t length = 0;
    for (; *name && length + 2 < sizeof slug; name++) {
        if (isalnum((unsigned char)*name))
            slug[length++] = (char)tolower((unsigned char)*name);
        else if (length && slug[length - 1] != '-')
            slug[length++] = '-';
    }
    while (length && slug[length - 1] == '-') length--;
    slug[length] = 0;
    return path_join(ret_path, dir, length ? slug : "run");
}

Status comparison_add(Results *results, const json_t *entry, const char *path, const char *out,
                      Run **ret_run) {
    const char *name = json_string_at(entry, "name");
    CLEANUP(mem_freep) char *dir = NULL;
    Run *run;
    if (json_object_get(entry, "out"))
        return USAGE("%s: run '%s': 'out' is set by the comparison; use {out} instead", path, name);
    TRY(slug_of(name, out, &dir));
    for (size_t k = 0; k < results->count; k++)
        if (!strcmp(results->runs[k].dir, dir))
            return USAGE("%s: runs '%s' and '%s' would share the directory %s; rename one", path,
                         results->runs[k].name, name, dir);
    TRY(results_add(results, name, dir, &run));
    run->options = json_clone(entry);
    json_object_del(run->options, "name");
    json_object_del(run->options, "published");
    *ret_run = run;
    return OK;
}

Status comparison_lock(const char *out, int *ret_fd) {
    *ret_fd = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_fd < 0) return FAILED("%s: the directory cannot be opened: %s", out, strerror(errno));
    if (flock(*ret_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return FAILED("%s: another process is running this comparison", out);
    return OK;
}

/* Adopts a run that results.json does not list; counts it in *found. */
static Status adopt(Run *run, size_t *found) {
    if (run->state == RUN_RUNNING) {
        if (rundir_stays_held(run->dir)) return FAILED("%s: another process is executing this run", run->dir);
        TRY(run_look(run));
    }
    if (run->known || run->state == RUN_WAITING) return OK;
    TRY(run_recognize(run));
    ++*found;
    return OK;
}

Status comparison_recall(Results *results, const char *out, Earlier *ret_earlier) {
    CLEANUP(mem_freep) char *damage = NULL;
    size_t found = 0;
    TRY(results_recall(results, out, &damage));
    for (size_t i = 0; i < results->count; i++) {
        Run *run = &results->runs[i];
        TRY(run_look(run));
        TRY(adopt(run, &found));
        for (size_t k = 0; k < run->repeat_count; k++) TRY(adopt(&run->repeats[k], &found));
    }
    if (damage && !found) return FAILED("%s; remove it to start over, or choose another {out}", damage);
    *ret_earlier = (Earlier){.damage = damage, .unlisted = found, .kept = json_array_size(results->others)};
    damage = NULL;
    return OK;
}

Status comparison_share_peak(const char *out) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, out, "peak.json"));
    return setenv("WEFT_PEAK_FILE", path, 1) ? FAILED("out of memory") : OK;
}

/* ---- runs ---- */

/* Whether a prediction is the one that is asked for: for the same cluster and program. */
static bool is_same_prediction(const Run *run, const Cluster *machine, const Prediction *wanted) {
    bool other = machine->software.present && !wanted->weft;
    bool both = other && wanted->both;
    const char *program = run->summary.program;
    return !strcmp(machine->name, run_predicted(run)) && (program != NULL) == other &&
           (run->summary.weft != NULL) == both;
}

Status comparison_is_done(const Run *run, const Prediction *wanted, bool retry, bool *ret_done) {
    const char *predicted = run_predicted(run);
    Cluster machine;
    if (run->state == RUN_FAILED) {
        *ret_done = !retry && !(wanted && strstr(run->error ? run->error : "", "as predicted"));
        return OK;
    }
    *ret_done = run->state == RUN_FINISHED && (!predicted || wanted);
    if (!*ret_done || !predicted) return OK;
    TRY(cluster_find(wanted->cluster, &machine));
    *ret_done = is_same_prediction(run, &machine, wanted);
    return OK;
}

/* Whether a run failed that did not fail in the study for the same reason. */
static bool has_failed(const Run *run) {
    return run->state == RUN_FAILED && !(run_lacks_memory(run) && published_lacks_memory(run));
}

static Status write_prediction(const Run *run, const json_t *summary) {
    CLEANUP(mem_freep) char *config = NULL;
    TRY(dir_make(run->dir));
    TRY(path_join(&config, run->dir, "config.json"));
    TRY(json_write_file(config, run->settings));
    return run_summary_write(run->dir, summary);
}

Status comparison_end_prediction(Results *results, Run *run, Status failed, const json_t *summary,
                                 const char *out) {
    if (failed) {
        run->state = RUN_FAILED;
        TRY(str_dup(status_message(failed), &run->error));
    } else {
        TRY(write_prediction(run, summary));
    }
    TRY(run_look(run));
    return results_write(results, out);
}

Status comparison_begin_run(Results *results, Run *run, const char *out, bool *ret_again) {
    *ret_again = run->state == RUN_INTERRUPTED;
    TRY(run_renew(run));
    run->state = RUN_RUNNING;
    return results_write(results, out);
}

Status comparison_end_run(Results *results, Run *run, int code, char *error, bool stopped, const char *out) {
    free(run->error);
    run->error = error;
    /* A run that was asked to stop has not failed, whatever its exit code. */
    if (code && code != STATUS_SAVED && !stopped) run->state = RUN_FAILED;
    if (run->state == RUN_FAILED && !run->error)
        TRY(str_format(&run->error, "exited with code %d and no error message", code));
    TRY(run_look(run));
    return results_write(results, out);
}

Outcome comparison_outcome(const Results *results) {
    Outcome outcome = {0};
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        outcome.finished |= run->state == RUN_FINISHED;
        outcome.failed |= has_failed(run);
        outcome.interrupted |= run->state == RUN_INTERRUPTED;
        for (size_t k = 0; k < run->repeat_count; k++) {
            outcome.failed |= run->state != RUN_FAILED && has_failed(&run->repeats[k]);
            outcome.interrupted |= run->repeats[k].state == RUN_INTERRUPTED;
        }
    }
    return outcome;
}

Status comparison_write(const Results *results, const char *out) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(results_write(results, out));
    TRY(path_join(&path, out, "report.html"));
    return page_write(results, path);
}
