/* Ranks that fail start again from the newest checkpoint, at first all of them. If they fail again before
 * they have saved another one, a rank or its host is probably broken: from then on fewer replicas start, the
 * next smaller divisor of --dp, and not on the hosts of ranks that failed. Micro-batches keep their size, so
 * that each replica accumulates the gradients of more of them; the batch and the loss curve stay.
 *
 * Each start without a new checkpoint waits longer than the one before. Hosts are asked over ssh before:
 * those that do not answer get a minute, then the others continue without them. At each checkpoint the lost
 * hosts are asked again, and when they answer, the full layout returns.
 */
#include "cli/launched.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "cli/hosts.h"
#include "cli/launch.h"
#include "cli/show.h"
#include "cli/stop.h"
#include "comm/mpi.h"
#include "train/job.h"

static const double outage_s = 60; /* a host that answers again within this time was not lost */

static volatile sig_atomic_t stop_asked;

static void note_signal(int signal_number) {
    stop_asked = signal_number;
}

static int64_t number(const Invocation *call, const char *name) {
    const Slot *slot = invocation_slot(call, name);
    return slot ? *(const int64_t *)slot->field : 0;
}

/* The newest checkpoint; NULL if there is none or it cannot be found out. */
static char *find_checkpoint(const Invocation *call) {
    const Slot *out = invocation_slot(call, "out");
    const char *run = out ? *(const char *const *)out->field : NULL;
    char *dir = NULL;
    if (run) status_free(ckpt_latest(run, &dir));
    return dir;
}

Status restarts_new(const Invocation *call, int64_t ranks, Restarts *ret_restarts) {
    CLEANUP(restarts_done) Restarts restarts = {.call = call, .ranks = ranks};
    restarts.left = number(call, "max-restarts");
    if (restarts.left) {
        restarts.dp = number(call, "dp");
        restarts.checkpoint = find_checkpoint(call);
        restarts.asks = !hosts_allocated();
        TRY(host_list_read(call, &restarts.list));
    }
    *ret_restarts = restarts;
    restarts = (Restarts){0};
    return OK;
}

void restarts_done(Restarts *restarts) {
    free(restarts->checkpoint);
    free(restarts->hosts);
    host_list_done(&restarts->list);
    reach_free(restarts->asked);
}

/* ---- the layout of the next start ---- */

/* The ranks with the same parameters, which --shard divides into groups. */
static int64_t copies_of(const Invocation *call, int64_t dp) {
    int64_t cp = number(call, "cp");
    return dp * (cp ? cp : 1);
}

/* Groups stay whole, or become smaller. */
static int64_t next_divisor(const Invocation *call, int64_t dp) {
    int64_t shard = number(call, "shard");
    for (int64_t d = dp - 1; d > 0; d--) {
        int64_t copies = copies_of(call, d);
        if (dp % d == 0 && (!shard || copies % shard == 0 || shard % copies == 0)) return d;
    }
    return dp;
}

typedef struct Fit {
    int64_t dp;
    char *hosts; /* NULL: all */
    char without[HOST_NAMES];
} Fit;

/* Names are separated by spaces. */
static void add_name(char names[HOST_NAMES], const char *name) {
    size_t used = strlen(names);
    if (*name && used + strlen(name) + 2 < HOST_NAMES && !host_among(name, names))
        snprintf(names + used, HOST_NAMES - used, "%s%s", used ? " " : "", name);
}

