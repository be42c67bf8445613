/* weft quantize: a checkpoint with weights of 8 or 4 bits. */
#include <math.h>

#include "base/format.h"
#include "cli/command.h"
#include "cli/show.h"
#include "cli/train_options.h"
#include "compress/quantize.h"

static const char *const bits_choices[] = {"8", "4", NULL};
static const char *const activations_choices[] = {"dynamic", "static", NULL};

/* clang-format off */
static const Option table[] = {
    {OPT_TEXT("model", QuantizeConfig, model, "DIR"), .required = true,
     .help = "A checkpoint directory, or a run's directory for its newest checkpoint."},
    {OPT_TEXT("out", QuantizeConfig, out, "DIR"), .required = true,
     .help = "Where the quantized checkpoint goes: a new or empty directory."},
    {OPT_CHOICE("bits", QuantizeConfig, bits, "N", bits_choices), .fallback = "8",
     .help = "Of the layers' weights. With 4, each 32 inputs of an output have a step of their own: half the "
             "size "
             "again, and faster generation, for more loss."},
    {OPT_FLAG("int8-embedding", QuantizeConfig, embedding),
     .help =
         "The token embedding and the output matrix too: smaller, and faster where the vocabulary is large."},
    {OPT_FLAG("int4-embedding", QuantizeConfig, int4_embedding), .help = "The same in 4 bits."},
    {OPT_FLAG("balance", QuantizeConfig, no_balance), .fallback = "on", .inverted = true,
     .help =
         "GPT-2: let the model write a little text first, to see which inputs of its layers are far larger "
         "than others, and share out the rounding between them and their weights."},
    {OPT_LIST("calibrate", QuantizeConfig, data.files, "FILE"),
     .shown = "text of the model's own; BERT: none",
     .help = "Find out from this data instead, as 'weft eval' reads it; the first 16 sequences count."},
    {OPT_CHOICE("format", QuantizeConfig, data.format, "FORMAT", format_choices), .fallback = "auto",
     .help = "How those files are read, as in train."},
    {OPT_TEXT("tokenizer", QuantizeConfig, data.text.tokenizer, "DIR"),
     .shown = "the model's own, else bytes",
     .help = "The tokenizer for their text, where none lies beside the model."},
    {OPT_TEXT("text-field", QuantizeConfig, data.text.text_field, "NAME"), .shown = "text, or q of pairs",
     .help = "The field of .csv, .tsv or .jsonl rows that holds the text, as in train."},
    {OPT_TEXT("pair-field", QuantizeConfig, data.text.pair_field, "NAME"), .shown = "none, or a of pairs",
     .help = "The field that holds a second text."},
    {OPT_TEXT("label-field", QuantizeConfig, data.text.label_field, "NAME"), .fallback = "label",
     .help = "The field that holds the label, for a model that classifies."},
    {OPT_CHOICE("activations", QuantizeConfig, activations, "HOW", activations_choices),
     .fallback = "dynamic",
     .help = "How what the layers take is rounded: dynamic, each row by its largest number as it comes, or "
             "static, by the largest that this data or text has. BERT needs --calibrate for it."},
    {OPT_SEED("seed", QuantizeConfig, seed), .fallback = "0", .help = "Seed of that text."},
    {OPT_INT("threads", QuantizeConfig, threads), .fallback = "0", .low = 1, .high = 4096,
     .shown = "all cores", .help = "Threads to compute with; without it, OMP_NUM_THREADS is heeded."},
};
/* clang-format on */

static const OptionGroup groups[] = {OPTION_GROUP("Options", table, 0)};

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    (void)call;
    QuantizeConfig *config = arguments;
    config->data.log = stderr;
    return quantize_run(config, ret_result);
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)call;
    char total[FORMAT_SIZE], eight[FORMAT_SIZE], four[FORMAT_SIZE];
    double noise = 0;
    show_number(result, "weights_noise", &noise);
    fprintf(out,
            "%s: of %s parameters %s in int8 and %s in int4%s%s, their values off by %.2f %% of their size\n",
            json_string_value(json_object_get(result, "out")),
            format_count(total, (double)show_int(result, "params_total")),
            format_count(eight, (double)show_int(result, "params_int8")),
            format_count(four, (double)show_int(result, "params_int4")),
            json_is_true(json_object_get(result, "balanced")) ? ", balanced" : "",
            !strcmp(json_string_value(json_object_get(result, "activations")), "static") ? ", static" : "",
            100 * noise);
    return OK;
}

static const Example examples[] = {
    {"A trained model for generation, a quarter of the size",
     "weft quantize --model runs/first --out first-int8 --int8-embedding"},
    {"For the fastest generation, an eighth of the size",
     "weft quantize --model runs/first --out first-int4 --bits 4 --int8-embedding"},
    {"What it costs in quality", "weft eval --model first-int8 --data other.txt"},
};

const Command command_quantize = {
    .name = "quantize",
    .summary = "write a checkpoint with weights of 8 or 4 bits, for inference",
    .description = "The matrices of the layers become int8 with a scale for each output, or int4 with a step "
                   "for each 32 "
                   "inputs of an output; what they take is rounded to int8 row by row as it comes, or by "
                   "what was found beforehand. 'weft "
                   "eval', 'weft generate' and 'weft info' read the result; it "
                   "cannot "
                   "be trained further, and transformers does not read it. Nothing is overwritten.",
    .config_size = sizeof(QuantizeConfig),
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .examples = examples,
    .example_count = COUNT_OF(examples),
    .run = run,
    .show = show,
};
