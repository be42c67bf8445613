/* Asking hosts over ssh whether they answer.
 *
 * A child process per host runs `ssh HOST true`, with the program and options that Open MPI is told to use.
 * Launchers report one host of several, after minutes, or do not name it: ssh's "Host key verification
 * failed" does not. Sessions of their own have no terminal on which ssh could ask.
 */
#include "cli/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { WORDS = 48, OUTPUT = 2048, REASON = 120, LOOK_MS = 20 };

/* A program and its options, or several separated by colons; the first one that exists is used. */
#define AGENT "OMPI_MCA_plm_rsh_agent"

static const double limit_s = 12;

typedef struct Asked {
    const char *name;
    pid_t pid; /* 0: has ended */
    int output;
    bool answers;
    char reason[REASON];
} Asked;

struct Reach {
    Asked *asked;
    size_t count;
    double started;
    char *silent, *reasons; /* NULL before the end */
    char names[];           /* owns those in `asked` */
};

Status reach_set_environment(void) {
    static const char *const names[] = {AGENT, "PRTE_MCA_plm_ssh_agent"};
    for (size_t i = 0; i < COUNT_OF(names); i++) /* do not override the user's setting */
        if (setenv(names[i], "ssh -o BatchMode=yes -o ConnectTimeout=10 : rsh", 0) != 0)
            return FAILED("out of memory");
    return OK;
}

/* Its addresses can be bound. */
bool reach_is_here(const char *name) {
    char own[256] = "";
    const char *at = strchr(name, '@');
    struct addrinfo hint = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    bool local = false;
    if (at) name = at + 1;
    if (gethostname(own, sizeof own - 1) == 0 && host_among(name, own)) return true;
    if (getaddrinfo(name, NULL, &hint, &found) != 0) return false;
    for (const struct addrinfo *one = found; one && !local; one = one->ai_next) {
        int fd = socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        local = fd >= 0 && bind(fd, one->ai_addr, one->ai_addrlen) == 0;
        if (fd >= 0) close(fd);
    }
    freeaddrinfo(found);
    return local;
}

/* ---- a child ---- */

/* Runs in the child. */
static void ask(const char *name, int output) {
    char agent[1024], check[] = "true", *argv[WORDS], *rest = NULL;
    const char *set = getenv(AGENT);
    size_t count = 0;
    sigset_t none;
    snprintf(agent, sizeof agent, "%s", set ? set : "ssh");
    agent[strcspn(agent, ":")] = 0;
    for (char *word = strtok_r(agent, " ", &rest); word && count < WORDS - 3;
         word = strtok_r(NULL, " ", &rest))
        argv[count++] = word;
    argv[count++] = (char *)(uintptr_t)name;
    argv[count++] = check;
    argv[count] = NULL;
    setsid();
    dup2(output, STDERR_FILENO);
    if (!freopen("/dev/null", "r", stdin) || !freopen("/dev/null", "w", stdout)) _exit(127);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    execvp(argv[0], argv);
    _exit(127);
}

static Status start(Asked *asked) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return FAILED("cannot create a pipe: %s", strerror(errno));
    asked->pid = fork();
    if (asked->pid == 0) ask(asked->name, ends[1]);
    close(ends[1]);
    asked->output = ends[0];
    if (asked->pid > 0) return OK;
    asked->pid = 0;
    return FAILED("cannot start a process: %s", strerror(errno));
}

/* ---- its answer ---- */

/* The last line of ssh's output, without what the reader knows. */
static void find_reason(const char *output, char reason[REASON]) {
    const char *line = output, *end = output + strlen(output);
    while (end > output && strchr(" \r\n.", end[-1])) end--;
    for (const char *at = output; at < end; at++)
        if (*at == '\n') line = at + 1;
    static const char port[] = " port ";
    const char *known = strstr(line, port), *colon = known ? strstr(known, ": ") : NULL;
    if (colon && colon + 2 < end) line = colon + 2;
    snprintf(reason, REASON, "%.*s", (int)(end - line), line);
}

