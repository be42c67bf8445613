/* HTTP through libcurl's easy interface.
 *
 * libcurl hands over headers line by line, of each answer on a way of redirects; a status line starts a new
 * answer, so what counts in the end is the last one's. Bodies of anything but 200 and 206 are dropped.
 * libcurl's progress function, called at least once a second, is where a signal or a silent server ends the
 * transfer.
 */
#include "data/http.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/memory.h"
#include "data/curl.h"

enum { REDIRECT_LIMIT = 10, ERROR_BODY_LIMIT = 1 << 20 };

struct Http {
    Curl curl;
    void *handle;
};

/* One transfer. */
typedef struct Transfer {
    const HttpRequest *request;
    HttpAnswer answer;
    bool begun, stopped, silent;
    Status failure; /* of begin or data */
    int64_t received;
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
    if (curl.global_init(3) != CURL_OK) return FAILED("libcurl could not be started");
    http->curl = curl;
    http->handle = curl.easy_init();
    if (!http->handle) return FAILED("out of memory while starting libcurl");
    *ret_http = http;
    http = NULL;
    return OK;
}

void http_free(Http *http) {
    if (!http) return;
    if (http->handle) http->curl.easy_cleanup(http->handle);
    if (http->curl.global_cleanup) http->curl.global_cleanup();
    free(http);
}

/* ---- what libcurl calls ---- */

/* The header's value without spaces around it, where the line is that header. */
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

/* "bytes 100-199/200"; the total may be "*". */
static void take_range(HttpAnswer *answer, const char *value) {
    const char *at;
    int64_t from, last, total = -1;
    if (strncasecmp(value, "bytes ", 6) != 0 || !parse_size(value + 6, &at, &from) || *at != '-') return;
    if (!parse_size(at + 1, &at, &last) || *at != '/') return;
    if (at[1] != '*' && !parse_size(at + 1, &at, &total)) return;
    answer->from = from;
    answer->total = total;
}

/* An ETag that is a file's SHA-256, as homes of large files name it before they send the client elsewhere. */
static void take_sum(HttpAnswer *answer, const char *value) {
    size_t digits = *value == '"' ? strspn(value + 1, "0123456789abcdefABCDEF") : 0;
    if (digits != 64 || strcmp(value + 65, "\"") != 0) return;
    for (size_t i = 0; i < digits; i++) answer->sha256[i] = (char)tolower((unsigned char)value[1 + i]);
}

static int three_digits(const char *at) {
    int number = 0;
    for (int i = 0; i < 3; i++) {
        if (at[i] < '0' || at[i] > '9') return 0;
        number = 10 * number + (at[i] - '0');
    }
    return number;
}

static size_t on_header(char *line, size_t one, size_t size, void *user) {
    Transfer *transfer = user;
    HttpAnswer *answer = &transfer->answer;
    char value[HTTP_TAG_SIZE];
    const char *end;
    size *= one;
    transfer->last_byte = clock_wall();
    if (size > 9 && !strncasecmp(line, "HTTP/", 5)) {
        const char *space = memchr(line, ' ', size);
        HttpAnswer next = {.total = -1, .from = -1};
        memcpy(next.sha256, answer->sha256, sizeof next.sha256);
        *answer = next;
        if (space && space + 4 < line + size) answer->status = three_digits(space + 1);
        if (answer->status == 200) answer->from = 0;
    } else if (header_value(line, size, "Content-Length", value, sizeof value)) {
        if (answer->status == 200 && !parse_size(value, &end, &answer->total)) answer->total = -1;
    } else if (header_value(line, size, "Content-Range", value, sizeof value)) {
        if (answer->status == 206) take_range(answer, value);
    } else if (header_value(line, size, "X-Linked-ETag", value, sizeof value)) {
        take_sum(answer, value);
    } else if (header_value(line, size, "ETag", value, sizeof value)) {
        if (value[0] == '"') memcpy(answer->tag, value, sizeof value); /* weak ones say too little */
    } else if (!*answer->tag && header_value(line, size, "Last-Modified", value, sizeof value)) {
        memcpy(answer->tag, value, sizeof value);
    }
    return size;
}

static Status begin(Transfer *transfer) {
    const HttpAnswer *answer = &transfer->answer;
    if (transfer->begun) return OK;
    transfer->begun = true;
    if (answer->from != 0 && answer->from != transfer->request->from)
        return FAILED("%s: the server sends another part of the file than was asked for",
                      transfer->request->url);
    return transfer->request->begin(transfer->request->user, answer);
}

static bool file_comes(const HttpAnswer *answer) {
    return answer->status == 200 || answer->status == 206;
}

static size_t on_data(char *data, size_t one, size_t size, void *user) {
    Transfer *transfer = user;
    size *= one;
    transfer->last_byte = clock_wall();
    transfer->received += (int64_t)size;
    if (!file_comes(&transfer->answer)) return transfer->received > ERROR_BODY_LIMIT ? 0 : size;
    transfer->failure = begin(transfer);
    if (!transfer->failure) transfer->failure = transfer->request->data(transfer->request->user, data, size);
    return transfer->failure ? 0 : size;
}

