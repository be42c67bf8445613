/* `weft fetch` through the program: from a server on loopback, from a directory, and interrupted by Ctrl-C.
 * Complete downloads need the real files (WEFT_SOURCE_DIR/../shared/data) and are skipped if they are
 * missing. */
#include "program.h"
#include "server.h"

#include <sys/stat.h>

#include "base/fs.h"
#include "base/memory.h"
#include "data/http.h"

#define SHARED WEFT_SOURCE_DIR "/../shared/data"

typedef struct Fixture {
    Server *server;
    char dir[64];
} Fixture;

static int setup(void **state) {
    Fixture *fixture = calloc(1, sizeof *fixture);
    void *server;
    if (!fixture || program_setup(NULL) != 0 || server_setup(&server) != 0) return -1;
    fixture->server = server;
    snprintf(fixture->dir, sizeof fixture->dir, "/tmp/weft-fetch-XXXXXX");
    *state = fixture;
    return mkdtemp(fixture->dir) ? 0 : -1;
}

static int teardown(void **state) {
    Fixture *fixture = *state;
    void *server = fixture->server;
    status_free(dir_remove(fixture->dir));
    free(fixture);
    return server_teardown(&server);
}

static void require_curl(void) {
    CLEANUP(http_freep) Http *http = NULL;
    CLEANUP(status_freep) Status status = http_new(&http);
    if (status) skip();
}

static void test_list(void **state) {
    Ran ran = program_run("fetch", "--list");
    assert_int_equal(ran.code, 0);
    static const char *const names[] = {"tinyshakespeare",    "wikitext-2",  "wikitext-103", "squad-v1.1",
                                        "squad-v2",           "cornell",     "gpt2-xl",      "gpt2-tokenizer",
                                        "bert-large-uncased", "CC BY-SA 4.0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_contains(ran.out, names[i]);
    assert_contains(ran.out, "some checksums are not published");
    assert_contains(ran.out, "mirror: https://");
    ran_done(&ran);

    ran = program_run("fetch", "--list", "--json");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp) json_t *json = NULL;
    assert_ok(json_parse(ran.out, strlen(ran.out), "the list", &json));
    const json_t *sets = json_object_get(json, "sets");
    assert_true(json_array_size(sets) >= 14);
    size_t i, f;
    json_t *set, *file;
    json_array_foreach(sets, i, set) {
        assert_int_equal(strncmp(json_string_value(json_object_get(set, "home")), "https://", 8), 0);
        json_array_foreach(json_object_get(set, "files"), f, file) {
            const char *sum = json_string_value(json_object_get(file, "sha256"));
            if (sum) assert_int_equal(strspn(sum, "0123456789abcdef"), 64);
        }
    }
    ran_done(&ran);
}

static void test_usage(void **state) {
    Fixture *fixture = *state;
    assert_refused(2, "missing set name", "fetch");
    assert_refused(2, "did you mean 'tinyshakespeare'?", "fetch", "tinyshakespear");
    assert_refused(2, "see 'weft fetch --list'", "fetch", "imagenet");
    assert_refused(2, "expected a directory or a URL", "fetch", "gpt2", "--from", "ftp://example.org/");
    assert_refused(1, "not a directory", "fetch", "gpt2", "--from", "/nowhere/at/all");
    /* A wrong name is reported before anything is fetched. */
    assert_refused(2, "unknown dataset or model", "fetch", "tinyshakespeare", "imagenet", "--from",
                   fixture->dir, "--out", fixture->dir);
}

static void test_failures(void **state) {
    Fixture *fixture = *state;
    require_curl();
    assert_refused(1, "tinyshakespeare/input.txt: not found (404)", "fetch", "tinyshakespeare", "--from",
                   fixture->server->url, "--out", fixture->dir, "--quiet");
    char *lie = calloc(1, 1115394);
    fixture->server->files[0] = (ServedFile){"input.txt", lie, 1115394, NULL};
    assert_refused(1, "not the published file: SHA-256 is", "fetch", "tinyshakespeare", "--from",
                   fixture->server->url, "--out", fixture->dir, "--quiet");
    free(lie);
}

