/* Divergence and failing disks: what counts as a spike, what each --on-divergence does with one, that nothing
 * poisoned is ever saved, and that neither logs nor checkpoints that cannot be written end a run. */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "comm/mpi.h"
#include "scripts/shell.h"
#include "train/guard.h"
#include "train/log_file.h"
#include "train/rundir.h"

/* ---- verdicts ---- */

/* A loss around `level` with the given relative noise. */
static double noisy(int i, double level, double noise) {
    double drawn = 43758.5453 * sin(12.9898 * i);
    return level * exp(noise * 3.4 * (drawn - floor(drawn) - 0.5));
}

static Guard trained(double level, double noise, int steps) {
    Guard guard;
    char text[GUARD_TEXT];
    guard_init(&guard);
    for (int i = 0; i < steps; i++) {
        assert_int_equal(guard_judge(&guard, noisy(i, level, noise), 1, false, text), STEP_FINE);
        guard_add(&guard, noisy(i, level, noise), 1);
    }
    return guard;
}

static StepVerdict verdict(const Guard *guard, double loss, double norm) {
    char text[GUARD_TEXT];
    StepVerdict found = guard_judge(guard, loss, norm, false, text);
    assert_true((found == STEP_FINE) == !*text);
    return found;
}

static void spikes_stand_out(void **state) {
    Guard calm = trained(3, 0.005, 100), rough = trained(0.05, 1, 100), young = trained(3, 0.005, 15);
    assert_int_equal(verdict(&calm, 3.5, 1), STEP_FINE);
    assert_int_equal(verdict(&calm, 4, 1), STEP_SPIKE);
    assert_int_equal(verdict(&calm, 0.1, 1), STEP_FINE);
    assert_int_equal(verdict(&calm, 3, 9), STEP_FINE);
    assert_int_equal(verdict(&calm, 3, 11), STEP_SPIKE);
    assert_int_equal(verdict(&rough, 1, 1), STEP_FINE); /* an outlier of a small batch */
    assert_int_equal(verdict(&young, 4, 1), STEP_FINE);
    assert_int_equal(verdict(&calm, NAN, 1), STEP_NONFINITE);
    assert_int_equal(verdict(&calm, 3, INFINITY), STEP_NONFINITE);
}

static void a_high_loss_diverges(void **state) {
    char text[GUARD_TEXT];
    Guard guard = trained(5.6, 0.01, 1);
    assert_int_equal(verdict(&guard, 18, 1), STEP_SPIKE);
    for (int i = 1; i < GUARD_OVER; i++) {
        assert_int_not_equal(guard_judge(&guard, 18 * i, 1, false, text), STEP_DIVERGED);
        guard_add(&guard, 18 * i, 1);
    }
    assert_int_equal(verdict(&guard, 30678, 1), STEP_DIVERGED);
    guard_add(&guard, 5, 1); /* it recovers */
    assert_int_not_equal(verdict(&guard, 30678, 1), STEP_DIVERGED);
    guard_add(&guard, 30678, 1);
    assert_int_equal(guard_judge(&guard, 30678, 1, true, text), STEP_DIVERGED); /* the run's last step */
}

static void nothing_to_predict_is_fine(void **state) {
    Guard guard;
    guard_init(&guard);
    for (int i = 0; i < 40; i++) {
        double loss = i % 4 ? 5 : 0, norm = i % 4 ? 1 : 0;
        assert_int_equal(verdict(&guard, loss, norm), STEP_FINE);
        guard_add(&guard, loss, norm);
    }
    assert_true(guard.first == 5);
}

static void checkpoints_keep_the_state(void **state) {
    const int steps[] = {0, 5, 64, 150};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        Guard guard = trained(4, 0.1, steps[i]), back;
        guard.batches = 7;
        guard.rollbacks = 2;
        CLEANUP(json_decrefp) json_t *json = NULL, *read = NULL;
        CLEANUP(mem_freep) char *text = NULL;
        assert_ok(guard_save(&guard, &json));
        text = json_dumps(json, 0);
        assert_ok(json_parse(text, strlen(text), "state", &read));
        guard_restore(&back, read);
        if (steps[i]) assert_memory_equal(&guard, &back, sizeof guard);
        assert_int_equal(back.batches, 7);
    }
    Guard old;
    guard_restore(&old, NULL);
    assert_int_equal(old.count, 0);
    assert_true(isnan(old.first));
}

