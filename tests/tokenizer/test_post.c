/* Post-processors, and pipelines with Sequences, encode like Hugging Face's tokenizers: random components
 * with their results are in golden/post (WEFT_POST_CASES names another file). Further: refusals,
 * add_bos_token, and saving. */
#include "tokenizer/bpe.h"
#include "tokenizer/kit.h"
#include "tokenizer/wordpiece.h"

#define CASES WEFT_TEST_DIR "/golden/post/cases.jsonl"

/* ---- golden cases ---- */

/* A tokenizer.json with the vocabulary of wordpiece_uncased.txt, whose first five tokens are special. */
static json_t *wordpiece_base(void) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    json_t *vocab = json_object(), *added = json_array();
    assert_ok(file_read(KIT_GOLDEN "/wordpiece_uncased.txt", 1 << 20, &text, &size));
    int id = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), id++) {
        json_object_set_new(vocab, line, json_integer(id));
        if (id < 5)
            json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b}", "id", id, "content", line,
                                                   "special", 1, "normalized", 0));
    }
    return json_pack("{s:o, s:{s:s, s:o}}", "added_tokens", added, "model", "type", "WordPiece", "vocab",
                     vocab);
}

static json_t *base_json(const char *name) {
    json_t *json = NULL;
    if (!strcmp(name, "wordpiece")) return wordpiece_base();
    assert_ok(json_read_file(strcmp(name, "bpe") ? name : KIT_GOLDEN "/bpe.json", &json));
    return json;
}

static Status load(const json_t *json, Tokenizer **ret_tokenizer) {
    const char *type = json_string_value(json_object_get(json_object_get(json, "model"), "type"));
    return !strcmp(type, "BPE") ? tokenizer_load_bpe_json(ret_tokenizer, json, "tokenizer.json")
                                : tokenizer_load_wordpiece_json(ret_tokenizer, json, "tokenizer.json");
}

static size_t widened(const char *text, size_t size, size_t at, bool up) {
    while (at > 0 && at < size && ((unsigned char)text[at] & 0xC0) == 0x80) at += up ? 1 : (size_t)-1;
    return at;
}

/* Whether a token is only the space that add_prefix_space inserted: weft's offsets are then empty, while
 * Hugging Face's cover the first character of the text. */
static bool is_inserted_space(const Tokenizer *tokenizer, int32_t id) {
    const Bpe *bpe = tokenizer->model;
    return tokenizer->ops->kind == TOKENIZER_BPE && bpe->add_prefix_space && id == bpe->byte_ids[' '];
}

static bool same_offset(TextView text, TokenOffset found, const json_t *expected) {
    return widened(text.data, text.size, found.start, false) ==
               (size_t)json_integer_value(json_array_get(expected, 0)) &&
           widened(text.data, text.size, found.end, true) ==
               (size_t)json_integer_value(json_array_get(expected, 1));
}

static void check_input(Encoder *encoder, const json_t *input, const char *label) {
    const json_t *text = json_object_get(input, "text"), *other = json_object_get(input, "pair"),
                 *ids = json_object_get(input, "ids"), *types = json_object_get(input, "types"),
                 *offsets = json_object_get(input, "offsets"), *decoded = json_object_get(input, "decoded");
    CLEANUP(token_list_done) TokenList list = {0};
    TextView first = {json_string_value(text), json_string_length(text)};
    TextView second = {json_string_value(other), json_string_length(other)};
    assert_ok(encoder_add_sequence(encoder, first, second.data ? &second : NULL,
                                   json_is_true(json_object_get(input, "special")), &list));
    assert_ids(&list, ids, label);
    for (size_t i = 0; i < list.count; i++) {
        if (list.types[i] != json_integer_value(json_array_get(types, i)))
            fail_msg("%s: token %zu has type %d", label, i, list.types[i]);
        const json_t *expected = json_array_get(offsets, i);
        if (is_inserted_space(encoder->tokenizer, list.ids[i])) continue;
        if (!same_offset(first, list.offsets[i], expected) &&
            !(second.data && same_offset(second, list.offsets[i], expected)))
            fail_msg("%s: '%s': token %zu has offsets %zu to %zu; expected %lld to %lld", label, first.data,
                     i, list.offsets[i].start, list.offsets[i].end,
                     (long long)json_integer_value(json_array_get(expected, 0)),
                     (long long)json_integer_value(json_array_get(expected, 1)));
    }
    CLEANUP(mem_freep) char *bytes = NULL;
    CLEANUP(mem_freep) char *back = NULL;
    size_t size;
    assert_ok(tokenizer_decode(encoder->tokenizer, list.ids, list.count, false, &bytes, &size));
    assert_ok(text_to_utf8(bytes, size, &back, &size));
    assert_int_equal(size, json_string_length(decoded));
    assert_memory_equal(back, json_string_value(decoded), size);
}

