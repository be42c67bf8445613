/* A child process writes to a pipe, through a launcher in between perhaps, and does not see the terminal
 * behind it. The environment tells it (base/terminal.c); it then draws its progress and ends each progress
 * line with a carriage return. This process, the only one that writes to the terminal, redraws that line in
 * place and erases it before it prints anything else.
 */
#include "cli/child.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/terminal.h"

/* How long results on standard output wait for the standard error that was written before them. */
enum { ORDER_MS = 20, TICK_MS = 2000 };

Status relay_announce(FILE *out) {
    char width[16];
    snprintf(width, sizeof width, "%d", out && terminal_live(out) ? terminal_width(out) : 0);
    return setenv(TERMINAL_VARIABLE, width, 1) == 0 ? OK : FAILED("out of memory");
}

/* Without line wrap, so that a line drawn for a wider window is truncated. */
void relay_draw(Relay *relay, const char *text) {
    if (!relay->out || !terminal_live(relay->out) || (!*text && !relay->drawn)) return;
    if (terminal_relayed(relay->out))
        fprintf(relay->out, "\r\033[K%s\r", text);
    else
        fprintf(relay->out, *text ? "\r\033[K\033[?7l%s\033[?7h" : "\r\033[K", text);
    fflush(relay->out);
    relay->drawn = *text != 0;
}

int relay_results(const char *block, size_t size) {
    for (size_t at = 0; at < size;) {
        ssize_t put = write(STDOUT_FILENO, block + at, size - at);
        if (put < 0 && errno != EINTR) return errno;
        if (put > 0) at += (size_t)put;
    }
    return 0;
}

static void pass_results(Relay *relay) {
    char block[RELAY_BUFFER];
    ssize_t got = read(relay->results, block, sizeof block);
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) {
        close(relay->results);
        relay->results = -1;
        return;
    }
    relay_draw(relay, "");
    if (!relay->unwritten) relay->unwritten = relay_results(block, (size_t)got);
}

/* Also while a progress line keeps coming. */
static void wake(Relay *relay, bool asked) {
    double now = clock_wall();
    if (relay->woken == 0) relay->woken = now;
    if (relay->wake < 0 || (!asked && now - relay->woken < 1e-3 * TICK_MS)) return;
    relay->on_wake(relay->context);
    relay->woken = clock_wall();
}

/* Waits for standard error; until then, passes on results and calls `on_wake` now and then. */
static void wait_for_input(Relay *relay) {
    const int idle = relay->wake >= 0 ? TICK_MS : -1;
    int limit = idle;
    while (relay->results >= 0 || relay->wake >= 0) {
        struct pollfd ready[] = {{.fd = relay->in, .events = POLLIN},
                                 {.fd = limit == idle ? relay->results : -1, .events = POLLIN},
                                 {.fd = relay->wake, .events = POLLIN}};
        int count = poll(ready, 3, limit);
        wake(relay, ready[2].revents != 0);
        if (ready[0].revents || (count < 0 && errno != EINTR)) return;
        if (count == 0 && limit != idle) pass_results(relay);
        limit = count > 0 && ready[1].revents ? ORDER_MS : idle;
    }
}

static bool fill(Relay *relay) {
    ssize_t got;
    wait_for_input(relay);
    do got = read(relay->in, relay->buffer, sizeof relay->buffer);
    while (got < 0 && errno == EINTR);
    relay->at = 0;
    relay->have = got > 0 ? (size_t)got : 0;
    return relay->have > 0;
}

/* Appends a byte, with a terminating zero. */
static bool append(char **line, size_t *capacity, size_t used, char byte) {
    if (used + 2 > *capacity) {
        size_t size = *capacity < 256 ? 512 : 2 * *capacity;
        char *grown = realloc(*line, size);
        if (!grown) return false;
        *line = grown;
        *capacity = size;
    }
    (*line)[used] = byte;
    (*line)[used + 1] = 0;
    return true;
}

/* The text after the last sequence that erases the line. */
static size_t visible_from(const char *text) {
    static const char erase[] = "\033[K";
    size_t from = 0;
    for (const char *at = text; (at = strstr(at, erase)) != NULL; at++)
        from = (size_t)(at - text) + sizeof erase - 1;
    return from;
}

ssize_t relay_line(Relay *relay, char **line, size_t *capacity) {
    bool live = relay->out && terminal_live(relay->out);
    size_t used = 0;
    while (relay->at < relay->have || fill(relay)) {
        char byte = relay->buffer[relay->at++];
        if (byte == '\r' && live) { /* an empty segment comes before each erasure */
            if (used) relay_draw(relay, *line + visible_from(*line));
            used = 0;
            continue;
        }
        if (!append(line, capacity, used, byte)) return -1;
        used++;
        if (byte == '\n') break;
    }
    while (!used && relay->results >= 0) pass_results(relay);
    relay_draw(relay, "");
    if (!used || !live) return used ? (ssize_t)used : -1;
    size_t from = visible_from(*line);
    memmove(*line, *line + from, used - from + 1);
    return (ssize_t)(used - from);
}
