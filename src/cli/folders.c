/* A directory among the data stands for its files. Directories of token files stay as they are, and so do
 * those without files that weft knows, which whatever reads them refuses. */
#include <string.h>

#include "base/memory.h"
#include "cli/invocation.h"
#include "data/folder.h"

static bool is_data(const Option *option) {
    return option->type == OPTION_LIST && (!strcmp(option->name, "data") || !strcmp(option->name, "val"));
}

static Status own(Invocation *call, char *text) {
    Status status = mem_grow(&call->owned, &call->owned_capacity, call->owned_count + 1, sizeof *call->owned);
    if (status)
        free(text);
    else
        call->owned[call->owned_count++] = text;
    return status;
}

static Status add(const char ***list, size_t *capacity, int *count, const char *path) {
    TRY(mem_grow(list, capacity, (size_t)*count + 1, sizeof **list));
    (*list)[(*count)++] = path;
    return OK;
}

static Status expand(Invocation *call, FolderPart part, const char *dir, const char ***list, size_t *capacity,
                     int *count) {
    CLEANUP(folder_files_done) FolderFiles files = {0};
    TRY(folder_list(dir, part, &files));
    if (!files.count) return add(list, capacity, count, dir);
    for (size_t i = 0; i < files.count; i++) {
        char *path = files.path[i];
        files.path[i] = NULL;
        TRY(own(call, path));
        TRY(add(list, capacity, count, path));
    }
    return OK;
}

static Status settle(Invocation *call, Slot *slot) {
    const char **given = *(const char ***)slot->field;
    CLEANUP(mem_freep) const char **list = NULL;
    size_t capacity = 0;
    int count = 0;
    bool any = false;
    FolderPart part = !strcmp(slot->option->name, "val") ? FOLDER_VAL : FOLDER_TRAIN;
    for (int i = 0; i < *slot->count; i++) any = any || path_is_dir(given[i]);
    if (!any) return OK;
    for (int i = 0; i < *slot->count; i++)
        TRY(path_is_dir(given[i]) ? expand(call, part, given[i], &list, &capacity, &count)
                                  : add(&list, &capacity, &count, given[i]));
    free(given);
    *(const char ***)slot->field = list;
    *slot->count = count;
    slot->capacity = capacity;
    list = NULL;
    return OK;
}

Status folders_settle(Invocation *call) {
    for (size_t i = 0; i < call->slot_count; i++)
        if (is_data(call->slots[i].option)) TRY(settle(call, &call->slots[i]));
    return OK;
}
