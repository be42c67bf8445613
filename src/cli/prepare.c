/* weft prepare: a corpus as token shards. */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "cli/command.h"
#include "cli/show.h"
#include "data/dialogue.h"
#include "data/prepare.h"
#include "data/squad_prepare.h"

typedef struct PrepareArgs {
    const char *tokenizer, *out, *format, *field, *documents;
    const char **data, **val;
    int data_count, val_count;
    double val_fraction;
    int64_t file_size, threads;
    int64_t seq, doc_stride, max_query;
    bool sentences, overwrite, quiet;
} PrepareArgs;

static const char *const prepared_formats[] = {"text", "squad", "cornell", "pairs", NULL};

/* clang-format off */
static const Option table[] = {
    {OPT_TEXT("tokenizer", PrepareArgs, tokenizer, "DIR"), .shown = "none, for dialogues",
     .help = "The tokenizer: a directory with its files (or a checkpoint that has them), or the word bytes, "
             "which makes each byte a token."},
    {OPT_LIST("data", PrepareArgs, data, "FILE"), .required = true,
     .help = "What to prepare: text, or JSON lines where the name ends in .jsonl or .ndjson; .gz is "
             "decompressed. The word self stands for weft's own source and documentation."},
    {OPT_TEXT("out", PrepareArgs, out, "DIR"), .required = true,
     .help = "Where the shards go: a new or empty directory."},
    {OPT_CHOICE("format", PrepareArgs, format, "FORMAT", prepared_formats), .fallback = "text",
     .help =
         "What is prepared: documents, which become shards; SQuAD's questions (squad), which become "
         "JSON lines of token numbers, squad.jsonl and squad.val.jsonl; the Cornell dialogues (cornell) or "
         "rows with q and a (pairs), which become JSON lines of text, pairs.jsonl and pairs.val.jsonl."},
    {OPT_TEXT("field", PrepareArgs, field, "NAME"), .fallback = "text",
     .help = "The field of a JSON line that holds the text."},
    {OPT_CHOICE("documents", PrepareArgs, documents, "WHAT", documents_names), .fallback = "file",
     .help = "What a document is in text files: the whole file, each line, what lies between blank lines, or "
             "an article of WikiText, from title to title. "
             "In JSON lines each line is one."},
    {OPT_FLAG("sentences", PrepareArgs, sentences), .shown = "on with a BERT vocabulary",
     .help = "Mark where sentences begin, which BERT's pairs of sentences need."},
    {OPT_LIST("val", PrepareArgs, val, "FILE"),
     .help = "Files for validation, which become shards of their own."},
    {OPT_FLOAT("val-fraction", PrepareArgs, val_fraction), .fallback = "0", .low = 0, .high = 1,
     .below_high = true,
     .help = "The part of the documents that is kept for validation, spread evenly, when "
             "--val is not given."},
    {OPT_SIZE("shard-size", PrepareArgs, file_size), .fallback = "256MiB", .low = 4096, .high = INFINITY,
     .help = "Most bytes of tokens and documents in one shard."},
    {OPT_INT("threads", PrepareArgs, threads), .fallback = "0", .low = 1, .high = 4096, .shown = "all cores",
     .help = "Threads to encode with; without it, OMP_NUM_THREADS is heeded."},
    {OPT_INT("seq", PrepareArgs, seq), .fallback = "384", .low = 8, .high = 1 << 20,
     .help = "SQuAD: most tokens in a sequence."},
    {OPT_INT("doc-stride", PrepareArgs, doc_stride), .fallback = "128", .low = 1, .high = INT32_MAX,
     .help = "SQuAD: tokens from one window of a long context to the next."},
    {OPT_INT("max-query", PrepareArgs, max_query), .fallback = "64", .low = 1, .high = INT32_MAX,
     .help = "SQuAD: tokens of a question; what is longer is cut."},
    {OPT_FLAG("overwrite", PrepareArgs, overwrite), .help = "Replace what --out holds already."},
    {OPT_FLAG("quiet", PrepareArgs, quiet), .help = "Show no progress."},
};
/* clang-format on */

