/* Starting ranks under a launcher.
 *
 * `--ranks N` runs this command line under mpirun and waits for it. Settings for mpirun (root,
 * oversubscription, no binding) are passed in the environment, so that other launchers do not get options
 * they do not know. Ranks recognize from the environment that they were launched and join instead of starting
 * others.
 *
 * When ranks fail, mpirun prints explanations in blocks between lines of dashes. They are held back: a rank
 * that failed has reported its error in one line, and for a rank that was killed the block tells which one.
 * The blocks are printed only if neither explains the failure.
 *
 * Ctrl-C must not reach mpirun, which would kill its ranks in the middle of a step. This process forwards it
 * as SIGUSR1, which mpirun passes to every rank; a second Ctrl-C terminates mpirun. If this process is
 * killed, mpirun gets SIGTERM.
 */
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "cli/relay.h"
#include "comm/mpi.h"
#include "device/registry.h"

enum { LAUNCHER_WORDS = 32 };

/* Set for the ranks: this process has printed the warnings. */
#define WARNED "WEFT_WARNED"

/* For the signal handler: the process to signal, and the signal to send next. */
static volatile sig_atomic_t launcher_pid, launcher_signal;

static void forward_signal(int signal_number) {
    (void)signal_number;
    int error = errno;
    kill((pid_t)launcher_pid, (int)launcher_signal);
    launcher_signal = SIGTERM;
    errno = error;
}

static Status set_environment(void) {
    static const char *const root[] = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                                       "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"};
    static const char *const settings[][2] = {
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
        {"PRTE_MCA_hwloc_default_binding_policy", "none"},
    };
    for (size_t i = 0; i < COUNT_OF(root); i++)
        if (geteuid() == 0 && setenv(root[i], "1", 1) != 0) return FAILED("out of memory");
    if (setenv(WARNED, "1", 1) != 0) return FAILED("out of memory");
    for (size_t i = 0; i < COUNT_OF(settings); i++) /* do not override the user's setting */
        if (setenv(settings[i][0], settings[i][1], 0) != 0) return FAILED("out of memory");
    return OK;
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

/* What the launcher wrote to standard error. */
typedef struct LauncherOutput {
    bool in_block;  /* between two lines of dashes */
    bool explained; /* a rank has reported its error */
    FILE *held;     /* writes to `text` */
    char *text;     /* the blocks and remarks that were held back */
    size_t size;
    int rank, signal; /* the rank that was killed, and how; signal 0: no rank was killed */
} LauncherOutput;

static void output_done(LauncherOutput *output) {
    if (output->held) fclose(output->held);
    free(output->text);
}

static bool is_frame(const char *line) {
    size_t dashes = strspn(line, "-");
    return dashes >= 40 && line[dashes] == '\n';
}

/* Messages that Open MPI prints outside blocks and that are held back as well. */
static const char *const remarks[] = {"help message", "orte_base_help_aggregate", "ORTE_ERROR_LOG",
                                      "PMIX ERROR"};

static void read_line(LauncherOutput *output, const char *line) {
    const char *killed = strstr(line, "process rank "), *by = strstr(line, "exited on signal ");
    bool frame = is_frame(line);
    if (frame) output->in_block = !output->in_block;
    if (output->in_block && killed && by && !output->signal) {
        sscanf(killed, "process rank %d", &output->rank);
        sscanf(by, "exited on signal %d", &output->signal);
    }
    static const char *const reports[] = {"weft: error: ", "weft: stopped"};
    for (size_t i = 0; i < COUNT_OF(reports); i++)
        if (strncmp(line, reports[i], strlen(reports[i])) == 0) output->explained = true;
    bool remark = false;
    for (size_t i = 0; i < COUNT_OF(remarks); i++) remark |= strstr(line, remarks[i]) != NULL;
    fputs(line, output->in_block || frame || remark ? output->held : stderr);
}

static Status read_output(Relay *relay, LauncherOutput *output) {
    output->held = open_memstream(&output->text, &output->size);
    char *line = NULL;
    size_t capacity = 0;
    while (output->held && relay_line(relay, &line, &capacity) > 0) read_line(output, line);
    free(line);
    close(relay->in);
    if (!output->held) return FAILED("out of memory");
    fflush(output->held);
    return OK;
}

/* The launcher's standard error and, if both are terminals here, standard output, so that results do not run
 * into a progress line. */
typedef struct LauncherPipes {
    int error[2], results[2]; /* -1: inherited */
} LauncherPipes;

static void close_end(int fd) {
    if (fd >= 0) close(fd);
}

static Status open_pipes(LauncherPipes *ret_pipes) {
    LauncherPipes pipes = {.results = {-1, -1}};
    if (pipe2(pipes.error, O_CLOEXEC) != 0) return FAILED("cannot create a pipe: %s", strerror(errno));
    if (terminal_live(stderr) && terminal_live(stdout) && pipe2(pipes.results, O_CLOEXEC) != 0) {
        close(pipes.error[0]);
        close(pipes.error[1]);
        return FAILED("cannot create a pipe: %s", strerror(errno));
    }
    *ret_pipes = pipes;
    return OK;
}

/* Runs in the child: turns it into the launcher, which terminates when the parent does. */
static void become(char *const *argv, const LauncherPipes *pipes) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(pipes->error[1], STDERR_FILENO);
    if (pipes->results[1] >= 0) dup2(pipes->results[1], STDOUT_FILENO);
    setpgid(0, 0); /* Ctrl-C goes to the parent only */
    if (!freopen("/dev/null", "r", stdin)) _exit(127);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    execvp(argv[0], argv);
    _exit(127);
}

