/* Sentence pairs: each part consists of sentences of one document, the next-sentence label is correct,
 * sequences are filled, no text is skipped, and the result depends only on the seed and the position. Every
 * token of the stream encodes its own position. */
#include <math.h>

#include "data/pairs.h"
#include "data/prepare.h"
#include "files.h"

#define WIKIPEDIA WEFT_SOURCE_DIR "/../shared/data/wikipedia/wiki_00.jsonl"
#define BERT      WEFT_SOURCE_DIR "/../shared/data/tokenizers/bert-base-uncased"

enum { T = 64, P = T - 3, POSITIONS = 60000, FIRST = 10, PAD = 0, CLS = 1, SEP = 2, MASK = 3 };

/* What the stream contains at each position. */
typedef struct Corpus {
    int32_t document[POSITIONS]; /* -1 at the token that ends a document */
    bool sentence[POSITIONS];
    int32_t size, documents;
    char dir[96];
} Corpus;

static Corpus corpus;

/* Writes documents of 1 to `max_sentences` sentences, each of 2 to 40 tokens, to several token files. */
static void make_corpus(const Files *files, const char *name, int documents, int max_sentences) {
    TokenizerId id = {.kind = TOKENIZER_WORDPIECE,
                      .vocab = POSITIONS + FIRST,
                      .fingerprint = 1,
                      .special = {PAD, CLS, SEP, MASK, -1, -1}};
    RngKey key = rng_key(3, "world", 0);
    uint64_t draw = 0;
    TokenFileSet *set = NULL;
    snprintf(corpus.dir, sizeof corpus.dir, "%s/%s", files->dir, name);
    assert_ok(dir_make(corpus.dir));
    assert_ok(token_file_set_new(&set, corpus.dir, "train", &id, 9999, true));
    corpus.size = 0;
    for (int d = 0; d < documents; d++) {
        assert_ok(token_file_set_document(set));
        int sentences = 1 + (int)rng_below(key, draw++, (uint64_t)max_sentences);
        for (int s = 0; s <= sentences; s++) {
            int tokens = s == sentences ? 1 : 2 + (int)rng_below(key, draw++, 39);
            if (s < sentences) token_file_set_sentence(set);
            for (int i = 0; i < tokens; i++, corpus.size++) {
                assert_true(corpus.size < POSITIONS);
                corpus.document[corpus.size] = s == sentences ? -1 : d;
                corpus.sentence[corpus.size] = s < sentences && i == 0;
                uint16_t token = s == sentences ? SEP : (uint16_t)(FIRST + corpus.size);
                assert_ok(token_file_set_add(set, &token, 1));
            }
        }
    }
    corpus.documents = documents;
    assert_ok(token_file_set_finish(set));
    token_file_set_free(set);
}

static DataSpec corpus_spec(const char *const *dir) {
    return (DataSpec){.paths = dir,
                      .path_count = 1,
                      .task = TASK_MLM,
                      .seq = T,
                      .vocab = POSITIONS + FIRST,
                      .types = 2,
                      .special = {PAD, CLS, SEP, MASK, -1, -1},
                      .next_sentence = true,
                      .mask_rate = 0.15,
                      .seed = 5};
}

static int32_t original(const HostBatch *batch, int64_t i) {
    return batch->labels[i] == -100 ? batch->tokens[i] : batch->labels[i];
}

static bool near(double found, double share, double trials) {
    return fabs(found / trials - share) < 4 * sqrt(share * (1 - share) / trials);
}

/* Checks one part of a sequence, which must be consecutive tokens of one document. Returns its first position
 * in the stream and advances *at to the separator. */
static int32_t check_part(const HostBatch *batch, int64_t b, int64_t *at, int32_t type) {
    int64_t row = b * T;
    int32_t first = original(batch, row + *at) - FIRST;
    for (int32_t i = 0;; i++, ++*at) {
        assert_true(*at < batch->lens[b]);
        assert_int_equal(batch->types[row + *at], type);
        int32_t token = original(batch, row + *at);
        if (token == SEP) return first;
        assert_int_equal(token, FIRST + first + i);
        assert_int_equal(corpus.document[first + i], corpus.document[first]);
    }
}

