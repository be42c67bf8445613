/* Training tokenizers: the results equal those of Hugging Face's trainers (tests/golden/learn), however the
 * text is split into chunks, in whatever order they arrive and with any number of threads. */
#include "test.h"

#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "tokenizer/learn.h"

#define GOLDEN WEFT_TEST_DIR "/golden/learn/"

static char *read_golden(const char *name, size_t *ret_size) {
    char *path = NULL, *text = NULL;
    size_t size;
    assert_ok(str_format(&path, GOLDEN "%s", name));
    assert_ok(file_read(path, 1 << 20, &text, &size));
    free(path);
    if (ret_size) *ret_size = size;
    return text;
}

static LearnSpec spec_of(TokenizerKind kind, int64_t vocab) {
    return (LearnSpec){.kind = kind, .vocab = vocab, .min_count = 2, .alphabet_limit = 1000, .threads = 1};
}

static Tokenizer *learn_text(const LearnSpec *spec, const char *text, size_t size) {
    CLEANUP(learner_freep) Learner *learner = NULL;
    Tokenizer *tokenizer = NULL;
    assert_ok(learner_new(&learner, spec));
    assert_ok(learner_add(learner, 0, text, size));
    assert_ok(learner_finish(learner, NULL, NULL, &tokenizer));
    return tokenizer;
}

static Tokenizer *learn_golden(const char *name, const LearnSpec *spec) {
    size_t size;
    CLEANUP(mem_freep) char *text = read_golden(name, &size);
    return learn_text(spec, text, size);
}

static void assert_token(const Tokenizer *tokenizer, int32_t id, const char *expected, size_t size) {
    size_t found_size;
    assert_true(id < tokenizer_vocab(tokenizer));
    const char *found = tokenizer_token(tokenizer, id, &found_size);
    if (found_size != size || memcmp(found, expected, size) != 0)
        fail_msg("token %d is '%.*s'; expected '%.*s'", (int)id, (int)found_size, found, (int)size, expected);
}

/* ---- same result as Hugging Face ---- */

/* The saved merges.txt, without its first line. */
static char *saved_merges(const Tokenizer *tokenizer) {
    char dir[] = "/tmp/weft-learn-XXXXXX", *path = NULL, *text = NULL;
    assert_non_null(mkdtemp(dir));
    assert_ok(tokenizer_save(tokenizer, dir));
    assert_ok(path_join(&path, dir, "merges.txt"));
    assert_ok(file_read(path, 1 << 20, &text, NULL));
    assert_ok(dir_remove(dir));
    free(path);
    char *start = strncmp(text, "#version", 8) == 0 ? strchr(text, '\n') + 1 : text;
    memmove(text, start, strlen(start) + 1);
    return text;
}

static void check_bpe(const char *from, const char *name, int64_t vocab) {
    LearnSpec spec = spec_of(TOKENIZER_BPE, vocab);
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = learn_golden(from, &spec);
    CLEANUP(mem_freep) char *golden = read_golden(name, NULL), *found = saved_merges(tokenizer);
    assert_string_equal(found, golden);
    assert_token(tokenizer, 0, "<|endoftext|>", 13);
    assert_token(tokenizer, 1, "!", 1);
    assert_int_equal(tokenizer_special(tokenizer).end, 0);
    int32_t id = 257;
    for (char *line = strtok(golden, "\n"); line; line = strtok(NULL, "\n"), id++) {
        char *space = strchr(line, ' ');
        memmove(space, space + 1, strlen(space));
        assert_token(tokenizer, id, line, strlen(line));
    }
    assert_int_equal(tokenizer_vocab(tokenizer), id);
}

static void bpe_as_hugging_face(void **state) {
    check_bpe("text.txt", "bpe.txt", 700);
}

static void bpe_stops_when_text_is_exhausted(void **state) {
    check_bpe("text.txt", "bpe-all.txt", 100000);
}

/* Words are merged in parts of 512 symbols, which must not show. */
static void bpe_of_long_words(void **state) {
    check_bpe("long.txt", "bpe-long.txt", 100000);
}