static Status wait_for(pid_t child, const char *launcher, const LauncherOutput *output, int *ret_code) {
    int state;
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return FAILED("cannot wait for %s: %s", launcher, strerror(errno));
    int code = WIFEXITED(state) ? WEXITSTATUS(state) : STATUS_FAILED;
    if (code == 127)
        return FAILED(
            "cannot run %s; install an MPI library such as Open MPI, or set WEFT_MPIRUN to its launcher",
            launcher);
    if (code && !output->explained && output->signal)
        return FAILED("rank %d was killed by signal %d (%s); the other ranks were terminated", output->rank,
                      output->signal, strsignal(output->signal));
    if (code && !output->explained) fputs(output->text, stderr);
    if (code > 128 && code <= 128 + SIGRTMAX)
        return FAILED("a rank was killed by signal %d (%s); the other ranks were terminated", code - 128,
                      strsignal(code - 128));
    if (code > STATUS_USAGE) return FAILED("%s exited with code %d", launcher, code);
    *ret_code = code;
    return OK;
}

static Status run_launcher(char *const *argv, const char *title, bool stops, int *ret_code) {
    struct sigaction action = {.sa_handler = forward_signal, .sa_flags = SA_RESTART};
    LauncherPipes pipes = {.error = {-1, -1}, .results = {-1, -1}};
    sigemptyset(&action.sa_mask);
    TRY(set_environment());
    TRY(relay_announce(stderr));
    TRY(open_pipes(&pipes));
    pid_t child = fork();
    if (child == 0) become(argv, &pipes);
    close_end(pipes.error[1]);
    close_end(pipes.results[1]);
    if (child < 0) {
        close_end(pipes.error[0]);
        close_end(pipes.results[0]);
        return FAILED("cannot start a process: %s", strerror(errno));
    }
    launcher_pid = child;
    launcher_signal = stops ? SIGUSR1 : SIGTERM;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    CLEANUP(output_done) LauncherOutput output = {0};
    Relay relay = {.out = stderr, .in = pipes.error[0], .results = pipes.results[0]};
    relay_draw(&relay, title);
    TRY(read_output(&relay, &output));
    return wait_for(child, argv[0], &output, ret_code);
}

/* Whether a batch system or the user tells the launcher on which nodes to start ranks. */
static bool has_allocation(void) {
    static const char *const names[] = {"SLURM_JOB_ID",
                                        "PBS_NODEFILE",
                                        "LSB_JOBID",
                                        "PE_HOSTFILE",
                                        "OMPI_MCA_orte_default_hostfile",
                                        "PRTE_MCA_prte_default_hostfile"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (getenv(names[i])) return true;
    return false;
}

/* A launcher that is asked for more processes than the machine can hold takes minutes to fail. */
static Status check_room(int64_t ranks) {
    const double rank_bytes = 16e6; /* resident memory of a rank that does nothing */
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    int64_t most = (int64_t)(memory / rank_bytes);
    char text[FORMAT_SIZE];
    if (has_allocation() || ranks <= most) return OK;
    return USAGE("--ranks %lld: this machine's %s of memory hold at most %lld ranks; use fewer, or start "
                 "ranks on several nodes with mpirun or srun",
                 (long long)ranks, format_bytes(text, memory), (long long)most);
}

/* Shown until the first rank prints something: starting takes a second, longer if ranks share cores. */
static void start_title(const Invocation *call, int64_t ranks, char *ret_title, size_t size) {
    const Slot *quiet = invocation_slot(call, "quiet");
    int64_t cores = device_host_cores();
    ret_title[0] = 0;
    if (quiet && *(const bool *)quiet->field) return;
    snprintf(ret_title, size, "starting %lld ranks", (long long)ranks);
    if (ranks > 2 * cores && !has_allocation())
        snprintf(ret_title, size, "starting %lld ranks on %lld core%s", (long long)ranks, (long long)cores,
                 PLURAL(cores));
}

static Status start(Invocation *call, int64_t ranks, bool stops) {
    char program[4096], count[24], title[80];
    TRY(check_room(ranks));
    start_title(call, ranks, title, sizeof title);
    if (!mpi_built()) {
        CLEANUP(group_freep) Group *none = NULL;
        return mpi_world_new(&none); /* for its error message */
    }
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0) return FAILED("/proc/self/exe: cannot read: %s", strerror(errno));
    program[length] = 0;
    snprintf(count, sizeof count, "%lld", (long long)ranks);
    size_t arguments = 0, at = 0;
    while (call->line[arguments]) arguments++;
    CLEANUP(mem_freep) char **argv = NULL;
    CLEANUP(mem_freep) char *words = NULL;
    TRY(mem_new(arguments + LAUNCHER_WORDS + 4, sizeof *argv, &argv));
    TRY(str_dup(launcher_line(), &words));
    char *rest = NULL;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (at == LAUNCHER_WORDS) return USAGE("WEFT_MPIRUN: more than %d words", LAUNCHER_WORDS);
        argv[at++] = word;
    }
    char flag[] = "-n";
    argv[at++] = flag;
    argv[at++] = count;
    argv[at++] = program;
    for (size_t i = 1; i < arguments; i++) argv[at++] = call->line[i];
    return run_launcher(argv, title, stops, &call->exit_code);
}

Status launch_join(Invocation *call) {
    if (!mpi_launched().launched || call->world) return OK;
    return mpi_world_new(&call->world);
}

Status launch(Invocation *call, int64_t ranks, bool stops, bool *ret_here) {
    TRY(launch_join(call));
    if (call->world && ranks && ranks != call->world->size)
        return USAGE("--ranks %lld does not match the %d rank%s that the launcher started; remove --ranks",
                     (long long)ranks, call->world->size, PLURAL(call->world->size));
    *ret_here = call->world || ranks <= 1;
    if (!*ret_here) return start(call, ranks, stops);
    return call->world ? OK : group_new_self(&call->world);
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
