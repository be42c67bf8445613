/* Token streams: every format, plain and compressed, several files, large files, the built-in corpus, and
 * errors for unusable files and requests. */
#include <fcntl.h>
#include <sys/resource.h>

#include "data/corpus.h"
#include "data/source.h"
#include "files.h"

static void test_bytes_of_several_files(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "a.txt", "abc");
    files_add(files, "b.txt", "\xff\0z", 3);
    DataSpec spec = files_spec(files, 3);
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_int_equal(dataset_tokens(data), 8);
    assert_int_equal(dataset_count(data), 2);
    assert_ok(host_batch_new(&batch, 2, 3));
    assert_ok(dataset_fill(data, 0, false, batch));
    assert_tokens(batch->tokens, (int32_t[]){'a', 'b', 'c', 256, 255, 0}, 6);
    assert_tokens(batch->labels, (int32_t[]){'b', 'c', 256, 255, 0, 'z'}, 6);
    assert_int_equal(batch->lens[1], 3);
    assert_false(batch->padded);
    assert_int_equal(batch->loss_count[LOSS_TOKEN], 6);
}

/* Labels after a document's end are ignored, in training and in sliding windows. */
static void test_separate_documents(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "a.txt", "abc");
    files_add_text(files, "b.txt", "defgh");
    DataSpec spec = files_spec(files, 8);
    spec.separate = true;
    spec.end = 256;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_ok(host_batch_new(&batch, 1, 8));
    for (int windows = 0; windows < 2; windows++) {
        if (windows)
            assert_ok(dataset_fill_windows(data, 8, 0, batch));
        else
            assert_ok(dataset_fill(data, 0, false, batch));
        assert_true(batch->documents);
        assert_tokens(batch->tokens, (int32_t[]){'a', 'b', 'c', 256, 'd', 'e', 'f', 'g'}, 8);
        assert_tokens(batch->labels, (int32_t[]){'b', 'c', 256, -100, 'e', 'f', 'g', 'h'}, 8);
        assert_tokens(batch->starts, (int32_t[]){0, 0, 0, 0, 4, 4, 4, 4}, 8);
        assert_int_equal(batch->loss_count[LOSS_TOKEN], 7);
    }
}

/* Models that attend in both directions must not see what follows the end of the last window. */
static void test_last_window_is_padded(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "a.txt", "abcdefghij"); /* and its end token */
    DataSpec spec = files_spec(files, 8);
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_int_equal(dataset_windows(data, 8), 2);
    assert_ok(host_batch_new(&batch, 2, 8));
    assert_ok(dataset_fill_windows(data, 8, 0, batch));
    assert_int_equal(batch->lens[0], 8);
    assert_int_equal(batch->lens[1], 2);
    assert_true(batch->padded);
}

/* Windows that overlap, in file order and shuffled: in every epoch each appears once. Of a fraction of the
 * text, training and validation keep their parts. */
static void test_stride(void **state) {
    static const struct {
        int64_t stride, count;
        const char *windows;
    } cases[] = {
        {1, 6, "abc bcd cde def efg fgh "}, {2, 3, "abc cde efg "}, {3, 2, "abc def "}, {0, 2, "abc def "}};
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "a.txt", "abcdefghijklmnopqrstuvwxyz"); /* and its end token */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        DataSpec spec = files_spec(files, 3);
        spec.part = (DataPart){.fraction = 12. / 27, .first = 0.75, .stride = cases[i].stride};
        CLEANUP(dataset_freep) Dataset *data = NULL;
        CLEANUP(host_batch_freep) HostBatch *batch = NULL;
        assert_ok(dataset_open(&data, &spec));
        assert_int_equal(dataset_tokens(data), 9);
        assert_int_equal(dataset_count(data), cases[i].count);
        assert_ok(host_batch_new(&batch, 1, 3));
        char text[64] = "";
        int64_t seen[9] = {0};
        for (int64_t at = 0; at < 2 * cases[i].count; at++) {
            assert_ok(dataset_fill(data, (uint64_t)at, false, batch));
            for (int t = 0; t < 3; t++) assert_int_equal(batch->labels[t], batch->tokens[t] + 1);
            if (at < cases[i].count)
                snprintf(strchr(text, 0), 8, "%c%c%c ", batch->tokens[0], batch->tokens[1], batch->tokens[2]);
            assert_ok(dataset_fill(data, (uint64_t)at, true, batch));
            assert_int_equal(batch->labels[2], batch->tokens[0] + 3);
            if (at < cases[i].count || cases[i].stride == 1) seen[batch->tokens[0] - 'a']++;
        }
        assert_string_equal(text, cases[i].windows);
        for (int64_t k = 0; k < cases[i].count; k++)
            assert_int_equal(seen[k * (cases[i].stride ? cases[i].stride : 3)], cases[i].stride == 1 ? 2 : 1);
        spec.part = (DataPart){.fraction = 12. / 27, .last = 0.25};
        spec.windows = true;
        dataset_freep(&data);
        assert_ok(dataset_open(&data, &spec));
        assert_int_equal(dataset_tokens(data), 3);
    }
}

