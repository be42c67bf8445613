/* Starting ranks under a launcher.
 *
 * `--ranks N` runs this command line under mpirun and waits for it. Settings for mpirun (root,
 * oversubscription, no binding) are passed in the environment, so that other launchers do not get options
 * they do not know. Ranks recognize from the environment that they were launched and join instead of starting
 * others. cli/launched.c reads what the launcher prints.
 *
 * Signals must not reach mpirun, which would kill its ranks two seconds later. It runs in its own process
 * group, so Ctrl-C goes to this process only, and with SIGINT, SIGTERM and SIGHUP blocked, so it survives a
 * batch system that signals all processes. This process asks the ranks to stop, by SIGINT after Ctrl-C and
 * else by SIGUSR1, and kills them if Ctrl-C is pressed again, 1 s later or more. If this process is killed,
 * mpirun gets SIGUSR1, which it passes on to the ranks. If mpirun is killed, its ranks stop (cli/stop.c) and
 * become children of this process.
 */
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/terminal.h"
#include "cli/child.h"
#include "cli/hosts.h"
#include "cli/invocation.h"
#include "cli/launched.h"
#include "cli/show.h"
#include "cli/stop.h"
#include "comm/cores.h"
#include "comm/mpi.h"
#include "comm/watchdog.h"
#include "device/registry.h"

enum { LAUNCHER_WORDS = 32, JOIN_LIMIT = 60 };

/* Set for the ranks: this process has printed the warnings. */
#define WARNED "WEFT_WARNED"

/* For the signal handler: a pipe that carries signal numbers to the loop that waits for the launcher. */
static volatile sig_atomic_t signal_pipe = -1;

static void pass_signal(int signal_number) {
    int error = errno;
    char byte = (char)signal_number;
    ssize_t written = write(signal_pipe, &byte, 1);
    (void)written;
    errno = error;
}

static Status set_environment(const Invocation *call) {
    static const char *const root[] = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                                       "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"};
    static const char *const settings[][2] = {
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        /* mpirun notices within 30 s that a host is gone, instead of within minutes or never. */
        {"OMPI_MCA_oob_tcp_keepalive_time", "10"},
        {"OMPI_MCA_oob_tcp_keepalive_intvl", "5"},
        {"OMPI_MCA_oob_tcp_keepalive_probes", "4"},
        {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
        {"PRTE_MCA_oob_tcp_keepalive_time", "10"},
        {"PRTE_MCA_oob_tcp_keepalive_intvl", "5"},
        {"PRTE_MCA_oob_tcp_keepalive_probes", "4"},
        {"PRTE_MCA_hwloc_default_binding_policy", "none"},
    };
    for (size_t i = 0; i < COUNT_OF(root); i++)
        if (geteuid() == 0 && setenv(root[i], "1", 1) != 0) return FAILED("out of memory");
    if (setenv(WARNED, "1", 1) != 0) return FAILED("out of memory");
    /* "none" below is for mpirun only; ranks then pin themselves. A user's own "none" is meant for them too.
     */
    bool pin =
        !getenv("OMPI_MCA_hwloc_base_binding_policy") && !getenv("PRTE_MCA_hwloc_default_binding_policy");
    if (pin && setenv(CORES_PIN, "1", 1) != 0) return FAILED("out of memory");
    for (size_t i = 0; i < COUNT_OF(settings); i++) /* do not override the user's setting */
        if (setenv(settings[i][0], settings[i][1], 0) != 0) return FAILED("out of memory");
    return hosts_named(call) && !hosts_allocated() ? reach_set_environment() : OK;
}

/* The launcher of the MPI library that weft was built with; empty if unknown. */
#ifndef WEFT_MPIEXEC
#define WEFT_MPIEXEC ""
#endif

/* The launcher and its options, such as "srun --mpi=pmix". It must belong to the MPI library that weft uses,
 * or the ranks do not find each other. */
static const char *launcher_line(void) {
    static const char *const names[] = {"WEFT_MPIRUN", "MPIEXEC"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const char *line = getenv(names[i]);
        if (line && line[strspn(line, " ")]) return line;
    }
    return access(WEFT_MPIEXEC, X_OK) == 0 ? WEFT_MPIEXEC : "mpirun";
}

