/* Waiting for a launcher and its ranks.
 *
 * When ranks fail, mpirun prints explanations in blocks between lines of dashes. They are held back: a rank
 * that failed has reported its error in one line, and for a rank that was killed the block tells which one.
 * The blocks are printed only if neither explains the failure.
 */
#include "cli/launched.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/memory.h"
#include "base/process.h"
#include "cli/child.h"
#include "cli/hosts.h"
#include "cli/launch.h"
#include "cli/show.h"
#include "cli/stop.h"

static const double stuck_s = 10; /* ranks without a launcher end together: one that takes longer is stuck,
                                   * and so is a launcher that ignores the end of a rank for this long */
static const double end_s = 6;    /* ranks and launcher end within this time of a rank's report. A launcher
                                   * that has sent something to a lost host waits for it for a quarter of an
                                   * hour: TCP probes only connections on which everything was received. */

typedef struct Launched {
    const LaunchedSpec *spec;
    FILE *held; /* writes to `text`: the blocks and remarks that were held back */
    char *text;
    size_t size;
    int code;                /* that a rank has announced for all; 0: none */
    bool in_block;           /* between two lines of dashes */
    bool explained, failed;  /* a rank has said why it ends; that is an error */
    int rank, signal;        /* the rank that was killed, and how; signal 0: no rank was killed */
    char *hosts;             /* of the ranks, separated by spaces; NULL: not announced */
    char lost[HOST_SIZE];    /* a host that the launcher cannot reach any more; empty: none */
    char suspect[HOST_SIZE]; /* the host of a rank that failed or hangs; empty: unknown */
    bool asked;              /* this process was told to stop, ... */
    bool early, at_once;     /* ... before there were ranks; by a second Ctrl-C */
    bool orphans;            /* the launcher has ended, its ranks may not have */
    double interrupted;      /* see stop_insists */
    pid_t ended;             /* a rank that has ended and that the launcher has not noticed; 0: none */
    double ended_since;      /* when this process first saw that */
    double stopped_since;    /* when it first saw that the launcher is stopped; 0: it is not */
    bool told_stopped;       /* the user knows */
    bool stuck;              /* the launcher was killed for it */
    double reported;         /* when a rank reported an error, or the launcher was told to end; 0: neither */
    bool grows;              /* this process has asked the ranks to stop, to become more */
    int unwritten;           /* errno of results that could not be passed on; 0: none */
    bool late;               /* all were killed because they did not end after that */
} Launched;

static void launched_done(Launched *of) {
    if (of->held) fclose(of->held);
    free(of->text);
    free(of->hosts);
}

/* ---- what the launcher prints ---- */

static bool is_frame(const char *line) {
    size_t dashes = strspn(line, "-");
    return dashes >= 40 && line[dashes] == '\n';
}

/* Messages that Open MPI prints outside blocks and that are held back as well. */
static const char *const remarks[] = {"help message", "orte_base_help_aggregate", "ORTE_ERROR_LOG",
                                      "PMIX ERROR",   ": Forwarding signal ",     "] Read -1, expected "};

/* Notes the host of a rank that reports an error or that others wait for, or that the launcher's ssh cannot
 * reach. The rank that reports a wait is not to blame. */
static void find_suspect(Launched *of, const char *line) {
    char host[HOST_SIZE] = "";
    if (strstr(line, "no progress for ")) return;
    if (sscanf(line, "weft: error: rank %*d on %64[^: \n]", host) != 1 &&
        !(strstr(line, "does not answer") && sscanf(line, " rank%*[^o]on %64s", host) == 1) &&
        sscanf(line, "ssh: connect to host %64s", host) != 1)
        return;
    if (!of->suspect[0]) memcpy(of->suspect, host, sizeof host);
}

/* What ssh prints while the launcher reaches for hosts. */
static bool before_ranks(const Launched *of, const char *line) {
    return !of->hosts && hosts_named(of->spec->call) && strncmp(line, "weft: ", 6) != 0 && *line != ' ';
}

