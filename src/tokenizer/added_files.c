/* Added tokens from the files next to a vocabulary. tokenizer_config.json lists them with their flags in
 * "added_tokens_decoder". Older directories have added_tokens.json, which maps tokens to ids; as in
 * transformers, those tokens are special if the configuration names them as special, and normalized
 * otherwise. */
#include "base/fs.h"
#include "tokenizer/internal.h"

static const char *token_content(const json_t *value) {
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

static bool has_content(const json_t *value, const char *text) {
    const char *other = token_content(value);
    return other && !strcmp(other, text);
}

/* Whether a key such as "eos_token", or a list of special tokens, contains the token. */
static bool is_special(const json_t *config, const char *text) {
    static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)config, key, value) {
        size_t size = strlen(key);
        if (size > 6 && !strcmp(key + size - 6, "_token") && has_content(value, text)) return true;
    }
    for (int list = 0; list < 2; list++) {
        const json_t *tokens = json_object_get(config, lists[list]);
        for (size_t i = 0; i < json_array_size(tokens); i++)
            if (has_content(json_array_get(tokens, i), text)) return true;
    }
    return false;
}

static Status read_added_tokens_json(const json_t *config, const char *path, json_t **ret_added) {
    CLEANUP(json_decrefp) json_t *json = NULL, *added = json_object();
    TRY(json_read_file(path, &json));
    if (!json_is_object(json)) return FAILED("%s: expected a JSON object that maps tokens to ids", path);
    const char *text;
    json_t *id;
    json_object_foreach(json, text, id) {
        if (!json_is_integer(id)) return FAILED("%s: the id of token '%.60s' must be an integer", path, text);
        char key[32];
        snprintf(key, sizeof key, "%lld", (long long)json_integer_value(id));
        if (json_object_get(added, key))
            return FAILED("%s: token '%.60s' has id %s, which another token already has", path, text, key);
        if (json_object_set_new(
                added, key, json_pack("{s:s, s:b}", "content", text, "special", is_special(config, text))))
            return FAILED("%s: out of memory", path);
    }
    return MOVE(ret_added, added);
}

Status added_from_files(const char *vocab_path, const json_t *config, const char *config_path,
                        json_t **ret_added, char **ret_from) {
    const json_t *listed = json_object_get(config, "added_tokens_decoder");
    if (listed && !json_is_null(listed)) {
        if (!json_is_object(listed))
            return FAILED("%s: 'added_tokens_decoder' must be an object", config_path);
        TRY(str_dup(config_path, ret_from));
        *ret_added = json_incref((json_t *)(uintptr_t)listed);
        return OK;
    }
    const char *slash = strrchr(vocab_path, '/');
    TRY(str_format(ret_from, "%.*sadded_tokens.json", slash ? (int)(slash - vocab_path) + 1 : 0, vocab_path));
    return path_exists(*ret_from) ? read_added_tokens_json(config, *ret_from, ret_added) : OK;
}
