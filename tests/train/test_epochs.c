/* Epochs: exact boundaries in every layout, with gradient accumulation and after a resume, and what a run
 * records and reports at the end of each. Validation: the best checkpoint, --patience and --sample-every. */
#include "train/epoch.h"

#include <math.h>

#include "base/fs.h"
#include "base/memory.h"
#include "comm/mpi.h"
#include "scripts/shell.h"

/* ---- boundaries ---- */

/* A step belongs to the epoch of its first sample; an epoch ends with the step that trains on its last
 * sample. */
static void boundaries(void **state) {
    for (int64_t samples = 1; samples <= 12; samples++)
        for (int64_t batch = 1; batch <= 15; batch++) {
            Epochs epochs = {.samples = samples, .batch = batch};
            assert_int_equal(epochs_at(&epochs, 0), 0);
            assert_false(epochs_end(&epochs, 0));
            for (int64_t step = 1, sample = 0; step < 40; step++) {
                bool ends = false;
                assert_int_equal(epochs_at(&epochs, step), sample / samples + 1);
                for (int64_t i = 0; i < batch; i++, sample++) ends |= sample % samples == samples - 1;
                assert_int_equal(epochs_end(&epochs, step), ends);
                assert_int_equal(epochs_due(&epochs, EVERY_EPOCH, step), ends);
                assert_int_equal(epochs_due(&epochs, 3, step), step % 3 == 0);
                assert_false(epochs_due(&epochs, 0, step));
            }
        }
}

/* ---- runs ---- */

/* 61 training samples in batches of 4: epochs end after steps 16, 31 and 46. */
#define RUN                                                                                                  \
    WEFT_BINARY " train --model gpt2-tiny --layers 2 --hidden 16 --heads 2 --seq 16 --data text.txt "        \
                "--batch 4 --threads 1 --schedule constant --warmup 0 --eval-every epoch "

static void write_text(const Shell *shell) {
    static const char *const words[] = {"weft ", "warp ", "loom ", "shuttle ", "thread ", "cloth\n"};
    char text[1110];
    size_t used = 0;
    for (unsigned i = 1; used + 10 < sizeof text; i = i * 1103515245u + 12345u)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s", words[(i >> 16) % 6]);
    shell_write(shell, "text.txt", text, 0644);
}

static json_t *summary_of(const Shell *shell, const char *run) {
    CLEANUP(mem_freep) char *path = NULL;
    json_t *json = NULL;
    assert_ok(str_format(&path, "%s/%s/summary.json", shell->root, run));
    assert_ok(json_read_file(path, &json));
    return json;
}

static double value(const json_t *json, const char *key) {
    const json_t *number = json_object_get(json, key);
    if (!json_is_number(number)) fail_msg("'%s' is missing", key);
    return json_number_value(number);
}

/* Both runs had the same epochs, with losses that agree within `limit`. */
static void assert_same_epochs(const Shell *shell, const char *a, const char *b, double limit) {
    CLEANUP(json_decrefp) json_t *one = summary_of(shell, a);
    CLEANUP(json_decrefp) json_t *two = summary_of(shell, b);
    const json_t *left = json_object_get(one, "epochs"), *right = json_object_get(two, "epochs");
    assert_int_equal(json_array_size(left), 3);
    assert_int_equal(json_array_size(right), 3);
    for (size_t e = 0; e < 3; e++) {
        static const char *const whole[] = {"epoch", "step", "steps"}, *const losses[] = {"loss", "val_loss"};
        const json_t *x = json_array_get(left, e), *y = json_array_get(right, e);
        for (size_t k = 0; k < 3; k++) assert_true(value(x, whole[k]) == value(y, whole[k]));
        for (size_t k = 0; k < 2; k++)
            assert_true(fabs(value(x, losses[k]) - value(y, losses[k])) <= limit * value(x, losses[k]));
    }
}

