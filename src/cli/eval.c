/* weft eval: loss and scores of models on data. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "cli/launch.h"
#include "cli/train_options.h"
#include "compare/models.h"
#include "data/reader.h"
#include "data/squad_answers.h"

typedef struct EvalArgs {
    EvalConfig config; /* must be first: the option tables use offsets from it */
    Layout layout;
    const char **against;
    int against_count;
} EvalArgs;

/* clang-format off */
static const Option table[] = {
    {OPT_TEXT("model", EvalConfig, settings.model.name, "DIR"), .per_rank = PER_RANK_PATH, .shown = "none; required unless --predictions is given",
     .help = "Checkpoint directory, or run directory (its newest checkpoint)."},
    {OPT_LIST("data", EvalConfig, settings.data.files, "FILE"), .per_rank = PER_RANK_PATH, .required = true, .help = "Data to evaluate on."},
    {OPT_CHOICE("format", EvalConfig, settings.data.format, "FORMAT", format_choices), .fallback = "auto",
     .old_choices = format_old_choices, .help = "Data format, as in 'weft train'."},
    {OPT_LIST("adapter", EvalConfig, settings.model.adapters, "DIR"), .one_each = true, .per_rank = PER_RANK_PATH, .shown = "none",
     .help = "Merge a PEFT adapter, or the newest of a run with --lora, into the weights; several are added up."},
    {OPT_TEXT("tokenizer", EvalConfig, settings.data.text.tokenizer, "DIR"), .per_rank = PER_RANK_PATH, .shown = "the model's own, else bytes",
     .help = "Tokenizer for text, if its files are not in the model's directory."},
    {OPT_TEXT("field", EvalConfig, settings.data.text.field, "NAME"), .fallback = "text",
     .help = "Field of rows (JSON, .csv, .tsv, Parquet) that contains the text."},
    {OPT_TEXT("text-field", EvalConfig, settings.data.text.text_field, "NAME"), .shown = "--field, or q in pairs",
     .help = "Column or field of rows with the text, as in 'weft train'."},
    {OPT_TEXT("pair-field", EvalConfig, settings.data.text.pair_field, "NAME"), .shown = "none, or a in pairs",
     .help = "Column or field with the second text of a pair."},
    {OPT_TEXT("label-field", EvalConfig, settings.data.text.label_field, "NAME"), .fallback = "label",
     .help = "Column or field with the label, for classifiers, or several (a,b,c), as in 'weft train'."},
    {OPT_CHOICE("documents", EvalConfig, settings.data.text.documents, "UNIT", documents_names), .fallback = "file",
     .help = "What counts as one document in text files: the file, a line, text between blank lines, or a "
             "WikiText article."},
    {OPT_FLAG("cross-document", EvalConfig, settings.data.text.no_cross_document), .fallback = "on", .inverted = true,
     .help = "Language models: documents in a sequence do not attend to one another, as in 'weft train'."},
    {OPT_ENUM("loss-on", EvalConfig, settings.data.text.loss_on, "WORDS", loss_on_names), .fallback = "assistant",
     .help = "Conversations: what to predict, as in 'weft train'."},
    {OPT_TEXT("chat-template", EvalConfig, settings.data.text.chat_template, "FILE"), .per_rank = PER_RANK_PATH,
     .shown = "the model's own", .help = "Conversations: Jinja template that makes text of them."},
    {OPT_FLAG("cache", EvalConfig, settings.data.text.no_cache), .fallback = "on", .inverted = true,
     .help = "Keep tokenized text in a temporary directory instead of the cache that later runs reuse."},
    {OPT_CHOICE("task", EvalConfig, settings.model.task, "TASK", task_choices), .fallback = "auto",
     .help = "Objective to evaluate; auto: the model's usual one."},
    {OPT_CHOICE("problem-type", EvalConfig, settings.model.problem_type, "TYPE", problem_choices), .fallback = "auto",
     .help = "What a classifier predicts, as in 'weft train', if its config.json has no problem_type."},
    {OPT_INT("seq", EvalConfig, settings.model.seq), .fallback = "0", RANGE(1, MAX_POSITIONS), .shown = "the model's own",
     .help = "Sequence length in tokens."},
    {OPT_TEXT("rope-scaling", EvalConfig, settings.model.rope_scaling, "KIND:FACTOR"), .shown = "the model's own",
     .help = "Extend the context, as in 'weft train'."},
    {OPT_INT("batch", EvalConfig, settings.run.micro_batch), .fallback = "4", RANGE(1, 1 << 20),
     .help = "Sequences per forward pass."},
    {OPT_INT("stride", EvalConfig, stride), .fallback = "0", AT_LEAST(1), .shown = "the sequence length",
     .help = "Language models: tokens between the starts of consecutive windows. A smaller stride gives "
             "each token more context but needs more windows."},
    {OPT_TEXT("out", EvalConfig, squad.out, "FILE"), .shown = "none",
     .help = "Also write the predictions, with their targets: .jsonl or .csv, a row each, as 'weft predict'. On SQuAD "
             "also a directory for predictions.json and, if questions may have no answer, null_odds.json, both also "
             "usable by the official script."},
    {OPT_INT("max-batches", EvalConfig, max_batches), .fallback = "0", AT_LEAST(0),
     .help = "Stop after N batches; 0: evaluate all data."},
    {OPT_CHOICE("device", EvalConfig, settings.device.name, "NAME", device_choices), .fallback = "cpu",
     .help = "Device: cpu, or cuda for NVIDIA GPUs, assigned round-robin to the ranks of a node."},
    {OPT_CHOICE("precision", EvalConfig, settings.device.precision, "TYPE", precision_choices), .shown = "fp32; bf16 on GPUs",
     .help = "Compute precision, as in 'weft train'."},
    {OPT_CHOICE("kernels", EvalConfig, settings.device.kernels, "NAME", kernel_choices), .shown = "the device's own",
     .help = "Kernels: the device's own, or the plain CPU reference implementation (ref)."},
    {OPT_INT("threads", EvalConfig, settings.device.threads), .per_rank = PER_RANK_ANY, .fallback = "0", RANGE(1, 4096),
     .shown = "OMP_NUM_THREADS, else all cores", .help = "CPU threads per rank."},
    {OPT_FLAG("quiet", EvalConfig, settings.report.quiet), .per_rank = PER_RANK_ANY, .help = "Do not warn about tensors that the model does not use."},
};

