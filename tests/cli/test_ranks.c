/* Starting ranks through the program: with its own launcher, under mpirun, and with ranks that fail, are
 * killed or are interrupted. The tests run `weft ranks`, because it is quick. */
#include <signal.h>

#include "base/clock.h"
#include "launched.h"

/* The number of occurrences of `part` in a text. */
static int occurrences(const char *text, const char *part) {
    int count = 0;
    while ((text = strstr(text, part))) {
        count++;
        text += strlen(part);
    }
    return count;
}

static void starts_ranks(void **state) {
    Ran ran = program_run("ranks", "--ranks", "3", "--size", "1MB", "--repeats", "1", "--json");
    assert_string_equal(ran.err, "");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp)
    json_t *json = json_loads(ran.out, 0, NULL); /* a single object, printed by one
                                                  * rank */
    assert_non_null(json);
    const json_t *ranks = json_object_get(json, "ranks");
    assert_int_equal(json_array_size(ranks), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *rank = json_array_get(ranks, i);
        assert_int_equal(json_integer_value(json_object_get(rank, "rank")), i);
        assert_true(json_integer_value(json_object_get(rank, "threads")) >= 1);
    }
    ran_done(&ran);
}

static void results_that_cannot_be_written(void **state) {
    if (access("/dev/full", W_OK) != 0) skip();
    const char *const line[] = {"ranks", "--ranks", "2", "--size", "8KB", "--repeats", "1", NULL};
    Ran ran = program_run_to("/dev/full", line);
    assert_int_equal(ran.code, 1);
    assert_contains(ran.err, "standard output: cannot write");
    ran_done(&ran);
}

/* mpirun would take minutes to find out. */
static void too_many_ranks(void **state) {
    Ran ran = shell("unset WEFT_MPIRUN SLURM_JOB_ID PBS_NODEFILE LSB_JOBID PE_HOSTFILE; "
                    "\"$WEFT\" ranks --ranks 1000000");
    assert_int_equal(ran.code, 2);
    assert_non_null(strstr(ran.err, "--ranks 1000000: this machine's "));
    assert_non_null(strstr(ran.err, "mpirun or srun"));
    ran_done(&ran);
}

static void one_rank_needs_no_launcher(void **state) {
    setenv("WEFT_MPIRUN", "/nonexistent/mpirun", 1);
    Ran ran = program_run("ranks", "--ranks", "1", "--size", "8KB", "--repeats", "1");
    assert_int_equal(ran.code, 0);
    assert_string_equal(ran.err, "");
    assert_contains(ran.out, "rank 0 on ");
    ran_done(&ran);
    if (mpi_built()) assert_refused(1, "cannot run /nonexistent/mpirun", "ranks", "--ranks", "2");
    unsetenv("WEFT_MPIRUN");
}

/* The launcher is called with the number of ranks, this program and its arguments, and cannot change the
 * output format. */
static void calls_the_launcher(void **state) {
    Ran ran = shell("WEFT_MPIRUN='echo asked' $WEFT ranks --ranks 5 --size 1MB");
    assert_contains(ran.out, "asked -n 5 ");
    assert_contains(ran.out, "weft ranks --ranks 5 --size 1MB\n");
    assert_int_equal(ran.code, 0);
    ran_done(&ran);
    ran = shell("WEFT_MPIRUN=false $WEFT ranks --ranks 5 --json");
    assert_int_equal(ran.code, 1);
    assert_string_equal(ran.err, "weft: error: false could not start the ranks; it exited with code 1\n");
    assert_contains(ran.out, "\"error\"");
    ran_done(&ran);
    assert_ran(shell("printf '#!/bin/sh\\nexit 9\\n' >/tmp/weft-launcher-$$; chmod +x /tmp/weft-launcher-$$; "
                     "WEFT_MPIRUN=/tmp/weft-launcher-$$ $WEFT ranks --ranks 5; code=$?; "
                     "rm /tmp/weft-launcher-$$; exit $code"),
               1, err, "exited with code 9\n");
}

/* With --gather-checkpoints, only rank 0 needs configuration, model and run: the other rank's directory stays
 * empty. */
