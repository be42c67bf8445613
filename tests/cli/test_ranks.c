/* Starting ranks through the program: with its own launcher, under mpirun, and with ranks that fail, are
 * killed or are interrupted. The tests run `weft ranks`, because it is quick. */
#include "cli/program.h"

#include <signal.h>

#include "base/clock.h"
#include "base/fs.h"
#include "cli/train_options.h"
#include "comm/mpi.h"

static void require_mpi(void) {
    if (!mpi_built()) skip();
}

/* The number of occurrences of `part` in a text. */
static int occurrences(const char *text, const char *part) {
    int count = 0;
    while ((text = strstr(text, part))) {
        count++;
        text += strlen(part);
    }
    return count;
}

/* Runs a shell command and captures its output; $WEFT is the program. */
static Ran shell_line(const char *line) {
    FILE *err = tmpfile(), *out = tmpfile();
    assert_non_null(err);
    assert_non_null(out);
    pid_t child = fork();
    if (child == 0) {
        setenv("WEFT", WEFT_BINARY, 1);
        static const char *const settings[] = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                                               "OMPI_MCA_rmaps_base_oversubscribe"};
        for (size_t i = 0; i < COUNT_OF(settings); i++) setenv(settings[i], "1", 1);
        dup2(fileno(out), 1);
        dup2(fileno(err), 2);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    int state;
    assert_int_equal(waitpid(child, &state, 0), child);
    Ran ran = {.code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state)};
    ran.out = program_slurp(out);
    ran.err = program_slurp(err);
    return ran;
}

static void starts_ranks(void **state) {
    require_mpi();
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
    require_mpi();
    if (access("/dev/full", W_OK) != 0) skip();
    const char *const line[] = {"ranks", "--ranks", "2", "--size", "8KB", "--repeats", "1", NULL};
    Ran ran = program_run_to("/dev/full", line);
    assert_int_equal(ran.code, 1);
    assert_contains(ran.err, "standard output: cannot write");
    ran_done(&ran);
}

/* mpirun would take minutes to find out. */
static void too_many_ranks(void **state) {
    require_mpi();
    Ran ran = shell_line("unset WEFT_MPIRUN SLURM_JOB_ID PBS_NODEFILE LSB_JOBID PE_HOSTFILE; "
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
    require_mpi();
    assert_refused(1, "cannot run /nonexistent/mpirun", "ranks", "--ranks", "2");
    unsetenv("WEFT_MPIRUN");
}

/* The launcher is called with the number of ranks, this program and its arguments, and cannot change the
 * output format. */
static void calls_the_launcher(void **state) {
    require_mpi();
    Ran ran = shell_line("WEFT_MPIRUN='echo asked' $WEFT ranks --ranks 5 --size 1MB");
    assert_contains(ran.out, "asked -n 5 ");
    assert_contains(ran.out, "weft ranks --ranks 5 --size 1MB\n");
    assert_int_equal(ran.code, 0);
    ran_done(&ran);
    ran = shell_line("WEFT_MPIRUN=false $WEFT ranks --ranks 5 --json");
    assert_int_equal(ran.code, 1);
    assert_string_equal(ran.err, "weft: error: false could not start the ranks; it exited with code 1\n");
    assert_contains(ran.out, "\"error\"");
    ran_done(&ran);
    ran = shell_line("printf '#!/bin/sh\\nexit 9\\n' >/tmp/weft-launcher-$$; chmod +x /tmp/weft-launcher-$$; "
                     "WEFT_MPIRUN=/tmp/weft-launcher-$$ $WEFT ranks --ranks 5; code=$?; "
                     "rm /tmp/weft-launcher-$$; exit $code");
    assert_contains(ran.err, "exited with code 9\n");
    assert_int_equal(ran.code, 1);
    ran_done(&ran);
}

/* With --gather-checkpoints, only rank 0 needs configuration, model and run: the other rank's directory stays
 * empty. */
static void gathers_on_rank_0(void **state) {
    require_mpi();
    Ran ran = shell_line(
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
    require_mpi();
    Ran ran = shell_line("mpirun -n 2 $WEFT ranks --size 1MB --repeats 1 --json");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp) json_t *json = json_loads(ran.out, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "ranks")), 2);
    ran_done(&ran);
    ran = shell_line("mpirun -n 2 $WEFT ranks --ranks 3");
    assert_contains(ran.err,
                    "--ranks 3 does not match the 2 ranks that the launcher started; remove --ranks");
    assert_int_equal(occurrences(ran.err, "weft: error:"), 1);
    assert_int_equal(ran.code, 2);
    ran_done(&ran);
    ran = shell_line("mpirun -n 1 $WEFT ranks --size 1MB --repeats 1"); /* a world of one rank */
    assert_int_equal(ran.code, 0);
    ran_done(&ran);
}