static const OptionGroup groups[] = {OPTION_GROUP("Options", table, 0)};

/* Looked at between blocks. */
static volatile sig_atomic_t stop_asked;

static void ask_stop(int signal_number) {
    stop_asked = signal_number;
}

/* The first signal asks, the second one kills. */
static void catch_stop(void) {
    struct sigaction action = {.sa_handler = ask_stop, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static Status open_tokenizer(const char *path, bool bert, Tokenizer **ret_tokenizer) {
    if (!strcmp(path, "bytes")) return tokenizer_new_bytes(ret_tokenizer, bert);
    return tokenizer_load(ret_tokenizer, path);
}

static Status result_json(const PrepareResult *result, double seconds, json_t **ret_json) {
    int64_t tokens = result->tokens + result->val_tokens;
    json_t *json = json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:f, s:f, s:f}", "shards",
                             show_names(result->token_files.path, result->token_files.count), "val_shards",
                             show_names(result->val_token_files.path, result->val_token_files.count),
                             "tokens", (json_int_t)result->tokens, "documents", (json_int_t)result->documents,
                             "val_tokens", (json_int_t)result->val_tokens, "val_documents",
                             (json_int_t)result->val_documents, "sentences", (json_int_t)result->sentences,
                             "bytes", (json_int_t)result->bytes, "invalid_bytes", (json_int_t)result->broken,
                             "changed_files", result->notes.changed, "seconds", seconds, "tokens_per_s",
                             (double)tokens / seconds, "bytes_per_s", (double)result->bytes / seconds);
    if (!json) return FAILED("out of memory while writing the result");
    *ret_json = json;
    return OK;
}

/* ---- SQuAD ---- */

/* One file of JSON lines, and what is to be said about it. */
static Status squad_file(const PrepareArgs *args, const Tokenizer *tokenizer, const char *name,
                         const char *const *paths, int count, json_t *files) {
    SquadSpec spec = {.seq = args->seq, .doc_stride = args->doc_stride, .max_query = args->max_query};
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(mem_freep) char *note = NULL;
    SquadCounts counts;
    int64_t tokens = 0;
    TRY(path_join(&path, args->out, name));
    if (path_exists(path) && !args->overwrite)
        return USAGE("%s: is there already; --overwrite replaces it", path);
    double start = clock_wall();
    TRY(squad_prepare(paths, count, tokenizer, &spec, path, &counts, &tokens));
    TRY(squad_counts_text(&counts, &note));
    if (note) fprintf(stderr, "weft: note: %s: %s\n", paths[0], note);
    json_t *json = json_pack("{s:s s:I s:I s:I s:I s:I s:I s:I s:f}", "file", path, "questions",
                             (json_int_t)counts.questions, "features", (json_int_t)counts.features, "tokens",
                             (json_int_t)tokens, "moved_answers", (json_int_t)counts.moved, "lost_answers",
                             (json_int_t)counts.lost, "cut_questions", (json_int_t)counts.cut,
                             "empty_contexts", (json_int_t)counts.empty, "seconds", clock_wall() - start);
    if (json_array_append_new(files, json) != 0) return FAILED("out of memory while writing the result");
    return OK;
}

static Status run_squad(const PrepareArgs *args, json_t **ret_result) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(json_decrefp) json_t *result = json_pack("{s:[]}", "files");
    if (!result) return FAILED("out of memory while writing the result");
    if (args->val_fraction > 0)
        return USAGE(
            "--val-fraction is for shards; train takes a part of SQuAD's questions for validation itself");
    TRY(open_tokenizer(args->tokenizer, true, &tokenizer));
    TRY(dir_make(args->out));
    json_t *files = json_object_get(result, "files");
    TRY(squad_file(args, tokenizer, "squad.jsonl", args->data, args->data_count, files));
    if (args->val_count)
        TRY(squad_file(args, tokenizer, "squad.val.jsonl", args->val, args->val_count, files));
    *ret_result = json_incref(result);
    return OK;
}