/* A run whose doubled tokens would exceed the limit of a vocabulary. */
static void bpe_of_a_huge_word(void **state) {
    enum { SIZE = 1 << 19 };
    LearnSpec spec = spec_of(TOKENIZER_BPE, 1000);
    CLEANUP(learner_freep) Learner *learner = NULL;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(mem_freep) char *text = calloc(1, SIZE);
    assert_non_null(text);
    memset(text, '=', SIZE);
    assert_ok(learner_new(&learner, &spec));
    assert_ok(learner_add(learner, 0, text, SIZE));
    assert_ok(learner_finish(learner, NULL, NULL, &tokenizer));
    assert_int_equal(tokenizer_vocab(tokenizer), 257 + 16); /* 2, 4, ... 65536 */
}

static void check_wordpiece(const char *name, const LearnSpec *spec) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = learn_golden("text.txt", spec);
    CLEANUP(mem_freep) char *golden = read_golden(name, NULL);
    int32_t id = 0;
    for (char *line = strtok(golden, "\n"); line; line = strtok(NULL, "\n"))
        assert_token(tokenizer, id++, line, strlen(line));
    assert_int_equal(tokenizer_vocab(tokenizer), id);
    assert_int_equal(tokenizer_special(tokenizer).unk, 1);
    assert_int_equal(tokenizer_special(tokenizer).mask, 4);
}

static void wordpiece_as_hugging_face(void **state) {
    LearnSpec spec = spec_of(TOKENIZER_WORDPIECE, 500);
    check_wordpiece("wordpiece.txt", &spec);
    spec.vocab = 600;
    spec.cased = true;
    spec.alphabet_limit = 80;
    check_wordpiece("wordpiece-cased.txt", &spec);
}

/* ---- the result depends only on the text ---- */

/* Trains on chunks of about `piece` bytes, the last ones first, spread over all slots. */
static uint64_t learn_in_pieces(LearnSpec spec, int threads, size_t piece, bool parallel) {
    size_t size, ends[4096], count = 0;
    CLEANUP(mem_freep) char *text = read_golden("text.txt", &size);
    CLEANUP(learner_freep) Learner *learner = NULL;
    spec.threads = threads;
    assert_ok(learner_new(&learner, &spec));
    assert_int_equal(learner_slots(learner), threads);
    for (size_t at = 0; at < size && count < 4096;) {
        size_t length = piece, cut = 0;
        for (; cut == 0 && at + length < size; length += piece) cut = learner_cut(learner, text + at, length);
        ends[count++] = at = cut ? at + cut : size;
    }
    assert_true(count > 3);
    if (parallel) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int slot = 0; slot < threads; slot++)
            for (size_t i = (size_t)slot; i < count; i += (size_t)threads)
                status_free(learner_add(learner, slot, text + (i ? ends[i - 1] : 0),
                                        ends[i] - (i ? ends[i - 1] : 0)));
    } else {
        for (size_t i = count; i-- > 0;)
            assert_ok(learner_add(learner, (int)(i % (size_t)threads), text + (i ? ends[i - 1] : 0),
                                  ends[i] - (i ? ends[i - 1] : 0)));
    }
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    assert_ok(learner_finish(learner, NULL, NULL, &tokenizer));
    return tokenizer_fingerprint(tokenizer);
}

static void order_and_threads_do_not_matter(void **state) {
    LearnSpec specs[] = {spec_of(TOKENIZER_BPE, 600), spec_of(TOKENIZER_WORDPIECE, 500)};
    for (size_t i = 0; i < 2; i++) {
        CLEANUP(tokenizer_freep) Tokenizer *whole = learn_golden("text.txt", &specs[i]);
        uint64_t expected = tokenizer_fingerprint(whole);
        assert_true(learn_in_pieces(specs[i], 1, 5000, false) == expected);
        assert_true(learn_in_pieces(specs[i], 3, 700, false) == expected);
        assert_true(learn_in_pieces(specs[i], 5, 64, false) == expected);
        assert_true(learn_in_pieces(specs[i], 4, 300, true) == expected);
    }
}