static int on_progress(void *user, int64_t total, int64_t now, int64_t up_total, int64_t up) {
    Transfer *transfer = user;
    (void)total, (void)now, (void)up_total, (void)up;
    transfer->stopped = transfer->request->stop && *transfer->request->stop;
    transfer->silent = clock_wall() - transfer->last_byte > transfer->request->timeout_s;
    return transfer->stopped || transfer->silent;
}

/* ---- a transfer ---- */

static Status add_header(const Curl *curl, void **list, const char *text) {
    void *longer = curl->slist_append(*list, text);
    if (!longer) return FAILED("out of memory while asking for a file");
    *list = longer;
    return OK;
}

static int64_t connect_timeout_ms(double seconds) {
    double ms = seconds * 1000;
    return ms < 1 ? 1 : ms > 1e9 ? (int64_t)1e9 : (int64_t)ms;
}

/* The certificates to trust, where the user names them as for the curl program. */
static const char *certificate_file(void) {
    const char *file = getenv("CURL_CA_BUNDLE");
    if (!file || !*file) file = getenv("SSL_CERT_FILE");
    return file && *file ? file : NULL;
}

/* Numbers are longs and pointers pointers, as libcurl reads them. */
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

/* "example.org" of "https://example.org:80/path". */
static Status host_of(const char *url, char **ret_host) {
    const char *from = strstr(url, "://");
    from = from ? from + 3 : url;
    return str_format(ret_host, "%.*s", (int)strcspn(from, "/:?#"), from);
}

/* A transfer that libcurl gave up. */
static Status transfer_failed(const Transfer *transfer, int code, const char *said, bool *ret_again) {
    const char *url = transfer->request->url;
    CLEANUP(mem_freep) char *host = NULL;
    TRY(host_of(url, &host));
    *ret_again = code == CURL_NO_CONNECTION || code == CURL_HTTP2_ERROR || code == CURL_HTTP2_STREAM ||
                 code == CURL_CUT || code == CURL_TIMED_OUT || code == CURL_NO_ANSWER ||
                 code == CURL_SEND_FAILED || code == CURL_RECEIVE_FAILED || transfer->silent;
    if (transfer->silent || code == CURL_TIMED_OUT)
        return FAILED("%s: nothing came for %g s", url, transfer->request->timeout_s);
    switch (code) {
    case CURL_NO_HOST:
        return FAILED(
            "%s: the host %s was not found; is this machine on the network? --from names a mirror or "
            "a directory",
            url, host);
    case CURL_NO_PROXY: return FAILED("%s: the proxy's host was not found", url);
    case CURL_NO_CONNECTION: return FAILED("%s: %s does not take connections", url, host);
    case CURL_BAD_PROTOCOL:
        return FAILED("%s: leads from https to an address that is not, which is not followed", url);
    case CURL_BAD_URL: return FAILED("%s: is not an address that can be asked", url);
    case CURL_REDIRECT_LOOP:
        return FAILED("%s: leads from one address to the next, more than %d times", url, REDIRECT_LIMIT);
    case CURL_BAD_CERTIFICATE: return FAILED("%s: %s does not show a certificate that is trusted", url, host);
    case CURL_CUT:
    case CURL_RECEIVE_FAILED:
    case CURL_NO_ANSWER: return FAILED("%s: the connection was cut", url);
    default: return FAILED("%s: the download failed: %s", url, said);
    }
}

/* An answer without the file. */
static Status refused(const Transfer *transfer, bool *ret_again) {
    const char *url = transfer->request->url;
    int status = transfer->answer.status;
    *ret_again =
        status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
    if (status == 404 || status == 410) return FAILED("%s: is not there (%d)", url, status);
    if (status == 401 || status == 403)
        return FAILED("%s: the server does not give it out (%d)", url, status);
    if (*ret_again) return FAILED("%s: the server is in trouble or busy (%d)", url, status);
    if (status == 416) return FAILED("%s: the server has fewer bytes than it said (416)", url);
    return FAILED("%s: the server answered %d instead of the file", url, status);
}

static Status judge(Transfer *transfer, int code, const char *said, HttpOutcome *outcome) {
    outcome->answer = transfer->answer;
    outcome->again = false;
    if (transfer->failure) return transfer->failure;
    if (transfer->stopped) return FAILED("stopped by a signal");
    if (code != CURL_OK && !(transfer->answer.status >= 400 && code == CURL_WRITE_REFUSED))
        return transfer_failed(transfer, code, said, &outcome->again);
    if (!file_comes(&transfer->answer)) return refused(transfer, &outcome->again);
    return begin(transfer); /* of an empty file */
}

Status http_get(Http *http, const HttpRequest *request, HttpOutcome *outcome) {
    Transfer transfer = {.request = request, .answer = {.total = -1}, .last_byte = clock_wall()};
    char error[CURL_ERROR_TEXT] = "", range[32];
    *outcome = (HttpOutcome){.answer = {.total = -1}};
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
    return judge(&transfer, code, *error ? error : http->curl.easy_strerror(code), outcome);
}
