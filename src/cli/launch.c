/* Starting under a launcher.
 *
 * `--ranks N` runs this same command line under mpirun and waits for it. What mpirun needs to be told (root,
 * more ranks than cores, no binding of its own, no chatter of its own) goes through the environment, so
 * that launchers of another make are not given options they do not know. Ranks see in the environment that
 * they were launched, and join instead of starting others.
 *
 * Ctrl-C is for this process alone: mpirun would end its ranks at once, in the middle of a step. It is passed
 * on as SIGUSR1, which mpirun hands to every rank; a second Ctrl-C ends mpirun. Should this process be
 * killed, mpirun is told to end too.
 */
#include "cli/launch.h"

#include <errno.h>
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
        {"OMPI_MCA_orte_execute_quiet", "1"},
        {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
        {"PRTE_MCA_hwloc_default_binding_policy", "none"},
    };
    for (size_t i = 0; i < COUNT_OF(root); i++)
        if (geteuid() == 0 && setenv(root[i], "1", 1) != 0) return FAILED("out of memory");
    for (size_t i = 0; i < COUNT_OF(settings); i++) /* who has set one keeps it */
        if (setenv(settings[i][0], settings[i][1], 0) != 0) return FAILED("out of memory");
    return OK;
}

/* The launcher's name, and options that come with it: "srun --mpi=pmix". */
static const char *launcher_line(void) {
    static const char *const names[] = {"WEFT_MPIRUN", "MPIEXEC"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const char *line = getenv(names[i]);
        if (line && line[strspn(line, " ")]) return line;
    }
    return "mpirun";
}

/* Runs in the child. The parent's end ends the launcher. */
static void become(char *const *argv) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setpgid(0, 0); /* the terminal's Ctrl-C is for the parent */
    if (!freopen("/dev/null", "r", stdin)) _exit(127);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    execvp(argv[0], argv);
    _exit(127);
}

static Status wait_for(pid_t child, const char *launcher, int *ret_code) {
    int state;
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return FAILED("%s: cannot be waited for: %s", launcher, strerror(errno));
    int code = WIFEXITED(state) ? WEXITSTATUS(state) : STATUS_FAILED;
    if (code == 127)
        return FAILED(
            "%s: cannot be run; install an MPI such as Open MPI, or name its launcher in WEFT_MPIRUN",
            launcher);
    if (WIFEXITED(state) && code > STATUS_USAGE && code < 128)
        return FAILED("%s ended with code %d", launcher, code);
    if (WIFEXITED(state) && code > 128)
        return FAILED("a rank was ended by signal %d (%s), and the others with it", code - 128,
                      strsignal(code - 128));
    *ret_code = code;
    return OK;
}

static Status run_launcher(char *const *argv, bool stops, int *ret_code) {
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    TRY(set_environment());
    pid_t child = fork();
    if (child < 0) return FAILED("a process cannot be started: %s", strerror(errno));
    if (child == 0) become(argv);
    launcher_pid = child;
    launcher_signal = stops ? SIGUSR1 : SIGTERM;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    return wait_for(child, argv[0], ret_code);
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
