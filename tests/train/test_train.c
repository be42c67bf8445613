/* Single-process training through the program: the loss falls, a killed run resumes to the same bits,
 * gradient accumulation and recomputation do not change the result, and invalid requests fail with a clear
 * message. */
#include <math.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "scripts/shell.h"

/* A model and a job small enough to run hundreds of steps in a second or two. */
#define TINY                                                                                                 \
    WEFT_BINARY " train --model gpt2-tiny --layers 2 --hidden 32 --heads 2 --seq 32 --data text.txt "        \
                "--batch 4 --threads 1 --log-every 1 --quiet "
#define TINY_BERT                                                                                            \
    WEFT_BINARY " train --model bert-tiny --layers 2 --hidden 32 --heads 2 --seq 32 --data text.txt "        \
                "--batch 4 --threads 1 --log-every 1 --quiet "

/* Text with learnable structure: words drawn from a short list. */
static void write_text(const Shell *shell) {
    static const char *const words[] = {"weft ", "warp ", "loom ", "shuttle ", "thread ", "cloth\n"};
    char text[24000];
    size_t used = 0;
    for (unsigned i = 0; used + 16 < sizeof text; i = i * 1103515245u + 12345u)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s", words[(i >> 16) % 6]);
    shell_write(shell, "text.txt", text, 0644);
}

static json_t *read_json(const Shell *shell, const char *name) {
    CLEANUP(mem_freep) char *path = NULL;
    assert_ok(path_join(&path, shell->root, name));
    json_t *json = NULL;
    assert_ok(json_read_file(path, &json));
    return json;
}

static double summary_number(const Shell *shell, const char *run, const char *key) {
    char name[128];
    snprintf(name, sizeof name, "%s/summary.json", run);
    json_t *summary = read_json(shell, name);
    const json_t *value = json_object_get(summary, key);
    assert_true(json_is_number(value));
    double number = json_number_value(value);
    json_decref(summary);
    return number;
}

/* Reads the losses from metrics.jsonl into losses[step], from 1; returns the last step. */
static int read_losses(const Shell *shell, const char *run, double *losses, int limit) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    char name[128];
    snprintf(name, sizeof name, "%s/metrics.jsonl", run);
    assert_ok(path_join(&path, shell->root, name));
    assert_ok(file_read(path, 1 << 24, &text, NULL));
    int steps = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *entry = NULL;
        assert_ok(json_parse(line, strlen(line), "metrics.jsonl", &entry));
        const json_t *loss = json_object_get(entry, "loss");
        if (loss) {
            assert_true(steps < limit);
            assert_int_equal(json_integer_value(json_object_get(entry, "step")), steps + 1);
            losses[steps++] = json_number_value(loss);
        }
        json_decref(entry);
    }
    return steps;
}

static void assert_same_file(const Shell *shell, const char *a, const char *b) {
    char command[512];
    snprintf(command, sizeof command, "cmp %s/%s %s/%s", shell->root, a, shell->root, b);
    if (system(command) != 0) fail_msg("%s and %s differ", a, b);
}

static void test_learns(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, TINY "--steps 120 --lr 3e-3 --out run --eval-every 40", 0, "");
    assert_true(summary_number(shell, "run", "loss_first") > 5.3); /* about log(257) */
    assert_true(summary_number(shell, "run", "loss_last") < 2.0);
    assert_true(summary_number(shell, "run", "val_loss") < 2.0);
    assert_true(summary_number(shell, "run", "params_total") == 257 * 32 + 32 * 32 + 2 * 12704 + 64);
}

static void test_bert_learns(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, TINY_BERT "--steps 150 --lr 3e-3 --out run", 0, "");
    assert_true(summary_number(shell, "run", "loss_last") <
                0.75 * summary_number(shell, "run", "loss_first"));
}

/* Gradients are divided once by the step's token count, so the micro-batch size does not matter. */
static void test_accumulation(void **state) {
    Shell *shell = *state;
    write_text(shell);
    static const char *const models[] = {TINY, TINY_BERT};
    for (int m = 0; m < 2; m++) {
        double whole[20], parts[20];
        char command[1024];
        snprintf(command, sizeof command, "%s --steps 20 --lr 1e-3 --out whole%d", models[m], m);
        assert_shell(shell, command, 0, "");
        snprintf(command, sizeof command, "%s --steps 20 --lr 1e-3 --micro-batch 1 --out parts%d", models[m],
                 m);
        assert_shell(shell, command, 0, "");
        assert_int_equal(read_losses(shell, m ? "whole1" : "whole0", whole, 20), 20);
        assert_int_equal(read_losses(shell, m ? "parts1" : "parts0", parts, 20), 20);
        for (int i = 0; i < 20; i++)
            assert_true(whole[i] - parts[i] < 1e-5 * whole[i] && parts[i] - whole[i] < 1e-5 * whole[i]);
    }
}

