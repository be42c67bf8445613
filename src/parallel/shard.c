#include "parallel/shard.h"

#include <string.h>

#include "base/memory.h"
#include "parallel/shard_internal.h"

void shard_stage(ShardSpec *spec, int zero) {
    spec->optimizer = zero >= 1;
    spec->grads = zero >= 2;
    spec->params = zero >= 3;
}

const char *const grad_type_names[] = {"fp32", "bf16", "int8", NULL};
const char *const offload_names[] = {
    "none", "optimizer", "params", "activations", "optimizer+activations", "params+activations", NULL};

Offload offload_join(Offload a, Offload b) {
    Offload state = offload_state(a) > offload_state(b) ? offload_state(a) : offload_state(b);
    bool activations = offload_activations(a) || offload_activations(b);
    return (Offload)(state + activations * OFFLOAD_ACTIVATIONS);
}

/* Trace label for gathering a unit's parameters. */
static const TraceName gather_name = {.name = "gather ",
                                      .category = "data",
                                      .color = TRACE_BLUE,
                                      .number = {"unit", "bytes", "between nodes"},
                                      .numbered = true};

/* ---- memory ---- */

/* Allocates on the device or, if `away`, in host memory. */
static Status place(Device *device, bool away, MemTag tag, size_t bytes, Buffer *ret_buffer) {
    return away ? dev_alloc_host(device, bytes, ret_buffer) : dev_alloc(device, tag, bytes, ret_buffer);
}

static Status unit_alloc(Shards *shards, ShardUnit *unit) {
    const ShardSpec *spec = &shards->spec;
    Device *device = shards->device;
    int64_t all = unit->layout.numel, part = all / unit->groups.shard->size;
    bool cut = spec->optimizer || spec->params;
    bool params_away = spec->offload == OFFLOAD_PARAMS, state_away = spec->offload != OFFLOAD_NONE;
    unit->first = cut ? part * unit->groups.shard->rank : 0;
    unit->count = cut ? part : all;
    int64_t coded = base_coded(spec, &unit->layout);
    size_t params = shard_bytes(spec->params ? part : all, spec->dtype);
    if (coded) {
        int64_t here = coded - unit->first;
        unit->coded = here < 0 ? 0 : here < unit->count ? here : unit->count;
        unit->in_blocks = true;
        params = base_bytes(spec, unit->coded, unit->count);
    }
    TRY(place(device, params_away, MEM_PARAMS, params, &unit->param));
    if (unit_has_master(shards, unit))
        TRY(place(device, state_away, spec->train && !unit->layout.frozen ? MEM_OPTIMIZER : MEM_PARAMS,
                  shard_bytes(unit->count, shards_have_halves(shards) ? DT_F32_LOWER : DT_F32),
                  &unit->master));
    if (!spec->train || unit->layout.frozen) return OK;
    TRY(dev_alloc(device, MEM_GRADS, shard_bytes(spec->grads ? part : all, DT_F32), &unit->grad));
    TRY(shard_spans(unit, &spec->optim));
    for (int k = 0; k < optim_states(&spec->optim); k++) {
        int64_t end = unit->first + unit->count,
                first = unit->state_first[k] > unit->first ? unit->state_first[k] : unit->first;
        size_t bytes = first < end ? shard_bytes(end - first, DT_F32) : 0;
        TRY(place(device, state_away, MEM_OPTIMIZER, bytes, &unit->state[k]));
    }
    TRY(wire_alloc(shards, unit));
    if (!shards_have_workers(shards)) return OK;
    TRY(place(device, state_away, MEM_OPTIMIZER, shard_bytes(unit->count, DT_F32), &unit->outer));
    return place(device, state_away, MEM_OPTIMIZER, shard_bytes(unit->count, DT_F32), &unit->outer_momentum);
}

/* The parts of a unit's buffers that belong to a piece. */
static Status piece_init(Shards *shards, const ShardUnit *unit, int at, ShardUnit *piece) {
    TRY(unit_piece(&piece->layout, &unit->layout, at));
    piece->layout.slot[0].desc.overwritten = false; /* several blocks add to pieces, in any order */
    int64_t part = piece->layout.numel / unit->groups.shard->size;
    size_t size = dtype_size(shards->spec.dtype), full = dtype_size(DT_F32), here = (size_t)(part * at);
    piece->held = true;
    piece->groups = unit->groups;
    piece->first = part * unit->groups.shard->rank;
    piece->count = part;
    piece->param = (Buffer){.data = (char *)unit->param.data + here * size, .bytes = (size_t)part * size};
    if (unit->grad.data)
        piece->grad = (Buffer){.data = (char *)unit->grad.data + here * full, .bytes = (size_t)part * full};
    return OK;
}