/* All ranks fail at once, or before they have joined: only one prints the error. */
static void all_fail_with_one_message(void **state) {
    require_mpi();
    Ran ran = program_run("ranks", "--ranks", "4", "--size", "100TB");
    assert_int_equal(ran.code, 1);
    assert_int_equal(occurrences(ran.err, "\n"), 1);
    assert_int_equal(strncmp(ran.err, "weft: error: rank ", 18), 0);
    assert_contains(ran.err, ": out of memory: cannot allocate 100 TB");
    assert_contains(ran.err, ". Try a smaller --size\n");
    assert_string_equal(ran.out, "");
    ran_done(&ran);
    ran = shell_line("mpirun -n 3 $WEFT ranks --sise 1MB");
    assert_int_equal(occurrences(ran.err, "weft: error:"), 1);
    assert_contains(ran.err, "did you mean --size?");
    assert_int_equal(ran.code, 2);
    ran_done(&ran);
}

/* The other ranks are inside a collective, waiting for the one that failed. */
static void one_failure_stops_all(void **state) {
    require_mpi();
    double start = clock_wall();
    Ran ran =
        shell_line("train=\"$WEFT train --data " WEFT_SOURCE_DIR "/README.md --documents line "
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
    require_mpi();
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char line[1024], expected[256];
        bool data = !strncmp(cases[i].first, "--data", 6), none = !strncmp(cases[i].second, "no ", 3);
        snprintf(line, sizeof line,
                 "train=\"$WEFT train --model gpt2-tiny --seq 16 %s\"; "
                 "mpirun --mca odls_base_sigkill_timeout 0 -n 1 $train %s : -n 1 $train %s",
                 data ? "" : "--data self", cases[i].first, none ? "" : cases[i].second);
        snprintf(expected, sizeof expected, " has %s%s", cases[i].second,
                 data ? " (no file or directory of this name); " : "; ");
        Ran ran = shell_line(line);
        assert_contains(ran.err, "weft: error: the ranks differ: rank 0 on ");
        assert_contains(ran.err, cases[i].first);
        assert_contains(ran.err, expected);
        assert_int_equal(occurrences(ran.err, "weft: error:"), 1);
        assert_int_equal(ran.code, 2);
        ran_done(&ran);
    }
    Ran ran = shell_line("mpirun --mca odls_base_sigkill_timeout 0 -n 1 $WEFT ranks : -n 1 $WEFT bench");
    assert_contains(ran.err, "has the command 'ranks', but rank 1 on ");
    assert_int_equal(ran.code, 2);
    ran_done(&ran);
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
    require_mpi();
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
    require_mpi();
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
    require_mpi();
    Ran ran = shell_line("f=/tmp/weft-launcher-$$; printf '#!/bin/sh\\nsleep 0.5 &\\nexec sleep 600\\n' >$f; "
                         "chmod +x $f; WEFT_MPIRUN=$f $WEFT ranks --ranks 2; code=$?; rm $f; exit $code");
    assert_int_equal(ran.code, 1);
    assert_contains(ran.err, "hung after a rank had ended, and was killed\n");
    ran_done(&ran);
    ran = shell_line("ulimit -f 10; exec $WEFT ranks --ranks 2");
    assert_int_equal(ran.code, 1);
    assert_contains(ran.err, "files may not be larger than ");
    ran_done(&ran);
}