/* ---- trained tokenizers work ---- */

static void decodes_what_it_encodes(void **state) {
    LearnSpec spec = spec_of(TOKENIZER_BPE, 900);
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = learn_golden("text.txt", &spec);
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    CLEANUP(token_list_done) TokenList list = {0};
    size_t size, back_size;
    CLEANUP(mem_freep) char *text = read_golden("text.txt", &size), *back = NULL;
    assert_ok(encoder_new(&encoder, tokenizer, NULL));
    assert_ok(encoder_add(encoder, text, size, &list));
    assert_true(list.count < size / 2);
    assert_ok(tokenizer_decode(tokenizer, list.ids, list.count, false, &back, &back_size));
    assert_int_equal(back_size, size);
    assert_memory_equal(back, text, size);
}

static void accepts_any_bytes(void **state) {
    char bytes[4096];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * i / 7 + i);
    LearnSpec spec = spec_of(TOKENIZER_BPE, 300);
    CLEANUP(tokenizer_freep) Tokenizer *bpe = learn_text(&spec, bytes, sizeof bytes);
    assert_int_equal(tokenizer_vocab(bpe), 300);
    spec = spec_of(TOKENIZER_WORDPIECE, 2000);
    CLEANUP(tokenizer_freep) Tokenizer *wordpiece = learn_text(&spec, bytes, sizeof bytes);
    assert_true(tokenizer_vocab(wordpiece) > 5);
}

/* A megabyte without a word boundary is split into parts and trains quickly. */
static void words_of_any_length(void **state) {
    size_t size = 1 << 20;
    CLEANUP(mem_freep) char *text = NULL;
    assert_ok(mem_new(size, 1, &text));
    uint32_t number = 1;
    for (size_t i = 0; i < size; i++) text[i] = "acgt"[(number = number * 1664525 + 1013904223) >> 30];
    LearnSpec spec = spec_of(TOKENIZER_BPE, 1000);
    CLEANUP(tokenizer_freep) Tokenizer *bpe = learn_text(&spec, text, size);
    assert_int_equal(tokenizer_vocab(bpe), 1000);
    spec = spec_of(TOKENIZER_WORDPIECE, 1000);
    CLEANUP(tokenizer_freep) Tokenizer *wordpiece = learn_text(&spec, text, size);
    assert_true(tokenizer_vocab(wordpiece) > 5 + 4 + 4);
}

static void special_tokens_come_first(void **state) {
    const char *special[] = {"<pad>", "<|endoftext|>", "th"};
    LearnSpec spec = spec_of(TOKENIZER_BPE, 262);
    spec.special = special;
    spec.special_count = 3;
    static const char text[] = "aththath aththath";
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = learn_text(&spec, text, sizeof text - 1);
    assert_token(tokenizer, 0, "<pad>", 5);
    assert_token(tokenizer, 1, "<|endoftext|>", 13);
    assert_token(tokenizer, 2, "th", 2);
    assert_int_equal(tokenizer_special(tokenizer).end, 1);
    assert_int_equal(tokenizer_find(tokenizer, "ath", 3), 259);
}

typedef struct Seen {
    int64_t done, total;
    int calls;
} Seen;

static void record_progress(void *context, int64_t done, int64_t total) {
    Seen *seen = context;
    assert_true(done >= seen->done && done <= total);
    *seen = (Seen){done, total, seen->calls + 1};
}

static void reports_progress(void **state) {
    size_t size;
    CLEANUP(mem_freep) char *text = read_golden("text.txt", &size);
    CLEANUP(learner_freep) Learner *learner = NULL;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    LearnSpec spec = spec_of(TOKENIZER_BPE, 1000);
    Seen seen = {0};
    assert_ok(learner_new(&learner, &spec));
    assert_ok(learner_add(learner, 0, text, size));
    assert_ok(learner_finish(learner, record_progress, &seen, &tokenizer));
    assert_true(seen.calls >= 2);
    assert_int_equal(seen.done, 1000 - 257);
    assert_int_equal(seen.total, 1000 - 257);
}

