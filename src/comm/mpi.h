/* Ranks over MPI. Uses the MPI-3 standard only.
 *
 * MPI is initialized only if a launcher (mpirun, mpiexec, srun with PMI) started the program, as seen from
 * its environment (OMPI_COMM_WORLD_SIZE, PMI_SIZE, PMIX_RANK ...). In a build without MPI these functions
 * exist and report that MPI is not supported.
 */
#ifndef WEFT_COMM_MPI_H
#define WEFT_COMM_MPI_H

#include "comm/group.h"

/* Whether a launcher started this program, and the rank and size it announced (size 0: not announced). */
typedef struct Launched {
    bool launched;
    int rank, size;
} Launched;
Launched mpi_launched(void);

bool mpi_built(void);
const char *mpi_library(void); /* "Open MPI v4.1.4", or "none" */

/* The group of all ranks. Once per process. Free it after all groups split from it; this finalizes MPI. */
MUST_USE Status mpi_world_new(Group **ret_world);
/* The ranks of `world` on this host. */
MUST_USE Status mpi_node_group(Group *world, Group **ret_node);

#endif
