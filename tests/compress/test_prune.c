/* Pruning. The weights it removes match those found here by sorting and counting. A model with pruned neurons
 * or heads computes the same as the dense model whose pruned parts are set to zero. */
#include <math.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "compress/prune.h"
#include "infer/session.h"
#include "test.h"

enum { LAYERS = 2, HIDDEN = 12, INNER = 20, KINDS = 4 };

static const char *const matrices[KINDS] = {"attn.qkv.weight", "attn.out.weight", "mlp.up.weight",
                                            "mlp.down.weight"};

static const PruneRank product = {.score = PRUNE_PRODUCT};

typedef struct Kit {
    Device *device;
    Stream *stream;
    Model *model;
    Store *params, *before;
} Kit;

static Kit kit_new(const Family *family) {
    Kit kit = {0};
    ModelConfig config;
    assert_ok(config_preset(family->presets[0].name, &config));
    config.layers = LAYERS;
    config.hidden = HIDDEN;
    config.heads = family == &family_llama ? 6 : 3;
    if (config.kv_heads) config.kv_heads = 3;
    config.inner = INNER;
    config.vocab = 40;
    config.positions = 16;
    assert_ok(model_new(&kit.model, &config));
    assert_ok(device_new_cpu(&kit.device, 1));
    assert_ok(stream_new(&kit.stream, kit.device));
    Store **both[] = {&kit.params, &kit.before};
    for (int i = 0; i < 2; i++) {
        assert_ok(store_new(both[i], kit.model, kit.device, MEM_PARAMS));
        assert_ok(store_init_params(*both[i], kit.stream, 3));
    }
    return kit;
}

static void kit_done(Kit *kit) {
    store_free(kit->params);
    store_free(kit->before);
    stream_free(kit->stream);
    device_free(kit->device);
    model_free(kit->model);
}

static Tensor find(const Store *params, int layer, const char *name) {
    char full[PARAM_NAME];
    const ParamDesc *desc;
    Tensor view;
    snprintf(full, sizeof full, "layer.%d.%s", layer, name);
    assert_true(store_find(params, full, &desc, &view));
    return view;
}

/* Everything but the layers' weight matrices is unchanged. */
static void assert_rest_kept(const Kit *kit) {
    for (int i = 0; i < kit->model->count; i++) {
        const ParamList *list = &kit->model->block[i].params;
        for (size_t j = 0; j < list->count; j++) {
            bool layer = !strncmp(list->desc[j].name, "layer.", 6);
            if (layer && strstr(list->desc[j].name, ".weight") && !strstr(list->desc[j].name, "norm"))
                continue;
            Tensor now = kit->params->view[i][j], then = kit->before->view[i][j];
            assert_memory_equal(now.data, then.data, (size_t)tensor_count(now) * sizeof(float));
        }
    }
}

/* Checks over all weights seen: no pruned weight is larger than a kept one, and kept weights are
 * unchanged. */
typedef struct Seen {
    int64_t gone, count;
    float largest_gone, smallest_kept;
} Seen;

static void look(Seen *seen, const float *now, const float *then, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float size = fabsf(then[i]);
        seen->count++;
        if (now[i] == 0) {
            seen->gone++;
            seen->largest_gone = fmaxf(seen->largest_gone, size);
        } else {
            assert_true(now[i] == then[i]);
            seen->smallest_kept = fminf(seen->smallest_kept, size);
        }
    }
}

static void assert_pruned(const Kit *kit, double amount, bool per_matrix) {
    Seen all = {.smallest_kept = INFINITY};
    for (int layer = 0; layer < LAYERS; layer++)
        for (int k = 0; k < KINDS; k++) {
            Tensor now = find(kit->params, layer, matrices[k]), then = find(kit->before, layer, matrices[k]);
            int64_t parts = k ? 1 : 3, count = tensor_count(now) / parts;
            for (int64_t p = 0; p < parts; p++) {
                Seen one = {.smallest_kept = INFINITY};
                look(per_matrix ? &one : &all, tensor_f32(now) + p * count, tensor_f32(then) + p * count,
                     count);
                if (!per_matrix) continue;
                assert_int_equal(one.gone, llround(amount * (double)one.count));
                assert_true(one.largest_gone <= one.smallest_kept);
            }
        }
    if (per_matrix) return;
    assert_int_equal(all.gone, llround(amount * (double)all.count));
    assert_true(all.largest_gone <= all.smallest_kept);
}