/* ---- runs ---- */

#define TINY                                                                                                 \
    WEFT_BINARY " train --model gpt2-tiny --layers 2 --hidden 16 --heads 2 --seq 16 --data text.txt "        \
                "--batch 4 --threads 1 --schedule constant --warmup 0 --val-fraction 0 --eval-every 0 "      \
                "--no-shuffle "

enum { STEP_BYTES = 64, BAD_STEP = 41, TEXT_STEPS = 70 };

/* A text that is quickly learned, with noise in the batches of steps 41 and 61. A sequence has one byte more
 * than it trains on, and the next one starts with that byte, so step n has bytes from 64 (n - 1). */
static void write_text(const Shell *shell) {
    char text[STEP_BYTES * TEXT_STEPS + 2] = "";
    for (int i = 0; i < STEP_BYTES * TEXT_STEPS + 1; i++) {
        bool bad = i / STEP_BYTES == BAD_STEP - 1 || i / STEP_BYTES == BAD_STEP + 19;
        text[i] = bad ? (char)(33 + (i * i * 31 + i * 7) % 89) : "abcdefg\n"[i % 8];
    }
    shell_write(shell, "text.txt", text, 0644);
}

/* Nothing with NaN or Inf becomes `latest`, and the checkpoint before it stays. */
static void nothing_poisoned_is_saved(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, TINY "--steps 1 --lr 1e39 --out new", 1, "contains NaN or Inf");
    assert_said(shell, 1, "lower --lr");
    shell_run(shell, "ls new/checkpoints; test ! -e new/latest");
    assert_int_equal(shell->code, 0);
    assert_string_equal(shell->said, "");
    assert_shell(shell, TINY "--steps 3 --keep 1 --out run", 0, "");
    assert_shell(shell, TINY "--steps 4 --keep 1 --lr 1e39 --resume --out run", 1,
                 "the newest checkpoint is that of step 3");
    shell_run(shell, "ls run/checkpoints; readlink run/latest");
    assert_string_equal(shell->said, "step-3\ncheckpoints/step-3\n");
}

static void divergence_is_located(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, TINY "--steps 3 --lr 1e39", 1,
                 "step 2: training diverged (loss nan, gradient norm nan): weight embed.token contains");
    assert_shell(shell, TINY "--steps 3 --lr 1e30 --clip 0", 1, "step 2: training diverged");
    assert_said(shell, 1, "the gradient of head.norm.bias contains NaN");
    assert_shell(shell, TINY "--steps 30 --lr 2 --save-every 1 --keep 1 --out run", 1,
                 "step 9: training diverged: the loss is");
    shell_run(shell, "ls run/checkpoints");
    assert_string_equal(shell->said, "step-1\n");
    assert_shell(shell, TINY "--steps 12 --lr 2 --on-divergence warn", 0, "warning: step 2: loss spike");
    if (!mpi_built()) return;
    assert_shell(shell, TINY "--steps 3 --lr 1e39 --ranks 2 --zero 3", 1, "weight embed.token contains");
    assert_shell(shell, TINY "--steps 3 --lr 1e30 --clip 0 --ranks 2 --pp 2", 1,
                 "the gradient of head.norm.bias contains NaN");
}

static int count(const char *text, const char *part) {
    int found = 0;
    for (; (text = strstr(text, part)); text++) found++;
    return found;
}

/* The losses of a run by step, the last if a step was repeated. */
static void read_losses(const Shell *shell, const char *run, double *losses, int steps) {
    CLEANUP(mem_freep) char *path = NULL, *text = NULL;
    assert_ok(str_format(&path, "%s/%s/metrics.jsonl", shell->root, run));
    assert_ok(file_read(path, 1 << 24, &text, NULL));
    int lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        CLEANUP(json_decrefp) json_t *entry = NULL;
        assert_ok(json_parse(line, strlen(line), "metrics.jsonl", &entry));
        int64_t step = json_integer_value(json_object_get(entry, "step"));
        if (!json_object_get(entry, "loss")) continue;
        assert_int_equal(step, ++lines);
        losses[step] = json_number_value(json_object_get(entry, "loss"));
    }
    assert_int_equal(lines, steps);
}

