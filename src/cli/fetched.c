/* On the command line, a name is replaced if the option or operand reads a file or directory and no file has
 * that very name. */
#include "cli/invocation.h"

#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "data/fetch.h"

Status fetched_path(const char *label, const char *text, char **ret_path) {
    char set[64];
    const FetchSet *known;
    *ret_path = NULL;
    if (!text || text[0] != '@') return OK;
    size_t length = strcspn(text + 1, "/");
    if (length >= sizeof set || !length)
        return USAGE("%s: '%s' does not name a set; expected @SET or @SET/FILE", label, text);
    snprintf(set, sizeof set, "%.*s", (int)length, text + 1);
    Status unknown = fetch_find(set, &known);
    if (unknown) return status_wrap(unknown, "%s: %s", label, text);
    CLEANUP(mem_freep) char *root = NULL;
    TRY(fetch_root(&root));
    return path_join(ret_path, root, text + 1);
}

/* ---- the command line ---- */

/* Whether an option's value is the path of something to read. */
static bool reads_path(const Option *option) {
    static const char *const others[] = {"out", "trace", "leaderboard", "from", "cluster", "config"};
    if (option->type != OPTION_TEXT && option->type != OPTION_LIST) return false;
    if (!strstr(option->placeholder, "FILE") && !strstr(option->placeholder, "DIR")) return false;
    for (size_t i = 0; i < COUNT_OF(others); i++)
        if (!strcmp(option->name, others[i])) return false;
    return true;
}

static Status settle(Invocation *call, const char *label, const char **text) {
    char *path = NULL;
    if (!*text || path_exists(*text)) return OK;
    TRY(fetched_path(label, *text, &path));
    if (!path) return OK;
    Status status = mem_grow(&call->owned, &call->owned_capacity, call->owned_count + 1, sizeof *call->owned);
    if (status) {
        free(path);
        return status;
    }
    call->owned[call->owned_count++] = path;
    call->fetched = true;
    *text = path;
    return OK;
}

/* The strings of an option: *ret_count of them. */
static const char **texts_of(const Slot *slot, size_t *ret_count) {
    bool list = slot->option->type == OPTION_LIST;
    *ret_count = list ? (size_t)*slot->count : 1;
    return list ? *(const char ***)slot->field : (const char **)slot->field;
}

Status fetched_settle(Invocation *call) {
    size_t count;
    for (size_t i = 0; i < call->slot_count; i++) {
        const Slot *slot = &call->slots[i];
        char label[LABEL_SIZE];
        if (slot->source != SOURCE_LINE || !reads_path(slot->option)) continue;
        const char **texts = texts_of(slot, &count);
        invocation_label(call, slot->option->name, label);
        for (size_t k = 0; k < count; k++) TRY(settle(call, label, &texts[k]));
    }
    for (size_t i = 0; call->command->reads_operands && i < call->operand_count; i++)
        TRY(settle(call, call->command->name, &call->operands[i]));
    return OK;
}

/* ---- existence ---- */

static Status check(const char *label, const char *path, const char *root) {
    size_t length = strlen(root);
    if (!path || strncmp(path, root, length) || path[length] != '/' || path_exists(path)) return OK;
    const char *set = path + length + 1;
    return USAGE("%s: %s does not exist; run 'weft fetch %.*s' first", label, path, (int)strcspn(set, "/"),
                 set);
}

Status fetched_check(const Invocation *call) {
    CLEANUP(mem_freep) char *root = NULL;
    size_t count;
    if (!call->fetched) return OK;
    TRY(fetch_root(&root));
    for (size_t i = 0; i < call->slot_count; i++) {
        const Slot *slot = &call->slots[i];
        char label[LABEL_SIZE];
        if (slot->source == SOURCE_DEFAULT || !reads_path(slot->option)) continue;
        const char **texts = texts_of(slot, &count);
        snprintf(label, sizeof label, "--%s", slot->option->name);
        for (size_t k = 0; k < count; k++) TRY(check(label, texts[k], root));
    }
    for (size_t i = 0; call->command->reads_operands && i < call->operand_count; i++)
        TRY(check(call->command->name, call->operands[i], root));
    return OK;
}
