#include "comm/axes.h"

#include <string.h>

#define INFO(id, name_, title_, place_, distance_, use_, copies_, shown_, help)                              \
    [AXIS_##id] = {.name = #name_,                                                                           \
                   .title = (title_),                                                                        \
                   .place = (place_),                                                                        \
                   .distance = (distance_),                                                                  \
                   .use = (use_),                                                                            \
                   .copies = (copies_),                                                                      \
                   .shown = (shown_)},

static const AxisInfo infos[AXIS_COUNT] = {MESH_AXES(INFO)};

const AxisInfo *axis_info(Axis axis) {
    return &infos[axis];
}

Axis axis_by_distance(int n) {
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) {
        int nearer = 0;
        for (Axis other = 0; other < AXIS_COUNT; other++)
            nearer += infos[other].distance < infos[axis].distance;
        if (nearer == n) return axis;
    }
    return AXIS_COUNT;
}

int mesh_extent(MeshSpec spec, Axis axis) {
    return spec.extent[axis] ? spec.extent[axis] : 1;
}

int64_t mesh_ranks(MeshSpec spec, unsigned axes) {
    int64_t ranks = 1;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if ((axes & AXIS_SET(axis)) && __builtin_mul_overflow(ranks, mesh_extent(spec, axis), &ranks))
            return INT64_MAX;
    return ranks;
}

int mesh_stride(MeshSpec spec, Axis axis) {
    unsigned nearer = 0;
    for (Axis other = 0; other < AXIS_COUNT; other++)
        if (infos[other].distance < infos[axis].distance) nearer |= AXIS_SET(other);
    return (int)mesh_ranks(spec, nearer);
}

int mesh_apart(MeshSpec spec, unsigned axes) {
    int nearest = 0;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) {
        int stride = mesh_stride(spec, axis);
        if ((axes & AXIS_SET(axis)) && (!nearest || stride < nearest)) nearest = stride;
    }
    return nearest;
}

int mesh_copies(MeshSpec spec) {
    return (int)mesh_ranks(spec, AXES_COPIES);
}

int mesh_shard(MeshSpec spec) {
    return spec.shard ? spec.shard : mesh_copies(spec);
}

int mesh_experts(MeshSpec spec) {
    return spec.ep ? spec.ep : 1;
}

int mesh_experts_fit(MeshSpec spec) {
    int ep = mesh_experts(spec), copies = mesh_copies(spec);
    while (ep > 1 && (mesh_experts(spec) % ep || copies % ep)) ep--;
    return ep;
}

int mesh_experts_shard(MeshSpec spec) {
    int shard = mesh_shard(spec), ep = mesh_experts(spec);
    return shard % ep ? 1 : shard / ep;
}

bool mesh_same(MeshSpec a, MeshSpec b) {
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (mesh_extent(a, axis) != mesh_extent(b, axis)) return false;
    return a.shard == b.shard && a.heads == b.heads && mesh_experts(a) == mesh_experts(b);
}

/* ---- text and JSON ---- */

bool mesh_shows(MeshSpec spec, Axis axis) {
    return infos[axis].shown || mesh_extent(spec, axis) > 1;
}

const char *mesh_join(MeshSpec spec, unsigned axes, const char *between, char text[MESH_TEXT]) {
    size_t used = 0;
    text[0] = 0;
    for (Axis axis = 0; axis < AXIS_COUNT && used < MESH_TEXT; axis++)
        if ((axes & AXIS_SET(axis)) && mesh_shows(spec, axis))
            used += (size_t)snprintf(text + used, MESH_TEXT - used, "%s%s %d", used ? between : "",
                                     infos[axis].name, mesh_extent(spec, axis));
    return text;
}

const char *mesh_text(MeshSpec spec, char text[MESH_TEXT]) {
    size_t used = strlen(mesh_join(spec, AXES_ALL, " x ", text));
    if (spec.ep > 1) snprintf(text + used, MESH_TEXT - used, ", ep %d", spec.ep);
    return text;
}

void mesh_put(json_t *object, MeshSpec spec) {
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (mesh_shows(spec, axis))
            json_object_set_new(object, infos[axis].name, json_integer(mesh_extent(spec, axis)));
    if (spec.ep > 1) json_object_set_new(object, "ep", json_integer(spec.ep));
}

MeshSpec mesh_read(const json_t *object) {
    MeshSpec spec = {.ep = (int)json_integer_value(json_object_get(object, "ep"))};
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        spec.extent[axis] = (int)json_integer_value(json_object_get(object, infos[axis].name));
    return spec;
}

/* ---- all layouts ---- */

bool mesh_next(MeshSpec *spec, int ranks, MeshSpec most) {
    bool first = !spec->extent[0];
    for (Axis axis = 1; first && axis < AXIS_COUNT; axis++) spec->extent[axis] = 1;
    if (first) return spec->extent[0] = ranks, true;
    for (Axis axis = AXIS_COUNT - 1; axis > 0; axis--) {
        int rest = spec->extent[0] * spec->extent[axis], extent = spec->extent[axis] + 1;
        int limit = mesh_extent(most, axis) < rest ? mesh_extent(most, axis) : rest;
        while (extent <= limit && rest % extent) extent++;
        if (extent <= limit) {
            spec->extent[axis] = extent;
            spec->extent[0] = rest / extent;
            return true;
        }
        spec->extent[axis] = 1;
        spec->extent[0] = rest;
    }
    return false;
}