static void read_line(Launched *of, const char *line) {
    const char *killed = strstr(line, "process rank "), *by = strstr(line, "exited on signal ");
    const char *daemon = strstr(line, "Remote daemon:"), *host = daemon ? strstr(daemon, " on node ") : NULL;
    bool frame = is_frame(line), remark = false;
    if (sscanf(line, LAUNCHED_CODE "%d", &of->code) == 1) return;
    if (!strncmp(line, LAUNCHED_HOSTS, strlen(LAUNCHED_HOSTS))) {
        free(of->hosts);
        of->hosts = strdup(line + strlen(LAUNCHED_HOSTS));
        return;
    }
    find_suspect(of, line);
    if (of->in_block && host && !of->lost[0]) sscanf(host, " on node %64s", of->lost);
    if (frame) of->in_block = !of->in_block;
    if (of->in_block && killed && by && !of->signal) {
        sscanf(killed, "process rank %d", &of->rank);
        sscanf(by, "exited on signal %d", &of->signal);
    }
    /* Said by a rank that the launcher terminates because another one ended, or that was not ready. */
    bool stopped = strcmp(line, "weft: stopped\n") == 0;
    if (of->asked ? stopped && of->spec->stops : stopped || strcmp(line, "\n") == 0) return;
    bool error = strncmp(line, "weft: error: ", 13) == 0;
    bool says_stopped = strncmp(line, "weft: stopped", 13) == 0;
    if (of->grows && says_stopped) return;
    remark = (error && of->failed) || (says_stopped && of->explained); /* one rank's report is enough */
    of->failed |= error;
    if (error && of->reported == 0) of->reported = clock_wall();
    of->explained |= error || says_stopped;
    for (size_t i = 0; i < sizeof remarks / sizeof *remarks; i++) remark |= strstr(line, remarks[i]) != NULL;
    fputs(line, of->in_block || frame || remark || before_ranks(of, line) ? of->held : stderr);
}

/* ---- requests to stop ---- */

/* Kills the launcher and all ranks on this host. */
static void kill_all(void) {
    processes_signal(getpid(), SIGKILL, false);
}

/* Ranks on other hosts are reached through the launcher, once they have joined. A launcher without ranks has
 * nothing to lose. */
static void ask_to_stop(Launched *of, int number) {
    const LaunchedSpec *spec = of->spec;
    if (!spec->stops) {
        if (!of->orphans) kill(spec->pid, SIGTERM);
        if (of->reported == 0) of->reported = clock_wall();
        return;
    }
    if (spec->elsewhere && of->hosts && !of->orphans) {
        kill(spec->pid, SIGUSR1);
        return;
    }
    int ranks = processes_signal(getpid(), number == SIGINT ? SIGINT : SIGUSR1, true);
    if (of->orphans || process_state(spec->pid, NULL) == 'Z') return; /* the launcher was killed */
    if (spec->elsewhere || processes_signal(spec->pid, 0, false) == 0) {
        of->early = true;
        kill_all();
    } else if (!ranks) {
        kill(spec->pid, SIGUSR1);
    }
}

static void take_signal(Launched *of, int number) {
    if (number == SIGINT && stop_insists(&of->interrupted)) {
        of->at_once = true;
        kill_all();
    } else if (!of->asked) {
        ask_to_stop(of, number);
    }
    of->asked = true;
}

/* Somebody may have suspended the job, so it is not ended. */
static void warn_if_stopped(Launched *of, bool stopped, double now) {
    const double patience_s = 2;
    if (!stopped || of->stopped_since == 0) of->stopped_since = stopped ? now : 0;
    if (!stopped || of->told_stopped || now - of->stopped_since < patience_s) return;
    of->told_stopped = true;
    fprintf(stderr,
            "weft: warning: %s, process %d, is stopped (SIGSTOP), so ranks cannot start or end; continue it "
            "with: kill -CONT %d\n",
            of->spec->name, (int)of->spec->pid, (int)of->spec->pid);
}

/* Open MPI's mpirun can hang when ranks die while they connect. */
static void check_launcher(Launched *of) {
    pid_t launcher = of->spec->pid, ended = processes_in_state(launcher, "Z"), above;
    double now = clock_wall();
    bool stopped = process_state(launcher, &above) == 'T';
    warn_if_stopped(of, stopped, now);
    if (ended != of->ended || stopped) {
        of->ended = ended;
        of->ended_since = now;
    } else if (ended && now - of->ended_since > stuck_s) {
        of->stuck = true;
        kill_all();
    }
}

static void look_around(void *context) {
    Launched *of = context;
    char number;
    while (read(of->spec->signals, &number, 1) == 1) take_signal(of, number);
    if (of->stuck || of->late || of->orphans) return;
    check_launcher(of);
    if (!of->asked && !of->grows && of->hosts && of->spec->stops && of->spec->can_grow(of->spec->restarts)) {
        of->grows = true;
        ask_to_stop(of, SIGUSR1);
    }
    if (of->stuck || of->reported == 0 || clock_wall() - of->reported < end_s) return;
    of->late = true; /* daemons on other hosts end when they lose the launcher */
    kill_all();
}

static void read_all(Launched *of) {
    Relay relay = {.out = stderr,
                   .in = of->spec->error,
                   .results = of->spec->results,
                   .wake = of->spec->signals,
                   .on_wake = look_around,
                   .context = of};
    char *line = NULL;
    size_t capacity = 0;
    relay_draw(&relay, of->spec->title);
    while (relay_line(&relay, &line, &capacity) > 0) read_line(of, line);
    free(line);
    of->unwritten = relay.unwritten;
    fflush(of->held);
}

