/* weft tokenizer train: trains a BPE or WordPiece tokenizer.
 *
 * Threads read blocks of the corpus and count the words in them; memory holds only the current blocks and the
 * distinct words. Merging starts when all blocks are counted. */
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/progress.h"
#include "cli/command.h"
#include "data/reader.h"
#include "tokenizer/learn.h"

typedef struct TrainArgs {
    const char *kind, *field, *out;
    const char **data, **special;
    int data_count, special_count;
    int64_t vocab, min_count, alphabet, threads;
    bool cased, quiet;
} TrainArgs;

static const char *const kind_choices[] = {"bpe", "wordpiece", NULL};

/* clang-format off */
static const Option vocabulary_options[] = {
    {OPT_CHOICE("kind", TrainArgs, kind, "KIND", kind_choices), .fallback = "bpe",
     .help = "Tokenizer type: byte-level BPE like GPT-2's, or WordPiece like BERT's."},
    {OPT_INT("vocab", TrainArgs, vocab), .required = true, RANGE(1, 1 << 24),
     .help = "Vocabulary size, including special tokens and the alphabet."},
    {OPT_INT("min-count", TrainArgs, min_count), RANGE(1, 1e15), .fallback = "2",
     .help = "Minimum number of occurrences for a pair of tokens to be merged."},
    {OPT_LIST("special", TrainArgs, special, "TOKEN"), .one_each = true,
     .help = "Additional special token; repeat for several. The defaults (<|endoftext|>, or [PAD] [UNK] "
             "[CLS] [SEP] [MASK]) come first, except those listed here, which keep their place in this "
             "list."},
    {OPT_FLAG("cased", TrainArgs, cased), .help = "WordPiece: keep case and accents."},
    {OPT_INT("alphabet", TrainArgs, alphabet), RANGE(1, 1 << 21), .fallback = "1000",
     .help = "WordPiece: maximum alphabet size; the most frequent characters are kept."},
};

static const Option text_options[] = {
    {OPT_LIST("data", TrainArgs, data, "FILE"), .required = true,
     .help = "Text to train on: plain text or rows (JSON, .csv, .tsv, Parquet); or self, weft's own "
             "source."},
    {OPT_TEXT("field", TrainArgs, field, "NAME"), .fallback = "text",
     .help = "Field of rows (JSON, .csv, .tsv, Parquet) that contains the text."},
    {OPT_TEXT("out", TrainArgs, out, "DIR"), .required = true,
     .help = "Directory for the tokenizer's files; must not already contain a tokenizer."},
    {OPT_INT("threads", TrainArgs, threads), RANGE(1, 4096), .fallback = "0", .shown = "all cores",
     .help = "Threads for counting words; does not affect the result."},
    {OPT_FLAG("quiet", TrainArgs, quiet), .help = "Do not show progress."},
};
/* clang-format on */

/* ---- special tokens ---- */

static bool is_among(const char *token, const char *const *list, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(list[i], token) == 0) return true;
    return false;
}

/* The default special tokens that --special does not list, then those it lists. */
static Status list_special(const TrainArgs *args, TokenizerKind kind, const char ***ret_list,
                           int *ret_count) {
    int usual_count, count = 0;
    const char *const *usual = learn_default_special(kind, &usual_count);
    const char **list = NULL;
    TRY(mem_new((size_t)usual_count + (size_t)args->special_count, sizeof *list, &list));
    for (int i = 0; i < usual_count; i++)
        if (!is_among(usual[i], args->special, args->special_count)) list[count++] = usual[i];
    for (int i = 0; i < args->special_count; i++) list[count++] = args->special[i];
    *ret_list = list;
    *ret_count = count;
    return OK;
}

/* ---- counting ---- */

typedef struct Counting {
    Learner *learner;
    Reader *reader;
    const ReaderSpec *spec;
    Progress *progress;
    int64_t bytes, documents;
    bool over;     /* no blocks are left, or a thread failed */
    Status status; /* the first failure */
} Counting;

