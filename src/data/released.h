/* Names of published models: as on the Hugging Face hub, as `weft fetch` has them, and as presets. */
#ifndef WEFT_DATA_RELEASED_H
#define WEFT_DATA_RELEASED_H

#include <stdbool.h>

#include "data/fetch.h"

/* The name of the model that a URL shows, "SCHEME://HOST/OWNER/NAME/...": OWNER/NAME, or the only part of its
 * path. False if it is not a URL. */
enum { RELEASED_NAME = 192 };
bool released_from_url(const char *url, char ret_name[RELEASED_NAME]);

/* The set with the weights of a model, by the name of the set, on the hub, or of the preset; NULL: none. */
const FetchSet *released_set(const char *name);

/* What to do about a model that is not a directory, such as "; for the released weights, run 'weft fetch
 * gpt2' and pass @gpt2"; empty if the name says nothing. `presets`: a preset with random weights is
 * acceptable, too. */
enum { RELEASED_HINT = 600 };
const char *released_hint(const char *name, bool presets, char text[RELEASED_HINT]);

#endif