static void prunes_smallest_weights(void **state) {
    static const double amounts[] = {0.001, 0.37, 0.5, 0.9, 0.999};
    for (int family = 0; family < 2; family++)
        for (int mode = 0; mode < 2; mode++) {
            CLEANUP(kit_done) Kit kit = kit_new(family ? &family_bert : &family_gpt2);
            for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++) { /* in sequence, as in gradual
                                                                             * pruning */
                assert_ok(prune_weights(kit.params, amounts[i], mode == 1, NULL));
                assert_pruned(&kit, amounts[i], mode == 1);
                assert_rest_kept(&kit);
            }
            PruneCount count;
            assert_ok(prune_count(kit.params, &count));
            assert_int_equal(count.total, LAYERS * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * INNER));
            assert_fails(prune_weights(kit.params, 0.5, mode == 1, NULL), 2, "already zero");
        }
}

/* Heads that share a key-value head are removed together, and both halves of a gated MLP. */
static void prunes_groups(void **state) {
    CLEANUP(kit_done) Kit kit = kit_new(&family_llama);
    CLEANUP(model_freep) Model *model = NULL;
    CLEANUP(store_freep) Store *fewer = NULL;
    enum { D = HIDDEN / 6, GONE = 1, ROW = 5 };
    for (int layer = 0; layer < LAYERS; layer++) {
        float *kv = tensor_f32(find(kit.params, layer, "attn.kv.weight"));
        float *down = tensor_f32(find(kit.params, layer, "mlp.down.weight"));
        memset(kv + (3 + GONE) * D * HIDDEN, 0, D * HIDDEN * sizeof *kv); /* values of the second group */
        for (int c = 0; c < HIDDEN; c++) down[c * INNER + ROW] = 0;
    }
    assert_ok(
        prune_shrink(kit.params, INNER - 1, 4, (PruneRank){PRUNE_PRODUCT, NULL}, kit.device, &model, &fewer));
    assert_int_equal(model->config.heads, 4);
    assert_int_equal(config_kv_heads(&model->config), 2);
    assert_int_equal(config_head_width(&model->config), D);
    for (int layer = 0; layer < LAYERS; layer++) {
        const float *q = tensor_f32(find(kit.params, layer, "attn.q.weight"));
        const float *kv = tensor_f32(find(kit.params, layer, "attn.kv.weight"));
        const float *up = tensor_f32(find(kit.params, layer, "mlp.up.weight"));
        const float *new_q = tensor_f32(find(fewer, layer, "attn.q.weight"));
        const float *new_kv = tensor_f32(find(fewer, layer, "attn.kv.weight"));
        const float *new_up = tensor_f32(find(fewer, layer, "mlp.up.weight"));
        size_t group = 2 * D * HIDDEN, head = D * HIDDEN;
        assert_memory_equal(new_q + group, q + 2 * group, group * sizeof *q);
        assert_memory_equal(new_kv + head, kv + 2 * head, head * sizeof *q);     /* k */
        assert_memory_equal(new_kv + 3 * head, kv + 5 * head, head * sizeof *q); /* v */
        assert_memory_equal(new_up + (INNER - 1 + ROW) * HIDDEN, up + (INNER + ROW + 1) * HIDDEN,
                            HIDDEN * sizeof *q);
    }
    PruneCount count;
    assert_ok(prune_count(kit.params, &count));
    assert_int_equal(count.total, LAYERS * (3 * HIDDEN * HIDDEN + 3 * HIDDEN * INNER));
}

