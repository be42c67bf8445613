/* The Error behind a Status. If allocating one fails, a static error takes its place, so reporting an error
 * cannot fail. */
#include "base/setting.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FRAMES = 24 };

struct Error {
    StatusKind kind;
    char *message;
    int frames;
    struct {
        const char *file;
        int line;
    } frame[MAX_FRAMES];
};

static Error out_of_memory = {.kind = STATUS_FAILED, .message = NULL, .frames = 0};

static char *format_message(const char *fmt, va_list args) {
    char *spelled = setting_spell(fmt), *text = NULL;
    if (!spelled) return NULL;
    if (vasprintf(&text, spelled, args) < 0) text = NULL;
    free(spelled);
    return text;
}

Status status_new(StatusKind kind, const char *file, int line, const char *fmt, ...) {
    Error *error = calloc(1, sizeof *error);
    if (!error) return &out_of_memory;
    va_list args;
    va_start(args, fmt);
    error->message = format_message(fmt, args);
    va_end(args);
    if (!error->message) {
        free(error);
        return &out_of_memory;
    }
    error->kind = kind;
    return status_trace(error, file, line);
}

Status status_trace(Status status, const char *file, int line) {
    if (!status || status == &out_of_memory || status->frames == MAX_FRAMES) return status;
    status->frame[status->frames].file = file;
    status->frame[status->frames].line = line;
    status->frames++;
    return status;
}

Status status_wrap(Status status, const char *fmt, ...) {
    if (!status || status == &out_of_memory) return status;
    va_list args;
    va_start(args, fmt);
    char *context = format_message(fmt, args);
    va_end(args);
    if (!context) return status;
    size_t size = strlen(context) + 2 + strlen(status->message) + 1;
    char *joined = malloc(size);
    if (joined) {
        snprintf(joined, size, "%s: %s", context, status->message);
        free(status->message);
        status->message = joined;
    }
    free(context);
    return status;
}

const char *status_message(Status status) {
    if (!status) return "ok";
    return status->message ? status->message : "out of memory";
}

int status_exit_code(Status status) {
    if (!status) return 0;
    return status->kind == STATUS_USAGE || status->kind == STATUS_SAVED ? (int)status->kind : STATUS_FAILED;
}

bool status_stopped(Status status) {
    return status && (status->kind == STATUS_STOPPED || status->kind == STATUS_SAVED);
}

bool status_diverged(Status status) {
    return status && status->kind == STATUS_DIVERGED;
}

bool status_damaged(Status status) {
    return status && status->kind == STATUS_DAMAGED;
}

bool status_repeats(Status status) {
    return status && (status->kind == STATUS_DIVERGED || status->kind == STATUS_REFUSED);
}

StatusKind status_kind(Status status) {
    return status ? status->kind : 0;
}

void status_print_trace(Status status, FILE *to) {
    if (!status) return;
    for (int i = 0; i < status->frames; i++)
        fprintf(to, "  at %s:%d\n", status->frame[i].file, status->frame[i].line);
}

void status_free(Status status) {
    if (!status || status == &out_of_memory) return;
    free(status->message);
    free(status);
}

void status_freep(Status *status) {
    status_free(*status);
    *status = OK;
}
