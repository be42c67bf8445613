/* weft answer: extractive question answering over a text. */
#include "infer/answer.h"
#include "base/progress.h"

#include <math.h>
#include <string.h>

#include "cli/train_options.h"
#include "data/squad_answers.h"

/* clang-format off */
static const Option table[] = {
    {OPT_TEXT("model", AnswerConfig, settings.model.name, "DIR"), .required = true,
     .help = "BERT with a span head: a checkpoint directory, or a run directory (its newest checkpoint)."},
    {OPT_TEXT("tokenizer", AnswerConfig, settings.data.text.tokenizer, "DIR"), .shown = "the model's own, else bytes",
     .help = "Tokenizer, if its files are not in the model's directory."},
    {OPT_TEXT("context", AnswerConfig, context, "FILE"), .required = true,
     .help = "Text that contains the answers; - is standard input."},
    {OPT_LIST("question", AnswerConfig, questions, "TEXT"), .one_each = true, .required = true,
     .help = "Question to answer. Repeat for several questions."},
    {OPT_INT("shown", AnswerConfig, shown), .fallback = "3", RANGE(0, SQUAD_N_BEST_LIMIT),
     .help = "With --json, list the N most likely answers to each question."},
    {OPT_FLAG("always", AnswerConfig, always),
     .help = "Always give the most likely answer, even if the model predicts that there is none."},
    {OPT_FLOAT("null-threshold", AnswerConfig, null_threshold), .fallback = "0", RANGE(-INFINITY, INFINITY),
     .help = "Give no answer if the no-answer score exceeds the best answer's by more than this; 'weft "
             "eval' reports the best threshold."},
    {OPT_INT("n-best", AnswerConfig, n_best), .fallback = "20", RANGE(1, SQUAD_N_BEST_LIMIT),
     .help = "Number of start and end candidates per window, and of answers per question, to consider."},
    {OPT_INT("max-answer", AnswerConfig, max_answer), .fallback = "30", RANGE(1, INT32_MAX),
     .help = "Maximum answer length in tokens."},
    {OPT_INT("seq", AnswerConfig, settings.model.seq), .fallback = "0", RANGE(8, MAX_POSITIONS), .shown = "384, or the model's maximum",
     .help = "Sequence length: question plus a window of the text, in tokens."},
    {OPT_INT("doc-stride", AnswerConfig, settings.data.text.doc_stride), .fallback = "128", RANGE(1, INT32_MAX),
     .help = "Tokens between the starts of consecutive windows over a long text."},
    {OPT_INT("max-query", AnswerConfig, settings.data.text.max_query), .fallback = "64", RANGE(1, INT32_MAX),
     .help = "Maximum tokens per question; longer questions are truncated."},
    {OPT_INT("batch", AnswerConfig, settings.run.micro_batch), .fallback = "8", RANGE(1, 1 << 20), .help = "Windows per batch."},
    {OPT_CHOICE("device", AnswerConfig, settings.device.name, "NAME", device_choices), .fallback = "cpu",
     .help = "Device: cpu, or cuda for the first NVIDIA GPU."},
    {OPT_CHOICE("precision", AnswerConfig, settings.device.precision, "TYPE", precision_choices),
     .shown = "fp32; bf16 on GPUs", .help = "Compute precision, as in 'weft train'."},
    {OPT_CHOICE("kernels", AnswerConfig, settings.device.kernels, "NAME", kernel_choices), .shown = "the device's own",
     .help = "Kernels: the device's own, or the plain CPU reference implementation (ref)."},
    {OPT_INT("threads", AnswerConfig, settings.device.threads), .fallback = "0", RANGE(1, 4096),
     .shown = "OMP_NUM_THREADS, else all cores", .help = "CPU threads."},
};
/* clang-format on */

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    (void)call;
    const AnswerConfig *config = arguments;
    bool typed = strcmp(config->context, "-") == 0; /* leave the terminal to the text */
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(progress_new_phase(&progress, stderr, "answering", 0, typed));
    return answer_questions(config, ret_result);
}

static void show_answer(const json_t *answer, bool always, FILE *out) {
    const json_t *text = json_object_get(answer, "answer");
    double probability = 0;
    json_has_number(answer, "probability", &probability);
    if (json_is_string(text)) {
        fwrite(json_string_value(text), 1, json_string_length(text), out);
        fprintf(out, "  (characters %lld-%lld, probability %.2f)\n", (long long)json_int_at(answer, "start"),
                (long long)json_int_at(answer, "end"), probability);
    } else if (always) {
        fprintf(out, "no start and end candidates form an answer; raise --n-best or --max-answer\n");
    } else {
        fprintf(out, "no answer  (probability %.2f)\n", probability);
    }
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const AnswerConfig *config = call->config;
    const json_t *answers = json_object_get(result, "answers"), *answer;
    size_t at;
    json_array_foreach(answers, at, answer) {
        if (json_array_size(answers) > 1) fprintf(out, "%s: ", json_string_at(answer, "question"));
        show_answer(answer, config->always, out);
    }
    return OK;
}

const Command command_answer = {
    .name = "answer",
    .summary = "answer questions about a text with a BERT model trained on SQuAD",
    .description = "Finds the span of a text that answers a question and prints it verbatim, with its "
                   "position in characters (from 0, end exclusive) and its probability among the answers "
                   "considered.\n"
                   "Models trained on SQuAD 2.0 can also report that the text has no answer. Texts longer "
                   "than the model's sequence length are read in overlapping windows.",
    .positional = POSITIONAL("model", "context", "question"),
    .config_size = sizeof(AnswerConfig),
    .groups = GROUPS(OPTION_GROUP("Options", table, 0)),
    .examples =
        {{"Find an answer in an article", "weft answer runs/squad article.txt 'Who built it?'"},
         {"Several questions about piped text, as JSON",
          "lynx -dump page.html | weft answer --model runs/squad --context - --question 'When?' --question "
          "'Where?' --json"}},
    .run = run,
    .show = show,
};
