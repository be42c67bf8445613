#include "cli/hosts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "comm/mpi.h"

enum { FILE_LIMIT = 1 << 20 };

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

/* ---- the host file ---- */

/* Overwrites comments, which begin with # or // or stand between C's marks, with blanks. */
static void clear_comments(char *text) {
    for (char *at = text; *at;) {
        char *end = at;
        if (*at == '#' || !strncmp(at, "//", 2))
            end = at + strcspn(at, "\n");
        else if (!strncmp(at, "/*", 2))
            end = strstr(at + 2, "*/") ? strstr(at + 2, "*/") + 2 : at + strlen(at);
        if (end == at) at++;
        for (; at < end; at++)
            if (*at != '\n') *at = ' ';
    }
}

/* Whether a line can be a host and its settings, "node1 slots=4". Launchers differ in the settings they know,
 * and some ignore words that are none; so this only rejects what none of them accepts. */
static bool is_host_line(const char *line) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-@:+^[]%";
    enum { WORDS = 4 }; /* more without a setting are prose */
    size_t words = 0, settings = 0;
    for (const char *at = line; *(at += strspn(at, " \t\r"));) {
        size_t size = strcspn(at, " \t\r");
        if (memchr(at, '=', size))
            settings++;
        else if (strspn(at, letters) < size)
            return false;
        words++;
        if (words == 1 && settings) return false;
        if (size > 6 && !strncmp(at, "slots=", 6) && strspn(at + 6, "0123456789") != size - 6) return false;
        at += size;
    }
    return settings || words <= WORDS;
}

/* The launcher's own messages about a file that it cannot use do not say what is wrong. Pipes can be read
 * only once, by the launcher. */
static Status check_file(const char *path) {
    struct stat st;
    CLEANUP(mem_freep) char *text = NULL;
    size_t number = 0, hosts = 0;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return OK;
    Status status = file_read(path, FILE_LIMIT, &text, NULL);
    if (status) return status_wrap(status, "--hostfile");
    clear_comments(text);
    for (char *line = text; line; number++) {
        char *next = strchr(line, '\n');
        if (next) *next++ = 0;
        if (!is_host_line(line))
            return USAGE("--hostfile %s: line %zu: expected a host such as 'node1 slots=4', found '%.40s'",
                         path, number + 1, line);
        hosts += line[strspn(line, " \t\r")] != 0;
        line = next;
    }
    return hosts ? OK : USAGE("--hostfile %s: names no host; expected lines such as 'node1 slots=4'", path);
}

Status hosts_add(const Invocation *call, char **argv, size_t *at, char **ret_names) {
    const char *hosts = option_text(call, "hosts"), *file = option_text(call, "hostfile");
    const HostOptions *options = host_options();
    size_t size = 1, used = 0;
    if (!hosts && !file) return OK;
    if (hosts && file) return USAGE("--hosts and --hostfile cannot be combined; use one or the other");
    if (file) TRY(check_file(file));
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

Status hosts_unreached(const Invocation *call, const char *launcher) {
    const char *hosts = option_text(call, "hosts"), *file = option_text(call, "hostfile");
    return FAILED(
        "%s could not start ranks on %s%s; check that ssh reaches each host without a password, and "
        "that weft is installed there at the same path",
        launcher, hosts ? "" : "the hosts in ", hosts ? hosts : file);
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
    enum { SLOTS_TEXT = 24 };
    const char *hosts = option_text(call, "hosts"), *file = option_text(call, "hostfile");
    CLEANUP(mem_freep) char *text = NULL;
    HostList list = {0};
    size_t entries = 1;
    *ret_list = NULL;
    if (!hosts && !file) return OK;
    TRY(hosts ? str_dup(hosts, &text) : file_read(file, FILE_LIMIT, &text, NULL));
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
