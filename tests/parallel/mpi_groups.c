/* Tests units with groups of their own: gradients, norm and update are those of one rank that has all
 * parameters and all contributions, in every ZeRO stage.
 *
 * Ranks: 2 4
 */
#include "ranks.h"

#include <math.h>

#include "parallel/shard.h"

/* The units. Ranks in the two halves of the world hold different experts, which have parameters of their own
 * in UNIT_EXPERT and a part of each parameter in UNIT_PARTS; all other units are the same on all ranks. */
enum { UNIT_DATA, UNIT_HALVES, UNIT_EXPERT, UNIT_PARTS, UNIT_ALONE, UNITS, PARAMS = 3, MICROS = 2 };

typedef struct Case {
    Ranks *ranks;
    ShardGroups groups[UNITS];
    Group *self;
    ParamList list[UNITS];
} Case;

static ParamDesc desc_of(int unit, int number) {
    const int64_t rows[PARAMS] = {24, 1, 40}, cols[PARAMS] = {36, 77, 12};
    ParamDesc desc = {.ndim = number == 1 ? 1 : 2, .dim = {rows[number], cols[number]}, .split = -1};
    if (number == 1) desc.dim[0] = cols[number], desc.dim[1] = 0;
    desc.decay = number != 1;
    if (unit == UNIT_PARTS) {
        desc = (ParamDesc){.ndim = number == 1 ? 1 : 3, .split = -1, .decay = desc.decay, .expert = true};
        for (int i = 0; i < desc.ndim; i++) desc.dim[i] = number == 1 ? 76 : 4 + 8 * i + number;
    }
    snprintf(desc.name, sizeof desc.name, "layer.%d.%d", unit, number);
    return desc;
}

static Case case_new(Ranks *ranks) {
    Case c = {.ranks = ranks};
    Group *world = ranks->world, *half = NULL, *across = NULL;
    int size = world->size / 2;
    assert_ok(group_new_self(&c.self));
    assert_ok(group_split(world, world->rank / size, world->rank, GROUP_TENSORS, &half));
    assert_ok(group_split(world, world->rank % size, world->rank, GROUP_TENSORS, &across));
    c.groups[UNIT_DATA] = (ShardGroups){.shard = world, .replica = c.self};
    c.groups[UNIT_HALVES] = (ShardGroups){.shard = half, .replica = across};
    c.groups[UNIT_EXPERT] = (ShardGroups){.shard = half, .replica = c.self, .others = across};
    c.groups[UNIT_PARTS] = c.groups[UNIT_EXPERT];
    c.groups[UNIT_ALONE] = (ShardGroups){.shard = c.self, .replica = world};
    for (int u = 0; u < UNITS; u++)
        for (int k = 0; k < PARAMS; k++) assert_ok(param_add(&c.list[u], desc_of(u, k)));
    return c;
}

static void case_done(Case *c) {
    for (int u = 0; u < UNITS; u++) param_list_done(&c->list[u]);
    group_free(c->groups[UNIT_HALVES].shard);
    group_free(c->groups[UNIT_HALVES].replica);
    group_free(c->self);
}

/* Which expert a rank holds. */
static int expert_of(const Case *c, int rank) {
    return rank / (c->ranks->world->size / 2);
}

/* Small integers, so that sums are exact in any order and in bf16. */
static float gradient_of(int unit, int expert, int64_t element, int rank, int micro) {
    int64_t salt = unit + (unit == UNIT_EXPERT ? 11 * expert : 0);
    return (float)((element * 7 + rank * 5 + micro * 3 + salt * 13) % 9 - 4);
}

static float weight_of(int unit, int expert, int64_t element) {
    return 0.25f +
           0.001f * (float)((element * 31 + unit * 17 + (unit == UNIT_EXPERT ? expert * 5 : 0)) % 500);
}

static int64_t global_of(const ParamSlot *slot, int64_t at) {
    return slot_run(slot, at, 1).global;
}

/* Whether an element is one of an expert. */
static bool belongs(const ParamSlot *slot, int64_t at, int expert) {
    return !slot->desc.expert || global_of(slot, at) / (param_count(&slot->desc) / 2) == expert;
}

/* Adds what a rank contributes to a gradient. */
static void contribute(const Unit *layout, float *grad, int unit, int expert, int rank, int micro) {
    for (size_t k = 0; k < layout->count; k++)
        for (int64_t i = 0; i < layout->slot[k].count; i++)
            if (belongs(&layout->slot[k], i, expert))
                grad[layout->slot[k].offset + i] += gradient_of(
                    unit, expert, 1000 * (int64_t)k + global_of(&layout->slot[k], i), rank, micro);
}

static void set_weights(Shards *shards, int at, int unit, int expert) {
    const ShardUnit *held = &shards->unit[at];
    float *master = shard_master(shards, at).data;
    for (size_t k = 0; k < held->layout.count; k++) {
        const ParamSlot *slot = &held->layout.slot[k];
        int64_t from, count;
        if (!slot_overlap(slot, held->first, held->count, &from, &count)) continue;
        for (int64_t i = from; i < from + count; i++)
            master[slot->offset + i - held->first] =
                weight_of(unit, expert, 1000 * (int64_t)k + global_of(slot, i));
    }
}

