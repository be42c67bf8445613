/* The corpus reader: documents are the same for any block size, plain or compressed, from text or JSON lines,
 * and errors name the line. */
#include "data/reader.h"

#include "data/workers.h"
#include "files.h"

/* The documents read so far, each in brackets. */
typedef struct Gathered {
    char *text;
    size_t size, capacity;
    bool open;
} Gathered;

static void gathered_done(Gathered *gathered) {
    free(gathered->text);
}

static Status put(Gathered *to, const char *text, size_t size) {
    TRY(mem_grow(&to->text, &to->capacity, to->size + size + 1, 1));
    memcpy(to->text + to->size, text, size);
    to->size += size;
    to->text[to->size] = 0;
    return OK;
}

static Status gather(void *context, const TextPiece *piece) {
    Gathered *to = context;
    assert_int_equal(piece->first, !to->open);
    if (piece->first) TRY(put(to, "[", 1));
    TRY(put(to, piece->text, piece->size));
    to->open = !piece->last;
    return piece->last ? put(to, "]", 1) : OK;
}

static Status read_all(const ReaderSpec *spec, Gathered *ret_gathered) {
    CLEANUP(gathered_done) Gathered gathered = {0};
    CLEANUP(reader_freep) Reader *reader = NULL;
    CLEANUP(text_block_done) TextBlock block = {0};
    TRY(put(&gathered, "", 0));
    TRY(reader_new(&reader, spec));
    for (bool more;;) {
        TRY(reader_next(reader, &block, &more));
        if (!more) break;
        TRY(reader_split(spec, &block, gather, &gathered));
    }
    assert_false(gathered.open);
    *ret_gathered = gathered;
    gathered = (Gathered){0};
    return OK;
}

static void assert_documents(const Files *files, Documents documents, const char *expected, size_t size) {
    for (size_t block = 1; block < 40; block++) {
        ReaderSpec spec = {
            .paths = files->list, .path_count = files->count, .documents = documents, .block = block};
        CLEANUP(gathered_done) Gathered found = {0};
        assert_ok(read_all(&spec, &found));
        if (found.size != size || memcmp(found.text, expected, size))
            fail_msg("block size %zu: expected %s, found %s", block, expected, found.text);
    }
}

#define assert_reads(files, documents, text) assert_documents(files, documents, text, sizeof text - 1)

static void test_files(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "a.txt", "one two\nthree\n\nfour");
    files_add_text(files, "empty.txt", "");
    files_add(files, "b.txt", "\xff\0\n", 3);
    assert_reads(files, DOCUMENTS_FILE, "[one two\nthree\n\nfour][\xff\0\n]");
}

static void assert_read(const Files *files, const char *expected) {
    ReaderSpec spec = {.paths = files->list, .path_count = files->count};
    CLEANUP(gathered_done) Gathered found = {0};
    assert_ok(read_all(&spec, &found));
    assert_string_equal(found.text, expected);
}

static void assert_unreadable(const Files *files, const char *message) {
    ReaderSpec spec = {.paths = files->list, .path_count = files->count};
    Gathered found = {0};
    assert_fails(read_all(&spec, &found), STATUS_FAILED, message);
}

/* If the file name says nothing, the first bytes decide: JSON lines as written by WikiExtractor, byte order
 * marks, compression. */
static void test_first_bytes(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "wiki_00",
                   "{\"id\": \"1\", \"text\" : \"one\"}\n{\"id\": \"2\", \"text\": \"two\"}\n");
    files_add_text(files, "LOUD.JSONL", "{\"text\": \"three\"}\n");
    files_add_text(files, "plain", "{ \"text\" }");
    files_add_text(files, "named.txt", "{\"text\": \"four\"}");
    files_add_text(files, "mark.txt",
                   "\xef\xbb\xbf"
                   "five");
    assert_read(files, "[one][two][three][{ \"text\" }][{\"text\": \"four\"}][five]");
    files->count = 0;
    files_add(files, "wide.txt",
              "\xff\xfe"
              "a\0b\0",
              6);
    assert_unreadable(files, "wide.txt is text in UTF-16; convert it to UTF-8");
    files->count = 0;
    files_add(files, "text.bz2", "BZh91AY&SY", 10);
    assert_unreadable(files, "text.bz2 is compressed with bzip2; decompress it first");
}

static void test_lines(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "a.txt", "one two\r\n\n  \nthree, a longer line than others\nfour");
    files_add_text(files, "b.txt", "\n\nfive\n");
    assert_reads(files, DOCUMENTS_LINE, "[one two][three, a longer line than others][four][five]");
}

static void test_blank_lines(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "a.txt", "\n\none\ntwo \r\n \t\r\n\nthree\n  four, which is longer\n\n");
    files_add_text(files, "b.txt", "five\n\nsix\nseven\n");
    assert_reads(files, DOCUMENTS_BLANK, "[one\ntwo ][three\n  four, which is longer][five][six\nseven]");
}

/* Articles extend from title to title, unchanged. A section heading, or a line that only resembles a title,
 * does not start one. */
