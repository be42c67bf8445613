/* The parts of tokenizer.json that all kinds share: vocabulary, added tokens, Sequences of components. */
#include "tokenizer/internal.h"

typedef struct AddedEntry {
    const char *text;
    size_t size;
    int64_t id;
    AddedToken token;
} AddedEntry;

static Status read_added(const json_t *list, size_t number, const char *from, AddedEntry *ret_entry) {
    const json_t *json = json_array_get(list, number), *content = json_object_get(json, "content");
    if (!json_is_object(json) || !json_is_string(content))
        return FAILED("%s: entry %zu of 'added_tokens' has no 'content'; expected a string", from,
                      number + 1);
    AddedEntry entry = {.text = json_string_value(content), .size = json_string_length(content), .id = -1};
    Status status = json_get_int(json, from, "id", 0, VOCAB_LIMIT - 1, &entry.id);
    if (!status) status = json_get_bool(json, from, "special", &entry.token.special);
    if (!status) status = json_get_bool(json, from, "lstrip", &entry.token.lstrip);
    if (!status) status = json_get_bool(json, from, "rstrip", &entry.token.rstrip);
    if (!status) status = json_get_bool(json, from, "single_word", &entry.token.single_word);
    entry.token.normalized = !entry.token.special;
    if (!status) status = json_get_bool(json, from, "normalized", &entry.token.normalized);
    if (status) return status_wrap(status, "entry %zu of 'added_tokens'", number + 1);
    if (entry.id < 0) return FAILED("%s: entry %zu of 'added_tokens' has no 'id'", from, number + 1);
    *ret_entry = entry;
    return OK;
}

static Status read_all_added(const json_t *list, const char *from, AddedEntry **ret_entries) {
    CLEANUP(mem_freep) AddedEntry *entries = NULL;
    TRY(mem_new(json_array_size(list) + 1, sizeof *entries, &entries));
    for (size_t i = 0; i < json_array_size(list); i++) TRY(read_added(list, i, from, &entries[i]));
    return MOVE(ret_entries, entries);
}

/* Fills the vocabulary from the object, then with added tokens that are not in it. */
static Status fill_vocab(Vocab *vocab, const json_t *object, const AddedEntry *added, size_t added_count,
                         const char *from) {
    size_t count = json_object_size(object);
    for (size_t i = 0; i < added_count; i++) count += !json_object_get(object, added[i].text);
    TRY(vocab_init(vocab, (int64_t)count, from));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (!json_is_integer(value))
            return FAILED("%s: the id of token '%.60s' must be an integer", from, key);
        TRY(vocab_put(vocab, json_integer_value(value), key, strlen(key), from));
    }
    for (size_t i = 0; i < added_count; i++) {
        if (json_object_get(object, added[i].text)) continue;
        TRY(vocab_put(vocab, added[i].id, added[i].text, added[i].size, from));
        vocab->entries[added[i].id].outside = true;
    }
    return vocab_check(vocab, from);
}

Status vocab_read_json(Tokenizer *tokenizer, const json_t *vocab, const json_t *added, const char *from) {
    if (!json_is_object(vocab))
        return FAILED("%s: the vocabulary must be an object that maps tokens to ids", from);
    if (added && !json_is_null(added) && !json_is_array(added))
        return FAILED("%s: 'added_tokens' must be a list", from);
    CLEANUP(mem_freep) AddedEntry *entries = NULL;
    TRY(read_all_added(added, from, &entries));
    size_t count = json_array_size(added);
    TRY(fill_vocab(&tokenizer->vocab, vocab, entries, count, from));
    for (size_t i = 0; i < count; i++) {
        int32_t id = vocab_find(&tokenizer->vocab, entries[i].text, entries[i].size);
        if (id != entries[i].id)
            return FAILED("%s: added token '%.60s' has id %lld, but its id in the vocabulary is %d", from,
                          entries[i].text, (long long)entries[i].id, id);
        entries[i].token.id = id;
        TRY(tokenizer_add(tokenizer, entries[i].token, from));
    }
    return OK;
}

Status added_to_json(const Tokenizer *tokenizer, json_t **ret_list) {
    CLEANUP(json_decrefp) json_t *list = json_array();
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const AddedToken *token = &tokenizer->added[i];
        size_t size;
        const char *text = vocab_token(&tokenizer->vocab, token->id, &size);
        json_t *entry = json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", token->id, "content", text,
                                  size, "single_word", token->single_word, "lstrip", token->lstrip, "rstrip",
                                  token->rstrip, "normalized", token->normalized, "special", token->special);
        if (!entry || json_array_append_new(list, entry) != 0)
            return FAILED("added token %d cannot be written as JSON", token->id);
    }
    return MOVE(ret_list, list);
}

/* ---- components ---- */

Status json_component_types(const json_t *list, char **ret_types) {
    CLEANUP(bytes_done) Bytes types = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *type = json_string_value(json_object_get(json_array_get(list, i), "type"));
        if (!type) type = "(none)";
        if (i > 0) TRY(bytes_add(&types, ", ", 2));
        TRY(bytes_add(&types, type, strlen(type)));
    }
    TRY(bytes_add(&types, "", 1));
    *ret_types = types.data;
    types = (Bytes){0};
    return OK;
}

/* The key of a Sequence's list of components. */
static const char *list_key(const char *key) {
    if (!strcmp(key, "pre_tokenizer")) return "pretokenizers";
    return !strcmp(key, "normalizer") ? "normalizers" : "decoders";
}

Status json_component(const json_t *json, const char *key, const char *expected, const char *from,
                      const json_t **ret_component) {
    const json_t *component = json_object_get(json, key);
    for (;;) {
        const char *type = json_string_value(json_object_get(component, "type"));
        if (!type || strcmp(type, "Sequence") != 0) break;
        const json_t *list = json_object_get(component, list_key(key));
        if (!json_is_array(list)) return FAILED("%s: '%s.%s' must be a list", from, key, list_key(key));
        bool empty = json_array_size(list) == 0;
        if (json_array_size(list) > 1 || (empty && strcmp(key, "normalizer") != 0)) {
            CLEANUP(mem_freep) char *types = NULL;
            TRY(json_component_types(list, &types));
            return FAILED("%s: '%s' of type Sequence (%s) is not supported; expected %s", from, key,
                          empty ? "empty" : types, expected);
        }
        component = json_array_get(list, 0);
    }
    *ret_component = json_is_null(component) ? NULL : component;
    return OK;
}
