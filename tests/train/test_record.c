/* What a run records about itself: the gradient noise scale agrees with one computed from per-example
 * gradients, and the values in metrics.jsonl and summary.json are present and consistent. */
#include <math.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "device.h"
#include "scripts/shell.h"
#include "train/noise.h"
#include "train/runner.h"

/* ---- gradient noise scale ---- */

enum { SEQ = 6, EXAMPLES = 5, VOCAB = 31 };

static const ModelConfig config = {
    .family = FAMILY_GPT2,
    .outputs_mask = OUTPUT_LM,
    .layers = 2,
    .hidden = 16,
    .heads = 2,
    .inner = 32,
    .vocab = VOCAB,
    .labels = 2,
    .positions = SEQ,
    .act = ACT_GELU_TANH,
    .norm_eps = 1e-5f,
    .init_std = 0.2f,
    .tied = true,
    .scale_attn = true,
    .pad_token = -1,
    .bos_token = -1,
    .eos_token = -1,
};

static HostBatch *example_new(int number) {
    HostBatch *batch = NULL;
    assert_ok(host_batch_new(&batch, 1, SEQ));
    batch->task = TASK_LM;
    for (int i = 0; i < SEQ; i++) {
        batch->tokens[i] = (number * 7 + i * i) % VOCAB;
        batch->labels[i] = (number % 2 + i * 3) % VOCAB;
    }
    batch->lens[0] = SEQ;
    batch->loss_count[LOSS_TOKEN] = SEQ;
    return batch;
}

static int64_t parameters(const Runner *runner) {
    int64_t count = 0;
    for (int i = 0; i < runner->model->units; i++) count += runner->grads->count[i];
    return count;
}

/* Computes the gradients of some examples, one per micro-batch, and copies them to `values` unless it is
 * NULL. */
static StepResult gradients(Runner *runner, HostBatch **examples, int count, float *values) {
    StepResult result;
    assert_ok(runner_gradients(runner, examples, count, 1, &result));
    for (int i = 0; values && i < runner->model->units; i++) {
        size_t size = (size_t)runner->grads->count[i] * sizeof *values;
        assert_ok(stream_copy(runner->stream, values, runner->grads->flat[i].data, size, COPY_TO_HOST));
        values += runner->grads->count[i];
    }
    assert_ok(stream_sync(runner->stream));
    return result;
}

static double square(const float *a, const float *minus, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = (double)a[i] - (minus ? (double)minus[i] : 0);
        sum += x * x;
    }
    return sum;
}

/* Unbiased estimates of the variance of the per-example gradients and of the squared norm of the true
 * mean. */
static void direct_estimate(Runner *runner, HostBatch **examples, double *ret_trace, double *ret_signal) {
    int64_t count = parameters(runner);
    float *each = calloc((size_t)count, sizeof *each), *mean = calloc((size_t)count, sizeof *mean);
    assert_true(each && mean);
    gradients(runner, examples, EXAMPLES, mean);
    *ret_trace = 0;
    for (int i = 0; i < EXAMPLES; i++) {
        gradients(runner, &examples[i], 1, each);
        *ret_trace += square(each, mean, count) / (EXAMPLES - 1);
    }
    *ret_signal = square(mean, NULL, count) - *ret_trace / EXAMPLES;
    free(each);
    free(mean);
}

/* Averaged over which example comes first, the estimate equals the direct computation. */
static void noise_matches_examples(void **state) {
    (void)state;
    Model *model = NULL;
    Device *device = NULL;
    Runner *runner = NULL;
    HostBatch *examples[2 * EXAMPLES];
    assert_ok(model_new(&model, &config));
    test_device_new(&device, 1);
    RunnerSpec spec = {.micro_batch = 1, .seq = SEQ, .train = true, .micros = EXAMPLES, .noise = true};
    assert_ok(kernels_find(test_kernels(), &spec.table));
    assert_ok(runner_new(&runner, model, device, &spec));
    assert_ok(store_init_params(runner->params, runner->stream, 3));
    assert_ok(runner_publish(runner));
    for (int i = 0; i < EXAMPLES; i++) examples[i] = examples[i + EXAMPLES] = example_new(i);
    double trace, signal;
    direct_estimate(runner, examples, &trace, &signal);
    assert_true(isnan(gradients(runner, examples, EXAMPLES, NULL).micro_norm)); /* the probe is off */

    runner->probe = true;
    Noise sum = {0};
    for (int i = 0; i < EXAMPLES; i++) {
        Noise one = {0};
        StepResult alone = gradients(runner, &examples[i], 1, NULL);
        StepResult all = gradients(runner, &examples[i], EXAMPLES, NULL);
        assert_true(fabs(all.micro_norm / alone.grad_norm - 1) < 1e-4);
        noise_add(&one, all.micro_norm, 1, all.grad_norm, EXAMPLES);
        sum.trace += one.trace;
        sum.signal += one.signal;
    }
    assert_true(signal > 0 && fabs(noise_scale(&sum) / (trace / signal) - 1) < 1e-3);
    for (int i = 0; i < EXAMPLES; i++) host_batch_free(examples[i]);
    runner_free(runner);
    test_device_free(device);
    model_free(model);
}

