/* WordPiece tokenizers from vocab.txt or from a trainer; wordpiece_json.c reads tokenizer.json.
 *
 * vocab.txt has one token per line; its id is the line number, starting at 0. Settings come from
 * tokenizer_config.json in the same directory, with transformers' defaults. Without that file the
 * vocabulary is treated as uncased, like bert-base-uncased, unless an entry contains an uppercase Latin,
 * Greek or Cyrillic letter (entries in brackets such as [CLS] are ignored); then case and accents are
 * kept. [UNK] is required; [PAD], [CLS], [SEP] and [MASK] become special tokens if present. */
#include "base/fs.h"
#include "tokenizer/wordpiece.h"

enum { VOCAB_FILE_LIMIT = 1 << 30 /* bytes */, SHOWN = 60 };

static const char *const role_keys[WORDPIECE_ROLES] = {"pad_token", "unk_token", "cls_token", "sep_token",
                                                       "mask_token"};
static const char *const role_names[WORDPIECE_ROLES] = {"[PAD]", WORDPIECE_UNK, "[CLS]", "[SEP]", "[MASK]"};

/* Contents of tokenizer_config.json; strings are borrowed from it. */
typedef struct Config {
    bool present;
    BertSettings settings;
    const char *roles[WORDPIECE_ROLES];
    const json_t *additional; /* list of further special tokens, or NULL */
} Config;

/* ---- tokenizer_config.json ---- */

/* A token is a string, or an object with its string in "content". */
static const char *token_content(const json_t *value) {
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

static Status read_settings(const json_t *json, const char *from, BertSettings *settings) {
    TRY(json_get_bool(json, from, "do_lower_case", &settings->lowercase));
    settings->strip_accents = settings->lowercase;
    TRY(json_get_bool(json, from, "strip_accents", &settings->strip_accents));
    TRY(json_get_bool(json, from, "tokenize_chinese_chars", &settings->handle_chinese_chars));
    bool basic = true;
    TRY(json_get_bool(json, from, "do_basic_tokenize", &basic));
    if (!basic)
        return FAILED("%s: 'do_basic_tokenize' is false, which is not supported; expected true", from);
    const json_t *never = json_object_get(json, "never_split");
    if (json_array_size(never) > 0 || json_object_size(never) > 0 || json_is_string(never))
        return FAILED("%s: 'never_split' is not supported; use special tokens instead", from);
    return OK;
}

/* Gets a list; if absent or null, *ret_value is untouched. */
static Status get_list(const json_t *json, const char *from, const char *key, const json_t **ret_value) {
    const json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value)) return OK;
    if (!json_is_array(value)) return FAILED("%s: '%s' must be a list", from, key);
    *ret_value = value;
    return OK;
}

static Status read_config(const json_t *json, const char *from, Config *config) {
    if (!json_is_object(json)) return FAILED("%s: expected a JSON object", from);
    config->present = true;
    TRY(read_settings(json, from, &config->settings));
    for (int i = 0; i < WORDPIECE_ROLES; i++) {
        const json_t *value = json_object_get(json, role_keys[i]);
        if (!value || json_is_null(value)) continue;
        config->roles[i] = token_content(value);
        if (!config->roles[i] || !*config->roles[i])
            return FAILED("%s: '%s' must be a token", from, role_keys[i]);
    }
    return get_list(json, from, "additional_special_tokens", &config->additional);
}

/* Reads tokenizer_config.json next to vocab.txt, if present. *ret_json must outlive *config, which borrows
 * from it. */
static Status read_sibling_config(const char *vocab_path, json_t **ret_json, char **ret_path,
                                  Config *config) {
    const char *slash = strrchr(vocab_path, '/');
    TRY(str_format(ret_path, "%.*stokenizer_config.json", slash ? (int)(slash - vocab_path) + 1 : 0,
                   vocab_path));
    *config = (Config){.settings = {true, true, true, true}};
    for (int i = 0; i < WORDPIECE_ROLES; i++) config->roles[i] = role_names[i];
    if (!path_exists(*ret_path)) return OK;
    TRY(json_read_any(*ret_path, ret_json));
    return read_config(*ret_json, *ret_path, config);
}

/* ---- vocab.txt ---- */

