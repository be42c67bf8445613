/* Communication volume and memory of a layout: the bytes sent by each kind of collective match the theory of
 * each strategy, and a rank's peak memory matches what sharding, recomputation and the pipeline schedule
 * promise.
 * Ranks: 2 4 */
#include "ranks.h"
#include "tiny.h"

#include "comm/staging.h"
#include "plan/dryrun.h"
#include "train/replicas.h"
#include "train/runner.h"

enum { SEQ = 32, LAYERS = 6, WIDTH = 64, MICRO = 2 };

static ModelConfig gpt2_config(bool tied, int64_t vocab) {
    ModelConfig config = tiny_config(&family_gpt2, OUTPUT_LM, TINY_COUNTED);
    config.vocab = vocab;
    config.tied = tied;
    config.dropout_embed = config.dropout_classify = 0;
    return config;
}

typedef struct Rig {
    Model *model;
    Device *device;
    Mesh *mesh;
    Runner *runner;
    HostBatch *batch;
    CommBytes sent[COMM_KINDS]; /* in the second step */
} Rig;

static void rig_done(Rig *rig) {
    runner_free(rig->runner);
    host_batch_free(rig->batch);
    mesh_free(rig->mesh);
    device_free(rig->device);
    model_free(rig->model);
}

/* Runs two steps of `micros` micro-batches on each replica. */
static Rig rig_run_model(Group *world, ModelConfig config, MeshSpec grid, RunnerSpec spec, int micros,
                         bool probed) {
    Rig rig = {0};
    assert_ok(model_new(&rig.model, &config));
    assert_ok(device_new_cpu(&rig.device, 1));
    assert_ok(mesh_new(&rig.mesh, world, grid));
    spec.micro_batch = MICRO;
    spec.seq = SEQ;
    spec.train = true;
    spec.optim = (OptimSpec){.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1};
    spec.mesh = rig.mesh;
    spec.micros = micros;
    spec.noise = probed;
    assert_ok(kernels_find("cpu", &spec.table));
    assert_ok(runner_new(&rig.runner, rig.model, rig.device, &spec));
    assert_ok(store_init_params(rig.runner->params, rig.runner->stream, 3));
    assert_ok(runner_publish(rig.runner));
    rig.runner->probe = probed;
    HostBatch *batch = NULL;
    assert_ok(host_batch_new(&batch, MICRO, SEQ));
    batch->task = TASK_LM;
    for (int64_t i = 0; i < MICRO * SEQ; i++) batch->tokens[i] = batch->labels[i] = (int32_t)(i % 100);
    for (int64_t b = 0; b < MICRO; b++) batch->lens[b] = SEQ;
    batch->loss_count[LOSS_TOKEN] = MICRO * SEQ;
    HostBatch *micro[16];
    for (int i = 0; i < micros; i++) micro[i] = batch;
    rig.batch = batch;
    CommBytes before[COMM_KINDS];
    for (int step = 1; step <= 2; step++) {
        StepResult result;
        mesh_sent(rig.mesh, before);
        assert_ok(runner_step(rig.runner, micro, micros, &(StepSpec){.number = step, .lr = 1e-3}, &result));
    }
    mesh_sent(rig.mesh, rig.sent);
    for (int k = 0; k < COMM_KINDS; k++) comm_bytes_add(&rig.sent[k], before[k], -1);
    return rig;
}

static Rig rig_run_probed(Group *world, bool tied, int64_t vocab, MeshSpec grid, RunnerSpec spec, int micros,
                          bool probed) {
    return rig_run_model(world, gpt2_config(tied, vocab), grid, spec, micros, probed);
}

static Rig rig_run_vocab(Group *world, bool tied, int64_t vocab, MeshSpec grid, RunnerSpec spec, int micros) {
    return rig_run_probed(world, tied, vocab, grid, spec, micros, false);
}

static Rig rig_run(Group *world, bool tied, MeshSpec grid, RunnerSpec spec, int micros) {
    return rig_run_vocab(world, tied, 1024, grid, spec, micros);
}

/* Under the sanitizers, train.layouts runs the layouts whose bytes are counted here. */
static Group *counted_world(void **state) {
    if (SANITIZED) skip();
    return ((Ranks *)*state)->world;
}

