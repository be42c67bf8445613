/* weft prepare: tokenizes a corpus into token files. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/staging.h"
#include "cli/command.h"
#include "cli/show.h"
#include "cli/stop.h"
#include "data/cornell.h"
#include "data/prepare.h"
#include "data/squad_features.h"

typedef struct PrepareArgs {
    const char *tokenizer, *out, *format, *field, *documents;
    const char **data, **val;
    int data_count, val_count;
    double val_fraction;
    int64_t file_size, threads;
    int64_t seq, doc_stride, max_query;
    bool sentences, overwrite, quiet;
} PrepareArgs;

static const char *const prepared_formats[] = {"text", "bytes", "squad", "cornell", "pairs", NULL};

/* clang-format off */
static const Option table[] = {
    {OPT_TEXT("tokenizer", PrepareArgs, tokenizer, "DIR"), .shown = "none; required except for dialogs",
     .help = "Tokenizer: a directory with its files, such as a checkpoint, or bytes, which makes each byte a "
             "token."},
    {OPT_LIST("data", PrepareArgs, data, "FILE"), .required = true,
     .help = "Files to prepare: text, JSON lines or arrays, .csv, .tsv, optionally gzipped, or Parquet; or self, weft's own source and documentation."},
    {OPT_TEXT("out", PrepareArgs, out, "DIR"), .required = true,
     .help = "New or empty directory for the result."},
    {OPT_CHOICE("format", PrepareArgs, format, "FORMAT", prepared_formats), .fallback = "text",
     .help = "Input format: documents (text), which become token files; any files, for --tokenizer bytes "
             "(bytes); SQuAD questions (squad), which become JSON lines of token ids in squad.jsonl and squad.val.jsonl; Cornell movie dialogs "
             "(cornell) or rows with q and a (pairs), which become JSON lines of text in pairs.jsonl and "
             "pairs.val.jsonl."},
    {OPT_TEXT("field", PrepareArgs, field, "NAME"), .fallback = "text",
     .help = "Field of rows (JSON, .csv, .tsv, Parquet) that contains the text."},
    {OPT_CHOICE("documents", PrepareArgs, documents, "UNIT", documents_names), .fallback = "file",
     .help = "What counts as one document in text files: the file, a line, text between blank lines, or a "
             "WikiText article. Of files with rows, each row is a document."},
    {OPT_FLAG("sentences", PrepareArgs, sentences), .shown = "on with a BERT vocabulary",
     .help = "Mark sentence boundaries, which BERT's next-sentence task needs."},
    {OPT_LIST("val", PrepareArgs, val, "FILE"), .help = "Validation files, written to separate token files."},
    {OPT_FLOAT("val-fraction", PrepareArgs, val_fraction), .fallback = "0", BELOW_ONE,
     .help = "Without --val, fraction of documents to hold out for validation, evenly spaced."},
    {OPT_SIZE("file-size", PrepareArgs, file_size), .old_name = "shard-size",
     .fallback = "256MiB", AT_LEAST(4096), .help = "Maximum size of a token file."},
    {OPT_INT("threads", PrepareArgs, threads), .fallback = "0", RANGE(1, 4096),
     .shown = "OMP_NUM_THREADS, else all cores", .help = "Tokenizer threads."},
    {OPT_INT("seq", PrepareArgs, seq), .fallback = "384", RANGE(8, 1 << 20),
     .help = "SQuAD: maximum sequence length in tokens."},
    {OPT_INT("doc-stride", PrepareArgs, doc_stride), .fallback = "128", RANGE(1, INT32_MAX),
     .help = "SQuAD: tokens between the starts of consecutive windows over a long context."},
    {OPT_INT("max-query", PrepareArgs, max_query), .fallback = "64", RANGE(1, INT32_MAX),
     .help = "SQuAD: maximum tokens per question; longer questions are truncated."},
    {OPT_FLAG("overwrite", PrepareArgs, overwrite), .help = "Replace existing results in --out."},
    {OPT_FLAG("quiet", PrepareArgs, quiet), .help = "Do not show progress."},
};
/* clang-format on */

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

