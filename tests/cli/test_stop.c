/* Progress and Ctrl-C on a pseudo-terminal, in each phase of the commands that take long. Commands that have
 * nothing to save are killed by the signal; training saves a checkpoint first. */
#include <sys/stat.h>

#include "base/fs.h"
#include "comm/mpi.h"
#include "terminal.h"

enum { KILLED = 128 + SIGINT };

#define TINY "--model gpt2-tiny --layers 1 --hidden 32 --heads 2 --seq 64 --batch 4 --threads 1 "

static int setup(void **state) {
    return corpus_setup(state) || setenv("WEFT", WEFT_BINARY, 1) ? -1 : 0;
}

/* Runs a command until it has printed `part`, presses Ctrl-C, and returns its exit code. What it printed
 * from then on is in terminal->seen. */
static int stop_at(Terminal *terminal, const char *line, const char *part) {
    *terminal = terminal_open(line);
    assert_reads(terminal, part);
    type(terminal, "\003");
    return terminal_close(terminal);
}

/* A command with nothing to save says so and is killed by the signal. */
static void assert_stopped(const Terminal *terminal, int code) {
    assert_contains(terminal->seen, "\nweft: stopped\r\n");
    assert_int_equal(code, KILLED);
}

static void validation_stops(void **state) {
    (void)state;
    Terminal terminal;
    int code = stop_at(&terminal,
                       "exec $WEFT train --data self " TINY "--val-fraction 0.9 --eval-batches 0 --out never",
                       "validating ");
    assert_contains(terminal.seen, "weft: stopped");
    assert_int_equal(code, 1);
    assert_false(path_exists(at("never/latest")));
}

/* The bar shows step and total; the checkpoint resumes. */
static void training_saves_and_resumes(void **state) {
    (void)state;
    Terminal terminal;
    int code =
        stop_at(&terminal, "exec $WEFT train --data self " TINY "--steps 1000000 --eval-every 0 --out run",
                "/1000000   0%  loss ");
    assert_contains(terminal.seen, "weft: stopped after step ");
    assert_contains(terminal.seen, "add --resume to continue");
    assert_int_equal(code, 1);
    assert_true(path_exists(at("run/latest")));
    terminal = terminal_open("exec $WEFT train --out run --resume");
    assert_reads(&terminal, "resuming from run/");
    assert_reads(&terminal, "/1000000   0%  loss ");
    type(&terminal, "\003");
    assert_int_equal(terminal_close(&terminal), 1);
    assert_contains(terminal.seen, "weft: stopped after step ");
}

/* A validation between steps stops as well, after saving the steps. */
static void later_validation_saves(void **state) {
    (void)state;
    Terminal terminal =
        terminal_open("exec $WEFT train --data self " TINY "--val-fraction 0.9 --eval-every 1 "
                      "--eval-samples 1000 --steps 1000000 --out later");
    assert_reads(&terminal, "step 0  validation loss");
    type(&terminal, "");
    assert_reads(&terminal, "validating ");
    type(&terminal, "\003");
    assert_int_equal(terminal_close(&terminal), 1);
    assert_contains(terminal.seen, "weft: stopped after step ");
    assert_true(path_exists(at("later/latest")));
}

/* Ranks agree on a validation's end and on the step after which they stop. */
static void ranks_stop_together(void **state) {
    (void)state;
    if (!mpi_built()) skip();
    Terminal terminal;
    int code = stop_at(&terminal,
                       "exec $WEFT train --data self " TINY "--ranks 2 --val-fraction 0.9 --eval-batches 0",
                       "tokens per epoch");
    assert_contains(terminal.seen, "weft: stopped");
    assert_null(strstr(terminal.seen, "error"));
    assert_int_equal(code, 1);
    code =
        stop_at(&terminal,
                "exec $WEFT train --data self " TINY "--ranks 2 --steps 1000000 --eval-every 0 --out ranks",
                "step 1/1000000");
    assert_contains(terminal.seen, "weft: stopped after step ");
    assert_int_equal(code, 1);
    assert_true(path_exists(at("ranks/latest")));
}

static void tokenizer_training_stops(void **state) {
    (void)state;
    Terminal terminal;
    int code =
        stop_at(&terminal, "exec $WEFT tokenizer train --data self --vocab 60000 --threads 1 --out tokenizer",
                "counting words ");
    assert_stopped(&terminal, code);
    assert_false(path_exists(at("tokenizer")));
}

/* Reading from a pipe without a writer never reaches a check; the command ends all the same. */
static void preparation_stops(void **state) {
    (void)state;
    assert_int_equal(mkfifo(at("pipe.txt"), 0600), 0);
    Terminal terminal;
    int code = stop_at(&terminal,
                       "echo starting; exec $WEFT prepare --data pipe.txt --tokenizer bytes --out prepared",
                       "starting");
    assert_true(code == 1 || code == KILLED); /* the signal may come before the command catches it */
    assert_false(path_exists(at("prepared")));
}

static void evaluation_stops(void **state) {
    (void)state;
    Terminal terminal;
    int code = stop_at(&terminal, "exec $WEFT eval --model run --data self --threads 1", "evaluating ");
    assert_stopped(&terminal, code);
}

static void search_stops(void **state) {
    (void)state;
    Terminal terminal;
    int code = stop_at(&terminal, "exec $WEFT plan --search --model gpt2-xl --cluster dgx-a100 --ranks 1024",
                       "planning ");
    assert_stopped(&terminal, code);
}

/* Before the first run starts. */
static void comparison_stops(void **state) {
    (void)state;
    put_text("recipe.json", "{\"data\": [\"pipe.txt\"], \"format\": \"text\", \"steps\": 1, \"runs\": "
                            "[{\"name\": \"one\"}, {\"name\": \"two\", \"seq\": 32}]}");
    Terminal terminal;
    int code = stop_at(&terminal, "exec $WEFT compare recipe.json --out comparison", "checking runs ");
    assert_stopped(&terminal, code);
    assert_false(path_exists(at("comparison")));
}

/* A signal that the parent ignores stays ignored. */
static void ignored_signals_stay_ignored(void **state) {
    (void)state;
    Terminal terminal = terminal_open("trap '' INT; exec $WEFT bench " TINY "--steps 1 --steps-only");
    assert_reads(&terminal, "measuring ");
    type(&terminal, "\003");
    assert_int_equal(terminal_close(&terminal), 0);
}

static void measurement_stops(void **state) {
    (void)state;
    Terminal terminal;
    int code = stop_at(&terminal, "exec $WEFT bench " TINY "--steps 1000000", "measuring ");
    assert_stopped(&terminal, code);
}

static void generation_stops(void **state) {
    (void)state;
    Terminal terminal;
    int code = stop_at(&terminal,
                       "exec $WEFT generate --model run --prompt 'static Status' --threads 1 --ignore-end "
                       "--max-tokens 50000000",
                       "Status");
    assert_stopped(&terminal, code);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(validation_stops),       cmocka_unit_test(training_saves_and_resumes),
        cmocka_unit_test(later_validation_saves), cmocka_unit_test(ranks_stop_together),
        cmocka_unit_test(preparation_stops),      cmocka_unit_test(tokenizer_training_stops),
        cmocka_unit_test(evaluation_stops),       cmocka_unit_test(generation_stops),
        cmocka_unit_test(measurement_stops),      cmocka_unit_test(search_stops),
        cmocka_unit_test(comparison_stops),       cmocka_unit_test(ignored_signals_stay_ignored),
    };
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
