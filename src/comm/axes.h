/* The axes along which the ranks of a run are arranged: a table with one row per axis, from which follow
 * layouts and their text and JSON, options, groups, placement, traffic and traces.
 *
 * The first axis, data parallelism, takes the ranks that the others leave. An extent of 0 is one rank, so
 * that a layout need not mention every axis. */
#ifndef WEFT_COMM_AXES_H
#define WEFT_COMM_AXES_H

#include "base/json.h"
#include "comm/group.h"

/* X(id, name, title, place, distance, use, copies, shown, help), in the order in which layouts are written:
 *   name      field of MeshSpec, option, key in JSON
 *   title     in traces, and of its traffic and waits
 *   place     what a rank's coordinate is called
 *   distance  neighbors on the axis with the smallest are adjacent ranks: those that communicate most
 *   use       of the group of the ranks along the axis
 *   copies    whether these ranks hold the same parameters, which ZeRO can shard
 *   shown     in layouts also if it has one rank
 *   help      of the option */
#define MESH_AXES(X)                                                                                         \
    X(DP, dp, "data", "replica", 20, GROUP_HOST, true, true, "Data parallelism: number of replicas.")        \
    X(TP, tp, "tensor", "tensor", 10, GROUP_TENSORS, false, true,                                            \
      "Tensor parallelism: ranks that split each layer.")                                                    \
    X(PP, pp, "pipeline", "stage", 30, GROUP_RING, false, true, "Pipeline parallelism: number of stages.")   \
    X(CP, cp, "context", "part", 15, GROUP_TENSORS, true, false,                                             \
      "Context parallelism: ranks that split each sequence.")

#define MESH_AXIS_ID(id, ...) AXIS_##id,
typedef enum { MESH_AXES(MESH_AXIS_ID) AXIS_COUNT } Axis;

/* The extents by axis and, in the same memory, by name. */
#define MESH_AXIS_INT(id, name, ...) int name;
#define MESH_EXTENTS                                                                                         \
    union {                                                                                                  \
        int extent[AXIS_COUNT];                                                                              \
        struct {                                                                                             \
            MESH_AXES(MESH_AXIS_INT)                                                                         \
        };                                                                                                   \
    }

typedef struct MeshSpec {
    MESH_EXTENTS;
    int shard; /* size of ZeRO shard groups; must divide the replicas. 0: all of them */
    int heads; /* adjacent ranks of context parallelism that swap rows for heads, where the others pass keys
                * and values on; must divide cp. 0: there are no such groups */
    int ep;    /* expert parallelism: adjacent ranks, of those with the same parameters otherwise, that hold
                * different experts; must divide mesh_copies. 0: one, with all experts */
} MeshSpec;

typedef struct AxisInfo {
    const char *name, *title, *place;
    int distance;
    GroupUse use;
    bool copies, shown;
} AxisInfo;

const AxisInfo *axis_info(Axis axis);
/* The axis with the n-th smallest distance, from 0. */
Axis axis_by_distance(int n);

/* Sets of axes, as bits. */
#define AXIS_SET(axis) (1u << (axis))
#define MESH_AXIS_COPIES(id, name, title, place, distance, use, copies, ...)                                 \
    | ((copies) ? AXIS_SET(AXIS_##id) : 0)
enum {
    AXES_ALL = AXIS_SET(AXIS_COUNT) - 1,
    AXES_COPIES = 0 MESH_AXES(MESH_AXIS_COPIES),
    AXES_MODEL = AXES_ALL & ~AXES_COPIES
};

/* Ranks along an axis, at least 1, and along all axes of a set together, which saturates. */
int mesh_extent(MeshSpec spec, Axis axis);
int64_t mesh_ranks(MeshSpec spec, unsigned axes);
/* How far apart neighbors on an axis are, in ranks, and on the nearest axis of a set. */
int mesh_stride(MeshSpec spec, Axis axis);
int mesh_apart(MeshSpec spec, unsigned axes);
/* The ranks with the same parameters, the size of the groups that shard them, and the ranks of expert
 * parallelism, at least 1. */
int mesh_copies(MeshSpec spec);
int mesh_shard(MeshSpec spec);
int mesh_experts(MeshSpec spec);
/* The largest divisor of that which divides the ranks with the same parameters. */
int mesh_experts_fit(MeshSpec spec);
/* The ranks of a shard group that have the same experts. */
int mesh_experts_shard(MeshSpec spec);
bool mesh_same(MeshSpec a, MeshSpec b);
/* Whether a layout's text and JSON have an axis. */
bool mesh_shows(MeshSpec spec, Axis axis);
/* A layout as "dp 2 x tp 4 x pp 1" or "dp 4 x tp 1 x pp 1, ep 2", and some of its axes with something else
 * between them. Returns `text`. */
enum { MESH_TEXT = 96 };
const char *mesh_text(MeshSpec spec, char text[MESH_TEXT]);
const char *mesh_join(MeshSpec spec, unsigned axes, const char *between, char text[MESH_TEXT]);
/* Adds the extents and ep to a JSON object, and reads them; absent ones are 0. */
void mesh_put(json_t *object, MeshSpec spec);
MeshSpec mesh_read(const json_t *object);
/* Steps through the layouts of `ranks` ranks with extents of up to those in `most`, except that of the first
 * axis. *spec is {0} at first; false after the last one. */
bool mesh_next(MeshSpec *spec, int ranks, MeshSpec most);

#endif
