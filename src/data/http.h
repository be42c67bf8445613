/* Downloads a file, or the rest of one, over HTTP. */
#ifndef WEFT_DATA_HTTP_H
#define WEFT_DATA_HTTP_H

#include <signal.h>
#include <stdint.h>

#include "base/status.h"

typedef struct Http Http;

/* Fails if libcurl is not installed. */
MUST_USE Status http_new(Http **ret_http);
void http_free(Http *http);
DEFINE_FREEP(Http, http)

enum { HTTP_TAG_SIZE = 256 };

/* What the server reports about the file. */
typedef struct HttpResponse {
    int status;    /* 200, 206, 404, ...; 0: no response */
    int64_t from;  /* offset of the first byte that follows */
    int64_t total; /* size of the complete file in bytes; -1: not reported */
    char
        tag[HTTP_TAG_SIZE]; /* version of the file for If-Range: strong ETag or modification time; or empty */
    char sha256[65];        /* lowercase, of the complete file, from X-Linked-ETag on a redirect; or empty */
} HttpResponse;

typedef struct HttpRequest {
    const char *url;
    int64_t from;     /* offset of the first byte to request; the server may start at 0 anyway */
    const char *tag;  /* with from > 0: tag of the version that the earlier bytes belong to; NULL: unknown */
    double timeout_s; /* maximum time without receiving a byte */
    const volatile sig_atomic_t *stop;
    /* `begin` is called once when a file arrives (200 or 206), then `data` with its bytes in order. A failure
     * ends the transfer. */
    Status (*begin)(void *user, const HttpResponse *response);
    Status (*data)(void *user, const void *data, size_t size);
    void *user;
} HttpRequest;

/* Result of a request; also set on failure. */
typedef struct HttpOutcome {
    HttpResponse response;
    bool retry; /* the failure may be temporary: a lost connection, a busy server */
} HttpOutcome;

/* Follows up to ten redirects, but never from https to http. */
MUST_USE Status http_get(Http *http, const HttpRequest *request, HttpOutcome *outcome);

/* Takes what is of interest from a line of a reply's header. */
void http_take_header(HttpResponse *response, const char *line, size_t size);

/* Whether it starts with http:// or https://. */
bool http_is_url(const char *text);

#endif