/* Fills `loss` with the losses in a run's metrics, by step. */
static void read_losses(const char *metrics, double loss[8]) {
    FILE *file = fopen(metrics, "r");
    char line[4096];
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        CLEANUP(json_decrefp) json_t *json = json_loads(line, 0, NULL);
        int64_t step = json_int_at(json, "step");
        if (step >= 1 && step <= 8 && json_object_get(json, "loss"))
            loss[step - 1] = json_number_at(json, "loss");
    }
    fclose(file);
}

/* A launcher that fails twice without a new checkpoint in between: fewer replicas start, with the same loss
 * at every step as in a run that was never disturbed. A divergence is not tried again. */
static void restarts_on_fewer_ranks(void **state) {
    require_mpi();
    char dir[] = "/tmp/weft-restarts-XXXXXX", path[64];
    double calm[8] = {0}, disturbed[8] = {0};
    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("TEST_DIR", dir, 1), 0);
    Ran ran = shell_line(
        "cd $TEST_DIR && head -c 8000 $WEFT | od -An -tx1 >corpus.txt && "
        "printf '#!/bin/sh\necho call \"$@\" >>calls\n[ $(wc -l <calls) -gt 2 ] && exec mpirun \"$@\"\n"
        "echo weft: error: rank 3: broken >&2\nexit 1\n' >launcher && chmod +x launcher && "
        "T='--data corpus.txt --model gpt2-tiny --layers 2 --hidden 32 --heads 2 --seq 16 --batch 16 "
        "--schedule constant --warmup 0 --save-every 4 --threads 1 --eval-every 0 --quiet' && "
        "$WEFT train $T --steps 8 --out calm >out && "
        "$WEFT train $T --steps 4 --ranks 4 --zero 1 --out run >out && "
        "WEFT_MPIRUN=./launcher $WEFT train $T --steps 8 --ranks 4 --zero 1 --out run --resume-from 4 "
        "--max-restarts 2 --json");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "; restarting from the newest checkpoint, 1 restart left\n");
    assert_contains(ran.err,
                    "the ranks failed, again without a new checkpoint; the next start is in 2 s\n"
                    "weft: warning: restarting on 2 ranks (dp 2 instead of 4) from the newest checkpoint, "
                    "0 restarts left\n");
    CLEANUP(json_decrefp) json_t *json = json_loads(ran.out, 0, NULL);
    const json_t *layout = json_object_get(json, "layout");
    assert_int_equal(json_int_at(layout, "ranks"), 2);
    assert_int_equal(json_int_at(layout, "batch"), 16);
    assert_int_equal(json_int_at(layout, "micro_batch"), 4);
    ran_done(&ran);
    snprintf(path, sizeof path, "%s/calm/metrics.jsonl", dir);
    read_losses(path, calm);
    snprintf(path, sizeof path, "%s/run/metrics.jsonl", dir);
    read_losses(path, disturbed);
    for (int i = 0; i < 8; i++) assert_float_equal(disturbed[i], calm[i], 1e-6);
    assert_true(calm[0] > 1 && calm[7] < calm[0]);
    ran = shell_line(
        "cd $TEST_DIR && rm calls && WEFT_MPIRUN=./launcher $WEFT train --data corpus.txt "
        "--model gpt2-tiny --layers 2 --hidden 32 --heads 2 --seq 16 --threads 1 --eval-every 0 "
        "--quiet --steps 1 --ranks 4 --out fresh --max-restarts 2 --json && ! grep -e --resume calls");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "from the beginning, 0 restarts left\n");
    CLEANUP(json_decrefp) json_t *fresh = json_loads(ran.out, 0, NULL);
    layout = json_object_get(fresh, "layout");
    assert_int_equal(json_int_at(layout, "ranks"), 2);
    assert_int_equal(json_int_at(layout, "batch"), 8); /* the default */
    ran_done(&ran);
    ran =
        shell_line("cd $TEST_DIR && $WEFT train --out calm --resume --ranks 2 --steps 30 --lr 1e20 --clip 0 "
                   "--max-restarts 2");
    assert_int_equal(ran.code, 1);
    assert_contains(ran.err, "weft: error: ");
    assert_null(strstr(ran.err, "restarting"));
    ran_done(&ran);
    assert_ok(dir_remove(dir));
}

