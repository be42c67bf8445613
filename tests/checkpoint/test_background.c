/* Checkpoints written while training continues: the same files as those written in the foreground, of the
 * values at the moment of the save, and `latest` always refers to a complete one.
 *
 * The file system calls of a save are replaced here, so that a save can be killed at each of them. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "checkpoint/background.h"
#include "checkpoint/checksums.h"
#include "checkpoint/ckpt_save.h"

/* ---- counting file system calls ---- */

static atomic_int calls, fatal_call; /* the process is killed in call number fatal_call; 0: never */
static atomic_bool paused, pausing;  /* with pausing, every write sets paused */
static atomic_int failing_write; /* call number failing_write and later ones find the disk full; 0: none */

static int count_call(void) {
    int call = atomic_fetch_add(&calls, 1) + 1;
    if (call == fatal_call) raise(SIGKILL);
    return call;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    int call = count_call();
    if (failing_write && call >= failing_write) {
        errno = ENOSPC;
        return -1;
    }
    if (pausing) paused = true;
    return syscall(SYS_pwrite64, fd, data, size, at);
}

int fsync(int fd) {
    count_call();
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to) {
    count_call();
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int symlink(const char *target, const char *path) {
    count_call();
    return (int)syscall(SYS_symlinkat, target, AT_FDCWD, path);
}

/* ---- a model and its checkpoints ---- */

typedef struct Stores {
    Model *model;
    Store *store[1 + OPTIM_STATES];
    OptimSpec optim;
} Stores;

static void stores_done(Stores *stores) {
    for (int i = 0; i < 1 + OPTIM_STATES; i++) store_free(stores->store[i]);
    model_free(stores->model);
}

static Stores stores_with_vocab(const Fixture *fixture, const Family *family, uint64_t seed, int64_t vocab) {
    bool bert = family == &family_bert;
    ModelConfig config = small_config(family, bert ? OUTPUT_MLM | OUTPUT_NSP : OUTPUT_LM, bert, !bert);
    Stores stores = {.optim = optim_defaults(optim_row(0))};
    config.kv_heads = config.heads;
    if (vocab) config.vocab = vocab;
    assert_ok(model_new(&stores.model, &config));
    for (int i = 0; i < 1 + OPTIM_STATES; i++)
        stores.store[i] = store_of(fixture, stores.model, seed + 1000 * (uint64_t)i);
    return stores;
}

static Stores stores_of(const Fixture *fixture, const Family *family, uint64_t seed) {
    return stores_with_vocab(fixture, family, seed, 0);
}

static CheckpointState state_of(const Stores *stores, const json_t *progress) {
    return (CheckpointState){.params = stores->store[0],
                             .state = &stores->store[1],
                             .optim = &stores->optim,
                             .progress = progress};
}

static json_t *progress_of(int64_t step) {
    return json_pack("{s:I}", "step", (json_int_t)step);
}

static Status save(const Fixture *fixture, const char *run, int64_t step, const Stores *stores) {
    CLEANUP(json_decrefp) json_t *progress = progress_of(step);
    CheckpointState state = state_of(stores, progress);
    return ckpt_save(run, step, &state, fixture->stream, 2);
}

static Background *background_of(const Fixture *fixture, const Stores *stores) {
    Background *background = NULL;
    Snapshot snapshot = {0};
    assert_ok(snapshot_init(&snapshot, (const Store *const *)stores->store, NULL,
                            1 + optim_states(&stores->optim), NULL));
    assert_ok(snapshot_alloc(&snapshot, fixture->device));
    assert_ok(background_new(&background, &snapshot, fixture->stream, NULL, NULL));
    return background;
}

static Status begin(Background *background, const char *run, int64_t step, const Stores *stores) {
    CLEANUP(json_decrefp) json_t *progress = progress_of(step);
    CheckpointState state = state_of(stores, progress);
    return background_begin(background, run, step, &state, 2);
}

static void set_all(Stores *stores, float value) {
    for (int i = 0; i < 1 + optim_states(&stores->optim); i++)
        for (int u = 0; u < stores->model->units; u++) {
            float *values = stores->store[i]->flat[u].data;
            for (int64_t k = 0; k < stores->store[i]->count[u]; k++) values[k] = value;
        }
}

/* Padding of the vocabulary is not saved. */
static bool all_equal(const Stores *stores, float value) {
    for (int i = 0; i < 1 + optim_states(&stores->optim); i++)
        for (int u = 0; u < stores->model->units; u++)
            for (size_t j = 0; j < stores->store[i]->unit[u].count; j++) {
                const ParamSlot *slot = &stores->store[i]->unit[u].slot[j];
                const float *values = (float *)stores->store[i]->flat[u].data + slot->offset;
                for (int64_t k = 0; k < slot->count; k++)
                    if (slot_run(slot, k, 1).global >= 0 && values[k] != value) return false;
            }
    return true;
}

/* Loads the newest checkpoint and returns its step; 0 if there is none. */
static int64_t load_newest(const Fixture *fixture, const char *run, Stores *stores) {
    CLEANUP(mem_freep) char *dir = NULL;
    CLEANUP(json_decrefp) json_t *progress = NULL;
    assert_ok(ckpt_latest(run, &dir));
    if (!dir) return 0;
    assert_ok(checksums_verify(dir, VERIFY_ALL, NULL, NULL));
    CheckpointState state = state_of(stores, NULL);
    assert_ok(ckpt_load(dir, &state, fixture->stream, NULL, &progress));
    return json_integer_value(json_object_get(progress, "step"));
}

static void assert_same_file(const char *a, const char *b) {
    CLEANUP(file_map_done) FileMap x = {0}, y = {0};
    assert_ok(file_map_init(&x, a));
    assert_ok(file_map_init(&y, b));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
}

/* ---- tests ---- */

static void await_thread(Background *background) {
    while (background_busy(background)) usleep(1000);
}

static void assert_same_checkpoints(const Fixture *fixture) {
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "config.json",
                                        "weft.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char a[80], b[80];
        snprintf(a, sizeof a, "a/latest/%s", names[i]);
        snprintf(b, sizeof b, "b/latest/%s", names[i]);
        assert_same_file(path_of(fixture, a), path_of(fixture, b));
    }
}

