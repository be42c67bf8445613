/* weft answer: questions about a text. */
#include "infer/answer.h"

#include <math.h>

#include "cli/show.h"
#include "cli/train_options.h"
#include "data/squad_answers.h"

/* clang-format off */
static const Option table[] = {
    {OPT_TEXT("model", AnswerConfig, model, "DIR"), .required = true,
     .help = "A BERT with a span head: a checkpoint, or the directory of a run, whose newest one is taken."},
    {OPT_TEXT("tokenizer", AnswerConfig, tokenizer, "DIR"), .shown = "the model's own, else bytes",
     .help = "The model's tokenizer, where its files do not lie beside the model."},
    {OPT_TEXT("context", AnswerConfig, context, "FILE"), .required = true,
     .help = "The text that holds the answers; - is standard input."},
    {OPT_LIST("question", AnswerConfig, questions, "TEXT"), .one_each = true, .required = true,
     .help = "What to look for. Give it several times for several questions."},
    {OPT_INT("shown", AnswerConfig, shown), .fallback = "3", .low = 0, .high = SQUAD_N_BEST_LIMIT,
     .help = "With --json: answers to list for each question, the likeliest ones."},
    {OPT_FLAG("always", AnswerConfig, always),
     .help = "Give the likeliest answer even where it is likelier that there is none."},
    {OPT_FLOAT("null-threshold", AnswerConfig, null_threshold), .fallback = "0", .low = -INFINITY,
     .high = INFINITY,
     .help = "No answer is given where its score exceeds that of the best answer by more than this, such as "
             "the best threshold that eval found."},
    {OPT_INT("n-best", AnswerConfig, n_best), .fallback = "20", .low = 1, .high = SQUAD_N_BEST_LIMIT,
     .help = "Likeliest starts and ends of a window, and answers of a question, to look at."},
    {OPT_INT("max-answer", AnswerConfig, max_answer), .fallback = "30", .low = 1, .high = INT32_MAX,
     .help = "Most tokens of an answer."},
    {OPT_INT("seq", AnswerConfig, seq), .fallback = "0", .low = 8, .high = INFINITY,
     .shown = "384, or what the model has",
     .help = "Tokens of the question and a window of the text together."},
    {OPT_INT("doc-stride", AnswerConfig, doc_stride), .fallback = "128", .low = 1, .high = INT32_MAX,
     .help = "Tokens from one window of a long text to the next."},
    {OPT_INT("max-query", AnswerConfig, max_query), .fallback = "64", .low = 1, .high = INT32_MAX,
     .help = "Tokens of a question; what is longer is cut."},
    {OPT_INT("batch", AnswerConfig, batch), .fallback = "8", .low = 1, .high = 1 << 20,
     .help = "Windows run at once."},
    {OPT_CHOICE("device", AnswerConfig, device, "NAME", device_choices), .fallback = "cpu",
     .help = "Where to compute: the CPU, or NVIDIA's first GPU."},
    {OPT_CHOICE("precision", AnswerConfig, precision, "TYPE", precision_choices),
     .shown = "fp32, and bf16 on a GPU", .help = "Number format of the computation, as in train."},
    {OPT_CHOICE("kernels", AnswerConfig, kernels, "NAME", kernel_choices), .shown = "the device's own",
     .help = "Kernels to compute with: the device's own, or on the CPU the plain reference (ref)."},
    {OPT_INT("threads", AnswerConfig, threads), .fallback = "0", .low = 1, .high = 4096, .shown = "all cores",
     .help = "Threads to compute with; without it, OMP_NUM_THREADS is heeded."},
};
/* clang-format on */

static const OptionGroup groups[] = {OPTION_GROUP("Options", table, 0)};

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    (void)call;
    return answer_questions(arguments, ret_result);
}

static void show_answer(const json_t *answer, FILE *out) {
    const json_t *text = json_object_get(answer, "answer");
    double probability = 0;
    show_number(answer, "probability", &probability);
    if (json_is_string(text)) {
        fwrite(json_string_value(text), 1, json_string_length(text), out);
        fprintf(out, "  (characters %lld to %lld, probability %.2f)\n", (long long)show_int(answer, "start"),
                (long long)show_int(answer, "end"), probability);
    } else {
        fprintf(out, "no answer  (probability %.2f)\n", probability);
    }
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)call;
    const json_t *answers = json_object_get(result, "answers"), *answer;
    size_t at;
    json_array_foreach(answers, at, answer) {
        if (json_array_size(answers) > 1)
            fprintf(out, "%s: ", json_string_value(json_object_get(answer, "question")));
        show_answer(answer, out);
    }
    return OK;
}

static const Example examples[] = {
    {"Where a text says it",
     "weft answer --model runs/squad --context article.txt --question 'Who built it?'"},
    {"Several questions about what comes down a pipe, as JSON",
     "lynx -dump page.html | weft answer --model runs/squad --context - --question 'When?' --question "
     "'Where?' "
     "--json"},
};

const Command command_answer = {
    .name = "answer",
    .summary = "answer questions from a text with a BERT trained on SQuAD",
    .description =
        "Finds the piece of a text that answers a question, with its place, counted in characters from 0 to "
        "just "
        "behind its end, and a probability: its share among the answers that were looked at. The answer is "
        "the text's own, with its accents, case and punctuation.\n"
        "Where \"no answer\" is likelier than the best answer, as models trained on SQuAD v2 can tell, that "
        "is "
        "said. A text that is longer than the model reads at once is read in windows that overlap.",
    .config_size = sizeof(AnswerConfig),
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .examples = examples,
    .example_count = COUNT_OF(examples),
    .run = run,
    .show = show,
};
