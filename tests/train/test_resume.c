/* Multi-rank checkpoints through the program: a run that is killed at any moment resumes in another layout
 * with the losses of an uninterrupted run, other commands accept the run directory as a model, and a rank
 * that cannot write makes the run fail with one clear message, as does a process that keeps the run
 * directory. */
#include "cli/program.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "comm/mpi.h"

static char temp_dir[64], corpus[80], run_dir[80];

static int make_temp_dir(void **state) {
    program_setup(state);
    snprintf(temp_dir, sizeof temp_dir, "/tmp/weft-resume-XXXXXX");
    if (!mkdtemp(temp_dir)) return -1;
    snprintf(corpus, sizeof corpus, "%s/text", temp_dir);
    snprintf(run_dir, sizeof run_dir, "%s/run", temp_dir);
    char text[8192];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "a weft crosses the warp, over and under; "[i * i % 41];
    assert_ok(file_replace(corpus, text, sizeof text));
    return 0;
}

static int remove_temp_dir(void **state) {
    assert_ok(dir_remove(temp_dir));
    return 0;
}

static void require_mpi(void) {
    if (!mpi_built()) skip();
}

#define SMALL                                                                                                \
    "train", "--data", corpus, "--model", "gpt2-tiny", "--layers", "2", "--hidden", "16", "--heads", "2",    \
        "--seq", "16", "--batch", "4", "--micro-batch", "1", "--threads", "1", "--schedule", "constant",     \
        "--warmup", "0", "--val-fraction", "0", "--eval-every", "0"

/* ---- killing a run ---- */

/* Kills every process that has the run directory on its command line: the program, mpirun and the ranks.
 * Returns their number. */
static int kill_all(void) {
    int found = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    for (struct dirent *entry; (entry = readdir(proc));) {
        int pid = atoi(entry->d_name);
        char path[300], line[4096];
        if (pid <= 0 || pid == getpid()) continue;
        snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        FILE *file = fopen(path, "r");
        size_t size = file ? fread(line, 1, sizeof line - 1, file) : 0;
        if (file) fclose(file);
        for (size_t i = 0; i < size; i++)
            if (!line[i]) line[i] = ' ';
        line[size] = 0;
        if (!strstr(line, run_dir)) continue;
        kill(pid, SIGKILL);
        found++;
    }
    closedir(proc);
    return found;
}

/* The step of the newest checkpoint; 0 if there is no checkpoint. */
static long newest_step(void) {
    CLEANUP(mem_freep) char *dir = NULL;
    assert_ok(ckpt_latest(run_dir, &dir));
    return dir ? strtol(strstr(dir, "step-") + 5, NULL, 10) : 0;
}

/* Fails with what the run printed to stderr. */
static void fail_with(const char *messages) {
    char text[4096] = "";
    FILE *file = fopen(messages, "r");
    if (file && fread(text, 1, sizeof text - 1, file) == 0) snprintf(text, sizeof text, "nothing");
    if (file) fclose(file);
    fail_msg("no checkpoint after step %ld; the run printed: %s", newest_step(), text);
}

