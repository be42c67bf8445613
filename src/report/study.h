/* The published study that a comparison repeats: its figures, and which of its conclusions hold here.
 *
 * A recipe's "study" is {"title", "hardware", "source", "note", "columns": [FIGURE ...], "claims": [...]},
 * all optional. A run's "published" has values by figure (the keys of results.json; "peak_gib" is peak_bytes
 * in GiB), "outcome": "out of memory", losses after certain steps, "by_step": [{"step", "loss", "val_loss"},
 * ...], and its own "hardware" and "source" if they differ from the study's.
 *
 * A claim is {"text", "run", "figure", "relation", "than", "by"}: the figure of a run is "higher" or "lower"
 * than that of another, or "equal", by at least (equal: at most) the fraction `by`, 0.01 by default. "run"
 * may be a list: then the claim holds for all of them, and without "than" they are compared with the first.
 * The relation "out of memory" has neither figure nor second run. Conclusions about pruning and quantization
 * are listed under "compression", see report/compressed_claims.c. */
#ifndef WEFT_REPORT_STUDY_H
#define WEFT_REPORT_STUDY_H

#include "report/results.h"

/* Checks the types and keys of a study or of a run's published figures. `from` names the file in messages. */
MUST_USE Status study_check(const json_t *study, const char *from);
MUST_USE Status published_check(const json_t *published, const char *from);
/* Checks that the runs named by claims exist. */
MUST_USE Status study_check_runs(const Results *results, const char *from);
/* Drops the claims about runs that do not exist. */
MUST_USE Status study_drop_claims(Results *results);
/* A copy in which all values are in the units of figures. */
MUST_USE Status published_settle(const json_t *published, json_t **ret_published);

/* Whether the study ran out of memory in this run. */
bool published_lacks_memory(const Run *run);
/* A text of the run's published figures or, failing that, of the study: "hardware", "source"; else NULL. */
const char *published_text(const Results *results, const Run *run, const char *key);

/* Whether the study's list of columns names the figure. */
bool study_lists(const Results *results, size_t figure);
/* Whether published values of the figure are shown for any run. */
bool figure_is_published(const Results *results, size_t figure);

/* ---- findings ---- */

typedef enum { VERDICT_UNKNOWN, VERDICT_HOLDS, VERDICT_FAILS } Verdict;
const char *verdict_name(Verdict verdict);

/* Evaluates a claim of the study, from measured figures if all the runs have them, else from predictions.
 * *ret_detail has the values, ours and published; the caller frees it. */
MUST_USE Status claim_judge(const Results *results, const json_t *claim, Verdict *ret_verdict,
                            char **ret_detail);
/* The study's claims; NULL: none. */
const json_t *study_claims(const Results *results);
/* "Of the study's 3 conclusions, 1 holds here and 2 do not." Empty without claims. The caller frees it. */
MUST_USE Status findings_text(const Results *results, char **ret_text);
/* The same of findings as findings_json makes them: "Of 3 conclusions", after "Of " `of`. */
MUST_USE Status verdicts_text(const json_t *findings, const char *of, char **ret_text);
/* [{"text", "verdict", "detail"}, ...] */
MUST_USE Status findings_json(const Results *results, json_t **ret_json);

#endif
