/* The program: finds the command, runs it, prints its result or reports its error.
 *
 * Exit codes: 0 success, 1 failure, 2 invalid usage or configuration, 75 stopped and saved. With --json,
 * standard output contains exactly one object: the result, or {"error": ...}. WEFT_TRACE=1 adds the call
 * chain of an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/invocation.h"
#include "cli/launch.h"
#include "cli/show.h"
#include "cli/stop.h"
#include "comm/mpi.h"
#include "comm/watchdog.h"
#include "tokenizer/tokenizer.h"

/* Turns writes to a closed pipe or past a file size limit into ordinary errors. */
static void ignore_signals(void) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

/* For commands that do not catch these signals themselves: says that the command was stopped, then lets the
 * signal kill the process, so that shells and scripts see it. Outputs are written under temporary names. */
static void report_stop(int signal_number) {
    static const char text[] = "\nweft: stopped\n";
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* A signal that the parent ignores, as nohup does, stays ignored. Of several ranks, the first reports. */
static void catch_stops(void) {
    static const int signals[] = {SIGINT, SIGTERM};
    Launched launched = mpi_launched();
    if (launched.launched && launched.rank > 0) return;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction before, action = {.sa_handler = report_stop};
        sigemptyset(&action.sa_mask);
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(signals[i], &action, NULL);
    }
}

/* Makes OpenMP threads spin only briefly. On busy cores a spinning thread starves the one it waits for, and
 * OpenMP's default is to spin for a long time. Generation runs hundreds of short parallel regions per token,
 * so it spins for about a millisecond; an iteration takes 15 ns or more on x86, whose PAUSE is slow. The
 * runtime reads the environment before main, so the program restarts itself. It leaves the settings alone if
 * the user has set any of them. */
static void limit_spinning(int argc, char **argv) {
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv("KMP_BLOCKTIME")) return;
    bool generates = argc > 1 && !strcmp(argv[1], "generate");
#if defined(__x86_64__)
    const char *spins = "50000";
#else
    const char *spins = "300000";
#endif
    if (setenv("GOMP_SPINCOUNT", generates ? spins : "10000", 1) == 0 &&
        setenv("KMP_BLOCKTIME", generates ? "1" : "0", 1) == 0)
        execv("/proc/self/exe", argv);
}

/* The next file that is opened takes the number of a closed stream, and would be read as its input or receive
 * its messages. So /dev/null takes it, in the mode in which using the stream still fails. */
static void occupy_streams(void) {
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++)
        if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", stream ? O_RDONLY : O_WRONLY) < 0) return;
}

/* Help piped into a pager or `head` ends quietly when the reader does. */
static void exit_quietly(int signal_number) {
    (void)signal_number;
    _exit(0);
}

static bool wants_json(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0) return true;
    return false;
}

static Status print_json(const json_t *json) {
    CLEANUP(mem_freep) char *text = NULL;
    TRY(json_text(json, JSON_INDENT(2), &text));
    puts(text);
    return OK;
}

static Status flush_stdout(void) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return OK;
    return stdout_failed();
}

/* Runs the command and prints its result, on rank 0 only. */
static Status run_and_print(Invocation *call, int *ret_code) {
    const Command *command = call->command;
    CLEANUP(json_decrefp) json_t *result = NULL;
    TRY(command->run(call, call->config, &result));
    *ret_code = call->incomplete && !call->exit_code ? STATUS_FAILED : call->exit_code;
    if (!result || (call->world && call->world->rank > 0) || stop_orphaned()) return OK;
    if (call->json)
        TRY(print_json(result));
    else if (command->show)
        TRY(command->show(call, result, stdout));
    return flush_stdout();
}

/* Shortens lines that quote long input: "...". UTF-8 characters stay whole. */
static void shorten_lines(char *text) {
    enum { LINE = 1000, HEAD = 500, TAIL = 300 };
    for (char *line = text; *line;) {
        size_t length = strcspn(line, "\n"), head = HEAD;
        const char *tail = line + length - TAIL;
        if (length > LINE) {
            while ((line[head] & 0xC0) == 0x80) head--;
            while ((*tail & 0xC0) == 0x80) tail++;
            memcpy(line + head, "...", 3);
            memmove(line + head + 3, tail, strlen(tail) + 1);
            length = strcspn(line, "\n");
        }
        line += length + (line[length] == '\n');
    }
}

/* A message may quote input data: makes it valid UTF-8 of moderate length without terminal control
 * characters. NULL if out of memory. */
static char *clean_message(const char *message) {
    char *text = NULL;
    size_t size = 0;
    Status status = text_to_utf8(message, strlen(message), &text, &size);
    status_free(status);
    for (size_t i = 0; text && i < size; i++)
        if (((unsigned char)text[i] < ' ' && text[i] != '\n') || text[i] == 0x7F) text[i] = '?';
    if (text) shorten_lines(text);
    return text;
}

