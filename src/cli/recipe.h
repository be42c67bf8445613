/* Recipes: configuration files with alternative scales and with runs to compare. */
#ifndef WEFT_CLI_RECIPE_H
#define WEFT_CLI_RECIPE_H

#include "base/json.h"

/* Removes "about", "scales", "runs" and "cluster" from `file` and merges in the options of the scale and then
 * of the run; either may be NULL. `path` names the file in error messages. */
MUST_USE Status recipe_settle(json_t *file, const char *path, const char *scale, const char *run);

/* The parts of a recipe that a comparison uses. */
typedef struct Recipe {
    json_t *about;   /* string, or NULL */
    json_t *runs;    /* validated array of objects with unique names */
    json_t *cluster; /* default cluster of the runs; NULL or JSON null: no default */
} Recipe;

MUST_USE Status recipe_read(Recipe *ret_recipe, const char *path, const char *scale);
void recipe_done(Recipe *recipe);
/* The cluster on which to simulate a run that does not fit this machine; NULL: do not simulate. */
const char *recipe_cluster(const Recipe *recipe, size_t run);

#endif
