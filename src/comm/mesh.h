/* The device mesh: this rank's coordinates on the axes (comm/axes.h), and the groups of ranks that differ
 * only along some of them. */
#ifndef WEFT_COMM_MESH_H
#define WEFT_COMM_MESH_H

#include "comm/axes.h"

typedef struct Mesh {
    int rank, size;
    int extent[AXIS_COUNT];
    int at[AXIS_COUNT];
    int stride[AXIS_COUNT]; /* ranks between neighbors */
    Group *world;           /* all ranks; owned by the caller unless owns_world */
    Group *axis[AXIS_COUNT];
    /* Hybrid sharding divides the ranks with the same parameters, the data axis, into shard groups (adjacent
     * replicas that hold different shards) and replica groups (ranks that hold the same shard). With
     * spec.shard 0 these are the whole axis and a group of one. Replica r is rank r % shard->size of its
     * shard group and rank r / shard->size of its replica group. */
    Group *shard, *replica;
    /* Likewise for context parallelism: spec.heads adjacent ranks, which swap rows for heads, and the ranks
     * with the same place in each such group. Groups of one if spec.heads is 0. */
    Group *swap, *ring;
    /* Expert parallelism: `ep` adjacent ranks of those with the same parameters, which hold different experts
     * and exchange tokens. Of the ranks with the same experts, expert_shard has those of this rank's shard
     * group, or only this rank if `ep` does not divide it, and expert_replica those in the same place of each
     * other such group. Groups of one with ep 1, where experts belong to `shard` and `replica`. */
    int ep;
    Group *expert, *expert_shard, *expert_replica;
    Group *model; /* ranks of one replica, which have different parameters: tensor x pipeline */
    Group *ends;  /* first and last stage of the same replica; a group of one on other stages, and if there is
                   * only one stage */
    bool owns_world;
    const volatile sig_atomic_t *stop; /* of the current section, or NULL */
} Mesh;

/* mesh_ranks(spec) must equal the size of the world, which must outlive the mesh. */
MUST_USE Status mesh_new(Mesh **ret_mesh, Group *world, MeshSpec spec);
/* All axes of size one, over groups of one. */
MUST_USE Status mesh_new_self(Mesh **ret_mesh);
/* One rank of a mesh whose other ranks do not exist, over dry-run groups; see group_new_dryrun. Nodes have
 * `per_node` ranks; 0: there is one node. */
MUST_USE Status mesh_new_dryrun(Mesh **ret_mesh, MeshSpec spec, int rank, int per_node, bool staged);
void mesh_free(Mesh *mesh);
DEFINE_FREEP(Mesh, mesh)

/* Bytes this rank has sent through all groups of the mesh. */
void mesh_sent(const Mesh *mesh, CommBytes sent[COMM_KINDS]);
/* The same by axis, then through the world, and between ranks with different experts. */
enum { TRAFFIC_ALL = AXIS_COUNT, TRAFFIC_EXPERT, TRAFFICS };
void mesh_sent_by_traffic(const Mesh *mesh, CommBytes sent[TRAFFICS][COMM_KINDS]);
const char *mesh_traffic_name(int traffic); /* an axis's title, "all" or "expert" */
/* Seconds that this rank has waited. */
typedef struct MeshWaits {
    double axis[AXIS_COUNT], all; /* blocked, by axis; in any group, the world's included */
    double tickets;               /* the part of all of these spent on tensor operations */
    double cpu;                   /* of CPU time */
} MeshWaits;
MeshWaits mesh_waits(const Mesh *mesh);
/* Records operations of all groups from now on; NULL stops. No operation may be in flight. */
void mesh_trace(Mesh *mesh, Trace *trace);

/* A section is collective work that ranks can abandon, such as computing gradients: nothing that it changes
 * is saved. A rank whose *stop is positive abandons the section in the next mesh_section_check or operation,
 * which return STOPPED, and so do all other ranks. mesh_section_end votes: it succeeds on all ranks or on
 * none, and *ret_stop tells whether any rank was told to stop too late to abandon. After an abandoned
 * section, all ranks call mesh_recover before they communicate again. Ranks over NCCL never abandon. `stop`
 * may be NULL. */
void mesh_section_begin(Mesh *mesh, const volatile sig_atomic_t *stop);
/* A section that is never abandoned, only its end tells whether a rank was told to stop. */
void mesh_section_begin_whole(Mesh *mesh, const volatile sig_atomic_t *stop);
MUST_USE Status mesh_section_check(Mesh *mesh);
MUST_USE Status mesh_section_end(Mesh *mesh, bool *ret_stop);
/* The same, and replaces *vote by its maximum over all ranks, at no extra cost. */
MUST_USE Status mesh_section_vote(Mesh *mesh, bool *ret_stop, int64_t *vote);
MUST_USE Status mesh_recover(Mesh *mesh);

/* After a failure: group_drop for all groups. */
void mesh_drop(Mesh *mesh);

MeshSpec mesh_spec(const Mesh *mesh); /* without `shard` and `heads` */
/* Ranks that differ only along a set of axes are numbered in the world's order: the number of any rank, and
 * the rank with a number among those with this one. */
int mesh_number(const Mesh *mesh, unsigned axes, int rank);
int mesh_numbered(const Mesh *mesh, unsigned axes, int number);
/* host_reduce over the ranks that differ only along `axes`. */
MUST_USE Status mesh_reduce(Mesh *mesh, unsigned axes, void *data, int64_t count, DType dtype, ReduceOp op);

#endif
