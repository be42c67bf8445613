/* Tests file access: reads reject anything but regular files, and writes are atomic, even when the disk is
 * full or the path is invalid. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "folder.h"

#include "base/fingerprint.h"
#include "base/memory.h"

static void test_write_and_read(void **state) {
    Folder *folder = *state;
    const char *path = folder_path(folder, "a.txt");
    assert_ok(file_replace(path, "one", 3));
    assert_content(path, "one");
    assert_ok(file_replace(path, "", 0));
    assert_content(path, "");
    FileWriter *writer = NULL;
    assert_ok(file_writer_new(&writer, path));
    for (int i = 0; i < 30000; i++) assert_ok(file_print(writer, "%05d\n", i));
    assert_content(path, ""); /* unchanged until the commit */
    assert_ok(file_commit(writer));
    file_writer_free(writer);
    char *text = NULL;
    size_t size = 0;
    assert_ok(file_read(path, 1 << 20, &text, &size));
    assert_int_equal(size, 180000);
    assert_memory_equal(text + 6 * 29999, "29999\n", 7);
    free(text);
    assert_entries(folder->dir, 1);
}

/* A link stays, and the file that it leads to is replaced or created. */
static void test_writes_follow_links(void **state) {
    Folder *folder = *state;
    const char *link = folder_path(folder, "link"), *loop = folder_path(folder, "loop");
    assert_ok(dir_make(folder_path(folder, "dir")));
    assert_int_equal(symlink("dir/second", link), 0);
    assert_int_equal(symlink("file", folder_path(folder, "dir/second")), 0);
    assert_int_equal(symlink("loop", loop), 0);
    for (int i = 0; i < 2; i++) {
        assert_ok(file_replace(link, i ? "new" : "old", 3));
        assert_content(folder_path(folder, "dir/file"), i ? "new" : "old");
    }
    struct stat info;
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_fails(file_replace(loop, "x", 1), STATUS_FAILED, "loop: cannot write: Too many levels");
    assert_entries(folder->dir, 3);
    assert_entries(folder_path(folder, "dir"), 2);
}

