/* A server with one file, and a set that is fetched from it. */
#ifndef WEFT_TESTS_DATA_DOWNLOADS_H
#define WEFT_TESTS_DATA_DOWNLOADS_H

#include "server.h"

#include <sys/stat.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "data/fetch.h"
#include "data/http.h"

enum { SIZE = 3 << 20 };

typedef struct Fixture {
    Server *server;
    char dir[64];
    unsigned char *data, *other; /* contents of two different files, SIZE bytes each */
    char sum[SHA256_TEXT];       /* SHA-256 of data */
    FetchFile file;
    FetchSet set;
    FetchSpec spec;
    Fetched fetched;
    char home[96], path[128], part[160], mirror[128];
    const char *mirrors[3]; /* what spec.from points to */
    volatile sig_atomic_t stop;
} Fixture;

static inline void hash_of(const void *data, size_t size, char text[SHA256_TEXT]) {
    Sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, data, size);
    sha256_text(&hash, text);
}

static inline bool have_curl(void) {
    CLEANUP(http_freep) Http *http = NULL;
    CLEANUP(status_freep) Status status = http_new(&http);
    return !status;
}

static inline int setup(void **state) {
    Fixture *fixture = calloc(1, sizeof *fixture);
    void *server;
    if (!fixture || server_setup(&server) != 0) return -1;
    fixture->server = server;
    snprintf(fixture->dir, sizeof fixture->dir, "/tmp/weft-fetch-XXXXXX");
    if (!mkdtemp(fixture->dir)) return -1;
    fixture->data = malloc(SIZE);
    fixture->other = malloc(SIZE);
    if (!fixture->data || !fixture->other) return -1;
    for (uint32_t i = 0, x = 1; i < SIZE; i++) {
        x = x * 1664525 + 1013904223;
        fixture->data[i] = (unsigned char)(x >> 24);
        fixture->other[i] = (unsigned char)(x >> 16);
    }
    hash_of(fixture->data, SIZE, fixture->sum);
    fixture->server->files[0] = (ServedFile){"file.bin", fixture->data, SIZE, "\"one\""};
    fixture->file = (FetchFile){"file.bin", SIZE, fixture->sum, NULL};
    snprintf(fixture->home, sizeof fixture->home, "%shome/", fixture->server->url);
    fixture->set = (FetchSet){.name = "set", .home = fixture->home, .files = &fixture->file, .file_count = 1};
    fixture->spec = (FetchSpec){.root = fixture->dir,
                                .from = fixture->mirrors,
                                .timeout_s = 20,
                                .retries = 2,
                                .backoff_s = 0.01,
                                .log = stderr,
                                .quiet = true,
                                .stop = &fixture->stop};
    snprintf(fixture->path, sizeof fixture->path, "%s/set/file.bin", fixture->dir);
    snprintf(fixture->part, sizeof fixture->part, "%s.part", fixture->path);
    snprintf(fixture->mirror, sizeof fixture->mirror, "%s/mirror", fixture->dir);
    *state = fixture;
    return 0;
}

static inline int teardown(void **state) {
    Fixture *fixture = *state;
    void *server = fixture->server;
    int failed = server_teardown(&server); /* it may still be sending the data */
    fetched_done(&fixture->fetched);
    status_free(dir_remove(fixture->dir));
    free(fixture->data);
    free(fixture->other);
    free(fixture);
    return failed;
}

static inline Fixture *online(void **state) {
    if (!have_curl()) skip();
    return *state;
}

static inline Status fetch(Fixture *fixture) {
    fetched_done(&fixture->fetched);
    return fetch_set(&fixture->set, &fixture->spec, &fixture->fetched);
}

static inline void assert_file(const char *path, const void *data, size_t size) {
    FileMap map = {0};
    assert_ok(file_map_init(&map, path));
    assert_int_equal(map.size, size);
    assert_memory_equal(map.data, data, size);
    file_map_done(&map);
}

/* The file exists, and no temporary file is left. */
static inline void assert_arrived(const Fixture *fixture, const void *data) {
    char state[192];
    assert_file(fixture->path, data, SIZE);
    assert_false(path_exists(fixture->part));
    snprintf(state, sizeof state, "%s.json", fixture->part);
    assert_false(path_exists(state));
}

static inline void assert_nothing_left(const Fixture *fixture) {
    assert_false(path_exists(fixture->path));
    assert_false(path_exists(fixture->part));
}

static inline int64_t size_of(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

static inline void write_file(const char *dir, const char *name, const void *data, size_t size) {
    CLEANUP(mem_freep) char *path = NULL;
    assert_ok(dir_make(dir));
    assert_ok(path_join(&path, dir, name));
    assert_ok(file_replace(path, data, size));
}

#endif