/* Recomputation and offloading do not change a single bit of the weights. */
static void test_modes_are_exact(void **state) {
    Shell *shell = *state;
    write_text(shell);
    static const char *const models[] = {TINY, TINY_BERT};
    static const char *const ways[] = {"",
                                       "--recompute selective",
                                       "--recompute block",
                                       "--offload optimizer",
                                       "--offload params",
                                       "--offload optimizer,activations --recompute block"};
    static const char *const offloaded[] = {"none",      "none",   "none",
                                            "optimizer", "params", "optimizer+activations"};
    for (int m = 0; m < 2; m++)
        for (int w = 0; w < 6; w++) {
            char command[1024], first[128], other[128];
            snprintf(command, sizeof command, "%s --steps 10 %s --out %d.%d", models[m], ways[w], m, w);
            assert_shell(shell, command, 0, "");
            snprintf(first, sizeof first, "%d.0/latest/model.safetensors", m);
            snprintf(other, sizeof other, "%d.%d/latest/model.safetensors", m, w);
            assert_same_file(shell, first, other);
            snprintf(other, sizeof other, "%d.%d/summary.json", m, w);
            json_t *summary = read_json(shell, other);
            const json_t *layout = json_object_get(summary, "layout");
            const char *offload = json_string_value(json_object_get(layout, "offload"));
            assert_string_equal(offload, offloaded[w]);
            json_decref(summary);
        }
}

/* Runs the command again and again, killing it after varying times, until it completes. A run that was killed
 * fewer than three times proves little: it is discarded, and the next attempts get less time. */
static void run_with_kills(Shell *shell, const char *run, const char *out, double time_s) {
    char command[1024];
    int kills = 0;
    for (int try = 0; try < 200; try++) {
        double kill_s = time_s * (0.1 + 0.01 * (try * 37 % 60));
        snprintf(command, sizeof command, "timeout -s KILL %.3f %s --resume --out %s", kill_s, run, out);
        shell_run(shell, command);
        if (shell->code != 0) {
            kills++;
        } else if (kills < 3) {
            snprintf(command, sizeof command, "rm -r %s", out);
            shell_run(shell, command);
            kills = 0;
            time_s *= 0.5;
        } else {
            return;
        }
        if (kills > 20) time_s *= 1.3;
    }
    fail_msg("the run never completed");
}

/* Killed at arbitrary moments and resumed until done, a run ends with the same files as an uninterrupted
 * one. */
static void test_killed_runs_resume(void **state) {
    Shell *shell = *state;
    write_text(shell);
    static const char *const runs[] = {TINY "--steps 300 --save-every 7 --keep 2",
                                       TINY_BERT "--steps 300 --save-every 7 --keep 2"};
    for (int m = 0; m < 2; m++) {
        char command[1024];
        snprintf(command, sizeof command, "rm -rf whole cut; %s --out whole", runs[m]);
        double start = clock_wall();
        assert_shell(shell, command, 0, "");
        run_with_kills(shell, runs[m], "cut", clock_wall() - start);
        assert_same_file(shell, "whole/latest/model.safetensors", "cut/latest/model.safetensors");
        assert_same_file(shell, "whole/latest/optimizer.safetensors", "cut/latest/optimizer.safetensors");
        double whole[300], cut[300];
        assert_int_equal(read_losses(shell, "whole", whole, 300), 300);
        assert_int_equal(read_losses(shell, "cut", cut, 300), 300);
        assert_memory_equal(whole, cut, sizeof whole);
        assert_shell(shell, "ls cut/checkpoints | wc -l", 0, "2");
    }
}

