/* Which files of a directory are its data. */
#include "data/folder.h"

#include "files.h"

/* `expected`: the names of the files, separated by spaces. */
static void assert_listed(const Files *files, FolderPart part, const char *expected) {
    CLEANUP(folder_files_done) FolderFiles found = {0};
    char names[512] = "";
    assert_ok(folder_list(files->dir, part, &found));
    for (size_t i = 0; i < found.count; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? " " : "",
                 path_base(found.path[i]));
    assert_string_equal(names, expected);
}

static void add_file(Files *files, const char *name) {
    files->count = 0;
    files_add_text(files, name, "x");
}

static void lists_files(void **state) {
    Files *files = *state;
    assert_listed(files, FOLDER_TRAIN, "");
    add_file(files, ".hidden.jsonl");
    add_file(files, "weights.bin");
    assert_listed(files, FOLDER_TRAIN, "");
    add_file(files, "b.txt");
    add_file(files, "a.txt.gz");
    assert_listed(files, FOLDER_TRAIN, "a.txt.gz b.txt");
    assert_listed(files, FOLDER_VAL, "a.txt.gz b.txt");
    add_file(files, "info.json");
    add_file(files, "2.jsonl");
    add_file(files, "1.jsonl");
    assert_listed(files, FOLDER_TRAIN, "1.jsonl 2.jsonl"); /* not what describes them */
    add_file(files, "test-0.parquet");
    add_file(files, "train-1.parquet");
    add_file(files, "train-0.parquet");
    assert_listed(files, FOLDER_TRAIN, "train-0.parquet train-1.parquet");
    assert_listed(files, FOLDER_VAL, "test-0.parquet");
    add_file(files, "validation-0.parquet");
    assert_listed(files, FOLDER_VAL, "validation-0.parquet");
    add_file(files, "config.json"); /* a model */
    assert_listed(files, FOLDER_TRAIN, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists_files)};
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