static void show_squad(const json_t *files, int64_t seq, FILE *out) {
    size_t at;
    json_t *file;
    json_array_foreach(files, at, file) {
        char features[FORMAT_SIZE], questions[FORMAT_SIZE];
        fprintf(out, "%s examples of %s questions in %s\n",
                format_count(features, (double)show_int(file, "features")),
                format_count(questions, (double)show_int(file, "questions")),
                json_string_value(json_object_get(file, "file")));
    }
    fprintf(out, "train on them with --task span --seq %lld\n", (long long)seq);
}

/* ---- dialogues ---- */

static Status dialogue_file(const PrepareArgs *args, const char *name, const char *const *paths, int count,
                            json_t *files) {
    DataFormat format = !strcmp(args->format, "cornell") ? FORMAT_CORNELL : FORMAT_PAIRS;
    CLEANUP(mem_freep) char *path = NULL;
    DialogueCounts counts;
    TRY(path_join(&path, args->out, name));
    if (path_exists(path) && !args->overwrite)
        return USAGE("%s: is there already; --overwrite replaces it", path);
    TRY(dialogue_write(paths, count, format, path, &counts));
    json_t *json = json_pack("{s:s s:I s:I s:I}", "file", path, "pairs", (json_int_t)counts.pairs, "missing",
                             (json_int_t)counts.cornell.missing, "empty",
                             (json_int_t)(counts.empty + counts.cornell.empty));
    if (json_array_append_new(files, json) != 0) return FAILED("out of memory while writing the result");
    return OK;
}

static Status run_dialogues(const PrepareArgs *args, json_t **ret_result) {
    CLEANUP(json_decrefp) json_t *result = json_pack("{s:[]}", "dialogues");
    if (!result) return FAILED("out of memory while writing the result");
    if (args->val_fraction > 0)
        return USAGE("--val-fraction is for shards; train takes a part of the pairs for validation itself");
    TRY(dir_make(args->out));
    json_t *files = json_object_get(result, "dialogues");
    TRY(dialogue_file(args, "pairs.jsonl", args->data, args->data_count, files));
    if (args->val_count) TRY(dialogue_file(args, "pairs.val.jsonl", args->val, args->val_count, files));
    *ret_result = json_incref(result);
    return OK;
}

static void show_dialogues(const json_t *files, FILE *out) {
    size_t at;
    json_t *file;
    json_array_foreach(files, at, file) {
        char pairs[FORMAT_SIZE];
        fprintf(out, "%s pairs in %s", format_count(pairs, (double)show_int(file, "pairs")),
                json_string_value(json_object_get(file, "file")));
        if (show_int(file, "missing"))
            fprintf(out, "; %lld utterances are named that no file holds",
                    (long long)show_int(file, "missing"));
        if (show_int(file, "empty"))
            fprintf(out, "; %lld without text left out", (long long)show_int(file, "empty"));
        fputc('\n', out);
    }
}

/* ---- the command ---- */

