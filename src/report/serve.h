/* The report page over HTTP: a read-only server that shows runs while they train. */
#ifndef WEFT_REPORT_SERVE_H
#define WEFT_REPORT_SERVE_H

#include "report/results.h"

typedef struct Server Server;

typedef struct ServeSpec {
    const char *address; /* to listen on: IPv4 or IPv6 */
    int port;            /* 0: any free one */
    double interval;     /* seconds between looks at the runs */
    double request_s;    /* until a connection's request is complete; 0: 5 */
    /* Reads the runs into empty results. It is called by several threads, one at a time. */
    Status (*load)(const void *context, Results *results);
    const void *context;
} ServeSpec;

/* Whether this build can serve; without libmicrohttpd, serve_new fails. */
bool serve_available(void);
/* Whether only this machine can reach an address. */
bool serve_is_local(const char *address);
/* Starts a server, which runs in threads of its own until serve_free. The specification must outlive it.
 *
 *   /              the page; its script replaces its contents whenever an event comes
 *   /events        server-sent events: the new contents, after something has changed
 *   /results.json  as `weft compare` writes it */
MUST_USE Status serve_new(Server **ret_server, const ServeSpec *spec);
int serve_port(const Server *server);
void serve_free(Server *server);
DEFINE_FREEP(Server, serve)

#endif
