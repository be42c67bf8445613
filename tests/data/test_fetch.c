/* Fetching against a server that behaves, misbehaves and breaks off, and from directories. What must hold: a
 * file that has its name is whole and right, what has come is not lost, and every failure is one clear
 * sentence. */
#include "server.h"
#include "zip_make.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "data/curl.h"
#include "data/fetch.h"
#include "data/http.h"

enum { SIZE = 3 << 20 };

typedef struct World {
    Server *server;
    char dir[64];
    unsigned char *data, *other; /* two files of SIZE bytes */
    char sum[SHA256_TEXT];       /* of data */
    FetchFile file;
    FetchSet set;
    FetchSpec spec;
    Fetched fetched;
    char home[96], path[128], part[160], mirror[128];
    volatile sig_atomic_t stop;
} World;

static void sum_of(const void *data, size_t size, char text[SHA256_TEXT]) {
    Sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, data, size);
    sha256_text(&hash, text);
}

static bool have_curl(void) {
    CLEANUP(http_freep) Http *http = NULL;
    CLEANUP(status_freep) Status status = http_new(&http);
    return !status;
}

static int setup(void **state) {
    World *world = calloc(1, sizeof *world);
    void *server;
    if (!world || server_setup(&server) != 0) return -1;
    world->server = server;
    snprintf(world->dir, sizeof world->dir, "/tmp/weft-fetch-XXXXXX");
    if (!mkdtemp(world->dir)) return -1;
    world->data = malloc(SIZE);
    world->other = malloc(SIZE);
    if (!world->data || !world->other) return -1;
    for (uint32_t i = 0, x = 1; i < SIZE; i++) {
        x = x * 1664525 + 1013904223;
        world->data[i] = (unsigned char)(x >> 24);
        world->other[i] = (unsigned char)(x >> 16);
    }
    sum_of(world->data, SIZE, world->sum);
    world->server->files[0] = (ServedFile){"file.bin", world->data, SIZE, "\"one\""};
    world->file = (FetchFile){"file.bin", SIZE, world->sum, NULL};
    snprintf(world->home, sizeof world->home, "%shome/", world->server->url);
    world->set = (FetchSet){.name = "set", .home = world->home, .files = &world->file, .file_count = 1};
    world->spec = (FetchSpec){.root = world->dir,
                              .timeout_s = 20,
                              .retries = 2,
                              .backoff_s = 0.01,
                              .log = stderr,
                              .quiet = true,
                              .stop = &world->stop};
    snprintf(world->path, sizeof world->path, "%s/set/file.bin", world->dir);
    snprintf(world->part, sizeof world->part, "%s.part", world->path);
    snprintf(world->mirror, sizeof world->mirror, "%s/mirror", world->dir);
    *state = world;
    return 0;
}

static int teardown(void **state) {
    World *world = *state;
    void *server = world->server;
    fetched_done(&world->fetched);
    status_free(dir_remove(world->dir));
    free(world->data);
    free(world->other);
    free(world);
    return server_teardown(&server);
}

static World *online(void **state) {
    if (!have_curl()) skip();
    return *state;
}

static Status fetch(World *world) {
    fetched_done(&world->fetched);
    return fetch_set(&world->set, &world->spec, &world->fetched);
}

static void assert_file(const char *path, const void *data, size_t size) {
    FileMap map = {0};
    assert_ok(file_map_init(&map, path));
    assert_int_equal(map.size, size);
    assert_memory_equal(map.data, data, size);
    file_map_done(&map);
}

/* The file is there, and nothing of its way. */
static void assert_arrived(const World *world, const void *data) {
    char state[192];
    assert_file(world->path, data, SIZE);
    assert_false(path_exists(world->part));
    snprintf(state, sizeof state, "%s.json", world->part);
    assert_false(path_exists(state));
}

static void assert_nothing_left(const World *world) {
    assert_false(path_exists(world->path));
    assert_false(path_exists(world->part));
}