static void test_writes_into_a_fifo(void **state) {
    Folder *folder = *state;
    const char *pipe = folder_path(folder, "pipe");
    char text[8] = "";
    struct stat info;
    assert_int_equal(mkfifo(pipe, 0600), 0);
    int reader = open(pipe, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_ok(file_replace(pipe, "data", 4));
    assert_int_equal(read(reader, text, sizeof text), 4);
    assert_string_equal(text, "data");
    close(reader);
    assert_int_equal(lstat(pipe, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_entries(folder->dir, 1);
}

static void test_uncommitted_writes_are_discarded(void **state) {
    Folder *folder = *state;
    const char *path = folder_path(folder, "a.txt");
    assert_ok(file_replace(path, "old", 3));
    FileWriter *writer = NULL;
    assert_ok(file_writer_new(&writer, path));
    assert_ok(file_write(writer, "new", 3));
    file_writer_free(writer);
    file_writer_free(NULL);
    assert_content(path, "old");
    assert_entries(folder->dir, 1);
}

/* RLIMIT_FSIZE makes the write fail as on a full disk. */
static void check_full_disk(Folder *folder, size_t bytes) {
    const char *path = folder_path(folder, "big.bin");
    assert_ok(file_replace(path, "old", 3));
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 10000;
    signal(SIGXFSZ, SIG_IGN);
    char *data = calloc(1, bytes);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    Status status = file_replace(path, data, bytes);
    setrlimit(RLIMIT_FSIZE, &before);
    free(data);
    assert_fails(status, STATUS_FAILED, "big.bin: cannot write: File too large");
    assert_content(path, "old");
    assert_entries(folder->dir, 1);
}

static void test_full_disk(void **state) {
    check_full_disk(*state, 20000);   /* fails at the commit, which flushes the buffer */
    check_full_disk(*state, 1 << 20); /* fails while writing */
}

static void test_invalid_paths(void **state) {
    Folder *folder = *state;
    const char *file = folder_path(folder, "file"), *dir = folder_path(folder, "dir");
    assert_ok(file_replace(file, "x", 1));
    assert_ok(dir_make(dir));
    assert_ok(file_replace(folder_path(folder, "dir/inside"), "x", 1));
    assert_fails(file_replace(folder_path(folder, "absent/a"), "x", 1), STATUS_FAILED,
                 "absent/a: cannot write");
    assert_fails(file_replace(folder_path(folder, "file/a"), "x", 1), STATUS_FAILED, "Not a directory");
    assert_fails(file_replace(dir, "x", 1), STATUS_FAILED, "dir: cannot rename temporary file");
    assert_fails(dir_make(file), STATUS_FAILED, "file: expected a directory, found a file");
    assert_int_equal(symlink("gone", folder_path(folder, "broken")), 0);
    assert_fails(dir_make(folder_path(folder, "broken")), STATUS_FAILED, "found a broken symbolic link");
    assert_int_equal(unlink(folder_path(folder, "broken")), 0);
    assert_fails(dir_make(folder_path(folder, "file/a/b")), STATUS_FAILED, "cannot create directory");
    assert_fails(dir_make(""), STATUS_FAILED, "empty");
    assert_fails(link_replace(folder_path(folder, "absent/link"), "x"), STATUS_FAILED,
                 "cannot create symbolic link");
    assert_fails(link_replace(dir, "x"), STATUS_FAILED, "is a directory instead of a symbolic link");
    assert_entries(folder->dir, 2);
    assert_entries(dir, 1);
}

static void test_unwritable_folder(void **state) {
    Folder *folder = *state;
    if (geteuid() == 0) skip(); /* root ignores permissions */
    const char *dir = folder_path(folder, "locked");
    assert_ok(dir_make(dir));
    assert_int_equal(chmod(dir, 0555), 0);
    assert_fails(file_replace(folder_path(folder, "locked/a"), "x", 1), STATUS_FAILED, "Permission denied");
    assert_entries(dir, 0);
    assert_int_equal(chmod(dir, 0755), 0);
}

static void test_reads_reject_other_types(void **state) {
    Folder *folder = *state;
    const char *path = folder_path(folder, "a.txt"), *pipe = folder_path(folder, "pipe");
    char *untouched = NULL;
    FileMap map = {.size = 77};
    assert_fails(file_read(path, 100, &untouched, NULL), STATUS_FAILED, "a.txt: cannot open: No such file");
    assert_fails(file_read(folder->dir, 100, &untouched, NULL), STATUS_FAILED, "found a directory");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_fails(file_read(pipe, 100, &untouched, NULL), STATUS_FAILED,
                 "expected a file"); /* must not block on the FIFO */
    assert_fails(file_map_init(&map, pipe), STATUS_FAILED, "expected a file");
    assert_int_equal(map.size, 77);
    assert_ok(file_replace(path, "12345", 5));
    assert_fails(file_read(path, 4, &untouched, NULL), STATUS_FAILED, "file has 5 bytes; the limit is 4");
    assert_null(untouched);
}

static void test_map(void **state) {
    Folder *folder = *state;
    const char *path = folder_path(folder, "a.bin");
    FileMap map;
    assert_ok(file_replace(path, "mapped", 6));
    assert_ok(file_map_init(&map, path));
    assert_int_equal(map.size, 6);
    assert_memory_equal(map.data, "mapped", 6);
    file_map_done(&map);
    file_map_done(&map);
    assert_ok(file_replace(path, "", 0));
    assert_ok(file_map_init(&map, path));
    assert_int_equal(map.size, 0);
    assert_null(map.data);
    file_map_done(&map);
}

/* Removing a folder removes symbolic links in it, but not their targets. */
static void test_folders(void **state) {
    Folder *folder = *state;
    const char *kept = folder_path(folder, "kept"), *gone = folder_path(folder, "gone");
    assert_ok(dir_make(folder_path(folder, "gone/a/b/c")));
    assert_ok(dir_make(folder_path(folder, "gone/a/b/c")));
    assert_true(path_is_dir(folder_path(folder, "gone/a/b")));
    assert_ok(dir_make(kept));
    assert_ok(file_replace(folder_path(folder, "kept/file"), "x", 1));
    assert_false(path_is_dir(folder_path(folder, "kept/file")));
    assert_ok(link_replace(folder_path(folder, "gone/a/link"), "../../kept"));
    assert_ok(dir_remove(gone));
    assert_ok(dir_remove(gone));
    assert_false(path_exists(gone));
    assert_content(folder_path(folder, "kept/file"), "x");
}

static void test_links(void **state) {
    Folder *folder = *state;
    const char *path = folder_path(folder, "latest");
    char target[64] = {0};
    assert_ok(link_replace(path, "step-1"));
    assert_ok(link_replace(path, "step-2"));
    assert_int_equal(readlink(path, target, sizeof target - 1), 6);
    assert_string_equal(target, "step-2");
    assert_entries(folder->dir, 1);
}

static void test_join(void **state) {
    static const char *const cases[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}};
    for (int i = 0; i < 3; i++) {
        char *path = NULL;
        assert_ok(path_join(&path, cases[i][0], cases[i][1]));
        assert_string_equal(path, cases[i][2]);
        free(path);
    }
}

/* Uses the first of the three variables that is set and not empty. */
static void test_user_cache(void **state) {
    static const char *const cases[][4] = {{"/own", "/xdg", "/home/me", "/own"},
                                           {"", "/xdg", "/home/me", "/xdg/weft"},
                                           {"", "", "/home/me", "/home/me/.cache/weft"}};
    for (int i = 0; i < 3; i++) {
        char *path = NULL;
        setenv("WEFT_CACHE", cases[i][0], 1);
        setenv("XDG_CACHE_HOME", cases[i][1], 1);
        setenv("HOME", cases[i][2], 1);
        assert_ok(user_cache(&path));
        assert_string_equal(path, cases[i][3]);
        free(path);
    }
    char *none = NULL;
    unsetenv("HOME");
    assert_ok(user_cache(&none));
    assert_null(none);
}

/* Process ids stay below 4194304. */
static void test_leftovers(void **state) {
    Folder *folder = *state;
    char own[32];
    snprintf(own, sizeof own, "out.tmp.%d", (int)getpid());
    const char *const kept[] = {own,         "out.tmp.4194306",   "out.tmp.4194305x", "out.tmp.",
                                "out.tmp.1", "outer.tmp.4194305", "out.part.4194305"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) assert_ok(dir_make(folder_path(folder, kept[i])));
    assert_int_equal(symlink("out.tmp.1", folder_path(folder, "out.tmp.4194307")), 0);
    assert_ok(dir_make(folder_path(folder, "out.tmp.4194305/below")));
    assert_ok(file_replace(folder_path(folder, "out.tmp.4194308"), "x", 1));
    int held = path_hold(folder_path(folder, "out.tmp.4194306"));
    assert_true(held >= 0);
    assert_ok(path_clear_leftovers(folder_path(folder, "out/")));
    assert_entries(folder->dir, (int)(sizeof kept / sizeof *kept) + 1);
    assert_false(path_exists(folder_path(folder, "out.tmp.4194305")));
    assert_false(path_exists(folder_path(folder, "out.tmp.4194308")));
    close(held);
    assert_ok(path_clear_leftovers(folder_path(folder, "out")));
    assert_false(path_exists(folder_path(folder, "out.tmp.4194306")));
    assert_ok(path_clear_leftovers(folder_path(folder, "nothing/here")));
}

/* A temporary directory does not outlive its process, however that ends. */
static void test_temporary(void **state) {
    Folder *folder = *state;
    setenv("TMPDIR", folder->dir, 1);
    pid_t child = fork();
    if (child == 0) {
        CLEANUP(mem_freep) char *dir = NULL, *path = NULL;
        if (dir_make_temporary(&dir) || path_join(&path, dir, "a") || file_replace(path, "a", 1)) _exit(1);
        raise(SIGKILL);
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    unsetenv("TMPDIR");
    assert_true(WIFSIGNALED(ended));
    for (int i = 0; i < 3000 && !dir_is_empty(folder->dir); i++) usleep(10000);
    assert_true(dir_is_empty(folder->dir));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_setup, folder_teardown)

static Fingerprint print_of(const char *path, uint64_t limit) {
    Fingerprint print = {0};
    assert_ok(fingerprint_file(path, limit, &print));
    return print;
}

/* A change is seen anywhere in a file that is read completely, and at both ends of a larger one. */
static void test_fingerprint(void **state) {
    enum { SIZE = 1 << 20 };
    Folder *folder = *state;
    const char *path = folder_path(folder, "a");
    char *data = calloc(1, SIZE);
    assert_non_null(data);
    static const int places[] = {0, SIZE / 3, SIZE / 2, SIZE - 1};
    assert_ok(file_replace(path, data, SIZE));
    Fingerprint all = print_of(path, SIZE), part = print_of(path, SIZE / 4), none = print_of(path, 0);
    assert_int_equal(all.size, SIZE);
    assert_int_equal(none.size, SIZE);
    assert_int_equal(none.crc, 0);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        data[places[i]] = 1;
        assert_ok(file_replace(path, data, SIZE));
        assert_int_not_equal(print_of(path, SIZE).crc, all.crc);
        if (places[i] == 0 || places[i] == SIZE - 1)
            assert_int_not_equal(print_of(path, SIZE / 4).crc, part.crc);
        data[places[i]] = 0;
    }
    free(data);
    assert_ok(file_replace(path, "", 0));
    assert_int_equal(print_of(path, SIZE).size, 0);
    Fingerprint unused;
    assert_fails(fingerprint_file(folder_path(folder, "absent"), SIZE, &unused), 1, "cannot open");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_write_and_read),
        IN_FOLDER(test_writes_follow_links),
        IN_FOLDER(test_writes_into_a_fifo),
        IN_FOLDER(test_uncommitted_writes_are_discarded),
        IN_FOLDER(test_full_disk),
        IN_FOLDER(test_invalid_paths),
        IN_FOLDER(test_unwritable_folder),
        IN_FOLDER(test_reads_reject_other_types),
        IN_FOLDER(test_map),
        IN_FOLDER(test_folders),
        IN_FOLDER(test_links),
        IN_FOLDER(test_fingerprint),
        IN_FOLDER(test_leftovers),
        IN_FOLDER(test_temporary),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_user_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
