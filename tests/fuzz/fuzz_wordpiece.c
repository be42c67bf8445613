/* Fuzzes WordPiece: a vocab.txt is rejected or yields a tokenizer. Any bytes then encode to ids of the
 * vocabulary with offsets inside the text, independent of how the text is split, and decode again. The input
 * is a vocabulary and, after the first NUL, a text. The text also runs through a fixed tokenizer that has
 * added tokens of every kind. */
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "fuzz.h"
#include "tokenizer/internal.h"

static TokenList encode(const Tokenizer *tokenizer, const char *text, size_t size, bool offsets) {
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    TokenList list = {0};
    fuzz_require(fuzz_succeeded(encoder_new(&encoder, tokenizer, &(EncodeOptions){.offsets = offsets})));
    fuzz_require(fuzz_succeeded(encoder_add(encoder, text, size, &list)));
    return list;
}

static void check_same(const TokenList *a, const TokenList *b) {
    fuzz_require(a->count == b->count);
    for (size_t i = 0; i < a->count; i++) fuzz_require(a->ids[i] == b->ids[i]);
}

static void check_cut(const Tokenizer *tokenizer, const char *text, size_t size, const TokenList *whole) {
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    fuzz_require(fuzz_succeeded(encoder_new(&encoder, tokenizer, NULL)));
    for (size_t part = 1; part < 4; part++) {
        TokenList list = {0};
        size_t cut = encoder_cut(encoder, text, size * part / 4);
        fuzz_require(cut <= size * part / 4);
        fuzz_require(fuzz_succeeded(encoder_add(encoder, text, cut, &list)));
        fuzz_require(fuzz_succeeded(encoder_add(encoder, text + cut, size - cut, &list)));
        check_same(&list, whole);
        token_list_done(&list);
    }
}

static void check_text(const Tokenizer *tokenizer, const char *text, size_t size) {
    TokenList plain = encode(tokenizer, text, size, false), placed = encode(tokenizer, text, size, true);
    check_same(&plain, &placed);
    for (size_t i = 0; i < placed.count; i++) {
        fuzz_require(placed.ids[i] >= 0 && placed.ids[i] < tokenizer_vocab(tokenizer));
        fuzz_require(placed.offsets[i].start < placed.offsets[i].end && placed.offsets[i].end <= size);
        fuzz_require(i == 0 || placed.offsets[i].end >= placed.offsets[i - 1].end);
    }
    check_cut(tokenizer, text, size, &plain);
    CLEANUP(mem_freep) char *back = NULL;
    size_t back_size;
    fuzz_require(
        fuzz_succeeded(tokenizer_decode(tokenizer, plain.ids, plain.count, false, &back, &back_size)));
    fuzz_require(strlen(back) == back_size);
    token_list_done(&plain);
    token_list_done(&placed);
}

static void check_added(const char *text, size_t size) {
    static const char json[] =
        "{'model':{'type':'WordPiece','vocab':{'[UNK]':0,'a':1,'##a':2,'b':3,'.':4}},'normalizer':{'type':"
        "'BertNormalizer'},'pre_tokenizer':{'type':'BertPreTokenizer'},'added_tokens':["
        "{'id':5,'content':'Ab'},{'id':6,'content':'a b'},{'id':7,'content':'\xE7\xB9\x94'},"
        "{'id':8,'content':'w','single_word':true},{'id':9,'content':'l','lstrip':true},"
        "{'id':10,'content':'r','rstrip':true},{'id':11,'content':'n','normalized':false},"
        "{'id':12,'content':' p '},{'id':13,'content':'\xE3\x80\xAE'}]}";
    static Tokenizer *tokenizer; /* never freed */
    if (!tokenizer) {
        char quoted[sizeof json];
        for (size_t i = 0; i < sizeof json; i++) quoted[i] = (char)(json[i] == '\'' ? '"' : json[i]);
        CLEANUP(json_decrefp) json_t *parsed = NULL;
        fuzz_require(fuzz_succeeded(json_parse(quoted, sizeof quoted - 1, "fuzz", &parsed)));
        fuzz_require(fuzz_succeeded(tokenizer_load_wordpiece_json(&tokenizer, parsed, "fuzz")));
    }
    check_text(tokenizer, text, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t lines = nul ? (size_t)(nul - data) : size, rest = nul ? lines + 1 : size;
    char path[] = "/tmp/weft-fuzz-XXXXXX.txt";
    int fd = mkstemps(path, 4);
    fuzz_require(fd >= 0);
    fuzz_require(write(fd, data, lines) == (ssize_t)lines);
    close(fd);
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    bool loaded = fuzz_succeeded(tokenizer_load(&tokenizer, path));
    unlink(path);
    if (!loaded) return 0;
    /* A heap block of exactly this size, so that a sanitizer detects reads past its end. */
    char *text = malloc(size - rest + 1);
    fuzz_require(text);
    char *at = text + 1;
    memcpy(at, data + rest, size - rest);
    check_text(tokenizer, at, size - rest);
    check_added(at, size - rest);
    free(text);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[][2] = {
        {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n##m\n##e\ne\n.\n",
         "The m\xC3\xA9m, them. [MASK]the \xE7\xB9\x94\xF0"},
        {"[UNK]\r\nThe\r\n##\xC3\xA9\r\n", "The\xC3\xA9 \xEA\xB0\x81 \xE3\x80\xAE\xCC\x80 x"},
        {"[UNK]\n[MASK]\na\n##a\n##aa\n##aaa\n##aaaa",
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa aaa[MASK]a"},
        {"[UNK]",
         "A\xCC\x81 B ab a\tb w a.w _w l  l r  r an p p \xE7\xB9\x94p \xE3\x80\xAE\xCC\x80\xE3\x80\xAF"},
    };
    if (index >= sizeof seeds / sizeof *seeds) return 0;
    size_t lines = fuzz_seed_text(seeds[index][0], out);
    out[lines] = 0;
    return lines + 1 + fuzz_seed_text(seeds[index][1], out + lines + 1);
}