#define SPIKED TINY "--steps 66 --save-every 10 --lr 1e-2 "

static void spikes_are_reported(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, SPIKED, 0, "warning: step 41: loss spike");
    assert_int_equal(count(shell->said, "loss spike"), 2);
}

static void spikes_are_skipped(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, SPIKED "--on-divergence skip --out run", 0, "its update is skipped");
    assert_int_equal(count(shell->said, "its update is skipped"), 2);
    double losses[67];
    read_losses(shell, "run", losses, 66);
    assert_true(losses[42] < 1.01 * losses[40]);
    assert_shell(shell, "grep -c '\"skipped\":true' run/metrics.jsonl", 0, "2");
}

/* The batch of step 41 is left out: its place is taken by the next. All layouts and a run that was stopped in
 * between pass through the same losses. */
static void spikes_are_rolled_back(void **state) {
    Shell *shell = *state;
    double one[67], other[67];
    write_text(shell);
    assert_shell(shell, SPIKED "--on-divergence rollback --out one", 0, "warning: step 41: loss spike");
    assert_said(shell, 0, "rolling back to step 40 (rollback 1 of at most 3); the next 1 batch is left out");
    assert_said(shell, 0,
                "rolling back to step 50 (rollback 2 of at most 3); the next 10 batches are left out");
    read_losses(shell, "one", one, 66);
    for (int i = 30; i <= 66; i++) assert_true(one[i] < 1);
    assert_shell(shell, SPIKED "--on-divergence rollback --rollbacks 1", 2,
                 "--on-divergence rollback needs --out");
    assert_shell(shell, SPIKED "--on-divergence rollback --rollbacks 1 --out few", 1,
                 "as often as --rollbacks allows");
    assert_shell(shell,
                 TINY "--lr 1e-2 --save-every 10 --steps 45 --on-divergence rollback --out two && " SPIKED
                      "--on-divergence rollback --resume --out two",
                 0, "");
    read_losses(shell, "two", other, 66);
    for (int i = 1; i <= 66; i++) assert_true(one[i] == other[i]);
    if (!mpi_built()) return;
    const char *const layouts[] = {"--zero 2", "--tp 2"};
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
        char command[1024];
        snprintf(command, sizeof command, "%s --on-divergence rollback --ranks 2 %s --out ranks%zu", SPIKED,
                 layouts[k], k);
        assert_shell(shell, command, 0, "");
        assert_int_equal(count(shell->said, "rolling back"), 2);
        snprintf(command, sizeof command, "ranks%zu", k);
        read_losses(shell, command, other, 66);
        for (int i = 1; i <= 66; i++) assert_true(fabs(one[i] - other[i]) <= 1e-4 * one[i]);
    }
}

/* ---- failing disks ---- */

/* Records that do not fit are written when there is space again, none twice and none in part. */
static void logs_wait_for_space(void **state) {
    Shell *shell = *state;
    CLEANUP(mem_freep) char *path = NULL, *text = NULL;
    CLEANUP(log_file_freep) LogFile *file = NULL;
    struct rlimit before, small;
    assert_ok(path_join(&path, shell->root, "log"));
    assert_ok(log_file_new(&file, path, false, NULL));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 25;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 9; i++)
        log_file_add(file, &"0 line\n1 line\n2 line\n3 line\n4 line\n5 line\n6 line\n7 line\n8 line\n"[7 * i],
                     7);
    assert_ok(file_read(path, 1000, &text, NULL));
    assert_int_equal(strlen(text), 25);
    mem_freep(&text);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    log_file_add(file, "9 line\n", 7);
    assert_ok(file_read(path, 1000, &text, NULL));
    assert_string_equal(text,
                        "0 line\n1 line\n2 line\n3 line\n4 line\n5 line\n6 line\n7 line\n8 line\n9 line\n");
}

