/* A line of terminal input with editing and history, through libedit. line_editor_none.c replaces
 * line_editor.c if the program is built without it. */
#ifndef WEFT_CLI_LINE_EDITOR_H
#define WEFT_CLI_LINE_EDITOR_H

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "base/status.h"

/* LINE_INTERRUPTED: a signal arrived before the line was complete; what was typed is lost. */
typedef enum { LINE_READ, LINE_INTERRUPTED, LINE_END } LineResult;

typedef struct LineEditor LineEditor;

bool line_editor_available(void);
/* Fails if the terminal cannot be used. `prompt` must outlive the editor. */
MUST_USE Status line_editor_new(LineEditor **ret_editor, const char *prompt);
void line_editor_free(LineEditor *editor);
DEFINE_FREEP(LineEditor, line_editor)
/* Reads a line from standard input, without its newline; it is valid until the next call. */
LineResult line_editor_read(LineEditor *editor, const char **ret_line, size_t *ret_size);

/* Waits for input from a terminal; false if SIGINT arrived instead. The caller blocks SIGINT, so that none is
 * lost between two waits. */
static inline bool line_wait(int fd) {
    sigset_t open;
    sigprocmask(SIG_SETMASK, NULL, &open);
    sigdelset(&open, SIGINT);
    return ppoll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, NULL, &open) >= 0;
}

#endif
