#include "model/family.h"

#include <string.h>

const Family *const *families(void) {
    static const Family *const all[] = {
#define FAMILY(name) &family_##name,
#include "model/families.def"
#undef FAMILY
        NULL};
    return all;
}

const Family *family_find(const char *type) {
    for (const Family *const *family = families(); *family; family++)
        if (!strcmp((*family)->type, type)) return *family;
    return NULL;
}
