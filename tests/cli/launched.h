/* Runs of several ranks on a pseudo-terminal, and their processes. */
#ifndef WEFT_TESTS_CLI_LAUNCHED_H
#define WEFT_TESTS_CLI_LAUNCHED_H

#include "device.h"
#include "terminal.h"

#include "cli/option.h"
#include "comm/mpi.h"

enum { SAVED = 75 };

#define TINY "--model gpt2-tiny --layers 1 --hidden 32 --heads 2 --seq 64 --batch 4 --threads 1 "

static inline int launched_setup(void **state) {
    static const char *const settings[][2] = {{"WEFT", WEFT_BINARY},
                                              {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                              {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                              {"OMPI_MCA_rmaps_base_oversubscribe", "1"}};
    for (size_t i = 0; i < COUNT_OF(settings); i++)
        if (setenv(settings[i][0], settings[i][1], 1)) return -1;
    return corpus_setup(state);
}

/* A run on two ranks that has done a step: this process, mpiexec and the ranks. On a GPU with
 * WEFT_TEST_DEVICE=cuda. */
typedef struct Launch {
    Terminal terminal;
    pid_t launcher[8], rank[8];
} Launch;

static inline void launch_open(Launch *launch, const char *out) {
    char line[512];
    snprintf(line, sizeof line,
             "exec $WEFT train --data self " TINY "--ranks 2 --steps 1000000 --eval-every 0 %s --out %s",
             test_on_cuda() ? "--device cuda" : "", out);
    launch->terminal = terminal_open(line);
    assert_reads(&launch->terminal, "/1000000   0%  loss ");
    type(&launch->terminal, "");
    assert_int_equal(children_of(launch->terminal.child, launch->launcher), 1);
    assert_int_equal(children_of(launch->launcher[0], launch->rank), 2);
}

#endif
