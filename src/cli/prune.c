/* weft prune: removes the least important weights, rows or heads of a checkpoint, at once or in rounds with
 * training in between. */
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "cli/launch.h"
#include "cli/show.h"
#include "cli/train_options.h"
#include "report/compressed.h"

static bool uses_kind(const PruneArgs *args, const char *kind) {
    return !strcmp(args->prune.kind, kind) || (args->prune.also && !strcmp(args->prune.also, kind));
}

static Status check_score(const Invocation *call, const PruneArgs *args) {
    char label[LABEL_SIZE];
    if (args->prune.score && !strcmp(args->prune.score, "product") && uses_kind(args, "weights"))
        return USAGE("%s product: a single weight has no output weights; use l2 or gradient",
                     invocation_label(call, "score", label));
    if (args->prune.score && !strcmp(args->prune.score, "gradient") && !args->train.config.data.files_count)
        return USAGE("%s gradient requires --data FILE, to compute gradients on",
                     invocation_label(call, "score", label));
    if (args->prune.also && !strcmp(args->prune.also, args->prune.kind))
        return USAGE("%s %s: --kind names it already; choose a different kind",
                     invocation_label(call, "also", label), args->prune.also);
    if (args->prune.also && args->prune.beside)
        return USAGE("%s cannot be combined with --also; use one or the other",
                     invocation_label(call, "beside", label));
    return OK;
}

static Status check(const Invocation *call, const PruneArgs *args) {
    static const char *const needs_data[] = {"rounds", "steps-per-round", "ramp", "resume", "beside", "also"};
    const Settings *config = &args->train.config;
    char label[LABEL_SIZE];
    bool rows = uses_kind(args, "rows") || uses_kind(args, "all-rows");
    if (args->prune.global && args->prune.per_matrix)
        return USAGE("%s cannot be combined with --global; use one or the other",
                     invocation_label(call, "per-matrix", label));
    TRY(check_score(call, args));
    if (!uses_kind(args, "weights") && (args->prune.global || args->prune.per_matrix))
        return USAGE("%s applies only to --kind weights; otherwise, every layer loses the same number of %s",
                     invocation_label(call, args->prune.global ? "global" : "per-matrix", label),
                     args->prune.kind);
    for (size_t i = 0; i < COUNT_OF(needs_data); i++)
        if (!config->data.files_count && invocation_given(call, needs_data[i]))
            return USAGE("%s requires --data FILE, to train between rounds",
                         invocation_label(call, needs_data[i], label));
    if (rows && args->prune.row_multiple % args->train.layout.tp)
        return USAGE("%s %lld: expected a multiple of --tp %lld",
                     invocation_label(call, "row-multiple", label), (long long)args->prune.row_multiple,
                     (long long)args->train.layout.tp);
    if (config->training.min_lr > config->training.lr)
        return USAGE("%s %g: must not exceed the learning rate, %g", invocation_label(call, "min-lr", label),
                     config->training.min_lr, config->training.lr);
    if (path_exists(config->model.name) && !path_is_dir(config->model.name))
        return USAGE("%s %s: expected a checkpoint directory", invocation_label(call, "model", label),
                     config->model.name);
    return OK;
}

