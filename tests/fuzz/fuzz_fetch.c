/* Fuzzes what a download leaves behind and what the server then sends: a file gets its final name only if it
 * has the expected checksum. The input is how the server replies (one byte), fetched.json, the state of an
 * interrupted download, its data, and what the server sends, separated by NULs. */
#include "base/sha256.h"
#include "data/fetch.h"
#include "data/http.h"
#include "dir.h"

/* ---- a server in place of http.c ---- */

static struct {
    uint8_t kind;
    const uint8_t *data;
    size_t size;
} server;

Status http_new(Http **ret_http) {
    *ret_http = (Http *)(void *)&server; /* never looked into */
    return OK;
}

void http_free(Http *http) {
    (void)http;
}

bool http_is_url(const char *text) {
    return !strncmp(text, "http", 4);
}

Status http_get(Http *http, const HttpRequest *request, HttpOutcome *outcome) {
    static const int statuses[] = {200, 206, 416, 404};
    (void)http;
    HttpResponse *response = &outcome->response;
    *outcome = (HttpOutcome){.response = {.status = statuses[server.kind & 3], .total = -1}};
    if (response->status > 206) return FAILED("%s: status %d", request->url, response->status);
    size_t from = request->from > 0 && response->status == 206 ? (size_t)request->from : 0;
    if (from > server.size) from = server.size;
    response->from = (int64_t)from;
    if (server.kind & 4) response->total = (int64_t)server.size;
    if (server.kind & 8) strcpy(response->tag, "\"a\"");
    TRY(request->begin(request->user, response));
    return from < server.size ? request->data(request->user, server.data + from, server.size - from) : OK;
}

/* ---- the target ---- */

#define SUM "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" /* of "abc" */

static void check(const Fetched *fetched, bool published) {
    for (size_t i = 0; i < fetched->count; i++) {
        char *text = NULL, sum[SHA256_TEXT];
        size_t size = 0;
        Sha256 hash;
        fuzz_require(fuzz_succeeded(file_read(fetched->files[i].path, FUZZ_INPUT_LIMIT, &text, &size)));
        sha256_init(&hash);
        sha256_add(&hash, text, size);
        sha256_text(&hash, sum);
        fuzz_require(!strcmp(sum, fetched->files[i].sha256) && (int64_t)size == fetched->files[i].size);
        fuzz_require(!published || !strcmp(sum, SUM));
        free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"set/fetched.json", "set/file.part.json", "set/file.part", "reply"};
    char path[128];
    if (!size) return 0;
    server.kind = data[0];
    snprintf(path, sizeof path, "%s/set", fuzz_dir_path());
    fuzz_require(fuzz_succeeded(dir_remove(path)) && fuzz_succeeded(dir_make(path)));
    fuzz_dir_fill(names, sizeof names / sizeof *names, data + 1, size - 1);
    server.data = data + 1, server.size = size - 1;
    for (int i = 0; i < 3 && server.size; i++) {
        const uint8_t *nul = memchr(server.data, 0, server.size);
        size_t used = nul ? (size_t)(nul - server.data) + 1 : server.size;
        server.data += used, server.size -= used;
    }
    FetchFile file = {.name = "file", .sha256 = server.kind & 16 ? SUM : NULL};
    FetchSet set = {.name = "set", .home = "http://h/", .files = &file, .file_count = 1};
    FetchSpec spec = {.root = fuzz_dir_path(), .timeout_s = 1, .log = stderr, .quiet = true};
    Fetched fetched = {0};
    if (fuzz_succeeded(fetch_set(&set, &spec, &fetched))) check(&fetched, file.sha256 != NULL);
    fetched_done(&fetched);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char record[] =
        "{\"file\": {\"size\": 3, \"sha256\": \"" SUM "\", \"from\": \"http://h/file\"}}";
    static const char state[] = "{\"from\": \"http://h/file\", \"tag\": \"\\\"a\\\"\", \"size\": 3}";
    static const struct {
        uint8_t kind;
        const char *part[4];
    } seeds[] = {
        {0, {"", "", "", "abc"}},
        {4 | 8 | 1, {"", state, "ab", "abc"}},
        {8 | 1, {record, state, "a", "ab"}},
        {16 | 4, {"", state, "abc", "abc"}},
        {2, {record, state, "ab", ""}},
        {16 | 8 | 1, {record, state, "ax", "abc"}},
    };
    size_t size = 0;
    if (index >= sizeof seeds / sizeof *seeds) return 0;
    out[size++] = seeds[index].kind;
    for (int i = 0; i < 4; i++) {
        size += fuzz_seed_text(seeds[index].part[i], out + size);
        if (i < 3) out[size++] = 0;
    }
    return size;
}
