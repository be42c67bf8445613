/* libcurl, loaded on first use: the program builds without its headers, and without the library only
 * downloads fail. The constants are part of libcurl's ABI, which has been stable since soname 4; the tests
 * compare them with the installed header, if any. */
#ifndef WEFT_DATA_CURL_H
#define WEFT_DATA_CURL_H

#include <stdint.h>

#include "base/status.h"

typedef enum CurlOption {
    CURL_WRITE_DATA = 10001,
    CURL_SET_URL = 10002,
    CURL_SET_RANGE = 10007,
    CURL_ERROR_BUFFER = 10010,
    CURL_USER_AGENT = 10018,
    CURL_HEADERS = 10023,
    CURL_HEADER_DATA = 10029,
    CURL_PROGRESS_DATA = 10057,
    CURL_CA_FILE = 10065,
    CURL_LOW_SPEED_LIMIT = 19,
    CURL_LOW_SPEED_TIME = 20,
    CURL_NO_PROGRESS = 43,
    CURL_FOLLOW = 52,
    CURL_MAX_REDIRECTS = 68,
    CURL_NO_SIGNAL = 99,
    CURL_CONNECT_TIMEOUT_MS = 156,
    CURL_SET_PROTOCOLS = 181,
    CURL_REDIRECT_PROTOCOLS = 182,
    CURL_WRITE_FUNCTION = 20011,
    CURL_HEADER_FUNCTION = 20079,
    CURL_PROGRESS_FUNCTION = 20219,
} CurlOption;

enum { CURL_HTTP = 1, CURL_HTTPS = 2 }; /* bits of CURL_SET_PROTOCOLS and CURL_REDIRECT_PROTOCOLS */

/* Result codes of a transfer. */
typedef enum CurlResult {
    CURL_OK = 0,
    CURL_BAD_PROTOCOL = 1,
    CURL_BAD_URL = 3,
    CURL_NO_PROXY = 5,
    CURL_NO_HOST = 6,
    CURL_NO_CONNECTION = 7,
    CURL_WEIRD_ANSWER = 8,
    CURL_HTTP2_ERROR = 16,
    CURL_CUT = 18,
    CURL_WRITE_REFUSED = 23,
    CURL_TIMED_OUT = 28,
    CURL_ABORTED = 42,
    CURL_REDIRECT_LOOP = 47,
    CURL_NO_ANSWER = 52,
    CURL_SEND_FAILED = 55,
    CURL_RECEIVE_FAILED = 56,
    CURL_BAD_CERTIFICATE = 60,
    CURL_HTTP2_STREAM = 92,
} CurlResult;

enum { CURL_ERROR_TEXT = 256 };

/* The library functions in use, under their own names. */
typedef struct Curl {
    int (*global_init)(long flags);
    void (*global_cleanup)(void);
    void *(*easy_init)(void);
    void (*easy_cleanup)(void *handle);
    void (*easy_reset)(void *handle);
    int (*easy_setopt)(void *handle, int option, ...);
    int (*easy_perform)(void *handle);
    const char *(*easy_strerror)(int code);
    void *(*slist_append)(void *list, const char *text);
    void (*slist_free_all)(void *list);
} Curl;

/* Loads the library, which stays loaded until the program exits. */
MUST_USE Status curl_open(Curl *ret_curl);

#endif
