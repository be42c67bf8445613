/* The watchdog over MPI; see comm/watchdog.h. Questions and answers are notes, which a rank that computes
 * answers from its progress thread. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/setting.h"
#include "comm/mpi/traffic.h"

static const double asleep_s = 2;     /* this process did not run for so long: it was stopped itself */
static const double disk_limits = 10; /* a disk may take this many times the limit */

/* Seconds before the limit at which ranks are asked a second time, and after it that they have to answer. */
static double margin_of(double limit) {
    return limit < 16 ? limit / 4 : 4;
}
static double grace_of(double limit) {
    return limit < 8 ? limit / 4 : 2;
}

/* ---- what this rank does ---- */

static int64_t bytes_moved(void) {
    long long in = 0, out = 0;
    FILE *file = fopen("/proc/self/io", "re");
    if (file && fscanf(file, "rchar: %lld wchar: %lld", &in, &out) != 2) in = out = 0;
    if (file) fclose(file);
    return in + out;
}

/* "gather, unit 3, 1.2 MB, data-parallel group" */
static void describe_op(const CommLabel *label, const CommNames *names, char *text, size_t size) {
    const TraceName *name = label->name;
    char bytes[FORMAT_SIZE];
    int at = name ? snprintf(text, size, "%.*s", (int)strcspn(name->name, " "), name->name)
                  : snprintf(text, size, "agreement");
    for (int i = 0; name && i < 2; i++) {
        if (!name->number[i] || at < 0 || (size_t)at >= size) continue;
        bool is_bytes = strcmp(name->number[i], "bytes") == 0;
        int64_t number = label->number[i];
        at += is_bytes
                  ? snprintf(text + at, size - (size_t)at, ", %s", format_bytes(bytes, (double)number))
                  : snprintf(text + at, size - (size_t)at, ", %s %lld", name->number[i], (long long)number);
    }
    if (at > 0 && (size_t)at < size && names)
        snprintf(text + at, size - (size_t)at, ", %s group", names->op[0].category);
}

/* A rank of which nothing has arrived since this one waits: neither an answer nor a question of its own. -1:
 * none. */
static int find_unheard(const Traffic *traffic) {
    double patience = margin_of(traffic->watchdog.limit_s) / 2;
    if (traffic->asked_at == 0 || clock_wall() - traffic->asked_at < patience) return -1;
    for (int r = 0; r < traffic->size; r++)
        if (r != traffic->rank && traffic->heard_at[r] < traffic->wait_since) return r;
    return -1;
}

static RankState own_state(const Traffic *traffic) {
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    RankState state = {.step = traffic->watchdog.step,
                       .beats = traffic->watchdog.beats,
                       .cpu_ms = (int64_t)cpu.tv_sec * 1000 + cpu.tv_nsec / 1000000,
                       .moved = bytes_moved(),
                       .on_disk = process_awaits_disk(),
                       .unheard = find_unheard(traffic),
                       .waited_s = -1};
    const char *doing = traffic->watchdog.doing;
    snprintf(state.doing, sizeof state.doing, "%s", doing ? doing : "starting");
    const Op *op = traffic->wait_op;
    const DeviceWait *wait = &traffic->device_wait;
    if (op || wait->waits) state.waited_s = clock_wall() - traffic->wait_since;
    if (op)
        describe_op(&op->label, op->group->names, state.doing, sizeof state.doing);
    else if (wait->waits && wait->what)
        snprintf(state.doing, sizeof state.doing, "%s", wait->what);
    else if (wait->waits)
        describe_op(&wait->label, wait->names, state.doing, sizeof state.doing);
    return state;
}

void watchdog_answer(Traffic *traffic, int to, uint64_t number) {
    RankState state = own_state(traffic);
    notes_send_to(traffic, to, NOTE_STATE, number, &state);
}

/* ---- what the others do ---- */

static void ask_all(Traffic *traffic, bool first) {
    traffic->question++;
    if (first) traffic->asked_at = clock_wall();
    memcpy(traffic->before, traffic->state, (size_t)traffic->size * sizeof *traffic->state);
    traffic->state[traffic->rank] = own_state(traffic);
    traffic->state[traffic->rank].answered = traffic->question;
    notes_send(traffic, NOTE_PROBE, traffic->question);
}

static bool has_answered(const Traffic *traffic, int rank) {
    return traffic->state[rank].answered == traffic->question;
}

/* Whether a rank has done something since it was asked before, or a disk does for it: fsync can take minutes.
 * Waiting takes some CPU time too. */