static void check_inputs(const Tokenizer *tokenizer, const json_t *inputs, const char *label) {
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    assert_ok(encoder_new(&encoder, tokenizer, &(EncodeOptions){.offsets = true, .types = true}));
    for (size_t i = 0; i < json_array_size(inputs); i++)
        check_input(encoder, json_array_get(inputs, i), label);
}

/* The saved tokenizer must encode alike: it keeps the post-processor. */
static void check_saved(const Tokenizer *tokenizer, const json_t *inputs, const char *label) {
    char dir[] = "/tmp/weft-post-XXXXXX";
    CLEANUP(tokenizer_freep) Tokenizer *again = NULL;
    assert_non_null(mkdtemp(dir));
    assert_ok(tokenizer_save(tokenizer, dir));
    assert_ok(tokenizer_load(&again, dir));
    assert_int_equal(tokenizer_fingerprint(again), tokenizer_fingerprint(tokenizer));
    check_inputs(again, inputs, label);
    assert_ok(dir_remove(dir));
}

static void golden(void **state) {
    CLEANUP(mem_freep) char *text = NULL;
    const char *path = getenv("WEFT_POST_CASES");
    size_t size, lines = 0;
    CLEANUP(json_decrefp) json_t *base = NULL;
    char base_name[4096] = "";
    assert_ok(file_read(path ? path : CASES, (size_t)1 << 30, &text, &size));
    for (char *line = text, *stop; (stop = strchr(line, '\n')); line = stop + 1, lines++) {
        CLEANUP(json_decrefp) json_t *json = json_loadb(line, (size_t)(stop - line), JSON_ALLOW_NUL, NULL);
        CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
        CLEANUP(mem_freep) char *label = NULL;
        assert_non_null(json);
        const char *name = json_string_value(json_object_get(json, "base"));
        const json_t *inputs = json_object_get(json, "inputs");
        if (strcmp(name, base_name)) {
            json_decref(base);
            base = base_json(name);
            snprintf(base_name, sizeof base_name, "%s", name);
        }
        assert_int_equal(json_object_update(base, json_object_get(json, "components")), 0);
        CLEANUP(mem_freep) char *components = json_dumps(json_object_get(json, "components"), 0);
        assert_ok(str_format(&label, "case %zu: %s", lines + 1, components));
        assert_ok(load(base, &tokenizer));
        check_inputs(tokenizer, inputs, label);
        if (lines % 4 == 0) check_saved(tokenizer, inputs, label);
    }
    assert_true(lines >= 80);
}

/* ---- components that are refused ---- */