/* The launcher's standard error and output: results must not run into a progress line, and mpirun does not
 * say if it cannot write them. And the numbers of signals that this process receives. */
typedef struct LauncherPipes {
    int error[2], results[2], signals[2]; /* -1: inherited, or closed */
    int held; /* a file for standard output, which may turn out not to be the result; -1: none */
} LauncherPipes;

static void close_end(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void pipes_done(LauncherPipes *pipes) {
    for (int i = 0; i < 2; i++) {
        close_end(&pipes->error[i]);
        close_end(&pipes->results[i]);
        close_end(&pipes->signals[i]);
    }
    close_end(&pipes->held);
}

static Status open_pipes(LauncherPipes *pipes, bool hold) {
    if (hold) pipes->held = memfd_create("weft results", MFD_CLOEXEC);
    if (hold && pipes->held < 0) return FAILED("cannot create a file in memory: %s", strerror(errno));
    if (pipe2(pipes->error, O_CLOEXEC) != 0 || pipe2(pipes->signals, O_CLOEXEC | O_NONBLOCK) != 0 ||
        (!hold && pipe2(pipes->results, O_CLOEXEC) != 0))
        return FAILED("cannot create a pipe: %s", strerror(errno));
    return OK;
}

/* ssh cannot ask for a password on it, and wait for an answer forever. */
static void leave_terminal(void) {
    int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (terminal < 0) return;
    ioctl(terminal, TIOCNOTTY);
    close(terminal);
}

/* Runs in the child: turns it into the launcher, which outlives neither this process nor its ranks. */
static void become(char *const *argv, const LauncherPipes *pipes, bool stops, bool remote) {
    sigset_t blocked;
    sigemptyset(&blocked);
    if (stops) {
        sigaddset(&blocked, SIGINT);
        sigaddset(&blocked, SIGTERM);
        sigaddset(&blocked, SIGHUP);
    }
    prctl(PR_SET_PDEATHSIG, stops ? SIGUSR1 : SIGTERM);
    dup2(pipes->error[1], STDERR_FILENO);
    if (pipes->results[1] >= 0) dup2(pipes->results[1], STDOUT_FILENO);
    if (pipes->held >= 0) dup2(pipes->held, STDOUT_FILENO);
    setpgid(0, 0); /* Ctrl-C goes to the parent only */
    if (remote) leave_terminal();
    if (!freopen("/dev/null", "r", stdin)) _exit(127);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    execvp(argv[0], argv);
    _exit(127);
}

static Status pass_held(int held) {
    char block[4096];
    if (held < 0 || lseek(held, 0, SEEK_SET) != 0) return OK;
    for (ssize_t got; (got = read(held, block, sizeof block)) > 0;)
        TRY(stdout_check(relay_results(block, (size_t)got)));
    return OK;
}

static bool can_grow(void *restarts) {
    return restarts_can_grow(restarts);
}

static Status run_launcher(const Invocation *call, char *const *argv, const char *title, bool stops,
                           Restarts *restarts, int *ret_code, LaunchedFailure *ret_failure) {
    CLEANUP(pipes_done) LauncherPipes pipes = {{-1, -1}, {-1, -1}, {-1, -1}, -1};
    TRY(open_pipes(&pipes, restarts_may_grow(restarts)));
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t child = fork();
    if (child == 0) become(argv, &pipes, stops, hosts_named(call));
    close_end(&pipes.error[1]);
    close_end(&pipes.results[1]);
    if (child < 0) return FAILED("cannot start a process: %s", strerror(errno));
    signal_pipe = pipes.signals[1];
    stop_handle(pass_signal, SA_RESTART);
    LaunchedSpec spec = {.call = call,
                         .elsewhere = hosts_allocated() || hosts_named(call),
                         .name = argv[0],
                         .title = title,
                         .pid = child,
                         .error = pipes.error[0],
                         .results = pipes.results[0],
                         .signals = pipes.signals[0],
                         .stops = stops,
                         .resumes = restarts->saved,
                         .can_grow = can_grow,
                         .restarts = restarts};
    Status status = launched_wait(&spec, ret_code, ret_failure);
    pipes.results[0] = -1; /* closed at its end */
    stop_release();
    Status passed = ret_failure->grows ? OK : pass_held(pipes.held);
    if (status) status_free(passed);
    return status ? status : passed;
}

/* A launcher that is asked for more processes than the machine can hold takes minutes to fail. */
static Status check_room(int64_t ranks) {
    const double rank_bytes = 16e6; /* resident memory of a rank that does nothing */
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    int64_t most = (int64_t)(memory / rank_bytes);
    char text[FORMAT_SIZE];
    if (hosts_allocated() || ranks <= most) return OK;
    return USAGE("--ranks %lld: this machine's %s of memory hold at most %lld ranks; use fewer, or start "
                 "ranks on several nodes with mpirun or srun",
                 (long long)ranks, format_bytes(text, memory), (long long)most);
}

/* Open MPI maps files of this size into all ranks; if it cannot make them, mpirun hangs. */
static Status check_file_size(void) {
    const double shared = 4 << 20;
    struct rlimit limit;
    char now[FORMAT_SIZE], need[FORMAT_SIZE];
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        (double)limit.rlim_cur >= shared)
        return OK;
    return FAILED(
        "files may not be larger than %s (ulimit -f), but ranks share memory through files of %s; raise "
        "the limit, for example with 'ulimit -f unlimited'",
        format_bytes(now, (double)limit.rlim_cur), format_bytes(need, shared));
}

