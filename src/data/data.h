/* Data: from files to micro-batches.
 *
 * A Dataset gives random access to examples; which example comes at which place of which epoch is a
 * keyed permutation (base/rng.h), so a run can start at any step and every layout sees the same
 * global order. Formats:
 *   bytes    any files, each byte a token (256 of them), a file's end marked by the end token 256
 *   u16 u32  token ids, little-endian, nothing else in the file
 *   ids      JSON lines, one example each: {"ids": [...], "types": [...], "labels": [...],
 *            "next": 0|1, "start": n, "end": n, "label": n}; only ids is required, shorter ones are
 *            padded, "labels" uses -100 for positions that are not counted
 * Tasks: lm (next token), mlm (masked tokens and next sentence; made from a stream of tokens, or
 * read from "labels" and "next"), span, classify (from `ids` files).
 */
#ifndef WEFT_DATA_DATA_H
#define WEFT_DATA_DATA_H

#include <stdint.h>

#include "base/status.h"

typedef enum { FORMAT_AUTO, FORMAT_BYTES, FORMAT_U16, FORMAT_U32, FORMAT_IDS } DataFormat;
typedef enum { TASK_LM, TASK_MLM, TASK_SPAN, TASK_CLASSIFY } Task;

/* Tokens of the byte vocabulary beyond the bytes themselves. */
enum {
    BYTE_END = 256,
    BYTE_PAD = 257,
    BYTE_CLS = 258,
    BYTE_SEP = 259,
    BYTE_MASK = 260,
    BYTE_UNK = 261,
    BYTE_VOCAB_GPT2 = 257,
    BYTE_VOCAB_BERT = 262
};

typedef struct SpecialTokens {
    int32_t pad, cls, sep, mask; /* -1: the vocabulary has none */
} SpecialTokens;

typedef struct DataSpec {
    const char *const *paths;
    int path_count;
    DataFormat format; /* AUTO: ids for .jsonl, u16 for .u16 and .bin, u32 for .u32, else bytes */
    Task task;
    int64_t seq;   /* T */
    int64_t vocab; /* a larger token is an error that names file and place */
    int64_t types, labels;
    SpecialTokens special;
    bool next_sentence; /* mlm from a stream: pairs with a next-sentence label, else single spans */
    double mask_rate;   /* mlm: 0.15 */
    double keep_first;  /* the part of a stream used, from its start... */
    double keep_last;   /* ...or from its end: training takes 1 - v first, validation v last; both 0: all */
    uint64_t seed;
} DataSpec;

/* A batch on the host; arrays as in model.h's Micro, sized for B x T. */
typedef struct HostBatch {
    int64_t B, T;
    int32_t *tokens, *types, *lens, *labels, *nsp, *span, *classes;
    bool padded;                  /* some lens[b] < T */
    int64_t loss_count[5];        /* counted terms by LossId */
    int32_t *picks, *pick_labels; /* mlm */
    int64_t pick_count;
} HostBatch;

MUST_USE Status host_batch_new(HostBatch **ret_batch, int64_t B, int64_t T);
void host_batch_free(HostBatch *batch);
DEFINE_FREEP(HostBatch, host_batch)

typedef struct Dataset Dataset;

MUST_USE Status dataset_open(Dataset **ret_data, const DataSpec *spec);
void dataset_free(Dataset *data);
DEFINE_FREEP(Dataset, dataset)
int64_t dataset_count(const Dataset *data);  /* examples in an epoch */
int64_t dataset_tokens(const Dataset *data); /* tokens in its files' used part */

/* Fills `batch` (its B sequences) with the examples at places `position` .. `position + B - 1` of the
 * endless shuffled order: epoch after epoch, each in an order of its own, masks drawn anew. With
 * `shuffle` off, the files' order. Places past the last example of an unshuffled single pass
 * (evaluation) are the caller's to avoid. */
MUST_USE Status dataset_fill(const Dataset *data, uint64_t position, bool shuffle, HostBatch *batch);

#endif
