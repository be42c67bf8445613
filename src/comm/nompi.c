/* comm/mpi.h in a build without MPI. */
#include "comm/mpi.h"

bool mpi_built(void) {
    return false;
}

const char *mpi_library(void) {
    return "none";
}

Status mpi_world_new(Group **ret_world) {
    (void)ret_world;
    return FAILED("this build has no MPI support and runs a single rank; install an MPI library with "
                  "headers, such as Open MPI, and rebuild");
}

Status mpi_node_group(Group *world, Group **ret_node) {
    (void)world;
    return group_new_self(ret_node);
}