static void test_rows(void **state) {
    Files *files = *state;
    make_corpus(files, "rows", 80, 50);
    const char *dir[] = {corpus.dir};
    DataSpec spec = corpus_spec(dir);
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_ok(host_batch_new(&batch, 8, T));
    int64_t count = dataset_count(data), rows = 0, filled = 0, tokens = 0;
    double random = 0, by_sentence = 0;
    for (int64_t at = 0; at + 8 <= 4 * count; at += 8) {
        assert_ok(dataset_fill(data, (uint64_t)at, true, batch));
        for (int b = 0; b < 8; b++, rows++) {
            int64_t t = 1, row = b * T, length = batch->lens[b];
            assert_int_equal(batch->tokens[row], CLS);
            int32_t a = check_part(batch, b, &t, 0), a_end = a + (int32_t)t - 1;
            t++;
            int32_t second = check_part(batch, b, &t, 1);
            assert_int_equal(t, length - 1);
            for (int64_t i = length; i < T; i++) assert_int_equal(batch->tokens[row + i], PAD);
            by_sentence += corpus.sentence[a] && corpus.sentence[second];
            if (batch->nsp[b])
                assert_int_not_equal(corpus.document[second], corpus.document[a]);
            else
                assert_int_equal(second, a_end);
            random += batch->nsp[b];
            filled += length == T;
            tokens += length;
        }
    }
    assert_true(near(random, 0.5, (double)rows));
    assert_true(by_sentence > 0.99 * (double)rows); /* except where a window is a single sentence */
    assert_true(filled * 10 > rows * 8 && tokens * 100 > rows * T * 93);
}

/* Windows cover every token of every document that has at least two sentences. */
static void test_cover(void **state) {
    Files *files = *state;
    make_corpus(files, "cover", 40, 30);
    const char *dir[] = {corpus.dir};
    CLEANUP(token_stream_done) TokenStream stream = {0};
    CLEANUP(pair_set_done) PairSet set = {0};
    assert_ok(token_stream_init_files(&stream, dir, 1, POSITIONS + FIRST, NULL, NULL));
    assert_true(stream.count > 2 && token_stream_marked(&stream));
    assert_ok(pair_set_build(&set, &stream, 0, corpus.size, P));
    static bool covered[POSITIONS];
    memset(covered, 0, sizeof covered);
    for (size_t i = 0; i < set.count; i++) {
        const PairWindow *window = &set.window[i];
        assert_true(corpus.sentence[window->start] && window->size <= P);
        for (int64_t t = window->start; t < window->start + window->size; t++) covered[t] = true;
    }
    int sentences[64] = {0};
    for (int32_t t = 0; t < corpus.size; t++)
        if (corpus.sentence[t]) sentences[corpus.document[t]]++;
    for (int32_t t = 0; t < corpus.size; t++)
        assert_int_equal(covered[t], corpus.document[t] >= 0 && sentences[corpus.document[t]] > 1);
}

/* The content at a position does not depend on the batch, but differs between epochs. */
static void test_positions(void **state) {
    Files *files = *state;
    make_corpus(files, "places", 60, 20);
    const char *dir[] = {corpus.dir};
    DataSpec spec = corpus_spec(dir);
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *all = NULL, *one = NULL;
    assert_ok(dataset_open(&data, &spec));
    int64_t count = dataset_count(data);
    assert_ok(host_batch_new(&all, 16, T));
    assert_ok(host_batch_new(&one, 1, T));
    assert_ok(dataset_fill(data, 3, true, all));
    for (int b = 0; b < 16; b++) {
        assert_ok(dataset_fill(data, (uint64_t)(3 + b), true, one));
        assert_memory_equal(one->tokens, all->tokens + b * T, T * sizeof(int32_t));
        assert_memory_equal(one->labels, all->labels + b * T, T * sizeof(int32_t));
        assert_int_equal(one->nsp[0], all->nsp[b]);
    }
    int same = 0;
    for (int64_t i = 0; i < 16; i++) { /* unshuffled, so that both epochs have the same windows */
        int32_t before[T];
        assert_ok(dataset_fill(data, (uint64_t)i, false, one));
        memcpy(before, one->tokens, sizeof before);
        assert_ok(dataset_fill(data, (uint64_t)(count + i), false, one));
        same += !memcmp(before, one->tokens, sizeof before);
    }
    assert_int_equal(same, 0);
}

