/* Tests single blocks with dropout: backward against finite differences of forward, memory use against
 * measure(), and selective recompute against no recompute. */
#include "model/rig.h"

/* Returns (f(v + h d) - f(v - h d)) / 2h for the values v, and restores them. */
static double difference(Rig *rig, float *values, const float *direction, int64_t count, double h) {
    CLEANUP(mem_freep) float *kept = NULL;
    assert_ok(mem_new((size_t)count, sizeof *kept, &kept));
    memcpy(kept, values, (size_t)count * sizeof *kept);
    double at[2];
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < count; i++)
            values[i] = (float)(kept[i] + (side ? h : -h) * (double)direction[i]);
        at[side] = rig_objective(rig);
    }
    memcpy(values, kept, (size_t)count * sizeof *kept);
    return (at[1] - at[0]) / (2 * h);
}

/* The directional derivative, with Richardson extrapolation to remove the h^2 error. */
static double slope(Rig *rig, float *values, const float *direction, int64_t count) {
    const double h = 0.04;
    double wide = difference(rig, values, direction, count, h);
    return (4 * difference(rig, values, direction, count, h / 2) - wide) / 3;
}

/* Compares along the gradient, where the slope equals its norm, and along random unit directions, which
 * expose errors in any component. */
static void check_gradient(Rig *rig, const char *name, float *values, const float *gradient, int64_t count) {
    CLEANUP(mem_freep) float *direction = NULL;
    assert_ok(mem_new((size_t)count, sizeof *direction, &direction));
    double norm = 0;
    for (int64_t i = 0; i < count; i++) norm += (double)gradient[i] * gradient[i];
    norm = sqrt(norm);
    /* A gradient of zero has no direction (the span head's bias shifts all scores equally), so start with the
     * random ones. */
    for (int turn = norm > 1e-6 ? 0 : 1; turn < 4; turn++) {
        double expected = 0, root = sqrt((double)count);
        for (int64_t i = 0; i < count; i++) {
            bool up = rng_u32(rng_key(3, name, (uint64_t)turn), (uint64_t)i) & 1;
            direction[i] = (float)(turn == 0 ? gradient[i] / norm : (up ? 1 : -1) / root);
            expected += (double)direction[i] * gradient[i];
        }
        double found = slope(rig, values, direction, count);
        double allowed = turn == 0 ? 3e-3 * norm : 2e-2 * norm / root;
        if (!(fabs(found - expected) <= allowed + 1e-4))
            fail_msg("%s of %s, direction %d: slope %g from backward, %g from finite differences (gradient "
                     "norm %g)",
                     name, rig->model->block[rig->at].ops->name, turn, expected, found, norm);
    }
}

/* Checks the gradients of all parameters of the block and of its input. */
static void check_block(const ModelConfig *config, int at, const char *kernels, Recompute recompute) {
    Rig rig;
    rig_init(&rig, config, at, kernels, recompute);
    rig_gradients(&rig);
    const ParamList *list = &rig.model->block[at].params;
    float *gradient[16]; /* copies, because output heads accumulate gradients in every forward pass */
    assert_true(list->count <= 16);
    for (size_t i = 0; i < list->count; i++) {
        Tensor grad = rig.grads->view[at][i];
        assert_ok(mem_new((size_t)tensor_count(grad), sizeof **gradient, &gradient[i]));
        memcpy(gradient[i], grad.data, tensor_bytes(grad));
    }
    for (size_t i = 0; i < list->count; i++) {
        Tensor value = rig.params->view[at][i];
        check_gradient(&rig, list->desc[i].name, value.data, gradient[i], tensor_count(value));
        free(gradient[i]);
    }
    if (at > 0) check_gradient(&rig, "x", rig.x.data, rig.dx.data, tensor_count(rig_wide(&rig, rig.x)));
    rig_done(&rig);
}

static const char *const backends[] = {"ref", "cpu"};

static void test_embed(void **state) {
    for (int k = 0; k < 2; k++) {
        ModelConfig gpt2 = rig_config(&family_gpt2, OUTPUT_LM), bert = rig_config(&family_bert, OUTPUT_MLM);
        check_block(&gpt2, 0, backends[k], RECOMPUTE_NONE);
        check_block(&bert, 0, backends[k], RECOMPUTE_NONE);
    }
}

