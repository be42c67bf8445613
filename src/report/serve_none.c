/* Replaces serve.c in a build without libmicrohttpd. */
#include "report/serve.h"

bool serve_available(void) {
    return false;
}

bool serve_is_local(const char *address) {
    (void)address;
    return true;
}

Status serve_new(Server **ret_server, const ServeSpec *spec) {
    (void)ret_server, (void)spec;
    return FAILED("this build of weft cannot serve pages: install libmicrohttpd and build again");
}

int serve_port(const Server *server) {
    (void)server;
    return 0;
}

void serve_free(Server *server) {
    (void)server;
}
