/* Fuzzes a BPE tokenizer with all kinds of added tokens: any bytes decode to the same bytes, offsets are in
 * order, and splitting the text wherever encoder_cut() allows it changes nothing. */
#include "base/memory.h"
#include "fuzz.h"
#include "tokenizer/bpe.h"

/* A tokenizer with the 256 bytes, a few merges, and an added token for each flag. */
static Status make(Tokenizer **ret_tokenizer) {
    static const char *const words[] = {"he",  "\xC4\xA0he", "aa",  "aaaa", "the", "'t",
                                        "[l]", "[r]",        "[w]", "[n]",  "[ll]"};
    static const BpeMerge merges[] = {{'h', 'e'}, {' ', 256}, {'a', 'a'}, {258, 258}, {'t', 256}};
    enum { FIRST_ADDED = 6, WORDS = sizeof words / sizeof *words };
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    TRY(tokenizer_new(&tokenizer, &tokenizer_ops_bpe));
    TRY(vocab_init(&tokenizer->vocab, 256 + WORDS, "fuzz"));
    for (int byte = 0; byte < 256; byte++) {
        char spelled[2];
        size_t size = bpe_spell((unsigned char)byte, spelled);
        TRY(vocab_put(&tokenizer->vocab, byte, spelled, size, "fuzz"));
    }
    for (int i = 0; i < WORDS; i++)
        TRY(vocab_put(&tokenizer->vocab, 256 + i, words[i], strlen(words[i]), "fuzz"));
    Bpe *bpe = NULL;
    TRY(bpe_new(&bpe, sizeof merges / sizeof *merges));
    tokenizer->model = bpe;
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        size_t left, right;
        const char *a = vocab_token(&tokenizer->vocab, merges[i].left, &left);
        const char *b = vocab_token(&tokenizer->vocab, merges[i].right, &right);
        TRY(bpe_add_merge(bpe, &tokenizer->vocab, a, left, b, right, "fuzz"));
    }
    for (int i = FIRST_ADDED; i < WORDS; i++) {
        char flag = words[i][1];
        AddedToken token = {
            .id = 256 + i, .lstrip = flag == 'l', .rstrip = flag == 'r', .single_word = flag == 'w'};
        token.normalized = flag == 'n';
        TRY(tokenizer_add(tokenizer, token, "fuzz"));
    }
    TRY(bpe_finish(tokenizer, "fuzz"));
    *ret_tokenizer = tokenizer;
    tokenizer = NULL;
    return OK;
}

static void check_cuts(Encoder *encoder, const char *text, size_t size, const TokenList *whole) {
    size_t step = size / 16 + 1;
    for (size_t n = 0; n <= size; n += step) {
        CLEANUP(token_list_done) TokenList list = {0};
        size_t cut = encoder_cut(encoder, text, n);
        fuzz_require(cut <= n);
        fuzz_require(fuzz_succeeded(encoder_add(encoder, text, cut, &list)));
        fuzz_require(fuzz_succeeded(encoder_add(encoder, text + cut, size - cut, &list)));
        fuzz_require(list.count == whole->count);
        for (size_t i = 0; i < list.count; i++) fuzz_require(list.ids[i] == whole->ids[i]);
    }
}

static void check_text(const Tokenizer *tokenizer, const char *text, size_t size, bool plain) {
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    CLEANUP(token_list_done) TokenList list = {0};
    CLEANUP(mem_freep) char *back = NULL;
    size_t back_size, at = 0;
    EncodeOptions options = {.plain = plain, .offsets = true};
    fuzz_require(fuzz_succeeded(encoder_new(&encoder, tokenizer, &options)));
    fuzz_require(fuzz_succeeded(encoder_add(encoder, text, size, &list)));
    for (size_t i = 0; i < list.count; i++) {
        fuzz_require(list.offsets[i].start == at && list.offsets[i].end > at && list.offsets[i].end <= size);
        at = list.offsets[i].end;
    }
    fuzz_require(at == size);
    if (size <= 4096) check_cuts(encoder, text, size, &list);
    fuzz_require(fuzz_succeeded(tokenizer_decode(tokenizer, list.ids, list.count, false, &back, &back_size)));
    if (plain) fuzz_require(back_size == size && (size == 0 || !memcmp(back, text, size)));
}

/* Decoding incrementally equals decoding all ids at once. */
static void check_stream(const Tokenizer *tokenizer, const char *text, size_t size) {
    CLEANUP(decoder_freep) Decoder *decoder = NULL;
    CLEANUP(mem_freep) char *whole = NULL;
    size_t whole_size, at = 0, piece_size;
    const char *piece;
    fuzz_require(fuzz_succeeded(decoder_new(&decoder, tokenizer, false)));
    fuzz_require(fuzz_succeeded(text_to_utf8(text, size, &whole, &whole_size)));
    for (size_t i = 0; i <= size; i++) {
        Status status = i < size ? decoder_push(decoder, (unsigned char)text[i], &piece, &piece_size)
                                 : decoder_end(decoder, &piece, &piece_size);
        fuzz_require(fuzz_succeeded(status));
        fuzz_require(at + piece_size <= whole_size && !memcmp(whole + at, piece, piece_size));
        at += piece_size;
    }
    fuzz_require(at == whole_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    fuzz_require(fuzz_succeeded(make(&tokenizer)));
    check_text(tokenizer, (const char *)data, size, true);
    check_text(tokenizer, (const char *)data, size, false);
    check_stream(tokenizer, (const char *)data, size);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "the he aaaaaaa don't 'tis we'll\n\n  x1 23!? [l] [r]  [w] [n][ll]x[w]",
        "caf\xC3\xA9 \xE7\xBB\x87\xE5\xB7\xA5\xC2\xA0 \xE3\x80\x80\xF0\x9F\x98\x80\xCC\x81 [r]\xC2\xA0[l]",
        "a\xFF\xC3(\xE7\xBB \xED\xA0\x80 'r\xF0\x9F\x98",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