static void tell_note(void *context, const char *note) {
    (void)context;
    fprintf(stderr, "weft: note: %s\n", note);
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    const PrepareArgs *args = arguments;
    if (!strcmp(args->format, "cornell") || !strcmp(args->format, "pairs"))
        return run_dialogues(args, ret_result);
    if (!args->tokenizer)
        return USAGE("--tokenizer is needed: a directory with its files, or the word bytes");
    if (!strcmp(args->format, "squad")) return run_squad(args, ret_result);
    if (args->val_count && args->val_fraction > 0)
        return USAGE("--val and --val-fraction both say what to validate on; give one of them");
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(progress_freep) Progress *progress = NULL;
    CLEANUP(prepare_result_done) PrepareResult result = {0};
    TRY(prepare_check(args->out, args->overwrite));
    TRY(open_tokenizer(args->tokenizer, false, &tokenizer));
    TRY(progress_new(&progress, stderr, "prepare", 0, 5, args->quiet));
    PrepareSpec spec = {.tokenizer = tokenizer,
                        .paths = args->data,
                        .path_count = args->data_count,
                        .val = args->val,
                        .val_count = args->val_count,
                        .val_fraction = args->val_fraction,
                        .field = args->field,
                        .sentences = invocation_given(call, "sentences")
                                         ? args->sentences
                                         : tokenizer_kind(tokenizer) == TOKENIZER_WORDPIECE,
                        .file_size = args->file_size,
                        .threads = (int)args->threads,
                        .progress = progress,
                        .stop = &stop_asked};
    TRY(documents_parse(args->documents, &spec.documents));
    catch_stop();
    double start = clock_wall();
    TRY(prepare_dir(&spec, args->out, args->overwrite, &result));
    progress_end(progress);
    TRY(prepare_notes(&result, tell_note, NULL));
    return result_json(&result, clock_wall() - start, ret_result);
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const PrepareArgs *args = call->config;
    const json_t *files = json_object_get(result, "files");
    if (files) {
        show_squad(files, args->seq, out);
        return OK;
    }
    if (json_object_get(result, "dialogues")) {
        show_dialogues(json_object_get(result, "dialogues"), out);
        return OK;
    }
    char tokens[FORMAT_SIZE], documents[FORMAT_SIZE], bytes[FORMAT_SIZE], rate[FORMAT_SIZE];
    double number;
    fprintf(out, "%s tokens in %s document%s", format_count(tokens, (double)show_int(result, "tokens")),
            format_count(documents, (double)show_int(result, "documents")),
            show_int(result, "documents") == 1 ? "" : "s");
    if (show_int(result, "val_documents"))
        fprintf(out, ", and %s in %s for validation",
                format_count(tokens, (double)show_int(result, "val_tokens")),
                format_count(documents, (double)show_int(result, "val_documents")));
    if (show_int(result, "sentences"))
        fprintf(out, ", %s sentences", format_count(tokens, (double)show_int(result, "sentences")));
    fprintf(out, ", from %s of text", format_bytes(bytes, (double)show_int(result, "bytes")));
    if (show_number(result, "seconds", &number)) fprintf(out, " in %.1f s", number);
    if (show_number(result, "bytes_per_s", &number)) fprintf(out, ", %s/s", format_bytes(rate, number));
    size_t token_files = json_array_size(json_object_get(result, "shards")) +
                         json_array_size(json_object_get(result, "val_shards"));
    fprintf(out, "\n%zu shard%s in %s; train on them with --data %s\n", token_files,
            token_files > 1 ? "s" : "", args->out, args->out);
    return OK;
}

static const Example examples[] = {
    {"Text, a document a file, with GPT-2's tokenizer",
     "weft prepare --tokenizer gpt2 --data books/*.txt --out shards"},
    {"JSON lines, one document in a hundred for validation",
     "weft prepare --tokenizer gpt2 --data corpus.jsonl.gz --field body --val-fraction 0.01 --out shards"},
    {"Cornell's dialogues as pairs of utterances",
     "weft prepare --format cornell --data movie_lines.txt movie_conversations.txt --out dialogues"},
    {"SQuAD's questions as token numbers",
     "weft prepare --format squad --tokenizer bert-base-uncased --data train-v2.0.json --out squad"},
};

const Command command_prepare = {
    .name = "prepare",
    .summary = "turn text, .gz and JSON lines into token shards",
    .description =
        "Reads a corpus of any size in bounded memory, on all cores, and writes files of tokens that train "
        "and "
        "eval map into memory. Each document ends in the token <|endoftext|> or, with a BERT vocabulary, "
        "[SEP]; documents without text are left out. The shards are the same for any number of threads. They "
        "know their tokenizer, and a run with another one refuses them.\n\n"
        "The directory appears when all of it is written; a run that was stopped leaves nothing there.",
    .config_size = sizeof(PrepareArgs),
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .examples = examples,
    .example_count = COUNT_OF(examples),
    .run = run,
    .show = show,
};