static void efficiency_of_batches(void **state) {
    (void)state;
    assert_true(noise_efficiency(100, 10, 100) == 0.55);
    assert_true(noise_efficiency(NAN, 8, 8) == 1);
    assert_true(isnan(noise_efficiency(NAN, 8, 16)));
    Noise none = {0};
    assert_true(isnan(noise_scale(&none)));
    noise_add(&none, 1, 4, 1, 4); /* a single micro-batch says nothing about the noise */
    noise_add(&none, NAN, 1, 1, 4);
    assert_true(isnan(noise_scale(&none)));
}

/* ---- a run's files ---- */

#define RUN                                                                                                  \
    "WEFT_CACHE=cache " WEFT_BINARY " train --model gpt2-tiny --layers 2 --hidden 32 --heads 2 --seq 32 "    \
    "--data text.txt --batch 4 --micro-batch 1 --threads 1 --quiet --out run "

/* MPI leaks memory, and LeakSanitizer would spend seconds per process on reporting it. */
#define QUICK "ASAN_OPTIONS=detect_leaks=0 "

static void write_text(const Shell *shell) {
    char text[6000];
    size_t used = 0;
    for (unsigned i = 7; used + 16 < sizeof text; i = i * 1103515245u + 12345u)
        used += (size_t)snprintf(text + used, sizeof text - used, "%x ", i >> 16);
    shell_write(shell, "text.txt", text, 0644);
}

static json_t *read_json(const Shell *shell, const char *name) {
    CLEANUP(mem_freep) char *path = NULL;
    json_t *json = NULL;
    assert_ok(path_join(&path, shell->root, name));
    assert_ok(json_read_file(path, &json));
    return json;
}

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("key '%s' is missing or not a number", key);
    return json_number_value(value);
}

static double sum_of(const json_t *object, const char *const *keys, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++) sum += number(object, keys[i]);
    return sum;
}

static void check_line(const json_t *line) {
    static const char *const phases[] = {"compute", "comm", "bubble", "optimizer", "data", "other"};
    static const char *const others[] = {"loss",
                                         "grad_norm",
                                         "micro_norm",
                                         "samples_per_s",
                                         "elapsed_s",
                                         "mfu",
                                         "utilization",
                                         "tokens_per_s",
                                         "noise_scale",
                                         "goodput",
                                         "statistical_efficiency"};
    sum_of(line, others, 8);
    for (int i = 8; i < 11; i++) assert_non_null(json_object_get(line, others[i])); /* null is allowed */
    const json_t *phase = json_object_get(line, "phases_ms");
    assert_true(fabs(sum_of(phase, phases, 6) / number(line, "step_ms") - 1) < 1e-6);
    assert_true(number(phase, "other") >= 0 && number(phase, "compute") > 0);
    assert_true(number(json_object_get(line, "peak_bytes"), "total") > 0);
}

/* The per-rank values average to those of the line. */
static void check_ranks(const json_t *line, size_t ranks) {
    const json_t *each = json_object_get(line, "ranks"), *entry;
    double sum = 0;
    size_t i;
    assert_int_equal(json_array_size(json_object_get(each, "utilization")), ranks);
    json_array_foreach(json_object_get(each, "compute_ms"), i, entry) sum += json_number_value(entry);
    double mean = number(json_object_get(line, "phases_ms"), "compute");
    assert_true(fabs(sum / ((double)ranks * mean) - 1) < 1e-6);
}

static void check_lines(const Shell *shell, int steps, size_t ranks, double sent) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    int found = 0, saves = 0;
    assert_ok(path_join(&path, shell->root, "run/metrics.jsonl"));
    assert_ok(file_read(path, 1 << 24, &text, NULL));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        CLEANUP(json_decrefp) json_t *entry = NULL;
        assert_ok(json_parse(line, strlen(line), "metrics.jsonl", &entry));
        if (json_object_get(entry, "val_loss")) {
            assert_true(number(entry, "eval_ms") > 0);
            continue;
        }
        found++;
        check_line(entry);
        if (ranks > 1) check_ranks(entry, ranks);
        saves += json_object_get(entry, "checkpoint_ms") != NULL;
        assert_true(number(entry, "sent_bytes") == sent);
    }
    assert_int_equal(found, steps);
    assert_int_equal(saves, 1); /* the final checkpoint is saved after the last line */
}