static bool progressed(const Traffic *traffic, int rank) {
    const RankState *now = &traffic->state[rank], *before = &traffic->before[rank];
    if (!has_answered(traffic, rank) || !before->answered) return false;
    if (now->beats != before->beats) return true;
    if (now->waited_s >= 0) return false;
    if (now->on_disk && clock_wall() - traffic->wait_since < disk_limits * traffic->watchdog.limit_s)
        return true;
    return now->cpu_ms > before->cpu_ms + 50 || now->moved > before->moved + (1 << 16);
}

/* ---- the report ---- */

static bool same_line(const Traffic *traffic, int a, int b) {
    const RankState *x = &traffic->state[a], *y = &traffic->state[b];
    if (strcmp(traffic->watchdog.place[a].host, traffic->watchdog.place[b].host)) return false;
    if (has_answered(traffic, a) != has_answered(traffic, b)) return false;
    if (!has_answered(traffic, a)) return false; /* names its process */
    return x->step == y->step && (x->waited_s < 0) == (y->waited_s < 0) && !strcmp(x->doing, y->doing);
}

static int put_ranks(FILE *out, const Traffic *traffic, int first) {
    int count = 0;
    for (int r = first; r < traffic->size; r++) count += r == first || same_line(traffic, first, r);
    fprintf(out, "\n  rank%s", count > 1 ? "s" : "");
    const char *separator = " ";
    for (int r = first; r < traffic->size; r++) {
        if (r != first && !same_line(traffic, first, r)) continue;
        int last = r;
        while (last + 1 < traffic->size && same_line(traffic, first, last + 1)) last++;
        fprintf(out, last > r ? "%s%d-%d" : "%s%d", separator, r, last);
        separator = ", ";
        r = last;
    }
    fprintf(out, " on %s", traffic->watchdog.place[first].host);
    return count;
}

static void put_absent(FILE *out, const Traffic *traffic, int rank) {
    const RankPlace *place = &traffic->watchdog.place[rank];
    bool here = strcmp(place->host, traffic->watchdog.place[traffic->rank].host) == 0;
    char letter = here ? process_state(place->process, NULL) : 0;
    fprintf(out, " never arrived and does not answer");
    if (letter == 'T' || letter == 't')
        fprintf(out, ": process %d is stopped (SIGSTOP)", place->process);
    else if (here && !letter)
        fprintf(out, ": process %d is gone", place->process);
    else
        fprintf(out, " (process %d)", place->process);
}

/* Pairs of ranks that do not hear each other, although both answer this rank. A loss in one direction stops
 * TCP in both. */
static void put_deaf(FILE *out, const Traffic *traffic) {
    const RankPlace *place = traffic->watchdog.place;
    for (int r = 0; r < traffic->size; r++) {
        int other = traffic->state[r].unheard;
        if (!has_answered(traffic, r) || other < 0 || other >= traffic->size || !has_answered(traffic, other))
            continue;
        if (other < r && traffic->state[other].unheard == r) continue; /* listed */
        int first = r < other ? r : other, second = r < other ? other : r;
        fprintf(out,
                "\n  nothing arrives between rank %d on %s and rank %d on %s, although both answer rank %d; "
                "check the network between them, in each direction",
                first, place[first].host, second, place[second].host, traffic->rank);
    }
}

/* One line for each group of ranks that do the same. */
static char *report(const Traffic *traffic, double waited) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    char limit[32], time[FORMAT_SIZE];
    setting_print(limit, sizeof limit, "{timeout}");
    fprintf(out, "no progress for %s (%s)", format_seconds(time, waited), limit);
    for (int r = 0; r < traffic->size; r++) {
        bool listed = false;
        for (int s = 0; s < r; s++) listed |= same_line(traffic, s, r);
        if (listed) continue;
        const RankState *state = &traffic->state[r];
        int count = put_ranks(out, traffic, r);
        if (!has_answered(traffic, r))
            put_absent(out, traffic, r);
        else if (state->waited_s >= 0)
            fprintf(out, " wait%s in %s, at step %lld, for %s", count > 1 ? "" : "s", state->doing,
                    (long long)state->step, format_seconds(time, state->waited_s));
        else
            fprintf(out, " at step %lld: %s", (long long)state->step, state->doing);
    }
    put_deaf(out, traffic);
    fclose(out);
    return text;
}

/* Of the ranks that wait, the lowest warns. With `usual`, the wait is long only compared with others before,
 * and a rank that does not answer may be slow. */