static const Option against_table[] = {
    {OPT_LIST("against", EvalArgs, against, "DIR"), .per_rank = PER_RANK_PATH, .shown = "none",
     .help = "Other models to compare on the same data, for example pruned or quantized ones: size on "
             "disk, peak memory, loss and throughput, relative to --model."},
};

static const Option squad_table[] = {
    {OPT_TEXT("predictions", EvalConfig, squad.predictions, "FILE"), .per_rank = PER_RANK_PATH, .shown = "none",
     .help = "Score these answers, {\"question id\": \"answer\"}, instead of running a model."},
    {OPT_TEXT("na-prob", EvalConfig, squad.na_prob, "FILE"), .per_rank = PER_RANK_PATH, .shown = "none",
     .help = "With --predictions: no-answer probabilities (or null odds) per question; also reports the "
             "best thresholds."},
    {OPT_FLOAT("na-prob-thresh", EvalConfig, squad.na_thresh), .fallback = "1", RANGE(-INFINITY, INFINITY),
     .help = "With --na-prob: above this value, an answer counts as no answer."},
    {OPT_FLAG("nbest", EvalConfig, squad.write_n_best),
     .help = "Also write nbest_predictions.json with all candidate answers."},
    {OPT_INT("n-best", EvalConfig, squad.n_best), .fallback = "20", RANGE(1, SQUAD_N_BEST_LIMIT),
     .help = "Number of start and end candidates per window, and of answers per question, to consider."},
    {OPT_INT("max-answer", EvalConfig, squad.max_answer), .fallback = "30", RANGE(1, INT32_MAX),
     .help = "Maximum answer length in tokens."},
    {OPT_FLOAT("null-threshold", EvalConfig, squad.null_threshold),
     .fallback = "0", RANGE(-INFINITY, INFINITY),
     .help = "Give no answer if the no-answer score exceeds the best answer's by more than this."},
    {OPT_INT("doc-stride", EvalConfig, settings.data.text.doc_stride), .fallback = "128", RANGE(1, INT32_MAX),
     .help = "Tokens between the starts of consecutive windows over a long context."},
    {OPT_INT("max-query", EvalConfig, settings.data.text.max_query), .fallback = "64", RANGE(1, INT32_MAX),
     .help = "Maximum tokens per question; longer questions are truncated."},
};

