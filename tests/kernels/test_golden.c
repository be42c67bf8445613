/* Compares RMS norm, gated activations, rotary embedding and attention with PyTorch's results and gradients,
 * for the reference and the backend under test. See tests/golden/make_kernels.py. */
#include <math.h>

#include "base/json.h"
#include "kit.h"

static const char *const golden = WEFT_TEST_DIR "/golden/cases/kernels.json";

static int64_t number(const json_t *item, const char *key) {
    const json_t *value = json_object_get(item, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* An array as a tensor of this shape. */
static Tensor floats(Kit *kit, const json_t *item, const char *key, Tensor shape) {
    const json_t *list = json_object_get(item, key);
    Tensor tensor = kit_take(kit, shape);
    assert_int_equal(json_array_size(list), tensor_count(shape));
    for (size_t i = 0; i < json_array_size(list); i++)
        tensor_put(tensor, (int64_t)i, json_number_value(json_array_get(list, i)));
    return tensor;
}

static Tensor integers(Kit *kit, const json_t *item, const char *key, Tensor shape) {
    const json_t *list = json_object_get(item, key);
    Tensor tensor = kit_index(kit, shape, 0, 1);
    assert_int_equal(json_array_size(list), tensor_count(shape));
    for (size_t i = 0; i < json_array_size(list); i++)
        tensor_i32(tensor)[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return tensor;
}

static void check(Kit *kit, const json_t *item, const char *key, Tensor got) {
    Tensor want = floats(kit, item, key, got);
    for (int64_t i = 0; i < tensor_count(got); i++) {
        double a = tensor_get(got, i), b = tensor_get(want, i);
        if (!(fabs(a - b) <= 2e-5 * (1 + fabs(b))))
            fail_msg("%s: %g instead of %g at index %lld", key, a, b, (long long)i);
    }
}

static Tensor zeros(Kit *kit, Tensor shape) {
    Tensor tensor = kit_take(kit, shape);
    memset(tensor.data, 0, tensor_bytes(tensor));
    return tensor;
}

static void check_rmsnorm(Kit *kit, const json_t *item) {
    int64_t rows = number(item, "rows"), C = number(item, "width");
    Tensor x = floats(kit, item, "x", shape2(rows, C)), gamma = floats(kit, item, "weight", shape1(C));
    Tensor y = kit_take(kit, x), rstd = kit_take(kit, shape1(rows)), dx = kit_take(kit, x);
    Tensor dy = floats(kit, item, "dy", x), dgamma = zeros(kit, gamma);
    float eps = (float)json_number_value(json_object_get(item, "eps"));
    assert_ok(rmsnorm_forward(&kit->exec, y, rstd, x, gamma, eps, (HeadRange){0}));
    check(kit, item, "y", y);
    assert_ok(rmsnorm_backward(&kit->exec, dx, dgamma, dy, x, rstd, gamma, TENSOR_NONE, (HeadRange){0}));
    check(kit, item, "dx", dx);
    check(kit, item, "dweight", dgamma);
}

static void check_glu(Kit *kit, const json_t *item) {
    static const struct {
        const char *name;
        Act act;
    } acts[] = {{"silu", ACT_SILU}, {"gelu_tanh", ACT_GELU_TANH}, {"gelu", ACT_GELU_ERF}};
    const char *name = json_string_value(json_object_get(item, "act"));
    int64_t rows = number(item, "rows"), F = number(item, "width");
    int i = 0;
    while (strcmp(acts[i].name, name)) i++;
    Tensor x = floats(kit, item, "x", shape3(rows, 2, F)), y = kit_take(kit, shape2(rows, F));
    Tensor dy = floats(kit, item, "dy", y), dx = kit_take(kit, x);
    assert_ok(glu_forward(&kit->exec, y, x, acts[i].act));
    check(kit, item, "y", y);
    assert_ok(glu_backward(&kit->exec, dx, TENSOR_NONE, dy, x, acts[i].act));
    check(kit, item, "dx", dx);
}

static void check_rope(Kit *kit, const json_t *item) {
    int64_t B = number(item, "batch"), T = number(item, "seq"), H = number(item, "heads");
    int64_t G = number(item, "kv_heads"), D = number(item, "width"), P = number(item, "rows");
    Tensor x = floats(kit, item, "x", shape4(B, T, H + 2 * G, D)), dy = floats(kit, item, "dy", x);
    Tensor table = floats(kit, item, "table", shape2(P, D));
    Tensor positions = integers(kit, item, "positions", shape2(B, T));
    assert_ok(rope_forward(&kit->exec, x, table, positions, 0, (HeadRange){0, H + G}));
    check(kit, item, "y", x);
    assert_ok(rope_backward(&kit->exec, dy, table, positions, 0, (HeadRange){0, H + G}));
    check(kit, item, "dx", dy);
}

static void check_attention(Kit *kit, const json_t *item) {
    int64_t B = number(item, "batch"), T = number(item, "seq"), H = number(item, "heads");
    int64_t G = number(item, "kv_heads"), D = number(item, "width");
    Attention spec = {.causal = true,
                      .scale = (float)json_number_value(json_object_get(item, "scale")),
                      .kv_heads = G,
                      .window = number(item, "window")};
    if (json_array_size(json_object_get(item, "starts")))
        spec.starts = integers(kit, item, "starts", shape2(B, T));
    Tensor qkv = floats(kit, item, "qkv", shape4(B, T, H + 2 * G, D)), dqkv = kit_take(kit, qkv);
    Tensor out = kit_take(kit, shape4(B, T, H, D)), lse = kit_take(kit, shape3(B, H, T));
    Tensor dout = floats(kit, item, "dout", out);
    assert_ok(attention_forward(&kit->exec, out, lse, qkv, TENSOR_NONE, spec));
    check(kit, item, "out", out);
    assert_ok(attention_backward(&kit->exec, dqkv, dout, out, lse, qkv, TENSOR_NONE, spec));
    check(kit, item, "dqkv", dqkv);
}

static void check_all(const char *backend, const char *name, void (*body)(Kit *kit, const json_t *item)) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    assert_ok(json_read_file(golden, &json));
    const json_t *list = json_object_get(json, name);
    assert_true(json_array_size(list) > 0);
    Kit kit;
    kit_init(&kit, backend, 2);
    for (size_t i = 0; i < json_array_size(list); i++) {
        body(&kit, json_array_get(list, i));
        kit_clear(&kit);
    }
    kit_done(&kit);
}

static const struct {
    const char *name;
    void (*body)(Kit *kit, const json_t *item);
} groups[] = {
    {"rmsnorm", check_rmsnorm}, {"glu", check_glu}, {"rope", check_rope}, {"attention", check_attention}};
enum { GROUPS = sizeof groups / sizeof *groups };

static void test_group(void **state) {
    uintptr_t i = (uintptr_t)*state;
    check_all("ref", groups[i].name, groups[i].body);
    check_all(test_kernels(), groups[i].name, groups[i].body);
}

int main(void) {
    struct CMUnitTest tests[GROUPS];
    for (uintptr_t i = 0; i < GROUPS; i++)
        tests[i] =
            (struct CMUnitTest){.name = groups[i].name, .test_func = test_group, .initial_state = (void *)i};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