typedef struct CountingThread {
    Counting *counting;
    int slot;
    int64_t bytes, documents;
} CountingThread;

static size_t cut_text(const void *learner, const char *text, size_t size) {
    return learner_cut(learner, text, size);
}

static Status count_piece(void *context, const TextPiece *piece) {
    CountingThread *thread = context;
    thread->bytes += (int64_t)piece->size;
    thread->documents += piece->last;
    return learner_add(thread->counting->learner, thread->slot, piece->text, piece->size);
}

static bool take_block(Counting *counting, TextBlock *block) {
    bool more = false;
    if (counting->over) return false;
    Status status = reader_next(counting->reader, block, &more);
    if (status || !more) counting->over = true;
    if (status) counting->status = status;
    if (more && !status) progress_update(counting->progress, block->used, "");
    return more && !status;
}

static void count_blocks(Counting *counting, int slot) {
    CountingThread thread = {.counting = counting, .slot = slot};
    CLEANUP(text_block_done) TextBlock block = {0};
    Status status = OK;
    while (!status) {
        bool taken;
#pragma omp critical(tokenizer_train)
        taken = take_block(counting, &block);
        if (!taken) break;
        status = reader_split(counting->spec, &block, count_piece, &thread);
    }
#pragma omp critical(tokenizer_train)
    {
        counting->bytes += thread.bytes;
        counting->documents += thread.documents;
        if (status) counting->over = true;
        if (status && !counting->status)
            counting->status = status;
        else
            status_free(status);
    }
}

static Status count_words(Counting *counting, bool quiet) {
    TRY(progress_new(&counting->progress, stderr, "counting words", reader_total(counting->reader), 5.0,
                     quiet));
    int threads = learner_slots(counting->learner);
#pragma omp parallel num_threads(threads)
    count_blocks(counting, omp_get_thread_num());
    progress_end(counting->progress);
    return counting->status;
}

static void counting_done(Counting *counting) {
    progress_free(counting->progress);
    reader_free(counting->reader);
    learner_free(counting->learner);
}

/* ---- training ---- */

static void show_progress(void *context, int64_t done, int64_t total) {
    Progress *progress = context;
    progress_total(progress, total);
    progress_update(progress, done, "");
}

static Status learn(Counting *counting, bool quiet, Tokenizer **ret_tokenizer) {
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(progress_new(&progress, stderr, "training tokenizer", 0, 5.0, quiet));
    TRY(learner_finish(counting->learner, show_progress, progress, ret_tokenizer));
    progress_end(progress);
    return OK;
}

static Status start(Counting *counting, const TrainArgs *args, ReaderSpec *spec) {
    CLEANUP(mem_freep) const char **special = NULL;
    int special_count = 0;
    TokenizerKind kind = strcmp(args->kind, "bpe") == 0 ? TOKENIZER_BPE : TOKENIZER_WORDPIECE;
    TRY(list_special(args, kind, &special, &special_count));
    LearnSpec learn_spec = {
        .kind = kind,
        .vocab = args->vocab,
        .min_count = args->min_count,
        .cased = args->cased,
        .alphabet_limit = args->alphabet,
        .special = special,
        .special_count = special_count,
        .threads = (int)args->threads,
    };
    TRY(learner_new(&counting->learner, &learn_spec));
    *spec = (ReaderSpec){.paths = args->data,
                         .path_count = args->data_count,
                         .documents = DOCUMENTS_FILE,
                         .field = args->field,
                         .cut = cut_text,
                         .cut_context = counting->learner};
    counting->spec = spec;
    return reader_new(&counting->reader, spec);
}

