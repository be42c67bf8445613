/* BERT's special tokens, from the vocabulary in a model's directory.
 *
 * vocab.txt has one token per line; its id is the line number, starting at 0. Newer directories have only
 * tokenizer.json, where added_tokens lists the special tokens and model.vocab all tokens. */
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"

enum { VOCAB_LIMIT = 256 << 20 /* bytes */, TOKENS = 4 };

typedef struct TokenId {
    const char *text;
    int32_t *id;
} TokenId;

typedef struct TokenTable {
    TokenId entry[TOKENS];
} TokenTable;

static TokenTable table_of(SpecialTokens *tokens) {
    return (TokenTable){{{"[PAD]", &tokens->pad},
                         {"[CLS]", &tokens->cls},
                         {"[SEP]", &tokens->sep},
                         {"[MASK]", &tokens->mask}}};
}

static const TokenId *find_token(const TokenTable *table, const char *text, size_t length) {
    for (int i = 0; i < TOKENS; i++)
        if (strlen(table->entry[i].text) == length && !memcmp(table->entry[i].text, text, length))
            return &table->entry[i];
    return NULL;
}

/* ---- vocab.txt ---- */

static Status read_lines(const char *path, SpecialTokens *tokens) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    TRY(file_read(path, VOCAB_LIMIT, &text, &size));
    const TokenTable table = table_of(tokens);
    const char *line = text, *end = text + size;
    /* No overflow: a file of VOCAB_LIMIT bytes has fewer than 2^31 lines. */
    for (int32_t number = 0; line < end; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        size_t length = (size_t)(stop - line);
        if (length && line[length - 1] == '\r') length--;
        const TokenId *token = find_token(&table, line, length);
        if (token && *token->id >= 0)
            return FAILED("%s: line %lld: duplicate token '%s', first on line %lld", path,
                          (long long)number + 1, token->text, (long long)*token->id + 1);
        if (token) *token->id = number;
        line = stop + 1;
    }
    return OK;
}

/* ---- tokenizer.json ---- */

static Status set_id(const char *path, const TokenId *token, const json_t *id) {
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
        return FAILED("%s: the id of '%s' must be an integer from 0 to %d", path, token->text, INT32_MAX);
    *token->id = (int32_t)json_integer_value(id);
    return OK;
}

static Status read_added(const char *path, const json_t *list, const TokenTable *table) {
    if (!list || json_is_null(list)) return OK;
    if (!json_is_array(list)) return FAILED("%s: 'added_tokens' must be a list", path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i), *content = json_object_get(entry, "content");
        if (!json_is_string(content))
            return FAILED("%s: entry %zu of 'added_tokens' has no 'content'; expected a string", path, i + 1);
        const TokenId *token = find_token(table, json_string_value(content), json_string_length(content));
        if (token) TRY(set_id(path, token, json_object_get(entry, "id")));
    }
    return OK;
}

/* Sets only the tokens that added_tokens did not define. A vocabulary that is a list does not belong to BERT
 * and is ignored. */
static Status read_vocab(const char *path, const json_t *vocab, const TokenTable *table) {
    for (int i = 0; i < TOKENS; i++) {
        const json_t *id = json_object_get(vocab, table->entry[i].text);
        if (id && *table->entry[i].id < 0) TRY(set_id(path, &table->entry[i], id));
    }
    return OK;
}

static Status read_tokenizer(const char *path, SpecialTokens *tokens) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_read_file(path, &json));
    if (!json_is_object(json)) return FAILED("%s: expected a JSON object", path);
    const TokenTable table = table_of(tokens);
    TRY(read_added(path, json_object_get(json, "added_tokens"), &table));
    return read_vocab(path, json_object_get(json_object_get(json, "model"), "vocab"), &table);
}

Status special_tokens_read(const char *dir, SpecialTokens *ret_tokens) {
    SpecialTokens tokens = {-1, -1, -1, -1, -1, -1};
    CLEANUP(mem_freep) char *lines = NULL, *tokenizer = NULL;
    TRY(path_join(&lines, dir, "vocab.txt"));
    TRY(path_join(&tokenizer, dir, "tokenizer.json"));
    if (path_exists(lines))
        TRY(read_lines(lines, &tokens));
    else if (path_exists(tokenizer))
        TRY(read_tokenizer(tokenizer, &tokens));
    *ret_tokens = tokens;
    return OK;
}