static int metrics_lines(const Shell *shell) {
    CLEANUP(mem_freep) char *path = NULL, *text = NULL;
    assert_ok(path_join(&path, shell->root, "rewound/metrics.jsonl"));
    assert_ok(file_read(path, 1000, &text, NULL));
    return count(text, "\n");
}

static void set_file_limit(rlim_t bytes) {
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A run goes back to an earlier step even if the disk has no space for shorter metrics, and it resumes. */
static void full_disks_do_not_prevent_rollbacks(void **state) {
    Shell *shell = *state;
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(progress_freep) Progress *progress = NULL;
    CLEANUP(rundir_freep) RunDir *dir = NULL;
    CLEANUP(json_decrefp) json_t *config = json_pack("{s:i, s:s}", "steps", 9, "data", "x");
    static const int steps[] = {1, 2, 3, 2};
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_ok(path_join(&path, shell->root, "rewound"));
    assert_ok(progress_new(&progress, NULL, "", 0, 1, true));
    assert_ok(rundir_open(&dir, path));
    assert_ok(rundir_begin(dir, config, 0, progress));
    for (int i = 0; i < 4; i++) assert_ok(rundir_metrics(dir, json_pack("{s:i}", "step", steps[i])));
    set_file_limit(5);
    rundir_rewind(dir, 2); /* step 3 is in the middle of the file, which would have to be written again */
    set_file_limit(before.rlim_cur);
    assert_int_equal(metrics_lines(shell), 4);
    assert_ok(rundir_metrics(dir, json_pack("{s:i}", "step", 2)));
    assert_int_equal(metrics_lines(shell), 5);
    rundir_rewind(dir, 2);
    assert_int_equal(metrics_lines(shell), 4);
    rundir_free(dir);
    dir = NULL;
    set_file_limit(5);
    assert_ok(rundir_open(&dir, path));
    assert_ok(rundir_begin(dir, config, 1, progress));
    assert_int_equal(metrics_lines(shell), 1);
    assert_ok(rundir_metrics(dir, json_pack("{s:i}", "step", 2)));
    assert_int_equal(metrics_lines(shell), 1);
    set_file_limit(before.rlim_cur);
    assert_ok(rundir_metrics(dir, json_pack("{s:i}", "step", 3)));
    assert_int_equal(metrics_lines(shell), 3);
}

/* What a run directory contained is deleted while the run goes on: the next checkpoint completes it again. */
static void emptied_directories_are_completed(void **state) {
    Shell *shell = *state;
    CLEANUP(mem_freep) char *path = NULL, *config_path = NULL;
    CLEANUP(progress_freep) Progress *progress = NULL;
    CLEANUP(rundir_freep) RunDir *dir = NULL;
    CLEANUP(json_decrefp) json_t *config = json_pack("{s:i, s:s}", "steps", 9, "data", "x");
    assert_ok(path_join(&path, shell->root, "rewound"));
    assert_ok(path_join(&config_path, path, "config.json"));
    assert_ok(progress_new(&progress, NULL, "", 0, 1, true));
    assert_ok(rundir_open(&dir, path));
    assert_ok(rundir_begin(dir, config, 0, progress));
    for (int i = 1; i <= 2; i++) {
        shell_run(shell, "rm rewound/*");
        if (i == 2) shell_run(shell, "rmdir rewound && mkdir rewound");
        assert_ok(rundir_metrics(dir, json_pack("{s:i}", "step", 2 * i)));
        rundir_restore(dir, 2 * i);
        assert_true(path_exists(config_path));
        assert_ok(rundir_metrics(dir, json_pack("{s:i}", "step", 2 * i + 1)));
        assert_int_equal(metrics_lines(shell), 1);
    }
}

/* A file in place of the checkpoints' directory makes saves fail until it is removed. */
static void saves_are_tried_again(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell,
                 "mkdir run && touch run/checkpoints && " TINY
                 "--steps 6 --save-every 3 --save-failures 0 --out run",
                 1, "checkpoints");
    assert_int_equal(count(shell->said, "training continues"), 0);
    assert_shell(shell, TINY "--steps 4 --save-every 2 --save-failures 3 --resume --out run", 1,
                 "training continues");
    shell_run(
        shell,
        "{ " TINY "--steps 60 --save-every 1 --save-failures 1000 --resume --out run 2>log & run=$!; "
        "until grep -qs 'training continues' log; do sleep 0.05; done; rm run/checkpoints; wait $run; }");
    assert_said(shell, 0, "");
    shell_run(shell, "readlink run/latest; grep -c . run/metrics.jsonl");
    assert_string_equal(shell->said, "checkpoints/step-60\n60\n");
}

