/* Loads BPE tokenizers from vocab.json with merges.txt, or from tokenizer.json. Any setting that would
 * change the ids of a text and is not supported is an error that names it. Settings that apply around the
 * text's ids are ignored: post-processor (special tokens, trimmed offsets), truncation and padding. */
#include "base/fs.h"
#include "tokenizer/bpe.h"

enum { MERGES_LIMIT = 256 << 20 };

/* ---- merges.txt ---- */

static size_t count_lines(const char *text, size_t size) {
    size_t lines = 1;
    for (const char *end = text + size; (text = memchr(text, '\n', (size_t)(end - text))); text++) lines++;
    return lines;
}

static Status read_merge(Bpe *bpe, const Vocab *vocab, const char *line, size_t size, const char *where) {
    const char *space = memchr(line, ' ', size);
    size_t left = space ? (size_t)(space - line) : size;
    if (left == 0 || left + 1 >= size || memchr(space + 1, ' ', size - left - 1))
        return FAILED("%s: expected two tokens separated by one space", where);
    if (memchr(line, 0, size)) return FAILED("%s: contains a NUL byte", where);
    return bpe_add_merge(bpe, vocab, line, left, space + 1, size - left - 1, where);
}

static Status read_merges(Tokenizer *tokenizer, const char *text, size_t size, const char *path) {
    Bpe *bpe = NULL;
    TRY(bpe_new(&bpe, count_lines(text, size)));
    tokenizer->model = bpe;
    const char *line = text, *end = text + size;
    for (size_t number = 1; line < end; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        size_t length = (size_t)(stop - line);
        if (length && line[length - 1] == '\r') length--;
        bool version = number == 1 && length >= 8 && !memcmp(line, "#version", 8);
        if (!version) {
            CLEANUP(mem_freep) char *where = NULL;
            TRY(str_format(&where, "%s: line %zu", path, number));
            TRY(read_merge(bpe, &tokenizer->vocab, line, length, where));
        }
        line = stop + 1;
    }
    return OK;
}

/* ---- vocab.json and the files next to it ---- */

static Status sibling(const char *path, const char *name, char **ret_path) {
    const char *slash = strrchr(path, '/');
    return str_format(ret_path, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name);
}

static Status read_config(const char *vocab_path, json_t **ret_json, char **ret_path) {
    TRY(sibling(vocab_path, "tokenizer_config.json", ret_path));
    if (!path_exists(*ret_path)) return OK;
    TRY(json_read_file(*ret_path, ret_json));
    return json_is_object(*ret_json) ? OK : FAILED("%s: expected a JSON object", *ret_path);
}

/* Converts added tokens from an object keyed by id to the list format of tokenizer.json. */
static Status list_added(const json_t *added, const char *from, json_t **ret_list) {
    CLEANUP(json_decrefp) json_t *list = json_array();
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)added, key, value) {
        char *end;
        long long id = strtoll(key, &end, 10);
        if (!*key || *end) return FAILED("%s: an added token has id '%.60s', expected a number", from, key);
        json_t *token = json_is_object(value) ? json_copy(value) : json_object();
        if (json_object_set_new(token, "id", json_integer(id)) || json_array_append_new(list, token))
            return FAILED("%s: out of memory", from);
    }
    *ret_list = list;
    list = NULL;
    return OK;
}

static Status add_end(Tokenizer *tokenizer, const char *from) {
    static const char end[] = "<|endoftext|>";
    int32_t id = vocab_find(&tokenizer->vocab, end, strlen(end));
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].id == id) return OK;
    return id < 0 ? OK : tokenizer_add(tokenizer, (AddedToken){.id = id, .special = true}, from);
}

Status bpe_from_text(Tokenizer **ret_tokenizer, const json_t *vocab, const char *vocab_path,
                     const char *merges, size_t size, const char *merges_path) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(json_decrefp) json_t *config = NULL, *added = NULL, *list = NULL;
    CLEANUP(mem_freep) char *config_path = NULL, *from = NULL;
    TRY(read_config(vocab_path, &config, &config_path));
    TRY(added_from_files(vocab_path, config, config_path, &added, &from));
    TRY(list_added(added, from, &list));
    TRY(tokenizer_new(&tokenizer, &tokenizer_ops_bpe));
    TRY(vocab_read_json(tokenizer, vocab, list, json_array_size(list) ? from : vocab_path));
    TRY(read_merges(tokenizer, merges, size, merges_path));
    Bpe *bpe = tokenizer->model;
    TRY(json_get_bool(config, config_path, "add_prefix_space", &bpe->add_prefix_space));
    TRY(add_end(tokenizer, vocab_path));
    TRY(bpe_finish(tokenizer, vocab_path));
    *ret_tokenizer = tokenizer;
    tokenizer = NULL;
    return OK;
}