/* Sequences grow in the same steps, with the same losses, in every layout and after a restart. */
static void test_seq_warmup(void **state) {
    Shell *shell = *state;
    write_text(shell);
    static const char *const layouts[] = {"--ranks 2", "--tp 2", "--pp 2", "--cp 2"};
#define GROWS TINY "--steps 12 --save-every 4 --keep 9 --seq-warmup 8 --seq-warmup-from 8 "
    double whole[12], other[12];
    assert_shell(shell, GROWS "--out whole", 0, "");
    assert_shell(shell,
                 "grep -o '\"seq_length\": *[0-9]*' whole/metrics.jsonl | grep -o '[0-9]*$' | tr '\n' ' '", 0,
                 "8 8 8 8 16 16 16 16 32 32 32 32 ");
    assert_int_equal(read_losses(shell, "whole", whole, 12), 12);
    for (int i = 0; i < 4; i++) {
        char command[1024], run[16];
        snprintf(run, sizeof run, "run%d", i);
        snprintf(command, sizeof command, "%s %s --out %s", GROWS, layouts[i], run);
        assert_shell(shell, command, 0, "");
        assert_int_equal(read_losses(shell, run, other, 12), 12);
        for (int k = 0; k < 12; k++)
            if (fabs(other[k] - whole[k]) > 1e-5 * whole[k])
                fail_msg("%s, step %d: %.8f instead of %.8f", layouts[i], k + 1, other[k], whole[k]);
    }
    assert_shell(shell, TINY "--steps 12 --resume-from 4 --seq-warmup 5 --out whole", 2,
                 "the run in whole has --seq-warmup 8 --seq-warmup-from 8; pass the same");
    assert_shell(shell, "cp -r whole cut && " TINY "--resume-from 4 --out cut", 0, "");
    assert_same_file(shell, "whole/latest/model.safetensors", "cut/latest/model.safetensors");
    assert_shell(shell, TINY "--steps 12 --out plain", 0, "");
    assert_int_equal(read_losses(shell, "plain", other, 12), 12);
    assert_true(other[11] != whole[11]);
    assert_shell(shell, TINY_BERT "--steps 12 --seq-warmup 4", 2, "BERT attends in both directions");
}

/* A language model that predicts only answers has an accuracy, one that predicts all tokens has none. */
static void test_answers(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell,
                 "for i in $(seq 0 99); do a=$((i * 7 % 13 % 4 + 1)); "
                 "echo \"{\\\"ids\\\": [$a,7,8,9,7,8,9,$a], \\\"labels\\\": "
                 "[-100,-100,-100,-100,-100,-100,-100,$a]}\"; "
                 "done >answers.jsonl",
                 0, "");
    assert_shell(shell,
                 WEFT_BINARY
                 " train --model gpt2-tiny --layers 2 --hidden 32 --heads 2 --seq 8 --vocab 16 --data "
                 "answers.jsonl --batch 4 --threads 1 --quiet --steps 120 --lr 3e-3 --out answers",
                 0, "");
    assert_true(summary_number(shell, "answers", "accuracy") > 0.9);
    assert_shell(shell, "grep -q '\"val_loss\".*\"accuracy\"' answers/metrics.jsonl", 0, "");
    assert_shell(shell, TINY "--steps 3 --out text && ! grep -q accuracy text/metrics.jsonl", 0, "");
}

/* On a signal the program completes the current step, saves, and explains how to resume. */
static void test_interrupt_saves(void **state) {
    Shell *shell = *state;
    write_text(shell);
    shell_run(
        shell,
        "{ " TINY "--steps 100000000 --save-every 0 --out run & run=$!; "
        "until grep -qs '\"loss\"' run/metrics.jsonl; do sleep 0.05; done; kill -TERM $run; wait $run; }");
    assert_int_equal(shell->code, 75);
    assert_shell(shell,
                 "test -e run/latest/model.safetensors && grep -c '\"interrupted\": true' run/summary.json",
                 0, "1");
}

/* Only one process may use a run directory, and a directory that is not a run's is left alone. */
static void test_directory_is_guarded(void **state) {
    Shell *shell = *state;
    write_text(shell);
    shell_run(
        shell,
        "{ " TINY
        "--steps 100000000 --out run & run=$!; until test -s run/metrics.jsonl; do sleep 0.05; done; " TINY
        "--steps 5 --resume --out run; code=$?; kill -9 $run; exit $code; }");
    assert_said(shell, 1, "another process");
    assert_shell(shell,
                 "mkdir model && echo '{\"model_type\": \"gpt2\"}' >model/config.json; " TINY
                 "--steps 5 --out model; code=$?; cat model/config.json; exit $code",
                 2, "not from a weft run");
    assert_said(shell, 2, "{\"model_type\": \"gpt2\"}");
    assert_shell(shell,
                 TINY "--steps 5 --out other && tr a-z b-za <text.txt >moved && mv moved text.txt && " TINY
                      "--steps 9 --resume --out other",
                 2, "was trained on other data; pass the same --data");
    assert_shell(shell, "cp -rL other copy && " TINY "--steps 9 --resume --out copy", 2,
                 "remove copy/latest and copy/best, then resume");
}

