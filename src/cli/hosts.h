/* The hosts on which a launcher starts ranks: --hosts, --hostfile, or those of a batch system. */
#ifndef WEFT_CLI_HOSTS_H
#define WEFT_CLI_HOSTS_H

#include "base/memory.h"
#include "cli/command.h"

/* ---- telling the launcher ---- */

/* Whether the command has --hosts or --hostfile. */
bool hosts_named(const Invocation *call);
bool hosts_on_line(const Invocation *call); /* the same, on the command line and not in a file */
/* Whether rank 0 runs on this host, as far as it is known before the start. */
bool hosts_start_here(const Invocation *call);
/* Whether the launcher's own explanations are wanted. */
bool hosts_verbose(const Invocation *call);
/* Whether a batch system or the user tells the launcher on which nodes to start ranks. */
bool hosts_allocated(void);

/* Number of variables that ranks on other hosts need; hosts_add adds up to two words for each and HOST_WORDS.
 */
enum { HOST_WORDS = 2 };
size_t hosts_variables(void);
/* Adds the launcher's options for the hosts and the variables at argv[*at]. *ret_names owns strings in argv;
 * it stays untouched without hosts. */
MUST_USE Status hosts_add(const Invocation *call, char **argv, size_t *at, char **ret_names);

/* The failure of a launcher that ended before any rank ran, for a command with --hosts or --hostfile. Asks
 * the hosts: *ret_named is whether the message names those that do not answer, *ret_asks whether ssh asks
 * something. */
MUST_USE Status hosts_unreached(const Invocation *call, const char *launcher, bool *ret_named,
                                bool *ret_asks);
/* With --log-ranks: the launcher's option for files with what each rank prints, and its value for the first
 * start (0) or a later one, which replaces the one before. Both stay untouched without --log-ranks. */
bool hosts_log_on_line(const Invocation *call); /* given on the command line and not in a file */
MUST_USE Status hosts_log(const Invocation *call, int64_t start, char **ret_option, char **ret_dir);
/* The launcher's option for a list of hosts. */
const char *hosts_option(void);

/* ---- the list that --hosts or --hostfile names ---- */

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

/* ---- asking over ssh whether they answer; see reach.c ---- */

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
