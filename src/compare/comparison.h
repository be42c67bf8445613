/* The results of a recipe's runs, from the first check to the report page. Nothing here starts a run. */
#ifndef WEFT_COMPARE_COMPARISON_H
#define WEFT_COMPARE_COMPARISON_H

#include "compare/predict.h"
#include "compare/recipe.h"
#include "report/results.h"

/* Title, description and study. `path` is the recipe's file; `resized`: the runs have another size than the
 * recipe's, apart from the scale. */
MUST_USE Status comparison_describe(Results *results, const Recipe *recipe, const char *path,
                                    const char *scale, bool resized);
/* The default directory, named after the recipe and the scale. The caller frees *ret_dir. */
MUST_USE Status comparison_dir(const Results *results, char **ret_dir);
/* Adds the run of an entry of recipe->runs, in a directory of its own below `out`. */
MUST_USE Status comparison_add(Results *results, const json_t *entry, const char *path, const char *out,
                               Run **ret_run);

/* Locks the directory until the descriptor is closed. */
MUST_USE Status comparison_lock(const char *out, int *ret_fd);
/* What a comparison found of earlier invocations. */
typedef struct Earlier {
    char *damage;    /* why results.json cannot be read, owned by the caller; NULL: it can, or is absent */
    size_t unlisted; /* runs that results.json does not list */
    size_t kept;     /* results that the recipe does not list */
} Earlier;
/* Reads the results of earlier invocations. Runs that results.json does not list are recognized by their
 * config.json. If results.json is damaged and no run is recognized, the directory may belong to something
 * else, and the call fails. */
MUST_USE Status comparison_recall(Results *results, const char *out, Earlier *ret_earlier);
/* The first run measures the hardware's peak for all, so that their MFU is comparable. */
MUST_USE Status comparison_share_peak(const char *out);

/* Whether a run needs no more work. `wanted`: how it is predicted; NULL: it is executed. A prediction does
 * not count for a run that is executed, or for another cluster or program. A run that was predicted to fail
 * is predicted again, which takes no time. */
MUST_USE Status comparison_is_done(const Run *run, const Prediction *wanted, bool retry, bool *ret_done);
/* Records the end of a prediction: why it failed, or the predicted summary. */
MUST_USE Status comparison_end_prediction(Results *results, Run *run, Status failed, const json_t *summary,
                                          const char *out);
/* Record the start of a run, and its end: exit code and message, which the run takes over. `stopped`: it was
 * asked to stop. *ret_again: it resumes. */
MUST_USE Status comparison_begin_run(Results *results, Run *run, const char *out, bool *ret_again);
MUST_USE Status comparison_end_run(Results *results, Run *run, int code, char *error, bool stopped,
                                   const char *out);

/* Whether there is any such run. A run that lacked memory in the study, too, has not failed. */
typedef struct Outcome {
    bool finished, failed, interrupted;
} Outcome;
Outcome comparison_outcome(const Results *results);
/* Writes results.json, results.csv and report.html. */
MUST_USE Status comparison_write(const Results *results, const char *out);

#endif
