/* The list of hosts that a command names with --hosts or --hostfile. */
#ifndef WEFT_CLI_HOSTLIST_H
#define WEFT_CLI_HOSTLIST_H

#include "base/memory.h"
#include "cli/command.h"

typedef struct Host {
    const char *name; /* may start with a user and "@" */
    int64_t slots;    /* 0: not given */
} Host;

typedef struct HostList {
    Host *host;
    size_t count;
    char *text; /* owns the names */
} HostList;

void host_list_done(HostList *list);
/* Without either option, or if the file is a pipe, which only the launcher can read, the list is empty. Fails
 * if it is malformed. */
MUST_USE Status host_list_read(const Invocation *call, HostList *ret_list);
/* Fails if all hosts have a number of slots and together fewer than `ranks`. */
MUST_USE Status host_list_check(const HostList *list, int64_t ranks);
/* The list without the hosts in `broken`, names separated by spaces, as the value of --hosts; NULL if none of
 * these names is in it, or the others have fewer than `ranks` slots. The caller frees it. */
MUST_USE Status host_list_without(const HostList *list, const char *broken, int64_t ranks, char **ret_hosts);
/* Names separated by spaces: whether a host is among them. A host may be listed by its full name and call
 * itself by the first part of it. */
bool host_among(const char *host, const char *names);

#endif
