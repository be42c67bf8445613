/* Replaces line_editor.c in a build without libedit. */
#include "cli/line_editor.h"

bool line_editor_available(void) {
    return false;
}

Status line_editor_new(LineEditor **ret_editor, const char *prompt) {
    (void)ret_editor, (void)prompt;
    return FAILED("internal: built without libedit");
}

void line_editor_free(LineEditor *editor) {
    (void)editor;
}

LineResult line_editor_read(LineEditor *editor, const char **ret_line, size_t *ret_size) {
    (void)editor, (void)ret_line, (void)ret_size;
    return LINE_END;
}
