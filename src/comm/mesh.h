/* The grid of ranks: data x tensor x pipeline. Tensor ranks are neighbours, since they talk most; then come
 * the replicas, then the stages. */
#ifndef WEFT_COMM_MESH_H
#define WEFT_COMM_MESH_H

#include "comm/group.h"

typedef enum { AXIS_DP, AXIS_TP, AXIS_PP, AXIS_COUNT } Axis;

typedef struct MeshSpec {
    int dp, tp, pp;
    int shard; /* replicas that share out what is sharded; must divide dp. 0: all of them */
} MeshSpec;

typedef struct Mesh {
    int rank, size;
    int extent[AXIS_COUNT];
    int at[AXIS_COUNT];
    Group *world; /* all ranks; the caller's, except in a mesh of one rank that made its own */
    Group *axis[AXIS_COUNT];
    /* The data axis cut in two: neighbours that share out what is sharded, and those that hold the same
     * part. With spec.shard 0 they are the whole axis and a group of one. Replica r of the axis is rank
     * r % shard->size of its shard group, and rank r / shard->size of its replica group. */
    Group *shard, *replica;
    Group *model; /* all ranks of one replica: tensor x pipeline, rank pp * tp extent + tp */
    Group *ends;  /* the first and the last stage at the same dp and tp, in this order; of one rank for
                     stages in between, or when there is one stage */
    bool owns_world;
} Mesh;

/* dp * tp * pp must be the world's size. The world must live longer than the mesh. */
MUST_USE Status mesh_new(Mesh **ret_mesh, Group *world, MeshSpec spec);
/* All axes of size one, over groups of one. */
MUST_USE Status mesh_new_self(Mesh **ret_mesh);
/* A rank's place in a grid that is not there, over groups on paper; see group_new_dryrun. */
MUST_USE Status mesh_new_dryrun(Mesh **ret_mesh, MeshSpec spec, int rank, bool staged);
void mesh_free(Mesh *mesh);
DEFINE_FREEP(Mesh, mesh)

/* Bytes that this rank has sent through all of the mesh's groups. */
void mesh_sent(const Mesh *mesh, uint64_t sent[COMM_KINDS]);
/* The same by axis; what goes to all ranks is last. */
void mesh_sent_by_axis(const Mesh *mesh, uint64_t sent[AXIS_COUNT + 1][COMM_KINDS]);
const char *mesh_axis_name(int axis); /* "data", "tensor", "pipeline", "all" */
/* Seconds that this rank has been blocked by other replicas, tensor ranks and stages. */
void mesh_waited(const Mesh *mesh, double waited[AXIS_COUNT]);
/* Of those, the seconds for operations on tensors, as of the last mesh_waited. */
double mesh_waited_tickets(const Mesh *mesh);
/* Seconds of processor time that went into waiting, for whomever. */
double mesh_waited_cpu(const Mesh *mesh);
/* From now on what the groups do is recorded; NULL: no more. Nothing may be in flight. */
void mesh_trace(Mesh *mesh, Trace *trace);

/* The rank at coordinates (dp, tp, pp). */
int mesh_rank(const Mesh *mesh, int dp, int tp, int pp);

#endif
