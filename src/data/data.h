/* Training data: from files to micro-batches.
 *
 * A Dataset gives random access to examples. A keyed permutation (base/rng.h) decides which example comes at
 * which position of which epoch, so a run can start at any step and every parallel layout sees the same
 * global order.
 *
 * Formats:
 *   bytes    any files; each byte is a token (0 to 255) and token 256 ends each file
 *   u16 u32  token ids, little-endian, nothing else in the file
 *   ids      JSON lines, one example each: {"ids": [...], "types": [...], "labels": [...],
 *            "next": 0|1, "start": n, "end": n, "label": n or a list}; "ids" and the fields that the task
 *            needs are required, short examples are padded
 *   tokens   token files (data/token_file.h), given by name or as the output directory of weft prepare
 *   text     documents for a tokenizer (data/reader.h), converted to token files first (data/cache.h)
 *   squad    SQuAD's JSON: questions, contexts and answers for a tokenizer (data/squad_features.h), task span
 *   pairs    rows with a question and its answer (data/table.h), task mlm
 *   cornell  the Cornell Movie-Dialogs Corpus in its original format (data/cornell.h), task mlm
 *   records  rows with a text, optionally a second text, and labels (data/table.h), task classify
 *   chat     conversations (chat/conversation.h) in the text of a chat template (data/chats.h), task lm
 * Files of every format except tokens may be compressed (.gz). Unless a file named "self" exists, the path
 * "self" is the corpus embedded in the program: its own source and documentation, as bytes.
 *
 * Tasks:
 *   lm       next-token prediction. Optional "labels" align with their tokens, as in Hugging Face: the label
 *            at t + 1 is what position t must predict. -100: ignored.
 *   mlm      masked tokens and next sentence. From a token stream: pairs of sentences where the token files
 *            mark sentences (data/pairs.h), else pairs of spans. In `ids` files, "labels" (not shifted)
 *            give the original tokens at masked positions; without them, masks are drawn as for a stream.
 *            "next": 0 if the second part follows the first, 1 if it is random.
 *   span     "start" and "end", 0 to T; ignored if at or past the example's length
 *   classify "label", 0 to labels - 1; for regression and multi-label classification see data/targets.h
 */
#ifndef WEFT_DATA_DATA_H
#define WEFT_DATA_DATA_H

#include <stdint.h>

#include "base/json.h"
#include "chat/template.h"
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
    FORMAT_CHAT,
} DataFormat;
enum { FORMAT_COUNT = FORMAT_CHAT + 1 };
const char *data_format_name(DataFormat format);
/* What FORMAT_AUTO resolves to, judging by the file name. */
DataFormat data_format_of(const char *path);
/* Whether a text, or its beginning, is an object with articles and paragraphs. */
bool data_looks_like_squad(const char *text, size_t size);
/* Whether a .json file is one. */
MUST_USE Status data_is_squad(const char *path, bool *ret_squad);
/* Like data_format_of, but also looks into the file. JSON lines are text if the first line has `field` (NULL:
 * "text") and no "ids", and pairs if it has "q" and "a"; with the keys of a conversation, unless `field`
 * names another, they are chat, as is a .json file that begins like that; one that looks like SQuAD is squad.
 * A file of a known format that is neither text nor token ids is an error (data/signature.h). */
MUST_USE Status data_format_find(const char *path, const char *field, DataFormat *ret_format);

/* Whether JSON lines are token ids, judging by the first line. */
MUST_USE Status data_lines_are_ids(const char *path, bool *ret_ids);

/* The signature of a file, after decompression; NULL: it has none that is known. */
typedef struct Signature Signature;
MUST_USE Status data_signature(const char *path, const Signature **ret_found);

/* The part of the tokens (or examples) to use. */
typedef struct DataPart {
    double fraction;    /* only the first ones count at all; 0: all do. Of these, */
    double first, last; /* this fraction from the start or from the end: with a validation split v, training
                         * keeps the first 1 - v and validation the last v. Both 0: everything */
    int64_t stride;     /* lm on a stream: tokens between the starts of samples; 0: the sequence length */
} DataPart;