static Kit mixture_new(void) {
    Kit kit = {0};
    ModelConfig config;
    family_qwen2_moe.defaults(&config);
    config.layers = LAYERS;
    config.hidden = HIDDEN;
    config.heads = 6;
    config.kv_heads = 3;
    config.inner = INNER;
    config.experts = 4;
    config.top_k = 2;
    config.expert_inner = 5;
    config.shared_inner = 7;
    config.dense_layer[0] = 1;
    config.dense_layers = 1;
    config.vocab = 40;
    config.positions = 16;
    assert_ok(model_new(&kit.model, &config));
    assert_ok(device_new_cpu(&kit.device, 1));
    assert_ok(stream_new(&kit.stream, kit.device));
    Store **both[] = {&kit.params, &kit.before};
    for (int i = 0; i < 2; i++) {
        assert_ok(store_new(both[i], kit.model, kit.device, MEM_PARAMS));
        assert_ok(store_init_params(*both[i], kit.stream, 3));
    }
    return kit;
}

/* Weights of every expert, but not of the routers; heads as in a dense model. */
static void prunes_mixtures(void **state) {
    (void)state;
    CLEANUP(kit_done) Kit kit = mixture_new();
    CLEANUP(model_freep) Model *model = NULL;
    CLEANUP(store_freep) Store *fewer = NULL;
    enum {
        D = HIDDEN / 6,
        ATTENTION = 3 * HIDDEN * HIDDEN,
        EXPERT = 3 * HIDDEN * 5,
        SHARED = 3 * HIDDEN * 7
    };
    PruneCount count;
    assert_ok(prune_count(kit.params, &count));
    assert_int_equal(count.total, 2 * ATTENTION + 4 * EXPERT + SHARED + 3 * HIDDEN * INNER);
    assert_ok(prune_weights(kit.params, 0.4, true, NULL));
    static const struct {
        const char *name;
        int parts;
    } stacks[] = {{"moe.up.weight", 8},
                  {"moe.down.weight", 4},
                  {"moe.shared.up.weight", 2},
                  {"moe.shared.down.weight", 1}};
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        Tensor now = find(kit.params, 0, stacks[i].name), then = find(kit.before, 0, stacks[i].name);
        int64_t each = tensor_count(now) / stacks[i].parts;
        for (int part = 0; part < stacks[i].parts; part++) {
            Seen one = {.smallest_kept = INFINITY};
            look(&one, tensor_f32(now) + part * each, tensor_f32(then) + part * each, each);
            assert_int_equal(one.gone, llround(0.4 * (double)each));
            assert_true(one.largest_gone <= one.smallest_kept);
        }
    }
    static const char *const routers[] = {"moe.router.weight", "moe.shared.router.weight"};
    for (int i = 0; i < 2; i++) {
        Tensor now = find(kit.params, 0, routers[i]), then = find(kit.before, 0, routers[i]);
        assert_memory_equal(now.data, then.data, tensor_bytes(now));
    }
    assert_ok(prune_shrink(kit.params, INNER, 4, product, kit.device, &model, &fewer));
    assert_int_equal(model->config.heads, 4);
    static const char *const kept[] = {"moe.up.weight", "moe.router.weight", "moe.shared.down.weight"};
    for (int i = 0; i < 3; i++) {
        Tensor now = find(fewer, 0, kept[i]), then = find(kit.params, 0, kept[i]);
        assert_memory_equal(now.data, then.data, tensor_bytes(then));
    }
    Tensor dense = find(fewer, 1, "mlp.down.weight"), was = find(kit.params, 1, "mlp.down.weight");
    assert_memory_equal(dense.data, was.data, tensor_bytes(was));
}

/* With equal magnitudes, exactly the requested number of weights is pruned, the first ones. */
static void prunes_ties_in_order(void **state) {
    CLEANUP(kit_done) Kit kit = kit_new(&family_gpt2);
    Tensor up = find(kit.params, 1, "mlp.up.weight");
    for (int64_t i = 0; i < tensor_count(up); i++) tensor_f32(up)[i] = i % 2 ? 0.25f : -0.25f;
    assert_ok(prune_weights(kit.params, 0.3, true, NULL));
    for (int64_t i = 0; i < tensor_count(up); i++)
        assert_true((tensor_f32(up)[i] == 0) == (i < llround(0.3 * (double)tensor_count(up))));
}

