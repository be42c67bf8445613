/* Recipes: configuration files with alternative scales and with runs to compare. */
#ifndef WEFT_COMPARE_RECIPE_H
#define WEFT_COMPARE_RECIPE_H

#include "base/json.h"

/* Removes the keys that are not options from `file` and merges in the options of the scale and then of the
 * run; either may be NULL. `path` names the file in error messages. */
MUST_USE Status recipe_settle(json_t *file, const char *path, const char *scale, const char *run);

/* The parts of a recipe that a comparison uses. */
typedef struct Recipe {
    json_t *about;   /* string, or NULL */
    json_t *runs;    /* validated array of objects with unique names */
    json_t *cluster; /* default cluster of the runs; NULL or JSON null: no default */
    json_t *program; /* which program to predict: one of recipe_programs; NULL or JSON null: no default */
    json_t *study;   /* validated, see report/study.h; NULL: none */
    double samples;  /* training samples per epoch, to simulate epochs without the data; 0: unknown */
    bool resized;    /* the scale gives the runs another size than the study's */
    bool other_runs; /* the scale's runs are not those of the study, whose claims may name others */
} Recipe;

/* Whose time and memory predictions are for: the program that the cluster describes, weft, or both.
 * NULL-terminated. */
extern const char *const recipe_programs[];

MUST_USE Status recipe_read(Recipe *ret_recipe, const char *path, const char *scale);
void recipe_done(Recipe *recipe);
/* The cluster on which to simulate a run that does not fit this machine; NULL: do not simulate. */
const char *recipe_cluster(const Recipe *recipe, size_t run);

/* Whether a key of a scale or run is a recipe's own rather than an option. */
bool recipe_scale_has_key(const char *key);
bool recipe_run_has_key(const char *key);
/* Checks the parts of runs that are not options. */
MUST_USE Status recipe_check_run(const json_t *run, const char *path);

#endif