static Status put_line(Vocab *vocab, int64_t number, const char *line, size_t size, const char *path) {
    const long long shown = (long long)number + 1;
    if (size == 0) return FAILED("%s: line %lld is empty; expected a token", path, shown);
    if (memchr(line, 0, size))
        return FAILED("%s: line %lld contains a NUL byte; expected a token", path, shown);
    if (memchr(line, '\r', size))
        return FAILED("%s: line %lld contains a carriage return; expected a token", path, shown);
    size_t first;
    if (text_invalid_utf8(line, size, &first)) return FAILED("%s: line %lld is not valid UTF-8", path, shown);
    int32_t other = vocab_find(vocab, line, size);
    if (other >= 0)
        return FAILED("%s: line %lld: duplicate token '%.*s', first on line %lld", path, shown,
                      size > SHOWN ? SHOWN : (int)size, line, (long long)other + 1);
    return vocab_put(vocab, number, line, size, path);
}

static Status put_lines(Vocab *vocab, const char *text, size_t size, const char *path) {
    const char *line = text, *end = text + size;
    for (int64_t number = 0; line < end; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        size_t length = (size_t)(stop - line);
        if (length && line[length - 1] == '\r') length--;
        TRY(put_line(vocab, number, line, length, path));
        line = stop + 1;
    }
    return OK;
}

static int64_t count_lines(const char *text, size_t size) {
    int64_t count = size && text[size - 1] != '\n';
    for (size_t i = 0; i < size; i++) count += text[i] == '\n';
    return count;
}

static bool has_upper_case(const Vocab *vocab, int64_t lines) {
    for (int32_t id = 0; id < lines; id++) {
        size_t size;
        const char *text = vocab_token(vocab, id, &size);
        if (size > 1 && text[0] == '[' && text[size - 1] == ']') continue;
        for (size_t at = 0; at < size;) {
            uint32_t c;
            at += utf8_next(text + at, size - at, &c);
            if (bert_char_is_upper(c)) return true;
        }
    }
    return false;
}

/* ---- added tokens ---- */

static bool is_added(const Tokenizer *tokenizer, int32_t id) {
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].id == id) return true;
    return false;
}

static Status read_added(const json_t *json, const char *key, const char *from, AddedToken *ret_token) {
    AddedToken token = {0};
    TRY(json_get_bool(json, from, "special", &token.special));
    token.normalized = !token.special;
    TRY(json_get_bool(json, from, "lstrip", &token.lstrip));
    TRY(json_get_bool(json, from, "rstrip", &token.rstrip));
    TRY(json_get_bool(json, from, "single_word", &token.single_word));
    TRY(json_get_bool(json, from, "normalized", &token.normalized));
    char *end;
    long long id = strtoll(key, &end, 10);
    if (!*key || *end || id < 0 || id >= VOCAB_LIMIT)
        return FAILED("%s: an added token has id '%.60s'; expected a number", from, key);
    token.id = (int32_t)id;
    *ret_token = token;
    return OK;
}

/* Handles added tokens from other files. With `past`, puts tokens that are not in vocab.txt into the
 * vocabulary; without it, adds all of them. */
static Status put_added(Tokenizer *tokenizer, const json_t *added, bool past, const char *from) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)added, key, value) {
        AddedToken token;
        const char *text = token_content(value);
        if (!json_is_object(value) || !text)
            return FAILED("%s: added token %.60s has no 'content'; expected a string", from, key);
        TRY(read_added(value, key, from, &token));
        size_t size = strlen(text);
        int32_t id = vocab_find(&tokenizer->vocab, text, size);
        if (past && id < 0) TRY(vocab_put(&tokenizer->vocab, token.id, text, size, from));
        if (past) continue;
        if (id != token.id)
            return FAILED("%s: added token '%.60s' has id %d, but its id in the vocabulary is %d", from, text,
                          token.id, id);
        TRY(tokenizer_add(tokenizer, token, from));
    }
    return OK;
}

static Status put_special_token(Tokenizer *tokenizer, int32_t id, const char *from) {
    if (id < 0 || is_added(tokenizer, id)) return OK;
    return tokenizer_add(tokenizer, (AddedToken){.id = id, .special = true}, from);
}