#define EVAL_AXIS(...) AXIS_OPTION(EvalArgs, __VA_ARGS__)
static const Option layout_table[] = {
    {OPT_INT("ranks", EvalArgs, layout.ranks), .fallback = "0", RANGE(1, 1 << 20),
     .shown = "what mpirun or srun started, else dp x tp x pp x cp",
     .help = "Number of ranks, as in 'weft train'."},
    HOST_OPTIONS(EvalArgs, layout.)
    MESH_AXES(EVAL_AXIS)
    EXPERT_OPTION(EvalArgs, layout.)
    {OPT_INT("zero", EvalArgs, config.settings.run.zero), .fallback = "0", RANGE(0, 3),
     .help = "ZeRO stage; 3 shards the parameters across replicas."},
    CONTEXT_OPTIONS(EvalArgs, layout., config.settings.run.)
    {OPT_FLAG("sequence-parallel", EvalArgs, config.settings.run.sequence),
     .help = "Split layer norms along the sequence across tensor-parallel ranks."},
};
/* clang-format on */

/* Joins the ranks and divides cores and GPUs among them, as train does. */
static Status enter(Invocation *call, EvalArgs *args, bool *ret_here) {
    TrainArgs train = {.config = args->config.settings, .layout = args->layout};
    TRY(layout_enter(call, &train, false, ret_here));
    args->config.settings = train.config;
    return OK;
}

/* ---- --against ---- */

static Status run_against(const EvalConfig *config, const char *const *against, int count,
                          json_t **ret_result) {
    if (!config->settings.model.name) return USAGE("--against requires --model DIR, the baseline");
    if (config->squad.out)
        return USAGE("--out saves the answers of a single model; remove --against or --out");
    if (config->settings.run.mesh && config->settings.run.mesh->world->size > 1)
        return USAGE(
            "--against supports only a single rank; with several ranks, evaluate one model at a time");
    return models_measure(config, against, count, ret_result);
}

/* A value and its relative difference from the first model's. */
static void show_cell(FILE *out, const json_t *row, const json_t *first, const char *key, bool bytes) {
    char text[FORMAT_SIZE], change[32] = "";
    double value, before;
    if (!json_has_number(row, key, &value)) {
        fprintf(out, "  %20s", "-");
        return;
    }
    if (bytes)
        format_bytes(text, value);
    else
        snprintf(text, sizeof text, "%.0f", value);
    if (row != first && json_has_number(first, key, &before) && before > 0)
        snprintf(change, sizeof change, "%+.1f%%", 100 * (value / before - 1));
    fprintf(out, "  %9s %10s", text, change);
}

/* Quality metrics; `unit` is the factor by which a value is multiplied for display. */
typedef struct Metric {
    const char *key, *title;
    double unit;
} Metric;

