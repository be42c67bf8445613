/* Progress on a terminal: what child processes draw (ranks, and the runs of a comparison), and work that
 * takes long before the first step. */
#include "comm/mpi.h"
#include "terminal.h"

#define TINY "--model gpt2-tiny --layers 1 --hidden 32 --heads 2 --seq 32 --batch 4 --threads 1 "

static int setup(void **state) {
    if (corpus_setup(state) || setenv("WEFT", WEFT_BINARY, 1)) return -1;
    put_sentences("book.txt", 400, 1, false);
    return 0;
}

/* Every phase shows, on one line, and results follow it on a line of their own. */
static void ranks_draw(void **state) {
    if (!mpi_built()) skip();
    Terminal terminal =
        terminal_open("exec $WEFT train book.txt --ranks 2 " TINY "--steps 30 --eval-every 15 --out run");
    assert_reads(&terminal, "\r\033[K\033[?7lstarting 2 ranks\033[?7h");
    assert_reads(&terminal, "\r\033[Kmodel: gpt2-tiny, 1 layer");
    assert_reads(&terminal, "\r\033[K\033[?7lvalidating ");
    assert_reads(&terminal, "\r\033[K\033[?7ltrain ");
    assert_reads(&terminal, "step 1/30   3%  loss ");
    assert_reads(&terminal, "\r\033[Kstep 15  validation loss ");
    assert_reads(&terminal, "\n30 steps in ");
    assert_reads(&terminal, "next: weft generate run");
    assert_int_equal(terminal_close(&terminal), 0);
}

/* A rank's error erases the line. */
static void errors_start_a_line(void **state) {
    if (!mpi_built()) skip();
    Terminal terminal = terminal_open("exec $WEFT train missing.txt --ranks 2 " TINY);
    assert_reads(&terminal, "starting 2 ranks");
    assert_reads(&terminal, "\r\033[Kweft: error: ");
    assert_reads(&terminal, "missing.txt: cannot open");
    assert_int_equal(terminal_close(&terminal), 1);
}

static void quiet_ranks_draw_nothing(void **state) {
    if (!mpi_built()) skip();
    Terminal terminal = terminal_open("exec $WEFT train book.txt --ranks 2 " TINY "--steps 2 --quiet");
    assert_reads(&terminal, "2 steps in ");
    assert_null(strchr(terminal.seen, '\033'));
    assert_int_equal(terminal_close(&terminal), 0);
}

/* A file gets complete lines, whatever standard output is. */
static void logs_stay_plain(void **state) {
    if (!mpi_built()) skip();
    Terminal terminal =
        terminal_open("$WEFT train book.txt --ranks 2 " TINY "--steps 2 2>log && cat log && exec cat -v log");
    assert_reads(&terminal, "2 steps in ");
    assert_reads(&terminal, "train 2/2 (100%)");
    assert_int_equal(terminal_close(&terminal), 0);
    assert_null(strchr(terminal.seen, '\033'));
    assert_null(strstr(terminal.seen, "starting"));
    assert_null(strstr(terminal.seen, "^M"));
}

/* The bar of each run, also of one with ranks, passes through; logs contain only complete lines. */
static void comparisons_draw(void **state) {
    if (!mpi_built()) skip();
    put_text("recipe.json",
             "{\"data\": [\"book.txt\"], \"model\": \"gpt2-tiny\", \"layers\": 1, \"hidden\": 32, "
             "\"heads\": 2, \"seq\": 32, \"batch\": 4, \"threads\": 1, \"steps\": 30, "
             "\"runs\": [{\"name\": \"one\"}, {\"name\": \"two\", \"dp\": 2}]}");
    Terminal terminal = terminal_open("exec $WEFT compare recipe.json --out comparison");
    assert_reads(&terminal, "checking runs ");
    assert_reads(&terminal, "[1/2] one");
    assert_reads(&terminal, "\r\033[K\033[?7ltrain ");
    assert_reads(&terminal, "step 1/30   3%  loss ");
    assert_reads(&terminal, "\r\033[K      finished in ");
    assert_reads(&terminal, "[2/2] two");
    type(&terminal, "");
    assert_reads(&terminal, "step 1/30   3%  loss ");
    assert_reads(&terminal, "\r\033[K      finished in ");
    assert_int_equal(terminal_close(&terminal), 0);
}

/* A model with 8192 positions, whose usual 20 batches for validation would take minutes. */
#define LONG "exec $WEFT train --data self --model gpt2-tiny --layers 1 --hidden 64 --heads 1 --seq 8192 "

/* The validation before the first step is short, whatever the layout, unless an option sets its size. The
 * elapsed time advances meanwhile. */
static void first_validation_is_short(void **state) {
    Terminal terminal = terminal_open(LONG "--steps 10");
    assert_reads(&terminal, "first validation: 16 samples instead of ");
    assert_reads(&terminal, "validating ");
    assert_reads(&terminal, "   0%  0:01");
    type(&terminal, "\003");
    terminal_close(&terminal);
    static const char *const given[] = {LONG "--eval-batches 20", LONG "--eval-samples 160",
                                        LONG "--patience 3"};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        terminal = terminal_open(given[i]);
        assert_reads(&terminal, "validating ");
        assert_null(strstr(terminal.seen, "first validation"));
        type(&terminal, "\003");
        terminal_close(&terminal);
    }
}

/* A step that takes minutes is announced, and the bar shows the elapsed time. */
static void slow_steps_are_announced(void **state) {
    Terminal terminal =
        terminal_open(LONG "--layers 2 --hidden 128 --batch 256 --micro-batch 4 --eval-every 0");
    assert_reads(&terminal, "each step takes ");
    assert_reads(&terminal, "step 0/1000   0%  0:0");
    type(&terminal, "\003");
    terminal_close(&terminal);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_draw),
        cmocka_unit_test(errors_start_a_line),
        cmocka_unit_test(quiet_ranks_draw_nothing),
        cmocka_unit_test(logs_stay_plain),
        cmocka_unit_test(comparisons_draw),
        cmocka_unit_test(first_validation_is_short),
        cmocka_unit_test(slow_steps_are_announced),
    };
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
