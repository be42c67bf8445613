/* The child runs in its own process group: Ctrl-C reaches only this process, which forwards each one. If this
 * process is killed, the child gets SIGTERM. The child's standard error is read line by line; its last
 * "weft: error: ..." is the reason it failed.
 */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/process.h"
#include "base/terminal.h"
#include "cli/stop.h"

enum { MAX_WORDS = 256 };

/* For the signal handler. `held`: the last signal came while there was no child. */
static volatile sig_atomic_t child_pid, stop_requested, held;

static void forward_signal(int signal_number) {
    int error = errno;
    stop_requested = 1;
    held = child_pid > 0 ? 0 : signal_number;
    if (child_pid > 0) kill((pid_t)child_pid, signal_number);
    errno = error;
}

void children_watch_signals(void) {
    stop_handle(forward_signal, SA_RESTART);
}

bool children_stopped(void) {
    return stop_requested != 0;
}

/* Runs in the child. Signals are blocked until they have their default effect. */
static void become(const char *program, char *const *argv, const char *out, int error, const sigset_t *mask) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setpgid(0, 0);
    dup2(error, STDERR_FILENO);
    if (!freopen("/dev/null", "r", stdin) || !freopen(out ? out : "/dev/null", "w", stdout)) _exit(127);
    stop_release();
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv(program, argv);
    _exit(127);
}

/* Forks. A signal that came after the decision to start the child, but before it existed, stops it too. */
static pid_t start(const char *program, char *const *argv, const char *out, int error) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) become(program, argv, out, error, &before);
    if (pid > 0) child_pid = pid;
    int missed = held;
    if (pid > 0 && missed) kill(pid, missed);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

/* Overwrites one line on a terminal; appends lines elsewhere. */
static void show_line(Relay *relay, char *line) {
    if (!relay->out) return;
    if (!terminal_live(relay->out)) {
        fputs(line, relay->out);
        return;
    }
    line[strcspn(line, "\n")] = 0;
    relay_draw(relay, line);
}

/* Takes the last "weft: error: ..." as the reason for a failure. */
static Status find_error(const char *line, char **error) {
    static const char mark[] = "weft: error: ";
    if (strncmp(line, mark, sizeof mark - 1)) return OK;
    free(*error);
    *error = NULL;
    return str_format(error, "%.*s", (int)strcspn(line + sizeof mark - 1, "\n"), line + sizeof mark - 1);
}

/* Progress that is redrawn does not reach the log. */
static Status read_stderr(int from, const Child *child, char **ret_error) {
    Relay relay = {.out = child->show, .in = from, .results = -1, .wake = -1};
    FILE *log = fopen(child->log, "ae");
    char *line = NULL, *error = NULL;
    size_t capacity = 0;
    Status status = log ? OK : FAILED("%s: cannot write: %s", child->log, strerror(errno));
    while (relay_line(&relay, &line, &capacity) > 0) {
        if (log) fputs(line, log);
        if (log) fflush(log);
        if (!status) status = find_error(line, &error);
        show_line(&relay, line);
    }
    relay_draw(&relay, "");
    free(line);
    close(from);
    if (log) fclose(log);
    *ret_error = error;
    return status;
}

static Status await(pid_t child, int *ret_state) {
    while (waitpid(child, ret_state, 0) < 0)
        if (errno != EINTR) return FAILED("cannot wait for the child process: %s", strerror(errno));
    return OK;
}

/* Sets the exit code and, if the child reported no error, derives one from how it ended. */
static Status explain(int state, ChildEnd *end) {
    end->code = WIFEXITED(state) ? WEXITSTATUS(state) : STATUS_FAILED;
    if (end->code == 0 || end->error) return OK;
    if (!WIFSIGNALED(state))
        return end->code == 127 ? str_dup("cannot run weft; was it removed?", &end->error) : OK;
    int number = WTERMSIG(state);
    return str_format(&end->error, "killed by signal %d (%s)%s", number, strsignal(number),
                      number == SIGKILL ? "; the system may have run out of memory" : "");
}

Status child_run(const Child *child, ChildEnd *ret_end) {
    char program[PROGRAM_SIZE], name[] = "weft";
    char *argv[MAX_WORDS] = {name};
    size_t words = 1;
    for (; child->argv[words - 1]; words++) {
        if (words + 1 == MAX_WORDS) return USAGE("more than %d arguments for one command", MAX_WORDS - 2);
        argv[words] = child->argv[words - 1];
    }
    TRY(process_program(program));
    int error[2], state = 0;
    TRY(relay_announce(child->show));
    if (pipe2(error, O_CLOEXEC) != 0) return FAILED("cannot create a pipe: %s", strerror(errno));
    children_watch_signals();
    pid_t pid = start(program, argv, child->out, error[1]);
    close(error[1]);
    if (pid < 0) {
        close(error[0]);
        return FAILED("cannot start a process: %s", strerror(errno));
    }
    ChildEnd end = {0};
    Status status = read_stderr(error[0], child, &end.error);
    Status awaited = await(pid, &state);
    child_pid = held = 0;
    if (!status)
        status = awaited;
    else
        status_free(awaited);
    if (!status) status = explain(state, &end);
    if (status) {
        free(end.error);
        return status;
    }
    *ret_end = end;
    return OK;
}