/* Number of elements in all units of this stage, padding included. */
static uint64_t elements(const Rig *rig) {
    uint64_t count = 0;
    for (int i = 0; i < rig->model->units; i++)
        if (rig->runner->shards->unit[i].held) count += (uint64_t)rig->runner->shards->unit[i].layout.numel;
    return count;
}

/* What a rank sends in an all-reduce: twice the parts of all others or, if it is small, everything to each.
 */
static uint64_t all_reduced(uint64_t bytes, uint64_t N) {
    return bytes <= SMALL ? bytes * (N - 1) : 2 * bytes * (N - 1) / N;
}

/* All-reduces of all units. */
static uint64_t units_reduced(const Rig *rig, uint64_t N) {
    uint64_t bytes = 0;
    for (int i = 0; i < rig->model->units; i++)
        if (rig->runner->shards->unit[i].held)
            bytes += all_reduced((uint64_t)rig->runner->shards->unit[i].layout.numel * 4, N);
    return bytes;
}

static void expect_sent(const Rig *rig, uint64_t all_reduce, uint64_t reduce_scatter, uint64_t all_gather,
                        uint64_t send) {
    assert_int_equal(rig->sent[COMM_ALL_REDUCE].within, all_reduce);
    assert_int_equal(rig->sent[COMM_REDUCE_SCATTER].within, reduce_scatter);
    assert_int_equal(rig->sent[COMM_ALL_GATHER].within, all_gather);
    assert_int_equal(rig->sent[COMM_BROADCAST].within, 0);
    assert_int_equal(rig->sent[COMM_SEND].within, send);
    for (CommKind kind = 0; kind < COMM_KINDS; kind++) assert_int_equal(rig->sent[kind].between, 0);
}

/* With P bytes of parameters on N ranks, DDP and ZeRO-1 send 2P(N-1)/N per step, apart from small units,
 * whatever the number of micro-batches. ZeRO-2 reduces gradients after every micro-batch. ZeRO-3 also gathers
 * parameters twice per micro-batch, or once if it keeps them. The output head computes its gradients in its
 * forward pass, and the embedding lookup needs no weights in backward, so their own units are gathered once;
 * the tied matrix, which both use, is gathered twice. */
static void test_data_axis(void **state) {
    Group *world = counted_world(state);
    uint64_t N = (uint64_t)world->size, micros = 3;
    MeshSpec grid = {.dp = world->size, .tp = 1, .pp = 1};
    for (int zero = 0; zero <= 3; zero++) {
        CLEANUP(rig_done) Rig rig = rig_run(world, true, grid, (RunnerSpec){.zero = zero}, (int)micros);
        uint64_t P = elements(&rig) * 4, once = P * (N - 1) / N;
        const ShardUnit *unit = rig.runner->shards->unit;
        uint64_t single = (uint64_t)(unit[0].layout.numel + unit[LAYERS + 1].layout.numel) * 4 * (N - 1) / N;
        if (zero == 0) expect_sent(&rig, units_reduced(&rig, N), 0, 0, 0);
        if (zero == 1) expect_sent(&rig, 0, once, once, 0);
        if (zero == 2) expect_sent(&rig, 0, micros * once, once, 0);
        if (zero == 3) expect_sent(&rig, 0, micros * once, micros * (2 * once - single), 0);
    }
    CLEANUP(rig_done)
    Rig kept = rig_run(world, false, grid, (RunnerSpec){.zero = 3, .keep_params = true}, 1);
    uint64_t once = elements(&kept) * 4 * (N - 1) / N;
    expect_sent(&kept, 0, once, once, 0);
}

/* A matrix in K pieces is gathered once for the lookup and twice for the loss, where the piece at which the
 * second pass starts is still there. The gradients of both uses are reduced separately. */
static void test_pieces(void **state) {
    Group *world = counted_world(state);
    uint64_t N = (uint64_t)world->size, micros = 3;
    MeshSpec grid = {.dp = world->size, .tp = 1, .pp = 1};
    CLEANUP(rig_done) Rig rig = rig_run_vocab(world, true, 8192, grid, (RunnerSpec){.zero = 3}, (int)micros);
    const ShardUnit *unit = rig.runner->shards->unit, *matrix = &unit[rig.model->count];
    uint64_t K = (uint64_t)matrix->layout.pieces,
             piece = (uint64_t)matrix->layout.numel / K * 4 * (N - 1) / N;
    uint64_t once = elements(&rig) * 4 * (N - 1) / N;
    uint64_t single = (uint64_t)(unit[0].layout.numel + unit[LAYERS + 1].layout.numel) * 4 * (N - 1) / N;
    assert_true(K > 4);
    expect_sent(&rig, 0, micros * (once + K * piece), micros * (2 * once - single + (K - 1) * piece), 0);
}

