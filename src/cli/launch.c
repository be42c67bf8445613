/* Starting under a launcher.
 *
 * `--ranks N` runs this same command line under mpirun and waits for it. What mpirun needs to be told (root,
 * more ranks than cores, no binding of its own) goes through the environment, so that launchers of another
 * make are not given options they do not know. Ranks see in the environment that they were launched, and
 * join instead of starting others.
 *
 * When ranks end badly, mpirun explains itself in blocks between lines of dashes. They are held back: a rank
 * that failed has said why, in one line, and of a rank that was killed the block tells which one it was. Only
 * where neither explains anything do they come out.
 *
 * Ctrl-C is for this process alone: mpirun would end its ranks at once, in the middle of a step. It is passed
 * on as SIGUSR1, which mpirun hands to every rank; a second Ctrl-C ends mpirun. Should this process be
 * killed, mpirun is told to end too.
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

#include "base/fs.h"
#include "base/memory.h"
#include "comm/mpi.h"

enum { LAUNCHER_WORDS = 32 };

/* What the signal handler knows: whom to tell, and how the first and later times. */
static volatile sig_atomic_t launcher_pid, launcher_signal;

static void pass_on(int signal_number) {
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
    for (size_t i = 0; i < COUNT_OF(settings); i++) /* who has set one keeps it */
        if (setenv(settings[i][0], settings[i][1], 0) != 0) return FAILED("out of memory");
    return OK;
}

/* The launcher of the MPI that weft was built with, where the build knew it. */
#ifndef WEFT_MPIEXEC
#define WEFT_MPIEXEC ""
#endif

/* The launcher's name, and options that come with it: "srun --mpi=pmix". A launcher of another MPI would
 * start ranks that do not find each other. */
static const char *launcher_line(void) {
    static const char *const names[] = {"WEFT_MPIRUN", "MPIEXEC"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const char *line = getenv(names[i]);
        if (line && line[strspn(line, " ")]) return line;
    }
    return access(WEFT_MPIEXEC, X_OK) == 0 ? WEFT_MPIEXEC : "mpirun";
}

/* What was heard on the launcher's standard error. */
typedef struct Heard {
    bool in_block, explained; /* explained: a rank has reported */
    FILE *held;
    char *text; /* of the blocks */
    size_t size;
    int rank, signal; /* of the rank that was killed; signal 0: none */
} Heard;

static void heard_done(Heard *heard) {
    if (heard->held) fclose(heard->held);
    free(heard->text);
}

static bool is_frame(const char *line) {
    size_t dashes = strspn(line, "-");
    return dashes >= 40 && line[dashes] == '\n';
}

/* Open MPI's remarks outside blocks: on how many ranks ended the same way, and to itself. */
static const char *const asides[] = {"help message", "orte_base_help_aggregate", "ORTE_ERROR_LOG",
                                     "PMIX ERROR"};

static void hear_line(Heard *heard, const char *line) {
    const char *killed = strstr(line, "process rank "), *by = strstr(line, "exited on signal ");
    bool frame = is_frame(line);
    if (frame) heard->in_block = !heard->in_block;
    if (heard->in_block && killed && by && !heard->signal) {
        sscanf(killed, "process rank %d", &heard->rank);
        sscanf(by, "exited on signal %d", &heard->signal);
    }
    static const char *const reports[] = {"weft: error: ", "weft: stopped "};
    for (size_t i = 0; i < COUNT_OF(reports); i++)
        if (strncmp(line, reports[i], strlen(reports[i])) == 0) heard->explained = true;
    bool aside = false;
    for (size_t i = 0; i < COUNT_OF(asides); i++) aside |= strstr(line, asides[i]) != NULL;
    fputs(line, heard->in_block || frame || aside ? heard->held : stderr);
}