static void kept_rows(void **state) {
    assert_int_equal(prune_rows_kept(3072, 0.5, 8), 1536);
    assert_int_equal(prune_rows_kept(20, 0.5, 8), 16);
    assert_int_equal(prune_rows_kept(20, 0.99, 8), 8);
    assert_int_equal(prune_rows_kept(20, 0.99, 1), 1);
    assert_int_equal(prune_rows_kept(20, 0.01, 8), 20);
    assert_int_equal(prune_rows_kept(4, 0.9, 8), 4);
}

/* Rows are made small or large on purpose, so the right choice is known. */
static void prunes_least_important_rows(void **state) {
    for (int family = 0; family < 2; family++) {
        CLEANUP(kit_done) Kit kit = kit_new(family ? &family_bert : &family_gpt2);
        CLEANUP(model_freep) Model *model = NULL;
        CLEANUP(store_freep) Store *fewer = NULL;
        for (int layer = 0; layer < LAYERS; layer++) {
            float *up = tensor_f32(find(kit.params, layer, "mlp.up.weight"));
            float *bias = tensor_f32(find(kit.params, layer, "mlp.up.bias"));
            float *down = tensor_f32(find(kit.params, layer, "mlp.down.weight"));
            for (int f = 0; f < INNER; f++) bias[f] = 0.01f * (float)f;
            for (int f = layer; f < INNER; f += 4) { /* large input weights, nearly zero output weights */
                for (int c = 0; c < HIDDEN; c++) up[f * HIDDEN + c] = 3;
                for (int c = 0; c < HIDDEN; c++) down[c * INNER + f] = 1e-8f;
            }
        }
        assert_ok(prune_shrink(kit.params, 15, 3, product, kit.device, &model, &fewer));
        assert_int_equal(model->config.inner, 15);
        for (int layer = 0; layer < LAYERS; layer++) {
            const float *up = tensor_f32(find(kit.params, layer, "mlp.up.weight"));
            const float *bias = tensor_f32(find(kit.params, layer, "mlp.up.bias"));
            const float *down = tensor_f32(find(kit.params, layer, "mlp.down.weight"));
            int k = 0;
            for (int f = 0; f < INNER; f++) {
                if (f % 4 == layer) continue;
                assert_memory_equal(tensor_f32(find(fewer, layer, "mlp.up.weight")) + k * HIDDEN,
                                    up + f * HIDDEN, HIDDEN * sizeof *up);
                assert_true(tensor_f32(find(fewer, layer, "mlp.up.bias"))[k] == bias[f]);
                for (int c = 0; c < HIDDEN; c++)
                    assert_true(tensor_f32(find(fewer, layer, "mlp.down.weight"))[c * 15 + k] ==
                                down[c * INNER + f]);
                k++;
            }
            assert_memory_equal(tensor_f32(find(fewer, layer, "attn.qkv.weight")),
                                tensor_f32(find(kit.params, layer, "attn.qkv.weight")),
                                3 * HIDDEN * HIDDEN * sizeof(float));
        }
    }
}

static void scores_of(Engine *engine, float *scores) {
    static const int32_t ids[] = {5, 9, 2, 17, 30, 11, 3};
    CLEANUP(session_freep) Session *session = NULL;
    assert_ok(session_new(&session, engine, 1, 8, 8));
    assert_ok(session_feed(session, &(Feed){.ids = ids, .count = 7}, 1));
    memcpy(scores, session_logits(session, 0), (size_t)engine->model->config.vocab * sizeof *scores);
}