/* An all-reduce of the activations sends 2(N-1)/N of their bytes. There are four per layer (five with
 * recomputation, which ends before the last), one after the embedding and one for the output head's input
 * gradient. The loss statistics are all-gathered. With sequence parallelism each all-reduce becomes an
 * all-gather and a reduce-scatter of half the volume each, and the inputs that backward needs in full are
 * gathered again, twice per layer. */
static void test_tensor_axis(void **state) {
    Group *world = counted_world(state);
    uint64_t N = (uint64_t)world->size, micros = 2;
    MeshSpec grid = {.dp = 1, .tp = world->size, .pp = 1};
    uint64_t rows = (uint64_t)MICRO * SEQ, half = rows * WIDTH * 4 * (N - 1) / N;
    uint64_t activations = all_reduced(rows * WIDTH * 4, N);
    uint64_t stats = rows * 3 * 4 * (N - 1), norms = 0;
    for (int recompute = 0; recompute <= 2; recompute++) {
        CLEANUP(rig_done)
        Rig rig = rig_run(world, true, grid, (RunnerSpec){.recompute = (Recompute)recompute}, (int)micros);
        uint64_t each = recompute == RECOMPUTE_BLOCK ? 5 : 4;
        expect_sent(&rig, micros * activations * (each * LAYERS + 2), 0, micros * stats, 0);
    }
    CLEANUP(rig_done) Rig cut = rig_run(world, true, grid, (RunnerSpec){.sequence = true}, (int)micros);
    for (int i = 0; i < LAYERS; i++) norms += 4 * all_reduced(WIDTH * 4, N);
    expect_sent(&cut, norms + micros * activations, micros * half * (4 * LAYERS + 1),
                micros * (half * (4 * LAYERS + 2 * LAYERS + 2) + stats), 0);
}

/* What attention's exchanges send, with parameters reduced as replicas' are. In heads mode a layer exchanges
 * the rows of q, k, v and its output once in forward and once in backward, and in forward again with block
 * recompute. In the other modes the keys and values of all go to all other ranks in each of these passes, but
 * those that forward gathered again are still there in backward; their gradients are scattered, or travel
 * around the ring. */
static void check_context(Group *world, ContextMode mode, bool recompute) {
    uint64_t N = (uint64_t)world->size, micros = 2, rows = MICRO * SEQ / N, layers = micros * LAYERS;
    uint64_t keys = rows * 2 * WIDTH * 4, passes = recompute ? 3 : 2, R = mode == CONTEXT_BOTH ? N / 2 : N;
    MeshSpec grid = {.dp = 1, .tp = 1, .pp = 1, .cp = (int)N, .heads = mode == CONTEXT_BOTH ? 2 : 0};
    RunnerSpec spec = {.cp_mode = mode, .recompute = recompute ? RECOMPUTE_BLOCK : RECOMPUTE_NONE};
    CLEANUP(rig_done)
    Rig rig = rig_run(world, true, grid, spec, (int)micros);
    if (mode == CONTEXT_GATHER) passes = 2;
    uint64_t gathered = layers * passes * keys * (R - 1), all = units_reduced(&rig, N);
    if (mode == CONTEXT_GATHER)
        expect_sent(&rig, all, layers * keys * (N - 1), gathered, 0);
    else
        expect_sent(&rig, all, 0, 0, mode == CONTEXT_HEADS ? 0 : gathered + layers * keys * R);
    uint64_t h = mode == CONTEXT_HEADS ? N : N / R,
             swapped = layers * passes * 4 * rows * WIDTH * 4 * (h - 1) / h;
    assert_int_equal(rig.sent[COMM_ALL_TO_ALL].within, mode == CONTEXT_GATHER ? 0 : swapped);
}

static void test_context_axis(void **state) {
    Group *world = counted_world(state);
    int modes = world->size > 2 ? CONTEXT_BOTH : CONTEXT_RING;
    for (int mode = CONTEXT_HEADS; mode <= modes; mode++)
        for (int recompute = 0; recompute < 2; recompute++)
            check_context(world, (ContextMode)mode, recompute);
}

