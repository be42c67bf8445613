/* --cp: ranks that divide the KV cache. All run the whole command; the first one prints. */
#include "cli/generate.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/format.h"
#include "cli/launch.h"
#include "comm/cores.h"
#include "comm/mpi.h"

/* Set for ranks whose standard output goes to a terminal through this process. */
#define OUTPUT_VARIABLE "WEFT_OUTPUT_TERMINAL"

/* mpirun gives ranks a terminal of its own, wherever it writes what they print. */
bool generate_to_terminal(FILE *out) {
    return launch_is_ours() ? getenv(OUTPUT_VARIABLE) != NULL : isatty(fileno(out));
}

static bool has_input(const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], "-") == 0) return true;
    return false;
}

/* Ranks have no terminal, and only one of them would have standard input. */
static Status check_ranks(const GenerateConfig *config) {
    Launched launched = mpi_launched();
    if (strcmp(config->device, "cpu")) return USAGE("--cp needs --device cpu");
    if (config->interactive) return USAGE("--interactive cannot be combined with --cp");
    if (has_input(config->prompts, config->prompts_count) || has_input(config->files, config->files_count) ||
        has_input(config->lines, config->lines_count))
        return USAGE("--cp cannot be combined with a prompt from standard input (-); save it to a file");
    if (launched.launched && launched.size != config->cp)
        return USAGE("--cp %lld does not match the %d rank%s that the launcher started; use --cp %d",
                     (long long)config->cp, launched.size, PLURAL(launched.size), launched.size);
    return OK;
}

Status generate_enter(Invocation *call, GenerateConfig *config, bool *ret_here) {
    CoreShare share;
    const char *openmp = getenv("OMP_NUM_THREADS");
    *ret_here = true;
    if (config->cp == 1) return OK;
    TRY(check_ranks(config));
    if (!mpi_launched().launched && isatty(STDOUT_FILENO)) setenv(OUTPUT_VARIABLE, "1", 1);
    TRY(launch(call, config->cp, false, ret_here));
    if (!*ret_here) return OK;
    TRY(cores_share(call->world, config->threads ? (int)config->threads : openmp ? atoi(openmp) : 0, &share));
    config->threads = share.threads;
    return OK;
}
