/* The post-processor of tokenizer.json: the special tokens and token types around texts, and offsets without
 * the spaces around a token. These types are supported; each reduces to a template for a single text and one
 * for a pair (template.h):
 *
 *   TemplateProcessing   any templates
 *   BertProcessing       [CLS] A [SEP] and [CLS] A [SEP] B [SEP], with types 0 and 1
 *   RobertaProcessing    <s> A </s> and <s> A </s></s> B </s>, all of type 0; may trim offsets
 *   ByteLevel            A and A B, with types 0 and 1; may trim offsets
 *   Sequence             of up to one of these, or of ByteLevel and then TemplateProcessing or BertProcessing
 *   null                 A and A B, with types 0 and 1
 */
#include "tokenizer/internal.h"

void post_processor_done(PostProcessor *post) {
    token_template_done(&post->single);
    token_template_done(&post->pair);
    json_decref(post->json);
    *post = (PostProcessor){0};
}

/* ---- TemplateProcessing ---- */

/* What is read, for errors. */
typedef struct Reading {
    PostProcessor *post;
    int32_t vocab;
    const char *from, *type;
} Reading;

static Status read_id(const Reading *reading, const json_t *value, const char *token, int32_t *ret_id) {
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= reading->vocab)
        return FAILED("%s: 'post_processor' of type %s: the id of '%.60s' must be an integer from 0 to %d",
                      reading->from, reading->type, token, reading->vocab - 1);
    *ret_id = (int32_t)id;
    return OK;
}

/* A special token of a template stands for one or more ids. */
static Status add_special(const Reading *reading, const json_t *tokens, const char *name, int32_t type,
                          TokenTemplate *tpl) {
    const json_t *ids = json_object_get(json_object_get(tokens, name), "ids");
    if (!json_is_array(ids))
        return FAILED("%s: 'post_processor' of type %s: 'special_tokens' has no ids for '%.60s'",
                      reading->from, reading->type, name);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        TemplatePiece piece = {PIECE_TOKEN, .type = type};
        TRY(read_id(reading, json_array_get(ids, i), name, &piece.id));
        TRY(token_template_add(tpl, piece));
    }
    return OK;
}

/* A piece is {"SpecialToken": {"id": NAME, "type_id": N}} or {"Sequence": {"id": "A" or "B", "type_id": N}}.
 */
static Status add_piece(const Reading *reading, const json_t *tokens, const json_t *item, const char *key,
                        TokenTemplate *tpl) {
    const json_t *special = json_object_get(item, "SpecialToken"), *text = json_object_get(item, "Sequence"),
                 *piece = special ? special : text;
    const char *name = json_string_value(json_object_get(piece, "id"));
    int64_t type = -1;
    TRY(json_get_int(piece, reading->from, "type_id", 0, INT32_MAX, &type));
    if (json_object_size(item) != 1 || !name || type < 0)
        return FAILED("%s: 'post_processor.%s' has an invalid piece; expected a SpecialToken or a Sequence "
                      "with an id and a type_id",
                      reading->from, key);
    if (special) return add_special(reading, tokens, name, (int32_t)type, tpl);
    bool first = !strcmp(name, "A"), second = !strcmp(name, "B") && tpl == &reading->post->pair;
    if (!first && !second)
        return FAILED("%s: 'post_processor.%s' uses the text '%.60s'; expected %s", reading->from, key, name,
                      tpl == &reading->post->pair ? "A or B" : "A");
    return token_template_add(tpl,
                              (TemplatePiece){first ? PIECE_FIRST : PIECE_SECOND, .type = (int32_t)type});
}

static Status read_template(const Reading *reading, const json_t *json, const char *key, TokenTemplate *tpl) {
    const json_t *list = json_object_get(json, key), *tokens = json_object_get(json, "special_tokens");
    if (!json_is_array(list)) return FAILED("%s: 'post_processor.%s' must be a list", reading->from, key);
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(add_piece(reading, tokens, json_array_get(list, i), key, tpl));
    return OK;
}

/* ---- the other types ---- */

/* "cls" or "sep": ["[CLS]", 101]. */
static Status read_pair(const Reading *reading, const json_t *json, const char *key, int32_t *ret_id) {
    const json_t *pair = json_object_get(json, key);
    if (json_array_size(pair) != 2)
        return FAILED("%s: 'post_processor.%s' must be a list of a token and its id", reading->from, key);
    return read_id(reading, json_array_get(pair, 1), key, ret_id);
}

static Status read_bert(const Reading *reading, const json_t *json) {
    int32_t cls = 0, sep = 0;
    TRY(read_pair(reading, json, "cls", &cls));
    TRY(read_pair(reading, json, "sep", &sep));
    TRY(token_template_add_bert(&reading->post->single, cls, sep, false));
    return token_template_add_bert(&reading->post->pair, cls, sep, true);
}