static Status put_special(Tokenizer *tokenizer, const Config *config, const char *from) {
    const Vocab *vocab = &tokenizer->vocab;
    for (int i = 0; i < WORDPIECE_ROLES; i++) {
        const char *text = config->roles[i];
        TRY(put_special_token(tokenizer, vocab_find(vocab, text, strlen(text)), from));
    }
    for (size_t i = 0; i < json_array_size(config->additional); i++) {
        const char *text = token_content(json_array_get(config->additional, i));
        if (!text) return FAILED("%s: entry %zu of 'additional_special_tokens' is not a token", from, i + 1);
        int32_t id = vocab_find(vocab, text, strlen(text));
        if (id < 0) return FAILED("%s: special token '%.60s' is not in the vocabulary", from, text);
        TRY(put_special_token(tokenizer, id, from));
    }
    return OK;
}

/* ---- loading ---- */

/* Reads the vocabulary and the added tokens; the first *ret_lines ids come from vocab.txt. */
static Status read_vocab(Tokenizer *tokenizer, const json_t *json, const char *path, const char *config_path,
                         int64_t *ret_lines) {
    CLEANUP(mem_freep) char *text = NULL, *from = NULL;
    CLEANUP(json_decrefp) json_t *added = NULL;
    size_t size;
    TRY(file_read(path, VOCAB_FILE_LIMIT, &text, &size));
    TRY(added_from_files(path, json, config_path, &added, &from));
    const int64_t lines = count_lines(text, size);
    int64_t count = lines;
    const char *key;
    json_t *value;
    json_object_foreach(added, key, value) {
        count += strtoll(key, NULL, 10) >= lines;
    }
    TRY(vocab_init(&tokenizer->vocab, lines ? count : 0, path));
    TRY(put_lines(&tokenizer->vocab, text, size, path));
    TRY(put_added(tokenizer, added, true, from));
    TRY(vocab_check(&tokenizer->vocab, from));
    TRY(put_added(tokenizer, added, false, from));
    *ret_lines = lines;
    return OK;
}

Status tokenizer_load_wordpiece_file(Tokenizer **ret_tokenizer, const char *vocab_path) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    CLEANUP(mem_freep) char *config_path = NULL;
    CLEANUP(mem_freep) unsigned char *is_piece = NULL;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    Config config;
    int64_t lines = 0;
    TRY(read_sibling_config(vocab_path, &json, &config_path, &config));
    TRY(tokenizer_new(&tokenizer, &tokenizer_ops_wordpiece));
    TRY(read_vocab(tokenizer, json, vocab_path, config_path, &lines));
    TRY(put_special(tokenizer, &config, config_path));
    if (!config.present && has_upper_case(&tokenizer->vocab, lines))
        config.settings.lowercase = config.settings.strip_accents = false;
    TRY(mem_new((size_t)tokenizer->vocab.count, 1, &is_piece));
    memset(is_piece, true, (size_t)lines);
    WordPieceSpec spec = {.settings = config.settings,
                          .max_word_chars = WORDPIECE_MAX_WORD_CHARS,
                          .joins = true,
                          .clean_up = true,
                          .unk = config.roles[WORDPIECE_ROLE_UNK],
                          .is_piece = is_piece};
    TRY(wordpiece_finish(tokenizer, &spec, config.roles, vocab_path));
    TRY(post_processor_set_bert(tokenizer, vocab_path));
    return MOVE(ret_tokenizer, tokenizer);
}

Status tokenizer_new_wordpiece(Tokenizer **ret_tokenizer, Vocab *vocab, bool cased, const int32_t *special,
                               size_t special_count) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(vocab_done) Vocab taken = *vocab;
    *vocab = (Vocab){0};
    TRY(tokenizer_new(&tokenizer, &tokenizer_ops_wordpiece));
    tokenizer->vocab = taken;
    taken = (Vocab){0};
    const char *from = "the trained vocabulary";
    for (size_t i = 0; i < special_count; i++) TRY(put_special_token(tokenizer, special[i], from));
    WordPieceSpec spec = {.settings = {true, true, !cased, !cased},
                          .max_word_chars = WORDPIECE_MAX_WORD_CHARS,
                          .joins = true,
                          .clean_up = true,
                          .unk = WORDPIECE_UNK};
    TRY(wordpiece_finish(tokenizer, &spec, role_names, from));
    TRY(post_processor_set_bert(tokenizer, from));
    return MOVE(ret_tokenizer, tokenizer);
}