/* Under a limit of memory for the run but not for a copy of its state, saves are made in the foreground. The
 * limit is found by bisection. */
static void saves_without_memory_for_a_copy(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell,
                 "low=0 high=4000000; for i in 1 2 3 4 5 6 7 8 9 10; do "
                 "kb=$(((low + high) / 2)); rm -rf lean; code=0; "
                 "(ulimit -v $kb; " TINY
                 "--steps 2 --hidden 512 --save-every 1 --threads 1 --out lean) >log 2>&1 || code=$?; "
                 "if [ $code != 0 ]; then low=$kb; "
                 "elif grep -q 'not enough memory for a copy of the weights and optimizer state' log; then "
                 "readlink lean/latest; exit 0; else high=$kb; fi; done; cat log; exit 1",
                 0, "checkpoints/step-2\n");
}

/* Needs a file system of its own; skips where none can be mounted. The disk is full for part of the run, and
 * nothing is missing afterwards. */
static void full_disks_are_survived(void **state) {
    Shell *shell = *state;
    write_text(shell);
    shell_run(shell, "mkdir disk && mount -t tmpfs -o size=8m weft-test disk");
    if (shell->code) skip();
    shell_run(shell, TINY "--steps 5 --hidden 512 --out disk/large");
    bool refused = strstr(shell->said, "but a checkpoint takes") && shell->code == 1;
    if (mpi_built()) { /* another start would be refused, too */
        shell_run(shell, TINY "--steps 5 --hidden 512 --ranks 2 --max-restarts 2 --out disk/large");
        refused &= strstr(shell->said, "but a checkpoint takes") && shell->code == 1;
        refused &= !strstr(shell->said, "restarting");
    }
    shell_run(shell, "{ " TINY "--steps 1500 --trace --out disk/run 2>log & run=$!; "
                     "until test -s disk/run/metrics.jsonl; do sleep 0.05; done; kill -STOP $run; "
                     "dd if=/dev/zero of=disk/fill bs=1k 2>/dev/null; kill -CONT $run; "
                     "until test 2 = $(grep -c 'kept in memory' log) || ! kill -0 $run; do sleep 0.05; done; "
                     "rm disk/fill; wait $run; code=$?; test $code = 0 || cat log; grep -c grad_norm "
                     "disk/run/metrics.jsonl; "
                     "readlink disk/run/latest; test -s disk/run/trace.json && grep -c 'written again' log; "
                     "exit $code; }");
    Shell ran = *shell;
    shell_run(shell, "umount disk");
    assert_true(refused);
    assert_said(&ran, 0, "1500\ncheckpoints/step-1500\n2\n"); /* metrics and events */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spikes_stand_out),
        cmocka_unit_test(a_high_loss_diverges),
        cmocka_unit_test(nothing_to_predict_is_fine),
        cmocka_unit_test(checkpoints_keep_the_state),
        IN_SHELL(nothing_poisoned_is_saved),
        IN_SHELL(divergence_is_located),
        IN_SHELL(spikes_are_reported),
        IN_SHELL(spikes_are_skipped),
        IN_SHELL(spikes_are_rolled_back),
        IN_SHELL(logs_wait_for_space),
        IN_SHELL(full_disks_do_not_prevent_rollbacks),
        IN_SHELL(emptied_directories_are_completed),
        IN_SHELL(saves_are_tried_again),
        IN_SHELL(saves_without_memory_for_a_copy),
        IN_SHELL(full_disks_are_survived),
    };
    return cmocka_run_group_tests_name("train.guard", tests, NULL, NULL);
}
