/* A checkpoint does not depend on the layout. A run that is saved halfway in one layout and resumed in
 * another has the losses of an uninterrupted run on one rank, and the checkpoint is byte for byte what one
 * rank with the same state writes.
 *
 * The layouts are generated: a single rank, and every grid of the test's ranks combined with varying ZeRO
 * stages, schedules and other options. Each layout saves once, and two others resume from its checkpoint.
 * Ranks: 2 4 8 */
#include "ranks.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "checkpoint/background.h"
#include "train/runner.h"

/* VOCAB is split across two tensor-parallel ranks: each has real rows, and the last also has padding. */
enum { SEQ = 8, BATCH = 8, STEPS = 10, HALF = 5, VOCAB = 200, LARGE_VOCAB = 1021, LAYOUTS = 24 };

typedef enum { JOB_GPT2, JOB_BERT, JOB_UNTIED, JOB_LLAMA, JOBS } JobKind;
static const char *const job_names[JOBS] = {"gpt2", "bert", "untied", "llama"};

static ModelConfig config_of(JobKind kind) {
    bool bert = kind == JOB_BERT;
    ModelConfig config;
    (kind == JOB_LLAMA ? &family_llama : bert ? &family_bert : &family_gpt2)->defaults(&config);
    if (kind == JOB_LLAMA) config.kv_heads = 2;
    config.outputs_mask = bert ? OUTPUT_MLM | OUTPUT_NSP : OUTPUT_LM;
    config.pooler = bert;
    config.layers = 4;
    config.hidden = 24;
    config.heads = 4;
    config.inner = 40;
    config.vocab = VOCAB;
    config.positions = SEQ;
    config.labels = 2;
    config.norm_eps = 1e-5f;
    config.init_std = 0.1f;
    config.dropout_embed = 0.1f;
    config.dropout_attn = 0.1f;
    config.dropout_hidden = 0.1f;
    config.tied = kind != JOB_UNTIED;
    config.pad_token = bert ? 0 : -1;
    config.bos_token = -1;
    config.eos_token = -1;
    config.dropout_classify = 0;
    return config;
}

static int32_t draw(const char *site, int64_t step, int64_t index, int64_t below) {
    return (int32_t)rng_below(rng_key(5, site, (uint64_t)step), (uint64_t)index, (uint64_t)below);
}

/* Sequences first .. first + count - 1 of a step's batch. */
static HostBatch *batch_of(JobKind kind, int64_t step, int64_t first, int64_t count) {
    HostBatch *batch = NULL;
    bool bert = kind == JOB_BERT;
    assert_ok(host_batch_new(&batch, count, SEQ));
    batch->task = bert ? TASK_MLM : TASK_LM;
    batch->has_types = bert;
    for (int64_t b = 0; b < count; b++) {
        batch->lens[b] = SEQ;
        batch->nsp[b] = draw("next", step, first + b, 2);
        for (int64_t t = 0; t < SEQ; t++) {
            int64_t i = b * SEQ + t, global = (first + b) * SEQ + t;
            batch->tokens[i] = draw("token", step, global, VOCAB);
            batch->types[i] = t > 3;
            batch->labels[i] = draw("label", step, global, VOCAB);
            if (!bert || draw("pick", step, global, 3)) continue;
            batch->picks[batch->pick_count] = (int32_t)i;
            batch->pick_labels[batch->pick_count++] = batch->labels[i];
        }
    }
    batch->loss_count[LOSS_TOKEN] = bert ? batch->pick_count : count * SEQ;
    batch->loss_count[LOSS_NSP] = bert ? count : 0;
    return batch;
}

typedef struct Layout {
    bool alone; /* each rank trains without the others; the first saves */
    MeshSpec mesh;
    int zero, chunks, micro_batch;
    ScheduleKind schedule;
    bool sequence;
    DType dtype;
    bool words;    /* a vocabulary that ZeRO-3 gathers in pieces */
    int optimizer; /* row of the table of optimizers; 0: AdamW for GPT-2, Muon for BERT */
} Layout;

static OptimSpec optim_of(JobKind job, int optimizer) {
    int row = 0;
    while (!optimizer && job == JOB_BERT && strcmp(optim_row(row)->name, "muon")) row++;
    OptimSpec optim = optim_defaults(optim_row(optimizer ? optimizer : row));
    optim.weight_decay = 0.01;
    return optim;
}

static const char *layout_text(const Layout *l) {
    static char text[2][160];
    static int turn;
    char *at = text[turn++ % 2];
    if (l->alone)
        snprintf(at, sizeof text[0], "one rank %s", dtype_name(l->dtype));
    else
        snprintf(at, sizeof text[0], "dp %d tp %d pp %d shard %d zero %d %s chunks %d%s %s", l->mesh.dp,
                 l->mesh.tp, l->mesh.pp, l->mesh.shard, l->zero, schedule_name(l->schedule), l->chunks,
                 l->sequence ? " sequence" : "", dtype_name(l->dtype));
    return at;
}