static void reported(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, RUN "--epochs 3 --save-every epoch --keep 0 --out run", 0,
                 "\nepoch 1 of 3  step 16  time ");
    assert_said(shell, 0, "\nepoch 3 of 3  step 46  time ");
    assert_null(strstr(shell->said, "\nstep 16  validation")); /* one line per epoch */
    assert_shell(shell, "echo run/checkpoints/*", 0,
                 "run/checkpoints/step-16 run/checkpoints/step-31 run/checkpoints/step-46");
    assert_shell(shell,
                 "grep -c '\"step\":16,\"epoch\":1' run/metrics.jsonl; grep -c "
                 "'\"step\":17,\"epoch\":2,\"loss\"' run/metrics.jsonl; grep -c epoch_end run/metrics.jsonl",
                 0, "3\n1\n3\n"); /* step, validation, end of the epoch */

    CLEANUP(json_decrefp) json_t *summary = summary_of(shell, "run");
    assert_int_equal(value(summary, "epoch"), 3);
    const json_t *epochs = json_object_get(summary, "epochs");
    double sum = 0;
    for (size_t e = 0; e < 3; e++) {
        static const int steps[] = {16, 15, 15};
        const json_t *epoch = json_array_get(epochs, e);
        assert_int_equal(value(epoch, "steps"), steps[e]);
        assert_true(value(epoch, "seconds") > 0);
        sum += value(epoch, "val_loss");
    }
    assert_true(fabs(value(summary, "val_loss_mean") - sum / 3) < 1e-12);
    assert_true(value(summary, "val_loss") == value(json_array_get(epochs, 2), "val_loss"));
    /* The setting survives in the run's configuration. */
    assert_shell(shell, "grep every run/config.json; " WEFT_BINARY " train --out run --resume --quiet", 0,
                 "\"eval-every\": \"epoch\"");
    assert_said(shell, 0, "\"save-every\": \"epoch\"");
}

static void same_in_every_layout(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, RUN "--epochs 3 --out whole --quiet", 0, "");
    assert_shell(shell, RUN "--epochs 3 --micro-batch 1 --out micro --quiet", 0, "");
    assert_same_epochs(shell, "whole", "micro", 1e-5);
    if (!mpi_built()) return;
    assert_shell(shell, RUN "--epochs 3 --cp 2 --pp 2 --zero 1 --micro-batch 1 --out grid --quiet", 0, "");
    assert_same_epochs(shell, "whole", "grid", 1e-5);
}

/* Once in the middle of an epoch and once at its end, where an interrupted run has not validated yet. */
static void same_after_resume(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, RUN "--epochs 3 --out whole --quiet", 0, "");
    assert_shell(
        shell, RUN "--steps 20 --out parts --quiet && " RUN "--steps 31 --out parts --resume --quiet", 0, "");
    assert_shell(shell, RUN "--epochs 3 --out parts --resume --quiet; grep -c epoch_end parts/metrics.jsonl",
                 0, "3\n");
    assert_same_epochs(shell, "whole", "parts", 0);
    assert_shell(shell, "cmp whole/latest/model.safetensors parts/latest/model.safetensors", 0, "");
}

/* ---- the best checkpoint and --patience ---- */

/* A learning rate that rises until the validation loss does. */
#define WORSE RUN "--lr 0.5 --warmup 183 --epochs 12 --dropout 0 --save-every 0 "

static void assert_link(Shell *shell, const char *run, int64_t step) {
    char command[128], expected[64];
    snprintf(command, sizeof command, "readlink %s/best", run);
    snprintf(expected, sizeof expected, "checkpoints/step-%lld\n", (long long)step);
    assert_shell(shell, command, 0, expected);
}

/* The step of the lowest validation loss among the epochs of a run. */
static int64_t lowest_step(const json_t *summary) {
    const json_t *epochs = json_object_get(summary, "epochs"), *epoch, *lowest = json_array_get(epochs, 0);
    size_t i;
    json_array_foreach(epochs, i, epoch) if (value(epoch, "val_loss") < value(lowest, "val_loss")) lowest =
        epoch;
    return (int64_t)value(lowest, "step");
}

/* `best` stays when newer checkpoints replace each other. */
static void keeps_the_best(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, WORSE "--save-every epoch --keep 1 --out run", 0,
                 "\nbest checkpoint run/best: step ");
    assert_said(shell, 0, "\nnext: weft generate run/best \"");
    assert_said(shell, 0, "\n      weft report run\n");
    CLEANUP(json_decrefp) json_t *summary = summary_of(shell, "run");
    int64_t best = lowest_step(summary), last = (int64_t)value(summary, "steps");
    char expected[160];
    assert_true(best < last);
    assert_int_equal(value(summary, "best_step"), best);
    assert_link(shell, "run", best);
    snprintf(expected, sizeof expected, "run/checkpoints/step-%lld\nrun/checkpoints/step-%lld\n",
             (long long)last, (long long)best);
    assert_shell(shell, "ls -d run/checkpoints/* | sort -t- -k2 -rn", 0, expected);
    assert_shell(shell, WEFT_BINARY " eval run/best text.txt --json", 0, "\"loss\"");
}