static void start_and_kill(const char *const *layout, unsigned wait_us) {
    long before = newest_step();
    char messages[80];
    snprintf(messages, sizeof messages, "%s/messages", temp_dir);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const char *argv[64] = {WEFT_BINARY, SMALL, "--steps", "1000000", "--save-every", "1",
                                "--keep",    "2",   "--out",   run_dir,   "--resume"};
        int count = 0;
        while (argv[count]) count++;
        while (*layout) argv[count++] = *layout++;
        if (!freopen(messages, "w", stderr) || !freopen("/dev/null", "w", stdout)) _exit(126);
        execv(WEFT_BINARY, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    siginfo_t ended = {0}; /* si_pid: the child's, once it has ended */
    for (double start = clock_wall(); newest_step() <= before && clock_wall() - start < 240;) {
        assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
        if (ended.si_pid) fail_with(messages);
        usleep(10000);
    }
    usleep(wait_us);
    while (kill_all() > 0) usleep(10000);
    int state;
    assert_int_equal(waitpid(child, &state, 0), child);
    assert_false(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    if (newest_step() <= before) fail_with(messages);
}

/* Reads the losses from metrics.jsonl into loss[step]; returns the last step. */
static long read_losses(const char *dir, double *loss, long limit) {
    CLEANUP(mem_freep) char *path = NULL, *text = NULL;
    assert_ok(path_join(&path, dir, "metrics.jsonl"));
    assert_ok(file_read(path, 1 << 26, &text, NULL));
    long last = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        CLEANUP(json_decrefp) json_t *json = json_loadb(line, (size_t)(end - line), 0, NULL);
        long step = (long)json_integer_value(json_object_get(json, "step"));
        if (!json_object_get(json, "loss")) continue; /* the end of an epoch */
        assert_int_equal(step, last + 1);
        assert_true(step <= limit);
        loss[step] = json_number_value(json_object_get(json, "loss"));
        last = step;
    }
    return last;
}

#define LAYOUT(...) ((const char *const[]){__VA_ARGS__, NULL})

static void killed_and_resumed(void **state) {
    require_mpi();
    /* Options that a resumed run's command line omits come from the run directory. */
    const char *const *layouts[] = {
        LAYOUT("--ranks", "2", "--zero", "3"),
        LAYOUT("--ranks", "2", "--tp", "2", "--zero", "0"),
        LAYOUT("--ranks", "2", "--tp", "1", "--pp", "2"),
        LAYOUT("--ranks", "1", "--pp", "1"),
    };
    unsigned seed = (unsigned)getpid();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        seed = seed * 1103515245u + 12345u;
        start_and_kill(layouts[i], (seed >> 8) % 200000);
    }
    long last = newest_step() + 3;
    char steps[32];
    snprintf(steps, sizeof steps, "%ld", last);
    Ran on = program_run("train", "--resume", "--out", run_dir, "--ranks", "2", "--tp", "2", "--steps", steps,
                         "--json");
    if (on.code) fail_msg("%s", on.err);
    CLEANUP(json_decrefp) json_t *json = json_loads(on.out, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "layout"), "tp")), 2);
    ran_done(&on);

    char whole[80];
    snprintf(whole, sizeof whole, "%s/whole", temp_dir);
    Ran never = program_run(SMALL, "--steps", steps, "--out", whole, "--quiet");
    assert_int_equal(never.code, 0);
    ran_done(&never);
    double *found = calloc((size_t)last + 1, sizeof *found),
           *expected = calloc((size_t)last + 1, sizeof *found);
    assert_int_equal(read_losses(run_dir, found, last), last);
    assert_int_equal(read_losses(whole, expected, last), last);
    for (long i = 1; i <= last; i++)
        if (!(fabs(found[i] - expected[i]) <= 1e-5 * expected[i]))
            fail_msg("step %ld of %ld: loss %.9g, uninterrupted %.9g", i, last, found[i], expected[i]);
    free(found);
    free(expected);
}

/* After an interrupt (not a kill), all ranks stop after the same step and save it. */
static void stopped_and_resumed(void **state) {
    require_mpi();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const char *argv[] = {WEFT_BINARY, SMALL, "--steps", "1000000", "--ranks", "2",
                              "--zero",    "2",   "--out",   run_dir,   NULL};
        if (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)) _exit(126);
        execv(WEFT_BINARY, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    char metrics[128];
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", run_dir);
    struct stat st;
    for (int i = 0; i < 6000 && (stat(metrics, &st) != 0 || st.st_size == 0); i++) usleep(10000);
    kill(child, SIGINT);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 75);
    long stopped = newest_step();
    assert_true(stopped > 0);
    char steps[32], covered[64];
    snprintf(steps, sizeof steps, "%ld", stopped + 2);
    Ran on = program_run("train", "--resume", "--out", run_dir, "--ranks", "2", "--pp", "2", "--zero", "0",
                         "--steps", steps, "--quiet");
    if (on.code) fail_msg("%s", on.err);
    snprintf(covered, sizeof covered, "steps %ld to %ld in ", stopped + 1, stopped + 2);
    assert_contains(on.out, covered); /* times are those of the new layout */
    ran_done(&on);
    assert_int_equal(newest_step(), stopped + 2);
}

/* ---- the run directory as a model ---- */