/* The options that apply to the training of each round: all but those of the pruning itself. */
static Status round_settings(const Invocation *call, json_t **ret_settings) {
    TRY(invocation_json(call, ret_settings));
    for (size_t i = 0; i < prune_groups[0].count; i++)
        json_object_del(*ret_settings, prune_groups[0].options[i].name);
    return OK;
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    PruneArgs *args = arguments;
    CLEANUP(json_decrefp) json_t *settings = NULL;
    PruneSpec *spec = &args->prune;
    bool here, stopped = false;
    TRY(check(call, args));
    args->train.config.report.log = stderr;
    spec->tp = args->train.layout.tp;
    spec->train = args->train.config;
    if (args->train.config.data.files_count == 0) return prune_once(spec, ret_result);
    args->train.config.fault.timeout = -1; /* it has no such option */
    TRY(layout_enter(call, &args->train, true, &here));
    if (!here) return OK;
    TRY(round_settings(call, &settings));
    spec->train = args->train.config;
    spec->train.report.log = launch_log(call);
    spec->train.run.stop = stop_catch(SA_RESTART);
    spec->train.fault.work = stop_work();
    spec->train.training.warmup_file = warmup_file(call);
    spec->world = call->world;
    spec->settings = settings;
    spec->study = call->study;
    Status status =
        spec->also ? prune_both(spec, ret_result, &stopped) : prune_rounds(spec, NULL, ret_result, &stopped);
    if (status_stopped(status)) {
        bool saved = status_exit_code(status) == STATUS_SAVED;
        status_free(status);
        if (saved) return STOPPED_SAVED("stopped early; repeat the command with --resume to continue");
        return STOPPED("stopped early; repeat the command with --resume to continue");
    }
    TRY(status);
    if (!stopped) return call->world->rank == 0 ? page_write_in(spec->train.ckpt.out, spec->beside) : OK;
    call->incomplete = true;
    call->exit_code = STATUS_SAVED;
    if (call->world->rank == 0)
        fprintf(stderr, "weft: stopped early; repeat the command with --resume to continue\n");
    return OK;
}

static void show_once(const PruneArgs *args, const json_t *row, FILE *out) {
    char count[FORMAT_SIZE];
    double sparsity = 0;
    json_has_number(row, "sparsity", &sparsity);
    fprintf(out, "%s: %.2f%% of %s pruned, %s parameters\n", args->train.config.ckpt.out, 100 * sparsity,
            !strcmp(args->prune.kind, "all-rows") ? "all rows" : args->prune.kind,
            format_count(count, (double)json_int_at(row, "params_total")));
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const PruneArgs *args = call->config;
    CLEANUP(compressed_done) Compressed of = {0};
    TRY(compressed_add_pruning(&of, result, NULL));
    if (!args->train.config.data.files_count)
        show_once(args, json_array_get(json_object_get(result, "rounds"), 0), out);
    else
        TRY(compressed_show(&of, out));
    show_study(call->study, out);
    if (args->train.config.data.files_count && !call->incomplete)
        fprintf(out, "\nwrote %s/report.html\n", args->train.config.ckpt.out);
    return OK;
}

const Command command_prune = {
    .name = "prune",
    .summary = "prune weights, rows or heads of a model",
    .description =
        "Pruned weights are set to zero and stay zero in training; pruned feed-forward rows and attention "
        "heads are removed from the matrices. --kind all-rows also zeroes rows of the attention output and "
        "feed-forward down matrices, which cannot be removed. Embeddings, norms and output heads are not "
        "pruned. The result is a Hugging Face checkpoint; transformers 5 and later reject pruned heads.\n\n"
        "With --data, pruning.json has one entry per round; round 0 is the baseline, trained just as long "
        "without pruning. report.html plots and tabulates the rounds, as 'weft report' does. The conclusion "
        "says what pruning cost, where the loss rises sharply and how much time it saved.",
    .positional = POSITIONAL("model", "out"),
    .config_size = sizeof(PruneArgs),
    .groups = prune_groups,
    .examples = {{"Prune 80% of the weights", "weft prune --model gpt2 --out sparse --amount 0.8"},
                 {"Compare weights with rows of all matrices: validation loss and step time by share pruned",
                  "weft prune --model gpt2 --out curves --kind weights --also all-rows --amount 0.9 --rounds "
                  "9 --ramp "
                  "even "
                  "--data text.txt"},
                 {"Prune half of the feed-forward neurons in five rounds of pruning and training",
                  "weft prune --model gpt2 --out smaller --kind rows --amount 0.5 --rounds 5 --data text.txt "
                  "--steps-per-round 200 --lr 5e-5"}},
    .recipe = RECIPE_CONFIG,
    .run = run,
    .show = show,
};
