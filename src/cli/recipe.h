/* Recipes: configuration files with other sizes of themselves, and with runs to compare. */
#ifndef WEFT_CLI_RECIPE_H
#define WEFT_CLI_RECIPE_H

#include "base/json.h"

/* Takes "about", "scales", "runs" and "cluster" out of `file`, and puts in what the scale says and then what
 * the run says; either may be NULL. `path` names the file in messages. */
MUST_USE Status recipe_settle(json_t *file, const char *path, const char *scale, const char *run);

/* What a comparison asks of a recipe. */
typedef struct Recipe {
    json_t *about;   /* text, or NULL */
    json_t *runs;    /* the list, checked: objects, each with a name of its own */
    json_t *cluster; /* for runs that name none themselves; NULL, or null: none */
} Recipe;

MUST_USE Status recipe_read(Recipe *ret_recipe, const char *path, const char *scale);
void recipe_done(Recipe *recipe);
/* The machine that a run is simulated on where this one cannot hold it; NULL: it is not simulated. */
const char *recipe_cluster(const Recipe *recipe, size_t run);

#endif