static void warn_slow(const Traffic *traffic, double waited, bool usual) {
    int slow = -1;
    for (int r = 0; r < traffic->size; r++) {
        if (r < traffic->rank && has_answered(traffic, r) && traffic->state[r].waited_s > waited / 2) return;
        bool works = traffic->state[r].waited_s < 0 && progressed(traffic, r);
        if (usual)
            works = r != traffic->rank && (!has_answered(traffic, r) || traffic->state[r].waited_s < 0);
        if (slow < 0 && works) slow = r;
    }
    if (slow < 0 || !traffic->watchdog.warn) return;
    char text[320], time[FORMAT_SIZE];
    const char *host = traffic->watchdog.place[slow].host;
    format_seconds(time, waited);
    if (has_answered(traffic, slow))
        snprintf(text, sizeof text, "rank %d has waited %s for rank %d on %s, which is still at work (%s)",
                 traffic->rank, time, slow, host, traffic->state[slow].doing);
    else
        snprintf(text, sizeof text, "rank %d has waited %s for rank %d on %s, which does not answer",
                 traffic->rank, time, slow, host);
    traffic->watchdog.warn(text);
}

/* ---- waiting ---- */

void watchdog_begin(Traffic *traffic, const Op *op, WatchedWait *ret_wait) {
    double now = clock_wall();
    *ret_wait = (WatchedWait){.since = now, .last = now};
    traffic->wait_op = op;
    traffic->wait_since = now;
    traffic->asked_at = 0;
}

void watchdog_end(Traffic *traffic) {
    traffic->wait_op = NULL;
    traffic->watchdog.beats++;
}

static bool all_answered(const Traffic *traffic) {
    for (int r = 0; r < traffic->size; r++)
        if (!has_answered(traffic, r)) return false;
    return true;
}

/* After the limit: gives up, or waits for another half of it. */
static void judge(Traffic *traffic, WatchedWait *wait, double now) {
    bool progress = false;
    for (int r = 0; r < traffic->size; r++) progress |= r != traffic->rank && progressed(traffic, r);
    double waited = now - traffic->wait_since;
    if (!all_answered(traffic) || !progress) {
        traffic->overdue = report(traffic, waited);
        traffic->watchdog.timed_out = true;
        return;
    }
    if (!wait->warned) warn_slow(traffic, waited, false);
    wait->warned = true;
    wait->since = now - traffic->watchdog.limit_s / 2;
    wait->asked = 0;
}

/* After twice the usual time: asks the ranks, and warns when they have answered or had time to. */
static void look_early(Traffic *traffic, WatchedWait *wait, double now) {
    const double patience = 1;
    double usual = traffic->watchdog.usual_s;
    if (usual <= 0 || wait->warned || wait->asked > 0 || now - wait->since < 2 * usual) return;
    if (wait->slow_asked == 0) {
        wait->slow_asked = now;
        ask_all(traffic, false);
    } else if (all_answered(traffic) || now - wait->slow_asked > patience) {
        warn_slow(traffic, now - traffic->wait_since, true);
        wait->warned = true;
    }
}

void watchdog_look(Traffic *traffic, WatchedWait *wait) {
    double now = clock_wall(), limit = traffic->watchdog.limit_s;
    if (now - wait->last > asleep_s) wait->since += now - wait->last;
    wait->last = now;
    double waited = now - wait->since;
    look_early(traffic, wait, now);
    if (limit <= 0 || waited < limit / 2) return;
    if (wait->asked == 0 || (wait->asked == 1 && waited > limit - margin_of(limit))) {
        wait->asked++;
        ask_all(traffic, wait->asked == 1);
    } else if (wait->asked == 2 && waited > limit &&
               (all_answered(traffic) || waited > limit + grace_of(limit))) {
        judge(traffic, wait, now);
    }
}

int watchdog_new(Traffic *traffic) {
    RankPlace own = {.process = (int)getpid()};
    if (gethostname(own.host, sizeof own.host - 1) != 0) snprintf(own.host, sizeof own.host, "unknown host");
    size_t size = (size_t)traffic->size;
    traffic->watchdog.place = calloc(size, sizeof *traffic->watchdog.place);
    traffic->state = calloc(size, sizeof *traffic->state);
    traffic->before = calloc(size, sizeof *traffic->before);
    traffic->heard_at = calloc(size, sizeof *traffic->heard_at);
    if (!traffic->watchdog.place || !traffic->state || !traffic->before || !traffic->heard_at)
        return MPI_ERR_NO_MEM;
    return MPI_Allgather(&own, sizeof own, MPI_BYTE, traffic->watchdog.place, sizeof own, MPI_BYTE,
                         traffic->control);
}

void watchdog_free(Traffic *traffic) {
    free(traffic->watchdog.place);
    free(traffic->state);
    free(traffic->before);
    free(traffic->heard_at);
    free(traffic->overdue);
}
