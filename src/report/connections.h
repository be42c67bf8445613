/* The open connections of a server. A connection whose request is not complete in time is shut, and so is the
 * one that has waited longest if there are too many of them: connections without a request cannot keep others
 * out. Those that are being answered, such as event streams, are left alone. */
#ifndef WEFT_REPORT_CONNECTIONS_H
#define WEFT_REPORT_CONNECTIONS_H

#include "base/status.h"

typedef struct Connections Connections;

/* `limit`: seconds until a request is complete; `most`: connections that may wait for one. */
MUST_USE Status connections_new(Connections **ret_connections, double limit, size_t most);
void connections_free(Connections *connections);

/* Call from any thread; `fd` must be open until connections_closed. A connection waits for a request after it
 * is opened and after an answer. */
void connections_opened(Connections *connections, int fd);
void connections_answering(Connections *connections, int fd, bool answering);
void connections_closed(Connections *connections, int fd);

#endif
