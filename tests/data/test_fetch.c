/* Downloads, from a server that works, misbehaves or drops connections, and from mirror directories.
 * Invariants: a file under its final name is complete and correct, received data is not lost, and every
 * failure has one clear message. */
#include "data/downloads.h"
#include "zip_make.h"

#include <sys/resource.h>

#include "base/json.h"
#include "data/curl.h"

/* ---- complete downloads ---- */

static void test_whole(void **state) {
    Fixture *fixture = online(state);
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    const FetchedFile *file = &fixture->fetched.files[0];
    assert_int_equal(fixture->fetched.count, 1);
    assert_int_equal(file->size, SIZE);
    assert_int_equal(file->received, SIZE);
    assert_int_equal(file->proof, FETCH_PUBLISHED);
    assert_string_equal(file->sha256, fixture->sum);
    assert_false(file->was_there);
    assert_int_equal(fixture->server->requests, 1);

    assert_ok(fetch(fixture));
    assert_true(fixture->fetched.files[0].was_there);
    assert_int_equal(fixture->server->requests, 1);
}

static void test_empty(void **state) {
    Fixture *fixture = online(state);
    fixture->server->files[0].size = 0;
    fixture->file = (FetchFile){"file.bin", 0, NULL, NULL};
    assert_ok(fetch(fixture));
    assert_int_equal(size_of(fixture->path), 0);
}

static void test_redirect(void **state) {
    Fixture *fixture = online(state);
    snprintf(fixture->home, sizeof fixture->home, "%smoved/moved/", fixture->server->url);
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->requests, 3);
}

/* The home server states the checksum and redirects to another server for the file. */
static void test_stated_checksum(void **state) {
    Fixture *fixture = online(state);
    char tag[80];
    fixture->file = (FetchFile){"file.bin", 0, NULL, NULL};
    snprintf(fixture->home, sizeof fixture->home, "%smoved/moved/", fixture->server->url);
    snprintf(tag, sizeof tag, "\"%s\"", fixture->sum);
    fixture->server->linked = tag;
    fixture->server->files[0].data = fixture->other;
    assert_fails(fetch(fixture), 1, "does not match the checksum that the server reports");
    assert_nothing_left(fixture);
    fixture->server->files[0].data = fixture->data;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->fetched.files[0].proof, FETCH_STATED);
    assert_ok(fetch(fixture));
    assert_int_equal(fixture->fetched.files[0].proof, FETCH_RECORDED);
}

static void test_redirect_loop(void **state) {
    Fixture *fixture = online(state);
    snprintf(fixture->home, sizeof fixture->home, "%sloop/", fixture->server->url);
    assert_fails(fetch(fixture), 1, "more than 10 redirects");
    assert_nothing_left(fixture);
}

/* ---- interrupted downloads ---- */

static void test_cut_resumes(void **state) {
    Fixture *fixture = online(state);
    fixture->server->cuts = 1;
    fixture->server->cut_at = 1000000;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->requests, 2);
    assert_int_equal(fixture->server->last_from, 1000000);
    assert_string_equal(fixture->server->last_condition, "\"one\"");
    assert_int_equal(fixture->fetched.files[0].received, SIZE);
}

static void test_resumes_later(void **state) {
    Fixture *fixture = online(state);
    fixture->spec.retries = 0;
    fixture->server->cuts = 1;
    fixture->server->cut_at = 1000000;
    assert_fails(fetch(fixture), 1, "connection lost; the 1.00 MB received so far are kept");
    assert_int_equal(size_of(fixture->part), 1000000);
    assert_false(path_exists(fixture->path));
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->last_from, 1000000);
    assert_int_equal(fixture->fetched.files[0].received, SIZE - 1000000);
}