static Status load_with(const char *base, const char *key, const char *component) {
    CLEANUP(json_decrefp) json_t *json = base_json(base);
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    json_t *value = json_loads(component, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    if (!strcmp(base, "wordpiece"))
        json_object_set_new(json, "pre_tokenizer", json_pack("{s:s}", "type", "BertPreTokenizer"));
    json_object_set_new(json, key, value);
    return load(json, &tokenizer);
}

#define TEMPLATE(single, pair, tokens)                                                                       \
    "{\"type\": \"TemplateProcessing\", \"single\": " single ", \"pair\": " pair                             \
    ", \"special_tokens\": " tokens "}"
#define TEXT_A "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
#define TEXT_B "{\"Sequence\": {\"id\": \"B\", \"type_id\": 0}}"
#define CLS    "{\"SpecialToken\": {\"id\": \"[CLS]\", \"type_id\": 0}}"

static const struct {
    const char *key, *component, *message;
} refused[] = {
    {"post_processor", "{\"type\": \"Magic\"}",
     "tokenizer.json: 'post_processor' of type Magic is not supported; expected TemplateProcessing"},
    {"post_processor", "{}", "'post_processor' of type (none) is not supported"},
    {"post_processor", "7", "'post_processor' of type (none) is not supported"},
    {"post_processor", "{\"type\": \"Sequence\", \"processors\": 1}", "'post_processor.processors' must be"},
    {"post_processor", "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"Magic\"}]}", "of type Magic"},
    {"post_processor",
     "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"BertProcessing\"}, {\"type\": \"ByteLevel\"}]}",
     "'post_processor' of type Sequence (BertProcessing, ByteLevel) is not supported"},
    {"post_processor", "{\"type\": \"ByteLevel\", \"trim_offsets\": 1}", "'trim_offsets' must be"},
    {"post_processor", "{\"type\": \"BertProcessing\", \"sep\": [\"x\", 1]}",
     "'post_processor.cls' must be a list of a token and its id"},
    {"post_processor", "{\"type\": \"BertProcessing\", \"sep\": [\"x\", 1], \"cls\": [\"y\", 100000]}",
     "'post_processor' of type BertProcessing: the id of 'cls' must be an integer from 0 to"},
    {"post_processor", "{\"type\": \"RobertaProcessing\", \"sep\": [\"x\", -1], \"cls\": [\"y\", 1]}",
     "'post_processor' of type RobertaProcessing: the id of 'sep'"},
    {"post_processor", TEMPLATE("7", "[]", "{}"), "'post_processor.single' must be a list"},
    {"post_processor", TEMPLATE("[]", "\"$A\"", "{}"), "'post_processor.pair' must be a list"},
    {"post_processor", TEMPLATE("[" TEXT_B "]", "[]", "{}"),
     "'post_processor.single' uses the text 'B'; expected A"},
    {"post_processor", TEMPLATE("[\"$A\"]", "[]", "{}"), "'post_processor.single' has an invalid piece"},
    {"post_processor", TEMPLATE("[{\"Sequence\": {\"id\": \"A\"}}]", "[]", "{}"), "has an invalid piece"},
    {"post_processor", TEMPLATE("[{\"Sequence\": {\"id\": \"A\", \"type_id\": -1}}]", "[]", "{}"),
     "'type_id' is -1"},
    {"post_processor", TEMPLATE("[" CLS "]", "[]", "{}"), "'special_tokens' has no ids for '[CLS]'"},
    {"post_processor", TEMPLATE("[]", "[" CLS "]", "{\"[CLS]\": {\"ids\": [\"x\"]}}"),
     "TemplateProcessing: the id of '[CLS]' must be an integer"},
    {"pre_tokenizer", "{\"type\": \"Sequence\"}", "'pre_tokenizer.pretokenizers' must be a list"},
    {"pre_tokenizer",
     "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\"}, {\"type\": \"ByteLevel\"}]}",
     "the pattern of a pre-tokenizer of type Split must be a string"},
    {"decoder",
     "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"Fuse\"}, {\"type\": "
     "\"CTC\"}]}",
     "'decoder' has a CTC after Fuse"},
    {"normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Magic\"}]}",
     "'normalizer' of type Magic is not supported; expected NFC"},
};

static void refuses_the_rest(void **state) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_fails(load_with("bpe", refused[i].key, refused[i].component), 1, refused[i].message);
        assert_fails(load_with("wordpiece", refused[i].key, refused[i].component), 1, refused[i].message);
    }
    assert_ok(load_with("wordpiece", "pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": []}"));
    assert_ok(load_with("wordpiece", "decoder", "{\"type\": \"Sequence\", \"decoders\": []}"));
    assert_ok(load_with("bpe", "post_processor", TEMPLATE("[" TEXT_A "]", "[" TEXT_A "]", "{}")));
    assert_ok(load_with("wordpiece", "post_processor", TEMPLATE("[]", "[]", "{}")));
}

/* ---- add_bos_token ---- */

