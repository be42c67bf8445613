/* HTTP through libcurl's easy interface.
 *
 * libcurl passes headers line by line, for every response along a chain of redirects. A status line resets
 * the response, so the last one remains. Bodies of responses other than 200 and 206 are discarded. libcurl
 * calls its progress function at least once per second; that is where a signal or a stalled server ends the
 * transfer.
 */
#include "data/http.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/memory.h"
#include "data/curl.h"

enum {
    REDIRECT_LIMIT = 10,
    ERROR_BODY_LIMIT = 1 << 20,
    HEADER_LIMIT = 1 << 20,
    LEAST_RATE = 100 /* bytes/s */
};

struct Http {
    Curl curl;
    void *handle;
};

typedef struct Transfer {
    const HttpRequest *request;
    HttpResponse response;
    bool begun, stopped, stalled;
    Status failure;            /* returned by the request's begin or data */
    int64_t received, headers; /* bytes */
    double last_byte;
} Transfer;

bool http_is_url(const char *text) {
    return !strncasecmp(text, "http://", 7) || !strncasecmp(text, "https://", 8);
}

Status http_new(Http **ret_http) {
    CLEANUP(http_freep) Http *http = NULL;
    Curl curl;
    TRY(curl_open(&curl));
    TRY(mem_new(1, sizeof *http, &http));
    if (curl.global_init(3) != CURL_OK) return FAILED("libcurl cannot be initialized");
    http->curl = curl;
    http->handle = curl.easy_init();
    if (!http->handle) return FAILED("out of memory while initializing libcurl");
    return MOVE(ret_http, http);
}

void http_free(Http *http) {
    if (!http) return;
    if (http->handle) http->curl.easy_cleanup(http->handle);
    if (http->curl.global_cleanup) http->curl.global_cleanup();
    free(http);
}

/* ---- libcurl callbacks ---- */

/* If the line is the header `name`, stores its value without surrounding white space. */
static bool header_value(const char *line, size_t size, const char *name, char *value, size_t capacity) {
    size_t length = strlen(name);
    if (size <= length || strncasecmp(line, name, length) != 0 || line[length] != ':') return false;
    const char *from = line + length + 1, *end = line + size;
    while (from < end && (*from == ' ' || *from == '\t')) from++;
    while (end > from && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' ' || end[-1] == '\t')) end--;
    if ((size_t)(end - from) >= capacity) return false;
    memcpy(value, from, (size_t)(end - from));
    value[end - from] = 0;
    return true;
}

static bool parse_size(const char *text, const char **ret_end, int64_t *ret_size) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    long long size = strtoll(text, &end, 10);
    if (size == INT64_MAX) return false;
    *ret_size = size;
    *ret_end = end;
    return true;
}

/* Parses "bytes 100-199/200"; the total may be "*". */
static void take_range(HttpResponse *response, const char *value) {
    const char *at;
    int64_t from, last, total = -1;
    if (strncasecmp(value, "bytes ", 6) != 0 || !parse_size(value + 6, &at, &from) || *at != '-') return;
    if (!parse_size(at + 1, &at, &last) || *at != '/') return;
    if (at[1] != '*' && !parse_size(at + 1, &at, &total)) return;
    response->from = from;
    response->total = total;
}

/* Takes an ETag that is the file's SHA-256. Hosts of large files send one before redirecting to the storage
 * server. */
static void take_sha256(HttpResponse *response, const char *value) {
    size_t digits = *value == '"' ? strspn(value + 1, "0123456789abcdefABCDEF") : 0;
    if (digits != 64 || strcmp(value + 65, "\"") != 0) return;
    for (size_t i = 0; i < digits; i++) response->sha256[i] = (char)tolower((unsigned char)value[1 + i]);
}

static int three_digits(const char *at) {
    int number = 0;
    for (int i = 0; i < 3; i++) {
        if (at[i] < '0' || at[i] > '9') return 0;
        number = 10 * number + (at[i] - '0');
    }
    return number;
}

void http_take_header(HttpResponse *response, const char *line, size_t size) {
    char value[HTTP_TAG_SIZE];
    const char *end;
    if (size > 9 && !strncasecmp(line, "HTTP/", 5)) {
        const char *space = memchr(line, ' ', size);
        HttpResponse next = {.total = -1, .from = -1};
        memcpy(next.sha256, response->sha256, sizeof next.sha256);
        *response = next;
        if (space && space + 4 < line + size) response->status = three_digits(space + 1);
        if (response->status == 200) response->from = 0;
    } else if (header_value(line, size, "Content-Length", value, sizeof value)) {
        if (response->status == 200 && !parse_size(value, &end, &response->total)) response->total = -1;
    } else if (header_value(line, size, "Content-Range", value, sizeof value)) {
        if (response->status == 206) take_range(response, value);
    } else if (header_value(line, size, "X-Linked-ETag", value, sizeof value)) {
        take_sha256(response, value);
    } else if (header_value(line, size, "ETag", value, sizeof value)) {
        /* A weak tag does not guarantee identical bytes. */
        if (value[0] == '"') memcpy(response->tag, value, sizeof value);
    } else if (!*response->tag && header_value(line, size, "Last-Modified", value, sizeof value)) {
        memcpy(response->tag, value, sizeof value);
    }
}

