/* Runs the program on a pseudo-terminal. */
#ifndef WEFT_TESTS_CLI_TERMINAL_H
#define WEFT_TESTS_CLI_TERMINAL_H

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <time.h>

#include "corpus.h"

enum { LIMIT_MS = 60000 };

/* The program on a terminal, and what it has printed. */
typedef struct Terminal {
    int fd;
    pid_t child;
    char seen[1 << 16];
    size_t size;
} Terminal;

static inline Terminal terminal_open(const char *line) {
    Terminal terminal = {0};
    terminal.child = forkpty(&terminal.fd, NULL, NULL, &(struct winsize){.ws_row = 24, .ws_col = 400});
    assert_true(terminal.child >= 0);
    if (terminal.child == 0) {
        setenv("TERM", "xterm", 1);
        if (chdir(corpus_root) == 0) execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    return terminal;
}

static inline void type(Terminal *terminal, const char *keys) {
    terminal->size = 0;
    memset(terminal->seen, 0, sizeof terminal->seen);
    assert_int_equal(write(terminal->fd, keys, strlen(keys)), strlen(keys));
}

/* Reads until `part` was printed since the last keys; false if the program ends before. A program that prints
 * something else for too long fails the test. */
static inline bool reads(Terminal *terminal, const char *part) {
    time_t last = time(NULL) + 2 * LIMIT_MS / 1000;
    while (!strstr(terminal->seen, part)) {
        struct pollfd ready = {.fd = terminal->fd, .events = POLLIN};
        if (poll(&ready, 1, LIMIT_MS) <= 0 || time(NULL) > last) {
            kill(terminal->child, SIGKILL);
            fail_msg("expected '%s' after:\n%s", part, terminal->seen);
        }
        ssize_t got =
            read(terminal->fd, terminal->seen + terminal->size, sizeof terminal->seen - 1 - terminal->size);
        if (got <= 0) return false;
        terminal->size += (size_t)got;
        if (terminal->size > sizeof terminal->seen / 2) { /* keep the newest half */
            memmove(terminal->seen, terminal->seen + terminal->size / 2, terminal->size - terminal->size / 2);
            terminal->size -= terminal->size / 2;
            memset(terminal->seen + terminal->size, 0, sizeof terminal->seen - terminal->size);
        }
    }
    return true;
}

#define assert_reads(terminal, part)                                                                         \
    do {                                                                                                     \
        if (!reads(terminal, part)) fail_msg("expected '%s' in:\n%s", part, (terminal)->seen);               \
    } while (0)

static inline int terminal_close(Terminal *terminal) {
    int state;
    reads(terminal, "never printed");
    assert_int_equal(waitpid(terminal->child, &state, 0), terminal->child);
    close(terminal->fd);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

#endif