static Status make_pieces(Shards *shards) {
    for (int i = 0; i < shards->count; i++) {
        ShardUnit *unit = &shards->unit[i];
        if (!unit->held || unit->layout.pieces < 2) continue;
        unit->pieces = unit->layout.pieces;
        unit->piece = shards->all;
        for (int k = 0; k < unit->pieces; k++) TRY(piece_init(shards, unit, k, &shards->unit[shards->all++]));
    }
    return OK;
}

bool shard_trains(const Shards *shards, int at) {
    return unit_trains(&shards->unit[at]);
}

int shard_pieces(const Shards *shards, int at) {
    return shards->unit[at].pieces;
}

int shard_piece(const Shards *shards, int at, int piece) {
    return shards->unit[at].piece + piece;
}

static UnitSpec layout_of(const ShardSpec *spec, const ShardGroups *groups) {
    UnitSpec layout = {.tp_rank = spec->tp->rank,
                       .tp_size = spec->tp->size,
                       .shards = groups->shard->size,
                       .piece = spec->params ? spec->piece : 0};
    if (groups->others) layout.expert_rank = groups->others->rank, layout.expert_size = groups->others->size;
    return layout;
}

UnitSpec shard_layout(const Shards *shards, int at) {
    return layout_of(&shards->spec, &shards->unit[at].groups);
}

typedef struct TwoLargest {
    size_t largest, second;
} TwoLargest;

static void see_size(TwoLargest *seen, size_t size) {
    if (size > seen->largest)
        *seen = (TwoLargest){size, seen->largest};
    else if (size > seen->second)
        seen->second = size;
}

/* The unit that another one shares its room with: experts are gathered together with the first unit of their
 * block. */
static int room_of(const Shards *shards, int at) {
    const ShardUnit *unit = &shards->unit[at];
    for (int i = 0; i < shards->count && unit->layout.slot[0].desc.expert; i++)
        if (shards->unit[i].held && shards->unit[i].block == unit->block) return i;
    return at;
}

/* Sizes an arena for the two largest units that are gathered as a whole. */
static void make_rooms(Shards *shards) {
    size_t size = dtype_size(shards->spec.dtype), full = dtype_size(DT_F32);
    TwoLargest units = {0}, grads = {0}, wires = {0};
    for (int room = 0; room < shards->all; room++) {
        size_t all = 0, trained = 0, wire = 0;
        for (int i = room; i < shards->all; i++) {
            const ShardUnit *unit = &shards->unit[i];
            if (!unit->held || unit->pieces || room_of(shards, i) != room) continue;
            if (shards->spec.params || unit->in_blocks) all += (size_t)unit->layout.numel;
            trained += unit->layout.frozen ? 0 : (size_t)unit->layout.numel;
            wire += unit->layout.frozen ? 0 : wire_bytes(shards, unit);
        }
        see_size(&units, all);
        see_size(&grads, trained);
        see_size(&wires, wire);
    }
    arena_init(&shards->params, shards->device, MEM_PARAMS, units.largest * size, units.second * size);
    arena_init(&shards->grads, shards->device, MEM_GRADS, grads.largest * full, grads.second * full);
    arena_init(&shards->wire, shards->device, MEM_COMM, wires.largest, wires.second);
}

static const ShardGroups *groups_of(const ShardSpec *spec, const UnitUse *use) {
    return use->groups ? use->groups : &spec->data;
}

static Status units_init(Shards *shards, const ParamList *units, const UnitUse *use, int count) {
    size_t all = 0;
    CLEANUP(mem_freep) Unit *layout = NULL;
    TRY(mem_new((size_t)count, sizeof *layout, &layout));
    Status status = OK;
    for (int i = 0; i < count && !status; i++) {
        status =
            unit_init(&layout[i], &units[i], layout_of(&shards->spec, groups_of(&shards->spec, &use[i])));
        all += 1 + (size_t)layout[i].pieces;
    }
    if (!status) status = mem_new(all, sizeof *shards->unit, &shards->unit);
    for (int i = 0; i < count && status; i++) unit_done(&layout[i]);
    TRY(status);
    shards->count = shards->all = count;
    for (int i = 0; i < count; i++) {
        ShardUnit *unit = &shards->unit[i];
        unit->layout = layout[i];
        unit->groups = *groups_of(&shards->spec, &use[i]);
        unit->held = use[i].held && unit->layout.numel > 0;
        unit->twin = use[i].twin;
        unit->block = use[i].block;
        unit->counted = use[i].counted;
    }
    for (int i = 0; i < count; i++)
        if (shards->unit[i].held) TRY(unit_alloc(shards, &shards->unit[i]));
    return make_pieces(shards);
}

