/* One file by HTTP, or a part of it. */
#ifndef WEFT_DATA_HTTP_H
#define WEFT_DATA_HTTP_H

#include <signal.h>
#include <stdint.h>

#include "base/status.h"

typedef struct Http Http;

/* Fails where libcurl is not installed. */
MUST_USE Status http_new(Http **ret_http);
void http_free(Http *http);
DEFINE_FREEP(Http, http)

enum { HTTP_TAG_SIZE = 256 };

/* What the server says of the file. */
typedef struct HttpAnswer {
    int status;              /* 200, 206, 404 ...; 0: none came */
    int64_t from;            /* where the bytes that follow begin */
    int64_t total;           /* bytes of the whole file; -1: not said */
    char tag[HTTP_TAG_SIZE]; /* changes when the file does, for If-Range: a strong ETag or else the time of
                              * the last change; empty: neither was said */
    char sha256[65];         /* of the whole file, where a server on the way to it says so (X-Linked-ETag), in
                              * small letters; else empty */
} HttpAnswer;

typedef struct HttpRequest {
    const char *url;
    int64_t from;     /* the first byte that is wanted; the server may begin at 0 all the same */
    const char *tag;  /* with from > 0: of the file that the bytes before are of; NULL: none */
    double timeout_s; /* without a byte */
    const volatile sig_atomic_t *stop;
    /* Once, when a file comes (200 or 206), and then its bytes in order. A failure ends the transfer. */
    Status (*begin)(void *user, const HttpAnswer *answer);
    Status (*data)(void *user, const void *data, size_t size);
    void *user;
} HttpRequest;

/* How it went, filled in also on failure. */
typedef struct HttpOutcome {
    HttpAnswer answer;
    bool again; /* a failure that may pass: a cut connection, a busy server */
} HttpOutcome;

/* Redirects are followed, ten at most, and never from https to http. */
MUST_USE Status http_get(Http *http, const HttpRequest *request, HttpOutcome *outcome);

/* Whether it starts with http:// or https://. */
bool http_is_url(const char *text);

#endif
