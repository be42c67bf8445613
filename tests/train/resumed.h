/* A small training job in any layout that can be saved halfway and resumed: how it runs, where its
 * checkpoints go, and whether two checkpoints or states are the same. */
#ifndef WEFT_TESTS_TRAIN_RESUMED_H
#define WEFT_TESTS_TRAIN_RESUMED_H

#include "ranks.h"
#include "stores.h"
#include "tiny.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "checkpoint/background.h"
#include "train/job.h"

enum {
    SEQ = 8,
    BATCH = 8,
    STEPS_LIMIT = 10,
    STEPS = 6,
    HALF = 3,
    VOCAB = 200, /* of TINY_RESUMED */
    LARGE_VOCAB = 1021,
    LAYOUTS = 24
};

typedef enum { JOB_GPT2, JOB_BERT, JOB_UNTIED, JOB_LLAMA, JOB_EXPERTS, JOBS } JobKind;
static const char *const job_names[JOBS] = {"gpt2", "bert", "untied", "llama", "experts"};

static inline ModelConfig config_of(JobKind kind) {
    bool bert = kind == JOB_BERT;
    const Family *const families[JOBS] = {&family_gpt2, &family_bert, &family_gpt2, &family_llama,
                                          &family_qwen2_moe};
    const Family *family = families[kind];
    ModelConfig config = tiny_config(family, bert ? OUTPUT_MLM | OUTPUT_NSP : OUTPUT_LM, TINY_RESUMED);
    config.tied = kind != JOB_UNTIED;
    config.pad_token = bert ? 0 : -1;
    config.dropout_classify = 0;
    return config;
}

static inline Model *model_of(JobKind kind, bool words) {
    Model *model = NULL;
    ModelConfig config = config_of(kind);
    if (words) config.vocab = LARGE_VOCAB;
    assert_ok(model_new(&model, &config));
    return model;
}

static inline int32_t draw(const char *site, int64_t step, int64_t index, int64_t below) {
    return (int32_t)rng_below(rng_key(5, site, (uint64_t)step), (uint64_t)index, (uint64_t)below);
}

