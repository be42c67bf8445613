/* Sweep cases: linear layers with sparse weights. Nonzero weights are at random positions, in alternate rows
 * that are full or empty, or in a few columns. */
#include <math.h>

#include "sweep.h"

static Tensor some_weights(Kit *kit, int64_t N, int64_t K, unsigned kind) {
    int64_t bytes = (K + 7) / 8, count = 0;
    Tensor mask = kit_take(kit, tensor_2d(NULL, DT_U8, N, bytes)), values = kit_random(kit, shape1(N * K));
    Tensor first = kit_take(kit, tensor_1d(NULL, DT_F64, N + 1)); /* storage for int64 */
    int64_t *starts = first.data;
    RngKey key = kit_key(kit);
    memset(mask.data, 0, (size_t)(N * bytes));
    for (int64_t n = 0; n < N; n++) {
        starts[n] = count;
        for (int64_t k = 0; k < K; k++) {
            bool nonzero = kind == 0 ? kit_draw(key, n * K + k) % 5 == 0 : kind == 1 ? n % 2 : k % 97 == 0;
            if (!nonzero) continue;
            ((uint8_t *)mask.data)[n * bytes + k / 8] |= (uint8_t)(1u << k % 8);
            count++;
        }
    }
    starts[N] = count;
    size_t size;
    assert_ok(sparse_bytes(&kit->exec, mask, N, K, &size));
    Tensor packed = kit_take(kit, tensor_1d(NULL, DT_U8, (int64_t)size));
    packed = tensor_2d(packed.data, DT_SPARSE, N, K);
    values.dim[0] = count;
    assert_ok(sparse_pack(&kit->exec, packed, mask, starts, values));
    return packed;
}

static void linear_sparse_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0], N = args->n[1], K = args->n[2];
    Tensor w = some_weights(kit, N, K, args->flags % 3), x = kit_random(kit, shape2(M, K));
    Tensor y = kit_take(kit, shape2(M, N)), b = args->flags % 2 ? kit_random(kit, shape1(N)) : TENSOR_NONE;
    Tensor pre = args->flags % 4 == 3 ? kit_take(kit, shape2(M, N)) : TENSOR_NONE;
    Act act = args->flags % 4 > 1 ? ACT_GELU_TANH : ACT_NONE;
    assert_ok(linear_forward(&kit->exec, y, pre, x, w, b, act));
    kit_output(kit, "y", y);
    if (pre.data) kit_output(kit, "pre", pre);
}

void linear_sparse_forward_sweep(Sweep *sweep) {
    static const int64_t sizes[][3] = {{1, 7, 5},     {3, 64, 513},  {4, 33, 100},  {5, 1, 1},
                                       {16, 20, 512}, {17, 65, 70},  {23, 12, 600}, {40, 130, 48},
                                       {1, 768, 768}, {37, 70, 1100}};
    for (unsigned i = 0; i < 10; i++)
        for (unsigned flags = 0; flags < 12; flags += i < 9 ? 1 : 5)
            compare(sweep, linear_sparse_case,
                    (Args){{sizes[i][0], sizes[i][1], sizes[i][2]}, flags, norm_wise});
}