/* Host files and hosts that the launcher cannot use. */
static void refuses_wrong_hosts(void **state) {
    require_mpi();
    static const struct {
        const char *text, *says; /* NULL: accepted */
    } files[] = {
        {"node1 slots=4\nTo be, or not to be\n",
         "line 2: expected a host such as 'node1 slots=4', found 'To"},
        {"once upon a time there was\n", "line 1: expected a host"},
        {"node1 slots=two\n", "line 1: expected a host"},
        {"node1 slots = two\n", "line 1: expected a host"},
        {"node1 slots=\n", "line 1: expected a host"},
        {"node1 slots=9223372036854775807\nnode2 slots=9223372036854775807\n", "line 1: expected a host"},
        {"node1:1\nnode2:x\n", "line 2: expected a host such as 'node1 slots=4', found 'node2:x'"},
        {"node1:1:node2:1\n", "line 1: expected a host"},
        {"-node1 slots=2\n", "line 1: expected a host"},
        {"# none\n\n", "names no host; expected lines such as 'node1 slots=4'"},
        {"# mine\n/* two\nlines, */ node1 slots = 2 max_slots = 3 // x, y\n\nme@10.0.0.1\n::1 4\n", NULL},
        {"node1:4 binding=user:0,1\r\nnode2", NULL},
    };
    char path[] = "/tmp/weft-hosts-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    setenv("WEFT_MPIRUN", "false", 1);
    setenv("OMPI_MCA_plm_rsh_agent", "true", 1); /* in place of ssh: every host answers */
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        assert_ok(file_replace(path, files[i].text, strlen(files[i].text)));
        assert_refused(files[i].says ? 2 : 1,
                       files[i].says ? files[i].says : "could not start ranks on the hosts in ", "ranks",
                       "--ranks", "2", "--hostfile", path);
    }
    assert_ok(file_replace(path, "node1\n\0node2\n", 13)); /* hides node2 */
    assert_refused(2, "has a zero byte", "ranks", "--ranks", "2", "--hostfile", path);
    unlink(path);
    assert_refused(1, "--hostfile: /nowhere: cannot open", "ranks", "--ranks", "2", "--hostfile", "/nowhere");
    assert_refused(1, "false could not start ranks on node1:2, although ssh reaches them; check that weft",
                   "ranks", "--ranks", "2", "--hosts", "node1:2");
    assert_refused(2, "--ranks 1 runs in this process", "ranks", "--ranks", "1", "--hosts", "node1:2");
    assert_refused(2, "pass --ranks N", "ranks", "--hosts", "node1:2");
    static const char *const lists[] = {
        "node1:1:node2:1", "node1:x,node2:1", "node1:0,node2:2", "node1:-1", "-x:2",    "[]:2",
        "node1,,node2",    "node1:1,",        "node1 node2",     ":2",       "node1:1x"};
    for (size_t i = 0; i < COUNT_OF(lists); i++)
        assert_refused(2, "is not a host; expected hosts with the number of ranks on each", "ranks",
                       "--ranks", "2", "--hosts", lists[i]);
    assert_refused(2, "--ranks 4: the hosts have slots for 3", "ranks", "--ranks", "4", "--hosts", "a:1,b:2");
    assert_refused(1, "could not start", "ranks", "--ranks", "4", "--hosts",
                   "a,[::1]:2,me@b:*"); /* no limit */
    unsetenv("WEFT_MPIRUN");
    unsetenv("OMPI_MCA_plm_rsh_agent");
}

/* As a check of a cluster: slow links are an error. */
static void slow_links_fail(void **state) {
    require_mpi();
    Ran ran = program_run("ranks", "--ranks", "2", "--size", "4096", "--repeats", "1", "--at-least", "1B");
    assert_int_equal(ran.code, 0);
    ran_done(&ran);
    assert_refused(1, ", less than --at-least 1000000000 MB/s", "ranks", "--ranks", "2", "--size", "4096",
                   "--repeats", "1", "--at-least", "1000TB");
    assert_refused(1, ", less than --at-least 1000000 MB/s", "ranks", "--ranks", "2", "--size", "4096",
                   "--repeats", "1", "--at-least", "8Tbit/s");
    assert_refused(2, "such as 500MB/s, 1GB or 10Gbit/s", "ranks", "--ranks", "2", "--at-least", "1GB/h");
    assert_refused(2, "there is one rank; pass --ranks 2 or more", "ranks", "--at-least", "1B");
}

