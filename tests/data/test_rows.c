/* Rows of JSON lines, JSON arrays and separated values: the same objects from each, also compressed, and
 * errors that name the row. */
#include "data/rows.h"

#include "data/reader.h"
#include "data/source.h"
#include "files.h"

#define A "{\"text\":\"one, \\\"quoted\\\"\",\"label\":\"1\"}"
#define B "{\"text\":\"two\\nlines \\u00e9\",\"label\":\"0\"}"

static void expect_rows(const char *path, const char *const *expected, int count) {
    CLEANUP(rows_freep) Rows *rows = NULL;
    assert_ok(rows_open(&rows, path, NULL, 0));
    for (int i = 0; i <= count; i++) {
        CLEANUP(json_decrefp) json_t *row = NULL, *wanted = NULL;
        assert_ok(rows_next_json(rows, &row));
        if (i == count) {
            assert_null(row);
            return;
        }
        wanted = json_loads(expected[i], 0, NULL);
        assert_true(wanted && json_equal(row, wanted));
    }
}

static void reads_rows(void **state) {
    Files *files = *state;
    static const char *const expected[] = {A, B};
    static const char array[] =
        "\xef\xbb\xbf [ " A ",\n\n  {\"text\" :\r\n \"two\\nlines \\u00e9\", \"label\": \"0\"}\n]\n";
    files->count = 0;
    files_add_text(files, "a.jsonl", A "\n\n  \n" B);
    files_add_text(files, "b.json", array);
    files_add_gz(files, "c.json.gz", array, sizeof array - 1);
    files_add_text(files, "d", array);
    files_add_text(files, "e.csv",
                   "\xef\xbb\xbftext,label\r\n\"one, \"\"quoted\"\"\",1\r\n\r\n\"two\nlines \xc3\xa9\",0");
    files_add_text(files, "f.tsv", "text\tlabel\none, \"quoted\"\t1\n");
    for (int i = 0; i < 5; i++) expect_rows(files->list[i], expected, 2);
    expect_rows(files->list[5], expected, 1);
}

/* Elements and lines across the borders of the reader's buffer. */
static void reads_long_rows(void **state) {
    Files *files = *state;
    enum { ROWS = 500, LONGEST = 3000 };
    CLEANUP(mem_freep) char *text = NULL;
    size_t used = 0;
    assert_ok(mem_new(ROWS, LONGEST + 32, &text));
    for (int i = 0; i < ROWS; i++) {
        used += (size_t)sprintf(text + used, "%c\n{\"text\": \"", i ? ',' : '[');
        for (int k = 0; k < i * 7 % LONGEST; k++) text[used++] = (char)(k % 5 ? 'a' + i % 26 : ' ');
        used += (size_t)sprintf(text + used, "\"}");
    }
    text[used++] = ']';
    files->count = 0;
    files_add(files, "long.json", text, used);
    CLEANUP(json_decrefp) json_t *all = json_loadb(text, used, 0, NULL);
    CLEANUP(rows_freep) Rows *rows = NULL;
    assert_ok(rows_open(&rows, files->list[0], NULL, 0));
    for (int i = 0; i < ROWS; i++) {
        CLEANUP(json_decrefp) json_t *row = NULL;
        assert_ok(rows_next_json(rows, &row));
        assert_true(json_equal(row, json_array_get(all, (size_t)i)));
        assert_int_equal(rows_number(rows), i + 1);
    }
    json_t *row;
    assert_ok(rows_next_json(rows, &row));
    assert_null(row);
}

static void reads_fields(void **state) {
    Files *files = *state;
    static const char *const names[] = {"label", "none"};
    const char *text;
    size_t size;
    CLEANUP(json_decrefp) json_t *fields = NULL;
    CLEANUP(rows_freep) Rows *rows = NULL, *bad = NULL;
    files->count = 0;
    files_add_text(files, "a.csv", "text,label\none,1\n");
    assert_ok(rows_fields(files->list[0], &fields));
    assert_true(json_object_size(fields) == 2 && json_object_get(fields, "text"));
    assert_ok(rows_open(&rows, files->list[0], names, 1));
    assert_ok(rows_next(rows, &text, &size));
    assert_string_equal(text, "{\"label\":\"1\"}");
    assert_fails(rows_open(&bad, files->list[0], names, 2), STATUS_FAILED,
                 "no field \"none\"; found: text, label");
}

/* The error of the first row that fails. */
static Status read_all(const char *path) {
    CLEANUP(rows_freep) Rows *rows = NULL;
    TRY(rows_open(&rows, path, NULL, 0));
    for (;;) {
        CLEANUP(json_decrefp) json_t *row = NULL;
        TRY(rows_next_json(rows, &row));
        if (!row) return OK;
    }
}

static void names_errors(void **state) {
    Files *files = *state;
    static const struct {
        const char *name, *text, *message;
    } cases[] = {
        {"a.json", "[{\"a\": 1}, 2]", "row 2: not a valid JSON array: expected an object"},
        {"a.json", "[{\"a\": 1} {\"a\": 2}]", "row 1, column"},
        {"a.json", "[{\"a\": 1},]", "row 2: not a valid JSON array: expected an object"},
        {"a.json", "[{\"a\": 1}", "row 1: not a valid JSON array: expected ',' or ']', but the file ends"},
        {"a.json", "[{\"a\": 1}] x", "expected nothing after the array"},
        {"a.json", "[{\"a\": \"x\ny\"}]", "expected no line break in a string"},
        {"a.json", "[{\"a\": }]", "row 1, column 7: not valid JSON"},
        {"a.jsonl", "{\"a\": 1}\n\n[2]\n", "line 3: expected an object"},
        {"a.csv", "a,b\n1\n", "line 2: the number of fields is 1; expected 2"},
        {"a.csv", "a\n\xff\n", "line 2: byte 0xff is not valid UTF-8"},
        {"a.txt", "[{\"a\": 1}]", "expected rows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        files->count = 0;
        files_add_text(files, cases[i].name, cases[i].text);
        assert_fails(read_all(files->list[0]), STATUS_FAILED, cases[i].message);
    }
    files->count = 0;
    files_add_text(files, "empty.json", " [ ] ");
    assert_ok(read_all(files->list[0]));
}

/* The text of rows as documents, and arrays as tables. */
static void serves_readers(void **state) {
    Files *files = *state;
    CLEANUP(reader_freep) Reader *reader = NULL;
    CLEANUP(text_block_done) TextBlock block = {0};
    CLEANUP(source_done) Source source = {0};
    bool more;
    files->count = 0;
    files_add_text(files, "a.json", "[" A "," B "]");
    files_add_text(files, "b.csv", "id,text\n7,\"x, y\"\n");
    ReaderSpec spec = {.paths = files->list, .path_count = 2};
    WordCounts counts;
    assert_ok(corpus_count_words(&spec, &counts));
    assert_int_equal(counts.words, 2 + 3 + 2);
    assert_ok(reader_new(&reader, &spec));
    assert_ok(reader_next(reader, &block, &more));
    assert_true(block.json);
    assert_string_equal(block.unit, "row");
    assert_ok(source_init_rows(&source, files->list[0], 1000, NULL));
    assert_true(source.lines && source.size == strlen(A B) + 2);
    source_done(&source);
    assert_fails(source_init_rows(&source, files->list[0], 50, NULL), STATUS_FAILED, "exceed 50 bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_rows),   cmocka_unit_test(reads_long_rows), cmocka_unit_test(reads_fields),
        cmocka_unit_test(names_errors), cmocka_unit_test(serves_readers),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