/* Zeroes the output weights of the neurons that pruning would remove. */
static void zero_pruned_neurons(Store *params, int64_t kept) {
    int64_t F = params->model->config.inner, C = params->model->config.hidden;
    for (int layer = 0; layer < params->model->config.layers; layer++) {
        CLEANUP(mem_freep) double *score = NULL;
        assert_ok(mem_new((size_t)F, sizeof *score, &score));
        assert_ok(prune_row_scores(params, product, layer, score));
        float *down = tensor_f32(find(params, layer, "mlp.down.weight"));
        for (int64_t f = 0; f < F; f++) {
            int64_t better = 0;
            for (int64_t g = 0; g < F; g++) better += score[g] > score[f];
            for (int64_t c = 0; better >= kept && c < C; c++) down[c * F + f] = 0;
        }
    }
}

static double largest_difference(const float *a, const float *b, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) {
        double apart = fabs((double)a[i] - b[i]);
        if (!(apart <= most)) most = apart;
    }
    return most;
}

/* Compares through a saved and reloaded checkpoint, as a user would. */
static void pruned_equals_zeroed(void **state) {
    char dir[] = "/tmp/weft-test-XXXXXX", out[64];
    assert_non_null(mkdtemp(dir));
    snprintf(out, sizeof out, "%s/out", dir);
    CLEANUP(engine_freep) Engine *dense = NULL, *pruned = NULL;
    CLEANUP(model_freep) Model *model = NULL;
    CLEANUP(store_freep) Store *fewer = NULL;
    const char *from = WEFT_TEST_DIR "/golden/cases/gpt2";
    assert_ok(engine_new(&dense, from, &(EngineOptions){.threads = 1}));
    int64_t V = dense->model->config.vocab, kept = dense->model->config.inner / 2;
    CLEANUP(mem_freep) float *one = NULL, *two = NULL, *whole = NULL;
    assert_ok(mem_new((size_t)V, sizeof *one, &one));
    assert_ok(mem_new((size_t)V, sizeof *two, &two));
    assert_ok(mem_new((size_t)V, sizeof *whole, &whole));
    assert_ok(prune_shrink(dense->params, kept, dense->model->config.heads, product, dense->device, &model,
                           &fewer));
    assert_ok(hf_save(out, fewer, dense->stream, &(SaveOptions){.dtype = DT_F32, .assets_dir = from}));
    assert_ok(engine_new(&pruned, out, &(EngineOptions){.threads = 1}));
    assert_int_equal(pruned->model->config.inner, kept);
    scores_of(dense, whole);
    zero_pruned_neurons(dense->params, kept);
    scores_of(dense, one);
    scores_of(pruned, two);
    assert_true(largest_difference(one, two, V) < 1e-5);
    assert_true(largest_difference(one, whole, V) > 1e-3); /* the removed neurons mattered before */
    assert_ok(dir_remove(dir));
}

/* Removing heads equals zeroing their output weights, and config.json records the
 * removal. */
static void pruned_heads_equal_zeroed(void **state) {
    for (int64_t kept = 1; kept <= 2; kept++) {
        char dir[] = "/tmp/weft-test-XXXXXX", out[64], from[256];
        assert_non_null(mkdtemp(dir));
        snprintf(out, sizeof out, "%s/out", dir);
        snprintf(from, sizeof from, "%s/golden/cases/gpt2", WEFT_TEST_DIR);
        CLEANUP(engine_freep) Engine *dense = NULL, *pruned = NULL;
        CLEANUP(model_freep) Model *model = NULL;
        CLEANUP(store_freep) Store *fewer = NULL;
        assert_ok(engine_new(&dense, from, &(EngineOptions){.threads = 1}));
        const ModelConfig *c = &dense->model->config;
        int64_t V = c->vocab, C = c->hidden, H = c->heads, D = C / H;
        assert_true(kept < H);
        CLEANUP(mem_freep) float *one = NULL, *two = NULL;
        CLEANUP(mem_freep) double *score = NULL;
        assert_ok(mem_new((size_t)V, sizeof *one, &one));
        assert_ok(mem_new((size_t)V, sizeof *two, &two));
        assert_ok(mem_new((size_t)H, sizeof *score, &score));
        assert_ok(prune_shrink(dense->params, c->inner, kept, product, dense->device, &model, &fewer));
        assert_ok(hf_save(out, fewer, dense->stream, &(SaveOptions){.dtype = DT_F32, .assets_dir = from}));
        assert_ok(engine_new(&pruned, out, &(EngineOptions){.threads = 1}));
        assert_int_equal(pruned->model->config.heads, kept);
        assert_int_equal(config_head_width(&pruned->model->config), D);
        for (int layer = 0; layer < c->layers; layer++) {
            assert_ok(prune_head_scores(dense->params, product, layer, score));
            float *weights = tensor_f32(find(dense->params, layer, "attn.out.weight"));
            for (int64_t h = 0; h < H; h++) {
                int64_t better = 0;
                for (int64_t g = 0; g < H; g++) better += score[g] > score[h];
                for (int64_t i = 0; better >= kept && i < C * D; i++) weights[i / D * C + h * D + i % D] = 0;
            }
        }
        scores_of(dense, one);
        scores_of(pruned, two);
        assert_true(largest_difference(one, two, V) < 1e-5);
        assert_ok(dir_remove(dir));
    }
}