static const Metric metrics[] = {
    {"loss", "loss", 1}, {"exact", "exact", 1},           {"f1", "F1", 1},
    {"mcc", "MCC", 1},   {"accuracy", "accuracy %", 100}, {"pearson", "Pearson", 1}};
/* Those that are comparable between language models with different tokenizers. */
static const Metric byte_metrics[] = {{"bits_per_byte", "bits per byte", 1}};

/* The table's columns besides size and memory. */
typedef struct Columns {
    const Metric *metric;
    size_t count;
    const char *rate, *rate_title;
} Columns;

static Columns columns_of(const json_t *result, const json_t *first) {
    if (json_is_false(json_object_get(result, "same_tokenizer")))
        return (Columns){byte_metrics, COUNT_OF(byte_metrics), "bytes_per_s", "bytes/s"};
    if (json_object_get(first, "tokens_per_s"))
        return (Columns){metrics, COUNT_OF(metrics), "tokens_per_s", "tokens/s"};
    return (Columns){metrics, COUNT_OF(metrics), "samples_per_s", "sequences/s"};
}

static void show_score(FILE *out, const json_t *row, const json_t *first, const Metric *metric) {
    char change[32] = "";
    double value, before, unit = metric->unit;
    if (!json_has_number(first, metric->key, &before)) return;
    if (!json_has_number(row, metric->key, &value)) {
        fprintf(out, "  %19s", "-");
        return;
    }
    if (row != first) snprintf(change, sizeof change, "%+.4f", unit * (value - before));
    fprintf(out, "  %9.4f %9s", unit * value, change);
}

static void show_head(FILE *out, const json_t *first, int widest, const Columns *columns) {
    fprintf(out, "%-*s  %20s  %20s", widest, "model", "size on disk", "peak memory");
    for (size_t i = 0; i < columns->count; i++)
        if (json_object_get(first, columns->metric[i].key)) fprintf(out, "  %19s", columns->metric[i].title);
    fprintf(out, "  %20s\n", columns->rate_title);
}

static void show_against(const json_t *result, FILE *out) {
    const json_t *models = json_object_get(result, "models"), *first = json_array_get(models, 0);
    Columns columns = columns_of(result, first);
    size_t index, widest = strlen("model");
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)models, index, row) {
        size_t length = strlen(json_string_at(row, "model"));
        if (length > widest) widest = length;
    }
    show_head(out, first, (int)widest, &columns);
    json_array_foreach((json_t *)(uintptr_t)models, index, row) {
        fprintf(out, "%-*s", (int)widest, json_string_at(row, "model"));
        show_cell(out, row, first, "size_bytes", true);
        show_cell(out, row, first, "peak_bytes", true);
        for (size_t i = 0; i < columns.count; i++) show_score(out, row, first, &columns.metric[i]);
        show_cell(out, row, first, columns.rate, false);
        fputc('\n', out);
    }
}

/* ---- a single model ---- */

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    EvalArgs *args = arguments;
    bool here;
    TRY(enter(call, args, &here));
    if (!here) return OK;
    args->config.settings.report.log = launch_log(call);
    if (invocation_given(call, "na-prob-thresh") && !args->config.squad.na_prob)
        return USAGE("--na-prob-thresh requires --na-prob");
    if (args->against_count)
        return run_against(&args->config, args->against, args->against_count, ret_result);
    return eval_run(&args->config, ret_result);
}

static void show_part(const json_t *result, const char *what, const char *prefix, FILE *out) {
    char exact[32], f1[32], total[32];
    snprintf(exact, sizeof exact, "%sexact", prefix);
    snprintf(f1, sizeof f1, "%sf1", prefix);
    snprintf(total, sizeof total, "%stotal", prefix);
    double value;
    if (!json_has_number(result, exact, &value)) return;
    fprintf(out, "%-18s exact %6.2f", what, value);
    if (json_has_number(result, f1, &value)) fprintf(out, "  F1 %6.2f", value);
    fprintf(out, "  (%lld question%s)\n", (long long)json_int_at(result, total),
            PLURAL(json_int_at(result, total)));
}

