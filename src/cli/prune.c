/* weft prune: removes the least important weights, rows or heads of a checkpoint, at once or in rounds with
 * training in between. */
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/progress.h"
#include "checkpoint/checkpoint.h"
#include "cli/prune.h"
#include "cli/show.h"

static bool uses_kind(const PruneArgs *args, const char *kind) {
    return !strcmp(args->kind, kind) || (args->also && !strcmp(args->also, kind));
}

static Status check_score(const Invocation *call, const PruneArgs *args) {
    char label[LABEL_SIZE];
    if (args->score && !strcmp(args->score, "product") && uses_kind(args, "weights"))
        return USAGE("%s product: a single weight has no output weights; use l2 or gradient",
                     invocation_label(call, "score", label));
    if (args->score && !strcmp(args->score, "gradient") && !args->train.config.data_count)
        return USAGE("%s gradient requires --data FILE, to compute gradients on",
                     invocation_label(call, "score", label));
    if (args->also && !strcmp(args->also, args->kind))
        return USAGE("%s %s: expected another kind than --kind", invocation_label(call, "also", label),
                     args->also);
    if (args->also && args->beside)
        return USAGE("%s cannot be combined with --also; use one or the other",
                     invocation_label(call, "beside", label));
    return OK;
}

static Status check(const Invocation *call, const PruneArgs *args) {
    static const char *const needs_data[] = {"rounds", "steps-per-round", "ramp", "resume", "beside", "also"};
    const TrainConfig *config = &args->train.config;
    char label[LABEL_SIZE];
    bool rows = uses_kind(args, "rows") || uses_kind(args, "all-rows");
    if (args->global && args->per_matrix)
        return USAGE("%s cannot be combined with --global; use one or the other",
                     invocation_label(call, "per-matrix", label));
    TRY(check_score(call, args));
    if (!uses_kind(args, "weights") && (args->global || args->per_matrix))
        return USAGE("%s applies only to --kind weights; otherwise, every layer loses the same number of %s",
                     invocation_label(call, args->global ? "global" : "per-matrix", label), args->kind);
    for (size_t i = 0; i < COUNT_OF(needs_data); i++)
        if (!config->data_count && invocation_given(call, needs_data[i]))
            return USAGE("%s requires --data FILE, to train between rounds",
                         invocation_label(call, needs_data[i], label));
    if (rows && args->row_multiple % args->train.layout.tp)
        return USAGE("%s %lld: expected a multiple of --tp %lld",
                     invocation_label(call, "row-multiple", label), (long long)args->row_multiple,
                     (long long)args->train.layout.tp);
    if (config->min_lr > config->lr)
        return USAGE("%s %g: must not exceed the learning rate, %g", invocation_label(call, "min-lr", label),
                     config->min_lr, config->lr);
    if (path_exists(config->model) && !path_is_dir(config->model))
        return USAGE("%s %s: expected a checkpoint directory", invocation_label(call, "model", label),
                     config->model);
    return OK;
}

/* Without training: --out becomes the pruned checkpoint. */
static Status prune_once(const PruneArgs *args, json_t **ret_result) {
    CLEANUP(model_dir_done) ModelDir source = {0};
    CLEANUP(mem_freep) char *path = NULL;
    const char *out = args->train.config.out;
    PruneState dense, state;
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(hf_save_check(out));
    TRY(progress_new_phase(&progress, stderr, "pruning", 0, args->train.config.quiet));
    TRY(model_dir_open(&source, args->train.config.model));
    const char *from = source.path;
    TRY(prune_model(args, from, 0, NULL, NULL, &dense));
    TRY(prune_check_amount(args, &dense));
    TRY(prune_model(args, from, args->amount, &dense, out, &state));
    CLEANUP(json_decrefp)
    json_t *result = json_pack("{s:{s:s, s:s, s:s?, s:f, s:s}, s:[{s:f, s:I, s:I, s:I, s:I}]}", "settings",
                               "model", from, "kind", args->kind, "score", args->score, "amount",
                               args->amount, "scope", args->per_matrix ? "per-matrix" : "global", "rounds",
                               "sparsity", prune_sparsity(args, &state, &dense), "params_total",
                               (json_int_t)state.params, "inner", (json_int_t)state.inner, "heads",
                               (json_int_t)state.heads, "zero_rows", (json_int_t)state.zero_rows);
    if (!result) return FAILED("out of memory while writing the result");
    TRY(path_join(&path, out, "pruning.json"));
    TRY(json_write_file(path, result));
    *ret_result = json_incref(result);
    return OK;
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    PruneArgs *args = arguments;
    bool here;
    TRY(check(call, args));
    if (args->train.config.data_count == 0) return prune_once(args, ret_result);
    TRY(layout_enter(call, &args->train, true, &here));
    if (!here) return OK;
    args->train.config.stop = stop_catch(SA_RESTART);
    args->train.config.work = stop_work();
    args->train.config.timeout = -1;
    args->train.config.log = stderr;
    args->train.config.warmup_file = warmup_file(call);
    Status status =
        args->also ? prune_both(call, args, ret_result) : prune_rounds(call, args, NULL, ret_result);
    if (status_stopped(status)) {
        bool saved = status_exit_code(status) == STATUS_SAVED;
        status_free(status);
        if (saved) return STOPPED_SAVED("stopped early; repeat the command with --resume to continue");
        return STOPPED("stopped early; repeat the command with --resume to continue");
    }
    TRY(status);
    if (call->incomplete) call->exit_code = STATUS_SAVED;
    if (call->incomplete && call->world->rank == 0)
        fprintf(stderr, "weft: stopped early; repeat the command with --resume to continue\n");
    return OK;
}