/* Bytes of units on this rank: of experts, or of all others. */
static uint64_t expert_bytes(const Rig *rig, bool expert) {
    uint64_t bytes = 0;
    for (int i = 0; i < rig->model->units; i++) {
        const Unit *unit = &rig->runner->shards->unit[i].layout;
        if (unit->slot[0].desc.expert == expert) bytes += (uint64_t)unit->numel * 4;
    }
    return bytes;
}

/* Every row that a token's experts need travels to the rank of its expert and back, and so do its gradients,
 * with a weight beside each; recomputation sends it once more. Before, ranks tell each other how many rows
 * they have for each expert. Tokens here choose all experts, so all ranks get as many. What is reduced of the
 * experts is a rank's own part, over those with the same ones. */
static void test_expert_axis(void **state) {
    Group *world = counted_world(state);
    uint64_t N = (uint64_t)world->size, micros = 2;
    ModelConfig config = tiny_config(&family_mixtral, OUTPUT_LM, TINY_COUNTED);
    config.vocab = 1024;
    config.top_k = config.experts;
    uint64_t rows = (uint64_t)(MICRO * SEQ * config.top_k), row = (uint64_t)config.hidden * 4;
    uint64_t counts = (uint64_t)config.experts * 4, layers = micros * (uint64_t)config.layers;
    for (uint64_t P = 2; P <= N; P *= 2)
        for (int zero = 0; zero <= 2; zero++) {
            MeshSpec grid = {.dp = world->size, .tp = 1, .pp = 1, .ep = (int)P};
            RunnerSpec spec = {.zero = zero, .recompute = zero == 1 ? RECOMPUTE_BLOCK : RECOMPUTE_NONE};
            CLEANUP(rig_done) Rig rig = rig_run_model(world, config, grid, spec, (int)micros, false);
            uint64_t each = rows * (4 * row + 2 * 4) + counts;
            if (zero == 1) each += rows * (row + 4) + counts;
            assert_int_equal(rig.sent[COMM_ALL_TO_ALL].within, layers * each * (P - 1) / P);
            uint64_t S = N / P, once = expert_bytes(&rig, false) * (N - 1) / N;
            once += expert_bytes(&rig, true) * (S - 1) / S;
            uint64_t all = zero ? 0 : rig.sent[COMM_ALL_REDUCE].within;
            expect_sent(&rig, all, zero * once, zero ? once : 0, 0);
            if (zero == 0)
                assert_true(all >= once && all <= 2 * once + once / 20); /* small units send more */
            DryRunSpec dryrun = {.model = rig.model,
                                 .spec = rig.runner->spec,
                                 .mesh = grid,
                                 .device = "cpu",
                                 .threads = 1,
                                 .batch = rig.batch};
            DryRunRank planned;
            assert_ok(dryrun_rank(&dryrun, world->rank, &planned));
            for (CommKind kind = 0; kind < COMM_KINDS; kind++)
                assert_int_equal(comm_bytes_sum(planned.sent[kind]), comm_bytes_sum(rig.sent[kind]));
            dryrun_rank_done(&planned);
        }
}

/* Each stage boundary sends activations forward and their gradients back. The two end stages also all-reduce
 * the gradient of the tied matrix. */
static void test_pipeline_axis(void **state) {
    Group *world = counted_world(state);
    uint64_t micros = 4, boundary = (uint64_t)MICRO * SEQ * WIDTH * 4;
    MeshSpec grid = {.dp = 1, .tp = 1, .pp = world->size};
    static const ScheduleKind kinds[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_ZERO_BUBBLE};
    for (int k = 0; k < 3; k++) {
        CLEANUP(rig_done)
        Rig rig = rig_run(world, true, grid, (RunnerSpec){.schedule = kinds[k]}, (int)micros);
        int stage = rig.mesh->at[AXIS_PP];
        bool end = stage == 0 || stage == world->size - 1;
        uint64_t tied = (uint64_t)rig.runner->shards->unit[rig.model->count].layout.numel * 4;
        expect_sent(&rig, end ? tied : 0, 0, 0, micros * boundary * (end ? 1 : 2));
    }
}

/* What a rank sends in a reduce-scatter of `bytes` bytes. */
static uint64_t scattered(uint64_t bytes, uint64_t N) {
    return bytes <= SMALL ? bytes * (N - 1) : bytes * (N - 1) / N;
}