/* Killed after the last byte but before the rename: nothing is downloaded again. */
static void test_resumes_complete_part(void **state) {
    Fixture *fixture = online(state);
    char dir[128];
    CLEANUP(mem_freep) char *note = NULL;
    snprintf(dir, sizeof dir, "%s/set", fixture->dir);
    write_file(dir, "file.bin.part", fixture->data, SIZE);
    assert_ok(str_format(&note, "{\"from\": \"%sfile.bin\", \"tag\": \"\\\"one\\\"\", \"size\": %d}",
                         fixture->home, SIZE));
    write_file(dir, "file.bin.part.json", note, strlen(note));
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->requests, 0);
}

/* A partial file without valid metadata is discarded. */
static void test_unknown_part(void **state) {
    Fixture *fixture = online(state);
    char dir[128];
    snprintf(dir, sizeof dir, "%s/set", fixture->dir);
    write_file(dir, "file.bin.part", fixture->other, 5000);
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(unlink(fixture->path), 0);
    write_file(dir, "file.bin.part", fixture->other, 5000);
    write_file(dir, "file.bin.part.json", "{\"from\": 7", 10);
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
}

static void test_ranges_ignored(void **state) {
    Fixture *fixture = online(state);
    fixture->server->cuts = 1;
    fixture->server->cut_at = 1000000;
    fixture->server->no_ranges = true;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->requests, 2);
}

/* The file changes between two attempts: the result is the new file, not a mixture. */
static void test_changed(void **state) {
    Fixture *fixture = online(state);
    fixture->file = (FetchFile){"file.bin", 0, NULL, NULL};
    fixture->spec.retries = 0;
    fixture->server->cuts = 1;
    fixture->server->cut_at = 1000000;
    assert_fails(fetch(fixture), 1, "connection lost");
    fixture->server->files[0] = (ServedFile){"file.bin", fixture->other, SIZE, "\"two\""};
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->other);
    assert_int_equal(fixture->fetched.files[0].proof, FETCH_FIRST);
}

/* If the server ignores If-Range, the changed ETag reveals the new file. */
static void test_changed_unconditionally(void **state) {
    Fixture *fixture = online(state);
    fixture->file = (FetchFile){"file.bin", 0, NULL, NULL};
    fixture->spec.retries = 0;
    fixture->server->cuts = 1;
    fixture->server->cut_at = 1000000;
    fixture->server->no_conditions = true;
    assert_fails(fetch(fixture), 1, "connection lost");
    fixture->server->files[0] = (ServedFile){"file.bin", fixture->other, SIZE, "\"two\""};
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->other);
}

/* Without an ETag, the checksum reveals a mixture of two versions. */
static void test_mixed_versions(void **state) {
    Fixture *fixture = online(state);
    fixture->spec.retries = 0;
    fixture->server->cuts = 1;
    fixture->server->cut_at = 1000000;
    fixture->server->files[0] = (ServedFile){"file.bin", fixture->other, SIZE, NULL};
    assert_fails(fetch(fixture), 1, "connection lost");
    fixture->server->files[0] = (ServedFile){"file.bin", fixture->data, SIZE, NULL};
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->requests, 3);
}

/* A resumed file with a wrong checksum is downloaded again from the start, but only once. */
static void test_wrong_again(void **state) {
    Fixture *fixture = online(state);
    fixture->server->files[0] = (ServedFile){"file.bin", fixture->other, SIZE, "\"one\""};
    fixture->server->cuts = 1;
    fixture->server->cut_at = 1000000;
    assert_fails(fetch(fixture), 1, "not the published file");
    assert_nothing_left(fixture);
    assert_int_equal(fixture->server->requests, 3);
}

/* Without an ETag and a checksum, a mixture would go unnoticed, so the download starts over. */
static void test_no_tag_no_checksum(void **state) {
    Fixture *fixture = online(state);
    fixture->file = (FetchFile){"file.bin", 0, NULL, NULL};
    fixture->spec.retries = 0;
    fixture->server->files[0].tag = NULL;
    fixture->server->cuts = 1;
    fixture->server->cut_at = 1000000;
    assert_fails(fetch(fixture), 1, "connection lost");
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->last_from, 0);
    /* Also within a single call. */
    assert_ok(dir_remove(fixture->fetched.dir));
    fixture->spec.retries = 1;
    fixture->server->cuts = 1;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->last_from, 0);
}

