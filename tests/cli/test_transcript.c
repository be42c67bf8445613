/* The transcripts in docs/getting-started.md and docs/planning.md: every command succeeds and prints the
 * quoted lines. In them, "..." stands for any text. */
#include "comm/mpi.h"
#include "corpus.h"

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
    char line[1100];
    snprintf(line, sizeof line, "weft() { \"$WEFT\" \"$@\"; }; %s", command);
    Ran ran = shell(line);
    if (ran.code) fail_msg("%s: exit code %d\n%s", command, ran.code, ran.err);
    return ran;
}

/* The session in the README can follow the demo, whose directories then exist. */
static void session_follows_the_demo(void **state) {
    CLEANUP(mem_freep) char *demo = NULL, *readme = NULL;
    size_t size = 0;
    assert_ok(file_read(WEFT_SOURCE_DIR "/scripts/demo", 1 << 20, &demo, &size));
    assert_ok(file_read(WEFT_SOURCE_DIR "/README.md", 1 << 20, &readme, &size));
    int found = 0;
    for (char *at = readme; (at = strstr(at, " --out runs/")); found++) {
        at += strlen(" --out ");
        CLEANUP(mem_freep) char *assigned = NULL;
        assert_ok(str_format(&assigned, "=%.*s\n", (int)strcspn(at, " \n"), at));
        if (strstr(demo, assigned)) fail_msg("the demo creates %s", assigned + 1);
    }
    assert_true(found > 2);
}

typedef struct Transcript {
    const char *path, *heading, *part; /* only commands that contain this; NULL: all */
    int commands, quoted;
} Transcript;

/* Reads a line of the file, and more if it ends with a backslash. */
static bool read_line(FILE *file, char line[1024]) {
    if (!fgets(line, 512, file)) return false;
    char *end = line + strcspn(line, "\n");
    if (end > line && end[-1] == '\\' && !fgets(end - 1, 512, file)) return false;
    line[strcspn(line, "\n")] = 0;
    return true;
}

/* Runs the commands of a section and looks for the lines quoted below each. */
static void check(Transcript *of) {
    FILE *file = fopen(of->path, "r");
    assert_non_null(file);
    char line[1024], command[1024] = "";
    Ran ran = {0};
    while (read_line(file, line) && strcmp(line, of->heading)) {
    }
    while (read_line(file, line) && (strncmp(line, "## ", 3) || of->part)) {
        char *text = line + 4;
        bool indented = !strncmp(line, "    ", 4), starts = indented && !strncmp(text, "$ ", 2);
        if (starts || (!indented && line[0])) {
            ran_done(&ran);
            ran = (Ran){0};
        }
        if (starts && (!of->part || strstr(text, of->part))) {
            snprintf(command, sizeof command, "%s", text + 2);
            ran = run_command(command);
            of->commands++;
        } else if (indented && ran.out) {
            if (!prints(ran.out, text) && !prints(ran.err, text))
                fail_msg("%s: expected '%s' in:\n%s%s", command, text, ran.err, ran.out);
            of->quoted++;
        }
    }
    ran_done(&ran);
    fclose(file);
}

static void transcript_is_true(void **state) {
    if (!mpi_built()) skip();
    Transcript first = {WEFT_SOURCE_DIR "/docs/getting-started.md", "## The first ten commands", NULL, 0, 0};
    check(&first);
    assert_int_equal(first.commands, COMMANDS);
    assert_true(first.quoted > COMMANDS);
}

/* The examples for built-in clusters, whose figures are the same on every machine; sweeps take long. */
static void plans_are_true(void **state) {
    static const char *const parts[] = {"--cluster dgx2-v100", "--search --model gpt2 --layers 72",
                                        "--ranks 16384"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        Transcript plans = {WEFT_SOURCE_DIR "/docs/planning.md", "# Planning a run", parts[i], 0, 0};
        check(&plans);
        assert_true(plans.commands > 0 && plans.quoted > 3);
    }
}

/* The comparison itself can fail. */
static void lines_are_compared(void **state) {
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_compared), cmocka_unit_test(session_follows_the_demo),
        cmocka_unit_test(transcript_is_true), cmocka_unit_test(plans_are_true)};
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