/* ---- errors ---- */

static Status try_spec(LearnSpec spec) {
    CLEANUP(learner_freep) Learner *learner = NULL;
    return learner_new(&learner, &spec);
}

static void invalid_requests(void **state) {
    LearnSpec bpe = spec_of(TOKENIZER_BPE, 300), spec = bpe, wordpiece = spec_of(TOKENIZER_WORDPIECE, 300);
    spec.vocab = 256;
    assert_fails(try_spec(spec), 2, "256 bytes and 1 special token need 257");
    spec.vocab = (int64_t)1 << 40;
    assert_fails(try_spec(spec), 2, "too large");
    spec = bpe;
    spec.min_count = 0;
    assert_fails(try_spec(spec), 2, "expected 1 or more");
    spec = spec_of(TOKENIZER_BYTES, 300);
    assert_fails(try_spec(spec), 2, "expected bpe or wordpiece");
    const char *twice[] = {"<a>", "<b>", "<a>"}, *empty[] = {""}, *broken[] = {"\xC3("}, *few[] = {"[PAD]"};
    spec = bpe;
    spec.special = twice;
    spec.special_count = 3;
    assert_fails(try_spec(spec), 2, "'<a>' is given twice");
    spec.special = empty;
    spec.special_count = 1;
    assert_fails(try_spec(spec), 2, "is empty");
    spec.special = broken;
    assert_fails(try_spec(spec), 2, "not valid UTF-8");
    spec = wordpiece;
    const char *lines[] = {"[UNK]", "a\nb"};
    spec.special = lines;
    spec.special_count = 2;
    assert_fails(try_spec(spec), 2, "special token 'a...' contains a line break");
    spec.kind = TOKENIZER_BPE;
    assert_ok(try_spec(spec));
    spec = wordpiece;
    spec.special = few;
    spec.special_count = 1;
    assert_fails(try_spec(spec), 2, "needs the special token [UNK]");
    spec = wordpiece;
    spec.vocab = 5;
    assert_fails(try_spec(spec), 2, "too small for 5 special tokens");
    spec.vocab = 300;
    spec.alphabet_limit = 0;
    assert_fails(try_spec(spec), 2, "expected 1 or more");
}

static Status try_text(LearnSpec spec, const char *text) {
    CLEANUP(learner_freep) Learner *learner = NULL;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    TRY(learner_new(&learner, &spec));
    TRY(learner_add(learner, 0, text, strlen(text)));
    return learner_finish(learner, NULL, NULL, &tokenizer);
}

static void text_without_content(void **state) {
    assert_fails(try_text(spec_of(TOKENIZER_BPE, 300), ""), 1, "no words");
    assert_fails(try_text(spec_of(TOKENIZER_WORDPIECE, 300), " \n\t "), 1, "no words");
    assert_fails(try_text(spec_of(TOKENIZER_WORDPIECE, 10), "abc defg"), 2,
                 "5 special tokens, 7 characters and 5 continuation characters need 17");
    assert_ok(try_text(spec_of(TOKENIZER_BPE, 300), "a"));
    assert_ok(try_text(spec_of(TOKENIZER_WORDPIECE, 300), "a"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_of_long_words),         cmocka_unit_test(bpe_of_a_huge_word),
        cmocka_unit_test(bpe_as_hugging_face),       cmocka_unit_test(bpe_stops_when_text_is_exhausted),
        cmocka_unit_test(wordpiece_as_hugging_face), cmocka_unit_test(order_and_threads_do_not_matter),
        cmocka_unit_test(decodes_what_it_encodes),   cmocka_unit_test(accepts_any_bytes),
        cmocka_unit_test(words_of_any_length),       cmocka_unit_test(special_tokens_come_first),
        cmocka_unit_test(reports_progress),          cmocka_unit_test(invalid_requests),
        cmocka_unit_test(text_without_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