static void test_silent(void **state) {
    Fixture *fixture = online(state);
    fixture->spec.timeout_s = 1;
    fixture->spec.retries = 1;
    fixture->server->silent = true;
    fixture->server->cut_at = 2000;
    assert_fails(fetch(fixture), 1, "no data received for 1 s; the 4.00 kB received so far are kept");
    assert_int_equal(size_of(fixture->part), 4000);
    assert_int_equal(fixture->server->requests, 2);
}

/* A server that sends something, but too slowly to ever end. */
static void test_slow(void **state) {
    Fixture *fixture = online(state);
    fixture->spec.timeout_s = 1;
    fixture->spec.retries = 0;
    fixture->server->drips = true;
    assert_fails(fetch(fixture), 1, ": the server sends less than 100 bytes/s; the ");
}

/* Without a length, what the whole set is said to have bounds the file. */
static void test_endless(void **state) {
    Fixture *fixture = online(state);
    fixture->file = (FetchFile){"file.bin", 0, NULL, NULL};
    fixture->set.about = 1000000;
    fixture->server->no_length = fixture->server->endless = true;
    assert_fails(fetch(fixture), 1, "longer than the expected 2000000 bytes");
    assert_false(path_exists(fixture->part));
}

static void test_garbage(void **state) {
    Fixture *fixture = online(state);
    fixture->spec.retries = 0;
    fixture->server->garbage = true;
    assert_fails(fetch(fixture), 1, ": 127.0.0.1 does not answer in HTTP");
}

static void test_stopped(void **state) {
    Fixture *fixture = online(state);
    fixture->server->silent = true;
    fixture->server->cut_at = 2000;
    fixture->server->stop = &fixture->stop;
    fixture->server->stop_file = fixture->part;
    assert_fails(fetch(fixture), 1, "stopped by a signal; the 2.00 kB received so far are kept");
    assert_int_equal(size_of(fixture->part), 2000);
    fixture->server->silent = false;
    fixture->stop = 0;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
}

/* ---- errors ---- */

static void test_wrong_sum(void **state) {
    Fixture *fixture = online(state);
    fixture->server->files[0].data = fixture->other;
    assert_fails(fetch(fixture), 1, "not the published file: SHA-256 is ");
    assert_nothing_left(fixture);
    assert_int_equal(fixture->server->requests, 1);
}

static void test_refusals(void **state) {
    Fixture *fixture = online(state);
    fixture->server->failures = 1;
    fixture->server->status = 403;
    assert_fails(fetch(fixture), 1, "access denied (403)");
    fixture->server->failures = 1;
    fixture->server->status = 418;
    assert_fails(fetch(fixture), 1, "unexpected HTTP status 418");
    assert_int_equal(fixture->server->requests, 2);
    snprintf(fixture->home, sizeof fixture->home, "%snothing/", fixture->server->url);
    assert_fails(fetch(fixture), 1, "/nothing/file.bin: not found (404)");
    assert_int_equal(fixture->server->requests, 3);
    /* Not even the directory, which would hide a preset of the set's name. */
    CLEANUP(mem_freep) char *dir = NULL;
    assert_ok(str_dup(fixture->path, &dir));
    *strrchr(dir, '/') = '\0';
    assert_false(path_exists(dir));
}

static void test_busy(void **state) {
    Fixture *fixture = online(state);
    fixture->server->failures = 2;
    fixture->server->status = 503;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(unlink(fixture->path), 0);
    fixture->server->failures = 3;
    assert_fails(fetch(fixture), 1, "the server is busy or has a temporary problem (503)");
    assert_nothing_left(fixture);
}

/* An address at which nothing listens. The caller closes the socket. */
static int no_host(char *url, size_t size) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    snprintf(url, size, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    return fd;
}

static void test_no_server(void **state) {
    Fixture *fixture = online(state);
    int fd = no_host(fixture->home, sizeof fixture->home);
    assert_fails(fetch(fixture), 1, "cannot connect to 127.0.0.1");
    close(fd);
}