static size_t on_header(char *line, size_t one, size_t size, void *user) {
    Transfer *transfer = user;
    size *= one;
    transfer->last_byte = clock_wall();
    transfer->headers += (int64_t)size;
    if (transfer->headers > HEADER_LIMIT) {
        transfer->failure = FAILED("%s: the server sends headers without end", transfer->request->url);
        return 0;
    }
    http_take_header(&transfer->response, line, size);
    return size;
}

static Status begin(Transfer *transfer) {
    const HttpResponse *response = &transfer->response;
    if (transfer->begun) return OK;
    transfer->begun = true;
    if (response->from != 0 && response->from != transfer->request->from)
        return FAILED("%s: the server sent a different byte range than requested", transfer->request->url);
    return transfer->request->begin(transfer->request->user, response);
}

static bool has_file(const HttpResponse *response) {
    return response->status == 200 || response->status == 206;
}

static size_t on_data(char *data, size_t one, size_t size, void *user) {
    Transfer *transfer = user;
    size *= one;
    transfer->last_byte = clock_wall();
    transfer->received += (int64_t)size;
    if (!has_file(&transfer->response)) return transfer->received > ERROR_BODY_LIMIT ? 0 : size;
    transfer->failure = begin(transfer);
    if (!transfer->failure) transfer->failure = transfer->request->data(transfer->request->user, data, size);
    return transfer->failure ? 0 : size;
}

static int on_progress(void *user, int64_t total, int64_t now, int64_t up_total, int64_t up) {
    Transfer *transfer = user;
    (void)total, (void)now, (void)up_total, (void)up;
    transfer->stopped = transfer->request->stop && *transfer->request->stop;
    transfer->stalled = clock_wall() - transfer->last_byte > transfer->request->timeout_s;
    return transfer->stopped || transfer->stalled;
}

/* ---- transfers ---- */

static Status add_header(const Curl *curl, void **list, const char *text) {
    void *longer = curl->slist_append(*list, text);
    if (!longer) return FAILED("out of memory while requesting a file");
    *list = longer;
    return OK;
}

static int64_t connect_timeout_ms(double seconds) {
    double ms = seconds * 1000;
    return ms < 1 ? 1 : ms > 1e9 ? (int64_t)1e9 : (int64_t)ms;
}

/* The file of trusted certificates, from the same environment variables that the curl program reads. */
static const char *certificate_file(void) {
    const char *file = getenv("CURL_CA_BUNDLE");
    if (!file || !*file) file = getenv("SSL_CERT_FILE");
    return file && *file ? file : NULL;
}

/* libcurl reads numeric options as long, so literals need the suffix or a cast. */
static void set_options(const Http *http, Transfer *transfer, const char *range, void *headers, char *error) {
    int (*set)(void *, int, ...) = http->curl.easy_setopt;
    void *handle = http->handle;
    const HttpRequest *request = transfer->request;
    bool secure = !strncasecmp(request->url, "https:", 6);
    http->curl.easy_reset(handle);
    set(handle, CURL_SET_URL, request->url);
    set(handle, CURL_USER_AGENT, "weft/" WEFT_VERSION);
    set(handle, CURL_SET_PROTOCOLS, (long)(CURL_HTTP | CURL_HTTPS));
    set(handle, CURL_REDIRECT_PROTOCOLS, (long)(secure ? CURL_HTTPS : CURL_HTTP | CURL_HTTPS));
    set(handle, CURL_FOLLOW, 1L);
    set(handle, CURL_MAX_REDIRECTS, (long)REDIRECT_LIMIT);
    set(handle, CURL_NO_SIGNAL, 1L);
    set(handle, CURL_CONNECT_TIMEOUT_MS, (long)connect_timeout_ms(request->timeout_s));
    set(handle, CURL_LOW_SPEED_LIMIT, (long)LEAST_RATE);
    set(handle, CURL_LOW_SPEED_TIME, (long)ceil(fmin(request->timeout_s, 1e6)));
    set(handle, CURL_ERROR_BUFFER, error);
    set(handle, CURL_HEADER_FUNCTION, on_header);
    set(handle, CURL_HEADER_DATA, (void *)transfer);
    set(handle, CURL_WRITE_FUNCTION, on_data);
    set(handle, CURL_WRITE_DATA, (void *)transfer);
    set(handle, CURL_NO_PROGRESS, 0L);
    set(handle, CURL_PROGRESS_FUNCTION, on_progress);
    set(handle, CURL_PROGRESS_DATA, (void *)transfer);
    if (range) set(handle, CURL_SET_RANGE, range);
    if (headers) set(handle, CURL_HEADERS, headers);
    if (certificate_file()) set(handle, CURL_CA_FILE, certificate_file());
}

