/* Loads WordPiece tokenizers from tokenizer.json. Every component that determines ids must be BERT's;
 * anything else is an error that names it. Only the normalizer may be absent: text is then not normalized.
 * Truncation and padding are ignored, as in transformers. */
#include "tokenizer/wordpiece.h"

/* Gets a component of this type. If it is optional and absent, *ret_object is NULL. */
static Status get_typed(const json_t *json, const char *from, const char *key, const char *type,
                        bool optional, const json_t **ret_object) {
    const json_t *object = NULL;
    TRY(json_component(json, key, type, from, &object));
    const char *found = json_string_value(json_object_get(object, "type"));
    if (!(optional && !object) && (!found || strcmp(found, type) != 0))
        return FAILED("%s: '%s' is %s%.60s; expected %s for WordPiece", from, key,
                      found ? "of type " : "missing", found ? found : "", type);
    *ret_object = object;
    return OK;
}

static Status check_string(const json_t *object, const char *from, const char *key, const char *expected) {
    const char *text = expected;
    TRY(json_get_string(object, from, key, &text));
    if (strcmp(text, expected) != 0)
        return FAILED("%s: '%s' is '%.60s'; expected '%s'", from, key, text, expected);
    return OK;
}

static Status read_spec(const json_t *json, const char *from, WordPieceSpec *spec) {
    const json_t *normalizer = NULL, *pre_tokenizer = NULL, *decoder = NULL,
                 *model = json_object_get(json, "model");
    TRY(get_typed(json, from, "normalizer", "BertNormalizer", true, &normalizer));
    TRY(get_typed(json, from, "pre_tokenizer", "BertPreTokenizer", false, &pre_tokenizer));
    TRY(get_typed(json, from, "decoder", "WordPiece", true, &decoder));
    BertSettings *settings = &spec->settings;
    if (!normalizer) *settings = (BertSettings){0};
    TRY(json_get_bool(normalizer, from, "clean_text", &settings->clean_text));
    TRY(json_get_bool(normalizer, from, "handle_chinese_chars", &settings->handle_chinese_chars));
    TRY(json_get_bool(normalizer, from, "lowercase", &settings->lowercase));
    settings->strip_accents = settings->lowercase;
    TRY(json_get_bool(normalizer, from, "strip_accents", &settings->strip_accents));
    TRY(check_string(model, from, "continuing_subword_prefix", WORDPIECE_PREFIX));
    TRY(json_get_int(model, from, "max_input_chars_per_word", 1, WORDPIECE_WORD_CHARS_LIMIT,
                     &spec->max_word_chars));
    TRY(json_get_string(model, from, "unk_token", &spec->unk));
    spec->joins = spec->clean_up = decoder != NULL;
    if (!decoder) return OK;
    TRY(check_string(decoder, from, "prefix", WORDPIECE_PREFIX));
    return json_get_bool(decoder, from, "cleanup", &spec->clean_up);
}

Status tokenizer_load_wordpiece_json(Tokenizer **ret_tokenizer, const json_t *json, const char *from) {
    CLEANUP(mem_freep) unsigned char *is_piece = NULL;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    WordPieceSpec spec = {.settings = {true, true, true, true},
                          .max_word_chars = WORDPIECE_MAX_WORD_CHARS,
                          .unk = WORDPIECE_UNK};
    TRY(read_spec(json, from, &spec));
    TRY(tokenizer_new(&tokenizer, &tokenizer_ops_wordpiece));
    const json_t *vocab = json_object_get(json_object_get(json, "model"), "vocab");
    TRY(vocab_read_json(tokenizer, vocab, json_object_get(json, "added_tokens"), from));
    TRY(mem_new((size_t)tokenizer->vocab.count, 1, &is_piece));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value) {
        is_piece[json_integer_value(value)] = true;
    }
    spec.is_piece = is_piece;
    const char *const roles[WORDPIECE_ROLES] = {NULL};
    TRY(wordpiece_finish(tokenizer, &spec, roles, from));
    TRY(post_processor_read(tokenizer, json, from));
    *ret_tokenizer = tokenizer;
    tokenizer = NULL;
    return OK;
}
