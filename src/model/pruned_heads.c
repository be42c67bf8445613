/* Reading and writing of "pruned_heads" in config.json. */
#include "model/fields.h"

#include <stdio.h>

/* The number of heads in one layer's list; duplicates are an error. */
static Status count_heads(const json_t *list, const char *from, int64_t layer, int64_t heads,
                          int64_t *ret_count) {
    size_t index, other;
    json_t *entry;
    enum { MAX_LISTED = 4096 };
    if (!json_is_array(list) || json_array_size(list) > MAX_LISTED)
        return FAILED("%s: 'pruned_heads.%lld' must be a list of at most %d heads", from, (long long)layer,
                      MAX_LISTED);
    json_array_foreach((json_t *)(uintptr_t)list, index, entry) {
        json_int_t head = json_integer_value(entry);
        if (!json_is_integer(entry) || head < 0 || head >= heads)
            return FAILED("%s: 'pruned_heads.%lld' must contain integers from 0 to %lld", from,
                          (long long)layer, (long long)heads - 1);
        for (other = 0; other < index; other++)
            if (json_integer_value(json_array_get(list, other)) == head)
                return FAILED("%s: 'pruned_heads.%lld' lists head %lld twice", from, (long long)layer,
                              (long long)head);
    }
    *ret_count = (int64_t)json_array_size(list);
    return OK;
}

Status pruned_heads_read(const json_t *json, const char *from, ModelConfig *config) {
    const json_t *pruned = json_object_get(json, "pruned_heads");
    if (!pruned || json_is_null(pruned)) return OK;
    if (!json_is_object(pruned))
        return FAILED("%s: 'pruned_heads' must be an object that maps layers to lists of heads", from);
    if (json_object_size(pruned) == 0) return OK;
    int64_t first = 0;
    for (int64_t layer = 0; layer < config->layers; layer++) {
        char key[24];
        int64_t count = 0;
        snprintf(key, sizeof key, "%lld", (long long)layer);
        const json_t *list = json_object_get(pruned, key);
        if (list) TRY(count_heads(list, from, layer, config->heads, &count));
        if (layer == 0) first = count;
        if (count != first)
            return FAILED(
                "%s: the number of heads in 'pruned_heads' is %lld for layer 0 but %lld for layer %lld; weft "
                "requires the "
                "same number in every layer",
                from, (long long)first, (long long)count, (long long)layer);
    }
    if (first == 0) return OK;
    if (first == config->heads)
        return FAILED("%s: 'pruned_heads' removes all %lld heads", from, (long long)config->heads);
    if (config->hidden % config->heads) return OK; /* config_check reports the error */
    config->head_width = config->hidden / config->heads;
    config->heads -= first;
    return OK;
}

int64_t pruned_heads_before(const ModelConfig *config) {
    bool pruned = config->head_width && !config->free_head_width;
    return pruned ? config->hidden / config->head_width : config->heads;
}

json_t *pruned_heads_json(const ModelConfig *config) {
    json_t *pruned = json_object();
    for (int64_t layer = 0; layer < config->layers; layer++) {
        char key[24];
        json_t *list = json_array();
        snprintf(key, sizeof key, "%lld", (long long)layer);
        for (int64_t head = config->heads; head < pruned_heads_before(config); head++)
            json_array_append_new(list, json_integer(head));
        if (json_object_set_new(pruned, key, list)) {
            json_decref(pruned);
            return NULL;
        }
    }
    return pruned;
}
