/* Tests how parameter descriptors are laid out in flat buffers, and that initial values do not depend on how
 * tensor and expert parallelism divide a parameter. */
#include "param/param.h"

#include <math.h>

#include "test.h"

static ParamDesc desc_of(const char *name, int split, int64_t a, int64_t b, int64_t c) {
    ParamDesc desc = {.ndim = c ? 3 : b ? 2 : 1, .dim = {a, b, c}, .split = split, .std = 0.5f};
    snprintf(desc.name, sizeof desc.name, "%s", name);
    return desc;
}

static ParamDesc expert_of(const char *name, int split, int64_t a, int64_t b, int64_t c) {
    ParamDesc desc = desc_of(name, split, a, b, c);
    desc.expert = true;
    return desc;
}

/* On one of the tp x ep ranks that divide the parameter. */
static Unit unit_of(ParamDesc desc, int rank, int tp, int ep) {
    ParamList list = {0};
    Unit unit;
    UnitSpec spec = {
        .tp_rank = rank % tp, .tp_size = tp, .shards = 1, .expert_rank = rank / tp, .expert_size = ep};
    assert_ok(param_add(&list, desc));
    assert_ok(unit_init(&unit, &list, spec));
    param_list_done(&list);
    return unit;
}

static void test_layout(void **state) {
    ParamList list = {0};
    ParamDesc tied = desc_of("embed.token", 0, 100, 8, 0);
    tied.tied = true;
    assert_ok(param_add(&list, desc_of("norm.weight", -1, 10, 0, 0)));
    assert_ok(param_add(&list, tied));
    assert_ok(param_add(&list, desc_of("qkv.weight", 1, 3, 8, 6)));
    assert_ok(param_add(&list, desc_of("norm.bias", -1, 64, 0, 0)));
    assert_int_equal(param_count(&list.desc[2]), 144);
    Unit unit;
    assert_ok(unit_init(&unit, &list, (UnitSpec){.tp_rank = 1, .tp_size = 2, .shards = 1}));
    assert_int_equal(unit.count, 3); /* the tied parameter is stored in another unit */
    assert_string_equal(unit.slot[1].desc.name, "qkv.weight");
    int64_t end = 0;
    for (size_t i = 0; i < unit.count; i++) {
        const ParamSlot *slot = &unit.slot[i];
        assert_int_equal(slot->offset % UNIT_ALIGN, 0);
        for (size_t j = 0; j < i; j++)
            assert_true(slot->offset >= unit.slot[j].offset + unit.slot[j].count ||
                        unit.slot[j].offset >= slot->offset + slot->count);
        if (slot->offset + slot->count > end) end = slot->offset + slot->count;
    }
    assert_true(unit.numel >= end && unit.numel % UNIT_ALIGN == 0);
    /* Each parameter lies within one range, and the ranges are contiguous. */
    int64_t next = 0;
    for (int k = 0; k < UNIT_RANGES; k++) {
        const UnitRange *range = &unit.range[k];
        assert_int_equal(range->first, next);
        assert_int_equal(range->first % UNIT_BLOCK, 0); /* with tensor parallelism */
        next += range->count;
        for (size_t i = 0; i < unit.count; i++) {
            const ParamDesc *desc = &unit.slot[i].desc;
            int64_t first, count;
            bool here = range_overlap(range, unit.slot[i].offset, unit.slot[i].count, &first, &count);
            assert_int_equal(here, desc->decay == range->decay && (desc->split >= 0) == range->split);
            if (here) assert_int_equal(count, unit.slot[i].count);
        }
    }
    assert_true(next <= unit.numel);
    const ParamSlot *qkv = &unit.slot[1];
    assert_int_equal(qkv->count, 72);
    assert_int_equal(qkv->start, 4);
    assert_int_equal(qkv->dim[1], 4);
    float *flat = calloc((size_t)unit.numel, sizeof *flat);
    Tensor view = unit_view(qkv, flat, DT_F32);
    assert_ptr_equal(view.data, flat + qkv->offset);
    assert_int_equal(view.ndim, 3);
    assert_int_equal(tensor_count(view), 72);
    assert_null(unit_view(qkv, NULL, DT_BF16).data);
    free(flat);
    unit_done(&unit);
    unit_done(&unit);
    param_list_done(&list);
}

static void test_uneven_split_is_refused(void **state) {
    ParamList list = {0};
    assert_ok(param_add(&list, desc_of("layer.0.mlp.up.weight", 0, 6, 4, 0)));
    Unit unit = {.count = 99};
    assert_fails(unit_init(&unit, &list, (UnitSpec){.tp_rank = 0, .tp_size = 4, .shards = 1}), STATUS_USAGE,
                 "layer.0.mlp.up.weight: cannot split a dimension of 6");
    assert_int_equal(unit.count, 99);
    list.desc[0] = expert_of("layer.0.moe.down.weight", 2, 6, 4, 8);
    assert_fails(unit_init(&unit, &list, (UnitSpec){.tp_size = 1, .shards = 1, .expert_size = 4}),
                 STATUS_USAGE, "layer.0.moe.down.weight: cannot divide a dimension of 6 among 4");
    assert_int_equal(unit.count, 99);
    param_list_done(&list);
}

