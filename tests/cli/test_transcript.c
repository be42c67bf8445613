/* The transcript in docs/getting-started.md: every command succeeds and prints the quoted lines. In them,
 * "..." stands for any text. */
#include "comm/mpi.h"
#include "corpus.h"

static const char heading[] = "## The first ten commands\n";
enum { COMMANDS = 10 };

static int setup(void **state) {
    if (corpus_setup(state) || setenv("WEFT", WEFT_BINARY, 1)) return -1;
    Ran ran = shell("cat " WEFT_SOURCE_DIR "/docs/*.md | head -c 100000 > book.txt");
    int code = ran.code;
    ran_done(&ran);
    return code;
}

/* Whether one line of the output is as quoted. */
static bool line_matches(const char *line, size_t length, const char *quoted) {
    const char *at = line, *end = line + length;
    for (bool anchored = true;;) {
        const char *gap = strstr(quoted, "...");
        size_t size = gap ? (size_t)(gap - quoted) : strlen(quoted);
        if (!gap && !anchored && (size_t)(end - at) >= size)
            at = end - size; /* the last piece ends the line */
        while (!anchored && gap && (size_t)(end - at) >= size && memcmp(at, quoted, size)) at++;
        if ((size_t)(end - at) < size || memcmp(at, quoted, size)) return false;
        at += size;
        if (!gap) return at == end;
        quoted = gap + 3;
        anchored = false;
    }
}

static bool prints(const char *text, const char *quoted) {
    for (size_t length; *text; text += length + (text[length] != 0)) {
        length = strcspn(text, "\n");
        if (line_matches(text, length, quoted)) return true;
    }
    return false;
}

static Ran run_command(const char *command) {
    char line[600];
    snprintf(line, sizeof line, "weft() { \"$WEFT\" \"$@\"; }; %s", command);
    Ran ran = shell(line);
    if (ran.code) fail_msg("%s: exit code %d\n%s", command, ran.code, ran.err);
    return ran;
}

static void transcript_is_true(void **state) {
    (void)state;
    if (!mpi_built()) skip();
    FILE *file = fopen(WEFT_SOURCE_DIR "/docs/getting-started.md", "r");
    assert_non_null(file);
    char line[512], command[512] = "";
    int commands = 0, quoted = 0;
    Ran ran = {0};
    while (fgets(line, sizeof line, file) && strcmp(line, heading)) {
    }
    while (fgets(line, sizeof line, file) && strncmp(line, "## ", 3)) {
        if (strncmp(line, "    ", 4)) continue;
        char *text = line + 4;
        text[strcspn(text, "\n")] = 0;
        if (!strncmp(text, "$ ", 2)) {
            ran_done(&ran);
            snprintf(command, sizeof command, "%s", text + 2);
            ran = run_command(command);
            commands++;
        } else if (!prints(ran.out, text) && !prints(ran.err, text)) {
            fail_msg("%s: expected '%s' in:\n%s%s", command, text, ran.err, ran.out);
        }
        quoted++;
    }
    ran_done(&ran);
    fclose(file);
    assert_int_equal(commands, COMMANDS);
    assert_true(quoted > 2 * COMMANDS);
}

/* The comparison itself can fail. */
static void lines_are_compared(void **state) {
    (void)state;
    static const char text[] = "loss 5.1 to 2.2\nstep 10\n";
    assert_true(prints(text, "loss 5... to ..."));
    assert_true(prints(text, "...2.2"));
    assert_true(prints(text, "step 10"));
    assert_false(prints(text, "step 1"));
    assert_false(prints(text, "tep 10"));
    assert_false(prints(text, "loss 6... to ..."));
    assert_false(prints(text, "loss ... step 10"));
    assert_false(prints(text, "...2.1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines_are_compared),
                                       cmocka_unit_test(transcript_is_true)};
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