static Status prepare_training(Shards *shards, const ParamList *units) {
    shards_assign_sums(shards);
    TRY(dev_alloc(shards->device, MEM_OPTIMIZER, (size_t)shards->sums * sizeof(double), &shards->norm));
    TRY(matrices_new(&shards->matrices, shards));
    for (int i = 0; i < shards->count; i++)
        if (shards->spec.grad_type == GRAD_INT8) TRY(group_connect(shards->unit[i].groups.shard, EVERY_RANK));
    return shards_have_workers(shards) ? outer_new(shards, units) : OK;
}

Status shards_new(Shards **ret_shards, Exec *exec, const ShardSpec *spec, const ParamList *units,
                  const UnitUse *use, int count) {
    CLEANUP(shards_freep) Shards *shards = NULL;
    TRY(mem_new(1, sizeof *shards, &shards));
    shards->spec = *spec;
    shards->device = exec->stream->device;
    shards->exec = exec;
    TRY(units_init(shards, units, use, count));
    make_rooms(shards);
    if (spec->train) TRY(prepare_training(shards, units));
    TRY(dev_alloc(shards->device, MEM_SCRATCH, shard_bytes(spec->sketch * spec->micros, DT_F64),
                  &shards->sketch));
    return MOVE(ret_shards, shards);
}

void shards_free(Shards *shards) {
    if (!shards) return;
    for (int i = 0; i < shards->all; i++) {
        ShardUnit *unit = &shards->unit[i];
        Buffer *const buffers[] = {&unit->param,    &unit->master, &unit->grad,
                                   &unit->residual, &unit->outer,  &unit->outer_momentum};
        for (size_t k = 0; i < shards->count && k < sizeof buffers / sizeof *buffers; k++)
            dev_free(buffers[k]);
        for (int k = 0; k < OPTIM_STATES; k++) dev_free(&unit->state[k]);
        free(unit->span);
        free(unit->messages);
        stream_event_free(shards->device, unit->updated);
        arena_release(&shards->params, &unit->full);
        arena_release(&shards->grads, &unit->full_grad);
        arena_release(&shards->grads, &unit->reducing);
        arena_release(&shards->wire, &unit->wire);
        unit_done(&unit->layout);
    }
    arena_done(&shards->params);
    arena_done(&shards->grads);
    arena_done(&shards->wire);
    matrices_free(shards->matrices);
    outer_free(shards->outer);
    dev_free(&shards->norm);
    dev_free(&shards->sketch);
    free(shards->unit);
    free(shards);
}

static Status clear(Stream *stream, const Buffer *buffer) {
    return buffer->bytes ? stream_zero(stream, buffer->data, buffer->bytes) : OK;
}

Status shards_clear(Shards *shards) {
    Stream *stream = shards->exec->stream;
    for (int i = 0; i < shards->count; i++) {
        ShardUnit *unit = &shards->unit[i];
        TRY(clear(stream, &unit->param));
        TRY(clear(stream, &unit->master));
        TRY(clear(stream, &unit->grad));
        for (int k = 0; k < OPTIM_STATES; k++) TRY(clear(stream, &unit->state[k]));
        TRY(clear(stream, &unit->residual));
        TRY(clear(stream, &unit->outer));
        TRY(clear(stream, &unit->outer_momentum));
    }
    return OK;
}

/* ---- parameters ---- */

char *shard_param_at(const Shards *shards, const ShardUnit *unit, int64_t first) {
    return (char *)unit->param.data +
           shard_bytes(shards->spec.params ? first - unit->first : first, shards->spec.dtype);
}

Tensor shard_master(const Shards *shards, int at) {
    const ShardUnit *unit = &shards->unit[at];
    void *data =
        shards_have_masters(shards) ? unit->master.data : (void *)shard_param_at(shards, unit, unit->first);
    return tensor_1d(data, DT_F32, unit->held ? unit->count : 0);
}

Values shard_values(const Shards *shards, int at) {
    const ShardUnit *unit = &shards->unit[at];
    if (unit->in_blocks) return (Values){.data = base_plain(shards, unit), .dtype = shards->spec.dtype};
    if (shards_have_masters(shards) && !unit_has_master(shards, unit))
        return (Values){.data = shard_param_at(shards, unit, unit->first), .dtype = shards->spec.dtype};
    if (!shards_have_halves(shards)) return (Values){.data = shard_master(shards, at).data};
    return (Values){.data = shard_param_at(shards, unit, unit->first), .rest = unit->master.data};
}

Tensor shard_state(const Shards *shards, int at, int state, int64_t *ret_first) {
    const ShardUnit *unit = &shards->unit[at];
    int64_t count = (int64_t)(unit->state[state].bytes / dtype_size(DT_F32));
    *ret_first = unit->first + unit->count - count;
    return tensor_1d(unit->state[state].data, DT_F32, count);
}