/* In steps that measure the noise scale, the sketches of all micro-batches are summed once over the stages,
 * or over ranks with other parts of the same sequences, each rank keeping a part of the totals; ranks with
 * the same parameters sum one sketch. Other steps send nothing of them, and a plan counts the same. */
static void test_sketches(void **state) {
    Group *world = ((Ranks *)*state)->world;
    uint64_t N = (uint64_t)world->size, micros = 4;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) {
        if (axis == AXIS_TP) continue;
        MeshSpec grid = {.dp = 1, .tp = 1, .pp = 1};
        RunnerSpec spec = {.cp_mode = CONTEXT_HEADS};
        grid.extent[axis] = world->size;
        CLEANUP(rig_done) Rig plain = rig_run(world, true, grid, spec, (int)micros);
        CLEANUP(rig_done)
        Rig probed = rig_run_probed(world, true, 1024, grid, spec, (int)micros, true);
        uint64_t sketch = (uint64_t)probed.runner->shards->spec.sketch * sizeof(double);
        uint64_t parts = axis == AXIS_DP ? 0 : scattered(micros * sketch, N);
        assert_true(sketch > 0);
        for (CommKind kind = 0; kind < COMM_KINDS; kind++) {
            uint64_t more = comm_bytes_sum(probed.sent[kind]) - comm_bytes_sum(plain.sent[kind]);
            uint64_t sums = parts + (axis == AXIS_PP ? 0 : scattered(sketch, N));
            assert_int_equal(more, kind == COMM_REDUCE_SCATTER ? sums : 0);
        }
        DryRunSpec dryrun = {.model = probed.model,
                             .spec = probed.runner->spec,
                             .mesh = grid,
                             .device = "cpu",
                             .threads = 1,
                             .batch = probed.batch};
        DryRunRank planned;
        assert_ok(dryrun_rank(&dryrun, world->rank, &planned));
        for (CommKind kind = 0; kind < COMM_KINDS; kind++)
            assert_int_equal(comm_bytes_sum(planned.sent[kind]), comm_bytes_sum(probed.sent[kind]));
        dryrun_rank_done(&planned);
    }
}

static size_t unit_bytes(const Rig *rig, int at) {
    return (size_t)rig->runner->shards->unit[at].layout.numel * 4;
}

/* ZeRO-3 stores 1/N of parameters, gradients and optimizer state, plus at most two layers of parameters and
 * of gradients, even if the vocabulary is most of the model. */
static void test_sharded_memory(void **state) {
    Group *world = counted_world(state);
    MeshSpec grid = {.dp = world->size, .tp = 1, .pp = 1};
    for (int64_t vocab = 1024; vocab <= 8192; vocab *= 8) {
        CLEANUP(rig_done) Rig rig = rig_run_vocab(world, true, vocab, grid, (RunnerSpec){.zero = 3}, 2);
        size_t part = (size_t)elements(&rig) * 4 / (size_t)world->size, layer = unit_bytes(&rig, 1);
        size_t tied = unit_bytes(&rig, rig.model->count), two = layer + (vocab == 1024 ? tied : layer);
        const MemStat *mem = rig.device->mem;
        assert_true((double)mem[MEM_PARAMS].peak <= 1.05 * (double)(part + two));
        assert_true((double)mem[MEM_GRADS].peak <= 1.05 * (double)(part + two));
        assert_true((double)mem[MEM_OPTIMIZER].peak <= 1.05 * (double)(2 * part));
    }
    CLEANUP(rig_done) Rig whole = rig_run(world, true, grid, (RunnerSpec){0}, 2);
    assert_int_equal(whole.device->mem[MEM_PARAMS].peak, elements(&whole) * 4);
    assert_int_equal(whole.device->mem[MEM_GRADS].peak, elements(&whole) * 4);
}

/* Bytes that one layer saves for one micro-batch. */
static size_t layer_saved(const Rig *rig) {
    const Block *layer = &rig->model->block[1];
    Shape shape = {.B = MICRO, .T = SEQ, .tp = 1, .train = true};
    size_t saved, scratch;
    layer->ops->measure(layer, shape, &saved, &scratch);
    return saved;
}

/* With recomputation, a rank stores the layers' inputs and the activations of one layer. 1F1B keeps at most p
 * micro-batches in flight; GPipe keeps all of them. */