static void test_layer(void **state) {
    for (int k = 0; k < 2; k++) {
        ModelConfig gpt2 = rig_config(&family_gpt2, OUTPUT_LM), bert = rig_config(&family_bert, OUTPUT_MLM);
        for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_SELECTIVE; mode++) {
            check_block(&gpt2, 1, backends[k], (Recompute)mode);
            check_block(&bert, 1, backends[k], (Recompute)mode);
        }
        gpt2.scale_attn_by_layer = true;
        check_block(&gpt2, 2, backends[k], RECOMPUTE_NONE);
        gpt2.scale_attn = false;
        check_block(&gpt2, 1, backends[k], RECOMPUTE_NONE);
    }
}

static void test_heads(void **state) {
    static const unsigned sets[] = {OUTPUT_MLM,
                                    OUTPUT_NSP,
                                    OUTPUT_SPAN,
                                    OUTPUT_CLASSIFY,
                                    OUTPUT_MLM | OUTPUT_NSP,
                                    OUTPUT_MLM | OUTPUT_NSP | OUTPUT_SPAN | OUTPUT_CLASSIFY};
    for (int k = 0; k < 2; k++) {
        for (int tied = 0; tied < 2; tied++) {
            ModelConfig gpt2 = rig_config(&family_gpt2, OUTPUT_LM),
                        bert = rig_config(&family_bert, OUTPUT_MLM);
            gpt2.tied = bert.tied = tied;
            check_block(&gpt2, 3, backends[k], RECOMPUTE_NONE);
            check_block(&bert, 3, backends[k], RECOMPUTE_NONE);
        }
        for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
            ModelConfig bert = rig_config(&family_bert, sets[i]);
            check_block(&bert, 3, backends[k], RECOMPUTE_NONE);
        }
    }
}

/* Forward and backward succeed with the sizes from measure() and fail with one byte less. */
static void test_measure_is_exact(void **state) {
    for (const Family *const *family = families(); *family; family++)
        for (int at = 0; at < 4; at++)
            for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_SELECTIVE; mode++) {
                ModelConfig config = rig_config(*family, rig_heads(*family));
                if (config.pad_fixed) config.pad_token = 0;
                Rig rig;
                rig_init(&rig, &config, at, "ref", (Recompute)mode);
                Pass pass = rig_pass(&rig);
                assert_ok(rig_both(&rig, &pass));
                rig_check_guard(rig.saved);
                rig_check_guard(rig.scratch);
                if (pass.saved.bytes) {
                    pass.saved.bytes--;
                    assert_fails(rig_both(&rig, &pass), 1, "needs");
                    pass.saved.bytes++;
                }
                if (pass.scratch.bytes) {
                    pass.scratch.bytes--;
                    assert_fails(rig_both(&rig, &pass), 1, "needs");
                }
                rig_done(&rig);
            }
}

/* A block saves no more in inference than in training, and a layer saves less with selective recompute. */
static void test_measure_by_mode(void **state) {
    for (const Family *const *family = families(); *family; family++) {
        ModelConfig config = rig_config(*family, rig_heads(*family));
        CLEANUP(model_freep) Model *model = NULL;
        assert_ok(model_new(&model, &config));
        for (int at = 0; at < model->count; at++) {
            const Block *block = &model->block[at];
            Shape shape = {.B = 4, .T = 8, .tp = 1, .train = true};
            size_t full, less, none, scratch;
            block->ops->measure(block, shape, &full, &scratch);
            shape.recompute = RECOMPUTE_SELECTIVE;
            block->ops->measure(block, shape, &less, &scratch);
            shape.recompute = RECOMPUTE_NONE;
            shape.train = false;
            block->ops->measure(block, shape, &none, &scratch);
            assert_true(none <= full);
            if (block_is_layer(block)) assert_true(less < full);
        }
    }
}

/* A layer saves less in fp8 than in bf16, or the same with selective recompute. If it is gated, only fp8
 * saves the output of the activation. Smaller batches and, in inference, shorter sequences may have sizes
 * that fp8 does not support and run in bf16; the sizes must suffice for them. */