/* ---- JSON lines ---- */

/* Formats that become one file of JSON lines per set. `write` converts the inputs to the file `path` and
 * describes it in *ret_row, except for its name. */
typedef struct LinesFormat {
    const char *names[2]; /* of the training and the validation file */
    const char *rows;     /* the member of the result that lists the files */
    const char *data;     /* what the files contain */
    bool ids;             /* the lines are token ids, not text */
    Status (*write)(const PrepareArgs *args, const Tokenizer *tokenizer, const char *const *paths, int count,
                    const char *path, json_t **ret_row);
} LinesFormat;

static Status check_lines(const PrepareArgs *args, const LinesFormat *format, int sets) {
    int64_t total;
    if (args->val_fraction > 0)
        return USAGE("--val-fraction applies only to token files; 'weft train --val-fraction' splits %s",
                     format->data);
    TRY(reader_measure(args->data, args->data_count, &total));
    if (args->val_count) TRY(reader_measure(args->val, args->val_count, &total));
    if (path_exists(args->out) && !path_is_dir(args->out))
        return USAGE("--out %s is a file; expected a directory", args->out);
    for (int i = 0; i < sets && !args->overwrite; i++) {
        CLEANUP(mem_freep) char *path = NULL;
        TRY(path_join(&path, args->out, format->names[i]));
        if (path_exists(path)) return USAGE("%s: already exists; add --overwrite to replace it", path);
    }
    return OK;
}

static Status run_lines(const PrepareArgs *args, const LinesFormat *format, json_t **ret_result) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(staging_done) StagingDir staging = STAGING_NONE;
    CLEANUP(json_decrefp) json_t *result = json_pack("{s:[]}", format->rows);
    json_t *rows = json_object_get(result, format->rows);
    int sets = args->val_count ? 2 : 1;
    TRY(check_lines(args, format, sets));
    if (format->ids) TRY(open_tokenizer(args->tokenizer, true, &tokenizer));
    TRY(staging_make(&staging, args->out));
    for (int i = 0; i < sets; i++) {
        CLEANUP(mem_freep) char *path = NULL, *final = NULL;
        json_t *row = NULL;
        TRY(path_join(&path, staging.path, format->names[i]));
        TRY(path_join(&final, args->out, format->names[i]));
        TRY(format->write(args, tokenizer, i ? args->val : args->data, i ? args->val_count : args->data_count,
                          path, &row));
        if (json_array_append_new(rows, row) || json_object_set_new(row, "file", json_string(final)))
            return FAILED("out of memory while writing the result");
    }
    TRY(staging_merge(&staging, format->names, sets));
    *ret_result = json_incref(result);
    return OK;
}

/* ---- SQuAD ---- */

static Status write_squad(const PrepareArgs *args, const Tokenizer *tokenizer, const char *const *paths,
                          int count, const char *path, json_t **ret_row) {
    SquadSpec spec = {.seq = args->seq, .doc_stride = args->doc_stride, .max_query = args->max_query};
    CLEANUP(mem_freep) char *note = NULL;
    SquadCounts counts;
    int64_t tokens = 0;
    double start = clock_wall();
    TRY(squad_prepare(paths, count, tokenizer, &spec, path, &counts, &tokens));
    TRY(squad_counts_text(&counts, &note));
    if (note) fprintf(stderr, "weft: warning: %s: %s\n", paths[0], note);
    *ret_row = json_pack("{s:I s:I s:I s:I s:I s:I s:I s:f}", "questions", (json_int_t)counts.questions,
                         "features", (json_int_t)counts.features, "tokens", (json_int_t)tokens,
                         "moved_answers", (json_int_t)counts.moved, "lost_answers", (json_int_t)counts.lost,
                         "cut_questions", (json_int_t)counts.cut, "empty_contexts", (json_int_t)counts.empty,
                         "seconds", clock_wall() - start);
    return OK;
}

static const LinesFormat squad_lines = {
    {"squad.jsonl", "squad.val.jsonl"}, "files", "SQuAD questions", true, write_squad};