static void test_activations(void **state) {
    Group *world = counted_world(state);
    MeshSpec alone = {.dp = world->size, .tp = 1, .pp = 1}, piped = {.dp = 1, .tp = 1, .pp = world->size};
    size_t rows = (size_t)MICRO * SEQ * WIDTH * 4;
    CLEANUP(rig_done) Rig block = rig_run(world, true, alone, (RunnerSpec){.recompute = RECOMPUTE_BLOCK}, 2);
    size_t saved = layer_saved(&block), peak = block.device->mem[MEM_ACTIVATIONS].peak;
    size_t ids = host_batch_bytes(MICRO, SEQ, SEQ, 0);
    /* Inputs of the layers and of the output head, one gradient, what the head saves, and the activations of
     * one layer. */
    assert_true(peak >= saved + (LAYERS + 1) * rows);
    assert_true(peak <= saved + (LAYERS + 3) * rows + ids + 4096);
    CLEANUP(rig_done) Rig none = rig_run(world, true, alone, (RunnerSpec){0}, 2);
    assert_true(none.device->mem[MEM_ACTIVATIONS].peak >= LAYERS * saved);
    int micros = 3 * world->size, stage = none.mesh->rank;
    CLEANUP(rig_done) Rig lean = rig_run(world, true, piped, (RunnerSpec){.schedule = SCHEDULE_1F1B}, micros);
    CLEANUP(rig_done) Rig all = rig_run(world, true, piped, (RunnerSpec){.schedule = SCHEDULE_GPIPE}, micros);
    assert_int_equal(lean.runner->chunk[0].buffer_sets, world->size - stage);
    assert_int_equal(all.runner->chunk[0].buffer_sets, micros);
    assert_true(lean.device->mem[MEM_ACTIVATIONS].peak < all.device->mem[MEM_ACTIVATIONS].peak);
}

/* Ranks of one host share its memory: what fits one of them need not fit all. */
static void test_host_memory(void **state) {
    Group *world = ((Ranks *)*state)->world;
    CLEANUP(model_freep) Model *model = NULL;
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    ModelConfig config = gpt2_config(true, 1024);
    assert_ok(model_new(&model, &config));
    assert_ok(device_new_cpu(&device, 1));
    assert_ok(mesh_new(&mesh, world, (MeshSpec){.dp = world->size, .tp = 1, .pp = 1}));
    RunnerSpec spec = {.micro_batch = MICRO, .seq = SEQ, .mesh = mesh};
    assert_ok(kernels_find("cpu", &spec.table));
    for (int i = 0; i < 2; i++) {
        CLEANUP(runner_freep) Runner *runner = NULL;
        Status status = runner_new(&runner, model, device, &spec);
        if (i) {
            assert_non_null(status);
            assert_non_null(strstr(status_message(status), "together, but"));
            status_free(status);
        } else {
            assert_ok(status);
            device->host_limit = device->total.current * (size_t)world->size - 1;
        }
    }
}

/* Ranks that hold the same elements are compared, whether all replicas do or those of replica groups. */
static void test_replicas_are_compared(void **state) {
    Group *world = ((Ranks *)*state)->world;
    for (int zero = 0; zero <= 3; zero += 3) {
        MeshSpec grid = {.dp = world->size, .tp = 1, .pp = 1, .shard = zero ? world->size / 2 : 0};
        CLEANUP(rig_done) Rig rig = rig_run(world, true, grid, (RunnerSpec){.zero = zero}, 1);
        assert_ok(replicas_check(rig.runner));
        int last = world->size - 1;
        float *values = rig.runner->params->flat[1].data;
        if (world->rank == last) values[0] += 1;
        if (world->rank == last || !zero || world->rank == last - world->size / 2)
            assert_fails(replicas_check(rig.runner), 1, "replicas have different weights: layer.0.");
        else
            assert_ok(replicas_check(rig.runner));
        assert_ok(barrier(world));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_replicas_are_compared),
    cmocka_unit_test(test_data_axis),
    cmocka_unit_test(test_pieces),
    cmocka_unit_test(test_tensor_axis),
    cmocka_unit_test(test_pipeline_axis),
    cmocka_unit_test(test_context_axis),
    cmocka_unit_test(test_expert_axis),
    cmocka_unit_test(test_sketches),
    cmocka_unit_test(test_sharded_memory),
    cmocka_unit_test(test_activations),
    cmocka_unit_test(test_host_memory),
};

RANKS_MAIN(tests)