static Status read_trim(const Reading *reading, const json_t *json) {
    reading->post->trim_offsets = reading->post->add_prefix_space = true; /* Hugging Face's defaults */
    TRY(json_get_bool(json, reading->from, "trim_offsets", &reading->post->trim_offsets));
    return json_get_bool(json, reading->from, "add_prefix_space", &reading->post->add_prefix_space);
}

static Status read_roberta(const Reading *reading, const json_t *json) {
    int32_t cls = 0, sep = 0;
    TRY(read_trim(reading, json));
    TRY(read_pair(reading, json, "cls", &cls));
    TRY(read_pair(reading, json, "sep", &sep));
    const TemplatePiece pieces[] = {
        {PIECE_TOKEN, cls, 0}, {PIECE_FIRST, 0, 0},  {PIECE_TOKEN, sep, 0},
        {PIECE_TOKEN, sep, 0}, {PIECE_SECOND, 0, 0}, {PIECE_TOKEN, sep, 0},
    };
    for (int i = 0; i < 3; i++) TRY(token_template_add(&reading->post->single, pieces[i]));
    for (int i = 0; i < 6; i++) TRY(token_template_add(&reading->post->pair, pieces[i]));
    return OK;
}

static Status read_plain(PostProcessor *post) {
    TRY(token_template_add(&post->single, (TemplatePiece){PIECE_FIRST, 0, 0}));
    TRY(token_template_add(&post->pair, (TemplatePiece){PIECE_FIRST, 0, 0}));
    return token_template_add(&post->pair, (TemplatePiece){PIECE_SECOND, 0, 1});
}

/* Reads one component that is not a Sequence; ByteLevel does not fill the templates. */
static Status read_one(Reading *reading, const json_t *json) {
    const char *type = json_string_value(json_object_get(json, "type"));
    reading->type = type ? type : "(none)";
    if (type && !strcmp(type, "TemplateProcessing")) {
        TRY(read_template(reading, json, "single", &reading->post->single));
        return read_template(reading, json, "pair", &reading->post->pair);
    }
    if (type && !strcmp(type, "BertProcessing")) return read_bert(reading, json);
    if (type && !strcmp(type, "RobertaProcessing")) return read_roberta(reading, json);
    if (type && !strcmp(type, "ByteLevel")) return read_trim(reading, json);
    return FAILED("%s: 'post_processor' of type %.60s is not supported; expected TemplateProcessing, "
                  "BertProcessing, RobertaProcessing or ByteLevel",
                  reading->from, reading->type);
}

static bool has_type(const json_t *json, const char *type) {
    const char *found = json_string_value(json_object_get(json, "type"));
    return found && !strcmp(found, type);
}

/* Components run one after another. Only ByteLevel can precede another one: it changes offsets, the others
 * change the sequence. Further combinations do not occur in practice. */
static Status read_sequence(Reading *reading, const json_t *list) {
    const json_t *first = json_array_get(list, 0), *second = json_array_get(list, 1);
    bool known = json_array_size(list) == 2 && has_type(first, "ByteLevel") &&
                 (has_type(second, "TemplateProcessing") || has_type(second, "BertProcessing"));
    if (!known) {
        CLEANUP(mem_freep) char *types = NULL;
        TRY(json_component_types(list, &types));
        return FAILED("%s: 'post_processor' of type Sequence (%s) is not supported; expected one component, "
                      "or ByteLevel and then TemplateProcessing or BertProcessing",
                      reading->from, types);
    }
    TRY(read_one(reading, first));
    return read_one(reading, second);
}

static Status read_any(Reading *reading, const json_t *json) {
    while (has_type(json, "Sequence")) {
        const json_t *list = json_object_get(json, "processors");
        if (!json_is_array(list))
            return FAILED("%s: 'post_processor.processors' must be a list", reading->from);
        if (json_array_size(list) > 1) return read_sequence(reading, list);
        json = json_array_get(list, 0);
        if (!json) return OK;
    }
    return read_one(reading, json);
}

Status post_processor_set(Tokenizer *tokenizer, json_t *json, const char *from) {
    CLEANUP(post_processor_done) PostProcessor post = {.json = json};
    Reading reading = {.post = &post, .vocab = tokenizer->vocab.count, .from = from};
    if (json && !json_is_null(json)) TRY(read_any(&reading, json));
    bool templates = reading.type && strcmp(reading.type, "ByteLevel") != 0;
    if (!templates) TRY(read_plain(&post));
    post_processor_done(&tokenizer->post);
    tokenizer->post = post;
    post = (PostProcessor){0};
    return OK;
}