Status shard_publish_unit(Shards *shards, ShardUnit *unit) {
    const ShardSpec *spec = &shards->spec;
    if (!shards_gather_params(shards) || unit->in_blocks) return OK;
    Tensor all = tensor_1d(unit->param.data, spec->dtype, unit->layout.numel);
    Tensor part = tensor_1d(shard_param_at(shards, unit, unit->first), spec->dtype, unit->count);
    comm_label(unit->groups.shard, &gather_name, (int)(unit - shards->unit), (int64_t)tensor_bytes(all));
    return all_gather(unit->groups.shard, shards->exec->stream, all, part, &unit->gather);
}

Status shards_publish_finish(Shards *shards) {
    for (int i = 0; i < shards->count; i++)
        if (shards->unit[i].held) TRY(ticket_wait(shards->exec->stream, &shards->unit[i].gather));
    return OK;
}

Status shards_publish(Shards *shards) {
    for (int i = 0; i < shards->count; i++) {
        ShardUnit *unit = &shards->unit[i];
        if (!unit->held) continue;
        if (unit_has_master(shards, unit) && !shards_have_halves(shards)) {
            Tensor part =
                tensor_1d(shard_param_at(shards, unit, unit->first), shards->spec.dtype, unit->count);
            TRY(convert(shards->exec, part, shard_master(shards, i)));
            if (!shards->spec.train) dev_free(&unit->master);
        }
        TRY(shard_publish_unit(shards, unit));
    }
    return shards_publish_finish(shards);
}

/* Copies this rank's shard of offloaded parameters into the gathered buffer, after earlier work on the stream
 * that may still use that memory. */
static Status bring_part(Shards *shards, ShardUnit *unit, Tensor *part) {
    Stream *stream = shards->exec->stream, *from_host = shards->spec.from_host;
    char *to = (char *)unit->full.data + shard_bytes(unit->first, shards->spec.dtype);
    TRY(stream_wait(from_host, stream));
    TRY(stream_copy(from_host, to, part->data, tensor_bytes(*part), COPY_TO_DEVICE));
    part->data = to;
    unit->brought = true;
    /* The all-gather reads this shard immediately. */
    return unit->groups.shard->size > 1 ? stream_wait(stream, from_host) : OK;
}

Status shard_fetch(Shards *shards, int at, bool must) {
    ShardUnit *unit = &shards->unit[at];
    const ShardSpec *spec = &shards->spec;
    if (!(spec->params || unit->in_blocks) || !unit->held || unit->full.data) return OK;
    size_t bytes = shard_bytes(unit->layout.numel, spec->dtype);
    if (!must && !arena_fits(&shards->params, bytes)) return OK;
    TRY(arena_alloc(&shards->params, bytes, &unit->full));
    Tensor part = tensor_1d(unit->param.data, spec->dtype, unit->count);
    if (unit->in_blocks) {
        part.data = (char *)unit->full.data + shard_bytes(unit->first, spec->dtype);
        TRY(base_decode(shards, unit, part));
        if (unit->count == unit->layout.numel) return OK;
    } else if (spec->offload == OFFLOAD_PARAMS) {
        TRY(bring_part(shards, unit, &part));
    }
    comm_label(unit->groups.shard, &gather_name, at, (int64_t)bytes);
    return all_gather(unit->groups.shard, shards->exec->stream,
                      tensor_1d(unit->full.data, spec->dtype, unit->layout.numel), part, &unit->gather);
}

Status shard_ready(Shards *shards, int at, void **ret_params) {
    ShardUnit *unit = &shards->unit[at];
    TRY(shard_fetch(shards, at, true));
    TRY(ticket_wait(shards->exec->stream, &unit->gather));
    if (device_is_host(shards->device)) TRY(shard_await_update(shards, at, shards->exec->stream));
    if (unit->brought) TRY(stream_wait(shards->exec->stream, shards->spec.from_host));
    unit->brought = false;
    *ret_params = shards->spec.params || unit->in_blocks ? unit->full.data : unit->param.data;
    return OK;
}

void shard_release(Shards *shards, int at) {
    arena_release(&shards->params, &shards->unit[at].full);
}

int64_t shards_params(const Shards *shards) {
    int64_t total = 0;
    for (int i = 0; i < shards->count; i++) {
        const ShardUnit *unit = &shards->unit[i];
        if (!unit->held) continue;
        if (shards->spec.params) total += unit->count;
        for (size_t k = 0; !shards->spec.params && k < unit->layout.count; k++)
            total += unit->layout.slot[k].count;
    }
    return total;
}