/* Saves to a temporary directory first, so that a new directory appears complete. */
static Status save_atomically(const Tokenizer *tokenizer, const char *out) {
    if (path_exists(out)) return tokenizer_save(tokenizer, out);
    CLEANUP(mem_freep) char *made = NULL;
    size_t size = strlen(out);
    while (size > 1 && out[size - 1] == '/') size--;
    TRY(path_clear_leftovers(out));
    TRY(str_format(&made, "%.*s.tmp.%ld", (int)size, out, (long)getpid()));
    Status status = tokenizer_save(tokenizer, made);
    if (!status) status = dir_sync(made);
    if (!status && rename(made, out) != 0) status = FAILED("%s: cannot create: %s", out, strerror(errno));
    if (status) status_free(dir_remove(made));
    return status;
}

static Status check_args(const Invocation *call, const TrainArgs *args) {
    bool bpe = strcmp(args->kind, "bpe") == 0;
    if (bpe && args->cased) return USAGE("--cased applies only to --kind wordpiece; BPE always keeps case");
    if (bpe && invocation_given(call, "alphabet"))
        return USAGE("--alphabet applies only to --kind wordpiece; BPE's alphabet is the 256 bytes");
    if (tokenizer_exists(args->out))
        return USAGE("--out %s: already contains a tokenizer; choose another directory", args->out);
    return OK;
}

static Status run(Invocation *call, void *config, json_t **ret_result) {
    const TrainArgs *args = config;
    TRY(check_args(call, args));
    CLEANUP(counting_done) Counting counting = {0};
    ReaderSpec spec;
    TRY(start(&counting, args, &spec));
    double begin = clock_wall();
    TRY(count_words(&counting, args->quiet));
    double counted = clock_wall();
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    TRY(learn(&counting, args->quiet, &tokenizer));
    double learned = clock_wall();
    TRY(save_atomically(tokenizer, args->out));
    int64_t vocab = tokenizer_vocab(tokenizer);
    *ret_result =
        json_pack("{ss ss sI sI sb sI sI sf sf}", "out", args->out, "kind", args->kind, "vocab",
                  (json_int_t)vocab, "vocab_wanted", (json_int_t)args->vocab, "complete",
                  vocab == args->vocab, "documents", (json_int_t)counting.documents, "bytes",
                  (json_int_t)counting.bytes, "count_s", counted - begin, "learn_s", learned - counted);
    return *ret_result ? OK : FAILED("out of memory while writing the result");
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const TrainArgs *args = call->config;
    char bytes[FORMAT_SIZE];
    double count_s = 0, learn_s = 0;
    json_has_number(result, "count_s", &count_s);
    json_has_number(result, "learn_s", &learn_s);
    fprintf(out, "%s: %lld tokens, trained on %s of text in %.1f s\n", args->out,
            (long long)json_int_at(result, "vocab"),
            format_bytes(bytes, (double)json_int_at(result, "bytes")), count_s + learn_s);
    if (!json_is_true(json_object_get(result, "complete")))
        fprintf(stderr,
                "weft: warning: the vocabulary has fewer tokens than the %lld requested: no further pair "
                "occurs %lld times (--min-count)\n",
                (long long)args->vocab, (long long)args->min_count);
    return OK;
}

const Command command_tokenizer_train = {
    .name = "tokenizer train",
    .summary = "train a tokenizer on text",
    .description = "Merges the most frequent pairs of tokens and writes files that weft and Hugging Face "
                   "transformers load. The text can be any size: only its distinct words are kept in memory. "
                   "The result depends only on the text, not on threads or the order of files.",
    .positional = POSITIONAL("data"),
    .config_size = sizeof(TrainArgs),
    .groups = GROUPS(OPTION_GROUP("Vocabulary", vocabulary_options, 0),
                     OPTION_GROUP("Data and output", text_options, 0)),
    .examples =
        {{"BPE like GPT-2's", "weft tokenizer train --vocab 32000 --data corpus.jsonl.gz --out tok"},
         {"WordPiece like BERT's, with an additional special token",
          "weft tokenizer train --kind wordpiece --vocab 30000 --data *.txt --special [USER] --out tok"}},
    .run = run,
    .show = show,
};
