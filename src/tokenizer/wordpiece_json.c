/* Loads WordPiece tokenizers from tokenizer.json: BERT's, whose normalizer may be absent (text is then not
 * normalized), and others as a pipeline (words.h). Truncation and padding are ignored, as in transformers. */
#include "tokenizer/wordpiece.h"
#include "tokenizer/words.h"

/* The file is BERT's by words_is_bert. */
static Status read_spec(const json_t *json, const char *from, WordPieceSpec *spec) {
    const json_t *normalizer = NULL, *decoder = NULL, *model = json_object_get(json, "model");
    TRY(json_component(json, "normalizer", "BertNormalizer", from, &normalizer));
    TRY(json_component(json, "decoder", "WordPiece", from, &decoder));
    if (normalizer)
        TRY(bert_settings_read(normalizer, from, &spec->settings));
    else
        spec->settings = (BertSettings){0};
    TRY(json_get_int(model, from, "max_input_chars_per_word", 1, WORDPIECE_WORD_CHARS_LIMIT,
                     &spec->max_word_chars));
    TRY(json_get_string(model, from, "unk_token", &spec->unk));
    spec->joins = spec->clean_up = decoder != NULL;
    return decoder ? json_get_bool(decoder, from, "cleanup", &spec->clean_up) : OK;
}

Status tokenizer_load_wordpiece_json(Tokenizer **ret_tokenizer, const json_t *json, const char *from) {
    if (!words_is_bert(json)) return tokenizer_load_words_json(ret_tokenizer, json, from);
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
    return MOVE(ret_tokenizer, tokenizer);
}