/* Several mirrors: one that is dead or sends something else gives way to the next. */
static void test_several(void **state) {
    Fixture *fixture = *state;
    require_curl();
    char dead[64];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    snprintf(dead, sizeof dead, "http://127.0.0.1:%d", ntohs(address.sin_port));
    char *lie = calloc(1, 1115394);
    fixture->server->files[0] = (ServedFile){"input.txt", lie, 1115394, NULL};
    assert_refused(1, "input.txt: all 2 sources failed: ", "fetch", "tinyshakespeare", "--from", dead,
                   "--from", fixture->server->url, "--out", fixture->dir, "--retries", "0", "--quiet");
    assert_refused(1, "--from /nowhere/at/all: not a directory", "fetch", "gpt2", "--from", dead, "--from",
                   "/nowhere/at/all");
    if (path_exists(SHARED "/tinyshakespeare/input.txt")) {
        Ran ran = program_run("fetch", "tinyshakespeare", "--from", dead, "--from", fixture->server->url,
                              "--from", SHARED, "--out", fixture->dir, "--retries", "0");
        assert_int_equal(ran.code, 0);
        assert_contains(ran.err, "/tinyshakespeare/input.txt: cannot connect to 127.0.0.1; trying http");
        assert_contains(ran.err, "not the published file");
        assert_contains(ran.out, "tinyshakespeare is in ");
        ran_done(&ran);
    }
    free(lie);
    close(fd);
}

/* Ctrl-C during a download: one line of error, exit code 1, and the received part is kept. */
static void test_interrupt(void **state) {
    Fixture *fixture = *state;
    require_curl();
    char *data = calloc(1, 1115394);
    fixture->server->files[0] = (ServedFile){"input.txt", data, 1115394, "\"one\""};
    fixture->server->silent = true;
    fixture->server->cut_at = 5000;
    FILE *err = tmpfile();
    assert_non_null(err);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(err), 2);
        execl(WEFT_BINARY, WEFT_BINARY, "fetch", "tinyshakespeare", "--from", fixture->server->url, "--out",
              fixture->dir, "--quiet", (char *)NULL);
        _exit(127);
    }
    CLEANUP(mem_freep) char *part = NULL;
    struct stat st;
    int code;
    assert_ok(path_join(&part, fixture->dir, "tinyshakespeare/input.txt.part"));
    for (int i = 0; i < 2000 && (stat(part, &st) != 0 || st.st_size < 5000); i++) usleep(10000);
    kill(child, SIGINT);
    assert_int_equal(waitpid(child, &code, 0), child);
    char *said = program_slurp(err);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 1);
    assert_contains(said, "stopped by a signal; the 5.00 kB received so far are kept");
    assert_int_equal(stat(part, &st), 0);
    assert_int_equal(st.st_size, 5000);
    free(said);
    free(data);
}

static void test_real(void **state) {
    Fixture *fixture = *state;
    if (!path_exists(SHARED "/tinyshakespeare/input.txt")) skip();
    CLEANUP(mem_freep) char *next = NULL;
    setenv("WEFT_DATA", fixture->dir, 1);
    Ran ran = program_run("fetch", "tinyshakespeare", "--from", SHARED);
    unsetenv("WEFT_DATA");
    assert_int_equal(ran.code, 0);
    assert_ok(str_format(&next, "next: weft train --data %s/tinyshakespeare/input.txt", fixture->dir));
    assert_contains(ran.out, next);
    assert_contains(ran.err, "input.txt 1115394/1115394 (100%)");
    ran_done(&ran);

    /* The second call needs no network. */
    ran = program_run("fetch", "tinyshakespeare", "--out", fixture->dir, "--json");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp) json_t *json = NULL;
    assert_ok(json_parse(ran.out, strlen(ran.out), "the result", &json));
    const json_t *set = json_array_get(json_object_get(json, "sets"), 0);
    const json_t *file = json_array_get(json_object_get(set, "files"), 0);
    assert_true(json_is_true(json_object_get(file, "was_there")));
    assert_string_equal(json_string_value(json_object_get(file, "checked")), "published");
    ran_done(&ran);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_usage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_several, setup, teardown),
        cmocka_unit_test_setup_teardown(test_interrupt, setup, teardown),
        cmocka_unit_test_setup_teardown(test_real, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
