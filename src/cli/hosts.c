#include "cli/hosts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "comm/mpi.h"

static const char *option_text(const Invocation *call, const char *name) {
    const Slot *slot = invocation_slot(call, name);
    return slot ? *(const char *const *)slot->field : NULL;
}

/* How a launcher takes a list and a file of hosts, and one variable to pass to ranks on other hosts. MPICH
 * and its relatives pass all variables. */
typedef struct HostOptions {
    const char *library, *hosts, *hostfile, *variable;
} HostOptions;

static const HostOptions *host_options(void) {
    static const HostOptions all[] = {{"Open MPI", "--host", "--hostfile", "-x"}, {"", "-hosts", "-f", NULL}};
    return &all[strncmp(mpi_library(), all[0].library, strlen(all[0].library)) != 0];
}

static bool forwarded(const char *variable) {
    static const char *const prefixes[] = {"WEFT_", "OMP_",  "GOMP_",
                                           "KMP_",  "NCCL_", "CUDA_VISIBLE_DEVICES="};
    for (size_t i = 0; i < COUNT_OF(prefixes); i++)
        if (!strncmp(variable, prefixes[i], strlen(prefixes[i]))) return true;
    return false;
}

bool hosts_named(const Invocation *call) {
    return option_text(call, "hosts") || option_text(call, "hostfile");
}

bool hosts_on_line(const Invocation *call) {
    const Slot *hosts = invocation_slot(call, "hosts"), *file = invocation_slot(call, "hostfile");
    return (hosts && hosts->source == SOURCE_LINE) || (file && file->source == SOURCE_LINE);
}

size_t hosts_variables(void) {
    size_t count = 0;
    for (char **variable = environ; *variable; variable++) count += forwarded(*variable);
    return count;
}

Status hosts_add(const Invocation *call, char **argv, size_t *at, char **ret_names) {
    const char *hosts = option_text(call, "hosts"), *file = option_text(call, "hostfile");
    const HostOptions *options = host_options();
    size_t size = 1, used = 0;
    if (!hosts && !file) return OK;
    if (hosts && file) return USAGE("--hosts and --hostfile cannot be combined; use one or the other");
    for (char **variable = environ; *variable; variable++) size += strcspn(*variable, "=") + 1;
    char *names = NULL;
    TRY(mem_new(size, 1, &names));
    argv[(*at)++] = (char *)(uintptr_t)(hosts ? options->hosts : options->hostfile);
    argv[(*at)++] = (char *)(uintptr_t)(hosts ? hosts : file);
    for (char **variable = environ; *variable && options->variable; variable++) {
        size_t length = strcspn(*variable, "=");
        if (!forwarded(*variable)) continue;
        argv[(*at)++] = (char *)(uintptr_t)options->variable;
        argv[(*at)++] = memcpy(names + used, *variable, length);
        used += length + 1;
    }
    *ret_names = names;
    return OK;
}

const char *hosts_option(void) {
    return host_options()->hosts;
}

/* ---- without broken hosts ---- */

/* A host may be listed by its full name, and call itself by the first part of it. */
static bool same_host(const char *a, size_t a_size, const char *b, size_t b_size) {
    const char *a_dot = memchr(a, '.', a_size), *b_dot = memchr(b, '.', b_size);
    if (a_dot && !b_dot) a_size = (size_t)(a_dot - a);
    if (b_dot && !a_dot) b_size = (size_t)(b_dot - b);
    return a_size == b_size && !strncmp(a, b, a_size);
}

static bool is_broken(const char *host, size_t size, const char *broken) {
    for (const char *at = broken + strspn(broken, " "); *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (same_host(host, size, at, length)) return true;
        at += length;
    }
    return false;
}

typedef struct HostList {
    char *text;
    size_t used, dropped;
    int64_t slots;
} HostList;

/* Takes one entry: "name", "name:slots", or in files "name slots=N". The list is as long as the input. */
static void take_host(HostList *list, const char *entry, size_t size, const char *broken) {
    const char *colon = memchr(entry, ':', size), *equals = memchr(entry, '=', size);
    size_t name = strcspn(entry, ": \t,\n#");
    int64_t slots = colon ? atoll(colon + 1) : equals ? atoll(equals + 1) : 1;
    if (name > size) name = size;
    if (!name) return;
    if (is_broken(entry, name, broken)) {
        list->dropped++;
        return;
    }
    if (slots < 1) slots = 1;
    list->slots += slots;
    list->used += (size_t)sprintf(list->text + list->used, "%s%.*s:%lld", list->used ? "," : "", (int)name,
                                  entry, (long long)slots);
}

Status hosts_without(const Invocation *call, const char *broken, int64_t ranks, char **ret_list) {
    enum { LIMIT = 1 << 20, SLOTS_TEXT = 24 };
    const char *hosts = option_text(call, "hosts"), *file = option_text(call, "hostfile");
    CLEANUP(mem_freep) char *text = NULL;
    HostList list = {0};
    size_t entries = 1;
    *ret_list = NULL;
    if (!hosts && !file) return OK;
    TRY(hosts ? str_dup(hosts, &text) : file_read(file, LIMIT, &text, NULL));
    const char *separator = hosts ? "," : "\n";
    for (const char *at = text; (at = strpbrk(at, separator)); at++) entries++;
    TRY(mem_new(strlen(text) + entries * SLOTS_TEXT + 1, 1, &list.text));
    char *rest = NULL;
    for (char *entry = strtok_r(text, separator, &rest); entry; entry = strtok_r(NULL, separator, &rest)) {
        entry += strspn(entry, " \t");
        take_host(&list, entry, strcspn(entry, "#\r"), broken);
    }
    if (list.dropped && list.slots >= ranks)
        *ret_list = list.text;
    else
        free(list.text);
    return OK;
}

bool hosts_allocated(void) {
    static const char *const names[] = {"SLURM_JOB_ID",
                                        "PBS_NODEFILE",
                                        "LSB_JOBID",
                                        "PE_HOSTFILE",
                                        "OMPI_MCA_orte_default_hostfile",
                                        "PRTE_MCA_prte_default_hostfile"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (getenv(names[i])) return true;
    return false;
}