static void gathers_on_rank_0(void **state) {
    Ran ran = shell(
        "dir=$(mktemp -d) && mkdir $dir/a $dir/b && cd $dir/a && "
        "echo '{\"data\": \"self\", \"seq\": 16, \"batch\": 4, \"eval-every\": 0, \"val-fraction\": 0}' "
        ">run.json && "
        "$WEFT train --model gpt2-tiny --steps 1 --quiet --config run.json --out first && cp -rL "
        "first/latest model && "
        "train=\"$WEFT train --gather-checkpoints --resume --quiet --out run\" && "
        "mpirun -n 1 -wdir $dir/a $train --config run.json --model model --steps 2 : "
        "-n 1 -wdir $dir/b $train --config run.json --model model --steps 2 && "
        "mpirun -n 1 -wdir $dir/a $train --steps 4 --json : -n 1 -wdir $dir/b $train --steps 4 --json && "
        "ls -A $dir/b && ls run run/latest && wc -l <run/metrics.jsonl; code=$?; rm -r \"$dir\"; exit $code");
    if (ran.code) fail_msg("exit code %d: %s", ran.code, ran.err);
    assert_contains(ran.out, "\"steps\": 4");
    static const char *const files[] = {"optimizer.safetensors", "summary.json"};
    for (int i = 0; i < 2; i++) assert_int_equal(occurrences(ran.out, files[i]), 1);
    assert_contains(ran.out, "\n4\n");
    ran_done(&ran);
}

static void joins_mpirun(void **state) {
    Ran ran = shell("mpirun -n 2 $WEFT ranks --size 1MB --repeats 1 --json");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp) json_t *json = json_loads(ran.out, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "ranks")), 2);
    ran_done(&ran);
    ran = shell("mpirun -n 2 $WEFT ranks --ranks 3");
    assert_contains(ran.err,
                    "--ranks 3 does not match the 2 ranks that the launcher started; remove --ranks");
    assert_int_equal(occurrences(ran.err, "weft: error:"), 1);
    assert_int_equal(ran.code, 2);
    ran_done(&ran);
    ran = shell("mpirun -n 1 $WEFT ranks --size 1MB --repeats 1"); /* a world of one rank */
    assert_int_equal(ran.code, 0);
    ran_done(&ran);
}

/* All ranks fail at once, or before they have joined: only one prints the error. */
static void all_fail_with_one_message(void **state) {
    Ran ran = program_run("ranks", "--ranks", "4", "--size", "100TB");
    assert_int_equal(ran.code, 1);
    assert_int_equal(occurrences(ran.err, "\n"), 1);
    assert_int_equal(strncmp(ran.err, "weft: error: rank ", 18), 0);
    assert_contains(ran.err, ": out of memory: cannot allocate 100 TB");
    assert_contains(ran.err, ". Try a smaller --size\n");
    assert_string_equal(ran.out, "");
    ran_done(&ran);
    ran = shell("mpirun -n 3 $WEFT ranks --sise 1MB");
    assert_int_equal(occurrences(ran.err, "weft: error:"), 1);
    assert_contains(ran.err, "did you mean --size?");
    assert_int_equal(ran.code, 2);
    ran_done(&ran);
}

/* The other ranks are inside a collective, waiting for the one that failed. */
static void one_failure_stops_all(void **state) {
    double start = clock_wall();
    Ran ran = shell("train=\"$WEFT train --data " WEFT_SOURCE_DIR "/README.md --documents line "
                    "--model gpt2-tiny --seq 16 --steps 1 --batch 3\"; export WEFT_CACHE=/tmp/weft-ranks-$$; "
                    "mpirun -n 2 $train : -n 1 env WEFT_CACHE=/proc/none $train; code=$?; "
                    "rm -r $WEFT_CACHE; exit $code");
    assert_true(clock_wall() - start < 60);
    assert_int_equal(occurrences(ran.err, "weft: error:"), 1);
    assert_contains(ran.err, "weft: error: rank 2 on ");
    assert_contains(ran.err, ": cannot write to the cache of prepared data: /proc/none");
    assert_int_equal(ran.code, 1);
    ran_done(&ran);
}