static void add_names(char names[HOST_NAMES], const char *more) {
    char copy[HOST_NAMES], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", more);
    for (char *name = strtok_r(copy, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        add_name(names, name);
}

static int64_t ranks_of(const Restarts *restarts, int64_t dp) {
    return restarts->dp ? restarts->ranks / restarts->dp * dp : restarts->ranks;
}

static bool try_fit(const Restarts *restarts, int64_t dp, const char *lost, const char *broken, Fit *fit) {
    *fit = (Fit){.dp = dp};
    add_names(fit->without, lost);
    add_names(fit->without, broken);
    status_free(host_list_without(&restarts->list, fit->without, ranks_of(restarts, dp), &fit->hosts));
    return fit->hosts != NULL;
}

/* The largest layout of up to `dp` replicas without the lost hosts and, if they are not needed, without the
 * broken ones. On all hosts if the others have too few slots. */
static Fit find_fit(const Restarts *restarts, int64_t dp, const char *lost, const char *broken) {
    Fit fit = {0};
    if (*broken && try_fit(restarts, dp, lost, broken, &fit)) return fit;
    for (int64_t d = dp, last = 0; *lost && d != last; d = next_divisor(restarts->call, d)) {
        if (try_fit(restarts, d, lost, "", &fit)) return fit;
        last = d;
    }
    return (Fit){.dp = dp};
}

static void add_number(Restarts *restarts, const char *option, int64_t value) {
    char *text = restarts->values[restarts->word_count / 2 % COUNT_OF(restarts->values)];
    snprintf(text, sizeof restarts->values[0], "%lld", (long long)value);
    restarts->words[restarts->word_count++] = option;
    restarts->words[restarts->word_count++] = text;
}

/* The options of the next start. They follow those of the command line and so override them. */
static void set_words(Restarts *restarts) {
    const Invocation *call = restarts->call;
    int64_t shard = number(call, "shard"), micro = number(call, "micro-batch");
    MeshSpec mesh = {.ep = (int)number(call, "ep"), .dp = (int)restarts->dp, .cp = (int)number(call, "cp")};
    restarts->word_count = 0;
    if (restarts->dp < number(call, "dp")) {
        if (!micro) micro = job_micro_batch(number(call, "batch"), number(call, "dp"), number(call, "pp"));
        add_number(restarts, "--ranks", restarts->ranks);
        add_number(restarts, "--dp", restarts->dp);
        add_number(restarts, "--batch", number(call, "batch"));
        add_number(restarts, "--micro-batch", micro);
        if (shard > copies_of(call, restarts->dp))
            add_number(restarts, "--shard", copies_of(call, restarts->dp));
        if (mesh.ep > 1) add_number(restarts, "--ep", mesh_experts_fit(mesh));
    }
    if (!restarts->saved) return; /* a start from the beginning, or from where the command line says */
    restarts->words[restarts->word_count++] = "--resume";
    if (number(call, "resume-from")) restarts->words[restarts->word_count++] = "--resume-from=0";
}

static void use_fit(Restarts *restarts, const Fit *fit) {
    restarts->ranks = ranks_of(restarts, fit->dp);
    restarts->dp = fit->dp;
    free(restarts->hosts);
    restarts->hosts = fit->hosts;
    memcpy(restarts->without, fit->without, sizeof restarts->without);
    set_words(restarts);
}

/* ---- waiting ---- */

/* Seconds before a start: none if the one before saved a checkpoint. */
static double pause_of(int64_t failures) {
    static const double pauses[] = {0, 2, 8, 30, 120, 300};
    size_t last = COUNT_OF(pauses) - 1, at = (size_t)(failures - 1);
    return pauses[at < last ? at : last];
}

/* False if this process was asked to stop meanwhile. */
static bool pause_for(double seconds) {
    double end = clock_wall() + seconds;
    for (double left = seconds; left > 0 && !stop_asked; left = end - clock_wall())
        clock_nanosleep(CLOCK_MONOTONIC, 0,
                        &(struct timespec){.tv_nsec = left < 0.1 ? (long)(left * 1e9) : 100000000}, NULL);
    return !stop_asked;
}

/* Whether all `names` are among `known`. */
static bool all_among(const char *names, const char *known) {
    char copy[HOST_NAMES], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name = strtok_r(copy, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        if (!host_among(name, known)) return false;
    return true;
}

/* Finds the lost hosts. Those that answered before get a while to answer again. */
static Status find_lost(Restarts *restarts) {
    const double end = clock_wall() + outage_s;
    bool warned = false;
    for (double pause = 2;; pause = pause < 8 ? 2 * pause : pause) {
        CLEANUP(reach_freep) Reach *reach = NULL;
        TRY(reach_new(&reach, &restarts->list, NULL));
        if (!reach_wait(reach, &stop_asked)) return OK;
        if (all_among(reach_silent(reach), restarts->lost) || reach_asks(reach) ||
            clock_wall() + pause > end) {
            snprintf(restarts->lost, sizeof restarts->lost, "%s", reach_silent(reach));
            return OK;
        }
        if (!warned)
            fprintf(stderr,
                    "weft: warning: ssh does not reach %s; waiting up to %.0f s before a start without\n",
                    reach_reasons(reach), outage_s);
        warned = true;
        if (!pause_for(pause)) return OK;
    }
}

static Status wait_before_start(Restarts *restarts) {
    stop_asked = 0;
    stop_handle(note_signal, 0);
    Status status = restarts->asks && restarts->list.count ? find_lost(restarts) : OK;
    if (!status) pause_for(pause_of(restarts->failures));
    stop_release();
    if (status || !stop_asked) return status;
    return resume_finds(restarts->call) || restarts->saved
               ? STOPPED_SAVED("stopped before the ranks started again; add --resume to continue")
               : STOPPED("stopped before the ranks started again; nothing was saved");
}

/* ---- after a failure ---- */

static void warn(const Restarts *restarts, int64_t dp_before, bool announced) {
    char layout[96 + HOST_NAMES] = "";
    if (restarts->dp < dp_before)
        snprintf(layout, sizeof layout, " on %lld rank%s (dp %lld instead of %lld%s%s)",
                 (long long)restarts->ranks, PLURAL(restarts->ranks), (long long)restarts->dp,
                 (long long)dp_before, restarts->hosts ? ", without " : "",
                 restarts->hosts ? restarts->without : "");
    fprintf(stderr, "weft: warning: %srestarting%s from the %s, %lld restart%s left\n",
            announced ? "" : "the ranks failed; ", layout,
            restarts->checkpoint ? "newest checkpoint" : "beginning", (long long)restarts->left,
            PLURAL(restarts->left));
}

/* True if it has printed something. */
static bool announce(const Restarts *restarts, const Status failure) {
    double pause = pause_of(restarts->failures);
    char later[48] = "";
    if (pause > 0) snprintf(later, sizeof later, "; the next start is in %.0f s", pause);
    if (!failure && pause == 0) return false;
    fprintf(stderr, "weft: warning: %s%s%s\n", failure ? status_message(failure) : "the ranks failed",
            restarts->failures > 1 ? ", again without a new checkpoint" : "", later);
    return true;
}

/* Whether there is a newer checkpoint than the last one seen. */
static bool see_checkpoint(Restarts *restarts) {
    char *newest = find_checkpoint(restarts->call);
    bool moved = newest && (!restarts->checkpoint || strcmp(newest, restarts->checkpoint));
    free(restarts->checkpoint);
    restarts->checkpoint = newest;
    restarts->saved |= moved;
    restarts->moved |= moved;
    return moved;
}

Status restarts_next(Restarts *restarts, const Status failure, const char *host, bool *ret_again) {
    *ret_again = false;
    if (!restarts->left) return OK;
    see_checkpoint(restarts);
    restarts->failures = restarts->moved ? 1 : restarts->failures + 1;
    if (restarts->moved && !restarts->hosts) restarts->broken[0] = 0;
    restarts->moved = false;
    reach_free(restarts->asked);
    restarts->asked = NULL;
    add_name(restarts->broken, host);
    bool announced = announce(restarts, failure);
    bool again = restarts->failures > 1, lost = restarts->lost[0] != 0;
    int64_t dp = restarts->dp, most = dp;
    TRY(wait_before_start(restarts));
    if (lost && !restarts->lost[0]) restarts->broken[0] = 0;
    if (lost && !again) most = number(restarts->call, "dp");
    if (again) most = next_divisor(restarts->call, dp);
    Fit fit = find_fit(restarts, most, restarts->lost, again || restarts->hosts ? restarts->broken : "");
    use_fit(restarts, &fit);
    restarts->left--;
    warn(restarts, dp, announced);
    *ret_again = true;
    return OK;
}

/* ---- more ranks again ---- */

bool restarts_may_grow(const Restarts *restarts) {
    return restarts->lost[0] && restarts->hosts;
}

bool restarts_can_grow(Restarts *restarts) {
    if (!restarts_may_grow(restarts)) return false;
    if (!restarts->asked) {
        if (!see_checkpoint(restarts)) return false;
        CLEANUP(status_freep) Status status = reach_new(&restarts->asked, &restarts->list, restarts->lost);
        return false;
    }
    if (!reach_ended(restarts->asked)) return false;
    snprintf(restarts->lost, sizeof restarts->lost, "%s", reach_silent(restarts->asked));
    reach_free(restarts->asked);
    restarts->asked = NULL;
    Fit fit = find_fit(restarts, number(restarts->call, "dp"), restarts->lost, "");
    free(fit.hosts);
    return fit.dp > restarts->dp && (fit.hosts || !restarts->lost[0]);
}

void restarts_grow(Restarts *restarts) {
    see_checkpoint(restarts);
    restarts->failures = 0;
    restarts->moved = false;
    restarts->broken[0] = 0;
    Fit fit = find_fit(restarts, number(restarts->call, "dp"), restarts->lost, "");
    use_fit(restarts, &fit);
    fprintf(stderr,
            "weft: hosts that were lost answer again; continuing on %lld ranks from the newest checkpoint\n",
            (long long)restarts->ranks);
}

/* ---- how to continue a run that has failed ---- */

/* Under a launcher that the user started, the command line is only a part of what to repeat. */
static Status command_text(const Invocation *call, char **ret_text) {
    size_t size = 0;
    char *text = NULL;
    if (mpi_launched().launched && !launch_is_ours())
        return str_dup("start the job again with --resume", ret_text);
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory");
    bool resumes = false, from = false;
    char **word = call->line;
    for (; *word && strcmp(*word, "--"); word++) { /* operands follow */
        resumes |= strcmp(*word, "--resume") == 0;
        from |= strncmp(*word, "--resume-from", strlen("--resume-from")) == 0;
        if (word != call->line) fputc(' ', out);
        show_word(out, *word);
    }
    if (from) fputs(" --resume-from 0", out); /* not that step again */
    if (!resumes) fputs(" --resume", out);
    for (; *word; word++) {
        fputc(' ', out);
        show_word(out, *word);
    }
    fclose(out);
    *ret_text = text;
    return OK;
}

/* NULL if the command has none. */
static const char *run_directory(const Invocation *call) {
    const Slot *out = call->command->resumes ? invocation_slot(call, "out") : NULL;
    return out ? *(const char *const *)out->field : NULL;
}

bool resume_finds(const Invocation *call) {
    CLEANUP(mem_freep) char *dir = NULL;
    const char *run = run_directory(call);
    if (!run || !*(const bool *)invocation_slot(call, "resume")->field) return false;
    CLEANUP(status_freep) Status unreadable = ckpt_latest(run, &dir);
    return dir != NULL;
}

static Status stopped_at(const char *run, double since, char **ret_checkpoint) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *summary = NULL;
    struct stat file;
    TRY(path_join(&path, run, "summary.json"));
    if (stat(path, &file) || (double)file.st_mtim.tv_sec + 1e-9 * (double)file.st_mtim.tv_nsec < since)
        return OK;
    TRY(json_read_file(path, &summary));
    if (!json_is_true(json_object_get(summary, "interrupted"))) return OK;
    return str_format(ret_checkpoint, "step-%lld", (long long)json_int_at(summary, "steps"));
}

bool resume_saved(const Invocation *call, double since) {
    CLEANUP(mem_freep) char *dir = NULL, *checkpoint = NULL;
    const char *run = run_directory(call);
    CLEANUP(status_freep) Status status = run ? stopped_at(run, since, &checkpoint) : OK;
    if (!status && checkpoint) status = ckpt_latest(run, &dir);
    const char *name = dir ? strrchr(dir, '/') : NULL;
    return name && strcmp(name + 1, checkpoint) == 0;
}

Status resume_hint(const Invocation *call, char **ret_text) {
    CLEANUP(mem_freep) char *dir = NULL, *command = NULL;
    const char *run = run_directory(call);
    if (!run) return str_dup("", ret_text);
    CLEANUP(status_freep) Status unreadable = ckpt_latest(run, &dir);
    if (!dir) return str_format(ret_text, "; %s has no checkpoint yet", run);
    TRY(command_text(call, &command));
    return str_format(ret_text, "; the newest checkpoint is %s; to continue: %s", dir, command);
}
