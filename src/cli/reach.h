/* Asking hosts over ssh whether they answer; see reach.c. */
#ifndef WEFT_CLI_REACH_H
#define WEFT_CLI_REACH_H

#include "base/memory.h"
#include "cli/hostlist.h"

typedef struct Reach Reach;

/* Starts to ask all hosts of the list, or only those in `names`, which are separated by spaces; NULL: all. A
 * name of this host is not asked. */
MUST_USE Status reach_new(Reach **ret_reach, const HostList *list, const char *names);
void reach_free(Reach *reach);
DEFINE_FREEP(Reach, reach)
/* Whether all have answered or had time to. Does not block. */
bool reach_ended(Reach *reach);
/* Waits for that. False if *stop became nonzero before. `stop` may be NULL. */
bool reach_wait(Reach *reach, const volatile sig_atomic_t *stop);
/* After the end: the names of hosts that do not answer, separated by spaces, and with the reason for each:
 * "node2 (Host key verification failed), node3 (No route to host)". "" if all answer. */
const char *reach_silent(const Reach *reach);
const char *reach_reasons(const Reach *reach);
/* Whether ssh would ask for a password or a key: waiting does not help. */
bool reach_asks(const Reach *reach);

/* Whether a name is one of this host. */
bool reach_is_here(const char *name);
/* Makes ssh never ask anything, and give up on a host after 10 s, in launchers too. */
MUST_USE Status reach_set_environment(void);

#endif