static const char *const words[] = {"he", "<|endoftext|>", "<s>", NULL};
enum { HE = 256, END, START };

static char *work;

static void put(const char *name, const char *text) {
    CLEANUP(mem_freep) char *path = NULL;
    assert_ok(path_join(&path, work, name));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state) {
    static char dir[] = "/tmp/weft-post-XXXXXX";
    work = mkdtemp(dir);
    CLEANUP(json_decrefp) json_t *vocab = kit_vocab(words);
    CLEANUP(mem_freep) char *text = json_dumps(vocab, 0);
    put("vocab.json", text);
    put("merges.txt", "#version: 0.2\nh e\n");
    return 0;
}

static int teardown(void **state) {
    return dir_remove(work) != OK;
}

/* Ids and types of "he" alone, and of the pair "he", "he"; `expected` ends with -1. */
static void assert_encodes(const char *config, bool pair, const int32_t *expected, const int32_t *types) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    CLEANUP(token_list_done) TokenList list = {0};
    TextView he = {"he", 2};
    put("tokenizer_config.json", config);
    assert_ok(tokenizer_load(&tokenizer, work));
    assert_ok(encoder_new(&encoder, tokenizer, &(EncodeOptions){.types = true}));
    assert_ok(encoder_add_sequence(encoder, he, pair ? &he : NULL, true, &list));
    size_t count = 0;
    for (; expected[count] >= 0; count++) {
        assert_true(count < list.count);
        assert_int_equal(list.ids[count], expected[count]);
        assert_int_equal(list.types[count], types[count]);
    }
    assert_int_equal(list.count, count);
}

#define IDS(...) ((const int32_t[]){__VA_ARGS__, -1})

/* As transformers' GPT2Tokenizer does with the same files (version 5.22.2). */
static void bos_and_eos(void **state) {
    assert_encodes("{}", false, IDS(HE), IDS(0));
    assert_encodes("{}", true, IDS(HE, HE), IDS(0, 1));
    assert_encodes("{\"add_bos_token\": false}", false, IDS(HE), IDS(0));
    assert_encodes("{\"add_bos_token\": true}", false, IDS(END, HE), IDS(0, 0));
    assert_encodes("{\"add_bos_token\": true}", true, IDS(END, HE, END, HE), IDS(0, 0, 1, 1));
    assert_encodes("{\"add_eos_token\": true}", true, IDS(HE, END, HE, END), IDS(0, 0, 1, 1));
    assert_encodes("{\"add_bos_token\": true, \"add_eos_token\": true, \"bos_token\": \"<s>\"}", true,
                   IDS(START, HE, END, START, HE, END), IDS(0, 0, 0, 1, 1, 1));
    assert_encodes("{\"add_bos_token\": true, \"bos_token\": {\"content\": \"<s>\"}}", false, IDS(START, HE),
                   IDS(0, 0));
    assert_encodes("{\"add_bos_token\": true, \"bos_token\": null}", false, IDS(HE), IDS(0));
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    put("tokenizer_config.json", "{\"add_bos_token\": true, \"bos_token\": \"<b>\"}");
    assert_fails(tokenizer_load(&tokenizer, work), 1,
                 "tokenizer_config.json: 'bos_token' is '<b>', which is not in the vocabulary");
    put("tokenizer_config.json", "{\"add_eos_token\": true, \"eos_token\": 7}");
    assert_fails(tokenizer_load(&tokenizer, work), 1, "'eos_token' must be a token");
    put("tokenizer_config.json", "{\"add_bos_token\": 1}");
    assert_fails(tokenizer_load(&tokenizer, work), 1, "'add_bos_token' must be true or false");
}

