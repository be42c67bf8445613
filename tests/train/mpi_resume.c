/* A checkpoint does not depend on the layout. A run that is saved halfway in one layout and resumed in
 * another has the losses of an uninterrupted run on one rank, and the checkpoint is byte for byte what one
 * rank with the same state writes.
 *
 * The layouts are generated: a single rank, and every grid of the test's ranks combined with varying ZeRO
 * stages, schedules and other options. Each layout saves once, and two others resume from its checkpoint.
 * Ranks: 2 4 8 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "train/replicas.h"
#include "train/resumed.h"

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

/* From sequences split over ranks to whole ones, and back. */
static void test_context(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int half = world->size / 2;
    const Layout alone = {.alone = true, .chunks = 1, .micro_batch = 2};
    const Layout layout[] = {
        {.mesh = {.dp = half, .tp = 1, .pp = 1, .cp = 2}, .zero = 1, .chunks = 1, .micro_batch = 1},
        {.mesh = {.dp = half, .tp = 2, .pp = 1}, .chunks = 1, .micro_batch = 1}};
    CLEANUP(run_done) Run expected = run_new(world, JOB_GPT2, &alone);
    run_steps(&expected, 0, STEPS);
    for (int i = 0; i < 2; i++) {
        save_half(world, JOB_GPT2, &layout[i], &expected, LAYOUTS + i);
        resume_and_check(world, JOB_GPT2, &layout[i], &layout[!i], &expected, LAYOUTS + i);
        if (i == 0) resume_and_check(world, JOB_GPT2, &layout[i], &alone, &expected, LAYOUTS);
        assert_ok(barrier(world));
    }
}

/* Within a layout, a resumed run has the same bits as an uninterrupted one, with every optimizer, in bf16
 * too, where weights are in halves. Master weights carry over to other layouts bit for bit. */