static void test_wikitext(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "a.txt",
                   " \n = One = \n \n text of one \n = no title = \n \n = = Section = = \n \n more \n"
                   " \n = Two words = \n \n text \n \n");
    files_add_text(files, "b.txt", "no title here \n\n = Three = \r\n\nend");
    files_add_text(files, "c.txt", " \n\n");
    assert_reads(files, DOCUMENTS_WIKITEXT,
                 "[ \n = One = \n \n text of one \n = no title = \n \n = = Section = = \n \n more \n"
                 " \n][ = Two words = \n \n text \n \n][no title here \n\n][ = Three = \r\n\nend]");
}

/* A file that grows while it is read is read to its end, and the change is reported. */
static void test_growing(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "still.txt", "one");
    files_add_text(files, "grows.txt", "two three four five");
    ReaderNotes notes = {0};
    ReaderSpec spec = {.paths = files->list, .path_count = 2, .block = 4, .notes = &notes};
    CLEANUP(reader_freep) Reader *reader = NULL;
    CLEANUP(text_block_done) TextBlock block = {0};
    bool more;
    size_t size = 0;
    assert_ok(reader_new(&reader, &spec));
    for (int i = 0;; i++) {
        assert_ok(reader_next(reader, &block, &more));
        if (!more) break;
        size += block.size;
        if (i != 1) continue;
        FILE *file = fopen(files->list[1], "a");
        assert_true(file && fputs(" six", file) > 0 && fclose(file) == 0);
    }
    assert_int_equal(size, strlen("onetwo three four five six"));
    assert_int_equal(notes.changed, 1);
    assert_string_equal(notes.changed_file, files->list[1]);
}

static void test_json_lines(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(
        files, "a.jsonl",
        "\xef\xbb\xbf{\"text\": \"one\\n\\\"two\\\" \\u00e9\\ud83d\\ude00\", \"more\": [1, {}]}\n\n \r\n"
        "{\"id\": 7, \"text\": \"\"}\r\n{\"text\": \"x\\u0000y\\/\"}");
    assert_reads(files, DOCUMENTS_FILE, "[one\n\"two\" \xc3\xa9\xf0\x9f\x98\x80][x\0y/]");
}

static void test_builtin_corpus(void **state) {
    const char *paths[] = {"self"};
    ReaderSpec spec = {.paths = paths, .path_count = 1};
    CLEANUP(gathered_done) Gathered found = {0};
    assert_ok(read_all(&spec, &found));
    assert_non_null(strstr(found.text, "# How weft is built"));
}

static void append(const char *path, const char *from) {
    FILE *to = fopen(path, "ab");
    CLEANUP(file_map_done) FileMap map = {0};
    assert_ok(file_map_init(&map, from));
    assert_non_null(to);
    assert_int_equal(fwrite(map.data, 1, map.size, to), map.size);
    assert_int_equal(fclose(to), 0);
}

static void test_gz_members(void **state) {
    Files *files = *state;
    files->count = 0;
    const char *path = files_add_gz(files, "lines.txt.gz", "one\ntwo, ", 9);
    append(path, files_add_gz(files, "second.gz", "three\nfour\n", 11));
    files->count = 1;
    FILE *padded = fopen(path, "ab");
    assert_non_null(padded);
    for (int i = 0; i < 600; i++) fputc(0, padded);
    assert_int_equal(fclose(padded), 0);
    assert_reads(files, DOCUMENTS_LINE, "[one][two, three][four]");
}

#define assert_unreadable(files, text)                                                                       \
    do {                                                                                                     \
        ReaderSpec spec_ = {.paths = (files)->list, .path_count = (files)->count};                           \
        Gathered found_ = {0};                                                                               \
        assert_fails(read_all(&spec_, &found_), 1, text);                                                    \
    } while (0)

static void test_gz_damage(void **state) {
    Files *files = *state;
    files->count = 0;
    char text[2000];
    for (int i = 0; i < 2000; i++) text[i] = (char)('a' + i * i % 23);
    const char *path = files_add_gz(files, "cut.txt.gz", text, sizeof text);
    CLEANUP(mem_freep) char *bytes = NULL;
    size_t size;
    assert_ok(file_read(path, 1 << 20, &bytes, &size));
    assert_int_equal(truncate(path, (off_t)size - 20), 0);
    assert_unreadable(files, "cut.txt.gz: the compressed data is truncated");
    bytes[size / 2] ^= 0x40;
    files_write(path, bytes, size);
    assert_unreadable(files, "cut.txt.gz: the compressed data is damaged at byte");
    files_write(path, "not compressed", 14);
    assert_unreadable(files, "the compressed data is damaged at byte");
}

