/* Loads libcurl: the OpenSSL, GnuTLS or NSS build, whichever is installed. */
#include "data/curl.h"

#include <dlfcn.h>
#include <string.h>

static const char *const library_names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4",
                                            "libcurl.so"};

/* Stores a symbol in a function pointer. POSIX guarantees that both kinds of pointer have the same
 * representation. */
static bool find(void *library, const char *name, void *ret_function) {
    void *symbol = dlsym(library, name);
    if (symbol) memcpy(ret_function, &symbol, sizeof symbol);
    return symbol;
}

Status curl_open(Curl *ret_curl) {
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof library_names / sizeof *library_names; i++)
        library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return FAILED("downloads need libcurl, which is not installed (Debian, Ubuntu: apt install "
                      "libcurl4); use {from} DIR for files that you already have");
    Curl curl;
    bool complete = find(library, "curl_global_init", &curl.global_init) &&
                    find(library, "curl_global_cleanup", &curl.global_cleanup) &&
                    find(library, "curl_easy_init", &curl.easy_init) &&
                    find(library, "curl_easy_cleanup", &curl.easy_cleanup) &&
                    find(library, "curl_easy_reset", &curl.easy_reset) &&
                    find(library, "curl_easy_setopt", &curl.easy_setopt) &&
                    find(library, "curl_easy_perform", &curl.easy_perform) &&
                    find(library, "curl_easy_strerror", &curl.easy_strerror) &&
                    find(library, "curl_slist_append", &curl.slist_append) &&
                    find(library, "curl_slist_free_all", &curl.slist_free_all);
    if (!complete)
        return FAILED(
            "the installed libcurl is too old; update it, or use {from} DIR for files that you already have");
    *ret_curl = curl;
    return OK;
}