static void show_cell(FILE *out, const json_t *row, const char *key, int width, int digits) {
    double number;
    if (json_has_number(row, key, &number))
        fprintf(out, " %*.*f", width, digits, number);
    else
        fprintf(out, " %*s", width, "-");
}

static void show_rounds(const json_t *result, FILE *out) {
    size_t index;
    json_t *row;
    fprintf(out, "round  pruned %%  parameters  loss pruned  loss trained   ms/step  tokens/s\n");
    json_array_foreach(json_object_get(result, "rounds"), index, row) {
        char count[FORMAT_SIZE];
        double sparsity = 0;
        json_has_number(row, "sparsity", &sparsity);
        format_count(count, (double)json_int_at(row, "params_total"));
        fprintf(out, "%5zu  %8.2f  %10s", index, 100 * sparsity, count);
        show_cell(out, row, "val_loss_pruned", 12, 4);
        show_cell(out, row, "val_loss", 13, 4);
        show_cell(out, row, "step_ms", 10, 2);
        show_cell(out, row, "tokens_per_s", 9, 0);
        fputc('\n', out);
    }
}

static void show_once(const PruneArgs *args, const json_t *row, FILE *out) {
    char count[FORMAT_SIZE];
    double sparsity = 0;
    json_has_number(row, "sparsity", &sparsity);
    fprintf(out, "%s: %.2f%% of %s pruned, %s parameters\n", args->train.config.out, 100 * sparsity,
            !strcmp(args->kind, "all-rows") ? "all rows" : args->kind,
            format_count(count, (double)json_int_at(row, "params_total")));
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const PruneArgs *args = call->config;
    const json_t *kinds = json_object_get(result, "kinds"), *kind;
    const json_t *sentences = json_object_get(json_object_get(result, "conclusion"), "text"), *sentence;
    size_t index;
    if (!args->train.config.data_count)
        show_once(args, json_array_get(json_object_get(result, "rounds"), 0), out);
    else if (!kinds)
        show_rounds(result, out);
    json_array_foreach(kinds, index, kind) {
        fprintf(out, "%s%s\n", index ? "\n" : "", json_string_at(json_object_get(kind, "settings"), "kind"));
        show_rounds(kind, out);
    }
    json_array_foreach(sentences, index, sentence)
        fprintf(out, "%s%s\n", index ? "" : "\n", json_string_value(sentence));
    show_study(call->study, out);
    return OK;
}

static const Example examples[] = {
    {"Prune 80% of the weights", "weft prune --model gpt2 --out sparse --amount 0.8"},
    {"Compare weights with rows of all matrices: validation loss and step time by share pruned",
     "weft prune --model gpt2 --out curves --kind weights --also all-rows --amount 0.9 --rounds 9 --ramp "
     "even "
     "--data text.txt"},
    {"Prune half of the feed-forward neurons in five rounds of pruning and training",
     "weft prune --model gpt2 --out smaller --kind rows --amount 0.5 --rounds 5 --data text.txt "
     "--steps-per-round 200 --lr 5e-5"},
};

const Command command_prune = {
    .name = "prune",
    .summary = "prune weights, rows or heads of a model",
    .description =
        "Pruned weights are set to zero and stay zero in training; pruned feed-forward rows and attention "
        "heads are removed from the matrices. --kind all-rows also zeroes rows of the attention output and "
        "feed-forward down matrices, which cannot be removed. Embeddings, norms and output heads are not "
        "pruned. The result is a Hugging Face checkpoint; transformers 5 and later reject pruned heads.\n\n"
        "With --data, pruning.json has one entry per round; round 0 is the baseline, trained just as long "
        "without pruning. If gnuplot is installed, loss.svg and time.svg plot the rounds. The conclusion "
        "says what pruning cost, where the loss rises sharply and how much time it saved.",
    .positional = POSITIONAL("model", "out"),
    .config_size = sizeof(PruneArgs),
    .groups = prune_groups,
    .group_count = PRUNE_GROUPS,
    .examples = examples,
    .example_count = COUNT_OF(examples),
    .recipe = RECIPE_CONFIG,
    .run = run,
    .show = show,
};