static Shards *shards_of(const Case *c, Exec *exec, ShardSpec spec, const ParamList *lists,
                         const UnitUse *use, int count) {
    Shards *shards = NULL;
    spec.train = true;
    spec.dtype = DT_F32;
    spec.tp = spec.model = spec.ends = c->self;
    if (!spec.micros) spec.micros = 1;
    assert_ok(shards_new(&shards, exec, &spec, lists, use, count));
    assert_ok(shards_clear(shards));
    return shards;
}

static double update(Shards *shards) {
    double norm, spread;
    assert_ok(shards_finish(shards));
    assert_ok(shards_norm_start(shards));
    assert_ok(shards_norm(shards, &norm, &spread));
    return norm;
}

/* What the units are compared with: the same units and both experts, alone on this rank. */
typedef struct Reference {
    Shards *shards;
    double norm;
} Reference;

static const OptimStep step = {.number = 1, .lr = 0.01, .grad_scale = 0.5};

static Reference reference_new(const Case *c, Exec *exec, ShardSpec spec) {
    Reference made = {0};
    ParamList lists[UNITS + 1];
    UnitUse use[UNITS + 1];
    for (int i = 0; i <= UNITS; i++) {
        lists[i] = c->list[i < UNITS ? i : UNIT_EXPERT];
        use[i] = (UnitUse){.held = true, .counted = true, .block = i};
    }
    spec.data = (ShardGroups){.shard = c->self, .replica = c->self};
    spec.grad_type = GRAD_FP32;
    made.shards = shards_of(c, exec, spec, lists, use, UNITS + 1);
    for (int i = 0; i <= UNITS; i++) set_weights(made.shards, i, i < UNITS ? i : UNIT_EXPERT, i == UNITS);
    assert_ok(shards_publish(made.shards));
    assert_ok(shards_begin(made.shards));
    for (int i = 0; i <= UNITS; i++) {
        float *grad = NULL;
        int unit = i < UNITS ? i : UNIT_EXPERT, expert = i == UNITS;
        assert_ok(shard_grad(made.shards, i, &grad));
        for (int r = 0; r < c->ranks->world->size; r++)
            for (int micro = 0; micro < MICROS; micro++)
                if (unit != UNIT_EXPERT || expert_of(c, r) == expert)
                    contribute(&made.shards->unit[i].layout, grad, unit, expert_of(c, r), r, micro);
        assert_ok(shard_grad_done(made.shards, i, true));
    }
    made.norm = update(made.shards);
    return made;
}

/* Compares elements first .. first + count - 1 of a unit, which may be padded differently. */
static void compare(const ShardUnit *unit, const float *values, int64_t first, int64_t count,
                    const ShardUnit *wanted, const float *want, float tolerance) {
    for (size_t k = 0; k < unit->layout.count; k++) {
        const ParamSlot *slot = &unit->layout.slot[k], *other = &wanted->layout.slot[k];
        int64_t from, here;
        if (!slot_overlap(slot, first, count, &from, &here)) continue;
        for (int64_t i = from; i < from + here; i++)
            assert_true(fabsf(values[slot->offset + i - first] - want[other->offset + global_of(slot, i)]) <=
                        tolerance);
    }
}

static void backward(const Case *c, Shards *shards) {
    int rank = c->ranks->world->rank;
    assert_ok(shards_begin(shards));
    for (int micro = 0; micro < MICROS; micro++)
        for (int u = UNITS - 1; u >= 0; u--) {
            float *grad = NULL;
            assert_ok(shard_grad(shards, u, &grad));
            contribute(&shards->unit[u].layout, grad, u, expert_of(c, rank), rank, micro);
            assert_ok(shard_grad_done(shards, u, micro + 1 == MICROS));
        }
}