static void test_lengths(void **state) {
    Fixture *fixture = online(state);
    fixture->server->said_longer = 5;
    assert_fails(fetch(fixture), 1, "has 3145733 bytes, but the published file has 3145728");
    assert_nothing_left(fixture);
    fixture->server->said_longer = -5;
    assert_fails(fetch(fixture), 1, "has 3145723 bytes, but the published file has 3145728");
    assert_nothing_left(fixture);
    fixture->server->said_longer = 5;
    /* The size is not published, and the server always announces more than it sends. */
    fixture->file.size = 0;
    assert_fails(fetch(fixture), 1, "has fewer bytes than it reported before");
    assert_nothing_left(fixture);
    /* The server announces no length and sends more, or less. */
    fixture->server->said_longer = 0;
    fixture->server->no_length = true;
    fixture->file.size = SIZE - 1;
    assert_fails(fetch(fixture), 1, "longer than the expected 3145727 bytes");
    assert_nothing_left(fixture);
    fixture->file.size = SIZE + 1;
    fixture->server->no_ranges = true;
    assert_fails(fetch(fixture), 1, "ended after 3145728 of 3145729 bytes");
}

static void test_absurd_size(void **state) {
    Fixture *fixture = online(state);
    fixture->file.size = 0;
    fixture->server->said_longer = (int64_t)1 << 60;
    assert_fails(fetch(fixture), 1, "more than any file expected here");
    fixture->server->said_longer = (int64_t)60 << 30;
    CLEANUP(status_freep) Status status = fetch(fixture);
    assert_non_null(status); /* the disk is too small or the connection is cut, depending on the host */
}

static void test_full_disk(void **state) {
    Fixture *fixture = online(state);
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = (struct rlimit){.rlim_cur = 100000, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    CLEANUP(status_freep) Status status = fetch(fixture);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_non_null(status);
    assert_non_null(strstr(status_message(status), "file.bin.part: cannot write: File too large"));
    assert_int_equal(size_of(fixture->part), 100000);
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->last_from, 100000);
}

/* ---- files that already exist ---- */

static void test_recorded(void **state) {
    Fixture *fixture = online(state);
    fixture->file = (FetchFile){"file.bin", 0, NULL, NULL};
    assert_ok(fetch(fixture));
    assert_int_equal(fixture->fetched.files[0].proof, FETCH_FIRST);
    assert_ok(fetch(fixture));
    assert_int_equal(fixture->fetched.files[0].proof, FETCH_RECORDED);
    /* The server now has a different file. */
    assert_int_equal(unlink(fixture->path), 0);
    fixture->server->files[0].data = fixture->other;
    assert_fails(fetch(fixture), 1, "not the same file as on the first download");
    assert_nothing_left(fixture);
    fixture->server->files[0].data = fixture->data;
    assert_ok(fetch(fixture));
    assert_int_equal(fixture->fetched.files[0].proof, FETCH_RECORDED);
}

static void test_changed_here(void **state) {
    Fixture *fixture = online(state);
    assert_ok(fetch(fixture));
    write_file(fixture->fetched.dir, "file.bin", "mine", 4);
    assert_fails(fetch(fixture), 1, "delete it to download it again");
    assert_file(fixture->path, "mine", 4);
}

static void test_bad_record(void **state) {
    Fixture *fixture = *state;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/set", fixture->dir);
    write_file(dir, "fetched.json", "[1]", 3);
    assert_fails(fetch(fixture), 1, "fetched.json: expected an object");
}

/* ---- mirrors ---- */

static void test_mirror(void **state) {
    Fixture *fixture = online(state);
    fixture->mirrors[0] = fixture->server->url;
    fixture->spec.from_count = 1;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
}

