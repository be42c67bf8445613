/* Data: from files to micro-batches.
 *
 * A Dataset gives random access to examples; which example comes at which place of which epoch is a
 * keyed permutation (base/rng.h), so a run can start at any step and every layout sees the same
 * global order. Formats:
 *   bytes    any files, each byte a token (256 of them), a file's end marked by the end token 256
 *   u16 u32  token ids, little-endian, nothing else in the file
 *   ids      JSON lines, one example each: {"ids": [...], "types": [...], "labels": [...],
 *            "next": 0|1, "start": n, "end": n, "label": n}; ids and what the task asks for are
 *            required, shorter ones are padded
 *   shards   token shards (data/token_file.h), by their names or by the directory that weft prepare made
 *   text     documents for a tokenizer (data/reader.h); prepared into shards first (data/cache.h)
 *   squad    SQuAD's JSON: questions, contexts and answers for a tokenizer (data/squad_features.h), task span
 *   pairs    rows with a question and its answer (data/table.h), task mlm
 *   cornell  the Cornell Movie-Dialogs Corpus in its own format (data/cornell.h), task mlm
 *   records  rows with a text, perhaps a second one, and a label (data/table.h), task classify
 * Any of them but shards may be compressed (.gz). The path "self", where no such file exists, is the corpus
 * inside the program: its own source and documents, as bytes.
 *
 * Tasks:
 *   lm       next token. "labels", when there, lie at the positions of their tokens, as Hugging Face
 *            has them: the label at t + 1 is what position t must predict. -100: not counted.
 *   mlm      masked tokens and next sentence, made from a stream of tokens: pairs of sentences where
 *            shards mark them (data/pairs.h), else of spans. In `ids` files, "labels"
 *            (not shifted) say what was masked; without them masks are drawn as for a stream.
 *            "next": 0 the second part follows the first, 1 it is from elsewhere.
 *   span     "start" and "end", 0 to T; at or past the example's length they are not counted
 *   classify "label", 0 to labels - 1
 */
#ifndef WEFT_DATA_DATA_H
#define WEFT_DATA_DATA_H

#include <stdint.h>

#include "data/token_file.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

typedef enum {
    FORMAT_AUTO,
    FORMAT_BYTES,
    FORMAT_U16,
    FORMAT_U32,
    FORMAT_IDS,
    FORMAT_TOKENS,
    FORMAT_TEXT,
    FORMAT_SQUAD,
    FORMAT_PAIRS,
    FORMAT_CORNELL,
    FORMAT_RECORDS,
} DataFormat;
enum { FORMAT_COUNT = FORMAT_RECORDS + 1 };
const char *data_format_name(DataFormat format);
/* What FORMAT_AUTO comes to, by the file's name. */
DataFormat data_format_of(const char *path);
/* The same with a look into JSON lines: those whose first line has `field` (NULL: "text") and no "ids" are
 * text, and those that have "q" and "a" are pairs; and into .json: what looks like SQuAD's is. */
MUST_USE Status data_format_find(const char *path, const char *field, DataFormat *ret_format);

typedef enum { TASK_LM, TASK_MLM, TASK_SPAN, TASK_CLASSIFY } Task;

typedef struct DataSpec {
    const char *const *paths;
    int path_count;
    DataFormat format; /* AUTO: by the names, as data_format_of has it; not TEXT */
    Task task;
    int64_t seq;   /* T */
    int64_t vocab; /* a larger token is an error that names file and place */
    int64_t types; /* 0: the model takes none */
    int64_t labels;
    SpecialTokens special;
    const TokenizerId *tokenizer;  /* shards of another one are refused; NULL: any */
    const char *tokenizer_name;    /* ... for messages */
    const Tokenizer *encoder;      /* squad, pairs, cornell, records: what encodes their texts */
    int64_t doc_stride, max_query; /* squad: as in SquadSpec */
    const char *text_field, *pair_field, *label_field; /* pairs, records: names of fields; pair may be NULL */
    const char *const *label_names;                    /* (labels) records; NULL: they are numbers */
    bool next_sentence;       /* mlm from a stream: pairs with a next-sentence label, else single spans */
    bool no_masks;            /* mlm: the next sentence alone */
    double mask_rate;         /* mlm: 0.15 */
    const uint8_t *continues; /* (vocab) whole-word masking: 1 for tokens that go on with a word; it must
                               * outlive the data. NULL: tokens are masked one by one */
    bool windows;             /* lm: for dataset_windows alone, which two tokens suffice for */
    double keep_first;        /* the part of the tokens (or examples) used, from the start... */
    double keep_last; /* ...or from the end: training takes 1 - v first, validation v last; both 0: all */
    uint64_t seed;
} DataSpec;