/* ---- the end ---- */

/* Ranks whose launcher was killed are children of this process now. True if one's exit code says that they
 * have saved their work; others, that ended in order before they noticed, may have told only the launcher. */
static bool await_orphans(Launched *of) {
    enum { LOOK_MS = 50 };
    bool saved = false;
    double ended = INFINITY; /* time at which one ended, or was found stopped */
    struct pollfd signals = {.fd = of->spec->signals, .events = POLLIN};
    of->orphans = true;
    for (;;) {
        int state;
        pid_t pid = waitpid(-1, &state, WNOHANG);
        if (pid < 0 && errno != EINTR) return saved;
        if (pid > 0) {
            saved |= WIFEXITED(state) && WEXITSTATUS(state) == STATUS_SAVED;
            ended = clock_wall();
        } else {
            poll(&signals, 1, LOOK_MS);
            look_around(of);
            if (isinf(ended) && processes_in_state(getpid(), "T")) ended = clock_wall();
            if (of->at_once || clock_wall() - ended > stuck_s) kill_all();
        }
    }
}

/* Removes what is left of ranks that have ended; does not wait for others. */
static void reap(void) {
    for (int i = 0; i < 20 && waitpid(-1, NULL, WNOHANG) >= 0; i++) usleep(10000);
}

static Status explain_killed(const Launched *of, int number, bool saved) {
    const char *name = of->spec->name;
    if (saved)
        return STOPPED_SAVED("stopped: %s was killed by signal %d (%s); the ranks saved a checkpoint; add "
                             "--resume to continue",
                             name, number, strsignal(number));
    return FAILED("%s was killed by signal %d (%s), and its ranks ended without saving", name, number,
                  strsignal(number));
}

/* "rank 1", "ranks 2-3" or "ranks 0, 4-7" on the lost host; empty if unknown. */
static void lost_ranks(const Launched *of, char *text, size_t size) {
    size_t used = 0;
    int rank = 0, count = 0, first = -1;
    char one[HOST_SIZE];
    text[0] = 0;
    for (const char *at = of->hosts; at; rank++) {
        int length = 0;
        bool more = sscanf(at, " %64s%n", one, &length) == 1, here = more && !strcmp(one, of->lost);
        if (here && first < 0) first = rank;
        if (here) count++;
        if (!here && first >= 0 && used < size) {
            used += (size_t)snprintf(text + used, size - used, rank - 1 > first ? "%s%d-%d" : "%s%d",
                                     used ? ", " : "", first, rank - 1);
            first = -1;
        }
        at = more ? at + length : NULL;
    }
    if (!count) return;
    CLEANUP(mem_freep) char *list = strdup(text);
    snprintf(text, size, " of rank%s %s", PLURAL(count), list ? list : "?");
}

static Status explain_lost(const Launched *of) {
    CLEANUP(mem_freep) char *hint = NULL;
    char ranks[200];
    lost_ranks(of, ranks, sizeof ranks);
    if (!of->failed) TRY(resume_hint(of->spec->call, &hint)); /* else a rank has printed it */
    return FAILED("lost the connection to %s, the host%s; the other ranks were terminated%s", of->lost, ranks,
                  hint ? hint : "");
}

static Status explain_early(const Launched *of) {
    if (of->spec->resumes || resume_finds(of->spec->call))
        return STOPPED_SAVED("stopped before the ranks were ready; add --resume to continue");
    return STOPPED("stopped before the ranks were ready; nothing was saved");
}

/* The launcher has written pages about it. */
static Status explain_unstarted(const Launched *of, bool *ret_asks) {
    bool named;
    Status status = hosts_unreached(of->spec->call, of->spec->name, &named, ret_asks);
    if (!named || hosts_verbose(of->spec->call)) fputs(of->text, stderr);
    return status;
}

/* *asks is set if ssh asks for something, which a restart does not change. */
static Status explain(const Launched *of, int code, bool *asks) {
    const char *name = of->spec->name;
    if (code == 127)
        return FAILED(
            "cannot run %s; install an MPI library such as Open MPI, or set WEFT_MPIRUN to its launcher",
            name);
    if (code && of->lost[0] && !of->asked) return explain_lost(of);
    if (code && of->signal && !of->failed && !of->asked)
        return FAILED("rank %d was killed by signal %d (%s); the other ranks were terminated", of->rank,
                      of->signal, strsignal(of->signal));
    if (code && of->asked && !of->explained && code != STATUS_SAVED) return explain_early(of);
    bool unexplained = code && !of->explained && code != STATUS_SAVED;
    if (unexplained && !of->hosts && hosts_named(of->spec->call)) return explain_unstarted(of, asks);
    if (unexplained) fputs(of->text, stderr);
    if (code > 128 && code <= 128 + SIGRTMAX)
        return FAILED("a rank was killed by signal %d (%s); the other ranks were terminated", code - 128,
                      strsignal(code - 128));
    if (!unexplained && (code <= STATUS_USAGE || code == STATUS_SAVED)) return OK;
    return FAILED(of->hosts ? "%s exited with code %d"
                            : "%s could not start the ranks; it exited with code %d",
                  name, code);
}

