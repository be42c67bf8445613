#include "model/family.h"

#include <stdio.h>
#include <string.h>

const Family *const *families(void) {
    static const Family *const all[] = {
#define FAMILY(name) &family_##name,
#include "model/families.def"
#undef FAMILY
        NULL};
    return all;
}

const char *family_titles(unsigned outputs, const char *last, char text[FAMILY_TITLES]) {
    const Family *named = NULL;
    size_t used = 0;
    text[0] = 0;
    for (const Family *const *family = families(); *family; family++) {
        if (!((*family)->outputs & outputs)) continue;
        if (named && used < FAMILY_TITLES)
            used +=
                (size_t)snprintf(text + used, FAMILY_TITLES - used, "%s%s", used ? ", " : "", named->title);
        named = *family;
    }
    if (named && used < FAMILY_TITLES)
        snprintf(text + used, FAMILY_TITLES - used, "%s%s%s%s", used ? " " : "", used ? last : "",
                 used ? " " : "", named->title);
    return text;
}

const Family *family_find(const char *type) {
    for (const Family *const *family = families(); *family; family++)
        if (!strcmp((*family)->type, type)) return *family;
    return NULL;
}