static void end_one(Asked *asked, int state) {
    char output[OUTPUT] = "";
    ssize_t size = read(asked->output, output, sizeof output - 1);
    output[size > 0 ? size : 0] = 0;
    asked->pid = 0;
    asked->answers = WIFEXITED(state) && WEXITSTATUS(state) == 0;
    if (asked->answers) return;
    find_reason(output, asked->reason);
    if (WIFSIGNALED(state))
        snprintf(asked->reason, REASON, "no answer for %.0f s", limit_s);
    else if (WEXITSTATUS(state) == 127)
        snprintf(asked->reason, REASON, "ssh cannot be run");
    else if (!asked->reason[0])
        snprintf(asked->reason, REASON, "ssh exited with code %d", WEXITSTATUS(state));
}

/* Both texts are as long as all names and reasons. */
static void summarize(Reach *reach) {
    for (size_t i = 0; i < reach->count; i++) {
        const Asked *asked = &reach->asked[i];
        if (asked->answers) continue;
        char *end = reach->silent + strlen(reach->silent), *reason = reach->reasons + strlen(reach->reasons);
        sprintf(end, "%s%s", end > reach->silent ? " " : "", asked->name);
        sprintf(reason, "%s%s (%s)", reason > reach->reasons ? ", " : "", asked->name, asked->reason);
    }
}

bool reach_ended(Reach *reach) {
    bool late = clock_wall() - reach->started > limit_s;
    size_t running = 0;
    for (size_t i = 0; i < reach->count; i++) {
        Asked *asked = &reach->asked[i];
        int state = 0;
        if (!asked->pid) continue;
        if (late) kill(asked->pid, SIGKILL);
        pid_t ended = waitpid(asked->pid, &state, late ? 0 : WNOHANG);
        if (ended == asked->pid)
            end_one(asked, state);
        else if (ended < 0 && errno != EINTR) /* collected by somebody else */
            end_one(asked, SIGKILL);
        else
            running++;
    }
    if (!running && !reach->silent[0]) summarize(reach);
    return !running;
}

bool reach_wait(Reach *reach, const volatile sig_atomic_t *stop) {
    while (!reach_ended(reach)) {
        if (stop && *stop) return false;
        poll(NULL, 0, LOOK_MS);
    }
    return true;
}

const char *reach_silent(const Reach *reach) {
    return reach->silent;
}

const char *reach_reasons(const Reach *reach) {
    return reach->reasons;
}

bool reach_asks(const Reach *reach) {
    return strstr(reach->reasons, "Permission denied") ||
           strstr(reach->reasons, "Host key verification failed");
}

/* ---- all ---- */

void reach_free(Reach *reach) {
    if (!reach) return;
    for (size_t i = 0; i < reach->count; i++) {
        Asked *asked = &reach->asked[i];
        if (asked->pid && kill(asked->pid, SIGKILL) == 0) waitpid(asked->pid, NULL, 0);
        if (asked->output >= 0) close(asked->output);
    }
    free(reach->asked);
    free(reach->silent);
    free(reach->reasons);
    free(reach);
}

Status reach_new(Reach **ret_reach, const HostList *list, const char *names) {
    CLEANUP(reach_freep) Reach *reach = NULL;
    size_t size = 1, text = 1;
    for (size_t i = 0; i < list->count; i++) size += strlen(list->host[i].name) + 1;
    TRY(mem_new(1, sizeof *reach + size, &reach));
    TRY(mem_new(list->count + 1, sizeof *reach->asked, &reach->asked));
    char *at = reach->names;
    for (size_t i = 0; i < list->count; i++) {
        const char *name = list->host[i].name;
        bool again = false; /* listed twice */
        for (size_t k = 0; k < i; k++) again |= strcmp(list->host[k].name, name) == 0;
        if (again || (names && !host_among(name, names)) || reach_is_here(name)) continue;
        reach->asked[reach->count++] = (Asked){.name = strcpy(at, name), .output = -1};
        at += strlen(name) + 1;
        text += strlen(name) + REASON + 8;
    }
    TRY(mem_new(text, 1, &reach->silent));
    TRY(mem_new(text, 1, &reach->reasons));
    reach->started = clock_wall();
    for (size_t i = 0; i < reach->count; i++) TRY(start(&reach->asked[i]));
    *ret_reach = reach;
    reach = NULL;
    return OK;
}