/* Written by the thread, and by the caller, who waits. GPT-2 has transposed matrices, BERT splits q, k and v
 * and has a name for its bias twice. */
static void same_files_as_in_the_foreground(void **state) {
    const Fixture *fixture = *state;
    const Family *const families[] = {&family_gpt2, &family_bert, &family_llama};
    for (size_t f = 0; f < 2 * sizeof families / sizeof *families; f++) {
        CLEANUP(stores_done) Stores stores = stores_of(fixture, families[f / 2], 7);
        CLEANUP(background_freep) Background *background = background_of(fixture, &stores);
        assert_ok(save(fixture, path_of(fixture, "a"), 3, &stores));
        assert_ok(begin(background, path_of(fixture, "b"), 3, &stores));
        assert_int_equal(background_pending(background), 3);
        assert_ok(background_copied(background));
        set_all(&stores, -1); /* training goes on */
        if (f % 2) await_thread(background);
        assert_ok(background_wait(background));
        assert_int_equal(background_pending(background), 0);
        assert_same_checkpoints(fixture);
    }
}

/* Writing pauses after every write, within tensors, too. */
static void same_files_with_pauses(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores stores = stores_with_vocab(fixture, &family_gpt2, 7, 20000);
    CLEANUP(snapshot_done) Snapshot snapshot = {0};
    CLEANUP(ckpt_save_freep) CkptSave *saving = NULL;
    CLEANUP(json_decrefp) json_t *progress = progress_of(3);
    CheckpointState saved = state_of(&stores, progress);
    SnapshotCursor cursor = {0};
    int pauses = 0, inside = 0;
    assert_ok(save(fixture, path_of(fixture, "a"), 3, &stores));
    assert_ok(snapshot_init(&snapshot, (const Store *const *)stores.store, NULL,
                            1 + optim_states(&stores.optim), NULL));
    assert_ok(snapshot_alloc(&snapshot, fixture->device));
    assert_ok(snapshot_copy(&snapshot, fixture->stream));
    assert_ok(ckpt_save_new(&saving, path_of(fixture, "b"), 3, &saved, 2));
    assert_ok(save_list_open(&saving->list));
    pausing = true;
    for (; !cursor.done; pauses++) {
        int64_t before = cursor.at;
        paused = false;
        assert_ok(snapshot_write(&snapshot, &saving->list, &cursor, &paused));
        inside += cursor.at > before && before > 0;
    }
    pausing = false;
    assert_true(pauses > 10 && inside > 1);
    assert_ok(save_list_close(&saving->list));
    assert_ok(ckpt_save_publish(saving));
    assert_same_checkpoints(fixture);
}

/* One after the other, in the same memory; the run ends while the last is being written. */
static void saves_in_a_row(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done)
    Stores stores = stores_of(fixture, &family_gpt2, 1), loaded = stores_of(fixture, &family_gpt2, 2);
    Background *background = background_of(fixture, &stores);
    for (int step = 1; step <= 4; step++) {
        set_all(&stores, (float)step);
        assert_ok(begin(background, fixture->dir, step, &stores));
        assert_fails(begin(background, fixture->dir, step, &stores), 1, "still being saved");
        assert_ok(background_copied(background));
        set_all(&stores, 0);
        if (step == 2) await_thread(background);
        if (step < 4) assert_ok(background_wait(background));
    }
    background_free(background);
    assert_int_equal(load_newest(fixture, fixture->dir, &loaded), 4);
    assert_true(all_equal(&loaded, 4));
    assert_true(path_exists(path_of(fixture, "checkpoints/step-3")));
    assert_false(path_exists(path_of(fixture, "checkpoints/step-2"))); /* --keep 2 */
}