/* The phases add up to the run time, for the run and for each rank. */
static void check_summary(const json_t *summary, int ranks) {
    static const char *const phases[] = {"compute_s", "comm_s", "bubble_s",     "optimizer_s", "data_s",
                                         "other_s",   "eval_s", "checkpoint_s", "setup_s"};
    double runtime = number(summary, "runtime_s");
    const json_t *all = json_object_get(summary, "phases"), *rank;
    size_t i;
    assert_true(fabs(sum_of(all, phases, 9) / runtime - 1) < 1e-6);
    assert_true(number(all, "other_s") < 0.3 * runtime);
    assert_true(number(all, "eval_s") > 0 && number(all, "checkpoint_s") > 0);
    assert_int_equal(json_array_size(json_object_get(summary, "ranks")), ranks);
    json_array_foreach(json_object_get(summary, "ranks"), i, rank) {
        double busy = number(rank, "utilization");
        const json_t *own = json_object_get(rank, "phases");
        assert_true(busy > 0 && busy <= 1);
        for (int p = 0; p < 9; p++) assert_true(number(own, phases[p]) >= 0);
        assert_true(json_is_null(json_object_get(rank, "gpu_utilization"))); /* no GPU */
    }
    assert_true(json_is_null(json_object_get(summary, "gpu_utilization")));
    assert_true(number(summary, "mfu") > 0 && number(summary, "peak_flops") > 0);
    assert_non_null(json_object_get(summary, "noise_scale"));
    const json_t *efficiency = json_object_get(summary, "statistical_efficiency");
    if (json_is_number(efficiency))
        assert_true(fabs(number(summary, "goodput") /
                             (number(summary, "samples_per_s") * json_number_value(efficiency)) -
                         1) < 1e-9);
}

static void alone(void **state) {
    Shell *shell = *state;
    write_text(shell);
    shell_run(shell, RUN "--steps 6 --eval-every 3 --save-every 3");
    assert_said(shell, 0, "");
    CLEANUP(json_decrefp) json_t *summary = read_json(shell, "run/summary.json");
    CLEANUP(json_decrefp) json_t *peak = read_json(shell, "cache/peak.json");
    check_lines(shell, 6, 1, 0);
    check_summary(summary, 1);
    assert_int_equal(json_object_size(json_object_get(summary, "comm_bytes_by_group")), 0);
    assert_int_equal(json_object_size(peak), 1);
    void *seen = json_object_iter(peak);
    double flops = json_number_value(json_object_iter_value(seen));
    assert_true(flops == number(summary, "peak_flops"));
    /* The recorded peak only rises: two threads are never slower than one was, however busy the host is
     * now. */
    char path[160];
    snprintf(path, sizeof path, "%s/cache/peak.json", shell->root);
    json_object_iter_set_new(peak, seen, json_real(100 * flops));
    assert_ok(json_write_file(path, peak));
    shell_run(shell, "rm -r run && " RUN "--steps 1 --threads 2");
    CLEANUP(json_decrefp) json_t *wider = read_json(shell, "run/summary.json");
    assert_true(number(wider, "peak_flops") >= 100 * flops);
}

/* Each of N ranks sends 2(N - 1)/N of the gradient bytes per step. */
static void replicas(void **state) {
    Shell *shell = *state;
    write_text(shell);
    shell_run(shell, QUICK RUN "--steps 4 --eval-every 2 --save-every 2 --ranks 2 --dp 2");
    if (strstr(shell->said, "without MPI")) skip();
    assert_said(shell, 0, "");
    CLEANUP(json_decrefp) json_t *summary = read_json(shell, "run/summary.json");
    const json_t *rank = json_array_get(json_object_get(summary, "ranks"), 0);
    double bytes = number(json_object_get(rank, "peak_bytes"), "grads");
    check_lines(shell, 4, 2, 2 * bytes);
    check_summary(summary, 2);
    const json_t *sent = json_object_get(summary, "comm_bytes_by_group");
    assert_int_equal(json_object_size(sent), 1);
    assert_int_equal(json_object_size(json_object_get(sent, "data")), 1);
    assert_true(number(json_object_get(sent, "data"), "all_reduce") == 4 * 2 * bytes);
    assert_true(number(json_object_get(rank, "comm_bytes"), "total") == 4 * bytes);
}

/* A run that fails still writes what it traced so far. */
static void failed(void **state) {
    Shell *shell = *state;
    write_text(shell);
    shell_run(shell, QUICK RUN "--steps 6 --lr 1e30 --warmup 0 --clip 0 --eval-every 0 --trace");
    assert_int_equal(shell->code, 1);
    CLEANUP(json_decrefp) json_t *trace = read_json(shell, "run/trace.json");
    const json_t *event;
    size_t i;
    int forwards = 0;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
        const char *category = json_string_value(json_object_get(event, "cat"));
        forwards += category && !strcmp(category, "forward");
    }
    assert_true(forwards >= 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_matches_examples),
        cmocka_unit_test(efficiency_of_batches),
        cmocka_unit_test_setup_teardown(alone, shell_setup, shell_teardown),
        cmocka_unit_test_setup_teardown(replicas, shell_setup, shell_teardown),
        cmocka_unit_test_setup_teardown(failed, shell_setup, shell_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
