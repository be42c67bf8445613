/* What `weft prune` and evaluations of `weft quantize` left in directories: rounds of pruning and levels of
 * quantization. Several directories are shown together. */
#ifndef WEFT_REPORT_COMPRESSED_H
#define WEFT_REPORT_COMPRESSED_H

#include "base/json.h"
#include "report/grid.h"

/* Starts as {0}; ends with compressed_done. */
typedef struct Compressed {
    char *title;
    json_t *curves;    /* [{"name", "kind", "rounds"}]: a kind of pruning; rounds as in pruning.json */
    json_t *levels;    /* [{"name", "level", "prompts"}]: a level, as in quantization.json */
    json_t *sentences; /* conclusions */
    json_t *findings;  /* [{"text", "verdict", "detail"}]: of the studies' conclusions */
    json_t *studies;   /* what recipes' studies published: {"title", "hardware", "note"} */
    json_t *files;     /* the contents of the files, with "dir" */
} Compressed;

void compressed_done(Compressed *of);

/* Whether all directories have either of them, and none has a comparison. */
MUST_USE Status compressed_are_in(const char *const *dirs, size_t count, bool *ret_all);
/* Adds what the directories have. Kinds and levels of several are preceded by the directory's name. */
MUST_USE Status compressed_read(Compressed *of, const char *const *dirs, size_t count);
/* Add the contents of pruning.json or of quantization.json. `name`: precedes those of its kinds and levels;
 * NULL: nothing does. */
MUST_USE Status compressed_add_pruning(Compressed *of, const json_t *result, const char *name);
MUST_USE Status compressed_add_quantization(Compressed *of, const json_t *result, const char *name);

/* The tables, which are empty without rounds or levels; they start as {0}. */
MUST_USE Status compressed_rounds(const Compressed *of, Grid *grid);
MUST_USE Status compressed_levels(const Compressed *of, Grid *grid);

/* The tables in a format, with the conclusions. The caller frees *ret_text. */
MUST_USE Status compressed_format(const Compressed *of, TableFormat format, char **ret_text);
/* For a terminal: tables, texts and conclusions. */
MUST_USE Status compressed_show(const Compressed *of, FILE *out);

/* ---- a study's conclusions (compressed_claims.c) ---- */

/* Checks a study's list of them; NULL: there is none. */
MUST_USE Status compressed_check_claims(const json_t *claims, const char *from);
/* Appends a finding for each of those in the contents of a file. */
MUST_USE Status compressed_judge(const json_t *result, json_t *findings);

/* ---- pages ---- */

/* Writes a page and its plots, as page_write does. */
MUST_USE Status page_write_compressed(const Compressed *of, const char *path);
/* Writes DIR/report.html; also with what another directory has, unless it is NULL. */
MUST_USE Status page_write_in(const char *dir, const char *beside);
/* Writes the contents of such a page into a section. */
MUST_USE Status put_compressed(Page *page, const Compressed *of);

#endif