/* ---- running a layout ---- */

typedef struct Run {
    JobKind job;
    const Layout *layout;
    Model *model;
    Device *device;
    Mesh *mesh;
    Runner *runner;
    double loss[STEPS];
} Run;

static void run_done(Run *run) {
    runner_free(run->runner);
    mesh_free(run->mesh);
    test_device_free(run->device);
    model_free(run->model);
}

static Run run_new(Group *world, JobKind job, const Layout *layout) {
    Run run = {.job = job, .layout = layout};
    ModelConfig config = config_of(job);
    if (layout->words) config.vocab = LARGE_VOCAB;
    assert_ok(model_new(&run.model, &config));
    test_device_new(&run.device, 1);
    if (!layout->alone) assert_ok(mesh_new(&run.mesh, world, layout->mesh));
    RunnerSpec spec = {.micro_batch = layout->micro_batch,
                       .seq = SEQ,
                       .train = true,
                       .optim = optim_of(job, layout->optimizer),
                       .seed = 9,
                       .mesh = run.mesh,
                       .zero = layout->zero,
                       .sequence = layout->sequence,
                       .dtype = layout->dtype,
                       .schedule = layout->schedule,
                       .chunks = layout->chunks,
                       .micros = BATCH / layout->micro_batch / (run.mesh ? layout->mesh.dp : 1)};
    assert_ok(kernels_find(test_kernels(), &spec.table));
    assert_ok(runner_new(&run.runner, run.model, run.device, &spec));
    assert_ok(store_init_params(run.runner->params, run.runner->stream, 3));
    assert_ok(runner_publish(run.runner));
    return run;
}

static void run_steps(Run *run, int from, int to) {
    int count = run->runner->spec.micros, replica = run->runner->mesh->at[AXIS_DP];
    int64_t size = run->layout->micro_batch;
    HostBatch *micro[BATCH];
    for (int step = from; step < to; step++) {
        for (int i = 0; i < count; i++)
            micro[i] = batch_of(run->job, step, ((int64_t)replica * count + i) * size, size);
        StepResult result;
        assert_ok(runner_step(run->runner, micro, count, step + 1, 2e-3, &result));
        run->loss[step] = result.loss;
        for (int i = 0; i < count; i++) host_batch_free(micro[i]);
    }
    assert_ok(stream_sync(run->runner->stream)); /* the caller reads the weights */
}

static Status run_save_to(const Run *run, Group *world, const RootDisk *disk, const char *dir) {
    const Runner *r = run->runner;
    CLEANUP(json_decrefp) json_t *progress = json_pack("{s:i}", "step", HALF);
    CheckpointState state = {.params = r->params,
                             .state = (const Store *const *)r->state,
                             .optim = &r->spec.optim,
                             .progress = progress,
                             .mesh = run->mesh,
                             .disk = disk};
    Status status = OK;
    if (run->mesh || world->rank == 0) status = ckpt_save(dir, HALF, &state, r->stream, 1);
    if (!run->mesh) TRY(barrier(world));
    return status;
}

static Status run_save(const Run *run, Group *world, const char *dir) {
    return run_save_to(run, world, NULL, dir);
}

static Background *background_of(const Run *run, const RootDisk *disk) {
    const Runner *r = run->runner;
    Background *background = NULL;
    Snapshot snapshot = {0};
    const Store *store[SAVE_STORES] = {r->params};
    for (int k = 0; k < optim_states(&r->spec.optim); k++) store[1 + k] = r->state[k];
    assert_ok(snapshot_init(&snapshot, store, NULL, 1 + optim_states(&r->spec.optim), run->mesh));
    assert_ok(snapshot_alloc(&snapshot, run->device));
    assert_ok(background_new(&background, &snapshot, r->stream, run->mesh, disk));
    return background;
}

/* Saves in the background, with weights that change as soon as they are copied. */
static Status run_save_background(const Run *run, Background *background, const RootDisk *disk,
                                  const char *dir) {
    const Runner *r = run->runner;
    CLEANUP(json_decrefp) json_t *progress = json_pack("{s:i}", "step", HALF);
    CheckpointState state = {.params = r->params,
                             .state = (const Store *const *)r->state,
                             .optim = &r->spec.optim,
                             .progress = progress,
                             .mesh = run->mesh,
                             .disk = disk};
    TRY(background_begin(background, dir, HALF, &state, 1));
    TRY(background_copied(background));
    TRY(store_zero(r->params, r->stream));
    for (int k = 0; k < optim_states(&r->spec.optim); k++) TRY(store_zero(r->state[k], r->stream));
    return background_wait(background);
}