/* Shown until the first rank prints something: starting takes a second, longer if ranks share cores. */
static void start_title(const Invocation *call, int64_t ranks, char *ret_title, size_t size) {
    const Slot *quiet = invocation_slot(call, "quiet");
    int64_t cores = device_host_cores();
    ret_title[0] = 0;
    if (quiet && *(const bool *)quiet->field) return;
    snprintf(ret_title, size, "starting %lld ranks", (long long)ranks);
    if (ranks > 2 * cores && !hosts_allocated() && !hosts_named(call))
        snprintf(ret_title, size, "starting %lld ranks on %lld core%s", (long long)ranks, (long long)cores,
                 PLURAL(cores));
}

/* Appends the command's options and operands, and those of a restart before a "--". */
static void append_line(char **argv, size_t at, char *const *line, const Restarts *restarts) {
    static char gather[] = "--" GATHER_OPTION;
    const Slot *slot = invocation_slot(restarts->call, GATHER_OPTION);
    bool added = false;
    for (size_t i = 1;; i++) {
        bool end = !line[i] || strcmp(line[i], "--") == 0;
        if (end && !added && slot && *(const bool *)slot->field)
            argv[at++] = gather; /* also if a file sets it */
        for (size_t k = 0; end && !added && k < restarts->word_count; k++)
            argv[at++] = (char *)(uintptr_t)restarts->words[k];
        added |= end;
        argv[at++] = line[i];
        if (!line[i]) return;
    }
}

/* Divides the launcher's line, which is overwritten and referred to. */
static Status add_words(char *line, char **argv, size_t *at) {
    char *rest = NULL;
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (*at == LAUNCHER_WORDS) return USAGE("WEFT_MPIRUN: more than %d words", LAUNCHER_WORDS);
        argv[(*at)++] = word;
    }
    return OK;
}

