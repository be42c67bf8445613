/* weft predict and weft embed: a model's outputs for rows without labels. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "cli/launch.h"
#include "cli/show.h"
#include "cli/train_options.h"
#include "data/squad_answers.h"

typedef struct PredictArgs {
    PredictConfig config; /* must be first: the option tables use offsets from it */
    Layout layout;
} PredictArgs;

#define PREDICT_AXIS(...) AXIS_OPTION(PredictArgs, __VA_ARGS__)
/* clang-format off */
#define FILES \
    {OPT_TEXT("model", PredictConfig, settings.model.name, "DIR"), .per_rank = PER_RANK_PATH, .required = true,  \
     .help = "Checkpoint directory, or run directory (its newest checkpoint)."},                                 \
    {OPT_LIST("data", PredictConfig, settings.data.files, "FILE"), .per_rank = PER_RANK_PATH, .required = true,  \
     .help = "Rows: .csv, .tsv or .jsonl with a text, JSON lines of token ids, or else a text on each line."}

static const Option predict_files[] = {
    FILES,
    {OPT_TEXT("out", PredictConfig, out, "FILE"), .shown = "JSON lines on standard output",
     .help = "File for the predictions: .jsonl or .csv."},
    {OPT_CHOICE("task", PredictConfig, settings.model.task, "TASK", task_choices), .fallback = "auto",
     .help = "Which of the model's heads predicts; auto: its usual one."},
    {OPT_INT("top-k", PredictConfig, top), .fallback = "5", RANGE(1, 1000),
     .help = "Masked and next tokens: list the K most probable ones."},
};

static const Option embed_files[] = {
    FILES,
    {OPT_TEXT("out", PredictConfig, out, "FILE"), .shown = "JSON lines on standard output",
     .help = "File for the vectors: .jsonl, or .npy, an fp32 array with a row per text."},
    {OPT_ENUM("pool", PredictConfig, pool, "HOW", pooling_names), .fallback = "mean",
     .help = "Vector of a text: the mean over its tokens, that of its first token, or of its last."},
    {OPT_FLAG("normalize", PredictConfig, normalize), .help = "Scale vectors to length 1."},
};

static const Option common[] = {
    {OPT_TEXT("tokenizer", PredictConfig, settings.data.text.tokenizer, "DIR"), .per_rank = PER_RANK_PATH,
     .shown = "the model's own, else bytes", .help = "Tokenizer, if its files are not in the model's directory."},
    {OPT_TEXT("text-field", PredictConfig, settings.data.text.text_field, "NAME"), .shown = "text; question for answers",
     .help = "Column or field with the text."},
    {OPT_TEXT("pair-field", PredictConfig, settings.data.text.pair_field, "NAME"), .shown = "none; context for answers",
     .help = "Column or field with the second text of a pair."},
    {OPT_TEXT("id-field", PredictConfig, settings.data.text.id_field, "NAME"), .shown = "id, if there is one",
     .help = "Column or field with the row's id, which the output has, too; without one it has row numbers."},
    {OPT_CHOICE("format", PredictConfig, settings.data.format, "FORMAT", format_choices), .fallback = "auto",
     .old_choices = format_old_choices, .help = "Data format: records, ids or squad; auto: by name and content."},
    {OPT_INT("seq", PredictConfig, settings.model.seq), .fallback = "0", RANGE(1, MAX_POSITIONS), .shown = "the model's own",
     .help = "Maximum length in tokens; longer rows are truncated."},
    {OPT_INT("batch", PredictConfig, settings.run.micro_batch), .fallback = "8", RANGE(1, 1 << 20),
     .help = "Sequences per forward pass."},
    {OPT_CHOICE("device", PredictConfig, settings.device.name, "NAME", device_choices), .fallback = "cpu",
     .help = "Device: cpu, or cuda for NVIDIA GPUs, assigned round-robin to the ranks of a node."},
    {OPT_CHOICE("precision", PredictConfig, settings.device.precision, "TYPE", precision_choices),
     .shown = "fp32; bf16 on GPUs", .help = "Compute precision, as in 'weft train'."},
    {OPT_CHOICE("kernels", PredictConfig, settings.device.kernels, "NAME", kernel_choices), .shown = "the device's own",
     .help = "Kernels: the device's own, or the plain CPU reference implementation (ref)."},
    {OPT_INT("threads", PredictConfig, settings.device.threads), .per_rank = PER_RANK_ANY, .fallback = "0", RANGE(1, 4096),
     .shown = "OMP_NUM_THREADS, else all cores", .help = "CPU threads per rank."},
    {OPT_FLAG("quiet", PredictConfig, settings.report.quiet), .per_rank = PER_RANK_ANY,
     .help = "Do not warn about tensors that the model does not use."},
};

static const Option answers[] = {
    {OPT_FLAG("always", PredictConfig, always),
     .help = "Always give the most likely answer, even if the model predicts that there is none."},
    {OPT_FLOAT("null-threshold", PredictConfig, squad.null_threshold), .fallback = "0", RANGE(-INFINITY, INFINITY),
     .help = "Give no answer if the no-answer score exceeds the best answer's by more than this."},
    {OPT_INT("n-best", PredictConfig, squad.n_best), .fallback = "20", RANGE(1, SQUAD_N_BEST_LIMIT),
     .help = "Number of start and end candidates per window, and of answers per question, to consider."},
    {OPT_INT("max-answer", PredictConfig, squad.max_answer), .fallback = "30", RANGE(1, INT32_MAX),
     .help = "Maximum answer length in tokens."},
    {OPT_INT("doc-stride", PredictConfig, settings.data.text.doc_stride), .fallback = "128", RANGE(1, INT32_MAX),
     .help = "Tokens between the starts of consecutive windows over a long context."},
    {OPT_INT("max-query", PredictConfig, settings.data.text.max_query), .fallback = "64", RANGE(1, INT32_MAX),
     .help = "Maximum tokens per question; longer questions are truncated."},
};

