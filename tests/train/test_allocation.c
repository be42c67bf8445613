/* Each allocation of the core paths fails once: a step in several layouts, saving, loading, resuming and
 * generating. The path then fails with an error or does without that memory; either way it leaks nothing,
 * which the sanitizers check, no checkpoint is lost, and the same path succeeds afterwards.
 *
 * The linker redirects allocations of weft's code to the functions below (tests/CMakeLists.txt), and jansson
 * calls them. Most of its many allocations in files are alike, so only some of them fail without
 * WEFT_TEST_ALL. Other ranks of a layout do not exist: groups are those of dry runs, so values are not
 * checked.
 */
#include "test.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "device/registry.h"
#include "infer/generate.h"
#include "train/job.h"
#include "verify/trial.h"

/* ---- failing allocations ---- */

static atomic_llong until_failure; /* allocations; 0 or less: none fails */

static bool fails(void) {
    return atomic_load(&until_failure) > 0 && atomic_fetch_sub(&until_failure, 1) == 1;
}

/* The linker's names of the allocators. */
#define ALLOCATOR(type, name, parameters, arguments, failure)                                                \
    type __real_##name parameters;                                                                           \
    type __wrap_##name parameters;                                                                           \
    type __wrap_##name parameters {                                                                          \
        return fails() ? failure : __real_##name arguments;                                                  \
    }
ALLOCATOR(void *, malloc, (size_t size), (size), NULL)
ALLOCATOR(void *, calloc, (size_t count, size_t size), (count, size), NULL)
ALLOCATOR(void *, realloc, (void *old, size_t size), (old, size), NULL)
ALLOCATOR(char *, strdup, (const char *text), (text), NULL)
ALLOCATOR(void *, mmap, (void *at, size_t size, int protection, int flags, int file, off_t offset),
          (at, size, protection, flags, file, offset), MAP_FAILED)

/* ---- paths ---- */

typedef struct Fixture {
    Device *device;
    const KernelTable *table;
    Trial trained; /* what is saved */
    char *dir;     /* with a checkpoint of step 1 in run/ */
    char *run;
} Fixture;

static void fixture_done(Fixture *fixture) {
    trial_done(&fixture->trained);
    device_free(fixture->device);
    free(fixture->dir);
    free(fixture->run);
}

typedef Status Path(Fixture *fixture);

static Status step_in(Fixture *fixture, TrialSpec spec, int rank) {
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    CLEANUP(trial_done) Trial trial = {0};
    StepResult result;
    spec.wide = true;
    spec.micro_batch = 1;
    spec.batch = 4;
    TRY(mesh_new_dryrun(&mesh, spec.mesh, rank, 0, true));
    TRY(trial_new(&trial, &spec, fixture->table, fixture->device, mesh));
    return trial_step(&trial, 0, NULL, NULL, &result);
}

static Status step_alone(Fixture *fixture) {
    return step_in(fixture, (TrialSpec){.mesh = {.dp = 1, .tp = 1, .pp = 1}, .dtype = DT_BF16}, 0);
}

static Status step_sharded(Fixture *fixture) {
    TrialSpec spec = {.mesh = {.dp = 2, .tp = 1, .pp = 1}, .zero = 3, .recompute = RECOMPUTE_BLOCK};
    return step_in(fixture, spec, 1);
}

static Status step_divided(Fixture *fixture) {
    TrialSpec spec = {.mesh = {.dp = 1, .tp = 2, .pp = 2}, .sequence = true, .offload = OFFLOAD_ACTIVATIONS};
    return step_in(fixture, spec, 2);
}

static Status save(Fixture *fixture) {
    Runner *runner = fixture->trained.runner;
    CLEANUP(json_decrefp) json_t *progress = json_object();
    if (!progress) return FAILED("out of memory");
    CheckpointState state = runner_checkpoint(runner);
    state.progress = progress;
    state.bytes = true;
    return ckpt_save(fixture->run, 2, &state, runner->stream, 2);
}

static Status resume(Fixture *fixture) {
    Runner *runner = fixture->trained.runner;
    CLEANUP(mem_freep) char *dir = NULL, *damaged = NULL;
    CLEANUP(json_decrefp) json_t *progress = NULL;
    TRY(ckpt_resume_dir(fixture->run, 0, NULL, NULL, &dir, &damaged));
    if (!dir) return FAILED("the run has no checkpoint");
    CheckpointState state = runner_checkpoint(runner);
    return ckpt_load(dir, &state, runner->stream, NULL, &progress);
}

static Status write_text(Fixture *fixture) {
    CLEANUP(engine_freep) Engine *engine = NULL;
    const int32_t ids[] = {5, 7, 11};
    const Prompt prompts[] = {{.ids = ids, .count = 3}, {.ids = ids, .count = 2, .sequence = 1}};
    GenerateSpec spec = {
        .prompts = prompts, .count = 2, .max_tokens = 3, .end_token = -1, .sampling = {.top_p = 1}};
    Generated *generated = NULL;
    TRY(engine_new(&engine, fixture->run, &(EngineOptions){.threads = 1, .dtype = DT_F32}));
    TRY(generate(engine, &spec, &generated));
    generated_free(generated);
    return OK;
}

/* ---- tests ---- */

static void fixture_new(Fixture *fixture) {
    *fixture = (Fixture){0};
    json_set_alloc_funcs(__wrap_malloc, free);
    assert_ok(device_new_cpu(&fixture->device, 1));
    assert_ok(kernels_find("cpu", &fixture->table));
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0); /* saving waits for the disk */
    assert_ok(dir_make_temporary(&fixture->dir));
    assert_ok(str_format(&fixture->run, "%s/run", fixture->dir));
    TrialSpec spec = {.wide = true, .micro_batch = 1, .batch = 2};
    StepResult result;
    assert_ok(trial_new(&fixture->trained, &spec, fixture->table, fixture->device, NULL));
    assert_ok(trial_step(&fixture->trained, 0, NULL, NULL, &result));
    assert_ok(save(fixture));
}

/* Fails the path's first allocation, then its second or a later one, until it runs without a failure. */
static void fail_each(Path *path) {
    bool all = getenv("WEFT_TEST_ALL") || path == step_alone || path == step_sharded || path == step_divided;
    long long apart = all ? 1 : SANITIZED ? 5 : 7;
    Fixture fixture;
    fixture_new(&fixture);
    int64_t failed = 0, survived = 0;
    for (long long n = 1;; n += apart) {
        atomic_store(&until_failure, n);
        Status status = path(&fixture);
        bool reached = atomic_exchange(&until_failure, 0) <= 0;
        if (!reached) assert_ok(status);
        if (!reached) break;
        failed += status != OK;
        survived += status == OK;
        status_free(status);
        if (path == save) assert_ok(resume(&fixture)); /* a checkpoint is intact */
    }
    print_message("%lld allocations failed: %lld errors\n", (long long)(failed + survived),
                  (long long)failed);
    assert_true(failed > 20 && failed > survived);
    assert_ok(path(&fixture));
    assert_ok(dir_remove(fixture.dir));
    fixture_done(&fixture);
}

#define TEST(path)                                                                                           \
    static void test_##path(void **state) {                                                                  \
        fail_each(path);                                                                                     \
    }
TEST(step_alone)
TEST(step_sharded)
TEST(step_divided)
TEST(save)
TEST(resume)
TEST(write_text)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_alone),   cmocka_unit_test(test_step_sharded),
        cmocka_unit_test(test_step_divided), cmocka_unit_test(test_save),
        cmocka_unit_test(test_resume),       cmocka_unit_test(test_write_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
