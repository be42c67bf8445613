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
    const char *library, *hosts, *hostfile, *variable, *logs;
} HostOptions;

static const HostOptions *host_options(void) {
    static const HostOptions all[] = {{"Open MPI", "--host", "--hostfile", "-x", "--output-filename"},
                                      {"", "-hosts", "-f", NULL, NULL}};
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

bool hosts_log_on_line(const Invocation *call) {
    const Slot *slot = invocation_slot(call, "log-ranks");
    return slot && slot->source == SOURCE_LINE;
}

bool hosts_start_here(const Invocation *call) {
    CLEANUP(host_list_done) HostList list = {0};
    CLEANUP(status_freep) Status status = host_list_read(call, &list);
    return !status && !hosts_allocated() &&
           (list.count ? reach_is_here(list.host[0].name) : !hosts_named(call));
}

bool hosts_verbose(const Invocation *call) {
    const Slot *slot = invocation_slot(call, "verbose");
    return slot && *(const bool *)slot->field;
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

/* Without a name, the hosts in a file. */
static Status not_started(const Invocation *call, const char *launcher) {
    const char *hosts = option_text(call, "hosts"), *file = option_text(call, "hostfile");
    return FAILED(
        "%s could not start ranks on %s%s%s; check that weft is installed on each host at the same path",
        launcher, hosts ? "" : "the hosts in ", hosts ? hosts : file,
        hosts_allocated() ? "" : ", although ssh reaches them");
}

Status hosts_unreached(const Invocation *call, const char *launcher, bool *ret_named, bool *ret_asks) {
    CLEANUP(host_list_done) HostList list = {0};
    CLEANUP(reach_freep) Reach *reach = NULL;
    *ret_named = *ret_asks = false;
    if (!hosts_allocated()) TRY(host_list_read(call, &list));
    TRY(reach_new(&reach, &list, NULL));
    reach_wait(reach, NULL);
    *ret_named = reach_silent(reach)[0] != 0;
    *ret_asks = reach_asks(reach);
    if (!*ret_named) return not_started(call, launcher);
    return FAILED("ssh does not reach %s; 'ssh HOST true' must succeed for each host without asking anything",
                  reach_reasons(reach));
}

Status hosts_log(const Invocation *call, int64_t start, char **ret_option, char **ret_dir) {
    const char *dir = option_text(call, "log-ranks");
    if (!dir) return OK;
    if (!host_options()->logs)
        return USAGE("--log-ranks needs Open MPI's mpirun, but weft was built with %s", mpi_library());
    if (strpbrk(dir, ",:"))
        return USAGE(
            "--log-ranks %s: mpirun accepts no directory with a comma or colon in its name; use another",
            dir);
    if (!start) TRY(dir_make(dir)); /* without it, Open MPI's daemon crashes, and mpirun hangs */
    *ret_option = (char *)(uintptr_t)host_options()->logs;
    mem_freep(ret_dir);
    return start ? str_format(ret_dir, "%s/restart-%lld", dir, (long long)start) : str_dup(dir, ret_dir);
}

const char *hosts_option(void) {
    return host_options()->hosts;
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