static Status hear(int from, Heard *heard) {
    FILE *in = fdopen(from, "r");
    heard->held = open_memstream(&heard->text, &heard->size);
    char *line = NULL;
    size_t capacity = 0;
    while (in && heard->held && getline(&line, &capacity, in) > 0) hear_line(heard, line);
    free(line);
    bool failed = !in || !heard->held;
    if (in)
        fclose(in);
    else
        close(from);
    if (heard->held) fflush(heard->held);
    return failed ? FAILED("out of memory") : OK;
}

/* Runs in the child. The parent's end ends the launcher. */
static void become(char *const *argv, int error) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(error, STDERR_FILENO);
    setpgid(0, 0); /* the terminal's Ctrl-C is for the parent */
    if (!freopen("/dev/null", "r", stdin)) _exit(127);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    execvp(argv[0], argv);
    _exit(127);
}

static Status wait_for(pid_t child, const char *launcher, const Heard *heard, int *ret_code) {
    int state;
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return FAILED("%s: cannot be waited for: %s", launcher, strerror(errno));
    int code = WIFEXITED(state) ? WEXITSTATUS(state) : STATUS_FAILED;
    if (code == 127)
        return FAILED(
            "%s: cannot be run; install an MPI such as Open MPI, or name its launcher in WEFT_MPIRUN",
            launcher);
    if (code && !heard->explained && heard->signal)
        return FAILED("rank %d was ended by signal %d (%s), and the others with it", heard->rank,
                      heard->signal, strsignal(heard->signal));
    if (code && !heard->explained) fputs(heard->text, stderr);
    if (code > 128 && code <= 128 + SIGRTMAX)
        return FAILED("a rank was ended by signal %d (%s), and the others with it", code - 128,
                      strsignal(code - 128));
    if (code > STATUS_USAGE) return FAILED("%s ended with code %d", launcher, code);
    *ret_code = code;
    return OK;
}

static Status run_launcher(char *const *argv, bool stops, int *ret_code) {
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    int error[2];
    sigemptyset(&action.sa_mask);
    TRY(set_environment());
    if (pipe2(error, O_CLOEXEC) != 0) return FAILED("a pipe cannot be made: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) become(argv, error[1]);
    close(error[1]);
    if (child < 0) {
        close(error[0]);
        return FAILED("a process cannot be started: %s", strerror(errno));
    }
    launcher_pid = child;
    launcher_signal = stops ? SIGUSR1 : SIGTERM;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    CLEANUP(heard_done) Heard heard = {0};
    TRY(hear(error[0], &heard));
    return wait_for(child, argv[0], &heard, ret_code);
}

static Status start(Invocation *call, int64_t ranks, bool stops) {
    char program[4096], count[24];
    if (!mpi_built()) {
        CLEANUP(group_freep) Group *none = NULL;
        return mpi_world_new(&none); /* which says so */
    }
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0) return FAILED("/proc/self/exe: cannot be read: %s", strerror(errno));
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
    return run_launcher(argv, stops, &call->exit_code);
}

Status launch_join(Invocation *call) {
    if (!mpi_launched().launched || call->world) return OK;
    return mpi_world_new(&call->world);
}

Status launch(Invocation *call, int64_t ranks, bool stops, bool *ret_here) {
    TRY(launch_join(call));
    if (call->world && ranks && ranks != call->world->size)
        return USAGE("--ranks %lld: the launcher started %d; leave --ranks out, or start as many",
                     (long long)ranks, call->world->size);
    *ret_here = call->world || ranks <= 1;
    if (!*ret_here) return start(call, ranks, stops);
    return call->world ? OK : group_new_self(&call->world);
}

/* Before ranks have joined, all fail for the same reason as a rule: the first says so, and its end ends the
 * others before they have waited long enough to say it too. */
bool launch_may_report(const Invocation *call) {
    Launched launched = mpi_launched();
    if (call && call->world) return group_claim_failure(call->world);
    if (launched.launched && launched.rank > 0) sleep(3);
    return true;
}

void launch_end(const Invocation *call, int exit_code) {
    if (call && call->world) group_end_all(call->world, exit_code);
}
