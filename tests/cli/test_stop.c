/* Progress and Ctrl-C on a pseudo-terminal, in each phase of the commands that take long. Commands that have
 * nothing to save are killed by the signal; training saves a checkpoint first. */
#include <fcntl.h>
#include <glob.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "launched.h"

enum { KILLED = 128 + SIGINT };

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
    Terminal terminal;
    int code =
        stop_at(&terminal, "exec $WEFT train --data self " TINY "--steps 1000000 --eval-every 0 --out run",
                "%  loss ");
    assert_contains(terminal.seen, "/1000000 ");
    assert_contains(terminal.seen, "weft: stopped after step ");
    assert_contains(terminal.seen, "add --resume to continue");
    assert_int_equal(code, SAVED);
    assert_true(path_exists(at("run/latest")));
    terminal = terminal_open("exec $WEFT train --out run --resume");
    assert_reads(&terminal, "resuming from run/");
    assert_reads(&terminal, "%  loss ");
    type(&terminal, "\003");
    assert_int_equal(terminal_close(&terminal), SAVED);
    assert_contains(terminal.seen, "weft: stopped after step ");
}

/* A validation between steps stops as well, after saving the steps. */
static void later_validation_saves(void **state) {
    Terminal terminal =
        terminal_open("exec $WEFT train --data self " TINY "--val-fraction 0.9 --eval-every 1 "
                      "--eval-samples 1000 --steps 1000000 --out later");
    assert_reads(&terminal, "step 0  validation loss");
    type(&terminal, "");
    assert_reads(&terminal, "validating ");
    type(&terminal, "\003");
    assert_int_equal(terminal_close(&terminal), SAVED);
    assert_contains(terminal.seen, "weft: stopped after step ");
    assert_true(path_exists(at("later/latest")));
}

/* Ranks agree on a validation's end and on the step after which they stop. */
static void ranks_stop_together(void **state) {
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
                "%  loss ");
    assert_contains(terminal.seen, "weft: stopped after step ");
    assert_int_equal(code, SAVED);
    assert_true(path_exists(at("ranks/latest")));
}

/* Batch systems signal every process of a job, and more than once. */
static void terminated_job_saves(void **state) {
    if (!mpi_built()) skip();
    Launch launch;
    launch_open(&launch, "preempted");
    for (int i = 0; i < 3; i++) {
        kill(launch.launcher[0], SIGTERM);
        for (int r = 0; r < 2; r++) kill(launch.rank[r], SIGTERM);
        kill(launch.terminal.child, SIGTERM);
        usleep(20000);
    }
    assert_int_equal(terminal_close(&launch.terminal), SAVED);
    assert_contains(launch.terminal.seen, "weft: stopped after step ");
    assert_true(path_exists(at("preempted/latest")));
}

/* A signal to any one rank stops all. */
static void one_rank_stops_all(void **state) {
    if (!mpi_built()) skip();
    static const int signals[] = {SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU};
    Launch launch;
    char name[32];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "one-%d", i);
        launch_open(&launch, name);
        kill(launch.rank[i], signals[i]);
        assert_int_equal(terminal_close(&launch.terminal), SAVED);
        assert_contains(launch.terminal.seen, "weft: stopped after step ");
    }
    for (int i = 2; i < 4; i++) { /* and without ranks */
        Terminal terminal = terminal_open("exec $WEFT train --out one-0 --resume --ranks 1");
        assert_reads(&terminal, "%  loss ");
        kill(terminal.child, signals[i]);
        assert_int_equal(terminal_close(&terminal), SAVED);
    }
}

/* A wrapper such as timeout forwards a Ctrl-C that the terminal has sent to all: closer than a second, they
 * are one. */
static void doubled_interrupt_is_one(void **state) {
    Terminal terminal =
        terminal_open("exec $WEFT train --data self " TINY "--steps 1000000 --eval-every 0 --out doubled");
    assert_reads(&terminal, "%  loss ");
    type(&terminal, "\003");
    for (int i = 0; i < 4; i++) {
        usleep(5000);
        kill(terminal.child, SIGINT);
    }
    assert_int_equal(terminal_close(&terminal), SAVED);
    assert_contains(terminal.seen, "weft: stopped after step ");
    assert_true(path_exists(at("doubled/latest")));
    if (!mpi_built()) return;
    Launch launch;
    launch_open(&launch, "doubled-ranks");
    type(&launch.terminal, "\003");
    for (int i = 0; i < 4; i++) {
        usleep(5000);
        kill(launch.terminal.child, SIGINT);
    }
    assert_int_equal(terminal_close(&launch.terminal), SAVED);
    assert_contains(launch.terminal.seen, "weft: stopped after step ");
    assert_true(path_exists(at("doubled-ranks/latest")));
}