/* Sequences first .. first + count - 1 of a step's batch. */
static inline HostBatch *batch_of(JobKind kind, int64_t step, int64_t first, int64_t count) {
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

static inline OptimSpec optim_of(JobKind job, int optimizer) {
    int row = 0;
    while (!optimizer && job == JOB_BERT && strcmp(optim_row(row)->name, "muon")) row++;
    OptimSpec optim = optim_defaults(optim_row(optimizer ? optimizer : row));
    optim.weight_decay = 0.01;
    return optim;
}

static inline const char *layout_text(const Layout *l) {
    static char text[2][160];
    static int turn;
    char *at = text[turn++ % 2], mesh[MESH_TEXT];
    if (l->alone)
        snprintf(at, sizeof text[0], "one rank %s", dtype_name(l->dtype));
    else
        snprintf(at, sizeof text[0], "%s shard %d zero %d %s chunks %d%s %s", mesh_text(l->mesh, mesh),
                 l->mesh.shard, l->zero, schedule_name(l->schedule), l->chunks,
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
    double loss[STEPS_LIMIT];
} Run;

static inline void run_done(Run *run) {
    runner_free(run->runner);
    mesh_free(run->mesh);
    test_device_free(run->device);
    model_free(run->model);
}

static inline Run run_new(Group *world, JobKind job, const Layout *layout) {
    Run run = {.job = job, .layout = layout};
    run.model = model_of(job, layout->words);
    test_device_new(&run.device, 1);
    if (!layout->alone) assert_ok(mesh_new(&run.mesh, world, layout->mesh));
    RunnerSpec spec = {.micro_batch = layout->micro_batch,
                       .seq = SEQ,
                       .train = true,
                       .optim = optim_of(job, layout->optimizer),
                       .seed = 9,
                       .mesh = run.mesh,
                       .zero = layout->zero,
                       .cp_mode = CONTEXT_RING,
                       .balance_coef = 0.5, /* so strong that a load which is lost shows in the losses */
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

static inline void run_steps(Run *run, int from, int to) {
    int count = run->runner->spec.micros, replica = run->runner->mesh->at[AXIS_DP];
    int64_t size = run->layout->micro_batch;
    HostBatch *micro[BATCH];
    for (int step = from; step < to; step++) {
        for (int i = 0; i < count; i++)
            micro[i] = batch_of(run->job, step, ((int64_t)replica * count + i) * size, size);
        StepResult result;
        assert_ok(
            runner_step(run->runner, micro, count, &(StepSpec){.number = step + 1, .lr = 2e-3}, &result));
        run->loss[step] = result.loss;
        for (int i = 0; i < count; i++) host_batch_free(micro[i]);
    }
    assert_ok(stream_sync(run->runner->stream)); /* the caller reads the weights */
}

static inline json_t *progress_of(const Run *run) {
    json_t *progress = json_pack("{s:i}", "step", HALF);
    assert_non_null(progress);
    assert_ok(runner_balance_save(run->runner, progress));
    return progress;
}

/* What a checkpoint of the run has; `disk` may be NULL. */
static inline CheckpointState state_of(const Run *run, const RootDisk *disk, json_t *progress) {
    CheckpointState state = runner_checkpoint(run->runner);
    state.progress = progress;
    state.disk = disk;
    return state;
}

static inline Status run_save_to(const Run *run, Group *world, const RootDisk *disk, const char *dir) {
    const Runner *r = run->runner;
    CLEANUP(json_decrefp) json_t *progress = progress_of(run);
    CheckpointState state = state_of(run, disk, progress);
    Status status = OK;
    if (run->mesh || world->rank == 0) status = ckpt_save(dir, HALF, &state, r->stream, 1);
    if (!run->mesh) TRY(barrier(world));
    return status;
}

static inline Status run_save(const Run *run, Group *world, const char *dir) {
    return run_save_to(run, world, NULL, dir);
}

static inline Background *background_of(const Run *run, const RootDisk *disk) {
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
static inline Status run_save_background(const Run *run, Background *background, const RootDisk *disk,
                                         const char *dir) {
    const Runner *r = run->runner;
    CLEANUP(json_decrefp) json_t *progress = progress_of(run);
    CheckpointState state = state_of(run, disk, progress);
    TRY(background_begin(background, dir, HALF, &state, 1));
    TRY(background_copied(background));
    TRY(store_zero(r->params, r->stream));
    for (int k = 0; k < optim_states(&r->spec.optim); k++) TRY(store_zero(r->state[k], r->stream));
    return background_wait(background);
}

static inline void run_load(Run *run, const char *dir) {
    CLEANUP(mem_freep) char *step = NULL;
    CLEANUP(json_decrefp) json_t *progress = NULL;
    Runner *r = run->runner;
    assert_ok(ckpt_latest(dir, &step));
    assert_non_null(step);
    CheckpointState state = state_of(run, NULL, NULL);
    assert_ok(ckpt_load(step, &state, r->stream, NULL, &progress));
    assert_int_equal(json_integer_value(json_object_get(progress, "step")), HALF);
    assert_ok(runner_balance_load(r, step, progress));
    assert_ok(runner_publish(r));
}

/* ---- checkpoint directories ---- */

static char temp_dir[64];

static inline const char *path_of(const char *name, int number) {
    static char path[4][160];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s-%d", temp_dir, name, number);
    return path[turn];
}

static inline int make_temp_dir(void **state) {
    Group *world = ((Ranks *)*state)->world;
    snprintf(temp_dir, sizeof temp_dir, "/tmp/weft-resume-XXXXXX");
    if (world->rank == 0 && !mkdtemp(temp_dir)) return -1;
    assert_ok(host_broadcast(world, temp_dir, sizeof temp_dir, 0));
    return 0;
}

static inline int remove_temp_dir(void **state) {
    Group *world = ((Ranks *)*state)->world;
    assert_ok(barrier(world));
    if (world->rank == 0) assert_ok(dir_remove(temp_dir));
    return 0;
}

/* ---- comparing ---- */

/* The parameters, the optimizer's state and the progress of one rank, loaded from a checkpoint. */
typedef struct LoadedState {
    Device *device;
    Stream *stream;
    Model *model;
    Store *store[1 + OPTIM_STATES];
    OptimSpec optim;
    json_t *progress;
} LoadedState;

static inline void loaded_done(LoadedState *loaded) {
    for (int i = 0; i < 1 + OPTIM_STATES; i++) store_free(loaded->store[i]);
    model_free(loaded->model);
    stream_free(loaded->stream);
    test_device_free(loaded->device);
    json_decref(loaded->progress);
}

static inline CheckpointState state_loaded(const LoadedState *loaded) {
    return (CheckpointState){.params = loaded->store[0],
                             .state = &loaded->store[1],
                             .optim = &loaded->optim,
                             .progress = loaded->progress};
}

static inline LoadedState load_state(JobKind job, int optimizer, bool words, const char *dir) {
    LoadedState loaded = {.optim = optim_of(job, optimizer)};
    CLEANUP(mem_freep) char *step = NULL;
    test_device_new(&loaded.device, 1);
    assert_ok(stream_new(&loaded.stream, loaded.device));
    loaded.model = model_of(job, words);
    for (int i = 0; i < 1 + OPTIM_STATES; i++) {
        assert_ok(store_new(&loaded.store[i], loaded.model, loaded.device, MEM_PARAMS));
        assert_ok(store_zero(loaded.store[i], loaded.stream));
    }
    assert_ok(ckpt_latest(dir, &step));
    assert_non_null(step);
    CheckpointState state = state_loaded(&loaded);
    assert_ok(ckpt_load(step, &state, loaded.stream, NULL, &loaded.progress));
    return loaded;
}

/* Whether this rank's part of a store is bitwise equal to the same part of the complete one. Padding is 0. */
static inline bool same_part(const Store *part, const Store *whole) {
    for (int u = 0; u < part->model->units; u++) {
        CLEANUP(mem_freep) float *own = unit_values(part, u), *complete = unit_values(whole, u);
        for (size_t j = 0; part->count[u] && j < part->unit[u].count; j++) {
            const ParamSlot *slot = &part->unit[u].slot[j];
            const float *global = complete + whole->unit[u].slot[j].offset;
            int64_t from, count;
            if (!slot_overlap(slot, part->first[u], part->count[u], &from, &count)) continue;
            const float *local = own + (slot->offset - part->first[u]);
            for (int64_t at = from; at < from + count; at++) {
                ParamRun run = slot_run(slot, at, 1);
                float zero = 0;
                if (memcmp(&local[at], run.global < 0 ? &zero : &global[run.global], sizeof zero))
                    return false;
            }
        }
    }
    return true;
}

static inline bool same_state(const Run *run, const LoadedState *loaded) {
    const Runner *r = run->runner;
    for (int k = 0; k < optim_states(&r->spec.optim); k++)
        if (!same_part(r->state[k], loaded->store[1 + k])) return false;
    return same_part(r->params, loaded->store[0]);
}

static inline void assert_same_file(const char *a, const char *b, const char *name) {
    CLEANUP(mem_freep) char *path_a = NULL, *path_b = NULL;
    assert_ok(path_join(&path_a, a, name));
    assert_ok(path_join(&path_b, b, name));
    CLEANUP(file_map_done) FileMap x = {0}, y = {0};
    assert_ok(file_map_init(&x, path_a));
    assert_ok(file_map_init(&y, path_b));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
}

static inline int entries(const char *dir) {
    DIR *stream = opendir(dir);
    if (!stream) return -1;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(stream));) count += entry->d_name[0] != '.';
    closedir(stream);
    return count;
}

static inline void assert_same_checkpoint(const char *dir, const char *other) {
    CLEANUP(mem_freep) char *one = NULL, *two = NULL;
    assert_ok(ckpt_latest(dir, &one));
    assert_ok(ckpt_latest(other, &two));
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "config.json",
                                        "weft.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_same_file(one, two, names[i]);
    assert_int_equal(entries(one), entries(two));
}

/* The first rank alone saves the same state: the same files with the same bytes. */
static inline void assert_one_rank_saves_the_same(const LoadedState *loaded, const char *dir,
                                                  const char *again) {
    CheckpointState state = state_loaded(loaded);
    assert_ok(ckpt_save(again, HALF, &state, loaded->stream, 1));
    assert_same_checkpoint(dir, again);
}

/* All ranks save the same state in the background: the same files with the same bytes. */
static inline void assert_background_saves_the_same(const Run *run, Group *world, const char *dir,
                                                    const char *again) {
    if (!run->mesh) return;
    CLEANUP(background_freep) Background *background = background_of(run, NULL);
    assert_ok(run_save_background(run, background, NULL, again));
    if (world->rank == 0) assert_same_checkpoint(dir, again);
}

#endif