/* The host of a rank; empty if it is unknown. */
static void host_of(const Launched *of, int rank, char host[HOST_SIZE]) {
    const char *at = of->hosts;
    int length = 0;
    host[0] = 0;
    for (int i = 0; at && i <= rank; i++, at += length)
        if (sscanf(at, " %64s%n", host, &length) != 1) {
            host[0] = 0;
            return;
        }
}

static void find_host(const Launched *of, char host[HOST_SIZE]) {
    memcpy(host, of->lost[0] ? of->lost : of->suspect, HOST_SIZE);
    if (!host[0] && of->signal) host_of(of, of->rank, host);
}

Status launched_wait(const LaunchedSpec *spec, int *ret_code, LaunchedFailure *ret_failure) {
    CLEANUP(launched_done) Launched of = {.spec = spec};
    double start = clock_read(CLOCK_REALTIME);
    *ret_failure = (LaunchedFailure){0};
    of.held = open_memstream(&of.text, &of.size);
    if (!of.held) return FAILED("out of memory");
    read_all(&of);
    int state;
    while (waitpid(spec->pid, &state, 0) < 0)
        if (errno != EINTR) return FAILED("cannot wait for %s: %s", spec->name, strerror(errno));
    bool saved = (of.early || of.at_once || WIFSIGNALED(state)) && await_orphans(&of);
    char number; /* of a signal that came too late to be passed on: no restart */
    bool asked = of.asked || read(spec->signals, &number, 1) == 1;
    int code = WIFEXITED(state) ? WEXITSTATUS(state) : STATUS_FAILED;
    bool failed =
        of.failed || of.signal || of.lost[0] || WIFSIGNALED(state) || (code && !of.explained && code != 127);
    ret_failure->failed = failed && !asked && !of.code && code != STATUS_USAGE && code != STATUS_SAVED;
    find_host(&of, ret_failure->host);
    if (of.early) return explain_early(&of);
    if (of.at_once) return STOPPED("%s", spec->stops ? STOP_AT_ONCE : "stopped at once");
    if (of.stuck && !of.explained) fputs(of.text, stderr);
    if (of.stuck) return FAILED("%s hung after a rank had ended, and was killed", spec->name);
    if (WIFSIGNALED(state) && !of.late)
        return explain_killed(&of, WTERMSIG(state), saved || resume_saved(spec->call, start));
    reap();
    code = of.late ? STATUS_FAILED : code;
    bool asks = false;
    Status status = explain(&of, code, &asks);
    if (asks) ret_failure->failed = false;
    TRY(status);
    ret_failure->grows = of.grows && !asked && code + of.code == STATUS_SAVED;
    *ret_code = code ? code : of.code;
    return *ret_code ? OK : stdout_check(of.unwritten);
}

/* ---- the processes below another one ---- */

/* The program that a process runs; empty if unknown. */
static void program_of(const char *process, char program[PATH_MAX]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/exe", process);
    ssize_t length = readlink(path, program, PATH_MAX - 1);
    program[length > 0 ? length : 0] = 0;
}

/* Launchers start ranks through processes of their own, which a signal may kill. */
static bool is_own(const char *process) {
    char program[PATH_MAX], own[PATH_MAX];
    program_of(process, program);
    program_of("self", own);
    return *own && strcmp(program, own) == 0;
}

int processes_signal(pid_t parent, int number, bool own) {
    int count = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        pid_t process = (pid_t)strtol(entry->d_name, NULL, 10), above = 0;
        char state = process > 1 ? process_state(process, &above) : 0;
        if (!state || state == 'Z' || above != parent) continue;
        if (number == SIGKILL) kill(process, SIGSTOP); /* it starts no others meanwhile */
        count += processes_signal(process, number, own);
        if (own && !is_own(entry->d_name)) continue;
        kill(process, number);
        count++;
    }
    if (dir) closedir(dir);
    return count;
}

pid_t processes_in_state(pid_t parent, const char *states) {
    pid_t found = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        pid_t process = (pid_t)strtol(entry->d_name, NULL, 10), above = 0;
        char state = process > 1 ? process_state(process, &above) : 0;
        if (state && above == parent && strchr(states, state)) found = process;
    }
    if (dir) closedir(dir);
    return found;
}