static Status start(Invocation *call, int64_t ranks, bool stops) {
    char program[PROGRAM_SIZE], count[24], title[80];
    CLEANUP(host_list_done) HostList list = {0};
    TRY(host_list_read(call, &list));
    TRY(host_list_check(&list, ranks));
    if (!hosts_named(call)) TRY(check_room(ranks));
    TRY(check_file_size());
    if (!mpi_built()) {
        CLEANUP(group_freep) Group *none = NULL;
        return mpi_world_new(&none); /* for its error message */
    }
    TRY(process_program(program));
    size_t arguments = 0, at = 0;
    while (call->line[arguments]) arguments++;
    CLEANUP(mem_freep) char **argv = NULL;
    CLEANUP(mem_freep) char *words = NULL, *names = NULL;
    TRY(set_environment(call));
    TRY(relay_announce(stderr));
    TRY(mem_new(arguments + LAUNCHER_WORDS + HOST_WORDS + 2 * hosts_variables() + RESTART_WORDS + 8,
                sizeof *argv, &argv));
    TRY(str_dup(launcher_line(), &words));
    TRY(add_words(words, argv, &at));
    char flag[] = "-n";
    argv[at++] = flag;
    argv[at++] = count;
    char *log_option = NULL;
    CLEANUP(mem_freep) char *log = NULL;
    TRY(hosts_log(call, 0, &log_option, &log));
    size_t log_at = at;
    if (log) argv[at++] = log_option;
    if (log) argv[at++] = log;
    size_t where = at;
    TRY(hosts_add(call, argv, &at, &names));
    argv[at++] = program;
    char *all[] = {argv[where], argv[where + 1]}, *option = (char *)(uintptr_t)hosts_option();
    CLEANUP(restarts_done) Restarts restarts = {0};
    TRY(restarts_new(call, ranks, &restarts));
    int64_t starts = 0;
    for (bool again = true; again;) {
        LaunchedFailure failure = {0};
        TRY(hosts_log(call, starts++, &log_option, &log));
        if (log) argv[log_at + 1] = log;
        snprintf(count, sizeof count, "%lld", (long long)restarts.ranks);
        start_title(call, restarts.ranks, title, sizeof title);
        if (names) {
            argv[where] = restarts.hosts ? option : all[0];
            argv[where + 1] = restarts.hosts ? restarts.hosts : all[1];
        }
        append_line(argv, at, call->line, &restarts);
        call->exit_code = 0;
        CLEANUP(status_freep)
        Status status = run_launcher(call, argv, title, stops, &restarts, &call->exit_code, &failure);
        again = failure.grows;
        if (failure.grows) restarts_grow(&restarts);
        if (failure.failed) TRY(restarts_next(&restarts, status, failure.host, &again));
        if (!again) {
            Status end = status;
            status = NULL;
            return end;
        }
    }
    return OK;
}

/* MPI's start-up blocks until all ranks take part. */
typedef struct Joining {
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool joined;
    double limit_s;
} Joining;

static void *watch_joining(void *argument) {
    Joining *joining = argument;
    Launched launched = mpi_launched();
    /* One rank reports; when it has ended, the others end silently. */
    double limit = joining->limit_s + 0.2 * (launched.rank < 20 ? launched.rank : 20);
    struct timespec until = clock_after(limit);
    char host[65] = "this host";
    pthread_mutex_lock(&joining->lock);
    int code = 0;
    while (!joining->joined && code != ETIMEDOUT)
        code = pthread_cond_timedwait(&joining->done, &joining->lock, &until);
    if (!joining->joined && processes_in_state(getppid(), "Z")) _exit(STATUS_FAILED);
    if (!joining->joined) {
        gethostname(host, sizeof host - 1);
        pid_t stopped = processes_in_state(getppid(), "Tt");
        fprintf(stderr, "weft: error: rank %d on %s has waited %g s for the ranks to connect (--timeout)",
                launched.rank, host, joining->limit_s);
        if (stopped > 0) fprintf(stderr, "; process %d is stopped (SIGSTOP)", (int)stopped);
        fputc('\n', stderr);
        _exit(STATUS_FAILED);
    }
    pthread_mutex_unlock(&joining->lock);
    return NULL;
}

/* For the process that started the launcher, in case a host is lost. */
static void announce_hosts(const Group *world) {
    char host[HOST_SIZE];
    if (!launch_is_ours() || world->rank > 0) return;
    fputs(LAUNCHED_HOSTS, stderr);
    for (int r = 0; r < world->size; r++) fprintf(stderr, "%s%s", r ? " " : "", group_host(world, r, host));
    fputc('\n', stderr);
}