/* Scatters a rank's local values into the global tensor. */
static void scatter(float *global, const ParamSlot *slot, const float *local, int expert_rank) {
    const ParamDesc *desc = &slot->desc;
    int64_t at[PARAM_DIMS];
    for (int64_t i = 0; i < slot->count; i++) {
        int64_t rest = i, index = 0;
        for (int d = desc->ndim - 1; d >= 0; rest /= slot->dim[d], d--)
            at[d] = rest % slot->dim[d] + (d == desc->split ? slot->start : 0);
        if (desc->expert) at[0] += slot->dim[0] * expert_rank;
        for (int d = 0; d < desc->ndim; d++) index = index * desc->dim[d] + at[d];
        global[index] = local[i];
    }
}

static void init_in_parts(ParamDesc desc, int tp, int ep, float *global) {
    float *local = malloc((size_t)param_count(&desc) * sizeof *local);
    for (int rank = 0; rank < tp * ep; rank++) {
        Unit unit = unit_of(desc, rank, tp, ep);
        param_init(&unit.slot[0], 42, 0, unit.slot[0].count, local);
        scatter(global, &unit.slot[0], local, rank / tp);
        unit_done(&unit);
    }
    free(local);
}

static void test_init_does_not_depend_on_the_split(void **state) {
    const ParamDesc cases[] = {
        desc_of("a", 0, 8, 5, 0),     desc_of("b", 1, 7, 12, 0),   desc_of("c", -1, 9, 4, 0),
        desc_of("d", 1, 3, 8, 5),     desc_of("e", 2, 3, 5, 8),    desc_of("f", 0, 16, 0, 0),
        desc_of("g", 0, 512, 300, 0), /* large enough for multithreaded initialization */
        expert_of("h", 1, 8, 12, 5),  expert_of("i", 2, 4, 3, 16), expert_of("j", -1, 4, 9, 0),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bytes = (size_t)param_count(&cases[i]) * sizeof(float);
        float *whole = calloc(1, bytes), *parts = calloc(1, bytes);
        init_in_parts(cases[i], 1, 1, whole);
        for (int tp = 1; tp <= 4; tp *= 2)
            for (int ep = 1; ep <= 4; ep *= 2) {
                memset(parts, 0xff, bytes);
                init_in_parts(cases[i], tp, ep, parts);
                assert_memory_equal(parts, whole, bytes);
            }
        free(whole);
        free(parts);
    }
}

/* Every global element is once on the ranks that divide a parameter. */
static void test_runs(void **state) {
    ParamDesc cases[] = {
        desc_of("a", 0, 8, 5, 0),    desc_of("b", 1, 7, 12, 0),
        desc_of("c", -1, 9, 4, 0),   desc_of("d", 1, 3, 8, 5),
        desc_of("e", 2, 3, 5, 8),    desc_of("f", 0, 200, 3, 0), /* a vocabulary */
        expert_of("g", 1, 8, 12, 5), expert_of("h", 2, 4, 3, 16),
        expert_of("i", -1, 4, 9, 0),
    };
    cases[5].vocab = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int ranks = 1; ranks <= 16; ranks *= 2) {
            int ep = ranks <= 4 ? 1 : 4, tp = ranks / ep, copies = cases[i].expert ? 1 : ep;
            int64_t count = param_count(&cases[i]);
            int *found = calloc((size_t)count, sizeof *found);
            for (int rank = 0; rank < ranks; rank++) {
                Unit unit = unit_of(cases[i], rank, tp, ep);
                const ParamSlot *slot = &unit.slot[0];
                for (int64_t at = 0; at < slot->count;) {
                    ParamRun run = slot_run(slot, at, slot->count - at);
                    assert_true(run.count > 0 && run.local == at);
                    for (int64_t k = 0; k < run.count; k++) {
                        int64_t global = slot_run(slot, at + k, 1).global;
                        assert_int_equal(global, run.global < 0 ? -1 : run.global + k);
                        assert_true(global < count);
                        if (global >= 0) found[global]++;
                    }
                    at += run.count;
                }
                unit_done(&unit);
            }
            for (int64_t k = 0; k < count; k++)
                assert_int_equal(found[k], copies * (cases[i].split < 0 ? tp : 1));
            free(found);
        }
}

