/* weft bench: profiles training steps, kernel by kernel. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "cli/launch.h"
#include "cli/train_options.h"
#include "compare/leaderboard.h"

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    BenchArgs *args = arguments;
    bool here;
    TRY(layout_enter(call, &args->train, false, &here));
    if (!here) return OK;
    args->train.config.report.log = launch_log(call);
    if (args->leaderboard) {
        Settings *config = &args->train.config;
        if (invocation_slot(call, "seq")->source == SOURCE_DEFAULT) config->model.seq = LEADERBOARD_SEQ;
        if (invocation_slot(call, "steps")->source == SOURCE_DEFAULT)
            config->training.steps = LEADERBOARD_STEPS;
        CLEANUP(json_decrefp) json_t *published = NULL;
        if (args->published) TRY(leaderboard_published(args->published, &published));
        LeaderboardSpec spec = {.train = *config,
                                .replicas = args->train.layout.dp,
                                .accumulate = args->accumulate,
                                .new_tokens = args->new_tokens,
                                .data = args->data,
                                .data_count = args->data_count,
                                .file = args->leaderboard};
        TRY(leaderboard_run(&spec, ret_result));
        if (published && json_object_set(*ret_result, "published", published)) return FAILED("out of memory");
        return OK;
    }
    return bench_run(&args->train.config, ret_result);
}

static int by_time(const void *a, const void *b) {
    double x = json_number_at(*(json_t *const *)a, "ms"), y = json_number_at(*(json_t *const *)b, "ms");
    return (x < y) - (x > y);
}

static void print_kernel(const json_t *kernel, double step_ms, double peak, FILE *out) {
    double ms = json_number_at(kernel, "ms"), gflops = json_number_at(kernel, "gflops"),
           calls = json_number_at(kernel, "calls");
    fprintf(out, "%-26s %7.0f %10.3f %6.1f%%", json_string_or(kernel, "name", "?"), calls, ms,
            step_ms > 0 ? 100 * ms / step_ms : 0);
    fprintf(out, " %9.1f %6.1f%% %8.1f\n", gflops, peak > 0 ? 100 * gflops / peak : 0,
            json_number_at(kernel, "gbytes_per_s"));
}

/* Kernels by decreasing time, then the rest of the step. */
static Status print_kernels(const json_t *result, FILE *out) {
    json_t *sorted[64];
    const json_t *list = json_object_get(result, "kernels");
    size_t count = json_array_size(list);
    double step_ms = json_number_at(result, "step_ms_measured"), sum = 0;
    if (count > COUNT_OF(sorted)) return FAILED("internal: too many kernels for the table (%zu)", count);
    for (size_t i = 0; i < count; i++) {
        sorted[i] = json_array_get(list, i);
        sum += json_number_at(sorted[i], "ms");
    }
    qsort(sorted, count, sizeof *sorted, by_time);
    fprintf(out, "%-26s %7s %10s %7s %9s %7s %8s\n", "kernel", "calls", "ms", "time", "GFLOP/s", "of peak",
            "GB/s");
    for (size_t i = 0; i < count; i++)
        print_kernel(sorted[i], step_ms, json_number_at(result, "peak_gflops"), out);
    fprintf(out, "%-26s %7s %10.3f %6.1f%%\n", "between kernels", "", step_ms - sum,
            step_ms > 0 ? 100 * (step_ms - sum) / step_ms : 0);
    return OK;
}

static void put_value(const json_t *value, FILE *out) {
    if (json_is_number(value))
        fprintf(out, " %12.4f", json_number_value(value));
    else
        fprintf(out, " %12s", "unknown");
}

static void show_leaderboard(const json_t *result, FILE *out) {
    const json_t *published = json_object_get(result, "published"), *value;
    const char *key;
    if (published) fprintf(out, "%-24s %12s %12s\n", "", "measured", "published");
    json_object_foreach((json_t *)result, key, value) {
        double other, own = json_number_value(value);
        if (value == published) continue;
        fprintf(out, "%-24s", key);
        put_value(value, out);
        if (published) put_value(json_object_get(published, key), out);
        if (json_is_number(value) && json_has_number(published, key, &other) && other != 0)
            fprintf(out, "  %+.1f%%", 100 * (own - other) / fabs(other));
        fputc('\n', out);
    }
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    if (((const BenchArgs *)call->config)->leaderboard) {
        show_leaderboard(result, out);
        return OK;
    }
    char text[FORMAT_SIZE];
    fprintf(out, "%s, %s parameters, batch %lld x %lld tokens, ", json_string_or(result, "model", "?"),
            format_count(text, json_number_at(result, "params_total")),
            (long long)json_int_at(result, "batch"), (long long)json_int_at(result, "seq"));
    size_t ranks = json_array_size(json_object_get(result, "ranks"));
    if (ranks > 1) fprintf(out, "%zu ranks x ", ranks);
    fprintf(out, "%lld thread%s, %s, %s kernels", (long long)json_int_at(result, "threads"),
            PLURAL(json_int_at(result, "threads")), json_string_or(result, "precision", "?"),
            json_string_or(result, "kernels_from", "?"));
    if (strcmp(json_string_or(result, "device", "?"), "cpu") == 0)
        fprintf(out, ", %s, %s (bf16: %s)", json_string_or(result, "isa", "?"),
                json_string_or(result, "blas", "?"), json_string_or(result, "bf16", "?"));
    fprintf(out, "\n\n");
    bool by_kernel = json_object_get(result, "kernels");
    if (by_kernel) TRY(print_kernels(result, out));
    fprintf(out, "%sstep %.1f ms (best %.1f ms), %s tokens/s", by_kernel ? "\n" : "",
            json_number_at(result, "step_ms"), json_number_at(result, "step_ms_best"),
            format_count(text, json_number_at(result, "tokens_per_s")));
    fprintf(out, ", peak memory %s\n", format_bytes(text, json_number_at(result, "peak_bytes")));
    if (!by_kernel) return OK;
    fprintf(out, "%.1f GFLOP/s, measured peak %.1f GFLOP/s: MFU %.0f%%\n", json_number_at(result, "gflops"),
            json_number_at(result, "peak_gflops"), 100 * json_number_at(result, "mfu"));
    if (json_number_at(result, "bubble") > 0)
        fprintf(out, "pipeline bubble %.1f%% of forward and backward\n",
                100 * json_number_at(result, "bubble"));
    return OK;
}

const Command command_bench = {
    .name = "bench",
    .summary = "profile a training step, kernel by kernel",
    .description = "Runs a few training steps on random tokens. For each kernel it shows calls and time "
                   "per step, FLOP/s in absolute terms and relative to the measured peak (that of a "
                   "large matrix multiplication), and memory bandwidth.",
    .positional = POSITIONAL("model"),
    .config_size = sizeof(BenchArgs),
    .groups = bench_groups,
    .examples =
        {{"Profile GPT-2", "weft bench gpt2 --seq 256 --batch 4"},
         {"Profile BERT on one thread", "weft bench --model bert-base --seq 384 --threads 1"},
         {"Leaderboard figures for generation and training, on a GPU",
          "weft bench --model gpt2-medium --seq 128 --steps 20 --device cuda --leaderboard board.json"}},
    .other_keys = true,
    .run = run,
    .show = show,
};