static void show_squad(const json_t *result, FILE *out) {
    double best, at;
    show_part(result, "all questions", "", out);
    show_part(result, "with answer", "HasAns_", out);
    show_part(result, "without answer", "NoAns_", out);
    if (json_has_number(result, "best_exact", &best) && json_has_number(result, "best_exact_thresh", &at))
        fprintf(out, "%-18s exact %6.2f  at %.4g\n", "best threshold", best, at);
    if (json_has_number(result, "best_f1", &best) && json_has_number(result, "best_f1_thresh", &at))
        fprintf(out, "%-18s F1    %6.2f  at %.4g\n", "", best, at);
    if (json_has_number(result, "no_answer_baseline", &best))
        fprintf(out, "%-18s exact %6.2f\n", "never answering", best);
    if (json_int_at(result, "missing"))
        fprintf(out, "not counted: %lld question%s without a prediction\n",
                (long long)json_int_at(result, "missing"), PLURAL(json_int_at(result, "missing")));
}

static const char *correlation_text(const json_t *score, const char *key, char text[16]) {
    double value;
    if (!json_has_number(score, key, &value)) return "undefined";
    snprintf(text, 16, "%.4f", value);
    return text;
}

/* Scores of a regression, and those of each output if there are several. */
static void show_regression(const json_t *result, FILE *out) {
    const json_t *outputs = json_object_get(result, "outputs");
    char pearson[16], spearman[16];
    double mse;
    if (!json_has_number(result, "mse", &mse)) return;
    fprintf(out, "MSE %.6g, Pearson %s, Spearman %s%s\n", mse, correlation_text(result, "pearson", pearson),
            correlation_text(result, "spearman", spearman), outputs ? " (means over the outputs)" : "");
    if (outputs) fprintf(out, "%-20s %12s %9s %9s\n", "output", "MSE", "Pearson", "Spearman");
    for (size_t i = 0; i < json_array_size(outputs); i++) {
        const json_t *score = json_array_get(outputs, i);
        json_has_number(score, "mse", &mse);
        fprintf(out, "%-20.20s %12.6g %9s %9s\n", json_string_at(score, "label"), mse,
                correlation_text(score, "pearson", pearson), correlation_text(score, "spearman", spearman));
    }
}