static void test_directory(void **state) {
    Fixture *fixture = *state;
    char folder[160];
    fixture->mirrors[0] = fixture->mirror;
    fixture->spec.from_count = 1;
    snprintf(folder, sizeof folder, "%s/set", fixture->mirror);
    assert_fails(fetch(fixture), 1, "mirror/set/file.bin: cannot open");
    write_file(folder, "file.bin", fixture->data, SIZE);
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->requests, 0);
    assert_int_equal(unlink(fixture->path), 0);
    write_file(folder, "file.bin", fixture->data, SIZE - 1);
    assert_fails(fetch(fixture), 1, "has 3145727 bytes, but the published file has 3145728");
    write_file(folder, "file.bin", fixture->other, SIZE);
    assert_fails(fetch(fixture), 1, "not the published file");
    assert_nothing_left(fixture);
}

static void test_flat_directory(void **state) {
    Fixture *fixture = *state;
    fixture->mirrors[0] = fixture->mirror;
    fixture->spec.from_count = 1;
    write_file(fixture->mirror, "file.bin", fixture->data, SIZE);
    assert_fails(fetch(fixture), 1, "mirror/set/file.bin: cannot open");
    fixture->spec.from_flat = true;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
}

/* ---- several hosts ---- */

/* A second host with the same file, which mirrors the first. */
typedef struct Second {
    Server *server;
    FetchMirror mirror;
    char url[96];
} Second;

static void add_host(Fixture *fixture, Second *second) {
    void *server;
    assert_int_equal(server_setup(&server), 0);
    second->server = server;
    second->server->files[0] = fixture->server->files[0];
    snprintf(second->url, sizeof second->url, "%smirror/", second->server->url);
    second->mirror = (FetchMirror){.of = fixture->home, .at = second->url};
    fixture->spec.mirrors = &second->mirror;
    fixture->spec.mirror_count = 1;
}

static void remove_host(Second *second) {
    void *server = second->server;
    assert_int_equal(server_teardown(&server), 0);
}

static void test_first_host_dead(void **state) {
    Fixture *fixture = online(state);
    Second second;
    CLEANUP(mem_freep) char *said = NULL;
    size_t size;
    int fd = no_host(fixture->home, sizeof fixture->home);
    add_host(fixture, &second);
    fixture->spec.log = open_memstream(&said, &size);
    fixture->spec.quiet = false;
    assert_ok(fetch(fixture));
    fclose(fixture->spec.log);
    assert_arrived(fixture, fixture->data);
    assert_non_null(strstr(said, "file.bin: cannot connect to 127.0.0.1; trying "));
    assert_int_equal(strncmp(fixture->fetched.files[0].from, second.url, strlen(second.url)), 0);
    close(fd);
    remove_host(&second);
}

static void test_first_host_damaged(void **state) {
    Fixture *fixture = online(state);
    Second second;
    add_host(fixture, &second);
    fixture->server->files[0].data = fixture->other;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->requests, 1);
    assert_int_equal(second.server->requests, 1);
    remove_host(&second);
}

/* Every host's failure is in the message. */
static void test_all_hosts_fail(void **state) {
    Fixture *fixture = online(state);
    Second second;
    add_host(fixture, &second);
    fixture->server->files[0].data = fixture->other;
    second.server->files[0].name = NULL;
    CLEANUP(status_freep) Status status = fetch(fixture);
    assert_non_null(status);
    assert_non_null(strstr(status_message(status), "file.bin: all 2 sources failed: "));
    assert_non_null(strstr(status_message(status), "home/file.bin: not the published file"));
    assert_non_null(strstr(status_message(status), "mirror/file.bin: not found (404)"));
    assert_nothing_left(fixture);
    remove_host(&second);
}

/* The second host sends only what the first did not, because the checksum tells that it is the same file. */
static void test_second_host_resumes(void **state) {
    Fixture *fixture = online(state);
    Second second;
    add_host(fixture, &second);
    fixture->server->cuts = 1000;
    fixture->server->cut_at = 500000;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->requests, 2);
    assert_int_equal(second.server->last_from, 1000000);
    /* Without one, it sends everything. */
    assert_ok(dir_remove(fixture->fetched.dir));
    fixture->file = (FetchFile){"file.bin", 0, NULL, NULL};
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(second.server->last_from, 0);
    remove_host(&second);
}