/* Options that made ranks wait for each other forever, or train to a wrong result. */
static void different_options_are_refused(void **state) {
    static const struct {
        const char *first, *second;
    } cases[] = {
        {"--steps 3", "--steps 5"},        {"--tp 1", "--tp 2"},
        {"--zero 1", "--zero 3"},          {"--micro-batch 1", "--micro-batch 2"},
        {"--dropout 0.1", "no --dropout"}, {"--data /dev/null", "--data self"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char line[1024], expected[256];
        bool data = !strncmp(cases[i].first, "--data", 6), none = !strncmp(cases[i].second, "no ", 3);
        snprintf(line, sizeof line,
                 "train=\"$WEFT train --model gpt2-tiny --seq 16 %s\"; "
                 "mpirun --mca odls_base_sigkill_timeout 0 -n 1 $train %s : -n 1 $train %s",
                 data ? "" : "--data self", cases[i].first, none ? "" : cases[i].second);
        snprintf(expected, sizeof expected, " has %s%s", cases[i].second,
                 data ? " (no file or directory of this name); " : "; ");
        Ran ran = shell(line);
        assert_contains(ran.err, "weft: error: the ranks differ: rank 0 on ");
        assert_contains(ran.err, cases[i].first);
        assert_contains(ran.err, expected);
        assert_int_equal(occurrences(ran.err, "weft: error:"), 1);
        assert_int_equal(ran.code, 2);
        ran_done(&ran);
    }
    assert_ran(shell("mpirun --mca odls_base_sigkill_timeout 0 -n 1 $WEFT ranks : -n 1 $WEFT bench"), 2, err,
               "has the command 'ranks', but rank 1 on ");
}

static pid_t start_endless(FILE *err) {
    pid_t child = fork();
    if (child == 0) {
        dup2(fileno(err), 2);
        execl(WEFT_BINARY, "weft", "ranks", "--ranks", "3", "--size", "8MB", "--repeats", "1000000",
              (char *)NULL);
        _exit(127);
    }
    return child;
}

/* The CPU time of a process in clock ticks; 0 if it does not exist. */
static long ticks_of(pid_t process) {
    char path[64];
    long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system) != 2)
        user = 0;
    fclose(file);
    return user + system;
}

/* Waits until the launched program has ranks that work, and returns the process id of one, a child of its
 * mpirun; 0 after 60 s. */
static pid_t a_rank_of(pid_t launch) {
    char line[256];
    int rank = 0;
    snprintf(line, sizeof line, "pgrep -P $(pgrep -P %d | head -1) 2>/dev/null | tail -1", (int)launch);
    double start = clock_wall();
    for (; rank == 0 && clock_wall() - start < 60; usleep(10000)) {
        FILE *pipe = popen(line, "r");
        assert_non_null(pipe);
        if (fscanf(pipe, "%d", &rank) != 1) rank = 0;
        pclose(pipe);
    }
    /* They have started once they have used some CPU time; ranks that wait in a collective use it too. */
    while (ticks_of(rank) < sysconf(_SC_CLK_TCK) / 2 && clock_wall() - start < 60) usleep(10000);
    return rank;
}

static void killed_rank_stops_all(void **state) {
    FILE *err = tmpfile();
    pid_t launch = start_endless(err), rank = a_rank_of(launch);
    assert_true(rank > 0);
    double start = clock_wall();
    assert_int_equal(kill(rank, SIGKILL), 0);
    int code;
    assert_int_equal(waitpid(launch, &code, 0), launch);
    assert_true(clock_wall() - start < 60);
    assert_int_equal(WEXITSTATUS(code), 1);
    char *said = program_slurp(err);
    assert_contains(said, "was killed by signal 9 (Killed); the other ranks were terminated");
    assert_int_equal(strncmp(said, "weft: error: rank ", 18), 0);
    assert_int_equal(occurrences(said, "\n"), 1);
    free(said);
}

/* Whether the launching process is interrupted or killed, no rank survives it. */
static void no_rank_outlives_its_launch(void **state) {
    static const int signals[] = {SIGINT, SIGKILL};
    for (int i = 0; i < 2; i++) {
        FILE *err = tmpfile();
        pid_t launch = start_endless(err), rank = a_rank_of(launch);
        assert_true(rank > 0);
        assert_int_equal(kill(launch, signals[i]), 0);
        assert_int_equal(waitpid(launch, NULL, 0), launch);
        double start = clock_wall();
        while (kill(rank, 0) == 0 && clock_wall() - start < 60) usleep(50000);
        assert_int_not_equal(kill(rank, 0), 0);
        fclose(err);
    }
}

/* A launcher that does not notice that its ranks have ended is killed. A file size limit with which Open
 * MPI's mpirun would hang like that is refused. */
static void hung_launcher_is_killed(void **state) {
    assert_ran(shell("f=/tmp/weft-launcher-$$; printf '#!/bin/sh\\nsleep 0.5 &\\nexec sleep 600\\n' >$f; "
                     "chmod +x $f; WEFT_MPIRUN=$f $WEFT ranks --ranks 2; code=$?; rm $f; exit $code"),
               1, err, "hung after a rank had ended, and was killed\n");
    assert_ran(shell("ulimit -f 10; exec $WEFT ranks --ranks 2"), 1, err, "files may not be larger than ");
}

