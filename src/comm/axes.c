#include "comm/axes.h"

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

bool mesh_same(MeshSpec a, MeshSpec b) {
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (mesh_extent(a, axis) != mesh_extent(b, axis)) return false;
    return a.shard == b.shard && a.heads == b.heads;
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
    return mesh_join(spec, AXES_ALL, " x ", text);
}

void mesh_put(json_t *object, MeshSpec spec) {
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (mesh_shows(spec, axis))
            json_object_set_new(object, infos[axis].name, json_integer(mesh_extent(spec, axis)));
}

MeshSpec mesh_read(const json_t *object) {
    MeshSpec spec = {0};
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