/* Extracts "example.org" from "https://example.org:80/path". */
static Status host_of(const char *url, char **ret_host) {
    const char *from = strstr(url, "://");
    from = from ? from + 3 : url;
    return str_format(ret_host, "%.*s", (int)strcspn(from, "/:?#"), from);
}

/* Describes a transfer that libcurl aborted. */
static Status transfer_failed(const Transfer *transfer, int code, const char *message, bool *ret_again) {
    const char *url = transfer->request->url;
    CLEANUP(mem_freep) char *host = NULL;
    TRY(host_of(url, &host));
    *ret_again = code == CURL_NO_CONNECTION || code == CURL_HTTP2_ERROR || code == CURL_HTTP2_STREAM ||
                 code == CURL_CUT || code == CURL_TIMED_OUT || code == CURL_NO_ANSWER ||
                 code == CURL_SEND_FAILED || code == CURL_RECEIVE_FAILED || transfer->stalled;
    bool slow = code == CURL_TIMED_OUT && transfer->received > 0 &&
                clock_wall() - transfer->last_byte < 0.9 * transfer->request->timeout_s;
    if (slow) return FAILED("%s: the server sends less than %d bytes/s", url, LEAST_RATE);
    if (transfer->stalled || code == CURL_TIMED_OUT)
        return FAILED("%s: no data received for %g s", url, transfer->request->timeout_s);
    switch (code) {
    case CURL_NO_HOST:
        return FAILED(
            "%s: host %s not found; check the network connection, or use {from} with a mirror or a directory",
            url, host);
    case CURL_NO_PROXY: return FAILED("%s: proxy host not found; check http_proxy and https_proxy", url);
    case CURL_NO_CONNECTION: return FAILED("%s: cannot connect to %s", url, host);
    case CURL_WEIRD_ANSWER: return FAILED("%s: %s does not answer in HTTP", url, host);
    case CURL_BAD_PROTOCOL:
        if (transfer->response.status < 300 || strstr(message, "HTTP/0.9")) /* what curl takes garbage for */
            return FAILED("%s: %s does not answer in HTTP", url, host);
        return FAILED("%s: redirects from https to another protocol, which is not allowed", url);
    case CURL_BAD_URL: return FAILED("%s: not a valid URL", url);
    case CURL_REDIRECT_LOOP: return FAILED("%s: more than %d redirects", url, REDIRECT_LIMIT);
    case CURL_BAD_CERTIFICATE: return FAILED("%s: the certificate of %s is not trusted", url, host);
    case CURL_CUT:
    case CURL_RECEIVE_FAILED:
    case CURL_NO_ANSWER: return FAILED("%s: connection lost", url);
    default: return FAILED("%s: the download failed: %s", url, message);
    }
}

/* Describes a response without the file. */
static Status request_failed(const Transfer *transfer, bool *ret_again) {
    const char *url = transfer->request->url;
    int status = transfer->response.status;
    *ret_again =
        status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
    if (status == 404 || status == 410) return FAILED("%s: not found (%d)", url, status);
    if (status == 401 || status == 403)
        return FAILED(
            "%s: access denied (%d); if the site asks for an account or an accepted license, download "
            "the files yourself and pass their directory with {from}",
            url, status);
    if (*ret_again) return FAILED("%s: the server is busy or has a temporary problem (%d)", url, status);
    if (status == 416) return FAILED("%s: the server has fewer bytes than it reported before (416)", url);
    return FAILED("%s: unexpected HTTP status %d", url, status);
}

static Status transfer_result(Transfer *transfer, int code, const char *message, HttpOutcome *outcome) {
    outcome->response = transfer->response;
    outcome->retry = false;
    if (transfer->failure) return transfer->failure;
    if (transfer->stopped) return STOPPED("stopped by a signal");
    if (code != CURL_OK && !(transfer->response.status >= 400 && code == CURL_WRITE_REFUSED))
        return transfer_failed(transfer, code, message, &outcome->retry);
    if (!has_file(&transfer->response)) return request_failed(transfer, &outcome->retry);
    return begin(transfer); /* for an empty file, begin has not been called yet */
}

Status http_get(Http *http, const HttpRequest *request, HttpOutcome *outcome) {
    Transfer transfer = {.request = request, .response = {.total = -1}, .last_byte = clock_wall()};
    char error[CURL_ERROR_TEXT] = "", range[32];
    *outcome = (HttpOutcome){.response = {.total = -1}};
    void *headers = NULL;
    if (request->from > 0 && request->tag && *request->tag) {
        CLEANUP(mem_freep) char *line = NULL;
        TRY(str_format(&line, "If-Range: %s", request->tag));
        TRY(add_header(&http->curl, &headers, line));
    }
    snprintf(range, sizeof range, "%lld-", (long long)request->from);
    set_options(http, &transfer, request->from > 0 ? range : NULL, headers, error);
    int code = http->curl.easy_perform(http->handle);
    http->curl.slist_free_all(headers);
    http->curl.easy_reset(http->handle);
    return transfer_result(&transfer, code, *error ? error : http->curl.easy_strerror(code), outcome);
}
