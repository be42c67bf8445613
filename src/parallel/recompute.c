#include "parallel/recompute.h"

#include <string.h>

Status recompute_parse(const char *name, Recompute *ret_mode) {
    static const char *const names[] = {"none", "selective", "block"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i])) continue;
        *ret_mode = (Recompute)i;
        return OK;
    }
    return USAGE("unknown recompute mode '%s'; expected none, selective or block", name);
}
