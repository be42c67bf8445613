/* The grid of ranks: data x tensor x pipeline, tensor innermost. */
#ifndef WEFT_COMM_MESH_H
#define WEFT_COMM_MESH_H

#include "comm/group.h"

typedef enum { AXIS_DP, AXIS_TP, AXIS_PP, AXIS_COUNT } Axis;

typedef struct Mesh {
    int rank, size;
    int extent[AXIS_COUNT];
    int at[AXIS_COUNT];
    Group *world;
    Group *axis[AXIS_COUNT];
} Mesh;

/* All axes of size one, over groups of one. */
MUST_USE Status mesh_new_self(Mesh **ret_mesh);
void mesh_free(Mesh *mesh);
DEFINE_FREEP(Mesh, mesh)

/* The rank at coordinates (dp, tp, pp). */
int mesh_rank(const Mesh *mesh, int dp, int tp, int pp);

#endif