static void test_bad_lines(void **state) {
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"text\": \"a\"}\n\n{\"text\": \"b\"\n", "bad.jsonl: line 3, column "},
        {"{\"text\": \"a\"}\n{\"text\": 7}\n", "bad.jsonl: line 2: \"text\" must be a string, not a number"},
        {"{\"body\": \"a\"}\n", "bad.jsonl: line 1: no field \"text\"; use --field"},
        {"{\"data\": [{\"paragraphs\": []}]}\n",
         "bad.jsonl: this is a SQuAD file, not text; use --format squad"},
        {"[1]\n", "bad.jsonl: line 1, column 1: not valid JSON: expected an object"},
        {"{\"text\": \"\\ud800\"}\n", "bad.jsonl: line 1, column "},
        {"{\"text\": \"a\"} x\n", "bad.jsonl: line 1, column "},
        {"{\"text\": \"a\", \"text\": \"b\"}\n", "bad.jsonl: line 1, column "},
        {"{\"text\": \"\xff\"}\n", "bad.jsonl: line 1, column "},
    };
    Files *files = *state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        files->count = 0;
        files_add_text(files, "bad.jsonl", bad[i].text);
        assert_unreadable(files, bad[i].says);
    }
    files->count = 0;
    files_name(files, "absent.txt");
    assert_unreadable(files, "absent.txt: cannot open");
    files->list[0] = files->dir;
    assert_unreadable(files, "expected a file, found a directory");
}

/* An endless line is read no further than the limit. */
static void test_endless_lines(void **state) {
    Files *files = *state;
    files->count = 0;
    const char *path = files_add_text(files, "long.jsonl", "{\"text\": \"a\"}\n{\"text\": \"");
    assert_int_equal(truncate(path, (off_t)200 << 20), 0);
    assert_unreadable(files, "long.jsonl: line 2: longer than 67108864 bytes, the limit for a line of JSON");
}

static size_t cut_nowhere(const void *context, const char *text, size_t size) {
    (void)context, (void)text, (void)size;
    return 0;
}

static void test_endless_word(void **state) {
    Files *files = *state;
    files->count = 0;
    const char *path = files_add_text(files, "long.txt", "word\n");
    assert_int_equal(truncate(path, (off_t)200 << 20), 0);
    ReaderSpec spec = {.paths = files->list, .path_count = 1, .cut = cut_nowhere};
    Gathered found = {0};
    assert_fails(read_all(&spec, &found), 1,
                 "long.txt: line 1: no place to split the text within 67108864 bytes");
}

/* ---- the worker pool ---- */

typedef struct Recorded {
    char order[1 << 16];
    size_t used;
    char first[64]; /* by place: the first byte of its block */
    int64_t fail_at;
} Recorded;

static Status record_piece(void *context, int slot, int place, const TextPiece *piece) {
    Recorded *recorded = context;
    assert_true(slot >= 0 && slot < 8 && place >= 0 && place < 17);
    if (piece->text[0] == 'X') return FAILED("an X at %c", piece->text[1]);
    recorded->first[place] = piece->text[0];
    return OK;
}

static Status record_order(void *context, int place, int64_t used) {
    Recorded *recorded = context;
    (void)used;
    recorded->order[recorded->used++] = recorded->first[place];
    return OK;
}

/* Results arrive in the order of the text for any number of threads. Of two failures, the first in the text
 * is reported. */
static void test_order(void **state) {
    Files *files = *state;
    char text[10000];
    for (int i = 0; i < 10000; i++) text[i] = i % 4 == 3 ? '\n' : (char)('a' + i / 4 % 23);
    files->count = 0;
    const char *path = files_add(files, "order.txt", text, sizeof text);
    ReaderSpec spec = {.paths = files->list, .path_count = 1, .documents = DOCUMENTS_LINE, .block = 5};
    WorkerTask work = {.piece = record_piece, .finish = record_order};
    for (int threads = 1; threads <= 8; threads++) {
        Recorded recorded = {0};
        work.context = &recorded;
        assert_ok(workers_run(&spec, threads, &work, NULL));
        assert_int_equal(recorded.used, 2500);
        for (int i = 0; i < 2500; i++) assert_int_equal(recorded.order[i], 'a' + i % 23);
    }
    memcpy(text + 4000, "X1", 2);
    memcpy(text + 4040, "X2", 2);
    files_write(path, text, sizeof text);
    for (int threads = 1; threads <= 8; threads++) {
        Recorded recorded = {0};
        work.context = &recorded;
        assert_fails(workers_run(&spec, threads, &work, NULL), 1, "an X at 1");
        assert_int_equal(recorded.used, 1000);
    }
    Recorded recorded = {0};
    work.context = &recorded;
    volatile sig_atomic_t stop = 1;
    assert_fails(workers_run(&spec, 3, &work, &stop), 1, "stopped by a signal");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_wikitext),     cmocka_unit_test(test_growing),
        cmocka_unit_test(test_blank_lines),  cmocka_unit_test(test_json_lines),
        cmocka_unit_test(test_first_bytes),  cmocka_unit_test(test_builtin_corpus),
        cmocka_unit_test(test_gz_members),   cmocka_unit_test(test_gz_damage),
        cmocka_unit_test(test_bad_lines),    cmocka_unit_test(test_endless_lines),
        cmocka_unit_test(test_endless_word), cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
