/* Optimizers against PyTorch over 20 steps (tests/golden/make_optim.py), and parameter groups. */
#include <math.h>

#include "device.h"
#include "test.h"

#include "base/json.h"
#include "optim/optim.h"

static double number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* The formulas of the script. */
static float initial(int64_t i) {
    return (float)(0.5 * sin(1.7 * (double)i + 0.3));
}
static float gradient(int64_t step, int64_t i) {
    double angle = 0.37 * (double)i * (1 + (double)(step % 3)) + 0.9 * (double)step;
    return (float)(cos(angle) * (0.1 + 0.05 * (double)(i % 7)));
}

static OptimSpec spec_of(const json_t *golden) {
    OptimSpec spec = {.beta1 = number(golden, "beta1"),
                      .beta2 = number(golden, "beta2"),
                      .eps = number(golden, "eps"),
                      .momentum = number(golden, "momentum"),
                      .nesterov = number(golden, "nesterov") > 0,
                      .weight_decay = number(golden, "weight-decay")};
    const char *scale = json_string_value(json_object_get(golden, "muon-scale"));
    if (scale && !strcmp(scale, "match-adamw")) spec.muon_scale = MUON_MATCH_ADAMW;
    assert_ok(optim_find(json_string_value(json_object_get(golden, "optimizer")), &spec.kind));
    return spec;
}

typedef struct Bench {
    Device *device;
    Stream *stream;
    Exec exec;
    Buffer buffer[3 + OPTIM_STATES]; /* param, grad, work, states */
} Bench;

static Tensor bench_take(Bench *bench, int at, int64_t count) {
    size_t bytes = (size_t)count * sizeof(float);
    assert_ok(dev_alloc(bench->device, MEM_PARAMS, bytes, &bench->buffer[at]));
    memset(bench->buffer[at].data, 0, bytes);
    return tensor_1d(bench->buffer[at].data, DT_F32, count);
}

static void bench_done(Bench *bench) {
    for (int i = 0; i < 3 + OPTIM_STATES; i++) dev_free(&bench->buffer[i]);
    stream_free(bench->stream);
    test_device_free(bench->device);
}

/* The same elements with columns in blocks, as tensor parallelism stores them; or back. */
static void to_blocks(float *data, int64_t rows, int64_t cols, int64_t blocks, bool back) {
    float copy[128];
    int64_t width = cols / blocks;
    assert_true(rows * cols <= 128);
    memcpy(copy, data, (size_t)(rows * cols) * sizeof *data);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            int64_t at = c / width * rows * width + r * width + c % width, plain = r * cols + c;
            data[back ? plain : at] = copy[back ? at : plain];
        }
}

static void run_case(const json_t *golden, int64_t steps, const char *kernels, int blocks) {
    CLEANUP(bench_done) Bench bench = {0};
    int64_t rows = (int64_t)number(golden, "rows"), cols = (int64_t)number(golden, "cols"), n = rows * cols;
    OptimSpec spec = spec_of(golden);
    const Optimizer *kind = spec.kind;
    test_device_new(&bench.device, 2);
    assert_ok(stream_new(&bench.stream, bench.device));
    bench.exec = (Exec){.stream = bench.stream};
    assert_ok(kernels_find(kernels, &bench.exec.table));
    ParamRule rule = {.lr = 1, .decay = spec.weight_decay, .whole = kind->whole.count > 0};
    OptimPart part = {.rule = &rule, .param = bench_take(&bench, 0, n), .grad = bench_take(&bench, 1, n)};
    size_t work = rule.whole ? kind->work_bytes(rows, cols, DT_F32) : 0;
    Tensor memory = bench_take(&bench, 2, (int64_t)(work / sizeof(float)) + 1);
    for (int k = 0; optim_has_state(&spec, &rule, k); k++) part.state[k] = bench_take(&bench, 3 + k, n);
    for (int64_t i = 0; i < n; i++) tensor_f32(part.param)[i] = initial(i);
    for (int64_t number_ = 1; number_ <= steps; number_++) {
        OptimStep step = {.number = number_, .lr = number(golden, "lr"), .grad_scale = 0.5};
        for (int64_t i = 0; i < n; i++) tensor_f32(part.grad)[i] = 2 * gradient(number_, i);
        if (!rule.whole) {
            assert_ok(kind->step(&bench.exec, &spec, &step, &part, 1));
            continue;
        }
        assert_ok(kind->begin(&bench.exec, &spec, &step, &part));
        to_blocks(part.grad.data, rows, cols, blocks, false);
        assert_ok(kind->transform(&bench.exec, &spec, (OptimMatrix){part.grad.data, rows, cols, blocks},
                                  (OptimWork){memory.data, DT_F32}));
        to_blocks(part.grad.data, rows, cols, blocks, true);
        assert_ok(kind->finish(&bench.exec, &spec, &step, &part));
    }
    assert_ok(stream_sync(bench.stream));
    const json_t *result = json_object_get(golden, "result");
    assert_int_equal(json_array_size(result), n);
    for (int64_t i = 0; i < n; i++) {
        double expected = json_number_value(json_array_get(result, (size_t)i));
        double difference = fabs(tensor_f32(part.param)[i] - expected);
        if (!(difference <= 3e-6))
            fail_msg("%s, %s, %lld x %lld, element %lld: %.9g, but PyTorch has %.9g", kind->name, kernels,
                     (long long)rows, (long long)cols, (long long)i, (double)tensor_f32(part.param)[i],
                     expected);
    }
}

