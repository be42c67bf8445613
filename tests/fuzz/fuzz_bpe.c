/* Fuzzes loading a BPE, WordPiece or WordLevel tokenizer from tokenizer.json as a pipeline, or a BPE from
 * vocab.json and merges.txt separated by a NUL. An accepted tokenizer encodes and decodes arbitrary bytes;
 * with GPT-2's pipeline without loss. */
#include "base/memory.h"
#include "fuzz.h"
#include "tokenizer/bpe.h"
#include "tokenizer/words.h"

static Status load(const char *text, size_t size, Tokenizer **ret_tokenizer) {
    const char *merges = memchr(text, 0, size);
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_parse(text, merges ? (size_t)(merges - text) : size, "input", &json));
    const char *type = json_string_value(json_object_get(json_object_get(json, "model"), "type"));
    bool words = type && (!strcmp(type, "WordPiece") || !strcmp(type, "WordLevel"));
    if (!merges && words) return tokenizer_load_words_json(ret_tokenizer, json, "input");
    if (!merges) return tokenizer_load_bpe_json(ret_tokenizer, json, "input");
    merges++;
    return bpe_from_text(ret_tokenizer, json, "input", merges, (size_t)(text + size - merges), "merges");
}

/* The post-processor yields valid ids and offsets for a pair. */
static void check_sequence(const Tokenizer *tokenizer, const char *text, size_t size) {
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    CLEANUP(token_list_done) TokenList list = {0};
    TextView first = {text, size}, second = {text, size / 2};
    fuzz_require(
        fuzz_succeeded(encoder_new(&encoder, tokenizer, &(EncodeOptions){.offsets = true, .types = true})));
    fuzz_require(fuzz_succeeded(encoder_add_sequence(encoder, first, &second, true, &list)));
    for (size_t i = 0; i < list.count; i++) {
        fuzz_require(list.ids[i] >= 0 && list.ids[i] < tokenizer_vocab(tokenizer) && list.types[i] >= 0);
        fuzz_require(list.offsets[i].start <= list.offsets[i].end && list.offsets[i].end <= size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    if (!fuzz_succeeded(load((const char *)data, size, &tokenizer))) return 0;
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    CLEANUP(token_list_done) TokenList list = {0};
    CLEANUP(mem_freep) char *back = NULL;
    size_t back_size, sample = size < 2000 ? size : 2000;
    EncodeOptions plain = {.plain = true};
    fuzz_require(fuzz_succeeded(encoder_new(&encoder, tokenizer, &plain)));
    const Bpe *bpe = tokenizer->model;
    bool pipeline = bpe->pipeline || bpe->undecoded;
    bool encoded = fuzz_succeeded(encoder_add(encoder, (const char *)data, sample, &list));
    fuzz_require(encoded || pipeline); /* a pattern may take too many steps */
    if (!encoded) return 0;
    fuzz_require(fuzz_succeeded(tokenizer_decode(tokenizer, list.ids, list.count, false, &back, &back_size)));
    fuzz_require(encoder_cut(encoder, (const char *)data, sample) <= sample);
    if (pipeline) {
        check_sequence(tokenizer, (const char *)data, sample);
        return 0;
    }
    size_t prefix = back_size - sample; /* a space added by add_prefix_space */
    fuzz_require(prefix <= 1 && !memcmp(back + prefix, data, sample));
    check_sequence(tokenizer, (const char *)data, sample);
    return 0;
}

/* The 256 bytes, "he", " he" and <|endoftext|>. */
static size_t put_vocab(char *out) {
    size_t size = (size_t)sprintf(out, "{");
    for (int byte = 0; byte < 256; byte++) {
        char spelled[3] = {0};
        bpe_spell((unsigned char)byte, spelled);
        const char *escape = spelled[0] == '"' || spelled[0] == '\\' ? "\\" : "";
        size += (size_t)sprintf(out + size, "\"%s%s\":%d,", escape, spelled, byte);
    }
    return size + (size_t)sprintf(out + size, "\"he\":256,\"\xC4\xA0he\":257,\"<|endoftext|>\":258}");
}

/* SentencePiece-style: characters, bytes as a fallback, spaces spelled "_". */
static size_t put_llama2(char *out) {
    return (size_t)sprintf(
        out,
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":8,\"content\":\"[N]\","
        "\"normalized\":true,\"lstrip\":true}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
        "{\"type\":\"NFKC\"},{\"type\":\"Prepend\",\"prepend\":\"_\"},{\"type\":\"Lowercase\"},{\"type\":"
        "\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]},\"pre_tokenizer\":{\"type\":"
        "\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\",\"split\":false},\"decoder\":{"
        "\"type\":"
        "\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"},"
        "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
        "\"stop\":0}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_"
        "fallback\":"
        "true,\"vocab\":{\"<unk>\":0,\"<0x41>\":1,\"_\":2,\"a\":3,\"e\":4,\"_a\":5,\"ae\":6,\"_ae\":7},"
        "\"merges\":[\"_ a\",\"a e\",[\"_\",\"ae\"]]}}");
}

/* Byte-level with patterns, digits and NFC. */
static size_t put_split(char *out) {
    size_t size = (size_t)sprintf(
        out,
        "{\"added_tokens\":[],\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
        "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'ll)|[^\\\\r\\\\p{L}]?\\\\p{"
        "L}+|"
        "\\\\d{1,3}|[a-z&&[^x]]*+b|(?:ab){2}|\\\\s+(?!\\\\S)|\\\\s+$|.\"},\"behavior\":\"Isolated\","
        "\"invert\":false},"
        "{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"Punctuation\",\"behavior\":"
        "\"MergedWithNext\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}]},"
        "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":");
    size += put_vocab(out + size);
    return size + (size_t)sprintf(out + size, ",\"merges\":[\"h e\"]}}");
}

/* Words, with patterns for PCRE2, and steps after ByteLevel. */
static size_t put_words(char *out, const char *model) {
    return (size_t)sprintf(
        out,
        "{\"added_tokens\":[{\"id\":5,\"content\":\"[N]\",\"normalized\":true,\"special\":true}],"
        "\"normalizer\":{"
        "\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"BertNormalizer\"},{\"type\":\"Nmt\"},{\"type\":"
        "\"Replace\","
        "\"pattern\":{\"Regex\":\"^\\\\s+|(?<=a)b\"},\"content\":\"xy\"}]},\"pre_tokenizer\":{\"type\":"
        "\"Sequence\","
        "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\b|(?>a+?)(?!b)|[[:punct:]]{1,2}?"
        "\"},"
        "\"behavior\":\"MergedWithNext\"},{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"},{\"type\":"
        "\"Metaspace\","
        "\"replacement\":\"_\",\"prepend_scheme\":\"first\"}]},\"decoder\":{\"type\":\"Sequence\","
        "\"decoders\":[{"
        "\"type\":\"WordPiece\",\"prefix\":\"##\"},{\"type\":\"ByteFallback\"}]},\"model\":{\"type\":\"%s\","
        "\"unk_token\":\"u\",\"max_input_chars_per_word\":9,\"vocab\":{\"u\":0,\"a\":1,\"##a\":2,\"_a\":3,"
        "\"<0x41>\":4}}}",
        model);
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    char *text = (char *)out;
    size_t size = 0;
    if (index == 0) {
        size = put_vocab(text) + 1;
        return size + (size_t)sprintf(text + size, "#version: 0.2\nh e\n\xC4\xA0 he\n");
    }
    if (index == 2) return put_llama2(text);
    if (index == 3) return put_split(text);
    if (index == 4 || index == 5) return put_words(text, index == 4 ? "WordPiece" : "WordLevel");
    if (index > 5) return 0;
    size = (size_t)sprintf(
        text, "{\"added_tokens\":[{\"id\":259,\"content\":\"[x]\",\"lstrip\":true,\"rstrip\":true,"
              "\"single_word\":true,\"normalized\":false,\"special\":true}],\"normalizer\":"
              "{\"type\":\"Sequence\",\"normalizers\":[]},\"post_processor\":{\"type\":\"Sequence\","
              "\"processors\":[{\"type\":\"ByteLevel\",\"trim_offsets\":true},{\"type\":"
              "\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":["
              "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}},{\"SpecialToken\":{\"id\":\"[x]\","
              "\"type_id\":0}}],\"special_tokens\":{\"[x]\":{\"ids\":[259,258]}}}]},"
              "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
              "\"use_regex\":true},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
              "\"dropout\":null,\"ignore_merges\":false,\"end_of_word_suffix\":\"\",\"vocab\":");
    size += put_vocab(text + size);
    return size + (size_t)sprintf(text + size, ",\"merges\":[\"h e\",[\"\xC4\xA0\",\"he\"]]}}");
}
