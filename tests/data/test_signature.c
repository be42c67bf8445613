/* Files of known formats are not text: they are refused by name on every path to a reader, plain and
 * compressed, and text is never mistaken for one. */
#include "data/signature.h"

#include "data/workers.h"
#include "files.h"

/* A file of SIZE bytes: `start`, then `inside` at offset `at`, then zeros. */
enum { SIZE = 600 };
typedef struct Sample {
    const char *start;
    size_t size, at;
    const char *inside;
    const char *name;
} Sample;
#define STARTS(text) text, sizeof(text) - 1

static const Sample samples[] = {
    {STARTS("\xff\xfe"
            "a\0b\0"),
     0, "", "text in UTF-16"},
    {STARTS("\xff\xfe\0\0a\0\0\0"), 0, "", "text in UTF-32"},
    {STARTS("BZh91AY&SY"), 0, "", "compressed with bzip2"},
    {STARTS("\xfd"
            "7zXZ\0\0"),
     0, "", "compressed with xz"},
    {STARTS("\x28\xb5\x2f\xfd"), 0, "", "compressed with zstd"},
    {STARTS("plain.txt"), 257, "ustar", "a tar archive"},
    {STARTS("PK\3\4\24"), 30, "a.txt", "a zip archive"},
    {STARTS("PK\3\4\24"), 30, "archive/data.pkl", "a PyTorch checkpoint"},
    {STARTS("PK\3\4\24"), 30, "a.npy", "a file of NumPy arrays"},
    {STARTS("PK\3\4\24"), 30, "[Content_Types].xml", "an Office document"},
    {STARTS("PK\3\4\24"), 30, "mimetypeapplication/epub+zip", "an OpenDocument or EPUB file"},
    {STARTS("\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."), 0, "", "a PyTorch checkpoint"},
    {STARTS("\x80\4\x95"), 0, "", "a Python pickle"},
    {STARTS("(dp0\nVtext\n"), 0, "", "a Python pickle"},
    {STARTS("]q\0(X\3\0\0\0one"), 0, "", "a Python pickle"},
    {STARTS("]\0\0\x80\0\xff\xff"), 0, "", "compressed with lzma"},
    {STARTS("II*\0\x08"), 0, "", "a TIFF image"},
    {STARTS("%PDF-1.7\n"), 0, "", "a PDF document"},
    {STARTS("ARROW1\0\0"), 0, "", "an Arrow table"},
    {STARTS("\xff\xff\xff\xff\x98\1"), 0, "", "an Arrow stream"},
    {STARTS("\x93NUMPY\1\0"), 0, "", "a NumPy array"},
    {STARTS("\x89PNG\r\n\x1a\n"), 0, "", "a PNG image"},
    {STARTS("\xff\xd8\xff\xe0"), 0, "", "a JPEG image"},
    {STARTS("GGUF\3"), 0, "", "a GGUF model"},
    {STARTS("\x40\0\0\0\0\0\0\0{\"a\":{"), 0, "", "a safetensors file"},
    {STARTS("weftTOK\n"), 0, "", "a token file"},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static void sample_bytes(const Sample *sample, char *data) {
    memset(data, 0, SIZE);
    memcpy(data, sample->start, sample->size);
    memcpy(data + sample->at + (sample->at ? 0 : sample->size), sample->inside, strlen(sample->inside));
}

static Status read_first(const char *path, bool raw) {
    CLEANUP(reader_freep) Reader *reader = NULL;
    CLEANUP(text_block_done) TextBlock block = {0};
    ReaderSpec spec = {.paths = &path, .path_count = 1, .raw = raw};
    bool more = false;
    TRY(reader_new(&reader, &spec));
    return reader_next(reader, &block, &more);
}

/* Whether a file is read without a tokenizer (data_format_find) or with one (the reader), under its own name
 * or in gzip, its format is named. `raw` reads it. */
static void refuses_by_name(void **state) {
    Files *files = *state;
    for (size_t i = 0; i < SAMPLES; i++) {
        char data[SIZE];
        DataFormat format;
        sample_bytes(&samples[i], data);
        files->count = 0;
        files_add(files, "data.txt", data, SIZE);
        files_add_gz(files, "data.gz", data, SIZE);
        files_add_gz(files, "zipped", data, SIZE);
        for (int k = 0; k < files->count; k++) {
            assert_fails(data_format_find(files->list[k], NULL, &format), STATUS_FAILED, samples[i].name);
            assert_fails(read_first(files->list[k], false), STATUS_FAILED, samples[i].name);
            assert_ok(read_first(files->list[k], true));
        }
        files_add(files, "lines.jsonl", data, SIZE);
        assert_fails(data_format_find(files->list[3], NULL, &format), STATUS_FAILED, samples[i].name);
    }
}

/* Token ids may begin with anything that is as short as a byte-order mark. */
static void refuses_weights_as_ids(void **state) {
    Files *files = *state;
    DataFormat format;
    files->count = 0;
    files_add(files, "pytorch_model.bin", "PK\3\4\24\0\0\0\0\0archive/data.pkl", 26);
    files_add(files, "a.u16", "\xff\xfe\1\0", 4);
    files_add(files, "b.u32", "\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0", 16);
    assert_fails(data_format_find(files->list[0], NULL, &format), STATUS_FAILED, "a PyTorch checkpoint");
    assert_ok(data_format_find(files->list[1], NULL, &format));
    assert_int_equal(format, FORMAT_U16);
    assert_ok(data_format_find(files->list[2], NULL, &format));
    assert_int_equal(format, FORMAT_U32);
}

/* JSON in all its forms; a name in .txt makes it text. JSON lines and arrays need no suffix. */
static void inspects_json(void **state) {
    Files *files = *state;
    DataFormat format;
    static const char array[] = "[\n  {\"title\": \"a\", \"output\": \"b\"}]";
    files->count = 0;
    files_add_text(files, "array.json", array);
    files_add_text(files, "array", array);
    files_add_text(files, "array.txt", array);
    files_add_text(files, "train.json", "{\"data\": [{\"title\": \"a\", \"paragraphs\": []}]}");
    files_add_text(files, "wiki_00", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    for (int i = 0; i < 2; i++) {
        assert_fails(data_format_find(files->list[i], NULL, &format), STATUS_FAILED,
                     "has no field \"text\"; it has title, output; name the text");
        assert_ok(data_format_find(files->list[i], "output", &format));
        assert_int_equal(format, FORMAT_TEXT);
    }
    assert_ok(data_format_find(files->list[2], NULL, &format));
    assert_int_equal(format, FORMAT_BYTES);
    assert_ok(read_first(files->list[2], false));
    assert_ok(data_format_find(files->list[3], NULL, &format));
    assert_int_equal(format, FORMAT_SQUAD);
    assert_fails(read_first(files->list[3], false), STATUS_FAILED, "in SQuAD's format; read it with");
    assert_ok(data_format_find(files->list[4], NULL, &format));
    assert_int_equal(format, FORMAT_TEXT);
}

static void accepts_text(void **state) {
    static const char *const texts[] = {"",
                                        "a",
                                        "BZh is not bzip2",
                                        "PK",
                                        "[1] a footnote",
                                        "{\"a\": 1}",
                                        "\xe4\xb8\xad\xe6\x96\x87",
                                        "caf\xe9 in Latin-1",
                                        "ID3 or C4.5",
                                        "\xef\xbb\xbfmarked"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_null(signature_find(texts[i], strlen(texts[i])));
    char wide[64] = {0};
    assert_null(signature_find(wide, sizeof wide));
    for (int i = 0; i < 64; i += 2) wide[i] = 'a';
    assert_non_null(signature_find(wide, sizeof wide));
    assert_null(signature_find(wide, 14)); /* too short to tell */
    wide[3] = 'b';
    assert_null(signature_find(wide, sizeof wide));
}

/* UTF-16 without a mark in a script with few zero bytes, in both byte orders. */
static void finds_wide_text(void **state) {
    (void)state;
    static const char sample[] = "\x2d\x4e\x87\x65\x2d\x4e\x87\x65\x2d\x4e\x87\x65 \0\x2d\x4e \0\x87\x65";
    char swapped[sizeof sample];
    size_t size = sizeof sample - 1;
    for (size_t i = 0; i < size; i++) swapped[i] = sample[i ^ 1];
    assert_string_equal(signature_find(sample, size)->name, "text in UTF-16");
    assert_string_equal(signature_find(swapped, size)->name, "text in UTF-16");
    assert_non_null(strstr(signature_find(sample, size)->advice, "UTF-16LE"));
    assert_non_null(strstr(signature_find(swapped, size)->advice, "UTF-16BE"));
    /* Latin-1 with a stray zero byte is not wide. */
    assert_null(signature_find("caf\xe9 and\0more\0text in Latin-1, of any length", 45));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_by_name), cmocka_unit_test(refuses_weights_as_ids),
        cmocka_unit_test(inspects_json),   cmocka_unit_test(accepts_text),
        cmocka_unit_test(finds_wide_text),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
