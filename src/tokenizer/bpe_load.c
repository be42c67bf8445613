/* Loads BPE tokenizers from vocab.json with merges.txt, or from tokenizer.json. An unsupported setting that
 * would change the ids of a text is an error that names the setting. Truncation and padding are ignored, as
 * in transformers.
 *
 * As in transformers, add_bos_token and add_eos_token of tokenizer_config.json apply only without
 * tokenizer.json, whose post-processor takes precedence. */
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
    TRY(json_read_any(*ret_path, ret_json));
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
        if (!*key || *end) return FAILED("%s: an added token has id '%.60s'; expected a number", from, key);
        json_t *token = json_is_object(value) ? json_clone(value) : json_object();
        if (json_object_set_new(token, "id", json_integer(id)) || json_array_append_new(list, token))
            return FAILED("%s: out of memory", from);
    }
    return MOVE(ret_list, list);
}

static Status add_end(Tokenizer *tokenizer, const char *from) {
    static const char end[] = "<|endoftext|>";
    int32_t id = vocab_find(&tokenizer->vocab, end, strlen(end));
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].id == id) return OK;
    return id < 0 ? OK : tokenizer_add(tokenizer, (AddedToken){.id = id, .special = true}, from);
}

/* The id of a token that the configuration names under `role`; -1 if it is null. */
static Status find_role(const Tokenizer *tokenizer, const json_t *config, const char *from, const char *role,
                        const char *fallback, int32_t *ret_id) {
    const json_t *value = json_object_get(config, role);
    const char *token = fallback;
    *ret_id = -1;
    if (value && json_is_null(value)) return OK;
    if (value) token = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    if (!token) return FAILED("%s: '%s' must be a token", from, role);
    *ret_id = vocab_find(&tokenizer->vocab, token, strlen(token));
    if (*ret_id < 0) return FAILED("%s: '%s' is '%.60s', which is not in the vocabulary", from, role, token);
    return OK;
}

/* BOS and EOS around each text: "BOS A EOS" and "BOS A EOS BOS B EOS". */
static Status set_bos_eos(Tokenizer *tokenizer, const json_t *config, const char *from, bool add_bos,
                          bool add_eos) {
    CLEANUP(token_template_done) TokenTemplate single = {0};
    CLEANUP(token_template_done) TokenTemplate pair = {0};
    int32_t bos = -1, eos = -1;
    if (add_bos) TRY(find_role(tokenizer, config, from, "bos_token", "<|endoftext|>", &bos));
    if (add_eos) TRY(find_role(tokenizer, config, from, "eos_token", "<|endoftext|>", &eos));
    for (int32_t type = 0; type < 2; type++) {
        if (bos >= 0) TRY(token_template_add(&pair, (TemplatePiece){PIECE_TOKEN, bos, type}));
        TRY(token_template_add(&pair, (TemplatePiece){type ? PIECE_SECOND : PIECE_FIRST, 0, type}));
        if (eos >= 0) TRY(token_template_add(&pair, (TemplatePiece){PIECE_TOKEN, eos, type}));
        if (type == 0) TRY(token_template_copy(&single, &pair));
    }
    return post_processor_set_template(tokenizer, &single, &pair, from);
}

static Status set_roberta(Tokenizer *tokenizer, const json_t *config, const char *from) {
    const Bpe *bpe = tokenizer->model;
    bool trim = true;
    int32_t cls = -1, sep = -1;
    TRY(json_get_bool(config, from, "trim_offsets", &trim));
    TRY(find_role(tokenizer, config, from, "cls_token", "<s>", &cls));
    TRY(find_role(tokenizer, config, from, "sep_token", "</s>", &sep));
    if (cls < 0 || sep < 0) return FAILED("%s: RobertaTokenizer needs 'cls_token' and 'sep_token'", from);
    size_t size;
    json_t *json = json_pack("{s:s, s:[s, i], s:[s, i], s:b, s:b}", "type", "RobertaProcessing", "sep",
                             vocab_token(&tokenizer->vocab, sep, &size), (int)sep, "cls",
                             vocab_token(&tokenizer->vocab, cls, &size), (int)cls, "trim_offsets", (int)trim,
                             "add_prefix_space", (int)bpe->add_prefix_space);
    return json ? post_processor_set(tokenizer, json, from) : FAILED("%s: out of memory", from);
}

/* The post-processor that transformers gives GPT2Tokenizer and RobertaTokenizer. */
static Status set_post_processor(Tokenizer *tokenizer, const json_t *config, const char *from) {
    const char *class = "";
    bool add_bos = false, add_eos = false;
    TRY(json_get_string(config, from, "tokenizer_class", &class));
    if (!strcmp(class, "RobertaTokenizer") || !strcmp(class, "RobertaTokenizerFast"))
        return set_roberta(tokenizer, config, from);
    TRY(json_get_bool(config, from, "add_bos_token", &add_bos));
    TRY(json_get_bool(config, from, "add_eos_token", &add_eos));
    return add_bos || add_eos ? set_bos_eos(tokenizer, config, from, add_bos, add_eos)
                              : bpe_set_byte_level(tokenizer, from);
}