/* A part of something else costs a second download from the same host. */
static void test_second_host_after_damage(void **state) {
    Fixture *fixture = online(state);
    Second second;
    add_host(fixture, &second);
    fixture->server->files[0].data = fixture->other;
    fixture->server->cuts = 1000;
    fixture->server->cut_at = 500000;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(second.server->requests, 2);
    remove_host(&second);
}

/* When every host has failed, those that may recover are tried again. */
static void test_hosts_recover(void **state) {
    Fixture *fixture = online(state);
    Second second;
    add_host(fixture, &second);
    fixture->server->failures = 3;
    fixture->server->status = 503;
    second.server->files[0].name = NULL;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_int_equal(fixture->server->requests, 4);
    assert_int_equal(second.server->requests, 1);
    remove_host(&second);
}

/* A single file elsewhere, under another name. */
static void test_copy(void **state) {
    Fixture *fixture = online(state);
    char url[96];
    FetchMirror mirrors[] = {{"another host", url}, {fixture->sum, url}};
    snprintf(url, sizeof url, "%scopies/copy.bin", fixture->server->url);
    fixture->server->files[0].name = "copy.bin";
    fixture->spec.mirrors = mirrors;
    fixture->spec.mirror_count = 2;
    assert_ok(fetch(fixture));
    assert_arrived(fixture, fixture->data);
    assert_string_equal(fixture->fetched.files[0].from, url);
}