static void test_windows_cover_the_stream(void **state) {
    Files *files = *state;
    files->count = 0;
    char text[1000];
    for (int i = 0; i < 1000; i++) text[i] = (char)(i * 7 % 251);
    files_add(files, "one", text, 400);
    files_add(files, "two", text + 400, 600);
    for (int64_t T = 1; T < 40; T += 6) {
        DataSpec spec = files_spec(files, T);
        CLEANUP(dataset_freep) Dataset *data = NULL;
        CLEANUP(host_batch_freep) HostBatch *batch = NULL;
        assert_ok(dataset_open(&data, &spec));
        assert_int_equal(dataset_count(data), 1001 / T);
        assert_ok(host_batch_new(&batch, 1, T));
        for (int64_t i = 0; i < dataset_count(data); i++) {
            assert_ok(dataset_fill(data, (uint64_t)i, false, batch));
            for (int64_t t = 0; t < T; t++) {
                int64_t at = i * T + t + 1;
                int64_t expected = at == 400 || at == 1001 ? 256 : (at - (at > 400)) * 7 % 251;
                assert_int_equal(batch->labels[t], expected);
            }
        }
    }
}

static void test_token_files(void **state) {
    Files *files = *state;
    const uint16_t narrow[] = {1, 2, 50256, 3, 4};
    const uint32_t wide[] = {1, 2, 70000, 3, 4};
    const struct {
        const char *name;
        const void *data;
        size_t size;
        bool gz;
        int32_t third;
    } cases[] = {
        {"t.u16", narrow, sizeof narrow, false, 50256},   {"t.bin", narrow, sizeof narrow, false, 50256},
        {"t.u16.gz", narrow, sizeof narrow, true, 50256}, {"t.u32", wide, sizeof wide, false, 70000},
        {"t.u32.gz", wide, sizeof wide, true, 70000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        files->count = 0;
        for (int copy = 0; copy < 2; copy++) {
            if (cases[i].gz)
                files_add_gz(files, cases[i].name, cases[i].data, cases[i].size);
            else
                files_add(files, cases[i].name, cases[i].data, cases[i].size);
        }
        DataSpec spec = files_spec(files, 9);
        spec.vocab = cases[i].third + 1;
        CLEANUP(dataset_freep) Dataset *data = NULL;
        CLEANUP(host_batch_freep) HostBatch *batch = NULL;
        assert_ok(dataset_open(&data, &spec));
        assert_int_equal(dataset_tokens(data), 10);
        assert_ok(host_batch_new(&batch, 1, 9));
        assert_ok(dataset_fill(data, 0, false, batch));
        const int32_t expected[] = {1, 2, cases[i].third, 3, 4, 1, 2, cases[i].third, 3, 4};
        assert_tokens(batch->tokens, expected, 9);
        assert_tokens(batch->labels, expected + 1, 9);
    }
}

static void test_token_outside_vocabulary(void **state) {
    Files *files = *state;
    files->count = 0;
    const uint16_t tokens[] = {1, 2, 3, 300, 5};
    files_add(files, "bad.u16", tokens, sizeof tokens);
    DataSpec spec = files_spec(files, 4);
    spec.vocab = 300;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_ok(host_batch_new(&batch, 1, 4));
    assert_fails(dataset_fill(data, 0, false, batch), 1,
                 "bad.u16: the token at byte 6 is 300; expected 0 to 299");
}

static void test_parts(void **state) {
    Files *files = *state;
    files->count = 0;
    char text[999];
    for (int i = 0; i < 999; i++) text[i] = (char)(i % 100);
    files_add(files, "all", text, sizeof text);
    for (double share = 0.013; share < 1; share += 0.061) {
        DataSpec spec = files_spec(files, 4);
        CLEANUP(dataset_freep) Dataset *train = NULL;
        CLEANUP(dataset_freep) Dataset *val = NULL;
        CLEANUP(host_batch_freep) HostBatch *batch = NULL;
        spec.part.first = 1 - share;
        assert_ok(dataset_open(&train, &spec));
        spec.part.first = 0;
        spec.part.last = share;
        assert_ok(dataset_open(&val, &spec));
        assert_int_equal(dataset_tokens(train) + dataset_tokens(val), 1000);
        assert_true(llabs(dataset_tokens(val) - (int64_t)(share * 1000)) <= 1);
        assert_ok(host_batch_new(&batch, 1, 4));
        assert_ok(dataset_fill(val, 0, false, batch));
        assert_int_equal(batch->tokens[0], dataset_tokens(train) % 100);
    }
}

/* A file that may be larger than memory opens at once and is readable at any offset. */
static void test_huge_file(void **state) {
    Files *files = *state;
    files->count = 0;
    const char *path = files_name(files, "huge.u16");
    const int64_t size = INT64_C(5) << 30;
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    const uint16_t last = 99;
    bool sparse = ftruncate(fd, size) == 0 && pwrite(fd, &last, 2, size - 2) == 2;
    close(fd);
    if (!sparse) skip();
    enum { T = 1787 }; /* divides the number of tokens minus 1, so that the last token is a label */
    assert_int_equal((size / 2 - 1) % T, 0);
    DataSpec spec = files_spec(files, T);
    spec.vocab = 300;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    assert_ok(dataset_open(&data, &spec));
    assert_int_equal(dataset_tokens(data), size / 2);
    assert_ok(host_batch_new(&batch, 8, T));
    for (uint64_t i = 0; i < 100; i++) assert_ok(dataset_fill(data, i * 8, true, batch));
    assert_ok(dataset_fill(data, (uint64_t)dataset_count(data) - 8, false, batch));
    assert_int_equal(batch->labels[8 * T - 1], 99);
    getrusage(RUSAGE_SELF, &after);
    /* Reading the whole file would take 80,000 page faults, of up to 64 KiB each. */
    assert_true(after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt < 20000);
}

static void test_shakespeare(void **state) {
    const char *paths[] = {WEFT_SOURCE_DIR
                           "/../shared/data/reference/tokenizers/tinyshakespeare.gpt2.u16le.bin"};
    if (!path_exists(paths[0])) skip();
    DataSpec spec = {
        .paths = paths, .path_count = 1, .seq = 256, .vocab = 50257, .special = {-1, -1, -1, -1, -1, -1}};
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_int_equal(dataset_tokens(data), 338025);
    assert_ok(host_batch_new(&batch, 1, 256));
    for (int64_t i = 0; i < dataset_count(data); i++) assert_ok(dataset_fill(data, (uint64_t)i, true, batch));
}

static void test_builtin_corpus(void **state) {
    const char *paths[] = {"self"};
    DataSpec spec = {
        .paths = paths, .path_count = 1, .seq = 64, .vocab = 257, .special = {-1, -1, -1, -1, -1, -1}};
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(dataset_open(&data, &spec));
    assert_true(dataset_tokens(data) > 100000 && dataset_tokens(data) < 16000000);
    assert_ok(host_batch_new(&batch, 1, 64));
    int64_t ends = 0;
    for (int64_t i = 0; i < dataset_count(data); i++) {
        assert_ok(dataset_fill(data, (uint64_t)i, false, batch));
        for (int t = 0; t < 64; t++) {
            int32_t token = batch->tokens[t];
            assert_true(token >= ' ' || token == '\n' || token == '\t');
            ends += token == BYTE_END;
        }
    }
    int64_t files = 0;
    for (size_t place = 0; !corpus_ends(place); files++) {
        CLEANUP(source_done) Source source = {0};
        assert_ok(corpus_next(&source, &place));
    }
    assert_true(files > 100);
    assert_true(ends == files || ends == files - 1);

    spec.format = FORMAT_U16;
    Dataset *none = NULL;
    assert_fails(dataset_open(&none, &spec), 2, "'self' is text");
}

/* The built-in corpus contains this file, complete. */
static void test_builtin_corpus_is_the_source(void **state) {
    CLEANUP(mem_freep) char *own = NULL;
    size_t size = 0;
    assert_ok(file_read(WEFT_SOURCE_DIR "/tests/data/test_stream.c", 1 << 20, &own, &size));
    bool found = false;
    for (size_t place = 0; !corpus_ends(place);) {
        CLEANUP(source_done) Source source = {0};
        assert_ok(corpus_next(&source, &place));
        found |= source.size == size && !memcmp(source.data, own, size);
    }
    assert_true(found);
}

static void test_gz(void **state) {
    Files *files = *state;
    files->count = 0;
    /* Two gzip members, then zeros, as tape tools leave them. */
    const char *path = files_add_gz(files, "two.txt.gz", "hello ", 6);
    gzFile more = gzopen(path, "ab");
    assert_int_equal(gzwrite(more, "world", 5), 5);
    gzclose(more);
    FILE *tail = fopen(path, "ab");
    assert_int_equal(fwrite("\0\0\0\0", 1, 4, tail), 4);
    fclose(tail);
    CLEANUP(source_done) Source source = {0};
    assert_ok(source_init(&source, path, 11));
    assert_int_equal(source.size, 11);
    assert_memory_equal(source.data, "hello world", 11);
    source_done(&source);
    assert_fails(source_init(&source, path, 10), 1, "decompresses to more than 10 bytes");

    char zeros[100000] = {0};
    path = files_add_gz(files, "zeros.gz", zeros, sizeof zeros);
    assert_fails(source_init(&source, path, 65536), 1, "more than 65536 bytes");
    assert_ok(source_init(&source, path, SOURCE_GZ_LIMIT));
    assert_int_equal(source.size, sizeof zeros);
}

/* Every prefix of a compressed file is refused, and so is any changed byte after its header. */
static void test_gz_damage(void **state) {
    Files *files = *state;
    files->count = 0;
    const char *path = files_add_gz(files, "whole.gz", "the quick brown fox jumps over the lazy dog", 43);
    CLEANUP(mem_freep) char *whole = NULL;
    size_t size = 0;
    assert_ok(file_read(path, 1 << 20, &whole, &size));
    const char *bad = files_name(files, "bad.gz");
    Source source;
    for (size_t cut = 0; cut < size; cut++) {
        files_write(bad, whole, cut);
        assert_fails(source_init(&source, bad, 1000), 1, cut ? "is truncated" : "is empty");
    }
    for (size_t at = 10; at < size; at++) {
        whole[at] ^= 0x55;
        files_write(bad, whole, size);
        assert_fails(source_init(&source, bad, 1000), 1, "bad.gz: the compressed data");
        whole[at] ^= 0x55;
    }
    files_write(bad, "plain text", 10);
    assert_fails(source_init(&source, bad, 1000), 1, "damaged");
}

static void test_errors(void **state) {
    Files *files = *state;
    const struct {
        const char *name, *text, *message;
    } cases[] = {
        {"empty.txt", "", "empty.txt is empty"},
        {"odd.u16", "abc", "odd.u16 is 3 bytes long; expected a multiple of 2 because its tokens are u16"},
        {"odd.u32", "abcdef", "odd.u32 is 6 bytes long; expected a multiple of 4"},
        {"short.txt", "abcdefg",
         "short.txt: too little data: 8 tokens; expected at least 9 for a sequence length of 8; use a "
         "smaller"},
        {"absent", NULL, "absent: cannot open"},
        {".", NULL, "found a directory"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        files->count = 0;
        if (cases[i].text)
            files_add_text(files, cases[i].name, cases[i].text);
        else
            files_name(files, cases[i].name);
        DataSpec spec = files_spec(files, 8);
        Dataset *data = NULL;
        assert_fails(dataset_open(&data, &spec), 1, cases[i].message);
        assert_null(data);
    }
}

#define assert_wrong(change, message)                                                                        \
    do {                                                                                                     \
        DataSpec spec = good;                                                                                \
        change;                                                                                              \
        Dataset *data = NULL;                                                                                \
        assert_fails(dataset_open(&data, &spec), 2, message);                                                \
    } while (0)

static void test_invalid_requests(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "a.txt", "some text that is long enough to hold a few windows");
    DataSpec good = files_spec(files, 8);
    assert_wrong(spec.path_count = 0, "no data given");
    assert_wrong(spec.seq = 0, "sequence length is 0");
    assert_wrong(spec.vocab = 0, "vocabulary size is 0");
    assert_wrong(spec.task = TASK_SPAN, "task span needs SQuAD questions or examples as JSON lines");
    assert_wrong(spec.task = TASK_CLASSIFY, "task classify needs records");
    assert_wrong(spec.part.first = 1.5, "fraction of the data to use is 1.5");
    assert_wrong(spec.part.first = spec.part.last = 0.5, "from one end");
    assert_wrong(spec.part.fraction = 1.5, "--data-fraction 1.5: expected a number above 0 and up to 1");
    assert_wrong(spec.part.stride = 9, "--stride 9: expected 1 to 8, the sequence length");
    assert_wrong(spec.part.stride = -1, "--stride -1: expected 1 to 8");
    good.task = TASK_MLM;
    assert_wrong(spec.part.stride = 4,
                 "--stride is for text and language models, not for --task mlm on bytes");
    assert_wrong(spec.special.mask = -1, "needs a mask ([MASK]) token");
    assert_wrong(spec.special.cls = -1, "needs a start ([CLS]) token");
    assert_wrong(spec.special.sep = -1, "needs a separator ([SEP]) token");
    assert_wrong(spec.special.sep = 300, "separator ([SEP]) token is 300, outside the vocabulary of 262");
    assert_wrong(spec.mask_rate = 1.5, "fraction of masked tokens is 1.5");
    assert_wrong(spec.seq = 2, "expected at least 3 to fit the special tokens");
    good.next_sentence = true;
    assert_wrong(spec.seq = 4, "expected at least 5 to fit the special tokens");
    assert_wrong(spec.types = 1, "sentence pairs need 2 token types");
    good = files_spec(files, 8);
    good.special = (SpecialTokens){-1, -1, -1, -1, -1, -1};
    assert_wrong(spec.vocab = 256, "vocabulary of at least 257");
    files_add_text(files, "b.jsonl", "{\"ids\": [1]}");
    assert_wrong(spec.path_count = 2, "expected files of one format");
}

/* A file that changes during a run: truncation is an error; if it is replaced or removed, the run keeps the
 * old one. */
static void test_file_changes_in_use(void **state) {
    Files *files = *state;
    files->count = 0;
    char text[20000];
    memset(text, 'x', sizeof text);
    const char *path = files_add(files, "moving.txt", text, sizeof text);
    DataSpec spec = files_spec(files, 8);
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(dataset_freep) Dataset *kept = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(host_batch_new(&batch, 1, 8));
    assert_ok(dataset_open(&data, &spec));
    assert_int_equal(truncate(path, 100), 0);
    assert_fails(dataset_fill(data, 2000, false, batch), 1,
                 "moving.txt: was truncated to 100 bytes while in use");
    files_write(path, text, sizeof text);
    assert_ok(dataset_open(&kept, &spec));
    assert_ok(file_replace(path, "y", 1));
    assert_ok(dataset_fill(kept, 2000, false, batch));
    assert_int_equal(unlink(path), 0);
    assert_ok(dataset_fill(kept, 2000, false, batch));
    assert_int_equal(batch->tokens[0], 'x');
}

static void test_part_too_small(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "a.txt", "0123456789012345678901234567890123456789");
    files_add_text(files, "b.txt", "0123456789");
    DataSpec spec = files_spec(files, 16);
    spec.part.last = 0.1;
    Dataset *data = NULL;
    assert_fails(dataset_open(&data, &spec), 1,
                 "a.txt and 1 more: too little data: 5 of 52 tokens; expected at least 17");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_several_files),
        cmocka_unit_test(test_separate_documents),
        cmocka_unit_test(test_last_window_is_padded),
        cmocka_unit_test(test_stride),
        cmocka_unit_test(test_windows_cover_the_stream),
        cmocka_unit_test(test_token_files),
        cmocka_unit_test(test_token_outside_vocabulary),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_huge_file),
        cmocka_unit_test(test_shakespeare),
        cmocka_unit_test(test_builtin_corpus),
        cmocka_unit_test(test_builtin_corpus_is_the_source),
        cmocka_unit_test(test_gz),
        cmocka_unit_test(test_gz_damage),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_invalid_requests),
        cmocka_unit_test(test_file_changes_in_use),
        cmocka_unit_test(test_part_too_small),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
