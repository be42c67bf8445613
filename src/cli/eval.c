/* weft eval: the loss of a model over data, without training. */
#include <math.h>

#include "base/format.h"
#include "cli/eval_against.h"
#include "cli/show.h"
#include "cli/train_options.h"
#include "data/reader.h"
#include "data/squad_answers.h"

typedef struct EvalArgs {
    EvalConfig config; /* first: the tables' places are in it */
    Layout layout;
    const char **against;
    int against_count;
} EvalArgs;

/* clang-format off */
static const Option table[] = {
    {OPT_TEXT("model", EvalConfig, model, "DIR"), .shown = "none, with --predictions",
     .help = "A checkpoint directory, or a run's directory for its newest checkpoint."},
    {OPT_LIST("data", EvalConfig, data, "FILE"), .required = true, .help = "What to evaluate on."},
    {OPT_CHOICE("format", EvalConfig, format, "FORMAT", format_choices), .fallback = "auto",
     .help = "How files are read, as in train."},
    {OPT_TEXT("tokenizer", EvalConfig, text.tokenizer, "DIR"), .shown = "the model's own, else bytes",
     .help = "The tokenizer for text, where none lies beside the model."},
    {OPT_TEXT("field", EvalConfig, text.field, "NAME"), .fallback = "text",
     .help = "The field of a JSON line that holds the text."},
    {OPT_TEXT("text-field", EvalConfig, text.text_field, "NAME"), .shown = "--field, or q of pairs",
     .help = "The field of .csv, .tsv or .jsonl rows that holds the text, as in train."},
    {OPT_TEXT("pair-field", EvalConfig, text.pair_field, "NAME"), .shown = "none, or a of pairs",
     .help = "The field that holds a second text."},
    {OPT_TEXT("label-field", EvalConfig, text.label_field, "NAME"), .fallback = "label",
     .help = "The field that holds the label, for a model that classifies."},
    {OPT_CHOICE("documents", EvalConfig, text.documents, "WHAT", documents_names), .fallback = "file",
     .help = "What a document is in text files: the whole file, each line, what lies between blank lines, or "
             "an article of WikiText, from title to title."},
    {OPT_FLAG("cache", EvalConfig, text.no_cache), .fallback = "on", .inverted = true,
     .help = "Prepare text in a temporary directory, not where later runs would find it."},
    {OPT_CHOICE("task", EvalConfig, task, "TASK", task_choices), .fallback = "auto",
     .help = "What to measure; auto takes what the model is made for."},
    {OPT_INT("seq", EvalConfig, seq), .fallback = "0", .low = 1, .high = INFINITY, .shown = "the model's own",
     .help = "Tokens in a sequence."},
    {OPT_INT("batch", EvalConfig, batch), .fallback = "4", .low = 1, .high = 1 << 20,
     .help = "Sequences run at once."},
    {OPT_INT("stride", EvalConfig, stride), .fallback = "0", .low = 1, .high = INFINITY,
     .shown = "a whole sequence",
     .help =
         "Tokens from one window over a text to the next, for language models: with a smaller stride each "
         "token is predicted from more of what comes before it, at the cost of more windows."},
    {OPT_INT("max-batches", EvalConfig, max_batches), .fallback = "0", .low = 0, .high = INFINITY,
     .help = "Stop after N batches; 0 evaluates all of the data."},
    {OPT_CHOICE("device", EvalConfig, device, "NAME", device_choices), .fallback = "cpu",
     .help =
         "Where to compute: the CPU, or NVIDIA's GPUs, of which ranks take those of their machine in turn."},
    {OPT_CHOICE("precision", EvalConfig, precision, "TYPE", precision_choices),
     .shown = "fp32, and bf16 on a GPU", .help = "Number format of the computation, as in train."},
    {OPT_CHOICE("kernels", EvalConfig, kernels, "NAME", kernel_choices), .shown = "the device's own",
     .help = "Kernels to compute with: the device's own, or on the CPU the plain reference (ref)."},
    {OPT_INT("threads", EvalConfig, threads), .fallback = "0", .low = 1, .high = 4096, .shown = "all cores",
     .help = "Threads to compute with; without it, OMP_NUM_THREADS is heeded."},
    {OPT_FLAG("quiet", EvalConfig, quiet), .help = "Do not name tensors that the model has no place for."},
};

static const Option against_table[] = {
    {OPT_LIST("against", EvalArgs, against, "DIR"), .shown = "none",
     .help = "Other models, such as pruned or quantized ones, over the same data: size on disk, peak memory, "
             "loss and tokens a second side by side, with the differences from --model."},
};