/* The pipeline that transformers gives Qwen2Tokenizer. */
static Status read_class(Bpe *bpe, const json_t *config, const char *from) {
    static const char pattern[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                                  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    const char *class = "";
    TRY(json_get_string(config, from, "tokenizer_class", &class));
    if (strcmp(class, "Qwen2Tokenizer") != 0 && strcmp(class, "Qwen2TokenizerFast") != 0) return OK;
    CLEANUP(json_decrefp)
    json_t *json =
        json_pack("{s:{s:s}, s:{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b, s:b}]}, s:{s:s}, s:{s:s}}",
                  "normalizer", "type", "NFC", "pre_tokenizer", "type", "Sequence", "pretokenizers", "type",
                  "Split", "pattern", "Regex", pattern, "behavior", "Isolated", "invert", 0, "type",
                  "ByteLevel", "add_prefix_space", (int)bpe->add_prefix_space, "trim_offsets", 1, "use_regex",
                  0, "decoder", "type", "ByteLevel", "model", "type", "BPE");
    return json ? bpe_pipeline_new(&bpe->pipeline, json, from) : FAILED("%s: out of memory", from);
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
    TRY(read_class(bpe, config, config_path));
    TRY(add_end(tokenizer, vocab_path));
    TRY(bpe_finish(tokenizer, vocab_path));
    TRY(set_post_processor(tokenizer, config, config_path));
    return MOVE(ret_tokenizer, tokenizer);
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

/* The only component of a Sequence of one, or the component itself. */
static const json_t *only_component(const json_t *component, const char *list) {
    for (;;) {
        const char *type = json_string_value(json_object_get(component, "type"));
        const json_t *inside = json_object_get(component, list);
        if (!type || strcmp(type, "Sequence") != 0 || json_array_size(inside) != 1) return component;
        if (!json_is_object(json_array_get(inside, 0))) return component; /* an error, found later */
        component = json_array_get(inside, 0);
    }
}

static bool is_absent(const json_t *normalizer) {
    const char *type = json_string_value(json_object_get(normalizer, "type"));
    const json_t *list = json_object_get(normalizer, "normalizers");
    return !normalizer || json_is_null(normalizer) ||
           (type && !strcmp(type, "Sequence") && json_is_array(list) && json_array_size(list) == 0);
}

/* GPT-2's pipeline is a ByteLevel pre-tokenizer alone; others are read by bpe_pipeline_new. */
static Status read_pipeline(Bpe *bpe, const json_t *json, const char *from) {
    const json_t *pre = only_component(json_object_get(json, "pre_tokenizer"), "pretokenizers");
    const json_t *decoder = only_component(json_object_get(json, "decoder"), "decoders");
    const char *type = json_string_value(json_object_get(pre, "type"));
    const char *decoder_type = json_string_value(json_object_get(decoder, "type"));
    bpe->undecoded = !decoder || json_is_null(decoder);
    bool bytes =
        (bpe->undecoded || (decoder_type && !strcmp(decoder_type, "ByteLevel"))) && bpe_spells_bytes(json);
    if (!type || strcmp(type, "ByteLevel") != 0 || !bytes ||
        !is_absent(only_component(json_object_get(json, "normalizer"), "normalizers")))
        return bpe_pipeline_new(&bpe->pipeline, json, from);
    bpe->add_prefix_space = true; /* Hugging Face's default */
    TRY(json_get_bool(pre, from, "add_prefix_space", &bpe->add_prefix_space));
    return json_get_bool(pre, from, "use_regex", &bpe->use_regex);
}

Status bpe_find_end(Tokenizer *tokenizer, const char *from) {
    CLEANUP(json_decrefp) json_t *config = NULL;
    CLEANUP(mem_freep) char *path = NULL;
    TRY(read_config(from, &config, &path));
    const json_t *eos = json_object_get(config, "eos_token");
    const char *name = json_string_value(json_is_object(eos) ? json_object_get(eos, "content") : eos);
    if (name) tokenizer->roles.end = vocab_find(&tokenizer->vocab, name, strlen(name));
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
    if (!bpe->pipeline && (strchr(json_string_value(left), ' ') || strchr(json_string_value(right), ' ')))
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
    TRY(read_pipeline(bpe, json, from));
    TRY(check_model(bpe, model, from));
    TRY(vocab_read_json(tokenizer, json_object_get(model, "vocab"), json_object_get(json, "added_tokens"),
                        from));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        CLEANUP(mem_freep) char *where = NULL;
        TRY(str_format(&where, "%s: merge %zu", from, i + 1));
        TRY(read_json_merge(bpe, &tokenizer->vocab, json_array_get(merges, i), where));
    }
    TRY(bpe_finish(tokenizer, from));
    TRY(post_processor_read(tokenizer, json, from));
    if (tokenizer->roles.end < 0) TRY(bpe_find_end(tokenizer, from));
    return MOVE(ret_tokenizer, tokenizer);
}