static void test_refusals(void **state) {
    Shell *shell = *state;
    write_text(shell);
    static const struct {
        const char *options, *sentence;
        int code;
    } cases[] = {
        {"--steps 3 --out run", "", 0},
        {"--steps 3 --out run", "already contains a run", 2},
        {"--steps 3 --out run --resume --seed 9", "--seed 9: the run in run has 1; drop --seed", 2},
        {"--steps 3 --out run --resume --batch 2", "--batch 2: the run in run has", 2},
        {"--steps 3 --batch 4 --micro-batch 3", "does not divide into micro-batches of 3", 2},
        {"--steps 3 --heads 5", "heads", 2},
        {"--steps 3 --seq 100000", "token", 1},
        {"--steps 3 --task span", "not supported by GPT-2", 2},
        {"--steps 3 --warmup 9", "longer than the run", 2},
        {"--steps 3 --seq-warmup 9", "--seq-warmup 9 is longer than the run (3 steps)", 2},
        {"--steps 3 --seq-warmup 2 --seq-warmup-from 33", "longer than the sequences, which have 32 tokens",
         2},
        {"--steps 3 --seq-warmup-from 8", "has no effect without --seq-warmup", 0},
        {"--steps 3 --model gpt2-tinny", "gpt2-tiny", 2},
        {"--steps 3 --model ./nowhere", "no such directory", 2},
        {"--steps 3 --data missing.txt", "missing.txt", 1},
        {"--steps 3 --lr 1e30 --clip 0 --warmup 0", "lower --lr", 1},
        {"--steps 3 --out text.txt/run", "text.txt", 1},
        {"--steps 3 --vocab 100", "bytes", 2},
        {"--steps 3 --hidden 65536 --heads 64 --layers 9999", "out of memory", 1},
        {"--steps 3 --val-fraction 0.0001", "--val-fraction", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[1024];
        snprintf(command, sizeof command, "%s %s", TINY, cases[i].options);
        shell_run(shell, command);
        assert_said(shell, cases[i].code, cases[i].sentence);
    }
    /* Results stay, even if checkpoints were deleted to save space. */
    assert_shell(shell, "rm -r run/checkpoints run/latest && " TINY "--steps 3 --out run", 2,
                 "contains the results of a run");
    assert_shell(shell, TINY "--steps 3 --resume --out run", 2, "contains the results of a run");
}

/* The disk fills up while a checkpoint is written: one clear error, and the previous checkpoint stays
 * valid. */
static void test_full_disk(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, TINY "--steps 5 --save-every 5 --out run", 0, "");
    assert_shell(shell, "sh -c 'ulimit -f 60; exec " TINY "--steps 10 --save-every 5 --resume --out run'", 1,
                 "cannot write");
    shell_run(shell, "ls run/checkpoints; readlink run/latest; find run -name '*tmp*'");
    assert_string_equal(shell->said, "step-5\ncheckpoints/step-5\n");
    assert_shell(shell, TINY "--steps 10 --save-every 5 --resume --out run", 0, "");
}

/* fp16: an overflow skips the step and halves the loss scale, steps without overflow double it, and a resumed
 * run keeps the scale. */
static void test_loss_scale(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, TINY "--precision fp16 --loss-scale 16777216 --steps 12 --out high", 0, "");
    shell_run(
        shell,
        "grep -c '\"skipped\":true' high/metrics.jsonl; grep -c '\"grad_norm\":null' high/metrics.jsonl");
    int skipped = 0, unknown = 0;
    assert_int_equal(sscanf(shell->said, "%d %d", &skipped, &unknown), 2);
    assert_true(skipped > 0 && skipped < 12 && skipped == unknown);
    assert_shell(shell, TINY "--precision fp16 --loss-scale 64 --loss-scale-steps 2 --steps 6 --out low", 0,
                 "");
    assert_shell(shell,
                 TINY "--precision fp16 --loss-scale 64 --loss-scale-steps 2 --steps 8 --resume --out low", 0,
                 "");
    assert_shell(shell, "tail -n 2 low/metrics.jsonl", 0, "\"loss_scale\":1024");
}

/* `--data self` trains on weft's own source and needs no file. */
static void test_self(void **state) {
    Shell *shell = *state;
    assert_shell(
        shell,
        WEFT_BINARY
        " train --model gpt2-tiny --seq 64 --hidden 32 --heads 2 --data self --steps 2 --quiet --json",
        0, "\"loss_last\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_SHELL(test_learns),
        IN_SHELL(test_bert_learns),
        IN_SHELL(test_accumulation),
        IN_SHELL(test_modes_are_exact),
        IN_SHELL(test_killed_runs_resume),
        IN_SHELL(test_seq_warmup),
        IN_SHELL(test_answers),
        IN_SHELL(test_interrupt_saves),
        IN_SHELL(test_directory_is_guarded),
        IN_SHELL(test_refusals),
        IN_SHELL(test_full_disk),
        IN_SHELL(test_loss_scale),
        IN_SHELL(test_self),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