Status post_processor_read(Tokenizer *tokenizer, const json_t *json, const char *from) {
    const json_t *value = json_object_get(json, "post_processor");
    json_t *copy = value ? json_clone_deep(value) : json_null();
    return copy ? post_processor_set(tokenizer, copy, from) : FAILED("%s: out of memory", from);
}

/* ---- components for tokenizers without tokenizer.json ---- */

static json_t *template_item(const char *kind, const char *name, int type) {
    return json_pack("{s:{s:s, s:i}}", kind, "id", name, "type_id", type);
}

Status post_processor_set_template(Tokenizer *tokenizer, const TokenTemplate *single,
                                   const TokenTemplate *pair, const char *from) {
    const TokenTemplate *const templates[] = {single, pair};
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:s, s:[], s:[], s:{}}", "type", "TemplateProcessing", "single", "pair",
                             "special_tokens");
    json_t *tokens = json_object_get(json, "special_tokens");
    int failed = !json;
    for (int k = 0; !failed && k < 2; k++) {
        json_t *list = json_object_get(json, k ? "pair" : "single");
        for (size_t i = 0; !failed && i < templates[k]->count; i++) {
            const TemplatePiece *piece = &templates[k]->pieces[i];
            size_t size;
            const char *name = piece->kind == PIECE_FIRST ? "A" : "B";
            if (piece->kind == PIECE_TOKEN) {
                name = vocab_token(&tokenizer->vocab, piece->id, &size);
                json_t *token =
                    json_pack("{s:s, s:[i], s:[s]}", "id", name, "ids", (int)piece->id, "tokens", name);
                failed = json_object_set_new(tokens, name, token);
            }
            const char *kind = piece->kind == PIECE_TOKEN ? "SpecialToken" : "Sequence";
            failed |= json_array_append_new(list, template_item(kind, name, (int)piece->type));
        }
    }
    if (failed) return FAILED("%s: the post-processor cannot be written as JSON", from);
    return post_processor_set(tokenizer, json_incref(json), from);
}

Status post_processor_set_bert(Tokenizer *tokenizer, const char *from) {
    const SpecialTokens *roles = &tokenizer->roles;
    if (roles->cls < 0 || roles->sep < 0) return post_processor_set(tokenizer, json_null(), from);
    CLEANUP(token_template_done) TokenTemplate single = {0};
    CLEANUP(token_template_done) TokenTemplate pair = {0};
    TRY(token_template_add_bert(&single, roles->cls, roles->sep, false));
    TRY(token_template_add_bert(&pair, roles->cls, roles->sep, true));
    return post_processor_set_template(tokenizer, &single, &pair, from);
}

/* ---- offsets ---- */

static bool is_added(const Tokenizer *tokenizer, int32_t id) {
    size_t low = 0, high = tokenizer->added_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (tokenizer->added[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < tokenizer->added_count && tokenizer->added[low].id == id;
}

/* A space is "Ġ" (U+0120) in the vocabulary of a byte-level BPE; other whitespace occurs in added tokens. */
static bool is_trimmed(uint32_t c) {
    return c == 0x120 || char_is_space(c);
}

static size_t leading_spaces(const char *token, size_t size) {
    size_t count = 0;
    for (uint32_t c; size > 0; count++) {
        size_t bytes = utf8_next(token, size, &c);
        if (!is_trimmed(c)) break;
        token += bytes;
        size -= bytes;
    }
    return count;
}

static size_t trailing_spaces(const char *token, size_t size) {
    size_t count = 0;
    for (uint32_t c; size > 0; count++) {
        size_t bytes = utf8_previous(token, size, &c);
        if (!is_trimmed(c)) break;
        size -= bytes;
    }
    return count;
}

/* As in Hugging Face, the token's spelling decides how many characters of the text are trimmed. With
 * add_prefix_space, a single space at the start of the text is taken for the inserted one and kept. */
void post_processor_trim(const Tokenizer *tokenizer, const char *text, size_t size, size_t first,
                         TokenList *list) {
    for (size_t i = first; i < list->count; i++) {
        TokenOffset *offset = &list->offsets[i];
        size_t length = offset->end - offset->start;
        const char *token = text + offset->start;
        if (!is_added(tokenizer, list->ids[i])) token = vocab_token(&tokenizer->vocab, list->ids[i], &length);
        size_t leading = leading_spaces(token, length), trailing = trailing_spaces(token, length);
        uint32_t c;
        bool starts = i == first || offset->start == 0;
        if (starts && tokenizer->post.add_prefix_space && leading == 1) leading = 0;
        for (; leading > 0 && offset->start < offset->end; leading--)
            offset->start += utf8_next(text + offset->start, size - offset->start, &c);
        if (offset->end < offset->start) offset->end = offset->start; /* the token ends within a character */
        for (; trailing > 0 && offset->start < offset->end; trailing--)
            offset->end -= utf8_previous(text + offset->start, offset->end - offset->start, &c);
    }
}