/* With the tokenizer, checkpoints of the run can answer questions. */
static void show_squad(const json_t *files, const PrepareArgs *args, FILE *out) {
    size_t at;
    json_t *file;
    json_array_foreach(files, at, file) {
        char features[FORMAT_SIZE], questions[FORMAT_SIZE];
        fprintf(out, "%s examples from %s questions in %s\n",
                format_count(features, (double)json_int_at(file, "features")),
                format_count(questions, (double)json_int_at(file, "questions")),
                json_string_at(file, "file"));
    }
    fprintf(out, "train with: weft train --task span --model bert-base --seq %lld", (long long)args->seq);
    if (strcmp(args->tokenizer, "bytes")) {
        fputs(" --tokenizer ", out);
        show_word(out, args->tokenizer);
    }
    json_array_foreach(files, at, file) {
        fputs(at ? " --val " : " --data ", out);
        show_word(out, json_string_at(file, "file"));
    }
    fputc('\n', out);
}

/* ---- dialogs ---- */

static Status write_dialogues(const PrepareArgs *args, const Tokenizer *tokenizer, const char *const *paths,
                              int count, const char *path, json_t **ret_row) {
    (void)tokenizer;
    DataFormat format = !strcmp(args->format, "cornell") ? FORMAT_CORNELL : FORMAT_PAIRS;
    DialogueCounts counts;
    TRY(dialogue_write(paths, count, format, path, &counts));
    *ret_row = json_pack("{s:I s:I s:I}", "pairs", (json_int_t)counts.pairs, "missing",
                         (json_int_t)counts.cornell.missing, "empty",
                         (json_int_t)(counts.empty + counts.cornell.empty));
    return OK;
}

static const LinesFormat dialogue_lines = {
    {"pairs.jsonl", "pairs.val.jsonl"}, "dialogues", "pairs", false, write_dialogues};

static void show_dialogues(const json_t *files, FILE *out) {
    size_t at;
    json_t *file;
    json_array_foreach(files, at, file) {
        char pairs[FORMAT_SIZE];
        fprintf(out, "%s pairs in %s", format_count(pairs, (double)json_int_at(file, "pairs")),
                json_string_at(file, "file"));
        if (json_int_at(file, "missing"))
            fprintf(out, "; %lld missing utterance%s", (long long)json_int_at(file, "missing"),
                    PLURAL(json_int_at(file, "missing")));
        if (json_int_at(file, "empty"))
            fprintf(out, "; skipped %lld without text", (long long)json_int_at(file, "empty"));
        fputc('\n', out);
    }
}

/* ---- the command ---- */