static void agrees_with_pytorch(void **state) {
    CLEANUP(json_decrefp) json_t *golden = NULL;
    assert_ok(json_read_file(WEFT_TEST_DIR "/golden/optim.json", &golden));
    size_t index;
    json_t *one;
    bool seen[8] = {false};
    json_array_foreach(json_object_get(golden, "cases"), index, one) {
        int64_t steps = (int64_t)number(golden, "steps");
        run_case(one, steps, "ref", 1);
        run_case(one, steps, "cpu", 1);
        if (!json_object_get(one, "muon-scale")) continue;
        run_case(one, steps, "cpu",
                 number(one, "cols") > 5 ? 2 : 5); /* columns split by tensor parallelism */
    }
    json_array_foreach(json_object_get(golden, "cases"), index, one) {
        for (int i = 0; optim_row(i); i++)
            if (!strcmp(optim_row(i)->name, json_string_value(json_object_get(one, "optimizer"))))
                seen[i] = true;
    }
    for (int i = 0; optim_row(i); i++) assert_true(seen[i]); /* a new row needs a case */
}

static ParamDesc desc_of(const char *name, bool decay) {
    ParamDesc desc = {.ndim = 2, .dim = {4, 4}, .split = -1, .decay = decay};
    snprintf(desc.name, sizeof desc.name, "%s", name);
    return desc;
}

static void groups_set_rules(void **state) {
    OptimGroup group[2];
    assert_ok(optim_group_parse("layer.*.bias:lr=0.5,weight-decay=0.2", &group[0]));
    assert_ok(optim_group_parse("layer.1.*:lr=0.25", &group[1]));
    OptimSpec spec = optim_defaults(optim_row(0));
    spec.group = group;
    spec.groups = 2;
    ParamDesc bias = desc_of("layer.0.mlp.up.bias", false), weight = desc_of("layer.1.mlp.up.weight", true),
              other = desc_of("embed.token", true);
    ParamRule rule = optim_rule(&spec, &bias);
    assert_true(rule.lr == 0.5 && rule.decay == 0.2 && !rule.whole);
    rule = optim_rule(&spec, &weight); /* weight decay is not set by the group */
    assert_true(rule.lr == 0.25 && rule.decay == spec.weight_decay);
    rule = optim_rule(&spec, &other);
    assert_true(rule.lr == 1 && rule.decay == spec.weight_decay);
    bias = desc_of("layer.1.mlp.up.bias", false); /* both match: the last one applies */
    rule = optim_rule(&spec, &bias);
    assert_true(rule.lr == 0.25 && rule.decay == 0);
}

/* Muon's own parameters are the matrices of layers; AdamW's have another learning rate and other state. */
static void muon_leaves_the_rest(void **state) {
    const Optimizer *muon = NULL;
    assert_ok(optim_find("muon", &muon));
    OptimSpec spec = optim_defaults(muon);
    ParamDesc weight = desc_of("layer.1.mlp.up.weight", true), bias = desc_of("layer.1.attn.qkv.bias", false),
              embed = desc_of("embed.position", true), head = desc_of("head.pooler.weight", true);
    assert_true(optim_rule(&spec, &weight).whole && optim_rule(&spec, &weight).lr == 1);
    const ParamDesc *const others[] = {&bias, &embed, &head};
    for (int i = 0; i < 3; i++) {
        assert_false(optim_rule(&spec, others[i]).whole);
        assert_float_equal(optim_rule(&spec, others[i]).lr, 6e-4 / 0.02, 1e-12);
        assert_string_equal(optim_state_name(&spec, others[i], 0), "exp_avg");
        assert_string_equal(optim_state_name(&spec, others[i], 1), "exp_avg_sq");
    }
    assert_string_equal(optim_state_name(&spec, &weight, 0), "momentum_buffer");
    assert_null(optim_state_name(&spec, &weight, 1));
}

static void bad_groups_are_refused(void **state) {
    OptimGroup group;
    assert_fails(optim_group_parse("*.bias", &group), 2, "expected PATTERN:SETTINGS");
    assert_fails(optim_group_parse(":lr=1", &group), 2, "expected PATTERN:SETTINGS");
    assert_fails(optim_group_parse("*:", &group), 2, "expected PATTERN:SETTINGS");
    assert_fails(optim_group_parse("*:beta1=1", &group), 2,
                 "unknown setting 'beta1'; expected lr or weight-decay");
    assert_fails(optim_group_parse("*:lr", &group), 2, "'lr' needs a number >= 0");
    assert_fails(optim_group_parse("*:lr=x", &group), 2, "'lr=x' needs a number >= 0");
    assert_fails(optim_group_parse("*:lr=1,weight-decay=-1", &group), 2, "'weight-decay=-1' needs a number");
    assert_fails(optim_group_parse("*:lr=1,", &group), 2, "unknown setting ''");
    assert_fails(optim_group_parse("*:lr=nan", &group), 2, "needs a number");
    assert_fails(optim_find("adam", &(const Optimizer *){NULL}), 2, "unknown optimizer 'adam'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_pytorch), cmocka_unit_test(groups_set_rules),
        cmocka_unit_test(muon_leaves_the_rest), cmocka_unit_test(bad_groups_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