static void report(Status status, bool json) {
    CLEANUP(mem_freep) char *clean = clean_message(status_message(status));
    const char *message = clean ? clean : status_message(status);
    fprintf(stderr, "weft: %s%s\n", status_stopped(status) ? "" : "error: ", message);
    const char *trace = getenv("WEFT_TRACE");
    if (trace && *trace && strcmp(trace, "0") != 0) status_print_trace(status, stderr);
    if (!json) return;
    CLEANUP(json_decrefp) json_t *object = json_pack("{ss}", "error", message);
    if (object) status_free(print_json(object));
    fflush(stdout);
}

/* After a wait that was given up, for example because a host is gone, the run can usually be continued. */
static void hint_at_resume(const Invocation *call) {
    const Watchdog *watch = group_watchdog(call->world);
    CLEANUP(mem_freep) char *hint = NULL;
    if (!watch || !watch->timed_out) return;
    CLEANUP(status_freep) Status failed = resume_hint(call, &hint);
    if (hint && *hint) fprintf(stderr, "  %s\n", hint + 2);
}

/* Whether a message says on which rank it happened, as those of errors that all ranks share do. */
static bool names_rank(Status status) {
    int rank, length = 0;
    return sscanf(status_message(status), "rank %d on %n", &rank, &length) == 1 && length > 0;
}

/* If a rank fails, all do: one reports the error, with its rank, and terminates the others. Usage errors are
 * the same on every rank and do not name one. */
static Status fail_together(const Invocation *call, Status status) {
    if (!call->world || call->world->size == 1) return status;
    stop_release(); /* the launcher's SIGTERM no longer asks to save */
    if (launch_may_report(call)) {
        char host[HOST_SIZE];
        if (status_exit_code(status) != 2 && !status_stopped(status) && !names_rank(status))
            status = status_wrap(status, "rank %d on %s", call->world->rank,
                                 group_host(call->world, call->world->rank, host));
        report(status, call->json);
        hint_at_resume(call);
        if (status_repeats(status)) launch_tell_code(status_exit_code(status)); /* no restart */
    }
    launch_end(call, status_exit_code(status));
    return status;
}

/* For a thread that is blocked, see comm/watchdog.h. */
static void give_up(void *context, const char *text) {
    status_free(fail_together(context, FAILED("%s", text)));
}

/* An error before the ranks have joined, such as a file that only some hosts have. */
static Status name_rank(Status status) {
    Launched launched = mpi_launched();
    char host[HOST_SIZE] = "";
    if (!launched.launched || launched.rank == 0) return status;
    gethostname(host, sizeof host - 1);
    return status_wrap(status, "rank %d on %s", launched.rank, host);
}

/* Options and operands start at argv[first]. */
static Status run_command(const Command *command, char **argv, int first, int argc, int *ret_code) {
    CLEANUP(invocation_freep) Invocation *call = NULL;
    TRY(invocation_new(&call, command, argc - first, argv + first));
    call->line = argv;
    call->give_up = give_up;
    if (call->help || command == &command_help) signal(SIGPIPE, exit_quietly);
    if (call->help) return help_command(call, command);
    if (command->family) return help_missing_member(command);
    for (size_t i = 0; i < call->warning_count && launch_may_warn(); i++)
        fprintf(stderr, "weft: warning: %s\n", call->warnings[i]);
    Status status = gathered_options(&call, argc - first, argv + first);
    if (!status) status = run_and_print(call, ret_code);
    /* Without its launcher, MPI cannot end in order, and the exit code is all that the parent learns. */
    if (stop_orphaned()) _exit(status ? status_exit_code(status) : *ret_code);
    return status ? fail_together(call, status) : OK;
}

static Status run_line(int argc, char **argv, int *ret_code) {
    if (argc < 2) {
        help_overview(stderr);
        return USAGE("missing command");
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) name = "version";
    if (name[0] == '-') return USAGE("%s: the command must come first: weft COMMAND [OPTION]...", name);
    const char *words[] = {name, argc > 2 ? argv[2] : NULL};
    const Command *command;
    size_t used;
    TRY(command_find(words, argc > 2 ? 2 : 1, &command, &used));
    return run_command(command, argv, (int)used + 1, argc, ret_code);
}

int main(int argc, char **argv) {
    occupy_streams();
    limit_spinning(argc, argv);
    prctl(PR_SET_NAME, "weft"); /* not "exe", after a restart through /proc/self/exe */
    ignore_signals();
    catch_stops();
    int code = 0;
    CLEANUP(status_freep) Status status = run_line(argc, argv, &code);
    if (status) {
        status = name_rank(status);
        if (launch_may_report(NULL)) report(status, wants_json(argc, argv));
        if (status_repeats(status)) launch_tell_code(status_exit_code(status)); /* no restart */
        return status_exit_code(status);
    }
    status = flush_stdout();
    if (!status) return launch_exit_code(code);
    report(status, false);
    return status_exit_code(status);
}
