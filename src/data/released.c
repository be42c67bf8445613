/* Names on the hub are OWNER/NAME and appear in the URL of a set; a page's URL has its model's. Of other
 * names only letters and digits count: "meta-llama/Llama-2-7b-hf" and "llama2" both mean the preset
 * llama-2-7b, as far as sizes are concerned. */
#include "data/released.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fs.h"
#include "base/suggest.h"
#include "model/config.h"

enum { NAME_SIZE = 96 };

static bool has_weights(const FetchSet *set) {
    for (size_t i = 0; i < set->file_count; i++)
        if (strstr(set->files[i].name, ".safetensors")) return true;
    return false;
}

static bool is_preset(const char *name) {
    for (const char *const *preset = config_presets(); *preset; preset++)
        if (!strcmp(*preset, name)) return true;
    return false;
}

bool released_from_url(const char *url, char ret_name[RELEASED_NAME]) {
    const char *host = strstr(url, "://");
    if (!host || !isalpha((unsigned char)*url)) return false;
    const char *path = host + 3 + strcspn(host + 3, "/?#");
    path += strspn(path, "/");
    size_t owner = strcspn(path, "/?#"), end = owner;
    if (path[owner] == '/') end = owner + 1 + strcspn(path + owner + 1, "/?#");
    if (end == owner + 1) end = owner; /* ends with a slash */
    if (!owner || end >= RELEASED_NAME) return false;
    snprintf(ret_name, RELEASED_NAME, "%.*s", (int)end, path);
    return true;
}

const FetchSet *released_set(const char *name) {
    size_t count, length = strlen(name);
    const FetchSet *sets = fetch_sets(&count);
    for (size_t i = 0; i < count; i++)
        if (has_weights(&sets[i]) && fetch_is_named(&sets[i], name)) return &sets[i];
    for (size_t i = 0; i < count && is_preset(name); i++) /* bert-base: bert-base-uncased */
        if (has_weights(&sets[i]) && !strncmp(sets[i].name, name, length) && sets[i].name[length] == '-')
            return &sets[i];
    return NULL;
}

/* Letters and digits in lower case, without the owner. */
static void simplify(const char *name, char ret[NAME_SIZE]) {
    const char *slash = strrchr(name, '/');
    size_t length = 0;
    for (name = slash ? slash + 1 : name; *name && length + 1 < NAME_SIZE; name++)
        if (isalnum((unsigned char)*name)) ret[length++] = (char)tolower((unsigned char)*name);
    ret[length] = 0;
    if (!strncmp(ret, "meta", 4)) memmove(ret, ret + 4, length - 3); /* Meta-Llama-3-8B */
}

/* The longest preset that the name starts with, else the first that starts with the name; NULL: none. */
static const char *like_preset(const char *name) {
    enum { LEAST = 4 };
    char own[NAME_SIZE], other[NAME_SIZE];
    const char *best = NULL, *first = NULL;
    size_t longest = 0;
    simplify(name, own);
    for (const char *const *preset = config_presets(); *preset && strlen(own) >= LEAST; preset++) {
        simplify(*preset, other);
        size_t length = strlen(other);
        if (!strncmp(own, other, length) && length > longest) best = *preset, longest = length;
        if (!first && !strncmp(other, own, strlen(own))) first = *preset;
    }
    return best ? best : first;
}

/* Whether the name is OWNER/NAME, and not a path in a directory that exists. */
static bool is_hub_name(const char *name) {
    const char *slash = strchr(name, '/');
    char owner[NAME_SIZE];
    if (!slash || slash == name || !slash[1] || strchr(slash + 1, '/') || slash - name >= NAME_SIZE)
        return false;
    snprintf(owner, sizeof owner, "%.*s", (int)(slash - name), name);
    return owner[0] != '~' && owner[0] != '@' && !path_exists(owner);
}

const char *released_hint(const char *name, bool presets, char text[RELEASED_HINT]) {
    char own[RELEASED_NAME], near[PRESETS_TEXT] = "";
    bool url = released_from_url(name, own);
    if (url) name = own;
    bool hub = url || is_hub_name(name), plain = !strchr(name, '/');
    const FetchSet *set = hub || plain ? released_set(name) : NULL;
    bool typo = plain && suggest(name, config_presets()); /* the error of an unknown preset says so */
    const char *preset = hub || (plain && !typo) ? like_preset(name) : NULL;
    int used = 0;
    text[0] = 0;
    if (set)
        used = snprintf(text, RELEASED_HINT, "; for the released weights, run 'weft fetch %s' and pass @%s",
                        set->name, set->name);
    else if (hub || preset)
        used =
            snprintf(text, RELEASED_HINT, "; for released weights, download them and pass their directory");
    if (presets && hub && !preset)
        config_near_presets(strchr(name, '/') ? strchr(name, '/') + 1 : name, near);
    if (*near)
        snprintf(text + used, (size_t)(RELEASED_HINT - used), "; similar presets, with random weights: %s",
                 near);
    if (presets && preset)
        snprintf(text + used, (size_t)(RELEASED_HINT - used),
                 "; the preset %s has the %s, with random weights", preset,
                 set ? "same sizes" : "sizes of a similar model");
    return text;
}
