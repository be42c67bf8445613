/* Tests of the dispatch functions for mixtures of experts. */
#include "dispatch.h"

void test_wrong_experts(void **state) {
    Kit *kit = *state;
    Exec *e = &kit->exec;
    enum { B = 1, T = 3, E = 4, K = 2, R = B * T * K };
    Tensor logits = kit_random(kit, shape3(B, T, E)), weights = kit_random(kit, shape3(B, T, K));
    Tensor experts = kit_index(kit, weights, 0, E), slots = kit_index(kit, shape1(R), 0, R);
    Tensor offsets = kit_index(kit, shape1(E + 1), 0, 1), rows = kit_random(kit, shape2(R, 5)),
           none = TENSOR_NONE, w = kit_random(kit, shape3(E, 5, 5)), x = kit_random(kit, shape2(T, 5));
    Positions at = {0};
    REJECTS(route_forward(e, weights, experts, tensor_matrix(logits), none, at, (Route){0}),
            "route_forward: logits and experts must be (B, T, E)");
    REJECTS(route_forward(e, rows, experts, logits, none, at, (Route){0}), "route_forward: weights");
    REJECTS(route_forward(e, weights, experts, logits, slots, at, (Route){0}), "route_forward: lens");
    REJECTS(route_forward(e, weights, experts, logits, none, at, (Route){.bias = weights}),
            "route_forward: bias");
    REJECTS(route_forward(e, weights, experts, logits, none, at, (Route){.groups = 4, .top_groups = 1}),
            "route_forward: 2 of 4 experts cannot be chosen from 1 of 4 groups");
    REJECTS(route_forward(e, kit_random(kit, shape3(B, T, E + 1)), kit_index(kit, shape3(B, T, E + 1), 0, E),
                          logits, none, at, (Route){0}),
            "route_forward: 5 of 4 experts");
    REJECTS(route_backward(e, logits, rows, experts, logits, experts, (RouteLoss){0}, (Route){0}),
            "route_backward: dweights");
    REJECTS(route_count(e, offsets, none, logits, experts, none, (Route){0}), "route_count: counts");
    REJECTS(expert_sort(e, experts, slots, none, experts), "expert_sort: offsets is absent");
    REJECTS(expert_gather(e, rows, none, x, weights, slots, K), "expert_gather: weights and out_weights");
    REJECTS(expert_combine(e, x, rows, weights, false), "expert_combine: place");
    REJECTS(expert_act_forward(e, rows, x, none, offsets, ACT_SILU), "expert_act_forward: x");
    REJECTS(grouped_forward(e, rows, rows, tensor_matrix(w), offsets), "grouped_forward: the matrices");
    REJECTS(grouped_forward(e, rows, rows, w, slots), "grouped_forward: offsets");
    REJECTS(grouped_backward_input(e, rows, logits, w, offsets), "grouped_backward_input: rows");
    REJECTS(grouped_backward_weight(e, kit_as(kit, w, DT_BF16), rows, rows, offsets, true),
            "grouped_backward_weight: dw");
}

void test_experts_out_of_range(void **state) {
    (void)state;
    enum { M = 3, E = 4, K = 2, R = M * K, C = 5 };
    for (int i = 0; i < 2; i++) {
        Kit kit;
        kit_init(&kit, backends[i], 2);
        Exec *e = &kit.exec;
        Tensor index = kit_index(&kit, shape2(M, K), R, R + 1), experts = kit_index(&kit, index, E, E + 1);
        Tensor x = kit_random(&kit, shape2(M, C)), xs = kit_random(&kit, shape2(R, C)),
               w = kit_random(&kit, shape3(E, C, C)), y = kit_take(&kit, xs);
        Tensor logits = kit_random(&kit, shape2(M, E)), offsets = kit_index(&kit, shape1(E + 1), 0, 1);
        Tensor counts = kit_take(&kit, tensor_1d(NULL, DT_I64, E)),
               totals = kit_take(&kit, tensor_1d(NULL, DT_F64, 3));
        REJECTS(
            expert_sort(e, kit_take(&kit, index), kit_take(&kit, index), kit_take(&kit, offsets), experts),
            "expert_sort: expert 4 is out of range");
        REJECTS(expert_gather(e, y, TENSOR_NONE, x, TENSOR_NONE, index, K), "expert_gather: slot 6");
        REJECTS(expert_combine(e, x, xs, index, false), "expert_combine: place 6");
        REJECTS(route_backward(e, logits, kit_take(&kit, shape1(R)), index, logits, experts, (RouteLoss){0},
                               (Route){0}),
                "route_backward: expert 4");
        REJECTS(route_count(e, counts, totals, logits, experts, TENSOR_NONE, (Route){0}),
                "route_count: expert 4");
        tensor_i32(offsets)[1] = 1; /* the next is 0 */
        REJECTS(expert_act_forward(e, y, xs, TENSOR_NONE, offsets, ACT_SILU),
                "expert_act_forward: offset 0 of expert 2");
        REJECTS(grouped_forward(e, y, xs, w, offsets), "grouped_forward: offset 0 of expert 2");
        for (int k = 1; k <= E; k++) tensor_i32(offsets)[k] = R + 1;
        REJECTS(grouped_backward_input(e, y, xs, w, offsets), "grouped_backward_input: offset 7");
        REJECTS(grouped_backward_weight(e, w, y, xs, offsets, true), "grouped_backward_weight: offset 7");
        kit_done(&kit);
    }
}

/* A dry run requests the workspace of a real one, whatever the offsets are, which it does not have. */
void test_grouped_dryrun(void **state) {
    (void)state;
    enum { R = 300, N = 100, K = 80, E = 5 };
    static const DType types[] = {DT_F32, DT_BF16};
    for (int i = 0; i < 12; i++) {
        DType dtype = types[i % 2];
        Kit kit;
        CLEANUP(device_freep) Device *device = NULL;
        CLEANUP(stream_freep) Stream *stream = NULL;
        kit_init(&kit, "cpu", 2);
        assert_ok(device_new_dryrun(&device, 2));
        assert_ok(stream_new(&stream, device));
        Exec dry = {.stream = stream}, *execs[] = {&dry, &kit.exec};
        assert_ok(kernels_dryrun("cpu", &dry.table));
        Tensor w = kit_random(&kit, tensor_3d(NULL, dtype, E, N, K)), dw = kit_random(&kit, shape3(E, N, K));
        Tensor x = kit_random(&kit, tensor_2d(NULL, dtype, R, K)),
               y = kit_random(&kit, tensor_2d(NULL, dtype, R, N));
        Tensor offsets = kit_index(&kit, shape1(E + 1), 0, 1);
        for (int e = 1; e <= E; e++) tensor_i32(offsets)[e] = i / 6 ? R : R * e / E;
        for (int k = 0; k < 2; k++) {
            Tensor at = offsets;
            if (k == 0) at.data = (void *)64;
            if (i / 2 % 3 == 0) assert_ok(grouped_forward(execs[k], y, x, w, at));
            if (i / 2 % 3 == 1) assert_ok(grouped_backward_input(execs[k], x, y, w, at));
            if (i / 2 % 3 == 2) assert_ok(grouped_backward_weight(execs[k], dw, y, x, at, true));
        }
        assert_true(stream->workspace.bytes > 0);
        assert_int_equal(stream->workspace.bytes, kit.stream->workspace.bytes);
        kit_done(&kit);
    }
}