static void check(const Case *c, Exec *exec, int zero, GradType type, const char *optimizer) {
    const Optimizer *kind = NULL;
    int mine = expert_of(c, c->ranks->world->rank);
    assert_ok(optim_find(optimizer, &kind));
    ShardSpec spec = {.data = c->groups[UNIT_DATA], .grad_type = type, .optim = optim_defaults(kind)};
    Reference want = reference_new(c, exec, spec);
    UnitUse use[UNITS];
    for (int u = 0; u < UNITS; u++)
        use[u] = (UnitUse){
            .held = true, .counted = true, .block = u, .groups = u == UNIT_DATA ? NULL : &c->groups[u]};
    shard_stage(&spec, zero);
    Shards *shards = shards_of(c, exec, spec, c->list, use, UNITS);
    for (int u = 0; u < UNITS; u++) set_weights(shards, u, u, mine);
    assert_ok(shards_publish(shards));
    backward(c, shards);
    double norm = update(shards);
    if (!(fabs(norm - want.norm) <= (type == GRAD_INT8 ? 1e-2 : 1e-12) * want.norm))
        fail_msg("%s, ZeRO %d, %s: norm %.9g instead of %.9g", optimizer, zero, grad_type_names[type], norm,
                 want.norm);
    for (int u = 0; u < UNITS; u++) {
        int at = u == UNIT_EXPERT && mine ? UNITS : u;
        compare(&shards->unit[u], shard_gradient(shards, u).data, shards->unit[u].first,
                shards->unit[u].count, &want.shards->unit[at], shard_gradient(want.shards, at).data,
                type == GRAD_INT8 ? 1.0f : 0);
    }
    assert_ok(shards_update(shards, &step));
    assert_ok(shards_update(want.shards, &step));
    for (int u = 0; u < UNITS && type != GRAD_INT8; u++) {
        int at = u == UNIT_EXPERT && mine ? UNITS : u;
        void *all = NULL, *wanted = NULL;
        assert_ok(shard_ready(shards, u, &all));
        assert_ok(shard_ready(want.shards, at, &wanted));
        assert_ok(stream_sync(exec->stream));
        compare(&shards->unit[u], all, 0, shards->unit[u].layout.numel, &want.shards->unit[at], wanted, 0);
        shard_release(shards, u);
    }
    shards_free(shards);
    shards_free(want.shards);
}

static void units_have_their_own_groups(void **state) {
    Ranks *ranks = *state;
    const char *const optimizers[] = {"sgd", "adamw", "muon"};
    Case c = case_new(ranks);
    Exec exec = {.stream = ranks->stream};
    assert_ok(kernels_find(test_kernels(), &exec.table));
    for (int zero = 0; zero <= 3; zero++)
        for (int type = GRAD_FP32; type <= GRAD_INT8; type++)
            for (size_t k = 0; k < sizeof optimizers / sizeof *optimizers; k++)
                check(&c, &exec, zero, (GradType)type, optimizers[k]);
    case_done(&c);
}

/* The spread of gradients that pairs of ranks with different experts compute together. */
static double spread_of(const Case *c, Exec *exec, ShardSpec spec, bool all) {
    enum { TOTALS = 512 };
    int size = c->ranks->world->size, pairs = size / 2, rank = c->ranks->world->rank;
    const ParamList lists[] = {c->list[UNIT_DATA], c->list[UNIT_PARTS]};
    UnitUse use[] = {{.held = true, .counted = true},
                     {.held = true, .counted = true, .block = 1, .groups = &c->groups[UNIT_PARTS]}};
    if (all) use[1].groups = NULL;
    spec.sketch = TOTALS;
    spec.micros = all ? MICROS * pairs : MICROS;
    Shards *shards = shards_of(c, exec, spec, lists, use, 2);
    double norm, spread;
    assert_ok(shards_begin(shards));
    assert_ok(shards_probe(shards, spec.micros, 7));
    for (int n = 0; n < spec.micros; n++)
        for (int u = 1; u >= 0; u--) {
            float *grad = NULL;
            const Unit *layout = &shards->unit[u].layout;
            int unit = u ? UNIT_PARTS : UNIT_DATA;
            assert_ok(shard_grad(shards, u, &grad));
            for (int expert = 0; expert < 2; expert++) {
                int from = all ? n / MICROS + expert * pairs : expert * pairs + rank % pairs;
                if (all || (u ? expert == expert_of(c, rank) : from == rank))
                    contribute(layout, grad, unit, expert, from, n % MICROS);
            }
            assert_ok(shard_grad_done(shards, u, n + 1 == spec.micros));
        }
    assert_ok(shards_finish(shards));
    assert_ok(shards_norm_start(shards));
    assert_ok(shards_norm(shards, &norm, &spread));
    shards_free(shards);
    return spread;
}

static void spread_counts_ranks_that_exchange_tokens_once(void **state) {
    Ranks *ranks = *state;
    Case c = case_new(ranks);
    Exec exec = {.stream = ranks->stream};
    assert_ok(kernels_find(test_kernels(), &exec.table));
    ShardSpec alone = {.data = {.shard = c.self, .replica = c.self}, .parts = c.self};
    alone.optim = optim_defaults(optim_row(0));
    double want = spread_of(&c, &exec, alone, true);
    assert_true(want > 0 || ranks->world->size == 2);
    for (int zero = 0; zero <= 3; zero++) {
        ShardSpec spec = {.data = c.groups[UNIT_DATA], .parts = c.groups[UNIT_PARTS].others};
        spec.optim = alone.optim;
        shard_stage(&spec, zero);
        double found = spread_of(&c, &exec, spec, false);
        if (!(fabs(found - want) <= 1e-9 * fabs(want)))
            fail_msg("ZeRO %d: spread %.12g instead of %.12g", zero, found, want);
    }
    case_done(&c);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(units_have_their_own_groups),
                                          cmocka_unit_test(spread_counts_ranks_that_exchange_tokens_once)};
RANKS_MAIN(tests)