static void poisoned_values_are_not_saved(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done)
    Stores stores = stores_of(fixture, &family_gpt2, 1), loaded = stores_of(fixture, &family_gpt2, 2);
    CLEANUP(background_freep) Background *background = background_of(fixture, &stores);
    assert_ok(save(fixture, fixture->dir, 1, &stores));
    float *at = (float *)stores.store[2]->flat[1].data + 5, was = *at;
    *at = NAN;
    assert_ok(begin(background, fixture->dir, 2, &stores));
    assert_ok(background_copied(background));
    *at = was;
    Status status = background_wait(background);
    assert_true(status_diverged(status));
    assert_non_null(strstr(status_message(status), "contains NaN or Inf"));
    status_free(status);
    assert_int_equal(background_pending(background), 0);
    assert_false(path_exists(path_of(fixture, "checkpoints/step-2.tmp")));
    assert_int_equal(load_newest(fixture, fixture->dir, &loaded), 1);
    assert_ok(begin(background, fixture->dir, 2, &stores));
    assert_ok(background_wait(background));
    assert_int_equal(load_newest(fixture, fixture->dir, &loaded), 2);
}

static void child_saves(const Fixture *fixture, Stores *stores, int kill_at) {
    Background *background = background_of(fixture, stores);
    set_all(stores, 2);
    fatal_call = kill_at;
    Status status = begin(background, fixture->dir, 2, stores);
    if (!status) status = background_copied(background);
    set_all(stores, 0);
    if (!status) status = background_wait(background);
    _exit(status != OK);
}

/* A child saves step 2 and is killed in one of its file system calls. */
static void killed_at_any_call(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done)
    Stores stores = stores_of(fixture, &family_gpt2, 1), loaded = stores_of(fixture, &family_gpt2, 2);
    int killed = 0, old = 0, new = 0;
    for (int call = 1;; call += call < 8 ? 1 : 12) {
        int status;
        set_all(&stores, 1);
        assert_ok(dir_remove(path_of(fixture, "checkpoints")));
        assert_ok(save(fixture, fixture->dir, 1, &stores));
        calls = 0;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) child_saves(fixture, &stores, call);
        assert_int_equal(waitpid(child, &status, 0), child);
        int64_t step = load_newest(fixture, fixture->dir, &loaded);
        assert_true(step == 1 || step == 2);
        assert_true(all_equal(&loaded, (float)step));
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            assert_int_equal(step, 2);
            break;
        }
        killed++;
        old += step == 1;
        new += step == 2;
    }
    print_message("killed %d times: %d before, %d after the checkpoint was complete\n", killed, old, new);
    assert_true(killed > 5 && old > 5);
}

/* A write fails, in the header or later. Once there is space, the values of then are saved. */
static void full_disk(void **state) {
    const Fixture *fixture = *state;
    const int writes[] = {1, 2, 3, 20};
    CLEANUP(stores_done)
    Stores stores = stores_of(fixture, &family_gpt2, 1), loaded = stores_of(fixture, &family_gpt2, 2);
    CLEANUP(background_freep) Background *background = background_of(fixture, &stores);
    assert_ok(save(fixture, fixture->dir, 1, &stores));
    for (int i = 0; i < 4; i++) {
        int step = 2 + i;
        set_all(&stores, (float)step);
        calls = 0;
        failing_write = writes[i];
        Status status = begin(background, fixture->dir, step, &stores);
        bool begun = !status;
        if (begun) {
            assert_ok(background_copied(background));
            set_all(&stores, 0);
            status = background_wait(background);
        }
        assert_non_null(status);
        assert_non_null(strstr(status_message(status), "cannot save the checkpoint of step"));
        assert_non_null(strstr(status_message(status), strerror(ENOSPC)));
        status_free(status);
        assert_int_equal(background_pending(background), 0);
        assert_int_equal(load_newest(fixture, fixture->dir, &loaded), step - 1);
        failing_write = 0;
        assert_ok(begun ? background_retry(background) : begin(background, fixture->dir, step, &stores));
        assert_ok(background_wait(background));
        assert_int_equal(load_newest(fixture, fixture->dir, &loaded), step);
        assert_true(all_equal(&loaded, (float)step));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(same_files_as_in_the_foreground), TEST(same_files_with_pauses), TEST(saves_in_a_row),
        TEST(poisoned_values_are_not_saved),   TEST(killed_at_any_call),     TEST(full_disk),
    };
    return cmocka_run_group_tests_name("checkpoint.background", tests, NULL, NULL);
}
