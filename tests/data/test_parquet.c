/* Parquet tables that pyarrow wrote (check_parquet.py) give the rows beside them; damaged ones give errors.
 */
#include "data/parquet.h"

#include "data/parquet_bits.h"
#include "data/reader.h"
#include "data/rows.h"
#include "data/snappy.h"
#include "data/source.h"
#include "files.h"

#define FOLDER WEFT_TEST_DIR "/data/parquet/"

static const char *const names[] = {"text", "optional", "optional-delta", "types", "lists", "structs"};
enum { NAMES = sizeof names / sizeof *names };

static void table_path(char path[256], const char *name, const char *suffix) {
    snprintf(path, 256, FOLDER "%s%s", name, suffix);
}

static void equals_pyarrow(void **state) {
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        char table[256], lines[256];
        CLEANUP(rows_freep) Rows *found = NULL, *expected = NULL;
        table_path(table, names[i], ".parquet");
        table_path(lines, names[i], ".jsonl");
        assert_ok(rows_open(&found, table, NULL, 0));
        assert_ok(rows_open(&expected, lines, NULL, 0));
        for (int row = 0;; row++) {
            CLEANUP(json_decrefp) json_t *ours = NULL, *theirs = NULL;
            assert_ok(rows_next_json(found, &ours));
            assert_ok(rows_next_json(expected, &theirs));
            if (!theirs) {
                assert_null(ours);
                assert_true(row > 0);
                break;
            }
            assert_true(json_equal(ours, theirs));
        }
    }
}

static void reads_chosen_columns(void **state) {
    (void)state;
    static const char *const wanted[] = {"map", "one", "map"}, *const none[] = {"text"};
    CLEANUP(rows_freep) Rows *rows = NULL, *bad = NULL;
    CLEANUP(json_decrefp) json_t *row = NULL, *fields = NULL;
    assert_ok(rows_open(&rows, FOLDER "structs.parquet", wanted, 3));
    assert_ok(rows_next_json(rows, &row));
    assert_int_equal(json_object_size(row), 2);
    assert_non_null(json_object_get(row, "one"));
    assert_ok(rows_fields(FOLDER "structs.parquet", &fields));
    assert_int_equal(json_object_size(fields), 4);
    assert_fails(rows_open(&bad, FOLDER "structs.parquet", none, 1), STATUS_FAILED,
                 "no column \"text\"; found: messages, one, deep, map");
}

/* Text for language models, and lists of token ids. */
static void serves_readers(void **state) {
    Files *files = *state;
    DataFormat format;
    CLEANUP(source_done) Source source = {0};
    CLEANUP(mem_freep) char *data = NULL;
    size_t size;
    assert_ok(data_format_find(FOLDER "text.parquet", NULL, &format));
    assert_int_equal(format, FORMAT_TEXT);
    assert_ok(data_format_find(FOLDER "lists.parquet", NULL, &format));
    assert_int_equal(format, FORMAT_IDS);
    assert_ok(data_format_find(FOLDER "structs.parquet", NULL, &format));
    assert_int_equal(format, FORMAT_CHAT);
    assert_fails(data_format_find(FOLDER "structs.parquet", "story", &format), STATUS_FAILED,
                 "no field \"story\"; it has messages, one, deep, map; name the text with");
    const char *path = FOLDER "text.parquet";
    ReaderSpec spec = {.paths = &path, .path_count = 1};
    WordCounts counts;
    assert_ok(corpus_count_words(&spec, &counts));
    assert_true(counts.words > 0);
    assert_ok(source_init_rows(&source, path, SOURCE_GZ_LIMIT, NULL));
    assert_true(source.lines);
    assert_ok(file_read(path, 1 << 20, &data, &size));
    files->count = 0;
    files_add_gz(files, "text.parquet.gz", data, size);
    assert_fails(data_format_find(files->list[0], NULL, &format), STATUS_FAILED,
                 "is a compressed Parquet table");
}

/* Lists of token ids are examples, whatever other columns there are. */
static void trains_on_ids(void **state) {
    (void)state;
    Files one = {.list = {FOLDER "ids.parquet"}, .count = 1};
    CLEANUP(dataset_freep) Dataset *data = NULL;
    DataFormat format;
    DataSpec spec = files_spec(&one, 16);
    assert_ok(data_format_find(one.list[0], NULL, &format));
    assert_int_equal(format, FORMAT_IDS);
    spec.format = format;
    assert_ok(dataset_open(&data, &spec));
    assert_int_equal(dataset_count(data), 2);
    assert_int_equal(dataset_tokens(data), 5);
}