/* A rank that cannot react does not delay a second Ctrl-C, which is suggested and announced. */
static void second_interrupt_kills(void **state) {
    if (!mpi_built()) skip();
    Launch launch;
    launch_open(&launch, "at-once");
    kill(launch.rank[1], SIGSTOP);
    type(&launch.terminal, "\003");
    assert_reads(&launch.terminal, "press Ctrl-C again to end at once");
    type(&launch.terminal, "\003");
    assert_int_equal(terminal_close(&launch.terminal), 1);
    assert_contains(launch.terminal.seen,
                    "weft: stopped at once; steps after the newest checkpoint are lost");
    for (int r = 0; r < 2; r++) assert_int_not_equal(kill(launch.rank[r], 0), 0);
}

/* Ranks under another launcher say the same; that it kills them soon matters only once they take long. */
static void ranks_of_mpirun_explain(void **state) {
    static const char line[] = "exec mpirun -n 2 $WEFT train --data self " TINY
                               "--steps 1000000 --save-every 1 --eval-every 0 --log-every 1 --out mpirun-";
    if (!mpi_built()) skip();
    for (int i = 0; i < 2; i++) {
        char command[512];
        pid_t rank[8];
        snprintf(command, sizeof command, "%s%d", line, i);
        Terminal terminal = terminal_open(command);
        assert_reads(&terminal, "loss ");
        assert_null(strstr(terminal.seen, "warning: mpirun"));
        assert_int_equal(children_of(terminal.child, rank), 2);
        kill(rank[1], SIGSTOP);
        type(&terminal, "");
        kill(rank[0], i ? SIGINT : SIGTERM);
        assert_reads(&terminal,
                     i ? "press Ctrl-C again to end at once" : "warning: mpirun kills the ranks after 2 s");
        kill(rank[0], i ? SIGINT : SIGKILL);
        if (i) assert_reads(&terminal, "weft: stopped at once; steps after the newest checkpoint are lost");
        terminal_close(&terminal);
    }
}

/* The ranks start again after one was killed, and continue the run. */
static void killed_rank_is_restarted(void **state) {
    if (!mpi_built()) skip();
    Launch launch;
    launch_open(&launch, "restarted --save-every 1 --max-restarts 1");
    while (!path_exists(at("restarted/latest"))) { /* else it would restart from the beginning */
        type(&launch.terminal, "");
        assert_reads(&launch.terminal, "%  loss ");
    }
    type(&launch.terminal, "");
    kill(launch.rank[1], SIGKILL);
    assert_reads(&launch.terminal, "restarting from the newest checkpoint, 0 restarts left");
    assert_reads(&launch.terminal, "resuming from restarted/");
    assert_reads(&launch.terminal, "%  loss ");
    type(&launch.terminal, "\003");
    assert_int_equal(terminal_close(&launch.terminal), SAVED);
}

/* Ranks whose launcher was killed save if they can; the run says what happened. */
static void killed_launcher_is_reported(void **state) {
    if (!mpi_built()) skip();
    Launch launch;
    launch_open(&launch, "orphaned");
    kill(launch.launcher[0], SIGKILL);
    int code = terminal_close(&launch.terminal);
    assert_contains(launch.terminal.seen, "was killed by signal 9 (Killed)");
    bool saved = path_exists(at("orphaned/latest"));
    assert_contains(launch.terminal.seen,
                    saved ? "the ranks saved a checkpoint" : "its ranks ended without saving");
    assert_int_equal(code, saved ? SAVED : 1);
    for (int r = 0; r < 2; r++) assert_int_not_equal(kill(launch.rank[r], 0), 0);
}

