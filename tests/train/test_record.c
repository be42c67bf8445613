/* What a run records about itself: the gradient noise scale agrees with one computed from per-example
 * gradients, and the values in metrics.jsonl and summary.json are present and consistent. */
#include <math.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/rng.h"
#include "device.h"
#include "scripts/shell.h"
#include "tiny.h"
#include "train/noise.h"
#include "train/runner.h"

/* ---- gradient noise scale ---- */

enum { SEQ = 6, EXAMPLES = 64, MICROS = 8, VOCAB = 31 };

static HostBatch *example_new(int number) {
    HostBatch *batch = NULL;
    assert_ok(host_batch_new(&batch, 1, SEQ));
    batch->task = TASK_LM;
    for (int i = 0; i < SEQ; i++) {
        batch->tokens[i] = (number * 7 + i * i) % VOCAB;
        batch->labels[i] = (number % 4 * (number / 4) + i * 3) % VOCAB;
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
static StepResult gradients(Runner *runner, int64_t step, HostBatch **examples, int count, float *values) {
    StepResult result;
    assert_ok(runner_gradients(runner, examples, count, step, &result));
    for (int i = 0; values && i < runner->model->units; i++) {
        size_t size = (size_t)runner->grads->count[i] * sizeof *values;
        assert_ok(stream_copy(runner->stream, values, runner->grads->flat[i].data, size, COPY_TO_HOST));
        values += runner->grads->count[i];
    }
    assert_ok(stream_sync(runner->stream));
    return result;
}

typedef struct Toy {
    Model *model;
    Device *device;
    Runner *runner;
    HostBatch *examples[EXAMPLES];
} Toy;

static void toy_init(Toy *toy) {
    ModelConfig config = tiny_config(&family_gpt2, OUTPUT_LM, TINY_RECORDED);
    assert_ok(model_new(&toy->model, &config));
    test_device_new(&toy->device, 1);
    RunnerSpec spec = {.micro_batch = 1, .seq = SEQ, .train = true, .micros = MICROS, .noise = true};
    assert_ok(kernels_find(test_kernels(), &spec.table));
    assert_ok(runner_new(&toy->runner, toy->model, toy->device, &spec));
    assert_ok(store_init_params(toy->runner->params, toy->runner->stream, 3));
    assert_ok(runner_publish(toy->runner));
    for (int i = 0; i < EXAMPLES; i++) toy->examples[i] = example_new(i);
}

static void toy_done(Toy *toy) {
    for (int i = 0; i < EXAMPLES; i++) host_batch_free(toy->examples[i]);
    runner_free(toy->runner);
    test_device_free(toy->device);
    model_free(toy->model);
}

/* Exactly, from the gradient of every example: the variance over the data set, and the squared norm of the
 * mean. */
static void exact(Toy *toy, double *ret_trace, double *ret_signal) {
    int64_t count = parameters(toy->runner);
    float *each = calloc((size_t)count * EXAMPLES, sizeof *each);
    double *mean = calloc((size_t)count, sizeof *mean);
    assert_true(each && mean);
    for (int i = 0; i < EXAMPLES; i++) {
        gradients(toy->runner, 1, &toy->examples[i], 1, each + i * count);
        for (int64_t k = 0; k < count; k++) mean[k] += (double)each[i * count + k] / EXAMPLES;
    }
    *ret_trace = *ret_signal = 0;
    for (int64_t k = 0; k < count; k++) {
        *ret_signal += mean[k] * mean[k];
        for (int i = 0; i < EXAMPLES; i++) {
            double apart = (double)each[i * count + k] - mean[k];
            *ret_trace += apart * apart / EXAMPLES;
        }
    }
    free(each);
    free(mean);
}

/* Measures a step whose batch is MICROS examples, drawn with replacement. */
static StepResult random_step(Toy *toy, int64_t step) {
    HostBatch *drawn[MICROS];
    RngKey key = rng_key(11, "examples", (uint64_t)step);
    for (int i = 0; i < MICROS; i++) drawn[i] = toy->examples[rng_below(key, (uint64_t)i, EXAMPLES)];
    return gradients(toy->runner, step, drawn, MICROS, NULL);
}

/* A step's micro_norm is the root mean square over its micro-batches. A single estimate from sketches may be
 * off; the average over many projections of the same step may not. */
static void sketches_are_unbiased(void **state) {
    enum { PROJECTIONS = 400 };
    Toy toy;
    toy_init(&toy);
    double sum = 0, sum2 = 0, expected = 0;
    for (int i = 0; i < MICROS; i++) {
        double norm = gradients(toy.runner, 1, &toy.examples[i], 1, NULL).grad_norm;
        expected += norm * norm / MICROS;
    }
    assert_true(
        isnan(gradients(toy.runner, 1, toy.examples, MICROS, NULL).micro_norm)); /* the probe is off */
    toy.runner->probe = true;
    for (int i = 1; i <= PROJECTIONS; i++) {
        double norm = gradients(toy.runner, i, toy.examples, MICROS, NULL).micro_norm;
        sum += norm * norm / PROJECTIONS;
        sum2 += pow(norm, 4) / PROJECTIONS;
    }
    double deviation = sqrt(sum2 - sum * sum);
    assert_true(deviation > 0 && deviation < 0.05 * expected);
    assert_true(fabs(sum - expected) < 3.5 * deviation / sqrt(PROJECTIONS));
    toy_done(&toy);
}

/* Windows of steps at fixed weights. Each estimate is within a few of its own standard errors of the exact
 * scale; their mean is right; and the standard errors are, on average, as large as they claim. */
static void noise_matches_examples(void **state) {
    enum { WINDOWS = 40, STEPS = 150 };
    Toy toy;
    toy_init(&toy);
    double trace, signal, sum = 0, square = 0, claimed = 0;
    exact(&toy, &trace, &signal);
    double scale = trace / signal;
    toy.runner->probe = true;
    for (int window = 0; window < WINDOWS; window++) {
        Noise noise = {0};
        for (int i = 1; i <= STEPS; i++) {
            StepResult result = random_step(&toy, window * STEPS + i);
            noise_add(&noise, result.micro_norm, 1, result.grad_norm, MICROS);
        }
        NoiseScale found = noise_scale(&noise);
        assert_true(found.error < 0.25 * found.scale);
        assert_true(fabs(found.scale - scale) < 4 * found.error);
        if (window == 0) assert_true(fabs(found.scale - scale) < 3 * found.error);
        sum += found.scale / WINDOWS;
        square += (found.scale - scale) * (found.scale - scale) / WINDOWS;
        claimed += found.error / WINDOWS;
    }
    print_message("exact %.4g, mean of %d estimates %.4g, error %.3g, claimed %.3g\n", scale, WINDOWS, sum,
                  sqrt(square), claimed);
    assert_true(fabs(sum - scale) < 3.5 * claimed / sqrt(WINDOWS));
    assert_true(sqrt(square) > 0.7 * claimed && sqrt(square) < 1.4 * claimed);
    toy_done(&toy);
}

/* Normal variables, drawn from a table of them: computing more than a hundred million would take most of this
 * test's time. */
typedef struct Draws {
    RngKey key;
    uint64_t next;
    uint32_t bits[4]; /* of eight variables */
    float normal[1 << 16];
} Draws;

enum { DIMS = 40 };

static Draws *draws_new(uint64_t seed) {
    Draws *draws = calloc(1, sizeof *draws);
    assert_non_null(draws);
    draws->key = rng_key(seed, "gaussian", 0);
    for (int i = 0; i < 1 << 16; i++) draws->normal[i] = rng_normal(rng_key(seed, "table", 0), (uint64_t)i);
    return draws;
}

static double draw_normal(Draws *draws) {
    uint64_t at = draws->next++;
    if (at % 8 == 0) rng_block(draws->key, at / 8, draws->bits);
    return (double)draws->normal[draws->bits[at % 8 / 2] >> at % 2 * 16 & 0xffff];
}

/* Adds a step of Gaussian gradients: `micros` of one sample each, a true gradient of length 1 and a noise
 * scale of `scale`. `length` multiplies all of them. */
static void add_gaussian(Noise *noise, Draws *draws, int micros, double scale, double length) {
    double mean[DIMS] = {0}, small = 0, large = 0, deviation = sqrt(scale / DIMS);
    for (int i = 0; i < micros; i++)
        for (int d = 0; d < DIMS; d++) {
            double x = deviation * draw_normal(draws) + (d == 0);
            small += x * x / micros;
            mean[d] += x / micros;
        }
    for (int d = 0; d < DIMS; d++) large += mean[d] * mean[d];
    noise_add(noise, length * sqrt(small), 1, length * sqrt(large), micros);
}

/* Estimates of a scale far above the batch, with gradients that shrink during the run. The figures that the
 * previous estimator had on such data: 349 for a scale of 152. */
static void noise_above_batch(void **state) {
    enum { RUNS = 200, STEPS = 2000, MICROS_HERE = 8 };
    const double scale = 152;
    Draws *draws = draws_new(5);
    double sum = 0, square = 0, claimed = 0;
    int known = 0;
    for (int run = 0; run < RUNS; run++) {
        Noise noise = {0};
        for (int i = 0; i < STEPS; i++) {
            add_gaussian(&noise, draws, MICROS_HERE, scale, 10.0 / (1 + 0.02 * i));
            if (i < 28) assert_true(isnan(noise_scale(&noise).scale));
        }
        NoiseScale found = noise_scale(&noise);
        if (isnan(found.scale)) continue;
        known++;
        sum += found.scale;
        square += (found.scale - scale) * (found.scale - scale);
        claimed += found.error;
    }
    sum /= known, square /= known, claimed /= known;
    print_message("scale %.0f: %d of %d known, mean %.4g, error %.3g, claimed %.3g\n", scale, known, RUNS,
                  sum, sqrt(square), claimed);
    assert_true(known > 0.95 * RUNS);
    assert_true(fabs(sum - scale) < 3.5 * claimed / sqrt(known));
    assert_true(sqrt(square) > 0.8 * claimed && sqrt(square) < 1.25 * claimed);
    free(draws);
}

/* With too few steps for such a scale there is no value, rather than a wrong one. */
static void noise_unknown(void **state) {
    Draws *draws = draws_new(6);
    int known = 0;
    for (int run = 0; run < 100; run++) {
        Noise noise = {0};
        for (int i = 0; i < 100; i++) add_gaussian(&noise, draws, 4, 3000, 1);
        known += isfinite(noise_scale(&noise).scale);
    }
    assert_int_equal(known, 0);
    free(draws);
}

static void efficiency_of_batches(void **state) {
    assert_true(noise_efficiency(100, 10, 100) == 0.55);
    assert_true(noise_efficiency(NAN, 8, 8) == 1);
    assert_true(isnan(noise_efficiency(NAN, 8, 16)));
    Noise none = {0};
    assert_true(isnan(noise_scale(&none).scale) && isnan(noise_scale(&none).error));
    noise_add(&none, 1, 4, 1, 4); /* a single micro-batch says nothing about the noise */
    noise_add(&none, NAN, 1, 1, 4);
    assert_true(none.steps == 0);
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
    static const char *const others[] = {"loss",        "grad_norm",
                                         "micro_norm",  "samples_per_s",
                                         "elapsed_s",   "mfu",
                                         "utilization", "tokens_per_s",
                                         "noise_scale", "noise_scale_error",
                                         "goodput",     "statistical_efficiency"};
    sum_of(line, others, 8);
    for (int i = 8; i < 12; i++) assert_non_null(json_object_get(line, others[i])); /* null is allowed */
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
        assert_true(number(entry, "sent_bytes") >= sent && number(entry, "sent_bytes") <= 1.02 * sent);
    }
    assert_int_equal(found, steps);
    /* The first checkpoint is saved during the second half; the last, after the last line. */
    assert_in_range(saves, 1, steps / 2);
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
    assert_non_null(json_object_get(summary, "noise_scale_error"));
    const json_t *efficiency = json_object_get(summary, "statistical_efficiency");
    if (json_is_number(efficiency))
        assert_true(fabs(number(summary, "goodput") /
                             (number(summary, "samples_per_s") * json_number_value(efficiency)) -
                         1) < 1e-9);
}

static void alone(void **state) {
    Shell *shell = *state;
    write_text(shell);
    assert_shell(shell, RUN "--steps 6 --eval-every 3 --save-every 3", 0, "");
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

/* Each of N ranks sends 2(N - 1)/N of the gradient bytes per step, and sketches of at most 2% of these. */
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
    const json_t *data = json_object_get(sent, "data");
    assert_int_equal(json_object_size(data), 2);
    assert_true(number(data, "all_reduce") == 4 * 2 * bytes);
    double sketches = number(data, "reduce_scatter");
    assert_true(number(json_object_get(rank, "comm_bytes"), "total") == 4 * bytes + sketches / 2);
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
        cmocka_unit_test(sketches_are_unbiased),
        cmocka_unit_test(noise_matches_examples),
        cmocka_unit_test(noise_above_batch),
        cmocka_unit_test(noise_unknown),
        cmocka_unit_test(efficiency_of_batches),
        cmocka_unit_test_setup_teardown(alone, shell_setup, shell_teardown),
        cmocka_unit_test_setup_teardown(replicas, shell_setup, shell_teardown),
        cmocka_unit_test_setup_teardown(failed, shell_setup, shell_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
