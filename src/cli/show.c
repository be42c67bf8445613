#include "cli/show.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/terminal.h"
#include "comm/mpi.h"

const json_t *show_rank_peak(const json_t *summary) {
    return json_object_get(json_array_get(json_object_get(summary, "ranks"), 0), "peak_bytes");
}

json_t *show_names(char *const *names, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_string(names[i]));
    return list;
}

void show_study(const json_t *study, FILE *out) {
    const char *title = json_string_at(study, "title");
    const char *hardware = json_string_at(study, "hardware");
    const char *note = json_string_at(study, "note");
    if (!note) return;
    fprintf(out, "\npublished%s%s%s%s%s: %s\n", title ? " (" : "", title ? title : "",
            title && hardware ? ", " : "", title && hardware ? hardware : "", title ? ")" : "", note);
}

void show_word(FILE *out, const char *word) {
    bool plain = *word && !strpbrk(word, " \t\n'\"$&;()<>|*?[]{}`~#!\\");
    if (plain) {
        terminal_put(out, word, strlen(word));
        return;
    }
    fputc('\'', out);
    for (const char *at = word;; at++) {
        size_t size = strcspn(at, "'");
        terminal_put(out, at, size);
        at += size;
        if (!*at) break;
        fputs("'\\''", out);
    }
    fputc('\'', out);
}

Status show_word_text(const char *word, char **ret_text) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory");
    show_word(out, word);
    if (fclose(out) != 0) return FAILED("out of memory");
    *ret_text = text;
    return OK;
}

/* ---- errors of standard output ---- */

/* errno may be that of a later call, so this asks the pipe itself. */
static bool reader_has_ended(void) {
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return errno == EPIPE || (poll(&output, 1, 0) == 1 && output.revents & POLLERR);
}

Status stdout_check(int error) {
    return error && error != EPIPE ? FAILED("standard output: cannot write: %s", strerror(error)) : OK;
}

Status stdout_failed(void) {
    int error = errno;
    if (!mpi_launched().launched && reader_has_ended()) _exit(0);
    return FAILED("standard output: cannot write: %s", strerror(error ? error : EIO));
}