static void print_warning(void *context, const char *note) {
    (void)context;
    fprintf(stderr, "weft: warning: %s\n", note);
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    const PrepareArgs *args = arguments;
    if (!strcmp(args->format, "cornell") || !strcmp(args->format, "pairs"))
        return run_lines(args, &dialogue_lines, ret_result);
    if (!args->tokenizer)
        return USAGE("--tokenizer DIR is required; use --tokenizer bytes for byte-level tokens");
    if (!strcmp(args->format, "squad")) return run_lines(args, &squad_lines, ret_result);
    bool raw = !strcmp(args->format, "bytes");
    if (raw && strcmp(args->tokenizer, "bytes"))
        return USAGE("--format bytes cannot be combined with the tokenizer %s; use --tokenizer bytes",
                     args->tokenizer);
    if (args->val_count && args->val_fraction > 0)
        return USAGE("--val cannot be combined with --val-fraction; use one or the other");
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(progress_freep) Progress *progress = NULL;
    CLEANUP(prepare_result_done) PrepareResult result = {0};
    TRY(prepare_check(args->out, args->overwrite));
    TRY(open_tokenizer(args->tokenizer, false, &tokenizer));
    TRY(progress_new(&progress, stderr, "prepare", 0, 5, args->quiet));
    progress_bytes(progress);
    PrepareSpec spec = {.tokenizer = tokenizer,
                        .tokenizer_files = strcmp(args->tokenizer, "bytes") ? args->tokenizer : NULL,
                        .paths = args->data,
                        .path_count = args->data_count,
                        .val = args->val,
                        .val_count = args->val_count,
                        .val_fraction = args->val_fraction,
                        .field = args->field,
                        .raw = raw,
                        .sentences = invocation_given(call, "sentences")
                                         ? args->sentences
                                         : tokenizer_kind(tokenizer) == TOKENIZER_WORDPIECE,
                        .file_size = args->file_size,
                        .threads = (int)args->threads,
                        .progress = progress,
                        .stop = stop_catch(SA_RESTART)};
    TRY(documents_parse(args->documents, &spec.documents));
    double start = clock_wall();
    TRY(prepare_dir(&spec, args->out, args->overwrite, &result));
    progress_end(progress);
    TRY(prepare_notes(&result, print_warning, NULL));
    return result_json(&result, clock_wall() - start, ret_result);
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const PrepareArgs *args = call->config;
    const json_t *files = json_object_get(result, "files");
    if (files) {
        show_squad(files, args, out);
        return OK;
    }
    if (json_object_get(result, "dialogues")) {
        show_dialogues(json_object_get(result, "dialogues"), out);
        return OK;
    }
    char tokens[FORMAT_SIZE], documents[FORMAT_SIZE], bytes[FORMAT_SIZE], rate[FORMAT_SIZE];
    double number;
    fprintf(out, "%s tokens in %s document%s", format_count(tokens, (double)json_int_at(result, "tokens")),
            format_count(documents, (double)json_int_at(result, "documents")),
            PLURAL(json_int_at(result, "documents")));
    if (json_int_at(result, "val_documents"))
        fprintf(out, ", plus %s in %s for validation",
                format_count(tokens, (double)json_int_at(result, "val_tokens")),
                format_count(documents, (double)json_int_at(result, "val_documents")));
    if (json_int_at(result, "sentences"))
        fprintf(out, ", %s sentences", format_count(tokens, (double)json_int_at(result, "sentences")));
    fprintf(out, ", from %s of text", format_bytes(bytes, (double)json_int_at(result, "bytes")));
    if (json_has_number(result, "seconds", &number)) fprintf(out, " in %.1f s", number);
    if (json_has_number(result, "bytes_per_s", &number)) fprintf(out, ", %s/s", format_bytes(rate, number));
    size_t token_files = json_array_size(json_object_get(result, "shards")) +
                         json_array_size(json_object_get(result, "val_shards"));
    fprintf(out, "\n%zu token file%s in %s; train with: weft train --data ", token_files, PLURAL(token_files),
            args->out);
    show_word(out, args->out);
    fputc('\n', out);
    return OK;
}

const Command command_prepare = {
    .name = "prepare",
    .summary = "tokenize text and JSON lines into token files",
    .description =
        "Tokenizes a corpus of any size in bounded memory, on all cores, into token files that train and "
        "eval map into memory. Each document ends with <|endoftext|> or, for BERT vocabularies, [SEP]; "
        "empty documents are skipped. The output does not depend on the number of threads. The "
        "tokenizer's files are kept beside the token files, for the checkpoints of runs on them; training "
        "with another one is an error.\n\n"
        "The directory appears only when it is complete; an interrupted command leaves nothing behind.",
    .positional = POSITIONAL("data"),
    .config_size = sizeof(PrepareArgs),
    .groups = GROUPS(OPTION_GROUP("Options", table, 0)),
    .examples =
        {{"Tokenize text files with GPT-2's tokenizer, one document per file",
          "weft prepare --tokenizer gpt2 --data books/*.txt --out tokens"},
         {"Tokenize JSON lines and hold out 1% for validation",
          "weft prepare --tokenizer gpt2 --data corpus.jsonl.gz --field body --val-fraction 0.01 --out "
          "tokens"},
         {"Cornell movie dialogs as pairs of utterances",
          "weft prepare --format cornell --data movie_lines.txt movie_conversations.txt --out dialogs"},
         {"SQuAD questions as token ids",
          "weft prepare --format squad --tokenizer bert-base-uncased --data train-v2.0.json --out squad"}},
    .run = run,
    .show = show,
};