static int64_t size_of(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

static void write_file(const char *dir, const char *name, const void *data, size_t size) {
    CLEANUP(mem_freep) char *path = NULL;
    assert_ok(dir_make(dir));
    assert_ok(path_join(&path, dir, name));
    assert_ok(file_replace(path, data, size));
}

/* ---- whole files ---- */

static void test_whole(void **state) {
    World *world = online(state);
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    const FetchedFile *file = &world->fetched.files[0];
    assert_int_equal(world->fetched.count, 1);
    assert_int_equal(file->size, SIZE);
    assert_int_equal(file->received, SIZE);
    assert_int_equal(file->proof, FETCH_PUBLISHED);
    assert_string_equal(file->sha256, world->sum);
    assert_false(file->was_there);
    assert_int_equal(world->server->requests, 1);

    assert_ok(fetch(world));
    assert_true(world->fetched.files[0].was_there);
    assert_int_equal(world->server->requests, 1);
}

static void test_empty(void **state) {
    World *world = online(state);
    world->server->files[0].size = 0;
    world->file = (FetchFile){"file.bin", 0, NULL, NULL};
    assert_ok(fetch(world));
    assert_int_equal(size_of(world->path), 0);
}

static void test_redirect(void **state) {
    World *world = online(state);
    snprintf(world->home, sizeof world->home, "%smoved/moved/", world->server->url);
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(world->server->requests, 3);
}

/* The home names the sum, and sends the client elsewhere for the file. */
static void test_stated(void **state) {
    World *world = online(state);
    char tag[80];
    world->file = (FetchFile){"file.bin", 0, NULL, NULL};
    snprintf(world->home, sizeof world->home, "%smoved/moved/", world->server->url);
    snprintf(tag, sizeof tag, "\"%s\"", world->sum);
    world->server->linked = tag;
    world->server->files[0].data = world->other;
    assert_fails(fetch(world), 1, "does not match the checksum that the server reports");
    assert_nothing_left(world);
    world->server->files[0].data = world->data;
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(world->fetched.files[0].proof, FETCH_STATED);
    assert_ok(fetch(world));
    assert_int_equal(world->fetched.files[0].proof, FETCH_RECORDED);
}

static void test_redirect_loop(void **state) {
    World *world = online(state);
    snprintf(world->home, sizeof world->home, "%sloop/", world->server->url);
    assert_fails(fetch(world), 1, "more than 10 redirects");
    assert_nothing_left(world);
}

/* ---- interrupted ones ---- */

static void test_cut_resumes(void **state) {
    World *world = online(state);
    world->server->cuts = 1;
    world->server->cut_at = 1000000;
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(world->server->requests, 2);
    assert_int_equal(world->server->last_from, 1000000);
    assert_string_equal(world->server->last_condition, "\"one\"");
    assert_int_equal(world->fetched.files[0].received, SIZE);
}

static void test_resumes_later(void **state) {
    World *world = online(state);
    world->spec.retries = 0;
    world->server->cuts = 1;
    world->server->cut_at = 1000000;
    assert_fails(fetch(world), 1, "connection lost; the 1.00 MB received so far are kept");
    assert_int_equal(size_of(world->part), 1000000);
    assert_false(path_exists(world->path));
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(world->server->last_from, 1000000);
    assert_int_equal(world->fetched.files[0].received, SIZE - 1000000);
}

/* Killed between the last byte and the new name: nothing has to come again. */
static void test_resumes_whole(void **state) {
    World *world = online(state);
    char dir[128];
    CLEANUP(mem_freep) char *note = NULL;
    snprintf(dir, sizeof dir, "%s/set", world->dir);
    write_file(dir, "file.bin.part", world->data, SIZE);
    assert_ok(str_format(&note, "{\"from\": \"%sfile.bin\", \"tag\": \"\\\"one\\\"\", \"size\": %d}",
                         world->home, SIZE));
    write_file(dir, "file.bin.part.json", note, strlen(note));
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(world->server->requests, 0);
}

/* A part of an unknown file, or with a note that says nothing, is not built upon. */
static void test_unknown_part(void **state) {
    World *world = online(state);
    char dir[128];
    snprintf(dir, sizeof dir, "%s/set", world->dir);
    write_file(dir, "file.bin.part", world->other, 5000);
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(unlink(world->path), 0);
    write_file(dir, "file.bin.part", world->other, 5000);
    write_file(dir, "file.bin.part.json", "{\"from\": 7", 10);
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
}

static void test_ranges_ignored(void **state) {
    World *world = online(state);
    world->server->cuts = 1;
    world->server->cut_at = 1000000;
    world->server->no_ranges = true;
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(world->server->requests, 2);
}

/* The file changes between two attempts: what arrives is the new one, not a mixture. */
static void test_changed(void **state) {
    World *world = online(state);
    world->file = (FetchFile){"file.bin", 0, NULL, NULL};
    world->spec.retries = 0;
    world->server->cuts = 1;
    world->server->cut_at = 1000000;
    assert_fails(fetch(world), 1, "connection lost");
    world->server->files[0] = (ServedFile){"file.bin", world->other, SIZE, "\"two\""};
    assert_ok(fetch(world));
    assert_arrived(world, world->other);
    assert_int_equal(world->fetched.files[0].proof, FETCH_FIRST);
}

/* A server that takes no notice of If-Range is found out by the tag that it names. */
static void test_changed_unconditionally(void **state) {
    World *world = online(state);
    world->file = (FetchFile){"file.bin", 0, NULL, NULL};
    world->spec.retries = 0;
    world->server->cuts = 1;
    world->server->cut_at = 1000000;
    world->server->no_conditions = true;
    assert_fails(fetch(world), 1, "connection lost");
    world->server->files[0] = (ServedFile){"file.bin", world->other, SIZE, "\"two\""};
    assert_ok(fetch(world));
    assert_arrived(world, world->other);
}

/* ... and one that names none, by the checksum. */
static void test_glued(void **state) {
    World *world = online(state);
    world->spec.retries = 0;
    world->server->cuts = 1;
    world->server->cut_at = 1000000;
    world->server->files[0] = (ServedFile){"file.bin", world->other, SIZE, NULL};
    assert_fails(fetch(world), 1, "connection lost");
    world->server->files[0] = (ServedFile){"file.bin", world->data, SIZE, NULL};
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(world->server->requests, 3);
}

/* Parts that do not fit are fetched whole once, not for ever. */
static void test_wrong_again(void **state) {
    World *world = online(state);
    world->server->files[0] = (ServedFile){"file.bin", world->other, SIZE, "\"one\""};
    world->server->cuts = 1;
    world->server->cut_at = 1000000;
    assert_fails(fetch(world), 1, "not the published file");
    assert_nothing_left(world);
    assert_int_equal(world->server->requests, 3);
}

/* Without a tag and without a checksum nothing could tell, so it starts over. */
static void test_nothing_to_tell_by(void **state) {
    World *world = online(state);
    world->file = (FetchFile){"file.bin", 0, NULL, NULL};
    world->spec.retries = 0;
    world->server->files[0].tag = NULL;
    world->server->cuts = 1;
    world->server->cut_at = 1000000;
    assert_fails(fetch(world), 1, "connection lost");
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(world->server->last_from, 0);
    /* In one call too. */
    assert_ok(dir_remove(world->fetched.dir));
    world->spec.retries = 1;
    world->server->cuts = 1;
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(world->server->last_from, 0);
}

static void test_silent(void **state) {
    World *world = online(state);
    world->spec.timeout_s = 1;
    world->spec.retries = 1;
    world->server->silent = true;
    world->server->cut_at = 2000;
    assert_fails(fetch(world), 1, "no data received for 1 s; the 4.00 kB received so far are kept");
    assert_int_equal(size_of(world->part), 4000);
    assert_int_equal(world->server->requests, 2);
}

static void test_stopped(void **state) {
    World *world = online(state);
    world->server->silent = true;
    world->server->cut_at = 2000;
    world->server->stop = &world->stop;
    assert_fails(fetch(world), 1, "stopped by a signal; the 2.00 kB received so far are kept");
    assert_int_equal(size_of(world->part), 2000);
    world->server->silent = false;
    world->stop = 0;
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
}

/* ---- wrong ones ---- */

static void test_wrong_sum(void **state) {
    World *world = online(state);
    world->server->files[0].data = world->other;
    assert_fails(fetch(world), 1, "not the published file: SHA-256 is ");
    assert_nothing_left(world);
    assert_int_equal(world->server->requests, 1);
}

static void test_refusals(void **state) {
    World *world = online(state);
    world->server->failures = 1;
    world->server->status = 403;
    assert_fails(fetch(world), 1, "access denied (403)");
    world->server->failures = 1;
    world->server->status = 418;
    assert_fails(fetch(world), 1, "unexpected HTTP status 418");
    assert_int_equal(world->server->requests, 2);
    snprintf(world->home, sizeof world->home, "%snothing/", world->server->url);
    assert_fails(fetch(world), 1, "/nothing/file.bin: not found (404)");
    assert_nothing_left(world);
    assert_int_equal(world->server->requests, 3);
}

static void test_busy(void **state) {
    World *world = online(state);
    world->server->failures = 2;
    world->server->status = 503;
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(unlink(world->path), 0);
    world->server->failures = 3;
    assert_fails(fetch(world), 1, "the server is busy or has a temporary problem (503)");
    assert_nothing_left(world);
}

static void test_no_server(void **state) {
    World *world = online(state);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    snprintf(world->home, sizeof world->home, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    assert_fails(fetch(world), 1, "cannot connect to 127.0.0.1");
    close(fd);
}

static void test_lengths(void **state) {
    World *world = online(state);
    world->server->said_longer = 5;
    assert_fails(fetch(world), 1, "has 3145733 bytes, but the published file has 3145728");
    assert_nothing_left(world);
    world->server->said_longer = -5;
    assert_fails(fetch(world), 1, "has 3145723 bytes, but the published file has 3145728");
    assert_nothing_left(world);
    world->server->said_longer = 5;
    /* No size is published: it says more than it sends, every time. */
    world->file.size = 0;
    assert_fails(fetch(world), 1, "has fewer bytes than it reported before");
    assert_nothing_left(world);
    /* It says nothing and sends more, or less. */
    world->server->said_longer = 0;
    world->server->no_length = true;
    world->file.size = SIZE - 1;
    assert_fails(fetch(world), 1, "longer than the expected 3145727 bytes");
    assert_nothing_left(world);
    world->file.size = SIZE + 1;
    world->server->no_ranges = true;
    assert_fails(fetch(world), 1, "ended after 3145728 of 3145729 bytes");
}

static void test_absurd(void **state) {
    World *world = online(state);
    world->file.size = 0;
    world->server->said_longer = (int64_t)1 << 60;
    assert_fails(fetch(world), 1, "more than any file expected here");
    world->server->said_longer = (int64_t)60 << 30;
    CLEANUP(status_freep) Status status = fetch(world);
    assert_non_null(status); /* no room for it, or the connection is cut: it depends on the disk */
}

static void test_no_room(void **state) {
    World *world = online(state);
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = (struct rlimit){.rlim_cur = 100000, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    CLEANUP(status_freep) Status status = fetch(world);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_non_null(status);
    assert_non_null(strstr(status_message(status), "file.bin.part: cannot write: File too large"));
    assert_int_equal(size_of(world->part), 100000);
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(world->server->last_from, 100000);
}

/* ---- what is there already ---- */

static void test_recorded(void **state) {
    World *world = online(state);
    world->file = (FetchFile){"file.bin", 0, NULL, NULL};
    assert_ok(fetch(world));
    assert_int_equal(world->fetched.files[0].proof, FETCH_FIRST);
    assert_ok(fetch(world));
    assert_int_equal(world->fetched.files[0].proof, FETCH_RECORDED);
    /* Another file by now at its home. */
    assert_int_equal(unlink(world->path), 0);
    world->server->files[0].data = world->other;
    assert_fails(fetch(world), 1, "not the same file as on the first download");
    assert_nothing_left(world);
    world->server->files[0].data = world->data;
    assert_ok(fetch(world));
    assert_int_equal(world->fetched.files[0].proof, FETCH_RECORDED);
}

static void test_changed_here(void **state) {
    World *world = online(state);
    assert_ok(fetch(world));
    write_file(world->fetched.dir, "file.bin", "mine", 4);
    assert_fails(fetch(world), 1, "move it away to fetch it again");
    assert_file(world->path, "mine", 4);
}

static void test_bad_record(void **state) {
    World *world = *state;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/set", world->dir);
    write_file(dir, "fetched.json", "[1]", 3);
    assert_fails(fetch(world), 1, "fetched.json: expected an object");
}

/* ---- mirrors ---- */

static void test_mirror(void **state) {
    World *world = online(state);
    world->spec.from = world->server->url;
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
}

static void test_directory(void **state) {
    World *world = *state;
    char folder[160];
    world->spec.from = world->mirror;
    snprintf(folder, sizeof folder, "%s/set", world->mirror);
    assert_fails(fetch(world), 1, "mirror/set/file.bin: cannot open");
    write_file(folder, "file.bin", world->data, SIZE);
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
    assert_int_equal(world->server->requests, 0);
    assert_int_equal(unlink(world->path), 0);
    write_file(folder, "file.bin", world->data, SIZE - 1);
    assert_fails(fetch(world), 1, "has 3145727 bytes, but the published file has 3145728");
    write_file(folder, "file.bin", world->other, SIZE);
    assert_fails(fetch(world), 1, "not the published file");
    assert_nothing_left(world);
}

static void test_flat_directory(void **state) {
    World *world = *state;
    world->spec.from = world->mirror;
    write_file(world->mirror, "file.bin", world->data, SIZE);
    assert_fails(fetch(world), 1, "mirror/set/file.bin: cannot open");
    world->spec.from_flat = true;
    assert_ok(fetch(world));
    assert_arrived(world, world->data);
}

/* ---- archives ---- */

static void test_archive(void **state) {
    World *world = *state;
    static ZipMaker zip;
    static const char *const members[] = {"one.txt", "two.txt", NULL};
    char path[192];
    zip = (ZipMaker){0};
    zip_make_add(&zip, "corpus/one.txt", "first", 5, 1);
    zip_make_add(&zip, "corpus/two.txt", "second", 6, 0);
    zip_make_add(&zip, "../../evil.txt", "evil", 4, 0);
    zip_make_end(&zip);
    write_file(world->mirror, "set.zip", zip.data, zip.size);
    world->spec.from = world->mirror;
    world->spec.from_flat = true;
    world->file = (FetchFile){"set.zip", 0, NULL, members};
    assert_ok(fetch(world));
    assert_int_equal(world->fetched.count, 3);
    assert_int_equal(world->fetched.files[1].proof, FETCH_ARCHIVE);
    assert_file(world->fetched.files[1].path, "first", 5);
    assert_file(world->fetched.files[2].path, "second", 6);

    /* One that is gone is unpacked again, one that was changed is left alone. */
    snprintf(path, sizeof path, "%s/set/two.txt", world->dir);
    assert_int_equal(unlink(path), 0);
    assert_ok(fetch(world));
    assert_file(path, "second", 6);
    write_file(world->fetched.dir, "two.txt", "mine", 4);
    assert_fails(fetch(world), 1, "two.txt: exists, but its SHA-256 is");
    assert_file(path, "mine", 4);
    /* The same without a record: it is held against the archive. */
    snprintf(path, sizeof path, "%s/set/fetched.json", world->dir);
    assert_int_equal(unlink(path), 0);
    assert_fails(fetch(world), 1, "two.txt: exists, but its SHA-256 is");
}

/* ---- libcurl's numbers ---- */

#if __has_include(<curl/curl.h>)
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>

static void test_numbers(void **state) {
    (void)state;
    static const int pairs[][2] = {
        {CURL_WRITE_DATA, CURLOPT_WRITEDATA},
        {CURL_SET_URL, CURLOPT_URL},
        {CURL_SET_RANGE, CURLOPT_RANGE},
        {CURL_ERROR_BUFFER, CURLOPT_ERRORBUFFER},
        {CURL_USER_AGENT, CURLOPT_USERAGENT},
        {CURL_HEADERS, CURLOPT_HTTPHEADER},
        {CURL_HEADER_DATA, CURLOPT_HEADERDATA},
        {CURL_PROGRESS_DATA, CURLOPT_XFERINFODATA},
        {CURL_CA_FILE, CURLOPT_CAINFO},
        {CURL_NO_PROGRESS, CURLOPT_NOPROGRESS},
        {CURL_FOLLOW, CURLOPT_FOLLOWLOCATION},
        {CURL_MAX_REDIRECTS, CURLOPT_MAXREDIRS},
        {CURL_NO_SIGNAL, CURLOPT_NOSIGNAL},
        {CURL_CONNECT_TIMEOUT_MS, CURLOPT_CONNECTTIMEOUT_MS},
        {CURL_SET_PROTOCOLS, CURLOPT_PROTOCOLS},
        {CURL_REDIRECT_PROTOCOLS, CURLOPT_REDIR_PROTOCOLS},
        {CURL_WRITE_FUNCTION, CURLOPT_WRITEFUNCTION},
        {CURL_HEADER_FUNCTION, CURLOPT_HEADERFUNCTION},
        {CURL_PROGRESS_FUNCTION, CURLOPT_XFERINFOFUNCTION},
        {CURL_HTTP, CURLPROTO_HTTP},
        {CURL_HTTPS, CURLPROTO_HTTPS},
        {CURL_BAD_PROTOCOL, CURLE_UNSUPPORTED_PROTOCOL},
        {CURL_BAD_URL, CURLE_URL_MALFORMAT},
        {CURL_NO_PROXY, CURLE_COULDNT_RESOLVE_PROXY},
        {CURL_NO_HOST, CURLE_COULDNT_RESOLVE_HOST},
        {CURL_NO_CONNECTION, CURLE_COULDNT_CONNECT},
        {CURL_HTTP2_ERROR, CURLE_HTTP2},
        {CURL_CUT, CURLE_PARTIAL_FILE},
        {CURL_WRITE_REFUSED, CURLE_WRITE_ERROR},
        {CURL_TIMED_OUT, CURLE_OPERATION_TIMEDOUT},
        {CURL_ABORTED, CURLE_ABORTED_BY_CALLBACK},
        {CURL_REDIRECT_LOOP, CURLE_TOO_MANY_REDIRECTS},
        {CURL_NO_ANSWER, CURLE_GOT_NOTHING},
        {CURL_SEND_FAILED, CURLE_SEND_ERROR},
        {CURL_RECEIVE_FAILED, CURLE_RECV_ERROR},
        {CURL_BAD_CERTIFICATE, CURLE_PEER_FAILED_VERIFICATION},
        {CURL_HTTP2_STREAM, CURLE_HTTP2_STREAM},
        {CURL_ERROR_TEXT, CURL_ERROR_SIZE},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) assert_int_equal(pairs[i][0], pairs[i][1]);
    assert_int_equal(sizeof(curl_off_t), sizeof(int64_t));
    assert_int_equal(CURL_GLOBAL_ALL, 3);
}
#else
static void test_numbers(void **state) {
    (void)state;
    skip();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
        cmocka_unit_test(test_numbers),
        CASE(whole),
        CASE(empty),
        CASE(redirect),
        CASE(redirect_loop),
        CASE(stated),
        CASE(cut_resumes),
        CASE(resumes_later),
        CASE(resumes_whole),
        CASE(unknown_part),
        CASE(ranges_ignored),
        CASE(changed),
        CASE(changed_unconditionally),
        CASE(glued),
        CASE(wrong_again),
        CASE(nothing_to_tell_by),
        CASE(silent),
        CASE(stopped),
        CASE(wrong_sum),
        CASE(refusals),
        CASE(busy),
        CASE(no_server),
        CASE(lengths),
        CASE(absurd),
        CASE(no_room),
        CASE(recorded),
        CASE(changed_here),
        CASE(bad_record),
        CASE(mirror),
        CASE(directory),
        CASE(flat_directory),
        CASE(archive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
