/* The line editor on top of libedit. */
#include "cli/line_editor.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/memory.h"

enum { HISTORY_LINES = 1000 };

struct LineEditor {
    EditLine *edit;
    History *history;
    HistEvent event;
    const char *prompt;
    int terminal; /* standard input, opened again: reading does not block */
};

bool line_editor_available(void) {
    return true;
}

static const char *prompt_of(EditLine *edit) {
    LineEditor *editor = NULL;
    el_get(edit, EL_CLIENTDATA, &editor);
    return editor->prompt;
}

/* Reads a character. libedit's own function would retry once after a signal and lose the first Ctrl-C, which
 * also discards input that line_wait may have seen already. */
static int read_character(EditLine *edit, wchar_t *ret_character) {
    LineEditor *editor = NULL;
    el_get(edit, EL_CLIENTDATA, &editor);
    mbstate_t state = {0};
    for (;;) {
        char byte;
        if (!line_wait(editor->terminal)) return -1;
        ssize_t got = read(editor->terminal, &byte, 1);
        if (got < 0 && errno == EAGAIN) continue;
        if (got <= 0) return (int)got;
        size_t used = mbrtowc(ret_character, &byte, 1, &state);
        if (used == (size_t)-2) continue;
        if (used == (size_t)-1) *ret_character = L'?', state = (mbstate_t){0};
        return 1;
    }
}

Status line_editor_new(LineEditor **ret_editor, const char *prompt) {
    CLEANUP(line_editor_freep) LineEditor *editor = NULL;
    TRY(mem_new(1, sizeof *editor, &editor));
    /* libedit decodes multi-byte characters by the locale. */
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    editor->prompt = prompt;
    /* A description of its own, because other programs share that of standard input. */
    editor->terminal = open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (editor->terminal < 0) editor->terminal = STDIN_FILENO;
    editor->edit = el_init("weft", stdin, stdout, stderr);
    editor->history = history_init();
    if (!editor->edit || !editor->history) return FAILED("cannot use the terminal for line editing");
    history(editor->history, &editor->event, H_SETSIZE, HISTORY_LINES);
    history(editor->history, &editor->event, H_SETUNIQUE, 1);
    el_set(editor->edit, EL_CLIENTDATA, editor);
    el_set(editor->edit, EL_PROMPT, prompt_of);
    el_set(editor->edit, EL_EDITOR, "emacs");
    el_set(editor->edit, EL_HIST, history, editor->history);
    el_set(editor->edit, EL_GETCFN, read_character);
    *ret_editor = editor;
    editor = NULL;
    return OK;
}

void line_editor_free(LineEditor *editor) {
    if (!editor) return;
    if (editor->edit) el_end(editor->edit);
    if (editor->history) history_end(editor->history);
    if (editor->terminal > STDIN_FILENO) close(editor->terminal);
    free(editor);
}

LineResult line_editor_read(LineEditor *editor, const char **ret_line, size_t *ret_size) {
    int count = 0;
    errno = 0;
    const char *line = el_gets(editor->edit, &count);
    if (!line || count <= 0) return count < 0 && errno == EINTR ? LINE_INTERRUPTED : LINE_END;
    size_t size = strlen(line);
    if (size && line[size - 1] == '\n') size--;
    if (size) history(editor->history, &editor->event, H_ENTER, line);
    *ret_line = line;
    *ret_size = size;
    return LINE_READ;
}
