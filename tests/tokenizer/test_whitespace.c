/* Added tokens that consist of whitespace give the same ids as in Hugging Face (golden/make_whitespace.py),
 * in one piece and cut. */
#include "tokenizer/kit.h"

/* tokenizer.json of BERT, with the vocabulary of a file that has one token per line. */
static json_t *bert_json(const char *base) {
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    json_t *vocab = json_object(), *added = json_array();
    assert_ok(str_format(&path, KIT_GOLDEN "/wordpiece_%s.txt", base));
    assert_ok(file_read(path, 1 << 20, &text, NULL));
    int id = 0;
    for (char *line = text, *stop; (stop = strchr(line, '\n')); line = stop + 1) {
        *stop = 0;
        json_object_set_new(vocab, line, json_integer(id++));
    }
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        json_array_append_new(added,
                              json_pack("{s:O, s:s, s:b, s:b}", "id", json_object_get(vocab, special[i]),
                                        "content", special[i], "special", true, "normalized", false));
    return json_pack("{s:o, s:{s:s, s:b, s:b, s:n, s:b}, s:{s:s}, s:{s:s, s:s, s:s, s:i, s:o}}",
                     "added_tokens", added, "normalizer", "type", "BertNormalizer", "clean_text", true,
                     "handle_chinese_chars", true, "strip_accents", "lowercase", !strcmp(base, "uncased"),
                     "pre_tokenizer", "type", "BertPreTokenizer", "model", "type", "WordPiece", "unk_token",
                     "[UNK]", "continuing_subword_prefix", "##", "max_input_chars_per_word", 100, "vocab",
                     vocab);
}

static Tokenizer *load(const char *base, json_t *added) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    Tokenizer *tokenizer = NULL;
    bool bpe = !strcmp(base, "bpe");
    if (bpe) {
        assert_ok(json_read_file(KIT_GOLDEN "/bpe.json", &json));
        json_t *tokens = json_object_get(json, "added_tokens");
        while (json_array_size(tokens) > 1) json_array_remove(tokens, 1);
    } else {
        json = bert_json(base);
        assert_non_null(json);
    }
    json_array_extend(json_object_get(json, "added_tokens"), added);
    if (bpe)
        assert_ok(tokenizer_load_bpe_json(&tokenizer, json, "bpe.json"));
    else
        assert_ok(tokenizer_load_wordpiece_json(&tokenizer, json, "bert.json"));
    return tokenizer;
}

static void check_line(const json_t *line) {
    CLEANUP(tokenizer_freep)
    Tokenizer *tokenizer =
        load(json_string_value(json_object_get(line, "base")), json_object_get(line, "added"));
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    assert_ok(encoder_new(&encoder, tokenizer, NULL));
    const json_t *texts = json_object_get(line, "texts"), *text;
    size_t i;
    json_array_foreach(texts, i, text) {
        CLEANUP(token_list_done) TokenList list = {0};
        const char *string = json_string_value(text);
        size_t size = json_string_length(text);
        assert_ok(encoder_add(encoder, string, size, &list));
        assert_ids(&list, json_array_get(json_object_get(line, "ids"), i), string);
        assert_cuts(encoder, string, size, &list);
    }
}

static void matches_hugging_face(void **state) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size, lines = 0;
    assert_ok(file_read(KIT_GOLDEN "/whitespace_cases.jsonl", 1 << 20, &text, &size));
    for (char *line = text, *stop; (stop = strchr(line, '\n')); line = stop + 1, lines++) {
        CLEANUP(json_decrefp) json_t *json = json_loadb(line, (size_t)(stop - line), 0, NULL);
        assert_non_null(json);
        check_line(json);
    }
    assert_int_equal(lines, 36);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_hugging_face)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
