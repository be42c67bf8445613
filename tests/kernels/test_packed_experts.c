/* Linear layers of experts with packed weights: each row has the bits of a layer with its expert's weights
 * alone.
 *
 * R rows, E experts, K inputs, N outputs */
#include "kernels/int8.h"
#include "kit.h"

enum { N = 37, K = 130, MOST = 700 };

static Tensor pack_stack(Kit *kit, int bits, int64_t E) {
    DType dtype = bits == 8 ? DT_Q8 : DT_Q4;
    size_t bytes = 0;
    assert_ok(bits == 8 ? int8_bytes(&kit->exec, N, K, &bytes) : int4_bytes(&kit->exec, N, K, &bytes));
    Tensor stack = kit_take(kit, tensor_1d(NULL, DT_U8, E * (int64_t)bytes)), one;
    stack = tensor_3d(stack.data, dtype, E, N, K);
    int64_t groups = (K + INT4_GROUP - 1) / INT4_GROUP;
    for (int64_t e = 0; e < E; e++) {
        Tensor w = kit_take(kit, tensor_2d(NULL, bits == 8 ? DT_I8 : DT_U8, N, bits == 8 ? K : (K + 1) / 2));
        Tensor step = kit_take(kit, tensor_2d(NULL, DT_I8, N, groups)),
               scale = kit_uniform(kit, shape1(N), 0.001, 0.02),
               factor = kit_uniform(kit, shape1(K), 0.25, 4);
        RngKey key = kit_key(kit);
        for (int64_t i = 0; i < tensor_count(w); i++)
            ((int8_t *)w.data)[i] = (int8_t)((int)(kit_draw(key, i) % 255) - 127);
        for (int64_t i = 0; i < N * groups; i++) ((int8_t *)step.data)[i] = (int8_t)(i % 100 + 1);
        if (E % 2) factor = TENSOR_NONE;
        assert_ok(packed_matrix(&kit->exec, stack, e, &one));
        assert_ok(bits == 8 ? int8_pack(&kit->exec, one, w, scale, factor)
                            : int4_pack(&kit->exec, one, w, step, scale, factor));
        assert_ok(int8_set_static_amax(one, e % 3 == 1 ? 1.25f : 0));
    }
    return stack;
}

/* All experts but some have rows, and the last rows have none. */
static void check_stack(Kit *kit, int bits, int64_t R, int64_t E) {
    Tensor stack = pack_stack(kit, bits, E), one, x = kit_random(kit, shape2(R, K)),
           y = kit_take(kit, shape2(R, N));
    Tensor offsets = kit_index(kit, shape1(E + 1), 0, 1), expected = kit_take(kit, y);
    int64_t used = R - R / 7;
    for (int64_t e = 1; e <= E; e++)
        tensor_i32(offsets)[e] = e % 4 == 2 && e < E ? tensor_i32(offsets)[e - 1] : (int32_t)(used * e / E);
    assert_ok(grouped_forward(&kit->exec, y, x, stack, offsets));
    for (int64_t e = 0; e < E; e++) {
        int64_t first = tensor_i32(offsets)[e], rows = tensor_i32(offsets)[e + 1] - first;
        if (!rows) continue;
        assert_ok(packed_matrix(&kit->exec, stack, e, &one));
        assert_ok(linear_forward(&kit->exec, tensor_slice(expected, first, rows), TENSOR_NONE,
                                 tensor_slice(x, first, rows), one, TENSOR_NONE, ACT_NONE));
    }
    assert_ok(stream_sync(kit->stream));
    assert_memory_equal(y.data, expected.data, tensor_bytes(y)); /* unused rows are as they were */
    kit_clear(kit);
}

static void experts_have_the_bits_of_layers(void **state) {
    static const int64_t sizes[][2] = {{1, 1}, {2, 8}, {16, 5}, {64, 33}, {100, 4}, {256, 3}, {MOST, 6}};
    Kit kit;
    (void)state;
    kit_init(&kit, test_kernels(), 2);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int bits = 4; bits <= 8; bits += 4) check_stack(&kit, bits, sizes[i][0], sizes[i][1]);
    kit_done(&kit);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(experts_have_the_bits_of_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