/* Shards whose aligned stripes have all rows at once: the matrix stays whole, without padding. */
static void test_single_piece(void **state) {
    ParamList list = {0};
    ParamDesc desc = desc_of("embed.token", 0, 128, 8, 0);
    Unit unit;
    desc.vocab = true;
    assert_ok(param_add(&list, desc));
    assert_ok(unit_init(&unit, &list, (UnitSpec){.tp_size = 1, .shards = 3, .piece = 128 * 8 / 5}));
    assert_int_equal(unit.pieces, 1);
    assert_int_equal(unit.slot[0].dim[0], 128);
    unit_done(&unit);
    param_list_done(&list);
}

/* A vocabulary matrix in pieces: shards store their stripes of all pieces, and every global element is still
 * exactly once in a shard. Gathering a piece yields consecutive rows. */
static void test_pieces(void **state) {
    static const struct {
        int64_t rows, cols;
        int tp, shards;
    } cases[] = {{1000, 24, 1, 2}, {1000, 24, 2, 4}, {50257, 16, 1, 8}, {5000, 64, 2, 3}, {700, 272, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int shards = cases[i].shards;
        int64_t cols = cases[i].cols, found = 0, last = -1;
        ParamList list = {0};
        ParamDesc desc = desc_of("embed.token", 0, cases[i].rows, cols, 0);
        desc.vocab = true;
        assert_ok(param_add(&list, desc));
        for (int rank = 0; rank < cases[i].tp; rank++) {
            Unit unit, piece;
            UnitSpec spec = {.tp_rank = rank, .tp_size = cases[i].tp, .shards = shards};
            spec.piece = cases[i].rows * cols / 5;
            assert_ok(unit_init(&unit, &list, spec));
            assert_true(unit.pieces > 1 && unit.numel % (UNIT_ALIGN * shards * unit.pieces) == 0);
            int64_t part = unit.numel / shards / unit.pieces; /* of a shard in a piece */
            for (int k = 0; k < unit.pieces; k++) {
                assert_ok(unit_piece(&piece, &unit, k));
                assert_int_equal(piece.numel, part * shards);
                assert_int_equal(piece.range[0].count, 0); /* this test's parameter does not decay */
                assert_int_equal(piece.range[2].count, piece.numel);
                for (int64_t at = 0; at < piece.numel; at++) {
                    int64_t shard = at / part;
                    int64_t flat = (shard * unit.pieces + k) * part + at % part;
                    ParamRun run = slot_run(&piece.slot[0], at, 1), same = slot_run(&unit.slot[0], flat, 1);
                    assert_int_equal(run.global, same.global);
                    if (run.global < 0) continue;
                    assert_int_equal(run.global, ++last);
                    found++;
                }
                unit_done(&piece);
            }
            for (int64_t at = 0; at < unit.numel;) {
                ParamRun run = slot_run(&unit.slot[0], at, unit.numel - at);
                assert_true(run.count > 0);
                for (int64_t k = 0; k < run.count; k++)
                    assert_int_equal(slot_run(&unit.slot[0], at + k, 1).global,
                                     run.global < 0 ? -1 : run.global + k);
                at += run.count;
            }
            unit_done(&unit);
        }
        assert_int_equal(found, cases[i].rows * cols);
        param_list_done(&list);
    }
}

static void moments(const float *x, int64_t count, double *ret_mean, double *ret_deviation) {
    double total = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) total += x[i], squares += (double)x[i] * x[i];
    *ret_mean = total / (double)count;
    *ret_deviation = sqrt(squares / (double)count - *ret_mean * *ret_mean);
}

static void test_initial_values(void **state) {
    enum { COUNT = 40000 };
    float *x = malloc(COUNT * sizeof *x), *other = malloc(COUNT * sizeof *other);
    ParamDesc desc = desc_of("layer.0.weight", -1, 200, 200, 0);
    double mean, deviation;
    init_in_parts(desc, 1, 1, x);
    moments(x, COUNT, &mean, &deviation);
    assert_true(fabs(mean) < 0.01 && fabs(deviation - 0.5) < 0.01);
    strcpy(desc.name, "layer.1.weight");
    init_in_parts(desc, 1, 1, other);
    int64_t equal = 0;
    for (int i = 0; i < COUNT; i++) equal += x[i] == other[i];
    assert_true(equal < 10); /* each name has its own random stream */
    desc.init = INIT_TRUNCATED;
    init_in_parts(desc, 1, 1, x);
    for (int i = 0; i < COUNT; i++) assert_true(fabsf(x[i]) <= 2 * desc.std);
    moments(x, COUNT, &mean, &deviation);
    assert_true(fabs(mean) < 0.01 && fabs(deviation - 0.5 * 0.8796) < 0.01);
    desc.init = INIT_ONES;
    init_in_parts(desc, 1, 1, x);
    desc.init = INIT_ZEROS;
    init_in_parts(desc, 1, 1, other);
    for (int i = 0; i < COUNT; i++) assert_true(x[i] == 1 && other[i] == 0);
    free(x);
    free(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_uneven_split_is_refused),
        cmocka_unit_test(test_init_does_not_depend_on_the_split),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_single_piece),
        cmocka_unit_test(test_initial_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
