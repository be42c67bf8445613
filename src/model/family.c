#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "model/head.h"

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

Task family_task(const Family *family) {
    Task task = 0;
    while (!(task_heads(task) & family->outputs)) task++;
    return task;
}

bool family_class(const Family *family, int number, Architecture *ret_class) {
    unsigned own = task_heads(family_task(family)) & family->outputs, heads[HEAD_COUNT + 2] = {own};
    int count = 1;
    /* Heads of other tasks come first: a model that has one was fine-tuned. */
    for (int last = 0; last < 2; last++)
        for (unsigned bit = 1; bit <= family->outputs; bit *= 2)
            if (bit & family->outputs && bit != own && (bit & own) == (last ? bit : 0)) heads[count++] = bit;
    bool base = number == count, decoder = own & OUTPUT_LM;
    if (base && decoder) heads[number] = own;
    if (number > count) return false;
    Architecture class = {.heads = heads[number],
                          .pooler = !heads[number] || heads_traits(heads[number]).pooled,
                          .tied = base && family->base_tied,
                          .bare = base && decoder && !family->base_tied};
    snprintf(class.name, sizeof class.name, "%s%s", family->classes,
             base                           ? "Model"
             : !number && family->own_class ? family->own_class
                                            : head_class(heads_first(class.heads)));
    *ret_class = class;
    return true;
}
