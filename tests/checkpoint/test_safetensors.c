/* The safetensors format: files round-trip, and every kind of invalid file has its own error message. */
#include "fixture.h"

#include "base/format.h"

static void declare_some(SafeWriter *writer) {
    assert_ok(safe_writer_declare(writer, "one", DT_F32, 2, (int64_t[]){2, 3}));
    assert_ok(safe_writer_declare(writer, "scalar", DT_I64, 0, NULL));
    assert_ok(safe_writer_declare(writer, "empty", DT_BF16, 2, (int64_t[]){4, 0}));
    assert_ok(safe_writer_declare(writer, "bytes", DT_U8, 1, (int64_t[]){3}));
}

static void round_trip(void **state) {
    const Fixture *fixture = *state;
    const char *path = path_of(fixture, "a.safetensors");
    CLEANUP(safe_writer_freep) SafeWriter *writer = NULL;
    assert_ok(safe_writer_new(&writer, path));
    declare_some(writer);
    float one[6] = {1, 2, 3, 4, 5, 6};
    int64_t scalar = -7;
    assert_int_equal(safe_writer_declared(writer), 35);
    assert_fails(safe_writer_open(writer), 1, "cannot write");
    assert_ok(safe_writer_create(writer));
    assert_fails(safe_writer_declare(writer, "late", DT_U8, 0, NULL), 1, "'late' is declared after");
    /* In any order, and by a second writer with the same declarations. */
    CLEANUP(safe_writer_freep) SafeWriter *other = NULL;
    assert_ok(safe_writer_new(&other, path));
    declare_some(other);
    assert_fails(safe_writer_write(other, 0, one, 4), 1, "not in the data");
    assert_ok(safe_writer_open(other));
    assert_ok(safe_writer_write(other, 24, &scalar, 8));
    assert_ok(safe_writer_write(writer, 10, (char *)one + 10, 14));
    assert_ok(safe_writer_write(writer, 0, one, 10));
    assert_ok(safe_writer_write(other, 32, "xyz", 3));
    assert_fails(safe_writer_write(writer, 32, "xyzz", 4), 1, "not in the data");
    assert_fails(safe_writer_write(writer, -1, "x", 1), 1, "not in the data");
    assert_fails(safe_writer_write(writer, 36, "", 0), 1, "not in the data");
    assert_ok(safe_writer_close(other));
    assert_ok(safe_writer_close(writer));

    CLEANUP(safe_freep) SafeFile *file = NULL;
    assert_ok(safe_open(&file, path));
    assert_int_equal(safe_count(file), 4);
    assert_string_equal(json_string_value(json_object_get(safe_metadata(file), "format")), "pt");
    const SafeTensor *tensor = safe_find(file, "one");
    assert_string_equal(tensor->type, "F32");
    assert_int_equal(tensor->dim[1], 3);
    assert_memory_equal(tensor->data, one, sizeof one);
    assert_int_equal((uintptr_t)tensor->data % 8, 0);
    assert_memory_equal(safe_find(file, "scalar")->data, &scalar, 8);
    assert_int_equal(safe_find(file, "empty")->bytes, 0);
    assert_null(safe_find(file, "none"));
}