static void other_commands_accept_it(void **state) {
    require_mpi();
    Ran made = program_run(SMALL, "--steps", "4", "--ranks", "2", "--zero", "3", "--out", run_dir, "--quiet");
    if (made.code) fail_msg("%s", made.err);
    ran_done(&made);
    Ran one = program_run("eval", "--model", run_dir, "--data", corpus, "--json");
    if (one.code) fail_msg("%s", one.err);
    CLEANUP(json_decrefp) json_t *json = json_loads(one.out, 0, NULL);
    assert_true(json_number_value(json_object_get(json, "loss")) > 1);
    ran_done(&one);
    Ran text =
        program_run("generate", "--model", run_dir, "--prompt", "a weft", "--max-tokens", "5", "--json");
    if (text.code) fail_msg("%s", text.err);
    ran_done(&text);
    /* Training with several ranks starts from it: the first loss is that of one rank. */
    char second[80], third[80];
    snprintf(second, sizeof second, "%s/second", temp_dir);
    snprintf(third, sizeof third, "%s/third", temp_dir);
    double loss[2][3];
    Ran alone = program_run("train", "--model", run_dir, "--data", corpus, "--batch", "4", "--steps", "2",
                            "--out", second, "--quiet", "--val-fraction", "0", "--eval-every", "0");
    if (alone.code) fail_msg("%s", alone.err);
    ran_done(&alone);
    Ran ranks = program_run("train", "--model", run_dir, "--data", corpus, "--batch", "4", "--steps", "2",
                            "--out", third, "--quiet", "--val-fraction", "0", "--eval-every", "0", "--ranks",
                            "2", "--tp", "2");
    if (ranks.code) fail_msg("%s", ranks.err);
    ran_done(&ranks);
    read_losses(second, loss[0], 2);
    read_losses(third, loss[1], 2);
    for (int i = 1; i <= 2; i++) assert_true(fabs(loss[0][i] - loss[1][i]) <= 1e-5 * loss[0][i]);
}

/* ---- a full disk on one rank ---- */

static void one_rank_cannot_write(void **state) {
    require_mpi();
    char line[4096], words[1024] = "";
    const char *const argv[] = {SMALL, "--steps", "3", "--zero", "3", "--quiet", "--out", run_dir};
    for (size_t i = 0; i < sizeof argv / sizeof *argv; i++) {
        strcat(words, " ");
        strcat(words, argv[i]);
    }
    snprintf(line, sizeof line,
             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
             "mpirun -n 1 %s %s : -n 1 sh -c 'ulimit -f 2; exec %s %s' 2>%s/said",
             WEFT_BINARY, words, WEFT_BINARY, words, temp_dir);
    int code = system(line);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 1);
    CLEANUP(mem_freep) char *path = NULL, *said = NULL;
    assert_ok(path_join(&path, temp_dir, "said"));
    assert_ok(file_read(path, 1 << 20, &said, NULL));
    const char *error = strstr(said, "weft: error: rank ");
    assert_non_null(error);
    assert_null(strstr(error + 1, "weft: error:"));
    assert_contains(said, "cannot save the checkpoint of step 3");
    assert_contains(said, "rank 1 on ");
    assert_contains(said, "cannot write: File too large");
    CLEANUP(mem_freep) char *checkpoints = NULL;
    assert_ok(path_join(&checkpoints, run_dir, "checkpoints"));
    assert_int_equal(rmdir(checkpoints), 0); /* the directory is empty */
}

/* ---- two processes with one run directory ---- */

static int take_lock(void) {
    int fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    return fd;
}

/* A run waits for a process that is just ending, and fails if the process stays. */
static void waits_for_the_directory(void **state) {
    assert_int_equal(mkdir(run_dir, 0777), 0);
    int fd = take_lock();
    Ran refused = program_run(SMALL, "--steps", "1", "--quiet", "--out", run_dir);
    assert_int_equal(refused.code, 1);
    assert_contains(refused.err, "/run: this run is in use by another process");
    ran_done(&refused);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        usleep(500000);
        _exit(0);
    }
    close(fd); /* the child still has the lock */
    assert_runs(program_run(SMALL, "--steps", "1", "--quiet", "--out", run_dir));
    assert_int_equal(waitpid(child, NULL, 0), child);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_temp_dir, remove_temp_dir)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(killed_and_resumed),    TEST(stopped_and_resumed),     TEST(other_commands_accept_it),
        TEST(one_rank_cannot_write), TEST(waits_for_the_directory),
    };
    return cmocka_run_group_tests_name("train.resume", tests, NULL, NULL);
}