static void test_measure_fp8(void **state) {
    for (const Family *const *family = families(); *family; family++) {
        ModelConfig config = rig_config(*family, rig_heads(*family));
        config.hidden = 32;
        config.inner = 128;
        CLEANUP(model_freep) Model *model = NULL;
        assert_ok(model_new(&model, &config));
        const Block *layer = &model->block[1];
        for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_SELECTIVE; mode++) {
            Shape shape = {.B = 4, .T = 16, .tp = 1, .dtype = DT_BF16, .train = true};
            shape.recompute = (Recompute)mode;
            size_t wide, rounded, odd, scratch, less;
            layer->ops->measure(layer, shape, &wide, &scratch);
            shape.fp8 = true;
            layer->ops->measure(layer, shape, &rounded, &scratch);
            if (mode == RECOMPUTE_SELECTIVE)
                assert_true(rounded == wide);
            else
                assert_true(config.gated || rounded < wide);
            shape.train = false;
            layer->ops->measure(layer, shape, &odd, &scratch);
            shape.T = 15;
            shape.B = 3;
            shape.fp8 = false;
            layer->ops->measure(layer, shape, &wide, &less);
            assert_true(odd >= wide && scratch >= less);
            shape = (Shape){.B = 4, .T = 12, .tp = 1, .dtype = DT_BF16, .train = true, .fp8 = true};
            layer->ops->measure(layer, shape, &odd, &scratch);
            shape.B = 3;
            shape.fp8 = false;
            layer->ops->measure(layer, shape, &wide, &scratch);
            assert_true(odd >= wide);
        }
    }
}

/* Selective recompute produces the same bits. */
static void test_selective_equals_none(void **state) {
    for (int k = 0; k < 2; k++)
        for (const Family *const *family = families(); *family; family++) {
            ModelConfig config = rig_config(*family, rig_heads(*family));
            Rig rig[2];
            for (int mode = 0; mode < 2; mode++) {
                rig_init(&rig[mode], &config, 1, backends[k], mode ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE);
                rig_gradients(&rig[mode]);
            }
            assert_memory_equal(rig[0].dx.data, rig[1].dx.data, rig[0].dx.bytes);
            assert_memory_equal(rig[0].grads->flat[1].data, rig[1].grads->flat[1].data,
                                rig[0].grads->flat[1].bytes);
            rig_done(&rig[0]);
            rig_done(&rig[1]);
        }
}

/* The embedding of BERT's padding token gets no gradient; all other rows do. */
static void test_padding_gets_no_gradient(void **state) {
    ModelConfig config = rig_config(&family_bert, OUTPUT_SPAN);
    Rig rig;
    for (int pad = -1; pad < 2; pad++) {
        config.pad_token = pad < 0 ? -1 : rig_tokens[pad];
        rig_init(&rig, &config, 0, "ref", RECOMPUTE_NONE);
        rig_gradients(&rig);
        for (int other = 0; other < 2; other++) {
            const float *row = tensor_slice(rig.grads->view[0][0], rig_tokens[other], 1).data;
            double total = 0;
            for (int64_t i = 0; i < config.hidden; i++) total += fabs((double)row[i]);
            assert_int_equal(total == 0, config.pad_token == rig_tokens[other]);
        }
        rig_done(&rig);
    }
}

/* The dropout mask depends only on seed, site, step and position in the global batch. */
static void test_dropout_is_keyed(void **state) {
    ModelConfig config = rig_config(&family_gpt2, OUTPUT_LM);
    Rig rig;
    rig_init(&rig, &config, 1, "ref", RECOMPUTE_NONE);
    double first = rig_objective(&rig);
    assert_true(first == rig_objective(&rig));
    rig.micro.first = 0;
    assert_true(first != rig_objective(&rig));
    rig.micro.first = 2;
    Pass pass = rig_pass(&rig);
    pass.step++;
    CLEANUP(mem_freep) float *kept = NULL;
    assert_ok(mem_new(1, rig.y.bytes, &kept));
    rig_objective(&rig);
    memcpy(kept, rig.y.data, rig.y.bytes);
    assert_ok(rig_forward(&rig, &pass));
    assert_memory_not_equal(kept, rig.y.data, rig.y.bytes);
    rig_done(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_layer),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_measure_is_exact),
        cmocka_unit_test(test_measure_by_mode),
        cmocka_unit_test(test_measure_fp8),
        cmocka_unit_test(test_selective_equals_none),
        cmocka_unit_test(test_padding_gets_no_gradient),
        cmocka_unit_test(test_dropout_is_keyed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