static void every_type_is_sized(void **state) {
    static const struct {
        const char *type;
        int size;
    } types[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                 {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        unsigned char data[256] = {0};
        int length = snprintf((char *)data + 8, sizeof data - 8,
                              "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%d]}}",
                              types[i].type, 3 * types[i].size);
        data[0] = (unsigned char)length;
        CLEANUP(safe_freep) SafeFile *file = NULL;
        assert_ok(safe_parse(&file, data, 8 + (size_t)length + 3 * (size_t)types[i].size, "memory"));
        assert_string_equal(safe_at(file, 0)->type, types[i].type);
    }
}

typedef struct Bad {
    const char *header;
    int data; /* bytes after the header */
    const char *message;
} Bad;

#define T(type, shape, from, to)                                                                             \
    "{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static const Bad bad[] = {
    {"", 0, "not valid JSON"},
    {"[1]", 0, "must be a JSON object"},
    {"{\"t\":1}", 0, "'t' must be an object with dtype"},
    {"{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "has no dtype"},
    {"{\"t\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "has no dtype"},
    {"{\"t\":" T("F8_E4M3", "[4]", "0", "4") "}", 4, "'t' has dtype F8_E4M3, which weft does not read"},
    {"{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "has no shape"},
    {"{\"t\":" T("F32", "[-1]", "0", "4") "}", 4, "must be a non-negative integer"},
    {"{\"t\":" T("F32", "[1.5]", "0", "4") "}", 4, "must be a non-negative integer"},
    {"{\"t\":" T("F32", "[99999999999999999999]", "0", "4") "}", 4, "not valid JSON"},
    {"{\"t\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "has 9 dims, but at most 8"},
    {"{\"t\":" T("F32", "[4294967296,4294967296]", "0", "4") "}", 4, "is too large"},
    {"{\"t\":" T("F32", "[9223372036854775807,0,9]", "0", "0") "}", 0, "is too large"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets must be two integers"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets must be two"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"4\"]}}", 4, "data_offsets must be two"},
    {"{\"t\":" T("F32", "[1]", "4", "0") "}", 4, "[4, 0] are not a valid range"},
    {"{\"t\":" T("F32", "[1]", "-4", "0") "}", 4, "[-4, 0] are not a valid range"},
    {"{\"t\":" T("F32", "[2]", "0", "8") "}", 4, "exceed the file's 4 bytes"},
    {"{\"t\":" T("F32", "[1]", "9223372036854775803", "9223372036854775807") "}", 4, "exceed the file"},
    {"{\"t\":" T("F32", "[1]", "0", "8") "}", 8, "F32 (1) needs 4 bytes, but its data_offsets [0, 8] span 8"},
    {"{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[2]", "4", "12") "}", 12, "'a' and 'b' overlap"},
    {"{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "0", "4") "}", 4, "overlap"},
    {"{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "8", "12") "}", 12,
     "gap of 4 bytes before tensor 'b'"},
    {"{\"a\":" T("F32", "[1]", "0", "4") "}", 5, "1 unused byte at the end"},
    {"{\"a\":" T("F32", "[1]", "0", "4") ",\"a\":" T("F32", "[1]", "0", "4") "}", 4, "duplicate"},
    {"{\"__metadata__\":[]}", 0, "'__metadata__' must be an object"},
    {"{\"__metadata__\":{\"x\":1}}", 0, "entry 'x' must be a string"},
    {"{\"line\\nbreak\":1}", 0, "'line?break'"},
    {"{}x", 0, "not valid JSON"},
};

static void invalid_files_are_refused(void **state) {
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t length = strlen(bad[i].header), size = 8 + length + (size_t)bad[i].data;
        /* Exactly the file's size, so that a sanitizer catches reads past its end. */
        CLEANUP(mem_freep) unsigned char *data = NULL;
        assert_ok(mem_new(size, 1, &data));
        data[0] = (unsigned char)length;
        data[1] = (unsigned char)(length >> 8);
        memcpy(data + 8, bad[i].header, length);
        SafeFile *file = NULL;
        Status status = safe_parse(&file, data, size, "bad.safetensors");
        if (!status) fail_msg("accepted: %s", bad[i].header);
        const char *message = status_message(status);
        if (!strstr(message, bad[i].message)) fail_msg("expected '%s' in: %s", bad[i].message, message);
        assert_ptr_equal(strstr(message, "bad.safetensors"), message);
        assert_null(strchr(message, '\n'));
        status_free(status);
    }
}

static void depth_is_bounded(void **state) {
    enum { DEPTH = 100000 };
    CLEANUP(mem_freep) unsigned char *data = NULL;
    assert_ok(mem_new(8 + DEPTH, 1, &data));
    memset(data + 8, '[', DEPTH);
    data[0] = (unsigned char)(DEPTH & 0xff);
    data[1] = (unsigned char)(DEPTH >> 8 & 0xff);
    data[2] = (unsigned char)(DEPTH >> 16);
    SafeFile *file = NULL;
    assert_fails(safe_parse(&file, data, 8 + DEPTH, "deep"), 1, "not valid JSON");
}

static void lengths_are_checked(void **state) {
    const Fixture *fixture = *state;
    SafeFile *file = NULL;
    assert_fails(safe_parse(&file, "1234567", 7, "f"), 1, "is only 7 bytes long, too short");
    assert_fails(safe_parse(&file, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "f"), 1, "at most 100000000");
    assert_fails(safe_parse(&file, "\x03\0\0\0\0\0\0\0{}", 10, "f"), 1,
                 "only 2 follow; the file is truncated");
    put_file(path_of(fixture, "empty"), "");
    assert_fails(safe_open(&file, path_of(fixture, "empty")), 1, "too short");
    assert_fails(safe_open(&file, path_of(fixture, "none")), 1, "cannot open");
    assert_fails(safe_open(&file, fixture->dir), 1, "expected a file, found a directory");
}

static void long_names_are_shortened(void **state) {
    char name[400], text[NAME_TEXT];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    assert_int_equal(strlen(name_text(text, name)), NAME_TEXT - 1);
    for (size_t i = 0; i + 2 < sizeof name; i += 2) memcpy(name + i, "\xc3\xa9", 2);
    name_text(text, name + 1);
    const char *dots = strstr(text, "...");
    assert_non_null(dots);
    assert_int_equal((unsigned char)dots[-1], 0xa9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip, fixture_setup, fixture_teardown),
        cmocka_unit_test(every_type_is_sized),
        cmocka_unit_test(invalid_files_are_refused),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test_setup_teardown(lengths_are_checked, fixture_setup, fixture_teardown),
        cmocka_unit_test(long_names_are_shortened),
    };
    return cmocka_run_group_tests_name("checkpoint.safetensors", tests, NULL, NULL);
}
