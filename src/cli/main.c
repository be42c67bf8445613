/* The program: finds the command, has it run, prints its result, reports its error.
 *
 * Exit codes: 0 done, 1 failed, 2 wrong usage or configuration. With --json standard output carries
 * exactly one object: the result, or {"error": ...}. WEFT_TRACE=1 adds the calls an error came through.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/launch.h"
#include "tokenizer/tokenizer.h"

/* Writing to a closed pipe or past a size limit shall be an error like any other. */
static void ignore_signals(void) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

/* Threads that wait by spinning starve the thread they wait for when other programs want the cores too, and
 * OpenMP's default is to spin for long. So they spin for microseconds, and only where text is generated,
 * which is made of hundreds of short pieces a token, as long as that default. The runtime reads the
 * environment before main: setting it takes a fresh start of the program. Who has set any of these is left
 * alone. */
static void wait_politely(int argc, char **argv) {
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv("KMP_BLOCKTIME")) return;
    bool generates = argc > 1 && !strcmp(argv[1], "generate");
    if (setenv("GOMP_SPINCOUNT", generates ? "300000" : "10000", 1) == 0 &&
        setenv("KMP_BLOCKTIME", generates ? "1" : "0", 1) == 0)
        execv("/proc/self/exe", argv);
}

static bool wants_json(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0) return true;
    return false;
}

static Status print_json(const json_t *json) {
    if (json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0 && !ferror(stdout))
        return FAILED("internal: the result cannot be written as JSON");
    putchar('\n');
    return OK;
}

static Status flush_stdout(void) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return OK;
    return FAILED("standard output: cannot be written: %s", strerror(errno ? errno : EIO));
}

/* Runs it and prints its result; of several ranks the first one does. */
static Status carry_out(Invocation *call, int *ret_code) {
    const Command *command = call->command;
    CLEANUP(json_decrefp) json_t *result = NULL;
    TRY(command->run(call, call->config, &result));
    *ret_code = call->incomplete ? STATUS_FAILED : call->exit_code;
    if (!result || (call->world && call->world->rank > 0)) return OK;
    if (call->json)
        TRY(print_json(result));
    else if (command->show)
        TRY(command->show(call, result, stdout));
    return flush_stdout();
}

/* A message may quote what was read: as UTF-8, and without what would steer a terminal. NULL: no memory. */
static char *clean_message(const char *message) {
    char *text = NULL;
    size_t size = 0;
    Status status = text_to_utf8(message, strlen(message), &text, &size);
    status_free(status);
    for (size_t i = 0; text && i < size; i++)
        if (((unsigned char)text[i] < ' ' && text[i] != '\n') || text[i] == 0x7F) text[i] = '?';
    return text;
}

static void report(Status status, bool json) {
    CLEANUP(mem_freep) char *clean = clean_message(status_message(status));
    const char *message = clean ? clean : status_message(status);
    fprintf(stderr, "weft: error: %s\n", message);
    const char *trace = getenv("WEFT_TRACE");
    if (trace && *trace && strcmp(trace, "0") != 0) status_print_trace(status, stderr);
    if (!json) return;
    CLEANUP(json_decrefp) json_t *object = json_pack("{ss}", "error", message);
    if (object) status_free(print_json(object));
    fflush(stdout);
}

/* A rank's failure is everybody's: one of them reports, with its name, and ends the others. Wrong usage is
 * the same on every rank, and has no name. */
static Status fail_together(const Invocation *call, Status status) {
    if (!call->world || call->world->size == 1) return status;
    if (launch_may_report(call)) {
        if (status_exit_code(status) != 2) status = status_wrap(status, "rank %d", call->world->rank);
        report(status, call->json);
    }
    launch_end(call, status_exit_code(status));
    return status;
}

/* Options and operands are the arguments from `first` on. */
static Status run_command(const Command *command, char **argv, int first, int argc, int *ret_code) {
    CLEANUP(invocation_freep) Invocation *call = NULL;
    TRY(invocation_new(&call, command, argc - first, argv + first));
    call->line = argv;
    if (call->help) return help_command(call, command);
    if (command->family) return help_wanted_member(command);
    Status status = carry_out(call, ret_code);
    return status ? fail_together(call, status) : OK;
}

static Status run_line(int argc, char **argv, int *ret_code) {
    if (argc < 2) {
        help_overview(stderr);
        return USAGE("no command was given");
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) name = "version";
    if (name[0] == '-') return USAGE("%s: the command comes first: weft COMMAND [OPTION]...", name);
    const char *words[] = {name, argc > 2 ? argv[2] : NULL};
    const Command *command;
    size_t used;
    TRY(command_find(words, argc > 2 ? 2 : 1, &command, &used));
    return run_command(command, argv, (int)used + 1, argc, ret_code);
}

int main(int argc, char **argv) {
    wait_politely(argc, argv);
    ignore_signals();
    int code = 0;
    CLEANUP(status_freep) Status status = run_line(argc, argv, &code);
    if (status) {
        if (launch_may_report(NULL)) report(status, wants_json(argc, argv));
        return status_exit_code(status);
    }
    status = flush_stdout();
    if (!status) return code;
    report(status, false);
    return status_exit_code(status);
}
