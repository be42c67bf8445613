/* Zip archives: members are extracted, and invalid archives are refused with a message. */
#include "zip_make.h"

#include "data/zip.h"
#include "files.h"

typedef struct Taken {
    char data[8192];
    size_t size;
} Taken;

static Status take(void *user, const void *data, size_t size) {
    Taken *taken = user;
    assert_true(taken->size + size <= sizeof taken->data);
    memcpy(taken->data + taken->size, data, size);
    taken->size += size;
    return OK;
}

static const char words[] = "the same words again and again, the same words again and again, the same words";

static void make(ZipMaker *zip) {
    *zip = (ZipMaker){0};
    zip_make_add(zip, "folder/", "", 0, 0);
    zip_make_add(zip, "folder/packed.txt", words, sizeof words, 1);
    zip_make_add(zip, "../../stored.txt", words, sizeof words - 7, 0);
    zip_make_add(zip, "empty", "", 0, 1);
    zip_make_end(zip);
}

static const char *write_zip(Files *files, const ZipMaker *zip) {
    files->count = 0;
    return files_add(files, "a.zip", zip->data, zip->size);
}

static void test_members(void **state) {
    static ZipMaker made;
    CLEANUP(zip_freep) Zip *zip = NULL;
    size_t member;
    make(&made);
    assert_ok(zip_open(&zip, write_zip(*state, &made)));
    assert_int_equal(zip_count(zip), 3);
    assert_string_equal(zip_name(zip, 0), "folder/packed.txt");
    assert_null(zip_name(zip, 3));

    Taken taken = {0};
    assert_ok(zip_find(zip, "packed.txt", &member));
    assert_int_equal(zip_size(zip, member), sizeof words);
    assert_ok(zip_unpack(zip, member, take, &taken));
    assert_int_equal(taken.size, sizeof words);
    assert_memory_equal(taken.data, words, sizeof words);

    taken.size = 0;
    assert_ok(zip_find(zip, "stored.txt", &member));
    assert_ok(zip_unpack(zip, member, take, &taken));
    assert_int_equal(taken.size, sizeof words - 7);
    assert_memory_equal(taken.data, words, sizeof words - 7);

    taken.size = 0;
    assert_ok(zip_find(zip, "empty", &member));
    assert_ok(zip_unpack(zip, member, take, &taken));
    assert_int_equal(taken.size, 0);
    assert_fails(zip_find(zip, "absent.txt", &member), 1, "does not contain 'absent.txt'");
}

static void test_twice(void **state) {
    static ZipMaker made;
    CLEANUP(zip_freep) Zip *zip = NULL;
    size_t member;
    made = (ZipMaker){0};
    zip_make_add(&made, "a/text", "1", 1, 0);
    zip_make_add(&made, "b/text", "2", 1, 0);
    zip_make_end(&made);
    assert_ok(zip_open(&zip, write_zip(*state, &made)));
    assert_fails(zip_find(zip, "text", &member), 1, "more than once");
}

static void assert_refuses_open(void **state, const ZipMaker *made, const char *text) {
    Zip *zip = NULL;
    assert_fails(zip_open(&zip, write_zip(*state, made)), 1, text);
}

static void assert_refuses_member(void **state, const ZipMaker *made, const char *text) {
    CLEANUP(zip_freep) Zip *zip = NULL;
    Taken taken = {0};
    assert_ok(zip_open(&zip, write_zip(*state, made)));
    assert_fails(zip_unpack(zip, 0, take, &taken), 1, text);
}

static void test_not_archives(void **state) {
    static ZipMaker made;
    made = (ZipMaker){.size = 100};
    assert_refuses_open(state, &made, "not a zip archive");
    make(&made);
    made.size--;
    assert_refuses_open(state, &made, "not a zip archive");
    make(&made);
    zip_put(made.data + made.size - 6, 4, (uint32_t)made.size);
    assert_refuses_open(state, &made, "outside of the file");
    make(&made);
    zip_put(made.data + made.size - 10, 4, 60);
    assert_refuses_open(state, &made, "damaged");
}

/* An archive with one member, which the cases below damage. Returns the offset of its directory entry. */
static size_t one_member(ZipMaker *zip) {
    *zip = (ZipMaker){0};
    zip_make_add(zip, "text", words, sizeof words, 1);
    size_t entry = zip->size;
    zip_make_end(zip);
    return entry;
}

static void test_damaged_members(void **state) {
    static ZipMaker made;
    size_t entry = one_member(&made);
    made.data[40] ^= 0x55;
    assert_refuses_member(state, &made, "'text' is ");
    one_member(&made);
    made.data[entry + 16] ^= 1;
    assert_refuses_member(state, &made, "is damaged (checksum mismatch)");
    one_member(&made);
    zip_put(made.data + entry + 24, 4, 10);
    assert_refuses_member(state, &made, "is longer than the archive's directory states");
    one_member(&made);
    zip_put(made.data + entry + 24, 4, 1000);
    assert_refuses_member(state, &made, "but the archive's directory states 1000");
    one_member(&made);
    zip_put(made.data + entry + 20, 4, 0x7fffffff);
    assert_refuses_member(state, &made, "past the end of the file");
    one_member(&made);
    zip_put(made.data + entry + 42, 4, 7);
    assert_refuses_member(state, &made, "is not where");
    one_member(&made);
    zip_put(made.data + entry + 8, 2, 1);
    assert_refuses_member(state, &made, "is encrypted");
    one_member(&made);
    zip_put(made.data + entry + 10, 2, 12);
    assert_refuses_member(state, &made, "compression method 12");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_not_archives),
        cmocka_unit_test(test_damaged_members),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