static void test_bits(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int rows = 0;
    while (optim_row(rows)) rows++;
    for (int k = 0; k <= rows; k++) {
        int optimizer = k % rows;
        DType dtype = k == rows || k % 2 ? DT_BF16 : DT_F32;
        Layout layout = {.mesh = {.dp = world->size / 2, .tp = 2, .pp = 1},
                         .zero = world->size > 2 ? 3 : 0,
                         .chunks = 1,
                         .micro_batch = 1,
                         .schedule = SCHEDULE_1F1B,
                         .dtype = dtype,
                         .optimizer = optimizer};
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
                        .optimizer = optimizer};
        CLEANUP(run_done) Run third = run_new(world, JOB_GPT2, &other);
        run_load(&third, path_of("bits", k));
        CLEANUP(loaded_done) LoadedState loaded = load_state(JOB_GPT2, optimizer, false, path_of("bits", k));
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
        layout.dtype = other.dtype = k ? DT_BF16 : DT_F32;
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
            assert_true(relative_diff(third.loss[step], whole.loss[step]) <= (k ? 1e-2 : 1e-5));
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
    while (!stopped && step < STEPS_LIMIT) {
        for (int i = 0; i < count; i++)
            micro[i] = batch_of(run->job, step, ((int64_t)replica * count + i) * size, size);
        StepResult result = {0};
        CLEANUP(status_freep)
        Status status =
            runner_step(run->runner, micro, count, &(StepSpec){.number = step + 1, .lr = 2e-3}, &result);
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
    CheckpointState save = state_of(&run, NULL, progress);
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
        assert_non_null(strstr(found, "cannot save the checkpoint of step 4"));
        assert_non_null(strstr(found, "cannot write: File too large"));
        snprintf(about, sizeof about, "rank %d on ", failing);
        if (world->rank != failing) assert_non_null(strstr(found, about));
        status_free(status);
        assert_ok(barrier(world));
        CLEANUP(mem_freep) char *step = NULL;
        assert_ok(ckpt_latest(dir, &step));
        assert_non_null(strstr(step, "step-3"));
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
    CLEANUP(json_decrefp) json_t *progress = NULL;
    Runner *r = run->runner;
    assert_ok(ckpt_resume_dir(dir, 0, disk, run->mesh, &step, &damaged));
    assert_ok(mirror_init(&mirror, disk, step));
    assert_int_equal(disk->group->rank == 0, mirror.temporary == NULL);
    CheckpointState state = state_of(run, disk, NULL);
    assert_ok(ckpt_load(mirror.path, &state, r->stream, NULL, &progress));
    assert_ok(runner_balance_load(r, mirror.path, progress));
    assert_ok(runner_publish(r));
}

/* With a directory that only rank 0 has, the checkpoint is the same, byte for byte, saved in the foreground
 * and in the background, and any layout loads it. */
static void test_gathered(void **state) {
    Group *world = ((Ranks *)*state)->world;
    CLEANUP(root_disk_freep) RootDisk *disk = NULL;
    Layout layout[LAYOUTS + 1];
    assert_ok(root_disk_new(&disk, ((Ranks *)*state)->host, ((Ranks *)*state)->device));
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

/* Ranks that hold different experts start from the weights of one rank. What they save, in the foreground, in
 * the background and through rank 0, one rank would save, and other layouts resume from it, with the load of
 * the experts that the balancing loss of the next step needs. */
static void test_experts(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int n = world->size, half = n / 2;
    const MeshSpec meshes[] = {
        {.dp = n, .tp = 1, .pp = 1, .ep = 2},
        {.dp = n, .tp = 1, .pp = 1, .ep = n < 4 ? 2 : 4, .shard = half},
        {.dp = n, .tp = 1, .pp = 1, .ep = n < 4 ? 2 : 4, .shard = 1},
        {.dp = half, .tp = 1, .pp = 1, .cp = 2, .ep = 2},
        {.dp = 2, .tp = n < 4 ? 1 : 2, .pp = n < 4 ? 1 : half / 2, .ep = 2},
        {.dp = 2, .tp = 1, .pp = n < 8 ? half : 2, .cp = n < 8 ? 1 : 2, .ep = 2},
    };
    enum { MESHES = sizeof meshes / sizeof *meshes, ALL = 2 * MESHES };
    Layout layout[ALL];
    CLEANUP(root_disk_freep) RootDisk *disk = NULL;
    assert_ok(root_disk_new(&disk, ((Ranks *)*state)->host, ((Ranks *)*state)->device));
    const Layout alone = {.alone = true, .chunks = 1, .micro_batch = 2};
    CLEANUP(run_done)
    Run expected = run_new(world, JOB_EXPERTS, &alone), fresh = run_new(world, JOB_EXPERTS, &alone);
    run_steps(&expected, 0, STEPS);
    for (int i = 0; i < ALL; i++)
        layout[i] =
            (Layout){.mesh = meshes[i % MESHES], .zero = (i + i / MESHES) % 4, .chunks = 1, .micro_batch = 1};
    for (int i = 0; i < ALL; i++) {
        const Layout *next = &layout[(i + 1) % ALL];
        CLEANUP(run_done) Run run = run_new(world, JOB_EXPERTS, &layout[i]);
        assert_true(same_part(run.runner->params, fresh.runner->params));
        assert_ok(replicas_check(run.runner));
        save_half(world, JOB_EXPERTS, &layout[i], &expected, i);
        resume_and_check(world, JOB_EXPERTS, &layout[i], next, &expected, i);
        load_from_root(&run, disk, root_path(world, "run", i));
        assert_ok(run_save_to(&run, world, disk, root_path(world, "gathered", i)));
        if (world->rank == 0) assert_same_checkpoint(path_of("run", i), path_of("gathered", i));
        assert_ok(barrier(world));
    }
    resume_and_check(world, JOB_EXPERTS, &layout[0], &alone, &expected, 0);
    save_half(world, JOB_EXPERTS, &alone, &expected, ALL);
    resume_and_check(world, JOB_EXPERTS, &alone, &layout[1], &expected, ALL);
}

/* When rank 0 cannot write, or a rank has a value that is not finite, all ranks return that error, and the
 * next save succeeds. */
static void test_gathered_fails(void **state) {
    Group *world = ((Ranks *)*state)->world;
    CLEANUP(root_disk_freep) RootDisk *disk = NULL;
    Layout layout = {.mesh = {.dp = world->size, .tp = 1, .pp = 1}, .zero = 2, .chunks = 1, .micro_batch = 1};
    assert_ok(root_disk_new(&disk, ((Ranks *)*state)->host, ((Ranks *)*state)->device));
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
        assert_non_null(strstr(status_message(status), "cannot save the checkpoint of step 3"));
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
    TEST(test_pairs),    TEST(test_context),        TEST(test_experts),   TEST(test_bits),
    TEST(test_pieces),   TEST(test_memory),         TEST(test_abandoned), TEST(test_one_cannot_write),
    TEST(test_gathered), TEST(test_gathered_fails),
};

RANKS_MAIN(tests)