static void run_load(Run *run, const char *dir) {
    CLEANUP(mem_freep) char *step = NULL;
    CLEANUP(json_decrefp) json_t *progress = NULL;
    Runner *r = run->runner;
    assert_ok(ckpt_latest(dir, &step));
    assert_non_null(step);
    assert_ok(ckpt_load(step, NULL, r->params, r->state, &r->spec.optim, r->stream, &progress));
    assert_int_equal(json_integer_value(json_object_get(progress, "step")), HALF);
    assert_ok(runner_publish(r));
}

/* ---- checkpoint directories ---- */

static char temp_dir[64];

static const char *path_of(const char *name, int number) {
    static char path[4][160];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s-%d", temp_dir, name, number);
    return path[turn];
}

static int make_temp_dir(void **state) {
    Group *world = ((Ranks *)*state)->world;
    snprintf(temp_dir, sizeof temp_dir, "/tmp/weft-resume-XXXXXX");
    if (world->rank == 0 && !mkdtemp(temp_dir)) return -1;
    assert_ok(host_broadcast(world, temp_dir, sizeof temp_dir, 0));
    return 0;
}

static int remove_temp_dir(void **state) {
    Group *world = ((Ranks *)*state)->world;
    assert_ok(barrier(world));
    if (world->rank == 0) assert_ok(dir_remove(temp_dir));
    return 0;
}

/* ---- comparing ---- */

/* The parameters and the optimizer's state of one rank, loaded from a checkpoint. */
typedef struct LoadedState {
    Device *device;
    Stream *stream;
    Model *model;
    Store *store[1 + OPTIM_STATES];
    OptimSpec optim;
} LoadedState;

static void loaded_done(LoadedState *loaded) {
    for (int i = 0; i < 1 + OPTIM_STATES; i++) store_free(loaded->store[i]);
    model_free(loaded->model);
    stream_free(loaded->stream);
    test_device_free(loaded->device);
}

static LoadedState load_state(JobKind job, int optimizer, bool words, const char *dir) {
    LoadedState loaded = {.optim = optim_of(job, optimizer)};
    ModelConfig config = config_of(job);
    if (words) config.vocab = LARGE_VOCAB;
    CLEANUP(mem_freep) char *step = NULL;
    test_device_new(&loaded.device, 1);
    assert_ok(stream_new(&loaded.stream, loaded.device));
    assert_ok(model_new(&loaded.model, &config));
    for (int i = 0; i < 1 + OPTIM_STATES; i++) {
        assert_ok(store_new(&loaded.store[i], loaded.model, loaded.device, MEM_PARAMS));
        assert_ok(store_zero(loaded.store[i], loaded.stream));
    }
    assert_ok(ckpt_latest(dir, &step));
    assert_non_null(step);
    assert_ok(ckpt_load(step, NULL, loaded.store[0], &loaded.store[1], &loaded.optim, loaded.stream, NULL));
    return loaded;
}

/* Whether this rank's part of a store is bitwise equal to the same part of the complete one. Padding is 0. */
static bool same_part(const Store *part, const Store *whole) {
    for (int u = 0; u < part->model->units; u++)
        for (size_t j = 0; part->count[u] && j < part->unit[u].count; j++) {
            const ParamSlot *slot = &part->unit[u].slot[j];
            const float *global = (float *)whole->flat[u].data + whole->unit[u].slot[j].offset;
            int64_t from, count;
            if (!slot_overlap(slot, part->first[u], part->count[u], &from, &count)) continue;
            const float *local = (float *)part->flat[u].data + (slot->offset - part->first[u]);
            for (int64_t at = from; at < from + count; at++) {
                ParamRun run = slot_run(slot, at, 1);
                float zero = 0;
                if (memcmp(&local[at], run.global < 0 ? &zero : &global[run.global], sizeof zero))
                    return false;
            }
        }
    return true;
}

static bool same_state(const Run *run, const LoadedState *loaded) {
    const Runner *r = run->runner;
    for (int k = 0; k < optim_states(&r->spec.optim); k++)
        if (!same_part(r->state[k], loaded->store[1 + k])) return false;
    return same_part(r->params, loaded->store[0]);
}

static void assert_same_file(const char *a, const char *b, const char *name) {
    CLEANUP(mem_freep) char *path_a = NULL, *path_b = NULL;
    assert_ok(path_join(&path_a, a, name));
    assert_ok(path_join(&path_b, b, name));
    CLEANUP(file_map_done) FileMap x = {0}, y = {0};
    assert_ok(file_map_init(&x, path_a));
    assert_ok(file_map_init(&y, path_b));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
}

