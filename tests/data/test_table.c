/* Rows of .csv, .tsv and .jsonl files, their labels, and errors for invalid ones. */
#include "data/table.h"

#include "data/labels.h"
#include "files.h"

enum { ROWS = 8 };

typedef struct Rows {
    char field[ROWS][TABLE_FIELDS][64];
    int64_t line[ROWS];
    int count;
} Rows;

static Status take(void *context, int64_t line, const TableField *fields) {
    Rows *rows = context;
    assert_true(rows->count < ROWS);
    for (int i = 0; i < TABLE_FIELDS; i++)
        snprintf(rows->field[rows->count][i], 64, "%.*s", (int)fields[i].size,
                 fields[i].text ? fields[i].text : "");
    rows->line[rows->count++] = line;
    return OK;
}

static Status read_text(Files *files, const char *name, const char *text, const char *const names[2],
                        Rows *rows) {
    files->count = 0;
    CLEANUP(source_done) Source source = {0};
    *rows = (Rows){0};
    assert_ok(source_init(&source, files_add_text(files, name, text), 1 << 20));
    return table_read(&source, names, 2, take, rows);
}

static const char *const text_label[] = {"text", "label"};

static void test_csv(void **state) {
    Rows rows;
    assert_ok(read_text(*state, "a.csv",
                        "\xef\xbb\xbfid,label,text\r\n1,pos,\"good, \"\"very\"\" good\"\r\n\r\n2,neg,\"two\n"
                        "lines\"\n3,,plain 5\" nail\n4,\"q\",\n",
                        text_label, &rows));
    assert_int_equal(rows.count, 4);
    assert_string_equal(rows.field[0][0], "good, \"very\" good");
    assert_string_equal(rows.field[0][1], "pos");
    assert_string_equal(rows.field[1][0], "two\nlines");
    assert_string_equal(rows.field[2][0], "plain 5\" nail");
    assert_string_equal(rows.field[2][1], "");
    assert_string_equal(rows.field[3][0], "");
    assert_string_equal(rows.field[3][1], "q");
    const int64_t lines[] = {2, 4, 6, 7};
    for (int i = 0; i < 4; i++) assert_int_equal(rows.line[i], lines[i]);
}

/* The last field may be missing: from a header, from columns that have numbers, and from a line. */
static void test_optional(void **state) {
    static const struct {
        const char *name, *text, *field, *first, *second;
    } files[] = {{"a.csv", "text\none\ntwo\n", "text", "", ""},
                 {"b.csv", "id,text\n7,one\n8,two\n", "text", "7", "8"},
                 {"c.csv", "7,one\n8,two\n", "2", "", ""},
                 {"d.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\", \"id\": 8}\n", "text", "", "8"},
                 {"e.jsonl", "{\"text\": \"one\", \"id\": null}\n{\"text\": \"two\", \"id\": \"x\"}\n",
                  "text", "", "x"}};
    Files *list = *state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        Rows rows = {0};
        CLEANUP(source_done) Source source = {0};
        const char *names[] = {files[i].field, "id"};
        TableSpec spec = {.names = names, .count = 2, .lists_from = 2, .optional = 1};
        list->count = 0;
        assert_ok(source_init(&source, files_add_text(list, files[i].name, files[i].text), 1 << 20));
        assert_ok(table_read_lists(&source, &spec, take, &rows));
        assert_int_equal(rows.count, 2);
        assert_string_equal(rows.field[0][0], "one");
        assert_string_equal(rows.field[1][0], "two");
        assert_string_equal(rows.field[0][1], files[i].first);
        assert_string_equal(rows.field[1][1], files[i].second);
    }
}

/* Without a header line, columns are selected by number. The last line needs no newline. */
static void test_numbers(void **state) {
    Rows rows;
    assert_ok(read_text(*state, "b.csv", "3,some text\n4,more", (const char *const[]){"2", "1"}, &rows));
    assert_int_equal(rows.count, 2);
    assert_string_equal(rows.field[0][0], "some text");
    assert_string_equal(rows.field[1][1], "4");
    assert_fails(read_text(*state, "b.csv", "3,some text\n", (const char *const[]){"5", "1"}, &rows), 1,
                 "the number of fields is 2, but field 5 was requested");
}