static const Option layout_table[] = {
    {OPT_INT("ranks", PredictArgs, layout.ranks), .fallback = "0", RANGE(1, 1 << 20),
     .shown = "what mpirun or srun started, else dp x tp x pp x cp",
     .help = "Number of ranks, as in 'weft train'."},
    HOST_OPTIONS(PredictArgs, layout.)
    MESH_AXES(PREDICT_AXIS)
    EXPERT_OPTION(PredictArgs, layout.)
    {OPT_INT("zero", PredictArgs, config.settings.run.zero), .fallback = "0", RANGE(0, 3),
     .help = "ZeRO stage; 3 shards the parameters across replicas."},
    CONTEXT_OPTIONS(PredictArgs, layout., config.settings.run.)
    {OPT_FLAG("sequence-parallel", PredictArgs, config.settings.run.sequence),
     .help = "Split layer norms along the sequence across tensor-parallel ranks."},
};
/* clang-format on */

static Status put_rows(const char *text, size_t size) {
    return fwrite(text, 1, size, stdout) == size ? OK : stdout_failed();
}

/* Joins the ranks and divides cores and GPUs among them, as train does. */
static Status enter(Invocation *call, PredictArgs *args, bool *ret_here) {
    TrainArgs train = {.config = args->config.settings, .layout = args->layout};
    if (call->json && !args->config.out)
        return USAGE("--json prints a summary on standard output; pass --out FILE for the rows");
    TRY(layout_enter(call, &train, false, ret_here));
    args->config.settings = train.config;
    args->config.settings.report.log = launch_log(call);
    args->config.put = put_rows;
    return OK;
}

static Status predict(Invocation *call, void *arguments, json_t **ret_result) {
    PredictArgs *args = arguments;
    bool here;
    TRY(enter(call, args, &here));
    return here ? model_predict(&args->config, ret_result) : OK;
}

static Status embed(Invocation *call, void *arguments, json_t **ret_result) {
    PredictArgs *args = arguments;
    bool here;
    TRY(enter(call, args, &here));
    return here ? model_embed(&args->config, ret_result) : OK;
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const char *file = json_string_at(result, "out");
    int64_t rows = json_int_at(result, "rows");
    char text[FORMAT_SIZE];
    (void)call;
    if (file)
        fprintf(out, "%s: %lld row%s (%s rows/s)\n", file, (long long)rows, PLURAL(rows),
                format_count(text, json_number_at(result, "rows_per_s")));
    return OK;
}

const Command command_predict = {
    .name = "predict",
    .summary = "predict labels, values, tokens or answers for rows without labels",
    .description =
        "Writes a row for each row of the data, in the same order, with its id, or as row its number "
        "from 1. Rows that are too long are truncated, but contexts are read in overlapping windows.\n"
        "A classifier gives label and probabilities, with independent labels those above 0.5 as labels; "
        "a regression value, with several outputs values; masked tokens masks, each with its position "
        "and most probable tokens, and of pairs next_sentence, the probability that the second text "
        "follows; a language model the number of tokens that a text predicts, the sum of their losses "
        "nll, loss and accuracy, and the next tokens; questions answer, start and end in characters of "
        "the context (tokens for token ids), probability and no_answer_probability.\n"
        "In .csv files a member of an object has a column of its own, such as probabilities.LABEL, and "
        "a list is JSON text.",
    .positional = POSITIONAL("model", "data"),
    .config_size = sizeof(PredictArgs),
    .groups = GROUPS(OPTION_GROUP("Options", predict_files, 0), OPTION_GROUP("Rows", common, 0),
                     OPTION_GROUP("Answers", answers, 0), OPTION_GROUP("Layout", layout_table, 0)),
    .examples = {{"Labels of reviews, with probabilities",
                  "weft predict runs/reviews new.csv --text-field review --out labels.csv"},
                 {"What may stand for [MASK] on each line",
                  "weft predict bert-base lines.txt --task mlm --top-k 3"},
                 {"Answers to the questions of a table, on four ranks",
                  "weft predict runs/squad questions.jsonl --out answers.jsonl --ranks 4"}},
    .run = predict,
    .show = show,
};

const Command command_embed = {
    .name = "embed",
    .summary = "compute a vector for each text of a file",
    .description =
        "Writes the hidden states of the last layer, after the last norm, as a vector per text: their "
        "mean over the text's tokens, special ones included and padding not, as in sentence-transformers, "
        "or that of a single token.",
    .positional = POSITIONAL("model", "data"),
    .config_size = sizeof(PredictArgs),
    .groups = GROUPS(OPTION_GROUP("Options", embed_files, 0), OPTION_GROUP("Rows", common, 0),
                     OPTION_GROUP("Layout", layout_table, 0)),
    .examples = {{"Vectors of length 1 of the lines of a file",
                  "weft embed bert-base lines.txt --normalize --out vectors.npy"}},
    .run = embed,
    .show = show,
};