/* One that is killed when the ranks have already saved, and told only it, loses nothing either. */
static void launcher_killed_after_saving(void **state) {
    if (!mpi_built()) skip();
    Launch launch;
    launch_open(&launch, "late-orphans");
    kill(launch.rank[0], SIGUSR1);
    for (int i = 0; i < 60000 && !path_exists(at("late-orphans/summary.json")); i++) usleep(1000);
    kill(launch.launcher[0], SIGKILL);
    assert_int_equal(terminal_close(&launch.terminal), SAVED);
    assert_contains(launch.terminal.seen, "add --resume to continue");
}

static bool ended(pid_t child) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == child;
}

/* One that is stopped is waited for, but not silently. */
static void stopped_launcher_is_reported(void **state) {
    if (!mpi_built()) skip();
    Launch launch;
    char text[64];
    launch_open(&launch, "suspended");
    kill(launch.launcher[0], SIGSTOP);
    snprintf(text, sizeof text, "continue it with: kill -CONT %d", (int)launch.launcher[0]);
    assert_reads(&launch.terminal, text);
    kill(launch.launcher[0], SIGCONT);
    type(&launch.terminal, "\003");
    assert_int_equal(terminal_close(&launch.terminal), SAVED);
}

/* Ranks without a launcher that cannot save do not delay a second Ctrl-C. */
static void orphans_are_killed(void **state) {
    if (!mpi_built()) skip();
    Launch launch;
    launch_open(&launch, "stuck");
    for (int r = 0; r < 2; r++) kill(launch.rank[r], SIGSTOP);
    kill(launch.launcher[0], SIGKILL);
    usleep(200000);
    for (int i = 0; !ended(launch.terminal.child) && i < 50; i++) {
        type(&launch.terminal, "\003");
        usleep(1200000);
    }
    assert_int_equal(terminal_close(&launch.terminal), 1);
    assert_contains(launch.terminal.seen, "weft: stopped at once");
    for (int r = 0; r < 2; r++) assert_int_not_equal(kill(launch.rank[r], 0), 0);
    /* A rank that is stopped does not keep it waiting. */
    launch_open(&launch, "orphaned-too --timeout 6");
    kill(launch.rank[1], SIGSTOP);
    kill(launch.launcher[0], SIGKILL);
    assert_int_equal(terminal_close(&launch.terminal), 1);
    for (int r = 0; r < 2; r++) assert_int_not_equal(kill(launch.rank[r], 0), 0);
}

/* A resumed run that waits for its data has not loaded its checkpoint yet, and loses nothing. */
static void resuming_stops(void **state) {
    put_text("held.txt", "the quick brown fox jumps over the lazy dog and over the other one, twice a day\n");
    put_text("prepare.sh",
             "set -e; export WEFT_CACHE=cache; $WEFT tokenizer train --data held.txt --vocab 270 "
             "--out held-tok; $WEFT train --data held.txt --tokenizer held-tok " TINY
             "--seq 8 --steps 1 --val-fraction 0 --out held; rm cache/shards/*/*.tokens");
    Terminal terminal = terminal_open("sh prepare.sh");
    assert_int_equal(terminal_close(&terminal), 0);
    glob_t locks;
    assert_int_equal(glob(at("cache/shards/*.lock"), 0, NULL, &locks), 0);
    int lock = open(locks.gl_pathv[0], O_RDWR);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    int code = stop_at(&terminal, "WEFT_CACHE=cache exec $WEFT train --out held --resume --steps 2",
                       "waiting for another process");
    assert_contains(terminal.seen,
                    "weft: stopped before the checkpoint was loaded; add --resume to continue");
    assert_int_equal(code, SAVED);
    close(lock);
    globfree(&locks);
}

static void starting_ranks_stop(void **state) {
    if (!mpi_built()) skip();
    Terminal terminal;
    int code =
        stop_at(&terminal,
                "echo starting; exec $WEFT train --data self " TINY "--ranks 2 --steps 1000000 --out started",
                "starting");
    assert_true(code == 1 || code == KILLED); /* the signal may come before the command catches it */
    assert_false(path_exists(at("started/latest")));
    /* A run that is resumed has everything saved. */
    code = stop_at(&terminal, "echo starting; exec $WEFT train --out run --resume --ranks 2", "starting");
    assert_true(code == SAVED || code == KILLED);
}