/* The run stops by itself, also if it was killed in between, and stays stopped. */
static void stops_without_improvement(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, WORSE "--patience 2 --save-every 7 --keep 0 --out whole", 0,
                 ": the validation loss has not improved in 2 validations; the lowest was ");
    CLEANUP(json_decrefp) json_t *whole = summary_of(shell, "whole");
    const json_t *epochs = json_object_get(whole, "epochs");
    assert_true(json_is_true(json_object_get(whole, "stopped_early")));
    assert_true(json_is_false(json_object_get(whole, "interrupted")));
    assert_int_equal(value(json_array_get(epochs, json_array_size(epochs) - 3), "step"), lowest_step(whole));
    assert_link(shell, "whole", lowest_step(whole));

    assert_shell(
        shell,
        "cp -r whole parts && rm parts/summary.json parts/best && cd parts && for i in 1 2 3 4 5; do "
        "rm -r checkpoints/$(ls checkpoints | sort -t- -k2 -n | tail -n 1); done && ln -sfn "
        "checkpoints/$(ls checkpoints | sort -t- -k2 -n | tail -n 1) latest",
        0, "");
    assert_shell(shell,
                 WEFT_BINARY " train --resume --out parts && cmp whole/latest/model.safetensors "
                             "parts/latest/model.safetensors",
                 0, "has not improved in 2 validations");
    CLEANUP(json_decrefp) json_t *parts = summary_of(shell, "parts");
    static const char *const keys[] = {"steps", "val_loss", "val_loss_mean", "best_step", "best_val_loss"};
    for (size_t k = 0; k < 5; k++) assert_true(value(whole, keys[k]) == value(parts, keys[k]));
    assert_link(shell, "parts", lowest_step(whole));

    assert_shell(shell, WEFT_BINARY " train --resume --out whole", 0, "has not improved in 2 validations");
    assert_shell(shell, WEFT_BINARY " train --resume --out whole --patience 3 --quiet", 0, "");
    CLEANUP(json_decrefp) json_t *longer = summary_of(shell, "whole");
    assert_true(value(longer, "steps") > value(whole, "steps"));
}

/* ---- samples ---- */

/* Samples appear and do not change the training. */
static void samples(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, RUN "--steps 20 --out plain --quiet", 0, "");
    assert_shell(shell, RUN "--steps 20 --sample-every 10 --out sampled", 0, "\nstep 10  \"");
    assert_said(shell, 0, "\" continues \"");
    assert_shell(shell,
                 "grep -c '\"sample\":' sampled/metrics.jsonl; cmp plain/latest/model.safetensors "
                 "sampled/latest/model.safetensors && cmp plain/latest/optimizer.safetensors "
                 "sampled/latest/optimizer.safetensors",
                 0, "2\n");
    assert_shell(shell, RUN "--steps 2 --sample-every 1 --model bert-tiny --quiet", 2,
                 "--sample-every needs a model that generates text");
    if (!mpi_built()) return;
    assert_shell(shell,
                 RUN
                 "--steps 20 --sample-every 10 --dp 2 --pp 2 --zero 1 --micro-batch 1 --out grid --quiet; "
                 "grep -ho '\"sample\":.*' sampled/metrics.jsonl grid/metrics.jsonl | sort -u | wc -l",
                 0, "2\n"); /* the same two texts */
    assert_shell(shell, RUN "--steps 2 --sample-every 1 --tp 2 --quiet", 2,
                 "--sample-every cannot be combined with tensor parallelism (--tp 2)");
}

static void refused(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, RUN "--patience 2 --val-fraction 0", 2, "--patience needs validation data");
    assert_shell(shell, RUN "--patience 2 --eval-every 0", 2, "pass --eval-every N or epoch");
    assert_shell(shell, RUN "--save-every epochs", 2,
                 "--save-every epochs: expected an integer >= 0 or epoch");
    shell_write(shell, "config.json", "{\"eval-every\": \"step\"}", 0644);
    assert_shell(shell, WEFT_BINARY " train --data text.txt --config config.json", 2,
                 "config.json: eval-every step: expected an integer >= 0 or epoch");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boundaries),
        IN_SHELL(reported),
        IN_SHELL(same_in_every_layout),
        IN_SHELL(same_after_resume),
        IN_SHELL(keeps_the_best),
        IN_SHELL(stops_without_improvement),
        IN_SHELL(samples),
        IN_SHELL(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
