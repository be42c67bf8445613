/* Ranks over MPI, of which only the MPI-3 standard is used.
 *
 * A program is one of several ranks when a launcher started it: mpirun and mpiexec of Open MPI, MPICH and
 * their kin, or srun with a process management interface. They say so in the environment
 * (OMPI_COMM_WORLD_SIZE, PMI_SIZE, PMIX_RANK ...), and only then is MPI initialised: a program started by
 * itself never touches it. Without MPI at build time these functions are there, and say so.
 */
#ifndef WEFT_COMM_MPI_H
#define WEFT_COMM_MPI_H

#include "comm/group.h"

/* Whether a launcher started this program as one of several ranks, or as the only one; which rank, by the
 * launcher's word, and of how many (0: it does not say). */
typedef struct Launched {
    bool launched;
    int rank, size;
} Launched;
Launched mpi_launched(void);

bool mpi_built(void);
const char *mpi_library(void); /* "Open MPI v4.1.4", or "none" */

/* The group of all ranks. Once in a process; freeing it, after all groups split from it, ends MPI. */
MUST_USE Status mpi_world_new(Group **ret_world);
/* The ranks of `world` on this machine. */
MUST_USE Status mpi_node_group(Group *world, Group **ret_node);

#endif
