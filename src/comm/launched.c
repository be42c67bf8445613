/* Environment variables set by launchers. */
#include <stdlib.h>

#include "comm/mpi.h"

/* One row per interface; the first whose rank is set wins. Slurm sets its own variables even for tasks that
 * cannot form an MPI world, so a rank must come from one of the interfaces below. */
static const struct {
    const char *rank, *size;
} names[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, /* Open MPI's mpirun */
    {"PMI_RANK", "PMI_SIZE"},                         /* MPICH, Intel MPI, MVAPICH, srun --mpi=pmi2 */
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},            /* srun --mpi=pmix, prrte */
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},   /* MVAPICH's own launcher */
};

static bool number(const char *name, int *ret_value) {
    const char *text = name ? getenv(name) : NULL;
    if (!text || *text < '0' || *text > '9') return false;
    *ret_value = (int)strtol(text, NULL, 10);
    return true;
}

Launched mpi_launched(void) {
    Launched found = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names && !found.launched; i++) {
        found.launched = number(names[i].rank, &found.rank);
        if (found.launched && !number(names[i].size, &found.size)) found.size = 0;
    }
    return found;
}
