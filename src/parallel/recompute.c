#include "parallel/recompute.h"

#include <stddef.h>

const char *const recompute_names[] = {"none", "selective", "block", NULL};