static const Option squad_table[] = {
    {OPT_TEXT("predictions", EvalConfig, squad.predictions, "FILE"), .shown = "none",
     .help = "Score these answers, {\"question id\": \"answer\"}, instead of a model's."},
    {OPT_TEXT("na-prob", EvalConfig, squad.na_prob, "FILE"), .shown = "none",
     .help = "With --predictions: how likely each question is to have no answer (probabilities, or null "
             "odds); the best thresholds are looked for."},
    {OPT_FLOAT("na-prob-thresh", EvalConfig, squad.na_thresh), .fallback = "1", .low = -INFINITY,
     .high = INFINITY, .help = "With --na-prob: above this number an answer counts as none."},
    {OPT_TEXT("out", EvalConfig, squad.out, "DIR"), .shown = "none",
     .help = "Where to write the model's answers: predictions.json and, where questions may have none, "
             "null_odds.json, for this program or the official script to score."},
    {OPT_FLAG("nbest", EvalConfig, squad.write_n_best),
     .help = "Also write nbest_predictions.json, all answers that were looked at."},
    {OPT_INT("n-best", EvalConfig, squad.n_best), .fallback = "20", .low = 1, .high = SQUAD_N_BEST_LIMIT,
     .help = "Likeliest starts and ends of a window, and answers of a question, to look at."},
    {OPT_INT("max-answer", EvalConfig, squad.max_answer), .fallback = "30", .low = 1, .high = INT32_MAX,
     .help = "Most tokens of an answer."},
    {OPT_FLOAT("null-threshold", EvalConfig, squad.null_threshold), .fallback = "0", .low = -INFINITY,
     .high = INFINITY,
     .help = "No answer is given where its score exceeds that of the best answer by more than this."},
    {OPT_INT("doc-stride", EvalConfig, text.doc_stride), .fallback = "128", .low = 1, .high = INT32_MAX,
     .help = "Tokens from one window of a long context to the next."},
    {OPT_INT("max-query", EvalConfig, text.max_query), .fallback = "64", .low = 1, .high = INT32_MAX,
     .help = "Tokens of a question; what is longer is cut."},
};

static const Option layout_table[] = {
    {OPT_INT("ranks", EvalArgs, layout.ranks), .fallback = "0", .low = 1, .high = 1 << 20,
     .shown = "those that mpirun or srun started, or dp x tp x pp",
     .help = "Processes that share the work, as in train."},
    {OPT_INT("dp", EvalArgs, layout.dp), .fallback = "0", .low = 1, .high = 1 << 20,
     .shown = "the ranks that tp x pp leave", .help = "Replicas, which share out the data."},
    {OPT_INT("tp", EvalArgs, layout.tp), .fallback = "1", .low = 1, .high = 1 << 20,
     .help = "Tensor-parallel ranks."},
    {OPT_INT("pp", EvalArgs, layout.pp), .fallback = "1", .low = 1, .high = 1 << 20,
     .help = "Pipeline stages."},
    {OPT_INT("zero", EvalArgs, config.zero), .fallback = "0", .low = 0, .high = 3,
     .help = "3: replicas share out the parameters, too."},
    {OPT_FLAG("sequence-parallel", EvalArgs, config.sequence),
     .help = "Cut what tensor-parallel ranks would all compute, norms, over the positions."},
};
/* clang-format on */

static const OptionGroup groups[] = {
    OPTION_GROUP("Options", table, 0), OPTION_GROUP("Side by side", against_table, 0),
    OPTION_GROUP("SQuAD", squad_table, 0), OPTION_GROUP("Layout", layout_table, 0)};

/* Ranks share the machine as those of train do. */
static Status enter(Invocation *call, EvalArgs *args, bool *ret_here) {
    EvalConfig *config = &args->config;
    TrainArgs train = {.config = {.device = config->device,
                                  .kernels = config->kernels,
                                  .precision = config->precision,
                                  .threads = config->threads,
                                  .quiet = config->quiet},
                       .layout = args->layout};
    TRY(layout_enter(call, &train, false, ret_here));
    config->threads = train.config.threads;
    config->quiet = train.config.quiet;
    config->mesh = train.config.mesh;
    config->on = train.config.on;
    return OK;
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    EvalArgs *args = arguments;
    bool here;
    TRY(enter(call, args, &here));
    if (!here) return OK;
    args->config.log = stderr;
    if (invocation_given(call, "na-prob-thresh") && !args->config.squad.na_prob)
        return USAGE("--na-prob-thresh is a threshold for the numbers of --na-prob, which is not given");
    if (args->against_count)
        return eval_against(&args->config, args->against, args->against_count, ret_result);
    return eval_run(&args->config, ret_result);
}

static void show_part(const json_t *result, const char *what, const char *prefix, FILE *out) {
    char exact[32], f1[32], total[32];
    snprintf(exact, sizeof exact, "%sexact", prefix);
    snprintf(f1, sizeof f1, "%sf1", prefix);
    snprintf(total, sizeof total, "%stotal", prefix);
    double value;
    if (!show_number(result, exact, &value)) return;
    fprintf(out, "%-18s exact %6.2f", what, value);
    if (show_number(result, f1, &value)) fprintf(out, "  F1 %6.2f", value);
    fprintf(out, "  of %lld\n", (long long)show_int(result, total));
}

