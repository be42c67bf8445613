/* Predictions for the rows of a data set: files of rows, and the values in them.
 *
 *   .jsonl, .ndjson   an object per row
 *   .csv              a header and a line per row; a member of an object has a column of its own,
 * "object.member", and a list is JSON text .npy              vectors only: an fp32 array (rows, width)
 *
 * The rows are those of the data, in the same order, whatever the batches and the layout are. Every row
 * begins with "id", as the data has it, or if no row has one with "row", its number from 1.
 *
 *   classify, single-label   label, probabilities {label: p}
 *             multi-label    labels: those that are more probable than not, probabilities {label: p}
 *             regression     value, or with several outputs values {label: value}
 *   mlm                      masks [{position, tokens [{token, id, probability}]}], and next_sentence, the
 *                            probability that the second text of a pair follows the first
 *   lm                       tokens: how many the text predicts, nll: the sum of their losses, loss,
 * accuracy, next [{token, id, probability}]: the most probable tokens after the text span answer, start, end
 * (characters of the context), probability, no_answer_probability; of token ids start and end, positions of
 * tokens, and probability embeddings               embedding [number]
 *
 * Those of labeled data add what they are compared with: target or targets, of masked tokens also target_id
 * and target_probability, and next_sentence_target. */
#ifndef WEFT_TRAIN_PREDICTIONS_H
#define WEFT_TRAIN_PREDICTIONS_H

#include "data/data.h"
#include "train/job.h"

struct Predictions {
    struct RowFile *file; /* NULL: another rank writes */
    int64_t top;          /* tokens to list */
    bool labeled;         /* the data is */
    int64_t rows;         /* written so far, on all ranks */
};

/* What can be written to a file of this name. */
typedef enum { ROW_FILE_NONE, ROW_FILE_JSON, ROW_FILE_CSV, ROW_FILE_NPY } RowFormat;
RowFormat row_format_of(const char *path);

/* A file that appears when it is complete or, if the path is NULL, JSON lines for `put`. Rank 0 writes. */
MUST_USE Status predictions_init(Predictions *predictions, const Job *job, const char *path, RowPut put);
void predictions_done(Predictions *predictions);
/* Completes the file. */
MUST_USE Status predictions_commit(Predictions *predictions);

/* Begins a row for an example, or for the question of this name; *ret_row is NULL on ranks that do not write.
 */
MUST_USE Status predictions_row(Predictions *predictions, const Dataset *data, int64_t index,
                                json_t **ret_row);
MUST_USE Status predictions_named(Predictions *predictions, const json_t *name, json_t **ret_row);
/* Writes a complete row, which is NULL on other ranks. */
MUST_USE Status predictions_put(Predictions *predictions, const json_t *row);
/* Writes a row with a vector, or in a .npy file the vector alone. */
MUST_USE Status predictions_put_vector(Predictions *predictions, const Dataset *data, int64_t index,
                                       const float *vector, int64_t width);

/* {"token", "id", "probability"}; without a tokenizer there is no "token". */
MUST_USE Status predictions_token(const Job *job, int32_t id, float probability, json_t **ret_json);
/* Fails if not all values are finite. */
MUST_USE Status predictions_check(const float *values, int64_t count);

/* Predictions for tokens and spans of the first `limit` examples (0: all) of a dataset. `stride`: those of
 * its windows, see dataset_windows; 0: no windows. Collective. */
MUST_USE Status predict_tokens(const Job *job, const Dataset *data, int64_t limit, int64_t stride,
                               Predictions *out);
MUST_USE Status predict_spans(const Job *job, const Dataset *data, int64_t limit, Predictions *out);

#endif
