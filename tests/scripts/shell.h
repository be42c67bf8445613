/* Test fixture for scripts: a temporary folder per test, and a helper that runs shell commands there and
 * captures their output and exit code. */
#ifndef WEFT_TESTS_SCRIPTS_SHELL_H
#define WEFT_TESTS_SCRIPTS_SHELL_H

#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

typedef struct Shell {
    char root[64];   /* the test's folder; removed by the teardown */
    char said[8192]; /* stdout and stderr of the last command */
    int code;        /* exit code of the last command; -1 if a signal killed it */
} Shell;

static int shell_setup(void **state) {
    Shell *shell = calloc(1, sizeof *shell);
    if (!shell) return -1;
    strcpy(shell->root, "/tmp/weft-scripts-XXXXXX");
    if (!mkdtemp(shell->root)) return -1;
    *state = shell;
    return 0;
}

static int shell_remove_entry(const char *path, const struct stat *info, int type, struct FTW *at) {
    (void)info, (void)type, (void)at;
    return remove(path);
}

static int shell_teardown(void **state) {
    Shell *shell = *state;
    int failed = nftw(shell->root, shell_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(shell);
    return failed;
}

/* Writes a file under the test's folder and creates missing parent folders. */
static void shell_write(const Shell *shell, const char *path, const char *text, mode_t mode) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", shell->root, path);
    for (char *slash = full + strlen(shell->root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(full, 0777);
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(full, mode), 0);
}

/* Runs a shell command in the test's folder. Sets said and code. */
static void shell_run(Shell *shell, const char *command) {
    char line[2048];
    snprintf(line, sizeof line, "exec 2>&1; cd '%s' && %s", shell->root, command);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    shell->said[fread(shell->said, 1, sizeof shell->said - 1, pipe)] = '\0';
    int status = pclose(pipe);
    shell->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Asserts that the last command exited with `code` and that its output contains `text`. */
static void assert_said(const Shell *shell, int code, const char *text) {
    if (!strstr(shell->said, text)) fail_msg("expected '%s' in: %s", text, shell->said);
    assert_int_equal(shell->code, code);
}

/* Runs a command and asserts its exit code and a part of its output. */
#define assert_shell(shell, command, code, text)                                                             \
    do {                                                                                                     \
        shell_run(shell, command);                                                                           \
        assert_said(shell, code, text);                                                                      \
    } while (0)

#define IN_SHELL(test) cmocka_unit_test_setup_teardown(test, shell_setup, shell_teardown)

#endif
