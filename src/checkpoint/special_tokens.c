/* BERT's special tokens, from the vocabulary that lies beside a model.
 *
 * vocab.txt holds a token a line, and its number is the line's. Newer directories have tokenizer.json
 * alone: there, added_tokens names the special ones, and model.vocab has all. */
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"

enum { VOCAB_LIMIT = 256 << 20 /* bytes */, TOKENS = 4 };

typedef struct Place {
    const char *text;
    int32_t *id;
} Place;

typedef struct Places {
    Place at[TOKENS];
} Places;

static Places places_of(SpecialTokens *tokens) {
    return (Places){{{"[PAD]", &tokens->pad},
                     {"[CLS]", &tokens->cls},
                     {"[SEP]", &tokens->sep},
                     {"[MASK]", &tokens->mask}}};
}

static const Place *find_place(const Places *places, const char *text, size_t length) {
    for (int i = 0; i < TOKENS; i++)
        if (strlen(places->at[i].text) == length && !memcmp(places->at[i].text, text, length))
            return &places->at[i];
    return NULL;
}

/* ---- vocab.txt ---- */

static Status read_lines(const char *path, SpecialTokens *tokens) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    TRY(file_read(path, VOCAB_LIMIT, &text, &size));
    const Places places = places_of(tokens);
    const char *line = text, *end = text + size;
    /* As many lines as a file of VOCAB_LIMIT bytes can have are fewer than an int32_t counts. */
    for (int32_t number = 0; line < end; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        size_t length = (size_t)(stop - line);
        if (length && line[length - 1] == '\r') length--;
        const Place *place = find_place(&places, line, length);
        if (place && *place->id >= 0)
            return FAILED("%s: line %lld: '%s' is there a second time, first on line %lld", path,
                          (long long)number + 1, place->text, (long long)*place->id + 1);
        if (place) *place->id = number;
        line = stop + 1;
    }
    return OK;
}

/* ---- tokenizer.json ---- */

static Status take_id(const char *path, const Place *place, const json_t *id) {
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
        return FAILED("%s: the number of '%s' must be an integer from 0 to %d", path, place->text, INT32_MAX);
    *place->id = (int32_t)json_integer_value(id);
    return OK;
}

static Status read_added(const char *path, const json_t *list, const Places *places) {
    if (!list || json_is_null(list)) return OK;
    if (!json_is_array(list)) return FAILED("%s: 'added_tokens' must be a list", path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i), *content = json_object_get(entry, "content");
        if (!json_is_string(content))
            return FAILED("%s: 'added_tokens' number %zu has no 'content', expected a text", path, i + 1);
        const Place *place = find_place(places, json_string_value(content), json_string_length(content));
        if (place) TRY(take_id(path, place, json_object_get(entry, "id")));
    }
    return OK;
}

/* Only what added_tokens did not name. Vocabularies that are lists are not BERT's. */
static Status read_vocab(const char *path, const json_t *vocab, const Places *places) {
    for (int i = 0; i < TOKENS; i++) {
        const json_t *id = json_object_get(vocab, places->at[i].text);
        if (id && *places->at[i].id < 0) TRY(take_id(path, &places->at[i], id));
    }
    return OK;
}

static Status read_tokenizer(const char *path, SpecialTokens *tokens) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_read_file(path, &json));
    if (!json_is_object(json)) return FAILED("%s: expected a JSON object", path);
    const Places places = places_of(tokens);
    TRY(read_added(path, json_object_get(json, "added_tokens"), &places));
    return read_vocab(path, json_object_get(json_object_get(json, "model"), "vocab"), &places);
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