/* Gradients with a known value, so that scores can be computed by hand. */
static Store *gradients_new_for(const Kit *kit) {
    Store *grads = NULL;
    assert_ok(store_new(&grads, kit->model, kit->device, MEM_PARAMS));
    assert_ok(store_init_params(grads, kit->stream, 8));
    return grads;
}

static double square(double x) {
    return x * x;
}

/* Scores of one neuron, one head and one output row, written out from their definitions. */
static void scores_by_hand(void **state) {
    enum { NEURON = 7, HEAD = 1, ROW = 4, D = HIDDEN / 3, LAYER = 1 };
    CLEANUP(kit_done) Kit kit = kit_new(&family_gpt2);
    CLEANUP(store_freep) Store *grads = gradients_new_for(&kit);
    float *bias = tensor_f32(find(kit.params, LAYER, "mlp.up.bias"));
    bias[NEURON] = 0.5f;
    tensor_f32(find(grads, LAYER, "mlp.up.bias"))[NEURON] = -2;
    const float *up = tensor_f32(find(kit.params, LAYER, "mlp.up.weight")),
                *up_g = tensor_f32(find(grads, LAYER, "mlp.up.weight"));
    const float *down = tensor_f32(find(kit.params, LAYER, "mlp.down.weight")),
                *down_g = tensor_f32(find(grads, LAYER, "mlp.down.weight"));
    const float *qkv = tensor_f32(find(kit.params, LAYER, "attn.qkv.weight")),
                *qkv_g = tensor_f32(find(grads, LAYER, "attn.qkv.weight"));
    const float *out = tensor_f32(find(kit.params, LAYER, "attn.out.weight")),
                *out_g = tensor_f32(find(grads, LAYER, "attn.out.weight"));
    double row = 0, column = 0, taylor = 0.5 * 2, head = 0, value = 0, read = 0, head_taylor = 0, written = 0;
    for (int c = 0; c < HIDDEN; c++) {
        int u = NEURON * HIDDEN + c, d = c * INNER + NEURON;
        row += square(up[u]);
        column += square(down[d]);
        taylor += fabs((double)up[u] * up_g[u]) + fabs((double)down[d] * down_g[d]);
        written += square(out[ROW * HIDDEN + c]);
    }
    for (int a = HEAD * D; a < (HEAD + 1) * D; a++)
        for (int c = 0; c < HIDDEN; c++) {
            for (int part = 0; part < 3; part++) {
                int i = (part * HIDDEN + a) * HIDDEN + c;
                head += square(qkv[i]);
                if (part == 2) value += square(qkv[i]);
                head_taylor += fabs((double)qkv[i] * qkv_g[i]);
            }
            read += square(out[c * HIDDEN + a]);
            head_taylor += fabs((double)out[c * HIDDEN + a] * out_g[c * HIDDEN + a]);
        }
    const struct {
        PruneRank rank;
        double neuron, head, output;
    } expected[] = {
        {{.score = PRUNE_L2}, sqrt(row), sqrt(head), sqrt(written)},
        {{.score = PRUNE_PRODUCT}, sqrt(row + 0.25) * sqrt(column), sqrt(value) * sqrt(read), sqrt(written)},
        {{PRUNE_GRADIENT, grads}, taylor, head_taylor, -1},
    };
    for (int i = 0; i < 3; i++) {
        double neurons[INNER], heads[3], rows[HIDDEN];
        assert_ok(prune_row_scores(kit.params, expected[i].rank, LAYER, neurons));
        assert_ok(prune_head_scores(kit.params, expected[i].rank, LAYER, heads));
        assert_ok(prune_output_scores(kit.params, expected[i].rank, LAYER, "attn.out.weight", rows));
        assert_true(fabs(neurons[NEURON] - expected[i].neuron) < 1e-12);
        assert_true(fabs(heads[HEAD] - expected[i].head) < 1e-12);
        if (expected[i].output >= 0) assert_true(fabs(rows[ROW] - expected[i].output) < 1e-12);
    }
}