static void test_tsv(void **state) {
    Rows rows;
    assert_ok(
        read_text(*state, "c.tsv", "text\tlabel\n\"as it is\", quotes\t1\r\nend\t0", text_label, &rows));
    assert_int_equal(rows.count, 2);
    assert_string_equal(rows.field[0][0], "\"as it is\", quotes");
    assert_string_equal(rows.field[0][1], "1");
    assert_string_equal(rows.field[1][1], "0");
}

static void test_json(void **state) {
    Rows rows;
    assert_ok(
        read_text(*state, "d.jsonl",
                  "{\"text\": \"a\\nb\", \"label\": 3}\n\n{\"label\": true, \"text\": \"c\", \"more\": []}",
                  text_label, &rows));
    assert_int_equal(rows.count, 2);
    assert_string_equal(rows.field[0][0], "a\nb");
    assert_string_equal(rows.field[0][1], "3");
    assert_string_equal(rows.field[1][1], "true");
    assert_int_equal(rows.line[1], 3);
}

static void test_wrong(void **state) {
    Rows rows;
    static const struct {
        const char *name, *text, *says;
    } cases[] = {
        {"e.csv", "text,label\n\"never closed,1\n2,3\n", "line 2: a quoted field has no closing quote"},
        {"e.csv", "text,label\n\"a\"b,1\n", "line 2: 'b' after a quoted field"},
        {"e.csv", "text,label\na,1,2\n", "line 2: the number of fields is 3; expected 2"},
        {"e.csv", "txt,label\na,1\n", "line 1: no field \"text\"; found: txt, label"},
        {"e.csv", ",,,,,,,,,,,,x\n", "line 1: no field \"text\"; found: , , , , , , , , ..."},
        {"e.csv", "text,label\n\na\xe9,1\n", "line 3: byte 0xe9 is not valid UTF-8"},
        {"e.tsv", "text\tlabel\na\n", "line 2: the number of fields is 1; expected 2"},
        {"e.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\"}\n", "line 2: \"label\" is missing"},
        {"e.jsonl", "{\"text\": [], \"label\": 1}\n", "line 1: \"text\" is of an unsupported type"},
        {"e.jsonl", "{\"text\": \"a\"\n", "line 1, column"},
        {"e.jsonl", "[]\n", "line 1: expected an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(read_text(*state, cases[i].name, cases[i].text, text_label, &rows), 1, cases[i].says);
}

static void test_labels(void **state) {
    Files *files = *state;
    CLEANUP(label_set_done) LabelSet names = {0}, numbers = {0};
    files->count = 0;
    files_add_text(files, "n.csv", "label\npos\nneg\nneutral\nneg\nposit\n");
    assert_ok(label_set_find(&names, files->list, 1, "label"));
    assert_int_equal(names.count, 4);
    static const char *const sorted[] = {"neg", "neutral", "pos", "posit"};
    for (int i = 0; i < 4; i++) assert_string_equal(names.name[i], sorted[i]);
    const char *const *list = (const char *const *)names.name;
    assert_int_equal(label_number(list, 4, "pos", 3), 2);
    assert_int_equal(label_number(list, 4, "posi", 4), -1);
    assert_int_equal(label_number(list, 4, "3", 1), 3);
    assert_int_equal(label_number(list, 4, "4", 1), -1);
    assert_int_equal(label_number(NULL, 4, "-1", 2), -1);
    files->count = 0;
    files_add_text(files, "m.csv", "label\n10\n9\n-1\n9\n");
    assert_ok(label_set_find(&numbers, files->list, 1, "label"));
    static const char *const counted[] = {"-1", "9", "10"};
    for (int i = 0; i < 3; i++) assert_string_equal(numbers.name[i], counted[i]);
    assert_int_equal(label_number((const char *const *)numbers.name, 3, "9", 1), 1);
    files_write(files->list[0], "label,text\n,a\n", 14);
    CLEANUP(label_set_done) LabelSet none = {0};
    assert_fails(label_set_find(&none, files->list, 1, "label"), 1, "line 2: the label is empty");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_csv),     cmocka_unit_test(test_optional),
                                       cmocka_unit_test(test_numbers), cmocka_unit_test(test_tsv),
                                       cmocka_unit_test(test_json),    cmocka_unit_test(test_wrong),
                                       cmocka_unit_test(test_labels)};
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
