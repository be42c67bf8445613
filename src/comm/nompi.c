/* What comm/mpi.h has to say in a build without MPI. */
#include "comm/mpi.h"

bool mpi_built(void) {
    return false;
}

const char *mpi_library(void) {
    return "none";
}

Status mpi_world_new(Group **ret_world) {
    (void)ret_world;
    return FAILED("this weft was built without MPI and runs one rank: install an MPI with its headers, as "
                  "Open MPI, and build again");
}

Status mpi_node_group(Group *world, Group **ret_node) {
    (void)world;
    return group_new_self(ret_node);
}
