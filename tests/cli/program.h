/* Runs the program as a child process and captures its output. */
#ifndef WEFT_TESTS_CLI_PROGRAM_H
#define WEFT_TESTS_CLI_PROGRAM_H

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#include "base/json.h"

typedef struct Ran {
    int code; /* 128 + signal if killed */
    char *out, *err;
} Ran;

/* Group setup. LeakSanitizer's check at exit takes seconds on some hosts, and these tests start the program a
 * hundred times. Tests that run in process check for leaks. */
static inline int program_setup(void **state) {
    return setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
}

static inline char *program_slurp(FILE *file) {
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(1, size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, size, file), size);
    fclose(file);
    return text;
}

/* argv is NULL-terminated and does not include the program's name. If `out_path` is not NULL, standard output
 * goes to that file. */
static inline Ran program_run_to(const char *out_path, const char *const *argv) {
    FILE *out = out_path ? fopen(out_path, "w") : tmpfile(), *err = tmpfile();
    assert_non_null(out);
    assert_non_null(err);
    const char *full[64] = {WEFT_BINARY};
    int count = 1;
    while (argv[count - 1] && count < 63) {
        full[count] = argv[count - 1];
        count++;
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(out), 1);
        dup2(fileno(err), 2);
        execv(WEFT_BINARY, (char *const *)(uintptr_t)full);
        _exit(127);
    }
    int state;
    assert_int_equal(waitpid(child, &state, 0), child);
    Ran ran = {.code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state)};
    if (out_path) {
        fclose(out);
        ran.out = calloc(1, 1);
    } else {
        ran.out = program_slurp(out);
    }
    ran.err = program_slurp(err);
    return ran;
}

#define program_run(...) program_run_to(NULL, (const char *const[]){__VA_ARGS__, NULL})

static inline void ran_done(Ran *ran) {
    free(ran->out);
    free(ran->err);
}

static inline void assert_runs(Ran ran) {
    if (ran.code) fail_msg("exit code %d: %s", ran.code, ran.err);
    ran_done(&ran);
}

#define assert_contains(text, part)                                                                          \
    do {                                                                                                     \
        if (!strstr(text, part)) fail_msg("expected '%s' in:\n%s", part, text);                              \
    } while (0)

/* Asserts the exit code of a run and that its `stream`, out or err, contains `part`. */
#define assert_ran(call, expected_code, stream, part)                                                        \
    do {                                                                                                     \
        Ran ran_ = (call);                                                                                   \
        assert_contains(ran_.stream, part);                                                                  \
        if (ran_.code != (expected_code))                                                                    \
            fail_msg("exit code %d instead of %d: %s", ran_.code, expected_code, ran_.err);                  \
        ran_done(&ran_);                                                                                     \
    } while (0)

/* The child processes of another one. */
static inline int children_of(pid_t parent, pid_t out[8]) {
    char line[64];
    int count = 0, child;
    snprintf(line, sizeof line, "pgrep -P %d", (int)parent);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    while (count < 8 && fscanf(pipe, "%d", &child) == 1) out[count++] = child;
    pclose(pipe);
    return count;
}

/* Asserts that the program fails with this code, prints an error that contains `part`, and prints nothing on
 * standard output. */
#define assert_refused(expected_code, part, ...)                                                             \
    do {                                                                                                     \
        Ran ran_ = program_run(__VA_ARGS__);                                                                 \
        assert_contains(ran_.err, part);                                                                     \
        assert_int_equal(ran_.code, expected_code);                                                          \
        assert_int_equal(strncmp(ran_.err, "weft: error: ", 13), 0);                                         \
        assert_string_equal(ran_.out, "");                                                                   \
        ran_done(&ran_);                                                                                     \
    } while (0)

#endif