static int entries(const char *dir) {
    DIR *stream = opendir(dir);
    if (!stream) return -1;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(stream));) count += entry->d_name[0] != '.';
    closedir(stream);
    return count;
}

static void assert_same_checkpoint(const char *dir, const char *other) {
    CLEANUP(mem_freep) char *one = NULL, *two = NULL;
    assert_ok(ckpt_latest(dir, &one));
    assert_ok(ckpt_latest(other, &two));
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "config.json",
                                        "weft.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_same_file(one, two, names[i]);
    assert_int_equal(entries(one), entries(two));
}

/* The first rank alone saves the same state: the same files with the same bytes. */
static void assert_one_rank_saves_the_same(const LoadedState *loaded, const char *dir, const char *again) {
    CLEANUP(json_decrefp) json_t *progress = json_pack("{s:i}", "step", HALF);
    CheckpointState state = {.params = loaded->store[0],
                             .state = (const Store *const *)&loaded->store[1],
                             .optim = &loaded->optim,
                             .progress = progress};
    assert_ok(ckpt_save(again, HALF, &state, loaded->stream, 1));
    assert_same_checkpoint(dir, again);
}

/* All ranks save the same state in the background: the same files with the same bytes. */
static void assert_background_saves_the_same(const Run *run, Group *world, const char *dir,
                                             const char *again) {
    if (!run->mesh) return;
    CLEANUP(background_freep) Background *background = background_of(run, NULL);
    assert_ok(run_save_background(run, background, NULL, again));
    if (world->rank == 0) assert_same_checkpoint(dir, again);
}

/* ---- the layouts ---- */

static bool legal(const Layout *layout) {
    int micros = BATCH / layout->mesh.dp / layout->micro_batch, parts = layout->mesh.pp * layout->chunks;
    return micros >= 1 && parts <= 4 &&
           (layout->schedule != SCHEDULE_INTERLEAVED ||
            (layout->mesh.pp > 1 && micros % layout->mesh.pp == 0));
}

/* One rank, then each grid a few times, with different values of the other axes each time. */
static int make_layouts(int ranks, Layout out[LAYOUTS]) {
    static const ScheduleKind schedules[] = {SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_GPIPE,
                                             SCHEDULE_ZERO_BUBBLE};
    int count = 0, turn = 0, times = ranks == 2 ? 3 : ranks == 4 ? 2 : 1;
    out[count++] = (Layout){.alone = true, .chunks = 1, .micro_batch = 2, .schedule = SCHEDULE_1F1B};
    for (int k = 0; k < times; k++)
        for (int dp = 1; dp <= 8; dp *= 2)
            for (int tp = 1; tp <= 4; tp *= 2) {
                int pp = ranks / dp / tp;
                if (dp * tp * pp != ranks || pp > 4) continue;
                Layout layout = {.mesh = {.dp = dp, .tp = tp, .pp = pp}, .chunks = 1, .micro_batch = 1};
                layout.zero = dp == 1 ? 0 : (3 + 3 * turn) % 4;
                if (dp > 1 && k == 1) layout.zero = 0;
                layout.schedule = pp == 1 ? SCHEDULE_1F1B : schedules[(1 + turn) % 4];
                if (pp > 1 && k == 0 && pp * 2 <= 4) layout.schedule = SCHEDULE_INTERLEAVED;
                layout.chunks = layout.schedule == SCHEDULE_INTERLEAVED ? 2 : 1;
                layout.sequence = tp > 1 && turn % 2 == 0;
                if (dp == 4 && layout.zero) layout.mesh.shard = 2; /* hybrid sharding */
                turn++;
                if (!legal(&layout)) layout.schedule = SCHEDULE_GPIPE, layout.chunks = 1;
                if (legal(&layout) && count < LAYOUTS) out[count++] = layout;
            }
    return count;
}