/* As a check of a cluster: slow links are an error. */
static void slow_links_fail(void **state) {
    assert_runs(program_run("ranks", "--ranks", "2", "--size", "4096", "--repeats", "1", "--at-least", "1B"));
    assert_refused(1, ", less than --at-least 1000000000 MB/s", "ranks", "--ranks", "2", "--size", "4096",
                   "--repeats", "1", "--at-least", "1000TB");
    assert_refused(1, ", less than --at-least 1000000 MB/s", "ranks", "--ranks", "2", "--size", "4096",
                   "--repeats", "1", "--at-least", "8Tbit/s");
    assert_refused(2, "such as 500MB/s, 1GB or 10Gbit/s", "ranks", "--ranks", "2", "--at-least", "1GB/h");
    assert_refused(2, "there is one rank; pass --ranks 2 or more", "ranks", "--at-least", "1B");
}

/* Each rank's output in files, of each start. */
static void logs_ranks(void **state) {
    Ran ran = shell(
        "$WEFT ranks --ranks 2 --size 4096 --repeats 1 --log-ranks log >out && "
        "cat log/*/rank.0/stdout | cmp - out && [ -e log/*/rank.1/stderr ] && "
        "printf '#!/bin/sh\\necho call \"$@\" >>calls\\n[ $(wc -l <calls) -gt 1 ] && exit 0\\n"
        "echo weft: error: rank 1: broken >&2\\nexit 1\\n' >launcher && chmod +x launcher && "
        "WEFT_MPIRUN=./launcher $WEFT train self --model gpt2-tiny --ranks 2 --out run --max-restarts 1 "
        "--log-ranks log --quiet && sed 's/.*--output-filename \\([^ ]*\\).*/\\1/' calls");
    assert_string_equal(ran.out, "log\nlog/restart-1\n");
    ran_done(&ran);
}

/* Where mpirun would hang, or write to another directory or nowhere. */
static void refuses_logs_that_cannot_be_written(void **state) {
    assert_int_equal(setenv("WEFT_MPIRUN", "false", 1), 0);
    assert_refused(1, "/dev/null", "ranks", "--ranks", "2", "--log-ranks", "/dev/null");
    assert_refused(1, "/dev/null/log", "ranks", "--ranks", "2", "--log-ranks", "/dev/null/log");
    assert_refused(2, "--log-ranks logs,a: mpirun accepts no directory", "ranks", "--ranks", "2",
                   "--log-ranks", "logs,a");
    assert_refused(2, "pass --ranks 2 or more", "ranks", "--log-ranks", "logs");
    assert_refused(2, "pass --ranks 2 or more", "train", "self", "--model", "gpt2-tiny", "--ranks", "1",
                   "--log-ranks", "logs");
    unsetenv("WEFT_MPIRUN");
}

/* Layouts that do not fit the model or the batch are refused before the launcher runs. */
static void refuses_layouts_at_once(void **state) {
    setenv("WEFT_MPIRUN", "false", 1);
    assert_refused(2, "--tp 16 does not divide the model's 2 heads", "train", "self", "--model", "gpt2-tiny",
                   "--ranks", "16", "--tp", "16");
    assert_refused(2, "--pp 8: the model has 2 layers", "train", "self", "--model", "gpt2-tiny", "--pp", "8",
                   "--hosts", "localhost:8");
    assert_refused(2, "--batch 8 does not divide into micro-batches", "train", "self", "--model", "gpt2-tiny",
                   "--ranks", "3", "--batch", "8");
    unsetenv("WEFT_MPIRUN");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_ranks),
        cmocka_unit_test(results_that_cannot_be_written),
        cmocka_unit_test(too_many_ranks),
        cmocka_unit_test(one_rank_needs_no_launcher),
        cmocka_unit_test(calls_the_launcher),
        cmocka_unit_test(joins_mpirun),
        cmocka_unit_test(gathers_on_rank_0),
        cmocka_unit_test(all_fail_with_one_message),
        cmocka_unit_test(one_failure_stops_all),
        cmocka_unit_test(different_options_are_refused),
        cmocka_unit_test(killed_rank_stops_all),
        cmocka_unit_test(no_rank_outlives_its_launch),
        cmocka_unit_test(hung_launcher_is_killed),
        cmocka_unit_test(refuses_layouts_at_once),
        cmocka_unit_test(logs_ranks),
        cmocka_unit_test(refuses_logs_that_cannot_be_written),
        cmocka_unit_test(slow_links_fail),
    };
    if (!mpi_built()) cmocka_set_test_filter("one_rank*");
    return cmocka_run_group_tests(tests, launched_setup, corpus_teardown);
}