/* The training and validation parts have no document in common. */
static void test_parts(void **state) {
    Files *files = *state;
    make_corpus(files, "parts", 50, 20);
    const char *dir[] = {corpus.dir};
    CLEANUP(dataset_freep) Dataset *train = NULL, *val = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    DataSpec spec = corpus_spec(dir);
    spec.part.first = 0.8;
    assert_ok(dataset_open(&train, &spec));
    spec.part.first = 0, spec.part.last = 1 - 0.8;
    assert_ok(dataset_open(&val, &spec));
    assert_int_equal(dataset_tokens(train) + dataset_tokens(val), corpus.size);
    assert_ok(host_batch_new(&batch, 1, T));
    int32_t last = 0, first = corpus.documents;
    for (int64_t i = 0; i < dataset_count(train); i++) {
        assert_ok(dataset_fill(train, (uint64_t)i, false, batch));
        for (int64_t t = 1; t < batch->lens[0] - 1; t++)
            if (original(batch, t) != SEP && corpus.document[original(batch, t) - FIRST] > last)
                last = corpus.document[original(batch, t) - FIRST];
    }
    for (int64_t i = 0; i < dataset_count(val); i++) {
        assert_ok(dataset_fill(val, (uint64_t)i, false, batch));
        for (int64_t t = 1; t < batch->lens[0] - 1; t++)
            if (original(batch, t) != SEP && corpus.document[original(batch, t) - FIRST] < first)
                first = corpus.document[original(batch, t) - FIRST];
    }
    assert_true(last < first);
}

/* Documents of one sentence have no continuation, so windows over the stream are used instead. */
static void test_single_sentences(void **state) {
    Files *files = *state;
    make_corpus(files, "little", 12, 1);
    const char *dir[] = {corpus.dir};
    DataSpec spec = corpus_spec(dir);
    CLEANUP(dataset_freep) Dataset *data = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_int_equal(dataset_count(data), corpus.size / P);
    make_corpus(files, "less", 2, 1);
    CLEANUP(dataset_freep) Dataset *less = NULL;
    assert_fails(dataset_open(&less, &spec), 1, "too little data");
}

/* ---- Wikipedia with BERT's vocabulary ---- */

static void open_wikipedia(const Files *files, const uint8_t *continues, Tokenizer *tokenizer,
                           Dataset **ret_data) {
    CLEANUP(prepare_result_done) PrepareResult result = {0};
    char dir[96];
    snprintf(dir, sizeof dir, "%s/wikipedia", files->dir);
    const char *texts[] = {WIKIPEDIA}, *dirs[] = {dir};
    PrepareSpec prepare = {.tokenizer = tokenizer, .paths = texts, .path_count = 1, .sentences = true};
    assert_ok(prepare_dir(&prepare, dir, true, &result));
    assert_true(result.sentences > 7000 && result.sentences < 8500);
    DataSpec spec = corpus_spec(dirs);
    spec.seq = 128;
    spec.vocab = tokenizer_vocab(tokenizer);
    spec.special = tokenizer_special(tokenizer);
    spec.continues = continues;
    assert_ok(dataset_open(ret_data, &spec));
}

static void test_wikipedia(void **state) {
    Files *files = *state;
    if (!path_exists(WIKIPEDIA) || !tokenizer_exists(BERT)) skip();
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(mem_freep) uint8_t *continues = NULL;
    assert_ok(tokenizer_load(&tokenizer, BERT));
    int64_t vocab = tokenizer_vocab(tokenizer);
    assert_ok(mem_new((size_t)vocab, 1, &continues));
    for (int64_t i = 0; i < vocab; i++) {
        size_t size;
        const char *token = tokenizer_token(tokenizer, (int32_t)i, &size);
        continues[i] = size > 2 && !memcmp(token, "##", 2);
    }
    SpecialTokens special = tokenizer_special(tokenizer);
    for (int words = 0; words < 2; words++) {
        CLEANUP(dataset_freep) Dataset *data = NULL;
        CLEANUP(host_batch_freep) HostBatch *batch = NULL;
        open_wikipedia(files, words ? continues : NULL, tokenizer, &data);
        assert_ok(host_batch_new(&batch, 1, 128));
        double rows = (double)dataset_count(data), random = 0, tokens = 0, picked = 0, masked = 0, kept = 0;
        double torn = 0;
        for (int64_t i = 0; i < dataset_count(data); i++) {
            assert_ok(dataset_fill(data, (uint64_t)i, true, batch));
            random += batch->nsp[0];
            tokens += batch->lens[0] - 3;
            for (int64_t t = 0; t < batch->lens[0]; t++) {
                bool pick = batch->labels[t] != -100;
                picked += pick;
                masked += pick && batch->tokens[t] == special.mask;
                kept += pick && batch->tokens[t] == batch->labels[t];
                torn += t > 0 && continues[original(batch, t)] && original(batch, t - 1) != special.sep &&
                        pick != (batch->labels[t - 1] != -100);
            }
        }
        assert_true(rows > 1500);
        assert_true(near(random, 0.5, rows));
        assert_true(fabs(picked / tokens - 0.15) < 0.002);
        assert_true(near(masked, 0.8, picked) && near(kept, 0.1, picked));
        if (words) assert_int_equal(torn, 0);
        if (!words) assert_true(torn > 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_cover),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_single_sentences),
        cmocka_unit_test(test_wikipedia),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