/* As transformers' RobertaTokenizer does. */
static void roberta_files(void **state) {
    assert_encodes("{\"tokenizer_class\": \"RobertaTokenizer\", \"sep_token\": \"<|endoftext|>\"}", false,
                   IDS(START, HE, END), IDS(0, 0, 0));
    assert_encodes("{\"tokenizer_class\": \"RobertaTokenizerFast\", \"sep_token\": \"<|endoftext|>\"}", true,
                   IDS(START, HE, END, END, HE, END), IDS(0, 0, 0, 0, 0, 0));
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    put("tokenizer_config.json", "{\"tokenizer_class\": \"RobertaTokenizer\"}");
    assert_fails(tokenizer_load(&tokenizer, work), 1,
                 "'sep_token' is '</s>', which is not in the vocabulary");
    put("tokenizer_config.json",
        "{\"tokenizer_class\": \"RobertaTokenizer\", \"cls_token\": null, \"sep_token\": \"<s>\"}");
    assert_fails(tokenizer_load(&tokenizer, work), 1, "RobertaTokenizer needs 'cls_token' and 'sep_token'");
}

/* tokenizer.json takes precedence, and the saved post-processor is that of the files. */
static void saved_bos(void **state) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(mem_freep) char *path = NULL;
    put("tokenizer_config.json", "{\"add_bos_token\": true}");
    assert_ok(tokenizer_load(&tokenizer, work));
    assert_ok(tokenizer_save(tokenizer, work));
    assert_encodes("{\"add_bos_token\": false}", false, IDS(END, HE), IDS(0, 0));
    assert_encodes("{\"add_eos_token\": true}", true, IDS(END, HE, END, HE), IDS(0, 0, 1, 1));
    assert_ok(path_join(&path, work, "tokenizer.json"));
    assert_int_equal(remove(path), 0);
}

/* ---- templates ---- */

static void templates(void **state) {
    CLEANUP(token_template_done) TokenTemplate bert = {0};
    CLEANUP(token_template_done) TokenTemplate plain = {0};
    assert_ok(token_template_add_bert(&bert, 7, 8, true));
    assert_ok(token_template_check_once(&bert, true));
    assert_fails(token_template_check_once(&bert, false), 2, "the second text of a sequence 1 times");
    assert_fails(token_template_check_once(&plain, false), 2, "the first text of a sequence 0 times");
    assert_ok(token_template_check_types(&bert, 2));
    assert_ok(token_template_check_types(&bert, 0));
    assert_fails(token_template_check_types(&bert, 1), 2,
                 "assigns token type 1, but the model has only 1 token type");
    assert_int_equal(token_template_special(&bert), 3);
    assert_int_equal(token_template_length(&bert, 4, 2), 9);
    assert_int_equal(token_template_find(&bert, PIECE_SECOND, 0, 4, 2), 6);
    assert_int_equal(token_template_find(&bert, PIECE_TOKEN, 8, 4, 2), 5);
    assert_int_equal(token_template_find(&bert, PIECE_TOKEN, 9, 4, 2), -1);
    const int32_t a[] = {1, 2}, b[] = {3}, ids[] = {7, 1, 2, 8, 3, 8}, expected_types[] = {0, 0, 0, 0, 1, 1};
    int32_t tokens[6], types[6];
    assert_int_equal(token_template_fill(&bert, (TokenSpan){a, 2}, (TokenSpan){b, 1}, tokens, types), 6);
    assert_memory_equal(tokens, ids, sizeof ids);
    assert_memory_equal(types, expected_types, sizeof types);
}

/* Without the regular expression no cut is safe, except after an added token. */
static void whole_spans(void **state) {
    CLEANUP(json_decrefp) json_t *json = base_json("bpe");
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    static const char *const texts[] = {"the loom and the weaver", "a b<|endoftext|> c d", "x  y [long]\n z"};
    json_object_set_new(json_object_get(json, "pre_tokenizer"), "use_regex", json_false());
    assert_ok(load(json, &tokenizer));
    assert_ok(encoder_new(&encoder, tokenizer, NULL));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CLEANUP(token_list_done) TokenList list = {0};
        assert_ok(encoder_add(encoder, texts[i], strlen(texts[i]), &list));
        assert_cuts(encoder, texts[i], strlen(texts[i]), &list);
        assert_decodes(tokenizer, &list, texts[i], strlen(texts[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),        cmocka_unit_test(refuses_the_rest), cmocka_unit_test(bos_and_eos),
        cmocka_unit_test(roberta_files), cmocka_unit_test(saved_bos),        cmocka_unit_test(templates),
        cmocka_unit_test(whole_spans),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