static Status read_all(const char *path) {
    CLEANUP(rows_freep) Rows *rows = NULL;
    const char *text = NULL;
    size_t size;
    TRY(rows_open(&rows, path, NULL, 0));
    do TRY(rows_next(rows, &text, &size));
    while (text);
    return OK;
}

/* A table that is cut off anywhere has no footer. */
static void refuses_truncated(void **state) {
    Files *files = *state;
    CLEANUP(mem_freep) char *data = NULL;
    size_t size;
    assert_ok(file_read(FOLDER "text.parquet", 1 << 20, &data, &size));
    files->count = 0;
    files_add(files, "cut.parquet", data, size);
    for (size_t cut = 4; cut < size; cut++) {
        files_write(files->list[0], data, cut);
        assert_fails(read_all(files->list[0]), STATUS_FAILED, "not a valid Parquet table");
    }
}

/* A changed byte among the values gives rows or an error that names the column, never anything else. */
static void survives_damage(void **state) {
    Files *files = *state;
    for (int i = 0; i < NAMES; i++) {
        char path[256];
        CLEANUP(mem_freep) char *data = NULL;
        size_t size;
        table_path(path, names[i], ".parquet");
        assert_ok(file_read(path, 1 << 20, &data, &size));
        files->count = 0;
        files_name(files, "damaged.parquet");
        for (size_t at = 0; at < size; at++) {
            data[at] ^= 0x15;
            files_write(files->list[0], data, size);
            Status status = read_all(files->list[0]);
            if (status) assert_non_null(strstr(status_message(status), at < 4 ? "" : "damaged.parquet"));
            status_free(status);
            data[at] ^= 0x15;
        }
    }
}

static void decompresses_snappy(void **state) {
    (void)state;
    static const char packed[] = "\x0e\x08"
                                 "abc"
                                 "\x16\x03\x00"
                                 "\x0c"
                                 "wxyz"
                                 "\x01\x04";
    char out[16];
    assert_true(snappy_decompress(out, 14, packed, sizeof packed - 1) == false);
    static const char fine[] = "\x0d\x08"
                               "abc"
                               "\x16\x03\x00"
                               "\x0c"
                               "wxyz";
    assert_true(snappy_decompress(out, 13, fine, sizeof fine - 1));
    assert_memory_equal(out, "abcabcabcwxyz", 13);
    assert_false(snappy_decompress(out, 12, fine, sizeof fine - 1));        /* another size */
    assert_false(snappy_decompress(out, 13, fine, sizeof fine - 2));        /* cut off */
    assert_false(snappy_decompress(out, 5, "\x05\x05\x01", 3));             /* a copy of nothing */
    assert_false(snappy_decompress(out, 5, "\xff\xff\xff\xff\xff\xff", 6)); /* a size of more than 32 bits */
}

static void reads_numbers(void **state) {
    (void)state;
    /* A run of three 5s, then eight packed numbers of 3 bits, 0 to 7. */
    static const unsigned char runs[] = {6, 5, 3, 0x88, 0xc6, 0xfa};
    RunReader in = {.at = runs, .end = runs + sizeof runs, .width = 3};
    uint32_t value;
    for (uint32_t i = 0; i < 11; i++) {
        assert_true(run_next(&in, &value));
        assert_int_equal(value, i < 3 ? 5 : i - 3);
    }
    assert_false(run_next(&in, &value));
    /* 7, then differences of -2 in a block without bits: 7 5 3 1. */
    static const unsigned char deltas[] = {0x80, 1, 4, 4, 14, 3, 0, 0, 0, 0};
    DeltaReader delta;
    int64_t number;
    assert_true(delta_open(&delta, deltas, deltas + sizeof deltas));
    for (int i = 0; i < 4; i++) {
        assert_true(delta_next(&delta, &number));
        assert_int_equal(number, 7 - 2 * i);
    }
    assert_false(delta_next(&delta, &number));
    assert_false(delta_open(&delta, deltas, deltas + 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_pyarrow),      cmocka_unit_test(reads_chosen_columns),
        cmocka_unit_test(serves_readers),      cmocka_unit_test(trains_on_ids),
        cmocka_unit_test(refuses_truncated),   cmocka_unit_test(survives_damage),
        cmocka_unit_test(decompresses_snappy), cmocka_unit_test(reads_numbers),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