/* Each rank's output in files, of each start. */
static void logs_ranks(void **state) {
    require_mpi();
    char dir[] = "/tmp/weft-logs-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("TEST_DIR", dir, 1), 0);
    Ran ran = shell_line(
        "cd $TEST_DIR && $WEFT ranks --ranks 2 --size 4096 --repeats 1 --log-ranks log >out && "
        "cat log/*/rank.0/stdout | cmp - out && [ -e log/*/rank.1/stderr ] && "
        "printf '#!/bin/sh\\necho call \"$@\" >>calls\\n[ $(wc -l <calls) -gt 1 ] && exit 0\\n"
        "echo weft: error: rank 1: broken >&2\\nexit 1\\n' >launcher && chmod +x launcher && "
        "WEFT_MPIRUN=./launcher $WEFT train self --model gpt2-tiny --ranks 2 --out run --max-restarts 1 "
        "--log-ranks log --quiet && sed 's/.*--output-filename \\([^ ]*\\).*/\\1/' calls");
    assert_string_equal(ran.out, "log\nlog/restart-1\n");
    ran_done(&ran);
    assert_ok(dir_remove(dir));
}

/* Where mpirun would hang, or write to another directory or nowhere. */
static void refuses_logs_that_cannot_be_written(void **state) {
    require_mpi();
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
    require_mpi();
    setenv("WEFT_MPIRUN", "false", 1);
    assert_refused(2, "--tp 16 does not divide the model's 2 heads", "train", "self", "--model", "gpt2-tiny",
                   "--ranks", "16", "--tp", "16");
    assert_refused(2, "--pp 8: the model has 2 layers", "train", "self", "--model", "gpt2-tiny", "--pp", "8",
                   "--hosts", "localhost:8");
    assert_refused(2, "--batch 8 does not divide into micro-batches", "train", "self", "--model", "gpt2-tiny",
                   "--ranks", "3", "--batch", "8");
    unsetenv("WEFT_MPIRUN");
}

/* ssh that would ask for a password or a key fails instead, and the message names the host. What the launcher
 * and ssh print is only shown with --verbose. */
static void names_hosts_that_ssh_does_not_reach(void **state) {
    require_mpi();
    char dir[] = "/tmp/weft-reach-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("TEST_DIR", dir, 1), 0);
    Ran ran = shell_line(
        "cd $TEST_DIR && printf '#!/bin/sh\n[ $1 = -q ] && [ $2 = node2 ] || exit 0\n"
        "[ -t 0 ] || (: >/dev/tty) 2>/dev/null || echo Host key verification failed. >&2\nexit 255\n' >agent "
        "&& "
        "printf '#!/bin/sh\nprintf %%070d\\\\\\\\n 0 | tr 0 - >&2\necho ORTE was unable >&2\n"
        "echo Host key verification failed. >&2\nexit 1\n' >launcher && chmod +x agent launcher && "
        "export OMPI_MCA_plm_rsh_agent=\"$TEST_DIR/agent -q : rsh\" WEFT_MPIRUN=$TEST_DIR/launcher && "
        "$WEFT ranks --ranks 3 --hosts node1:1,node2:1,node3:1; echo $?; "
        "$WEFT ranks --ranks 2 --hosts node1:1,node2:1 --verbose 2>&1 | grep -c unable");
    assert_string_equal(ran.out, "1\n1\n");
    assert_string_equal(ran.err,
                        "weft: error: ssh does not reach node2 (Host key verification failed); 'ssh HOST "
                        "true' must succeed for each host without asking anything\n");
    ran_done(&ran);
    assert_ok(dir_remove(dir));
}