/* By gradient, the smallest |w x g| goes first, whatever the magnitudes are. */
static void prunes_weights_by_gradient(void **state) {
    CLEANUP(kit_done) Kit kit = kit_new(&family_gpt2);
    CLEANUP(store_freep) Store *grads = gradients_new_for(&kit);
    double largest_gone = 0, smallest_kept = INFINITY;
    int64_t gone = 0, total = 0;
    assert_ok(prune_weights(kit.before, 0.2, false, NULL)); /* existing zeros count */
    assert_ok(prune_weights(kit.params, 0.2, false, NULL));
    assert_ok(prune_weights(kit.params, 0.4, false, grads));
    for (int layer = 0; layer < LAYERS; layer++)
        for (int k = 0; k < KINDS; k++) {
            Tensor now = find(kit.params, layer, matrices[k]), g = find(grads, layer, matrices[k]);
            Tensor then = find(kit.before, layer, matrices[k]);
            for (int64_t i = 0; i < tensor_count(now); i++, total++) {
                double score = fabs((double)tensor_f32(then)[i] * tensor_f32(g)[i]);
                gone += tensor_f32(now)[i] == 0;
                if (tensor_f32(now)[i] != 0)
                    smallest_kept = fmin(smallest_kept, score);
                else
                    largest_gone = fmax(largest_gone, score);
            }
        }
    assert_int_equal(gone, llround(0.4 * (double)total));
    assert_true(largest_gone <= smallest_kept);
}

/* Rows of all matrices: removed where the shape allows, zeroed in out and down, biases kept. The rows of
 * smallest norm go. */
static void zeroes_output_rows(void **state) {
    CLEANUP(kit_done) Kit kit = kit_new(&family_gpt2);
    PruneRank l2 = {.score = PRUNE_L2};
    for (int layer = 0; layer < LAYERS; layer++) {
        float *down = tensor_f32(find(kit.params, layer, "mlp.down.weight"));
        for (int i = 0; i < INNER; i++) down[(3 + layer) * INNER + i] = 1e-6f;
        tensor_f32(find(kit.params, layer, "mlp.down.bias"))[3 + layer] = 0.5f;
    }
    assert_int_equal(prune_zero_rows(kit.params), 0);
    assert_ok(prune_zero_outputs(kit.params, 1.0 / HIDDEN, l2));
    assert_int_equal(prune_zero_rows(kit.params), 2 * LAYERS);
    for (int layer = 0; layer < LAYERS; layer++) {
        const float *down = tensor_f32(find(kit.params, layer, "mlp.down.weight"));
        for (int i = 0; i < INNER; i++) assert_true(down[(3 + layer) * INNER + i] == 0);
        assert_true(tensor_f32(find(kit.params, layer, "mlp.down.bias"))[3 + layer] == 0.5f);
    }
    assert_ok(prune_zero_outputs(kit.params, 0.5, l2)); /* zero rows count */
    assert_int_equal(prune_zero_rows(kit.params), HIDDEN * LAYERS);
}

/* All rows at once, with every score: the smaller model computes what a model of the original shape does
 * whose removed neurons and heads are masked. */
