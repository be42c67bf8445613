/* `weft generate --interactive` on a pseudo-terminal and on a pipe. The model has memorized one sentence. */
#include <termios.h>

#include "cli/line_editor.h"
#include "terminal.h"

#define SENTENCE "The first line tells the model what to say.\n"

/* Waits for the prompt and, with an editor, until keys reach it unbuffered. */
static void assert_prompt(Terminal *terminal) {
    struct termios mode;
    assert_reads(terminal, "> ");
    while (line_editor_available() && tcgetattr(terminal->fd, &mode) == 0 && mode.c_lflag & ICANON)
        usleep(1000);
}

static int setup(void **state) {
    if (corpus_setup(state) || setenv("WEFT", WEFT_BINARY, 1)) return -1;
    FILE *file = fopen(at("text.txt"), "w");
    for (int i = 0; i < 300; i++) fputs(SENTENCE, file);
    fclose(file);
    Ran ran = shell(
        "$WEFT tokenizer train --vocab 300 --data text.txt --out tok --quiet && "
        "$WEFT train --tokenizer tok --data text.txt --model gpt2-tiny --layers 1 --hidden 32 --heads 2 "
        "--seq 48 --batch 8 --threads 1 --val-fraction 0 --quiet --steps 200 --lr 2e-2 --out run");
    if (ran.code) fprintf(stderr, "%s", ran.err);
    int code = ran.code;
    ran_done(&ran);
    return code;
}

#define CHAT_ON(threads) "exec $WEFT generate -i --model run --threads " threads " --greedy --ignore-end "
#define CHAT             CHAT_ON("1")

static void lines_are_continued(void **state) {
    Terminal terminal = terminal_open(CHAT "--stop '.'");
    assert_prompt(&terminal);
    type(&terminal, "The first line tells\n");
    assert_reads(&terminal, "\n the model what to say\r\n");
    assert_prompt(&terminal);
    /* An empty line continues the text: the stop text "." was its last token. */
    type(&terminal, "\n");
    assert_reads(&terminal, "\nThe first line tells the model what to say\r\n");
    assert_prompt(&terminal);
    /* The line follows the text on a line of its own, as in the data. */
    type(&terminal, "The first line\n");
    assert_reads(&terminal, "\n tells the model what to say\r\n");
    assert_prompt(&terminal);
    type(&terminal, "/new\n");
    assert_prompt(&terminal);
    type(&terminal, "The first line tells\n");
    assert_reads(&terminal, "\n the model what to say\r\n");
    assert_prompt(&terminal);
    type(&terminal, "\004");
    assert_int_equal(terminal_close(&terminal), 0);
}

/* Arrow keys, deletion and recall of earlier lines. */
static void lines_are_edited(void **state) {
    if (!line_editor_available()) skip();
    Terminal terminal = terminal_open(CHAT "--stop '.'");
    assert_prompt(&terminal);
    type(&terminal, "The first line txlls\033[D\033[D\033[D\177e\n");
    assert_reads(&terminal, "\n the model what to say\r\n");
    assert_prompt(&terminal);
    type(&terminal, "/new\n");
    assert_prompt(&terminal);
    type(&terminal, "\033[A\033[A\n");
    assert_reads(&terminal, "The first");
    assert_reads(&terminal, "\n the model what to say\r\n");
    assert_prompt(&terminal);
    type(&terminal, "\004");
    assert_int_equal(terminal_close(&terminal), 0);
}

/* Ctrl-C ends a continuation that would take hours, clears a line, and leaves the program running. */
static void interrupt_on(const char *line) {
    Terminal terminal = terminal_open(line);
    assert_prompt(&terminal);
    type(&terminal, "The first\n");
    assert_reads(&terminal, "The first line tells the model what to say.\r\nThe first line");
    type(&terminal, "\003");
    assert_prompt(&terminal);
    type(&terminal, "half a line");
    assert_reads(&terminal, "half a line");
    type(&terminal, "\003");
    assert_prompt(&terminal);
    type(&terminal, "The first line tells\n");
    assert_reads(&terminal, " the model what to say.\r\n");
    type(&terminal, "\003");
    assert_prompt(&terminal);
    type(&terminal, "\004");
    assert_int_equal(terminal_close(&terminal), 0);
}

static void interrupts(void **state) {
    interrupt_on(CHAT "--max-tokens 50000000");
    interrupt_on(CHAT_ON("2") "--max-tokens 50000000"); /* any thread may receive the signal */
}

/* Without a terminal there is no prompt, and the end of the input ends the program. */
static void reads_a_pipe(void **state) {
    Ran ran = shell("printf 'The first line tells\n\nThe first line' | $WEFT generate -i --model run "
                    "--threads 1 --greedy "
                    "--ignore-end --stop .");
    assert_int_equal(ran.code, 0);
    assert_string_equal(ran.out, " the model what to say\n\nThe first line tells the model what to say\n"
                                 " tells the model what to say\n");
    ran_done(&ran);
    ran = shell("printf '/help\\n/set seed 1\\n/new\\nThe first line tells\\n/exit\\nThe first line' | $WEFT "
                "generate -i --model run --threads 1 --greedy --ignore-end --stop .");
    assert_int_equal(ran.code, 0);
    assert_string_equal(ran.out, " the model what to say\n");
    assert_contains(ran.err, "/new    start over");
    assert_contains(ran.err, "unknown command /set seed 1; type /help");
    ran_done(&ran);
    ran = shell("printf '/usr/bin' | $WEFT generate -i --model run --greedy --max-tokens 1");
    assert_null(strstr(ran.err, "unknown command"));
    assert_true(strlen(ran.out) > 1);
    ran_done(&ran);
    ran = shell("$WEFT generate --interactive --prompt 'The first line tells' --model run --greedy --stop . "
                "</dev/null");
    assert_int_equal(ran.code, 0);
    assert_string_equal(ran.out, " the model what to say\n");
    ran_done(&ran);
}

static void refuses_other_modes(void **state) {
    static const struct {
        const char *line, *part;
    } cases[] = {
        {"-i --json", "--interactive cannot be combined with --json"},
        {"-i --samples 2", "--samples"},
        {"-i --prompt a --prompt b", "at most one prompt"},
        {"-x", "-x: unknown option"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[256];
        snprintf(line, sizeof line, "$WEFT generate --model run %s </dev/null", cases[i].line);
        assert_ran(shell(line), 2, err, cases[i].part);
    }
}

/* Input that no option reads is not ignored without a word. */
static void names_unread_input(void **state) {
    static const struct {
        const char *line;
        bool warned;
    } cases[] = {{"<text.txt", true},
                 {"--prompt a <text.txt", true},
                 {"--prompt - <text.txt", false},
                 {"</dev/null", false}};
    for (int i = 0; i < 4; i++) {
        char line[256];
        snprintf(line, sizeof line, "$WEFT generate --model run --threads 1 --max-tokens 1 %s",
                 cases[i].line);
        Ran ran = shell(line);
        assert_int_equal(ran.code, 0);
        assert_int_equal(strstr(ran.err, "standard input is not read; use --prompt -") != NULL,
                         cases[i].warned);
        ran_done(&ran);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_continued), cmocka_unit_test(lines_are_edited),
        cmocka_unit_test(interrupts),          cmocka_unit_test(reads_a_pipe),
        cmocka_unit_test(names_unread_input),  cmocka_unit_test(refuses_other_modes),
    };
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