/* A host that does not answer is left out, and taken back when it answers at a later checkpoint. */
static void returns_to_lost_hosts(void **state) {
    require_mpi();
    char dir[] = "/tmp/weft-restarts-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("TEST_DIR", dir, 1), 0);
    Ran ran = shell_line(
        "cd $TEST_DIR && head -c 8000 $WEFT | od -An -tx1 >corpus.txt && "
        "printf '#!/bin/sh\n[ $1 = node1 ] || [ -e answers ] && exit 0\n"
        "echo $1: Permission denied >&2\nexit 255\n' >agent && "
        "printf '#!/bin/sh\necho call \"$@\" >>calls\n[ $(wc -l <calls) = 1 ] && "
        "{ echo weft: error: rank 3 on node2: broken >&2; exit 1; }\n"
        "n=$2; while [ \"${1#*weft}\" = \"$1\" ]; do shift; done\nexec mpirun -n $n \"$@\"\n' >launcher && "
        "chmod +x agent launcher && export OMPI_MCA_plm_rsh_agent=$TEST_DIR/agent && "
        "WEFT_MPIRUN=$TEST_DIR/launcher $WEFT train --data corpus.txt --model gpt2-tiny --layers 2 --hidden "
        "32 "
        "--heads 2 --seq 16 --batch 4 --threads 1 --eval-every 0 --quiet --steps 1000000 --save-every 5 "
        "--ranks 4 "
        "--hosts node1:2,node2:2 --out run --max-restarts 1 --json >out 2>err & weft=$!; cd $TEST_DIR; "
        "wait_for() { i=0; until grep -q \"$@\" 2>/dev/null; do i=$((i+1)); [ $i -lt 600 ] || break; sleep "
        "0.1; "
        "done; }; wait_for 'node1:2 ' calls; until [ -e run/latest ] || ! kill -0 $weft; do sleep 0.1; done; "
        ": >answers; wait_for 'continuing on' err; wait_for -e '-n 4 .*--resume' calls; "
        ": >again; until [ run/latest -nt again ] || ! kill -0 $weft; do sleep 0.1; done; "
        "kill -TERM $weft; wait $weft; echo $?; cat err >&2; grep -c '^{' out; "
        "sed 's/^call \\(-n [0-9]* --host [^ ]*\\).*/\\1/' calls");
    assert_string_equal(ran.out, "75\n1\n-n 4 --host node1:2,node2:2\n-n 2 --host node1:2\n"
                                 "-n 4 --host node1:2,node2:2\n");
    assert_contains(
        ran.err, "restarting on 2 ranks (dp 2 instead of 4, without node2) from the beginning, 0 restarts");
    assert_contains(ran.err, "continuing on 4 ranks from the newest checkpoint\n");
    ran_done(&ran);
    assert_ok(dir_remove(dir));
}

/* Hosts whose ranks failed before and after a restart are left out of the next one, if the others have slots
 * for its ranks. */
static void restarts_without_broken_hosts(void **state) {
    require_mpi();
    char dir[] = "/tmp/weft-restarts-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("TEST_DIR", dir, 1), 0);
    Ran ran = shell_line(
        "cd $TEST_DIR && printf 'hello world\\n%.0s' $(seq 99) >corpus.txt && "
        "printf 'node1 slots=2\\nnode2.example.org slots=2 # broken\\n' >hosts && "
        "printf '#!/bin/sh\\necho call \"$@\" >>calls\\n[ $(wc -l <calls) -gt 2 ] && exit 0\\n"
        "echo weft: error: rank 3 on node2: broken >&2\\nexit 1\\n' >launcher && chmod +x launcher && "
        "export OMPI_MCA_plm_rsh_agent=true; "
        "for where in '--hosts node1:2,node2:2' '--hosts node1:1,node2:3' '--hostfile hosts'; do rm -f "
        "calls; "
        "WEFT_MPIRUN=./launcher $WEFT train --data corpus.txt --model gpt2-tiny --ranks 4 $where --out run "
        "--max-restarts 2 --quiet; echo $?; tail -n 1 calls | grep -cE 'call -n 2 --?hosts? node1:2 '; done");
    assert_string_equal(ran.out, "0\n1\n0\n0\n0\n1\n");
    assert_contains(ran.err, "restarting on 2 ranks (dp 2 instead of 4, without node2) from the beginning");
    ran_done(&ran);
    assert_ok(dir_remove(dir));
}