/* Scores per class, then the confusion matrix if it fits on a screen. */
static void show_classes(const json_t *result, FILE *out) {
    const json_t *classes = json_object_get(result, "classes"),
                 *matrix = json_object_get(result, "confusion");
    double accuracy, macro, micro, mcc;
    if (!json_has_number(result, "accuracy", &accuracy) || !json_has_number(result, "f1_macro", &macro))
        return;
    if (json_has_number(result, "f1_micro", &micro))
        fprintf(out, "exact-match accuracy %.2f%%, micro F1 %.4f, macro F1 %.4f\n", 100 * accuracy, micro,
                macro);
    else if (json_has_number(result, "mcc", &mcc))
        fprintf(out, "accuracy %.2f%%, macro F1 %.4f, MCC %.4f\n", 100 * accuracy, macro, mcc);
    size_t at, column, count = json_array_size(classes);
    json_t *value;
    fprintf(out, "%-20s %9s %9s %9s %9s\n", "label", "precision", "recall", "F1", "count");
    json_array_foreach(classes, at, value) {
        double number[3] = {0};
        json_has_number(value, "precision", &number[0]);
        json_has_number(value, "recall", &number[1]);
        json_has_number(value, "f1", &number[2]);
        fprintf(out, "%-20.20s %9.4f %9.4f %9.4f %9lld\n", json_string_at(value, "label"), number[0],
                number[1], number[2], (long long)json_int_at(value, "count"));
    }
    if (!matrix || count > 12) return;
    fprintf(out, "actual \\ predicted   ");
    json_array_foreach(classes, at, value) fprintf(out, " %8.8s", json_string_at(value, "label"));
    fputc('\n', out);
    json_t *row;
    json_array_foreach(matrix, at, row) {
        fprintf(out, "%-20.20s", json_string_at(json_array_get(classes, at), "label"));
        json_array_foreach(row, column, value) fprintf(out, " %8lld", (long long)json_integer_value(value));
        fputc('\n', out);
    }
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)call;
    char text[FORMAT_SIZE];
    double number;
    if (json_object_get(result, "models")) {
        show_against(result, out);
        return OK;
    }
    if (json_object_get(result, "exact")) show_squad(result, out);
    if (!json_has_number(result, "loss", &number)) return OK;
    fprintf(out, "loss %.6f", number);
    if (json_has_number(result, "perplexity", &number)) fprintf(out, ", perplexity %.4g", number);
    if (json_has_number(result, "tokens", &number))
        fprintf(out, " (%s token%s)", format_count(text, number), PLURAL(number));
    fputc('\n', out);
    if (json_has_number(result, "word_perplexity", &number)) {
        int64_t words = json_int_at(result, "words");
        fprintf(out, "word-level perplexity %.4g (%s word%s)", number, format_count(text, (double)words),
                PLURAL(words));
        if (json_has_number(result, "bits_per_byte", &number)) fprintf(out, ", %.4f bits per byte", number);
        fputc('\n', out);
    }
    const char *name;
    json_t *part;
    json_object_foreach(json_object_get(result, "parts"), name, part) {
        double accuracy;
        if (!json_has_number(part, "loss", &number) || !json_has_number(part, "accuracy", &accuracy))
            continue;
        fprintf(out, "%-13s loss %.6f, accuracy %.2f%% of %s\n", name, number, 100 * accuracy,
                format_count(text, (double)json_int_at(part, "count")));
    }
    show_regression(result, out);
    show_classes(result, out);
    return OK;
}

const Command command_eval = {
    .name = "eval",
    .summary = "measure the loss of a model on data",
    .description = "Reports the mean loss per token. For language models it adds perplexity per token and "
                   "per word; words are counted as in WikiText: separated by spaces, and each end of line "
                   "counts as a word.\n"
                   "On SQuAD, the model extracts answers, which are scored by exact match and F1 over all "
                   "questions and over those with and without an answer. Scores match those of the "
                   "official evaluate-v2.0.py to the last digit. --predictions scores a file of answers "
                   "without a model. Files may be gzipped.",
    .positional = POSITIONAL("model", "data"),
    .config_size = sizeof(EvalArgs),
    .groups = GROUPS(OPTION_GROUP("Options", table, 0), OPTION_GROUP("Comparison", against_table, 0),
                     OPTION_GROUP("SQuAD", squad_table, 0), OPTION_GROUP("Layout", layout_table, 0)),
    .examples = {{"Loss of a trained model on other text", "weft eval runs/first other.txt"},
                 {"Cost and benefit of quantization",
                  "weft eval --model runs/first --against first-int8 first-int4 --data other.txt"},
                 {"Accuracy, F1 and confusion matrix of a classifier",
                  "weft eval --model runs/reviews --data test.csv --text-field review --label-field stars"},
                 {"Correlations of a regression with two outputs",
                  "weft eval --model runs/mood --data test.csv --label-field valence,arousal"},
                 {"Answer the SQuAD questions, score the answers and save them",
                  "weft eval --task squad --model runs/squad --data dev-v2.0.json --out answers"},
                 {"Evaluate a model that is too large for one device",
                  "weft eval --model runs/large --data wiki.test.txt --ranks 4 --tp 4"},
                 {"Score existing SQuAD predictions",
                  "weft eval --task squad --data dev-v2.0.json --predictions predictions.json"}},
    .run = run,
    .show = show,
};