static void tokenizer_training_stops(void **state) {
    Terminal terminal;
    int code =
        stop_at(&terminal, "exec $WEFT tokenizer train --data self --vocab 60000 --threads 1 --out tokenizer",
                "counting words ");
    assert_stopped(&terminal, code);
    assert_false(path_exists(at("tokenizer")));
}

/* Reading from a pipe without a writer never reaches a check; the command ends all the same. */
static void preparation_stops(void **state) {
    assert_int_equal(mkfifo(at("pipe.txt"), 0600), 0);
    Terminal terminal;
    int code = stop_at(&terminal,
                       "echo starting; exec $WEFT prepare --data pipe.txt --tokenizer bytes --out prepared",
                       "starting");
    assert_true(code == 1 || code == KILLED); /* the signal may come before the command catches it */
    assert_false(path_exists(at("prepared")));
}

static void evaluation_stops(void **state) {
    Terminal terminal;
    int code = stop_at(&terminal, "exec $WEFT eval --model run --data self --threads 1", "evaluating ");
    assert_stopped(&terminal, code);
}

static void search_stops(void **state) {
    Terminal terminal;
    int code =
        stop_at(&terminal,
                "exec $WEFT plan --search --model llama-3-70b --cluster dgx-a100 --ranks 1024 --batch 4096",
                "planning ");
    assert_stopped(&terminal, code);
}

/* Ctrl-C before the first run starts. Checking 3000 runs takes seconds. */
static void comparison_stops(void **state) {
    FILE *recipe = fopen(at("recipe.json"), "w");
    assert_non_null(recipe);
    fputs("{\"data\": [\"self\"], \"model\": \"gpt2-tiny\", \"steps\": 1, \"runs\": [", recipe);
    for (int i = 0; i < 3000; i++) fprintf(recipe, "%s{\"name\": \"run-%d\"}", i ? ", " : "", i);
    fputs("]}", recipe);
    assert_int_equal(fclose(recipe), 0);
    Terminal terminal;
    int code = stop_at(&terminal, "exec $WEFT compare recipe.json --out comparison", "checking runs ");
    assert_stopped(&terminal, code);
    assert_false(path_exists(at("comparison")));
}

/* A signal that the parent ignores stays ignored. */
static void ignored_signals_stay_ignored(void **state) {
    Terminal terminal = terminal_open("trap '' INT; exec $WEFT bench " TINY "--steps 30 --steps-only");
    assert_reads(&terminal, "measuring ");
    type(&terminal, "\003");
    assert_int_equal(terminal_close(&terminal), 0);
}

static void measurement_stops(void **state) {
    Terminal terminal;
    int code = stop_at(&terminal, "exec $WEFT bench " TINY "--steps 1000000", "measuring ");
    assert_stopped(&terminal, code);
}

static void generation_stops(void **state) {
    Terminal terminal;
    int code = stop_at(&terminal,
                       "exec $WEFT generate --model run --prompt 'static Status' --threads 1 --ignore-end "
                       "--max-tokens 50000000",
                       "Status");
    assert_stopped(&terminal, code);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(validation_stops),
        cmocka_unit_test(training_saves_and_resumes),
        cmocka_unit_test(later_validation_saves),
        cmocka_unit_test(ranks_stop_together),
        cmocka_unit_test(terminated_job_saves),
        cmocka_unit_test(one_rank_stops_all),
        cmocka_unit_test(doubled_interrupt_is_one),
        cmocka_unit_test(ranks_of_mpirun_explain),
        cmocka_unit_test(second_interrupt_kills),
        cmocka_unit_test(killed_launcher_is_reported),
        cmocka_unit_test(launcher_killed_after_saving),
        cmocka_unit_test(stopped_launcher_is_reported),
        cmocka_unit_test(orphans_are_killed),
        cmocka_unit_test(killed_rank_is_restarted),
        cmocka_unit_test(starting_ranks_stop),
        cmocka_unit_test(resuming_stops),
        cmocka_unit_test(preparation_stops),
        cmocka_unit_test(tokenizer_training_stops),
        cmocka_unit_test(evaluation_stops),
        cmocka_unit_test(generation_stops),
        cmocka_unit_test(measurement_stops),
        cmocka_unit_test(search_stops),
        cmocka_unit_test(comparison_stops),
        cmocka_unit_test(ignored_signals_stay_ignored),
    };
    return cmocka_run_group_tests(tests, launched_setup, corpus_teardown);
}