Status tokenizer_load_bpe_files(Tokenizer **ret_tokenizer, const char *vocab_path, const char *merges_path) {
    CLEANUP(json_decrefp) json_t *vocab = NULL;
    CLEANUP(mem_freep) char *merges = NULL;
    size_t size;
    TRY(json_read_file(vocab_path, &vocab));
    TRY(file_read(merges_path, MERGES_LIMIT, &merges, &size));
    return bpe_from_text(ret_tokenizer, vocab, vocab_path, merges, size, merges_path);
}

/* ---- tokenizer.json ---- */

/* Fails unless the component is of type ByteLevel, or absent and not needed. */
static Status check_byte_level(const json_t *json, const char *key, bool needed, const char *from) {
    const json_t *part = json_object_get(json, key);
    if (!part || json_is_null(part))
        return needed ? FAILED("%s: '%s' is missing, expected one of type ByteLevel", from, key) : OK;
    const char *type = NULL;
    TRY(json_get_string(part, from, "type", &type));
    if (!type || strcmp(type, "ByteLevel") != 0)
        return FAILED("%s: '%s' of type %s is not supported, expected ByteLevel", from, key,
                      type ? type : "(none)");
    return OK;
}

static Status check_pipeline(Bpe *bpe, const json_t *json, const char *from) {
    TRY(json_must_be_null(json, "normalizer", from));
    TRY(check_byte_level(json, "pre_tokenizer", true, from));
    TRY(check_byte_level(json, "decoder", false, from));
    const json_t *split = json_object_get(json, "pre_tokenizer");
    bool regex = true;
    bpe->add_prefix_space = true; /* Hugging Face's default */
    TRY(json_get_bool(split, from, "add_prefix_space", &bpe->add_prefix_space));
    TRY(json_get_bool(split, from, "use_regex", &regex));
    if (!regex) return FAILED("%s: 'pre_tokenizer.use_regex' is false, expected true", from);
    return OK;
}

static Status check_model(Bpe *bpe, const json_t *model, const char *from) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        const char *affix = "";
        TRY(json_get_string(model, from, affixes[i], &affix));
        if (*affix)
            return FAILED("%s: 'model.%s' is '%s', which is not supported; expected null or an empty string",
                          from, affixes[i], affix);
    }
    double dropout = 0;
    TRY(json_get_double(model, from, "dropout", 0, 1, &dropout));
    if (dropout != 0)
        return FAILED("%s: 'model.dropout' is %g, which is not supported; expected null", from, dropout);
    return json_get_bool(model, from, "ignore_merges", &bpe->ignore_merges);
}

static Status read_json_merge(Bpe *bpe, const Vocab *vocab, const json_t *merge, const char *where) {
    if (json_is_string(merge))
        return read_merge(bpe, vocab, json_string_value(merge), json_string_length(merge), where);
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
        return FAILED("%s: expected \"left right\" or [\"left\", \"right\"]", where);
    if (strchr(json_string_value(left), ' ') || strchr(json_string_value(right), ' '))
        return FAILED("%s: the token contains a space", where);
    return bpe_add_merge(bpe, vocab, json_string_value(left), json_string_length(left),
                         json_string_value(right), json_string_length(right), where);
}

Status tokenizer_load_bpe_json(Tokenizer **ret_tokenizer, const json_t *json, const char *from) {
    const json_t *model = json_object_get(json, "model"), *merges = json_object_get(model, "merges");
    if (!json_is_array(merges)) return FAILED("%s: 'model.merges' must be a list", from);
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    TRY(tokenizer_new(&tokenizer, &tokenizer_ops_bpe));
    Bpe *bpe = NULL;
    TRY(bpe_new(&bpe, json_array_size(merges)));
    tokenizer->model = bpe;
    TRY(check_pipeline(bpe, json, from));
    TRY(check_model(bpe, model, from));
    TRY(vocab_read_json(tokenizer, json_object_get(model, "vocab"), json_object_get(json, "added_tokens"),
                        from));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        CLEANUP(mem_freep) char *where = NULL;
        TRY(str_format(&where, "%s: merge %zu", from, i + 1));
        TRY(read_json_merge(bpe, &tokenizer->vocab, json_array_get(merges, i), where));
    }
    TRY(bpe_finish(tokenizer, from));
    *ret_tokenizer = tokenizer;
    tokenizer = NULL;
    return OK;
}