typedef struct DataSpec {
    const char *const *paths;
    int path_count;
    const char *const *sources; /* what the paths were made from, for messages; NULL: the paths themselves */
    int source_count;
    DataFormat format; /* AUTO: by file name, see data_format_of; TEXT is not allowed */
    Task task;
    int64_t seq;    /* sequence length T */
    bool fixed_seq; /* users cannot choose it */
    int64_t vocab;  /* a token outside it is an error that names the file and offset */
    int64_t types;  /* token types of the model; 0: the model has no type embeddings */
    int64_t labels;
    ProblemType problem; /* classify; AUTO is single-label */
    SpecialTokens special;
    const TokenizerId *tokenizer;  /* token files from another tokenizer are rejected; NULL: any tokenizer */
    const char *tokenizer_name;    /* the tokenizer's name in messages */
    const Tokenizer *encoder;      /* squad, pairs, cornell, records: tokenizer for their text */
    int64_t doc_stride, max_query; /* squad: see SquadSpec */
    /* pairs, records: names; pair_field may be NULL; label_field may name several, separated by commas */
    const char *text_field, *pair_field, *label_field;
    const char *const *label_names; /* (labels) classify; NULL: labels are integers */
    bool next_sentence; /* mlm from a stream: pairs with a next-sentence label; otherwise single spans */
    bool no_masks;      /* mlm: train on next sentence only */
    double mask_rate;   /* mlm: fraction of tokens to mask, usually 0.15 */
    const uint8_t *continues; /* (vocab) for whole-word masking: 1 for tokens that continue a word; must
                               * outlive the dataset. NULL: mask single tokens */
    bool separate;            /* lm: attention does not cross documents, which end with `end` */
    int32_t end;
    const ChatTemplate *chat; /* chat; NULL: the model has no template */
    LossOn loss_on;
    bool unpacked;  /* chat: one conversation to a sequence */
    bool unlabeled; /* rows to predict: records, whose files may also be lines of text, or ids; labels are
                     * neither needed nor made */
    bool named;     /* records and ids: keep the ids of rows, see dataset_id ... */
    const char *id_field; /* ... which are in this field; NULL: in "id", if it is there */
    bool windows;         /* lm: the dataset is only used through dataset_windows, so two tokens suffice */
    DataPart part;
    uint64_t seed;
} DataSpec;

/* Targets per example: the labels of regression and multi-label classification; otherwise 0. */
int64_t data_outputs(const DataSpec *spec);

/* A batch in host memory. The arrays are those of model.h's Micro, sized for B x T and stored in one
 * contiguous block. A batch can be refilled without allocating. */
typedef struct HostBatch {
    int64_t B, T;       /* T positions of each sequence, */
    int64_t length;     /* which has so many: more in a part, see host_batch_part */
    int64_t outputs;    /* targets per sequence: see config_targets */
    Task task;          /* task of the last fill; arrays that it does not use are undefined */
    bool next_sentence; /* mlm: nsp is set */
    bool has_types;     /* the model has token types */
    bool padded;        /* some lens[b] < T */
    bool documents;     /* attention does not cross documents */
    int32_t *tokens;    /* (B,T) including padding */
    int32_t *types;     /* (B,T) */
    int32_t *lens;      /* (B) */
    int32_t *positions; /* (B,T) of documents and parts; see host_batch_split */
    int32_t *starts;    /* (B,length) the same of documents */
    int32_t *labels;    /* (B,T) lm, mlm; -100: ignored */
    int32_t *nsp, *span, *classes;
    float *targets;                 /* (B,outputs) instead of classes if there are outputs; NaN: ignored */
    int32_t *first_rows;            /* (B) always b * T */
    int32_t *rows;                  /* (B,T) always 0 .. B*T-1 */
    int64_t *step;                  /* (1) the optimizer step, which the runner sets */
    int32_t *picks, *pick_labels;   /* mlm: positions of the labels that are not ignored, and these labels, */
    int64_t pick_count;             /* which host_batch_count finds; others: all positions are computed */
    int64_t loss_count[LOSS_COUNT]; /* number of terms in each loss */
    void *memory;
} HostBatch;

MUST_USE Status host_batch_new(HostBatch **ret_batch, int64_t B, int64_t T);
/* A batch with `outputs` targets per sequence. */
MUST_USE Status host_batch_new_targets(HostBatch **ret_batch, int64_t B, int64_t T, int64_t outputs);
/* A batch for T positions of each sequence of another, as a rank of context parallelism has them. */
MUST_USE Status host_batch_new_part(HostBatch **ret_part, const HostBatch *whole, int64_t T);
/* Fills it with those positions of a filled batch that `at` gives for its rows; losses of whole sequences are
 * those of the part that has the first position. Counts its losses. */