static void all_rows_equal_masked(void **state) {
    char dir[] = "/tmp/weft-test-XXXXXX", out[64];
    assert_non_null(mkdtemp(dir));
    for (int which = 0; which < 3; which++) {
        snprintf(out, sizeof out, "%s/out-%d", dir, which);
        CLEANUP(engine_freep) Engine *dense = NULL, *pruned = NULL;
        CLEANUP(model_freep) Model *model = NULL;
        CLEANUP(store_freep) Store *fewer = NULL, *grads = NULL;
        const char *from = WEFT_TEST_DIR "/golden/cases/gpt2";
        assert_ok(engine_new(&dense, from, &(EngineOptions){.threads = 1}));
        const ModelConfig *c = &dense->model->config;
        int64_t V = c->vocab, C = c->hidden, H = c->heads, D = C / H, F = c->inner, inner = F / 2, heads = 1;
        assert_ok(store_new(&grads, dense->model, dense->device, MEM_PARAMS));
        assert_ok(store_init_params(grads, dense->stream, 5));
        PruneRank rank = {.score = (PruneScore)which, .grads = grads};
        assert_ok(prune_zero_outputs(dense->params, 0.5, rank));
        assert_ok(prune_shrink(dense->params, inner, heads, rank, dense->device, &model, &fewer));
        assert_int_equal(prune_zero_rows(fewer), c->layers * 2 * (C / 2));
        assert_ok(hf_save(out, fewer, dense->stream, &(SaveOptions){.dtype = DT_F32, .assets_dir = from}));
        assert_ok(engine_new(&pruned, out, &(EngineOptions){.threads = 1}));
        Tensor view = find(pruned->params, 0, "mlp.down.weight");
        assert_int_equal(tensor_rows(view), C);
        assert_int_equal(tensor_cols(view), inner);
        assert_int_equal(tensor_cols(find(pruned->params, 0, "attn.out.weight")), heads * D);
        CLEANUP(mem_freep) double *score = NULL;
        CLEANUP(mem_freep) float *one = NULL, *two = NULL;
        assert_ok(mem_new((size_t)(F + H), sizeof *score, &score));
        assert_ok(mem_new((size_t)V, sizeof *one, &one));
        assert_ok(mem_new((size_t)V, sizeof *two, &two));
        for (int layer = 0; layer < c->layers; layer++) {
            assert_ok(prune_row_scores(dense->params, rank, layer, score));
            assert_ok(prune_head_scores(dense->params, rank, layer, score + F));
            float *down = tensor_f32(find(dense->params, layer, "mlp.down.weight"));
            float *weights = tensor_f32(find(dense->params, layer, "attn.out.weight"));
            for (int64_t f = 0; f < F; f++) {
                int64_t better = 0;
                for (int64_t g = 0; g < F; g++) better += score[g] > score[f];
                for (int64_t i = 0; better >= inner && i < C; i++) down[i * F + f] = 0;
            }
            for (int64_t h = 0; h < H; h++) {
                int64_t better = 0;
                for (int64_t g = 0; g < H; g++) better += score[F + g] > score[F + h];
                for (int64_t i = 0; better >= heads && i < C * D; i++) weights[i / D * C + h * D + i % D] = 0;
            }
        }
        scores_of(dense, one);
        scores_of(pruned, two);
        assert_true(largest_difference(one, two, V) < 1e-5);
    }
    assert_ok(dir_remove(dir));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prunes_smallest_weights),
        cmocka_unit_test(prunes_ties_in_order),
        cmocka_unit_test(prunes_groups),
        cmocka_unit_test(prunes_mixtures),
        cmocka_unit_test(kept_rows),
        cmocka_unit_test(prunes_least_important_rows),
        cmocka_unit_test(pruned_equals_zeroed),
        cmocka_unit_test(pruned_heads_equal_zeroed),
        cmocka_unit_test(scores_by_hand),
        cmocka_unit_test(prunes_weights_by_gradient),
        cmocka_unit_test(zeroes_output_rows),
        cmocka_unit_test(all_rows_equal_masked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