static double relative_diff(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

static void assert_losses(const Run *run, const Run *expected, int from, int to, const char *first) {
    for (int step = from; step < to; step++)
        if (!(relative_diff(run->loss[step], expected->loss[step]) <= 1e-5))
            fail_msg("%s: %s, then %s: step %d: loss %.9g, on one rank %.9g", job_names[run->job], first,
                     layout_text(run->layout), step + 1, run->loss[step], expected->loss[step]);
}

/* Saves the first half of a run, then checks that the checkpoint contains the state of every rank. */
static void save_half(Group *world, JobKind job, const Layout *layout, const Run *expected, int number) {
    CLEANUP(run_done) Run run = run_new(world, job, layout);
    run_steps(&run, 0, HALF);
    assert_losses(&run, expected, 0, HALF, "from the start");
    const char *dir = path_of("run", number);
    assert_ok(run_save(&run, world, dir));
    CLEANUP(loaded_done) LoadedState loaded = load_state(job, 0, false, dir);
    if (!layout->alone || world->rank == 0) assert_true(same_state(&run, &loaded));
    if (world->rank == 0) assert_one_rank_saves_the_same(&loaded, dir, path_of("again", number));
    assert_ok(barrier(world));
    assert_background_saves_the_same(&run, world, dir, path_of("background", number));
}

static void resume_and_check(Group *world, JobKind job, const Layout *from, const Layout *layout,
                             const Run *expected, int number) {
    CLEANUP(run_done) Run run = run_new(world, job, layout);
    run_load(&run, path_of("run", number));
    CLEANUP(loaded_done) LoadedState loaded = load_state(job, 0, false, path_of("run", number));
    assert_true(same_state(&run, &loaded));
    run_steps(&run, HALF, STEPS);
    assert_losses(&run, expected, HALF, STEPS, layout_text(from));
}

static void test_pairs(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Layout layout[LAYOUTS];
    int count = make_layouts(world->size, layout), pairs = 0;
    Run expected[JOBS];
    for (int job = 0; job < JOBS; job++) {
        expected[job] = run_new(world, (JobKind)job, &layout[0]);
        run_steps(&expected[job], 0, STEPS);
    }
    for (int i = 0; i < count; i++) {
        JobKind job = (JobKind)(i % JOBS);
        save_half(world, job, &layout[i], &expected[job], i);
        static const int strides[] = {1, 3};
        for (int k = 0; k < 2; k++, pairs++) {
            int to = (i + strides[k]) % count;
            resume_and_check(world, job, &layout[i], &layout[to], &expected[job], i);
        }
        assert_ok(barrier(world));
        if (i > 0) resume_and_check(world, job, &layout[i], &layout[0], &expected[job], i), pairs++;
    }
    for (int job = 0; job < JOBS; job++) run_done(&expected[job]);
    if (world->rank == 0) print_message("%d pairs of %d layouts\n", pairs, count);
    assert_true(pairs >= 10);
}

/* Within a layout, a resumed run has the same bits as an uninterrupted one, with every optimizer, in bf16
 * too. Master weights carry over to other layouts bit for bit. */
static void test_bits(void **state) {
    Group *world = ((Ranks *)*state)->world;
    for (int k = 0; optim_row(k); k++) {
        DType dtype = k % 2 ? DT_BF16 : DT_F32;
        Layout layout = {.mesh = {.dp = world->size / 2, .tp = 2, .pp = 1},
                         .zero = world->size > 2 ? 3 : 0,
                         .chunks = 1,
                         .micro_batch = 1,
                         .schedule = SCHEDULE_1F1B,
                         .dtype = dtype,
                         .optimizer = k};
        CLEANUP(run_done) Run whole = run_new(world, JOB_GPT2, &layout);
        run_steps(&whole, 0, HALF);
        assert_ok(run_save(&whole, world, path_of("bits", k)));
        run_steps(&whole, HALF, STEPS);
        CLEANUP(run_done) Run second = run_new(world, JOB_GPT2, &layout);
        run_load(&second, path_of("bits", k));
        run_steps(&second, HALF, STEPS);
        assert_memory_equal(&second.loss[HALF], &whole.loss[HALF], (STEPS - HALF) * sizeof(double));
        Layout other = {.mesh = {.dp = world->size / 2, .tp = 1, .pp = 2},
                        .zero = world->size > 2 ? 1 : 0,
                        .chunks = 1,
                        .micro_batch = 1,
                        .schedule = SCHEDULE_1F1B,
                        .dtype = dtype,
                        .optimizer = k};
        CLEANUP(run_done) Run third = run_new(world, JOB_GPT2, &other);
        run_load(&third, path_of("bits", k));
        CLEANUP(loaded_done) LoadedState loaded = load_state(JOB_GPT2, k, false, path_of("bits", k));
        assert_true(same_state(&third, &loaded));
        run_steps(&third, HALF, STEPS);
        for (int step = HALF; step < STEPS; step++)
            assert_true(relative_diff(third.loss[step], whole.loss[step]) <= (dtype == DT_F32 ? 1e-5 : 1e-2));
        run_load(&second, path_of("bits", k));
        assert_background_saves_the_same(&second, world, path_of("bits", k), path_of("background", k));
    }
}

/* The same with a vocabulary that ZeRO-3 gathers, and checkpoints write, in pieces. */
static void test_pieces(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Layout layout = {
        .mesh = {.dp = world->size > 2 ? world->size / 2 : 2, .tp = world->size > 2 ? 2 : 1, .pp = 1},
        .zero = 3,
        .chunks = 1,
        .micro_batch = 1,
        .words = true};
    Layout other = {
        .mesh = {.dp = world->size / 2, .tp = 1, .pp = 2}, .chunks = 1, .micro_batch = 1, .words = true};
    for (int k = 0; k < 2; k++) {
        JobKind job = k ? JOB_BERT : JOB_GPT2;
        CLEANUP(run_done) Run whole = run_new(world, job, &layout);
        assert_true(whole.runner->vocab.pieces > 1);
        run_steps(&whole, 0, HALF);
        MemStat *stat = &whole.device->mem[MEM_COMM];
        size_t before = stat->current;
        stat->peak = before;
        assert_ok(run_save(&whole, world, path_of("pieces", k)));
        size_t matrix = (size_t)whole.runner->params->unit[whole.model->count].numel * sizeof(float);
        assert_true(stat->peak - before < matrix);
        CLEANUP(loaded_done) LoadedState loaded = load_state(job, 0, true, path_of("pieces", k));
        assert_true(same_state(&whole, &loaded));
        run_steps(&whole, HALF, STEPS);
        CLEANUP(run_done) Run second = run_new(world, job, &layout);
        run_load(&second, path_of("pieces", k));
        run_steps(&second, HALF, STEPS);
        assert_memory_equal(&second.loss[HALF], &whole.loss[HALF], (STEPS - HALF) * sizeof(double));
        CLEANUP(run_done) Run third = run_new(world, job, &other);
        run_load(&third, path_of("pieces", k));
        run_steps(&third, HALF, STEPS);
        for (int step = HALF; step < STEPS; step++)
            assert_true(relative_diff(third.loss[step], whole.loss[step]) <= 1e-5);
        run_load(&second, path_of("pieces", k));
        assert_background_saves_the_same(&second, world, path_of("pieces", k), path_of("background", k));
    }
}

/* Saving needs no more extra memory than one unit in fp32. */
static void test_memory(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Layout layout = {.mesh = {.dp = world->size / 2, .tp = 2, .pp = 1},
                     .zero = world->size > 2 ? 3 : 0,
                     .chunks = 1,
                     .micro_batch = 1,
                     .schedule = SCHEDULE_1F1B};
    CLEANUP(run_done) Run run = run_new(world, JOB_GPT2, &layout);
    run_steps(&run, 0, 1);
    MemStat *stat = &run.device->total;
    size_t before = stat->current, largest = 0;
    stat->peak = before;
    assert_ok(run_save(&run, world, path_of("memory", 0)));
    for (int u = 0; u < run.model->units; u++) {
        size_t bytes = 2 * (size_t)run.runner->params->unit[u].numel * sizeof(float);
        if (bytes > largest) largest = bytes;
    }
    assert_int_equal(stat->current, before);
    assert_true(stat->peak - before <= largest);
}

/* Sets the stop flag after a while, in the middle of a step or between two. */
typedef struct Alarm {
    volatile sig_atomic_t stop;
    int delay_us, value;
} Alarm;

static void *ring(void *argument) {
    Alarm *alarm = argument;
    usleep((useconds_t)alarm->delay_us);
    alarm->stop = alarm->value;
    return NULL;
}

/* Trains until the last rank is told to stop. Returns the number of complete steps, which all ranks agree on.
 */
static int run_until_stopped(Group *world, Run *run, int delay_us, bool soon) {
    int count = run->runner->spec.micros, replica = run->runner->mesh->at[AXIS_DP], step = 0;
    int64_t size = run->layout->micro_batch, lowest, highest;
    Alarm alarm = {.delay_us = delay_us, .value = soon ? -SIGTERM : SIGTERM};
    HostBatch *micro[BATCH];
    pthread_t thread;
    bool rings = world->rank == world->size - 1, stopped = false;
    run->runner->spec.stop = &alarm.stop;
    if (rings) assert_int_equal(pthread_create(&thread, NULL, ring, &alarm), 0);
    while (!stopped && step < STEPS) {
        for (int i = 0; i < count; i++)
            micro[i] = batch_of(run->job, step, ((int64_t)replica * count + i) * size, size);
        StepResult result = {0};
        CLEANUP(status_freep) Status status = runner_step(run->runner, micro, count, step + 1, 2e-3, &result);
        for (int i = 0; i < count; i++) host_batch_free(micro[i]);
        if (status) assert_true(status_stopped(status) && !soon); /* soon: after the step */
        stopped = status || result.stop;
        if (!status) run->loss[step++] = result.loss;
        if (status) assert_ok(mesh_recover(run->mesh));
    }
    if (rings) pthread_join(thread, NULL);
    lowest = -step, highest = step;
    assert_ok(host_reduce(run->mesh->world, &highest, 1, DT_I64, REDUCE_MAX));
    assert_ok(host_reduce(run->mesh->world, &lowest, 1, DT_I64, REDUCE_MAX));
    assert_int_equal(-lowest, highest);
    return step;
}

/* A rank that is told to stop at any moment makes all ranks abandon the step, or all finish it. The state
 * that they save is that of the last complete step, bit for bit. */
static void test_abandoned(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int half = world->size / 2;
    const Layout layouts[] = {
        {.mesh = {.dp = world->size, .tp = 1, .pp = 1}, .zero = 3, .chunks = 1, .micro_batch = 1},
        {.mesh = {.dp = half, .tp = 1, .pp = 2}, .zero = half > 1, .chunks = 1, .micro_batch = 1},
        {.mesh = {.dp = half, .tp = 2, .pp = 1}, .zero = half > 1 ? 2 : 0, .chunks = 1, .micro_batch = 1}};
    for (int i = 0; i < 8; i++) {
        const Layout *layout = &layouts[i % 3];
        CLEANUP(run_done) Run run = run_new(world, JOB_GPT2, layout);
        int steps = run_until_stopped(world, &run, 1500 * (i + 1), i > 5);
        CLEANUP(run_done) Run same = run_new(world, JOB_GPT2, layout);
        run_steps(&same, 0, steps);
        assert_memory_equal(run.loss, same.loss, (size_t)steps * sizeof(double));
        assert_ok(run_save(&run, world, path_of("abandoned", i)));
        CLEANUP(loaded_done) LoadedState loaded = load_state(JOB_GPT2, 0, false, path_of("abandoned", i));
        assert_true(same_state(&same, &loaded));
        assert_ok(barrier(world));
    }
}

/* Limits the size of files that this process may write; RLIM_INFINITY restores the hard limit. */
static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* When one rank cannot write, in the foreground or in the background, every rank returns the same message,
 * which names that rank. No partial checkpoint remains, and the previous one is still the newest. */
static void test_one_cannot_write(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Layout layout = {.mesh = {.dp = world->size, .tp = 1, .pp = 1}, .zero = 2, .chunks = 1, .micro_batch = 1};
    CLEANUP(run_done) Run run = run_new(world, JOB_BERT, &layout);
    const char *dir = path_of("full", 0);
    assert_ok(run_save(&run, world, dir));
    signal(SIGXFSZ, SIG_IGN);
    CLEANUP(json_decrefp) json_t *progress = json_object();
    CheckpointState save = {.params = run.runner->params,
                            .state = (const Store *const *)run.runner->state,
                            .optim = &run.runner->spec.optim,
                            .progress = progress,
                            .mesh = run.mesh};
    char about[64], found[512];
    CLEANUP(background_freep) Background *background = background_of(&run, NULL);
    for (int i = 0; i < 4; i++) {
        int failing = i % 2;
        if (world->rank == failing) limit_files(1000);
        Status status = i < 2 ? ckpt_save(dir, HALF + 1, &save, run.runner->stream, 1)
                              : background_begin(background, dir, HALF + 1, &save, 1);
        if (!status) status = background_wait(background);
        limit_files(RLIM_INFINITY);
        assert_non_null(status);
        snprintf(found, sizeof found, "%s", status_message(status));
        assert_non_null(strstr(found, "cannot save the checkpoint of step 6"));
        assert_non_null(strstr(found, "cannot write: File too large"));
        snprintf(about, sizeof about, "rank %d on ", failing);
        if (world->rank != failing) assert_non_null(strstr(found, about));
        status_free(status);
        assert_ok(barrier(world));
        CLEANUP(mem_freep) char *step = NULL;
        assert_ok(ckpt_latest(dir, &step));
        assert_non_null(strstr(step, "step-5"));
        char checkpoints[200];
        snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", dir);
        assert_int_equal(entries(checkpoints), 1);
        assert_ok(barrier(world));
    }
    assert_ok(run_save(&run, world, dir));
}

/* ---- files on rank 0 only ---- */

/* Rank 0 has the directory; on other ranks the path leads nowhere. */
static const char *root_path(const Group *world, const char *name, int number) {
    return world->rank ? "/nowhere/run" : path_of(name, number);
}

static void load_from_root(Run *run, const RootDisk *disk, const char *dir) {
    CLEANUP(mem_freep) char *step = NULL, *damaged = NULL;
    CLEANUP(mirror_done) Mirror mirror = {0};
    Runner *r = run->runner;
    assert_ok(ckpt_resume_dir(dir, 0, disk, run->mesh, &step, &damaged));
    assert_ok(mirror_init(&mirror, disk, step));
    assert_int_equal(disk->group->rank == 0, mirror.temporary == NULL);
    assert_ok(ckpt_load(mirror.path, disk, r->params, r->state, &r->spec.optim, r->stream, NULL));
    assert_ok(runner_publish(r));
}

/* With a directory that only rank 0 has, the checkpoint is the same, byte for byte, saved in the foreground
 * and in the background, and any layout loads it. */
static void test_gathered(void **state) {
    Group *world = ((Ranks *)*state)->world;
    CLEANUP(group_freep) Group *files = NULL;
    CLEANUP(root_disk_freep) RootDisk *disk = NULL;
    Layout layout[LAYOUTS + 1];
    assert_ok(group_split(world, 0, world->rank, &files));
    assert_ok(root_disk_new(&disk, files, ((Ranks *)*state)->device));
    int count = make_layouts(world->size, layout);
    if (count % 2 == 0) count--; /* so that the next one is among those tested */
    layout[count++] = (Layout){.mesh = {.dp = world->size, .tp = 1, .pp = 1},
                               .zero = 3,
                               .chunks = 1,
                               .micro_batch = 1,
                               .words = true}; /* in pieces */
    int stride = count > 8 ? 2 : 1;
    for (int i = 1; i < count; i += stride) {
        JobKind job = (JobKind)(i % JOBS);
        const Layout *next = i < count - 2 ? &layout[i + 1] : &layout[i];
        CLEANUP(run_done) Run run = run_new(world, job, &layout[i]), other = run_new(world, job, next);
        run_steps(&run, 0, 1);
        assert_ok(run_save(&run, world, path_of("run", i)));
        assert_ok(run_save_to(&run, world, disk, root_path(world, "gathered", i)));
        load_from_root(&other, disk, root_path(world, "gathered", i));
        CLEANUP(loaded_done) LoadedState loaded = load_state(job, 0, layout[i].words, path_of("run", i));
        assert_true(same_state(&other, &loaded));
        CLEANUP(background_freep) Background *background = background_of(&run, disk);
        assert_ok(run_save_background(&run, background, disk, root_path(world, "behind", i)));
        if (world->rank == 0) assert_same_checkpoint(path_of("run", i), path_of("gathered", i));
        if (world->rank == 0) assert_same_checkpoint(path_of("run", i), path_of("behind", i));
        assert_false(world->rank && path_exists("/nowhere"));
        assert_ok(barrier(world));
    }
}

/* When rank 0 cannot write, or a rank has a value that is not finite, all ranks return that error, and the
 * next save succeeds. */
static void test_gathered_fails(void **state) {
    Group *world = ((Ranks *)*state)->world;
    CLEANUP(group_freep) Group *files = NULL;
    CLEANUP(root_disk_freep) RootDisk *disk = NULL;
    Layout layout = {.mesh = {.dp = world->size, .tp = 1, .pp = 1}, .zero = 2, .chunks = 1, .micro_batch = 1};
    assert_ok(group_split(world, 0, world->rank, &files));
    assert_ok(root_disk_new(&disk, files, ((Ranks *)*state)->device));
    CLEANUP(run_done) Run run = run_new(world, JOB_BERT, &layout);
    CLEANUP(background_freep) Background *background = background_of(&run, disk);
    const char *dir = root_path(world, "failing", 0);
    float *value = run.runner->state[0]->flat[1].data;
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 4; i++) {
        bool full = i < 2, last = world->rank == world->size - 1;
        if (full && world->rank == 0) limit_files(100000);
        if (!full && last) *value = NAN;
        Status status =
            i % 2 ? run_save_background(&run, background, disk, dir) : run_save_to(&run, world, disk, dir);
        limit_files(RLIM_INFINITY);
        assert_non_null(status);
        assert_non_null(strstr(status_message(status), "cannot save the checkpoint of step 5"));
        assert_non_null(strstr(status_message(status), full ? "cannot write: File too large" : "NaN or Inf"));
        assert_int_equal(status_diverged(status), !full);
        status_free(status);
        assert_ok(store_zero(run.runner->state[0], run.runner->stream));
        assert_ok(stream_sync(run.runner->stream)); /* before a value is set again */
    }
    assert_ok(run_save_to(&run, world, disk, dir));
    assert_ok(run_save_background(&run, background, disk, dir));
    if (world->rank) return;
    char checkpoints[200];
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", dir);
    assert_int_equal(entries(checkpoints), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_temp_dir, remove_temp_dir)

static const struct CMUnitTest tests[] = {
    TEST(test_pairs),    TEST(test_bits),           TEST(test_pieces),
    TEST(test_memory),   TEST(test_abandoned),      TEST(test_one_cannot_write),
    TEST(test_gathered), TEST(test_gathered_fails),
};

RANKS_MAIN(tests)