void host_batch_part(HostBatch *part, const HostBatch *whole, Positions at);
void host_batch_free(HostBatch *batch);
DEFINE_FREEP(HostBatch, host_batch)
/* Completes a batch whose rows are filled: the terms of its losses and the picks. */
void host_batch_count(HostBatch *batch);
/* Number of rows for which a loss over the vocabulary is computed. */
int64_t host_batch_rows(const HostBatch *batch);
/* Keeps the tokens of a filled batch but makes every loss ignore it. */
void host_batch_blank(HostBatch *batch);
/* Separates the documents of a filled lm batch. Each ends with the token `end`: starts and positions
 * begin anew after it, and the label of an end token, the next document's first token, is ignored. */
void host_batch_split(HostBatch *batch, int32_t end);
/* Divides the sequences of a filled lm batch into parts of `length` tokens; the last may be shorter. Each
 * part is a document of its own for attention and positions, but predicts the first token of the next. */
void host_batch_divide(HostBatch *batch, int64_t length);
/* Bytes needed on the device for one batch, of T positions of sequences of `length`. */
size_t host_batch_bytes(int64_t B, int64_t T, int64_t length, int64_t outputs);
/* Copies a filled batch into `to` (at least host_batch_bytes) on the stream, in a single transfer. */
MUST_USE Status host_batch_copy(const HostBatch *batch, Stream *stream, Buffer to);
/* The tensor views of such a copy that a model takes; those that the task does not use are empty. `first` is
 * the global index of the batch's first sequence in the step's batch. */
MUST_USE Status host_batch_views(const HostBatch *batch, Buffer to, int64_t first, Micro *ret_micro);
/* Whether the views of two batches in the same place are equal. */
bool host_batch_alike(const HostBatch *batch, const HostBatch *other);
/* Copies and returns the views. */
MUST_USE Status host_batch_upload(const HostBatch *batch, Stream *stream, Buffer to, int64_t first,
                                  Micro *ret_micro);

typedef struct Dataset Dataset;

/* Token files of up to TOKEN_FILES_VERIFIED bytes in total are verified by dataset_open; larger sets block by
 * block, before a block's tokens are used. */
#define TOKEN_FILES_VERIFIED ((size_t)1 << 30)
MUST_USE Status dataset_open(Dataset **ret_data, const DataSpec *spec);
/* Fails if files of this format cannot be used for the task. */
MUST_USE Status dataset_check_task(const DataSpec *spec, DataFormat format);
void dataset_free(Dataset *data);
DEFINE_FREEP(Dataset, dataset)
int64_t dataset_count(const Dataset *data);  /* examples per epoch */
int64_t dataset_tokens(const Dataset *data); /* tokens in the used part of its files */
/* Fails if no loss would be computed on the used examples of a file: training on it would learn nothing.
 * `paths`: as in the DataSpec. */
MUST_USE Status dataset_check_counted(const Dataset *data, const char *const *paths);
/* A one-line warning about the data, to be freed by the caller; NULL: nothing to report. */
MUST_USE Status dataset_warning(const Dataset *data, char **ret_text);
/* A line that describes the data, likewise. */
MUST_USE Status dataset_text(const Dataset *data, char **ret_text);

/* Fills `batch` (B sequences) with the examples at positions `position` .. `position + B - 1` of the infinite
 * order: epoch after epoch, each with a new permutation and new masks. Without `shuffle`, examples come in
 * file order; for a single pass (evaluation) the caller must stop at dataset_count. The result depends only
 * on the data, the seed and the position, and threads may fill different batches concurrently. */
MUST_USE Status dataset_fill(const Dataset *data, uint64_t position, bool shuffle, HostBatch *batch);

/* The id of an example's row as it was in the file, or null; NULL: no row has one. And the number of its row,
 * from 1 over all files. */
const json_t *dataset_id(const Dataset *data, int64_t index);
int64_t dataset_row(const Dataset *data, int64_t index);
/* Whether examples of records are pairs, or those of ids have token types; the first one decides. */
bool dataset_paired(const Dataset *data);
/* Tokens in the longest example of records or ids, at most the sequence length. */
int64_t dataset_longest(const Dataset *data);
/* Changes the sequence length of such a dataset, to at least the longest example. */
void dataset_set_seq(Dataset *data, int64_t seq);

/* Sliding-window evaluation for lm on a stream: every token except the first is predicted exactly once.
 * Windows of T tokens start `stride` (1 to T) apart, and each scores only the tokens that the previous one
 * did not cover. Returns the number of windows; 0 if the data is not an lm stream. */
int64_t dataset_windows(const Dataset *data, int64_t stride);
/* Fills the batch with windows first .. first + B - 1. */
MUST_USE Status dataset_fill_windows(const Dataset *data, int64_t stride, int64_t first, HostBatch *batch);

#endif
