/* Labels of regression and multi-label classification: a row of fp32 targets per example, one for each of the
 * model's L labels.
 *
 * One label field, or "label" in `ids` files, has
 *   regression    a number if L is 1, or a list of L numbers
 *   multi-label   a list of label names, a list of label numbers, or a vector (L numbers from 0 to 1)
 *
 * A list of integers is a vector if it has exactly L entries, all of them 0 or 1. A file has either vectors
 * or label numbers, so an ambiguous file is an error. In .csv and .tsv files a list is JSON text, such as
 * "[0, 1]". Several label fields, "a,b,c", have one number each, for multi-label from 0 to 1.
 */
#ifndef WEFT_DATA_TARGETS_H
#define WEFT_DATA_TARGETS_H

#include "data/labels.h"
#include "data/table.h"
#include "model/config.h"

typedef enum { LISTS_UNKNOWN, LISTS_VECTORS, LISTS_NUMBERS } ListForm;

/* Reads the labels of one file. */
typedef struct TargetReader {
    ProblemType problem; /* regression or multi-label */
    int64_t labels;
    const char *const *names; /* (labels), or NULL */
    const char *file;
    ListForm form; /* of the integer lists so far */
} TargetReader;

/* From the label fields of a row. With several fields, field i sets targets[column[i]]. */
MUST_USE Status targets_from_fields(TargetReader *reader, int64_t line, const TableField *fields, int count,
                                    const int64_t *column, float *targets);
/* From the value of "label"; NULL: absent. */
MUST_USE Status targets_from_json(TargetReader *reader, int64_t line, const json_t *label, float *targets);
/* Assigns label fields to labels: by name if all have the name of a label, in order if none has; anything
 * else is an error. ret_column has `labels` entries. */
MUST_USE Status targets_columns(const LabelSet *fields, const char *const *names, int64_t labels,
                                int64_t *ret_column);

/* What the labels of a data set are. */
typedef struct LabelKind {
    ProblemType problem;
    int64_t outputs;   /* regression, multi-label: number of labels; 0: the names must be counted */
    bool lists;        /* every label is a list */
    bool from_columns; /* several label fields */
} LabelKind;

/* Reads the labels of all files. If `asked` is PROBLEM_AUTO, the problem follows from them:
 *   lists of names, or of label numbers            multi-label
 *   lists or several fields, all values 0 to 1     multi-label
 *   other lists or several fields                  regression
 *   numbers, at least one of them not an integer   regression
 *   the same, but some are nan, inf or null        an error
 *   anything else                                  single-label
 * `field` is a name or several, separated by commas. `ids`: the files have the format ids. */
MUST_USE Status labels_inspect(LabelKind *ret_kind, const char *const *paths, int count, const char *field,
                               bool ids, ProblemType asked);

#endif