Status launch_connect(Invocation *call, double limit_s) {
    Joining joining = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit_s = limit_s};
    clock_cond_init(&joining.done);
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool watched_start = limit_s > 0 && pthread_create(&thread, NULL, watch_joining, &joining) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    Status status = mpi_world_new(&call->world);
    pthread_mutex_lock(&joining.lock);
    joining.joined = true;
    pthread_cond_signal(&joining.done);
    pthread_mutex_unlock(&joining.lock);
    if (watched_start) pthread_join(thread, NULL);
    if (status) return status;
    Watchdog *watch = group_watchdog(call->world);
    if (watch)
        watch->limit_s = limit_s; /* ranks read their files; layout_enter sets the limit of later waits */
    return OK;
}

Status launch_agree(Invocation *call) {
    Watchdog *watch = group_watchdog(call->world);
    TRY(agree_on_start(call));
    if (watch) watch->limit_s = 0;
    announce_hosts(call->world);
    return OK;
}

Status launch_join(Invocation *call, double limit_s) {
    if (!mpi_launched().launched || call->world) return OK;
    TRY(launch_connect(call, limit_s));
    return launch_agree(call);
}

/* srun without --mpi starts copies of the program that know nothing of each other. */
static Status check_srun(const Invocation *call) {
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    Launched launched = mpi_launched();
    int count = launched.launched ? launched.size : tasks ? atoi(tasks) : 1;
    int size = call->world ? call->world->size : 1;
    if (count <= 1 || size > 1) return OK;
    return USAGE(
        "the launcher started %d tasks, but they do not see each other; with Slurm, start them with srun "
        "--mpi=pmix ('srun --mpi=list' shows what is installed), or with the mpirun of %s",
        count, mpi_built() ? mpi_library() : "an MPI library that weft was built with");
}

Status launch(Invocation *call, int64_t ranks, bool stops, bool *ret_here) {
    TRY(launch_join(call, JOIN_LIMIT));
    TRY(check_srun(call));
    if (!call->world && ranks <= 1 && hosts_on_line(call))
        return invocation_given(call, "ranks")
                   ? USAGE("--ranks 1 runs in this process; remove --hosts and --hostfile, or use more ranks")
                   : USAGE("--hosts and --hostfile say where --ranks starts ranks; pass --ranks N");
    if (!call->world && ranks <= 1 && hosts_log_on_line(call))
        return USAGE("--log-ranks writes what the ranks of --ranks print; pass --ranks 2 or more");
    if (call->world && ranks && ranks != call->world->size)
        return USAGE("--ranks %lld does not match the %d rank%s that the launcher started; remove --ranks",
                     (long long)ranks, call->world->size, PLURAL(call->world->size));
    *ret_here = call->world || ranks <= 1;
    if (!*ret_here) return start(call, ranks, stops);
    return call->world ? OK : group_new_self(&call->world);
}

bool launch_is_ours(void) {
    return getenv(WARNED) != NULL;
}

FILE *launch_log(const Invocation *call) {
    return call->world && call->world->rank > 0 ? NULL : stderr;
}

bool launch_may_warn(void) {
    Launched launched = mpi_launched();
    return !getenv(WARNED) && (!launched.launched || launched.rank == 0);
}

/* Before the ranks have joined, they usually all fail for the same reason. Rank 0 reports it, and its exit
 * terminates the others while they wait here. */
bool launch_may_report(const Invocation *call) {
    Launched launched = mpi_launched();
    if (call && call->world) return group_claim_failure(call->world);
    if (launched.launched && launched.rank > 0) sleep(3);
    return true;
}

void launch_end(const Invocation *call, int exit_code) {
    if (call && call->world) group_end_all(call->world, exit_code);
}

void launch_tell_code(int code) {
    if (mpi_launched().launched && getenv(WARNED)) fprintf(stderr, LAUNCHED_CODE "%d\n", code);
}

/* When a rank exits with a code other than 0, mpirun takes two seconds to kill the others. So ranks that have
 * ended together exit with 0, and rank 0 tells the process that started mpirun. */
int launch_exit_code(int code) {
    Launched launched = mpi_launched();
    if (!launched.launched || !getenv(WARNED) || code == 0) return code;
    if (launched.rank == 0) launch_tell_code(code);
    return 0;
}