/* Derives the layout from a command line and the number of ranks that a launcher started. */
static Status derive_layout(const char *line, int64_t world, Layout *ret_layout) {
    char copy[256], *words[32], *rest = NULL;
    int count = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    CLEANUP(invocation_freep) Invocation *call = NULL;
    TRY(invocation_new(&call, &command_train, count, words));
    Layout layout = ((TrainArgs *)call->config)->layout;
    TRY(layout_settle(call, &layout, world));
    *ret_layout = layout;
    return OK;
}

static void assert_layout(const char *line, int64_t world, int64_t dp, int64_t tp, int64_t pp) {
    Layout layout;
    assert_ok(derive_layout(line, world, &layout));
    assert_int_equal(layout.dp, dp);
    assert_int_equal(layout.tp, tp);
    assert_int_equal(layout.pp, pp);
    assert_int_equal(layout.ranks, dp * tp * pp);
}

static void layouts_are_derived(void **state) {
    Layout layout;
    assert_layout("--data x", 0, 1, 1, 1);
    assert_layout("--data x --ranks 4", 0, 4, 1, 1);
    assert_layout("--data x --ranks 8 --tp 2", 0, 4, 2, 1);
    assert_layout("--data x --tp 2 --pp 2", 0, 1, 2, 2);
    assert_layout("--data x --dp 2 --pp 3", 0, 2, 1, 3);
    assert_layout("--data x", 6, 6, 1, 1);
    assert_layout("--data x --tp 3", 6, 2, 3, 1);
    assert_layout("--data x --ranks 6 --dp 6", 6, 6, 1, 1);
    assert_fails(derive_layout("--data x --ranks 6 --tp 4", 0, &layout), 2, "use --ranks 4 or 8");
    assert_fails(derive_layout("--data x --tp 4", 6, &layout), 2, "tp 4 x pp 1 does not divide 6 ranks");
    assert_fails(derive_layout("--data x --ranks 2 --pp 4", 0, &layout), 2, "use --ranks 4 or a multiple");
    assert_fails(derive_layout("--data x --ranks 6 --dp 2 --tp 2", 0, &layout), 2, "use --ranks 4");
    assert_fails(derive_layout("--data x --ranks 4", 6, &layout), 2, "--ranks 4 does not match the 6 ranks");
}

/* The command line overrides the file even through another option: a run resumes with a different number of
 * ranks. */
static void command_line_overrides_file(void **state) {
    char path[] = "/tmp/weft-layout-XXXXXX", line[128];
    int file = mkstemp(path);
    const char text[] = "{\"data\": [\"x\"], \"ranks\": 8, \"dp\": 4, \"tp\": 2}";
    assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
    close(file);
    static const struct {
        const char *more;
        int64_t world, dp, tp;
    } cases[] = {
        {"", 0, 4, 2}, {"--ranks 4", 0, 2, 2}, {"--dp 1", 0, 1, 2}, {"", 2, 1, 2}, {"--tp 1", 0, 4, 1}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(line, sizeof line, "--config %s %s", path, cases[i].more);
        assert_layout(line, cases[i].world, cases[i].dp, cases[i].tp, 1);
    }
    unlink(path);
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
        cmocka_unit_test(restarts_on_fewer_ranks),
        cmocka_unit_test(refuses_wrong_hosts),
        cmocka_unit_test(restarts_without_broken_hosts),
        cmocka_unit_test(names_hosts_that_ssh_does_not_reach),
        cmocka_unit_test(returns_to_lost_hosts),
        cmocka_unit_test(refuses_layouts_at_once),
        cmocka_unit_test(logs_ranks),
        cmocka_unit_test(refuses_logs_that_cannot_be_written),
        cmocka_unit_test(slow_links_fail),
        cmocka_unit_test(layouts_are_derived),
        cmocka_unit_test(command_line_overrides_file),
    };
    return cmocka_run_group_tests(tests, program_setup, NULL);
}