/* What fails here fails with every host. */
static void test_hosts_full_disk(void **state) {
    Fixture *fixture = online(state);
    Second second;
    struct rlimit old, low;
    add_host(fixture, &second);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = (struct rlimit){.rlim_cur = 100000, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    CLEANUP(status_freep) Status status = fetch(fixture);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_non_null(status);
    assert_int_equal(second.server->requests, 0);
    assert_int_equal(size_of(fixture->part), 100000);
    remove_host(&second);
}

/* ---- archives ---- */

static void test_archive(void **state) {
    Fixture *fixture = *state;
    static ZipMaker zip;
    static const char *const members[] = {"one.txt", "two.txt", NULL};
    char path[192];
    zip = (ZipMaker){0};
    zip_make_add(&zip, "corpus/one.txt", "first", 5, 1);
    zip_make_add(&zip, "corpus/two.txt", "second", 6, 0);
    zip_make_add(&zip, "../../evil.txt", "evil", 4, 0);
    zip_make_end(&zip);
    write_file(fixture->mirror, "set.zip", zip.data, zip.size);
    fixture->mirrors[0] = fixture->mirror;
    fixture->spec.from_count = 1;
    fixture->spec.from_flat = true;
    fixture->file = (FetchFile){"set.zip", 0, NULL, members};
    assert_ok(fetch(fixture));
    assert_int_equal(fixture->fetched.count, 3);
    assert_int_equal(fixture->fetched.files[1].proof, FETCH_ARCHIVE);
    assert_file(fixture->fetched.files[1].path, "first", 5);
    assert_file(fixture->fetched.files[2].path, "second", 6);

    /* A missing file is unpacked again; a modified one is left alone. */
    snprintf(path, sizeof path, "%s/set/two.txt", fixture->dir);
    assert_int_equal(unlink(path), 0);
    assert_ok(fetch(fixture));
    assert_file(path, "second", 6);
    write_file(fixture->fetched.dir, "two.txt", "mine", 4);
    assert_fails(fetch(fixture), 1, "two.txt already exists, but its SHA-256 is");
    assert_file(path, "mine", 4);
    /* Without a record, the file is compared with the archive. */
    snprintf(path, sizeof path, "%s/set/fetched.json", fixture->dir);
    assert_int_equal(unlink(path), 0);
    assert_fails(fetch(fixture), 1, "two.txt already exists, but its SHA-256 is");
}

/* ---- the table of sets ---- */

static bool is_hex(const char *text, size_t count) {
    return strspn(text, "0123456789abcdef") >= count;
}

/* Models are pinned to a revision and complete, checksums are SHA-256, and a total is known or estimated. */
static void test_sets(void **state) {
    size_t count;
    const FetchSet *sets = fetch_sets(&count), *found;
    for (size_t i = 0; i < count; i++) {
        const char *revision = strstr(sets[i].home, "/resolve/");
        int64_t total = sets[i].about;
        bool config = false, weights = false, sized = true;
        assert_ok(fetch_find(sets[i].name, &found));
        assert_ptr_equal(found, &sets[i]);
        assert_int_equal(sets[i].home[strlen(sets[i].home) - 1], '/');
        if (strstr(sets[i].home, "huggingface")) assert_true(revision && is_hex(revision + 9, 40));
        for (size_t k = 0; k < sets[i].file_count; k++) {
            const FetchFile *file = &sets[i].files[k];
            if (file->sha256) assert_true(strlen(file->sha256) == 64 && is_hex(file->sha256, 64));
            config |= !strcmp(file->name, "config.json");
            weights |= strstr(file->name, ".safetensors") != NULL;
            sized &= file->size > 0;
            total -= sets[i].about ? file->size : 0;
        }
        assert_int_equal(config, weights);
        if (!sized) assert_true(sets[i].about > 0 && total >= -sets[i].about / 100);
    }
}

/* Every mirror serves some set. */
static void test_mirrors(void **state) {
    size_t count, mirror_count;
    const FetchSet *sets = fetch_sets(&count);
    const FetchMirror *mirrors = fetch_mirrors(&mirror_count);
    for (size_t m = 0; m < mirror_count; m++) {
        bool used = false;
        assert_true(http_is_url(mirrors[m].at));
        for (size_t i = 0; i < count; i++) {
            const char *rest = fetch_mirrored(&mirrors[m], sets[i].home);
            used |= rest != NULL;
            if (rest && *rest) assert_int_equal(mirrors[m].at[strlen(mirrors[m].at) - 1], '/');
            for (size_t k = 0; k < sets[i].file_count; k++)
                used |= sets[i].files[k].sha256 && !strcmp(sets[i].files[k].sha256, mirrors[m].of);
        }
        if (!used) fail_msg("nothing is fetched from %s", mirrors[m].at);
    }
}

/* ---- libcurl's constants ---- */

#if __has_include(<curl/curl.h>)
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>

static void test_constants(void **state) {
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
        {CURL_LOW_SPEED_LIMIT, CURLOPT_LOW_SPEED_LIMIT},
        {CURL_LOW_SPEED_TIME, CURLOPT_LOW_SPEED_TIME},
        {CURL_WEIRD_ANSWER, CURLE_WEIRD_SERVER_REPLY},
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
static void test_constants(void **state) {
    skip();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_mirrors),
        CASE(whole),
        CASE(empty),
        CASE(redirect),
        CASE(redirect_loop),
        CASE(stated_checksum),
        CASE(cut_resumes),
        CASE(resumes_later),
        CASE(resumes_complete_part),
        CASE(unknown_part),
        CASE(ranges_ignored),
        CASE(changed),
        CASE(changed_unconditionally),
        CASE(mixed_versions),
        CASE(wrong_again),
        CASE(no_tag_no_checksum),
        CASE(silent),
        CASE(slow),
        CASE(endless),
        CASE(garbage),
        CASE(stopped),
        CASE(wrong_sum),
        CASE(refusals),
        CASE(busy),
        CASE(no_server),
        CASE(lengths),
        CASE(absurd_size),
        CASE(full_disk),
        CASE(recorded),
        CASE(changed_here),
        CASE(bad_record),
        CASE(mirror),
        CASE(directory),
        CASE(flat_directory),
        CASE(first_host_dead),
        CASE(first_host_damaged),
        CASE(all_hosts_fail),
        CASE(second_host_resumes),
        CASE(second_host_after_damage),
        CASE(hosts_recover),
        CASE(copy),
        CASE(hosts_full_disk),
        CASE(archive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