static void show_squad(const json_t *result, FILE *out) {
    double best, at;
    show_part(result, "all questions", "", out);
    show_part(result, "with an answer", "HasAns_", out);
    show_part(result, "without one", "NoAns_", out);
    if (show_number(result, "best_exact", &best) && show_number(result, "best_exact_thresh", &at))
        fprintf(out, "%-18s exact %6.2f  at %.4g\n", "best thresholds", best, at);
    if (show_number(result, "best_f1", &best) && show_number(result, "best_f1_thresh", &at))
        fprintf(out, "%-18s F1    %6.2f  at %.4g\n", "", best, at);
    if (show_number(result, "no_answer_baseline", &best))
        fprintf(out, "%-18s exact %6.2f\n", "answering nothing", best);
    if (show_int(result, "missing"))
        fprintf(out, "%lld questions have no prediction and do not count\n",
                (long long)show_int(result, "missing"));
}

/* The classes one below the other, then the matrix, where it fits a screen. */
static void show_classes(const json_t *result, FILE *out) {
    const json_t *classes = json_object_get(result, "classes"),
                 *matrix = json_object_get(result, "confusion");
    double accuracy, macro;
    if (!show_number(result, "accuracy", &accuracy) || !show_number(result, "f1_macro", &macro)) return;
    fprintf(out, "accuracy %.2f %%, macro F1 %.4f\n", 100 * accuracy, macro);
    size_t at, column, count = json_array_size(classes);
    json_t *value;
    fprintf(out, "%-20s %9s %9s %9s %9s\n", "label", "precision", "recall", "F1", "count");
    json_array_foreach(classes, at, value) {
        double number[3] = {0};
        show_number(value, "precision", &number[0]);
        show_number(value, "recall", &number[1]);
        show_number(value, "f1", &number[2]);
        fprintf(out, "%-20.20s %9.4f %9.4f %9.4f %9lld\n", json_string_value(json_object_get(value, "label")),
                number[0], number[1], number[2], (long long)show_int(value, "count"));
    }
    if (!matrix || count > 12) return;
    fprintf(out, "given \\ predicted    ");
    json_array_foreach(classes, at, value)
        fprintf(out, " %8.8s", json_string_value(json_object_get(value, "label")));
    fputc('\n', out);
    json_t *row;
    json_array_foreach(matrix, at, row) {
        fprintf(out, "%-20.20s", json_string_value(json_object_get(json_array_get(classes, at), "label")));
        json_array_foreach(row, column, value) fprintf(out, " %8lld", (long long)json_integer_value(value));
        fputc('\n', out);
    }
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)call;
    char text[FORMAT_SIZE];
    double number;
    if (json_object_get(result, "models")) {
        eval_against_show(result, out);
        return OK;
    }
    if (json_object_get(result, "exact")) show_squad(result, out);
    if (!show_number(result, "loss", &number)) return OK;
    fprintf(out, "loss %.6f", number);
    if (show_number(result, "perplexity", &number)) fprintf(out, ", perplexity %.4g", number);
    if (show_number(result, "tokens", &number)) fprintf(out, ", over %s tokens", format_count(text, number));
    fputc('\n', out);
    if (show_number(result, "word_perplexity", &number)) {
        fprintf(out, "perplexity %.4g per word, of %s", number,
                format_count(text, (double)show_int(result, "words")));
        if (show_number(result, "bits_per_byte", &number)) fprintf(out, "; %.4f bits per byte", number);
        fputc('\n', out);
    }
    const char *name;
    json_t *part;
    json_object_foreach(json_object_get(result, "parts"), name, part) {
        double accuracy;
        if (!show_number(part, "loss", &number) || !show_number(part, "accuracy", &accuracy)) continue;
        fprintf(out, "%-13s loss %.6f, accuracy %.2f %% of %s\n", name, number, 100 * accuracy,
                format_count(text, (double)show_int(part, "count")));
    }
    show_classes(result, out);
    return OK;
}

static const Example examples[] = {
    {"The loss of a trained model on other text", "weft eval --model runs/first --data other.txt"},
    {"What quantization costs and gains",
     "weft eval --model runs/first --against first-int8 first-int4 --data other.txt"},
    {"A classifier's accuracy, F1 and confusion matrix",
     "weft eval --model runs/reviews --data test.csv --text-field review --label-field stars"},
    {"A model's answers to SQuAD, their score and the files that hold them",
     "weft eval --task squad --model runs/squad --data dev-v2.0.json --out answers"},
    {"A model too large for one device",
     "weft eval --model runs/large --data wiki.test.txt --ranks 4 --tp 4"},
    {"The official score of anyone's answers to SQuAD",
     "weft eval --task squad --data dev-v2.0.json --predictions predictions.json"},
};

const Command command_eval = {
    .name = "eval",
    .summary = "measure the loss of a model over data",
    .description =
        "Gives the mean loss over the counted tokens and, for language models, the perplexity per token over "
        "all of "
        "the text and per word, as WikiText counts words: what spaces separate, and each line's end.\n"
        "To SQuAD's questions the model gives answers, pieces of their contexts, which are scored: exact "
        "match "
        "and F1, over all questions and over those with and without an answer, as the official script "
        "evaluate-v2.0.py has them to the last digit. --predictions scores a file of answers without a "
        "model. "
        "Files may be .gz.",
    .config_size = sizeof(EvalArgs),
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .examples = examples,
    .example_count = COUNT_OF(examples),
    .run = run,
    .show = show,
};
