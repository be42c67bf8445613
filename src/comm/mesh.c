#include "comm/mesh.h"

#include "base/memory.h"

Status mesh_new_self(Mesh **ret_mesh) {
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    TRY(mem_new(1, sizeof *mesh, &mesh));
    mesh->size = 1;
    TRY(group_new_self(&mesh->world));
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) {
        mesh->extent[axis] = 1;
        TRY(group_new_self(&mesh->axis[axis]));
    }
    *ret_mesh = mesh;
    mesh = NULL;
    return OK;
}

void mesh_free(Mesh *mesh) {
    if (!mesh) return;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) group_free(mesh->axis[axis]);
    group_free(mesh->world);
    free(mesh);
}

int mesh_rank(const Mesh *mesh, int dp, int tp, int pp) {
    return (pp * mesh->extent[AXIS_DP] + dp) * mesh->extent[AXIS_TP] + tp;
}
