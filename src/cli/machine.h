/* `weft info` without a path: describes this machine and build. */
#ifndef WEFT_CLI_MACHINE_H
#define WEFT_CLI_MACHINE_H

#include <stdio.h>

#include "base/json.h"

MUST_USE Status machine_describe(json_t *result);
void machine_show(const json_t *result, FILE *out);

#endif