/* A batch on the host; arrays as in model.h's Micro, sized for B x T and lying in one piece. It is
 * filled again and again without new memory. */
typedef struct HostBatch {
    int64_t B, T;
    Task task;       /* what it was filled for; arrays that the task does not use are undefined */
    bool has_types;  /* the model takes token types */
    bool padded;     /* some lens[b] < T */
    int32_t *tokens; /* (B,T), padding included */
    int32_t *types;  /* (B,T) */
    int32_t *lens;   /* (B) */
    int32_t *labels; /* (B,T) lm, mlm; -100: not counted */
    int32_t *nsp, *span, *classes;
    int32_t *first_rows;          /* (B) b * T, fixed */
    int32_t *picks, *pick_labels; /* mlm: the places in labels that count, in order, and what they hold */
    int64_t pick_count;
    int64_t loss_count[LOSS_COUNT]; /* counted terms */
    void *memory;
} HostBatch;

MUST_USE Status host_batch_new(HostBatch **ret_batch, int64_t B, int64_t T);
void host_batch_free(HostBatch *batch);
DEFINE_FREEP(HostBatch, host_batch)
/* Leaves the tokens of a filled batch and takes everything out that a loss would count. */
void host_batch_blank(HostBatch *batch);
/* Bytes that a batch takes on a device. */
size_t host_batch_bytes(int64_t B, int64_t T);
/* Copies a filled batch into `to` (of at least host_batch_bytes) on the stream, in one piece, and gives
 * the views of it that a model takes; what the task does not use is none. `first` is the global index
 * of its first sequence in the step's batch. */
MUST_USE Status host_batch_upload(const HostBatch *batch, Stream *stream, Buffer to, int64_t first,
                                  Micro *ret_micro);

typedef struct Dataset Dataset;

/* Shards of up to TOKEN_FILES_VERIFIED bytes together are verified here; larger ones block by block, before a
 * block's tokens are used. */
#define TOKEN_FILES_VERIFIED ((size_t)1 << 30)
MUST_USE Status dataset_open(Dataset **ret_data, const DataSpec *spec);
/* Whether files of a format can be for the task. */
MUST_USE Status dataset_check_task(const DataSpec *spec, DataFormat format);
void dataset_free(Dataset *data);
DEFINE_FREEP(Dataset, dataset)
int64_t dataset_count(const Dataset *data);  /* examples in an epoch */
int64_t dataset_tokens(const Dataset *data); /* tokens in the used part of its files */
/* What there is to warn of, in one line to be freed; NULL: nothing. */
MUST_USE Status dataset_warning(const Dataset *data, char **ret_text);

/* Fills `batch` (its B sequences) with the examples at places `position` .. `position + B - 1` of the
 * endless shuffled order: epoch after epoch, each in an order of its own, masks drawn anew. With
 * `shuffle` off, the files' order. Places past the last example of an unshuffled single pass
 * (evaluation) are the caller's to avoid. What a place holds depends on nothing but the data, the seed
 * and the place, and several threads may fill batches of their own at once. */
MUST_USE Status dataset_fill(const Dataset *data, uint64_t position, bool shuffle, HostBatch *batch);

/* For lm from a stream, all of its tokens but the first predicted once each: windows of T tokens begin
 * `stride` (1 to T) apart, and each counts what the one before it did not reach. 0: the data is no such
 * stream. */
int64_t dataset_windows(const Dataset *data, int64_t stride);
/* The windows first .. first + B - 1. */
MUST_USE Status dataset_fill_windows(const Dataset *data, int64_t stride, int64_t first, HostBatch *batch);

#endif
