/* Checkpoints of a run: they restore every bit, and `latest` always refers to a complete checkpoint, whatever
 * happens during a save. */
#include "fixture.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "checkpoint/checksums.h"

/* Parameters and AdamW's state of one model. */
typedef struct Stores {
    Model *model;
    Store *params, *state[OPTIM_STATES];
    OptimSpec optim;
} Stores;

static Stores stores_of(const Fixture *fixture, uint64_t seed) {
    ModelConfig config = small_config(&family_bert, OUTPUT_MLM | OUTPUT_NSP | OUTPUT_SPAN, true, false);
    Stores stores = {0};
    assert_ok(model_new(&stores.model, &config));
    stores.params = store_of(fixture, stores.model, seed);
    for (int k = 0; k < OPTIM_STATES; k++)
        stores.state[k] = store_of(fixture, stores.model, seed + 1000 * (uint64_t)(k + 1));
    return stores;
}

static void stores_done(Stores *stores) {
    store_free(stores->params);
    for (int k = 0; k < OPTIM_STATES; k++) store_free(stores->state[k]);
    model_free(stores->model);
}

static bool stores_same(const Stores *a, const Stores *b) {
    return store_same(a->params, b->params) && store_same(a->state[0], b->state[0]) &&
           store_same(a->state[1], b->state[1]);
}

static CheckpointState state_of(const Stores *stores) {
    return (CheckpointState){.params = stores->params, .state = stores->state, .optim = &stores->optim};
}

static Status load(const Fixture *fixture, const char *dir, const Stores *stores, json_t **ret_progress) {
    CheckpointState state = state_of(stores);
    return ckpt_load(dir, &state, fixture->stream, NULL, ret_progress);
}

static Status save(const Fixture *fixture, const char *run, int64_t step, const Stores *stores, int keep) {
    CLEANUP(json_decrefp) json_t *progress = json_pack("{s:I, s:f}", "step", (json_int_t)step, "loss", 0.1);
    CheckpointState state = state_of(stores);
    state.progress = progress;
    return ckpt_save(run, step, &state, fixture->stream, keep);
}

static bool has(const Fixture *fixture, const char *name) {
    return path_exists(path_of(fixture, name));
}

/* Loads the newest checkpoint and returns its step; -1 if there is no checkpoint. */
static int64_t load_newest(const Fixture *fixture, const char *run, Stores *stores) {
    CLEANUP(mem_freep) char *dir = NULL;
    assert_ok(ckpt_latest(run, &dir));
    if (!dir) return -1;
    CLEANUP(json_decrefp) json_t *progress = NULL;
    assert_ok(load(fixture, dir, stores, &progress));
    return json_integer_value(json_object_get(progress, "step"));
}

static void restores_every_bit(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores saved = stores_of(fixture, 1), loaded = stores_of(fixture, 2);
    /* Values that a conversion to decimal or to another type would lose. */
    uint32_t odd[] = {0x7f7fffffu, 0x00000001u, 0x80000000u, 0xff7fffffu};
    memcpy(saved.params->flat[1].data, odd, sizeof odd);
    const char *run = path_of(fixture, "run");
    CLEANUP(mem_freep) char *none = NULL;
    assert_ok(ckpt_latest(run, &none));
    assert_null(none);
    assert_ok(save(fixture, run, 7, &saved, 0));
    assert_int_equal(load_newest(fixture, run, &loaded), 7);
    assert_true(stores_same(&saved, &loaded));
    /* A checkpoint is a model directory, and a run directory stands for its newest checkpoint. */
    CLEANUP(model_dir_done) ModelDir dir = {0};
    assert_ok(model_dir_open(&dir, run));
    ModelConfig config;
    assert_ok(hf_config_read(dir.path, &config));
    assert_int_equal(config.outputs_mask, OUTPUT_MLM | OUTPUT_NSP | OUTPUT_SPAN);
    char link[64] = {0};
    assert_true(readlink(path_of(fixture, "run/latest"), link, sizeof link - 1) > 0);
    assert_string_equal(link, "checkpoints/step-7");
}

static void keeps_the_newest(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1);
    const char *run = fixture->dir;
    for (int step = 8; step <= 12; step++) assert_ok(save(fixture, run, step, &stores, 2));
    assert_false(has(fixture, "checkpoints/step-10"));
    assert_true(has(fixture, "checkpoints/step-11"));
    assert_true(has(fixture, "checkpoints/step-12"));
    /* A run that went back to an earlier step keeps its new checkpoints, not those of its former future. */
    assert_ok(save(fixture, run, 9, &stores, 2));
    assert_ok(save(fixture, run, 10, &stores, 2));
    assert_true(has(fixture, "checkpoints/step-9"));
    assert_true(has(fixture, "checkpoints/step-10"));
    assert_false(has(fixture, "checkpoints/step-11"));
    assert_false(has(fixture, "checkpoints/step-12"));
    CLEANUP(mem_freep) char *dir = NULL;
    assert_ok(ckpt_latest(run, &dir));
    assert_non_null(strstr(dir, "step-10"));
    for (int step = 20; step <= 23; step++) assert_ok(save(fixture, run, step, &stores, 0));
    assert_true(has(fixture, "checkpoints/step-9"));
}

/* Weights or optimizer state with NaN or Inf are not saved, and no older checkpoint makes room for them. */
static void nothing_poisoned_is_saved(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1), loaded = stores_of(fixture, 2);
    assert_ok(save(fixture, fixture->dir, 1, &stores, 1));
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 2 * sizeof bad / sizeof *bad; i++) {
        Store *store = i % 2 ? stores.params : stores.state[1];
        float *at = (float *)store->flat[1].data + 17 * i, was = *at;
        *at = bad[i / 2];
        Status status = save(fixture, fixture->dir, 2, &stores, 1);
        assert_true(status_diverged(status));
        assert_non_null(strstr(status_message(status), "contains NaN or Inf"));
        status_free(status);
        *at = was;
        assert_false(has(fixture, "checkpoints/step-2"));
        assert_int_equal(load_newest(fixture, fixture->dir, &loaded), 1);
    }
    assert_ok(save(fixture, fixture->dir, 2, &stores, 1));
}

static void saves_a_step_again(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done)
    Stores one = stores_of(fixture, 1), two = stores_of(fixture, 2), loaded = stores_of(fixture, 3);
    assert_ok(save(fixture, fixture->dir, 5, &one, 1));
    assert_ok(save(fixture, fixture->dir, 5, &two, 1));
    assert_int_equal(load_newest(fixture, fixture->dir, &loaded), 5);
    assert_true(stores_same(&two, &loaded));
    assert_false(has(fixture, "checkpoints/step-5.old"));
}

static void leftovers_are_ignored_then_removed(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1), loaded = stores_of(fixture, 2);
    assert_ok(save(fixture, fixture->dir, 1, &stores, 0));
    assert_ok(dir_make(path_of(fixture, "checkpoints/step-2.tmp")));
    put_file(path_of(fixture, "checkpoints/step-2.tmp/weft.json"), "{}");
    assert_ok(dir_make(path_of(fixture, "checkpoints/step-3")));
    assert_int_equal(symlink("x", path_of(fixture, "latest.tmp.1")), 0);
    assert_int_equal(load_newest(fixture, fixture->dir, &loaded), 1);
    /* Killed after step 1 was moved aside and before its replacement was in place. */
    assert_int_equal(
        rename(path_of(fixture, "checkpoints/step-1"), path_of(fixture, "checkpoints/step-1.old")), 0);
    assert_int_equal(load_newest(fixture, fixture->dir, &loaded), 1);
    assert_ok(save(fixture, fixture->dir, 4, &stores, 0));
    assert_false(has(fixture, "checkpoints/step-2.tmp"));
    assert_false(has(fixture, "checkpoints/step-1.old"));
    assert_true(has(fixture, "checkpoints/step-1/weft.json"));
    struct stat st;
    assert_int_equal(lstat(path_of(fixture, "latest.tmp.1"), &st), -1);
}

/* Saves steps 1, 2, ... with changing contents until it is killed. */
static void save_forever(const Fixture *fixture, Stores *stores) {
    for (int64_t step = 1;; step++) {
        float *first = stores->params->flat[0].data,
              *last = stores->state[1]->flat[stores->model->count - 1].data;
        first[0] = last[0] = (float)(step / 3);
        Status status = save(fixture, fixture->dir, step / 3, stores, 2);
        if (status) _exit(1);
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void killed_at_any_moment(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1), loaded = stores_of(fixture, 2);
    double began = seconds();
    assert_ok(save(fixture, path_of(fixture, "other"), 0, &stores, 2));
    double longest = 4 * (seconds() - began); /* time of a few saves */
    unsigned seed = 12345;
    int64_t best = -1;
    for (int round = 0; round < 20 || (round < 200 && seconds() - began < 6); round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) save_forever(fixture, &stores);
        seed = seed * 1103515245u + 12345u;
        double wait = longest * (seed >> 8) / (1 << 24);
        nanosleep(&(struct timespec){.tv_sec = (time_t)wait, .tv_nsec = (long)((wait - (time_t)wait) * 1e9)},
                  NULL);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        int64_t step = load_newest(fixture, fixture->dir, &loaded);
        if (best >= 0) assert_true(step >= 0); /* a run never loses its last checkpoint */
        if (step > best) best = step;
        if (step < 0) continue;
        assert_true(((float *)loaded.params->flat[0].data)[0] == (float)step);
        assert_true(((float *)loaded.state[1]->flat[stores.model->count - 1].data)[0] == (float)step);
    }
    assert_true(best >= 0);
}

/* Saves step 2 in a child process that may not write files larger than `bytes`; returns the child's exit
 * code. */
static int save_within(const Fixture *fixture, const Stores *stores, rlim_t bytes) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, bytes});
        Status status = save(fixture, fixture->dir, 2, stores, 1);
        if (!status) _exit(0);
        _exit(strstr(status_message(status), "cannot save the checkpoint of step 2") &&
                      strstr(status_message(status), strerror(EFBIG))
                  ? 10
                  : 20);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void full_disk(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1), loaded = stores_of(fixture, 2);
    assert_ok(save(fixture, fixture->dir, 1, &stores, 1));
    struct stat st;
    assert_int_equal(stat(path_of(fixture, "latest/optimizer.safetensors"), &st), 0);
    rlim_t limits[] = {0, 20, 1000, 20000, (rlim_t)st.st_size - 1};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        assert_int_equal(save_within(fixture, &stores, limits[i]), 10);
        assert_false(has(fixture, "checkpoints/step-2"));
        assert_false(has(fixture, "checkpoints/step-2.tmp"));
        assert_int_equal(load_newest(fixture, fixture->dir, &loaded), 1);
        assert_true(stores_same(&stores, &loaded));
    }
    assert_int_equal(save_within(fixture, &stores, 1 << 20), 0);
    assert_int_equal(load_newest(fixture, fixture->dir, &loaded), 2);
}

static void unwritable_directory(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1);
    put_file(path_of(fixture, "file"), "x");
    assert_fails(save(fixture, path_of(fixture, "file"), 1, &stores, 1), 1, "file");
    assert_fails(save(fixture, path_of(fixture, "file/run"), 1, &stores, 1), 1, "cannot create directory");
    put_file(path_of(fixture, "checkpoints"), "x");
    assert_fails(save(fixture, fixture->dir, 1, &stores, 1), 1, "checkpoints");
}

static void damage_is_named(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1);
    assert_ok(save(fixture, fixture->dir, 1, &stores, 1));
    const char *dir = path_of(fixture, "latest");
    put_file(path_of(fixture, "latest/weft.json"), "{\"format\": 9}");
    assert_fails(load(fixture, dir, &stores, NULL), 1, "'format' is 9");
    put_file(path_of(fixture, "latest/weft.json"), "{\"format\": 1}");
    assert_fails(load(fixture, dir, &stores, NULL), 1, "'progress' is missing");
    put_file(path_of(fixture, "latest/weft.json"), "{\"format\": 1, \"optimizer\": \"other\"}");
    assert_fails(load(fixture, dir, &stores, NULL), 2, "its optimizer is other, but this run's is adamw");
    put_file(path_of(fixture, "latest/weft.json"), "{\"format\": 1, \"progress\": {}}");
    put_file(path_of(fixture, "latest/optimizer.safetensors"), "damaged");
    assert_fails(load(fixture, dir, &stores, NULL), 1,
                 "optimizer.safetensors is only 7 bytes long, too short");
    ModelConfig config = stores.model->config;
    config.outputs_mask = OUTPUT_MLM | OUTPUT_NSP;
    CLEANUP(model_freep) Model *model = NULL;
    assert_ok(model_new(&model, &config));
    CLEANUP(store_freep) Store *store = store_of(fixture, model, 1);
    CheckpointState other = {.params = store, .state = (Store *[]){store, store}, .optim = &stores.optim};
    assert_fails(ckpt_load(dir, &other, fixture->stream, NULL, NULL), 1,
                 "unexpected tensor 'qa_outputs.bias'");
}

/* Flips one bit of a file, or flips it back. */
static void flip(const char *path, size_t byte, int bit) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)byte, SEEK_SET), 0);
    int c = fgetc(file);
    assert_int_equal(fseek(file, (long)byte, SEEK_SET), 0);
    fputc(c ^ (1 << bit), file);
    assert_int_equal(fclose(file), 0);
}

static size_t size_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

/* Whether a flipped bit of this byte changes nothing, such as in the space between values. */
static bool is_blank(const char *path, size_t byte) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)byte, SEEK_SET), 0);
    int value = fgetc(file);
    assert_int_equal(fclose(file), 0);
    return value == ' ' || value == '\n';
}

static void assert_flip_is_noticed(const char *dir, const char *path, size_t byte, int bit,
                                   const char *words) {
    flip(path, byte, bit);
    CLEANUP(status_freep) Status status = checksums_verify(dir, VERIFY_ALL, NULL, NULL);
    flip(path, byte, bit);
    if (!status) fail_msg("%s: bit %d of byte %zu is not noticed", path, bit, byte);
    assert_non_null(strstr(status_message(status), words));
}

/* One flipped bit, anywhere, is noticed; in the data, its tensor is named. */
static void every_flipped_bit_is_noticed(void **state) {
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "weft.json"};
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1);
    assert_ok(save(fixture, fixture->dir, 3, &stores, 1));
    const char *dir = path_of(fixture, "latest");
    Verified verified = {0};
    assert_ok(checksums_verify(dir, VERIFY_ALL, NULL, &verified));
    assert_true(verified.tensors > 50 && verified.bytes > 10000);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/latest/%s", fixture->dir, names[i]);
        size_t size = size_of(path);
        for (size_t k = 0; k < 60; k++) {
            int bit = (int)(k % 8);
            if (i < 2) {
                assert_flip_is_noticed(dir, path, size - 1 - k * (size / 2) / 60, bit, "damaged");
                assert_flip_is_noticed(dir, path, k * 33, bit, names[i]); /* in the header */
            } else if (!is_blank(path, k * (size - 2) / 60)) {
                assert_flip_is_noticed(dir, path, k * (size - 2) / 60, bit, names[i]);
            }
        }
        assert_ok(checksums_verify(dir, VERIFY_ALL, NULL, NULL));
    }
    /* Values in weft.json are sealed. */
    CLEANUP(json_decrefp) json_t *json = NULL;
    const char *own = path_of(fixture, "latest/weft.json");
    assert_ok(json_read_file(own, &json));
    json_object_set_new(json, "step", json_integer(4));
    assert_ok(json_write_file(own, json));
    assert_fails(checksums_verify(dir, VERIFY_ALL, NULL, NULL), 1, "weft.json is damaged");
}

static void files_of_two_checkpoints_do_not_mix(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores one = stores_of(fixture, 1), two = stores_of(fixture, 2);
    assert_ok(save(fixture, fixture->dir, 1, &one, 0));
    assert_ok(save(fixture, fixture->dir, 2, &two, 0));
    assert_int_equal(rename(path_of(fixture, "checkpoints/step-1/optimizer.safetensors"),
                            path_of(fixture, "checkpoints/step-2/optimizer.safetensors")),
                     0);
    assert_fails(checksums_verify(path_of(fixture, "latest"), VERIFY_ALL, NULL, NULL), 1,
                 "optimizer.safetensors: tensor");
}

/* Without checksums, as in other programs' directories, nothing is verified. */
static void directories_without_checksums_pass(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1);
    assert_ok(save(fixture, fixture->dir, 1, &stores, 1));
    Verified verified = {0};
    put_file(path_of(fixture, "latest/weft.json"), "{\"format\": 1, \"step\": 1, \"progress\": {}}");
    assert_ok(checksums_verify(path_of(fixture, "latest"), VERIFY_ALL, NULL, &verified));
    assert_int_equal(verified.tensors, 0);
    assert_int_equal(unlink(path_of(fixture, "latest/weft.json")), 0);
    assert_ok(checksums_verify(path_of(fixture, "latest"), VERIFY_ALL, NULL, NULL));
    /* Models are loaded without the optimizer's state. */
    assert_ok(save(fixture, fixture->dir, 2, &stores, 1));
    assert_int_equal(unlink(path_of(fixture, "latest/optimizer.safetensors")), 0);
    assert_ok(checksums_verify(path_of(fixture, "latest"), VERIFY_WEIGHTS, NULL, NULL));
    assert_fails(checksums_verify(path_of(fixture, "latest"), VERIFY_ALL, NULL, NULL), 1,
                 "optimizer.safetensors is missing");
}

/* A checkpoint that is being read stays until the next save after. */
static void readers_keep_their_checkpoint(void **state) {
    const Fixture *fixture = *state;
    const char *run = fixture->dir;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1);
    assert_ok(save(fixture, run, 1, &stores, 1));
    CLEANUP(model_dir_done) ModelDir dir = {0}, best = {0};
    assert_ok(model_dir_open(&dir, run));
    for (int step = 2; step <= 4; step++) assert_ok(save(fixture, run, step, &stores, 1));
    ModelConfig config;
    assert_ok(hf_config_read(dir.path, &config));
    assert_true(has(fixture, "checkpoints/step-1"));
    assert_false(has(fixture, "checkpoints/step-3"));
    model_dir_done(&dir);
    assert_ok(save(fixture, run, 5, &stores, 1));
    assert_false(has(fixture, "checkpoints/step-1"));
    assert_ok(
        model_dir_open(&best, path_of(fixture, "latest"))); /* a link stands for what it refers to now */
    assert_non_null(strstr(best.path, "checkpoints/step-5"));
}

/* Opening always finds a complete checkpoint while another process saves and removes them. */
static void readers_beside_a_writer(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1);
    assert_ok(save(fixture, fixture->dir, 1, &stores, 1));
    pid_t child = fork();
    if (child == 0)
        for (int64_t step = 2;; step++)
            if (save(fixture, fixture->dir, step, &stores, 1)) _exit(1);
    for (int i = 0; i < 100; i++) {
        CLEANUP(model_dir_done) ModelDir dir = {0};
        ModelConfig config;
        Verified verified = {0};
        assert_ok(model_dir_open(&dir, fixture->dir));
        assert_ok(hf_config_read(dir.path, &config));
        assert_ok(checksums_verify(dir.path, VERIFY_ALL, NULL, &verified));
        assert_true(verified.tensors > 0);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void assert_resumes_at(const char *run, int64_t from, const char *step, const char *damaged) {
    CLEANUP(mem_freep) char *dir = NULL, *note = NULL;
    assert_ok(ckpt_resume_dir(run, from, NULL, NULL, &dir, &note));
    assert_non_null(dir);
    assert_string_equal(strrchr(dir, '/') + 1, step);
    if (damaged)
        assert_non_null(strstr(note, damaged));
    else
        assert_null(note);
}

static void resumes_from_the_newest_intact_checkpoint(void **state) {
    const Fixture *fixture = *state;
    const char *run = fixture->dir;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1);
    CLEANUP(mem_freep) char *none = NULL, *note = NULL;
    assert_ok(ckpt_resume_dir(run, 0, NULL, NULL, &none, &note));
    assert_null(none);
    for (int step = 1; step <= 4; step++) assert_ok(save(fixture, run, step, &stores, 0));
    assert_resumes_at(run, 0, "step-4", NULL);
    assert_resumes_at(run, 2, "step-2", NULL);
    assert_fails(ckpt_resume_dir(run, 7, NULL, NULL, &none, &note), 2,
                 "no checkpoint of step 7; available: 1, 2, 3, 4");
    const char *weights = path_of(fixture, "checkpoints/step-4/model.safetensors");
    const char *moments = path_of(fixture, "checkpoints/step-3/optimizer.safetensors");
    flip(weights, size_of(weights) - 9, 3);
    flip(moments, size_of(moments) - 9, 3);
    assert_fails(ckpt_resume_dir(run, 4, NULL, NULL, &none, &note), 1, "step-4/model.safetensors: tensor");
    assert_resumes_at(run, 0, "step-2", "step-3/optimizer.safetensors: tensor");
    assert_true(has(fixture, "checkpoints/step-4.damaged"));
    assert_false(has(fixture, "checkpoints/step-4"));
    /* Neither is an empty one. */
    assert_ok(dir_make(path_of(fixture, "checkpoints/step-9")));
    assert_resumes_at(run, 0, "step-2", NULL);
    assert_fails(ckpt_resume_dir(run, 9, NULL, NULL, &none, &note), 2, "available: 1, 2");
    /* The next save keeps intact ones only. */
    assert_ok(save(fixture, run, 3, &stores, 2));
    assert_true(has(fixture, "checkpoints/step-2"));
    assert_resumes_at(run, 0, "step-3", NULL);
    for (int step = 2; step <= 3; step++) {
        char path[256];
        snprintf(path, sizeof path, "%s/checkpoints/step-%d/model.safetensors", run, step);
        flip(path, size_of(path) - 1, 0);
    }
    assert_fails(ckpt_resume_dir(run, 0, NULL, NULL, &none, &note), 1, "no checkpoint is intact");
}

/* A file that cannot be read is no reason to give up a checkpoint; one that is missing is. */
static void unreadable_is_not_damaged(void **state) {
    const Fixture *fixture = *state;
    const char *run = fixture->dir, *moments = path_of(fixture, "checkpoints/step-2/optimizer.safetensors");
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1);
    CLEANUP(mem_freep) char *none = NULL, *note = NULL;
    for (int step = 1; step <= 2; step++) assert_ok(save(fixture, run, step, &stores, 0));
    assert_int_equal(unlink(moments), 0);
    assert_int_equal(symlink("optimizer.safetensors", moments), 0); /* a loop */
    assert_fails(ckpt_resume_dir(run, 0, NULL, NULL, &none, &note), 1, "cannot open");
    assert_true(has(fixture, "checkpoints/step-2"));
    assert_int_equal(unlink(moments), 0);
    assert_resumes_at(run, 0, "step-1", "step-2/optimizer.safetensors is missing");
    assert_true(has(fixture, "checkpoints/step-2.damaged"));
}

/* Neither is one whose model is unknown. */
static void without_config_is_damaged(void **state) {
    const Fixture *fixture = *state;
    const char *run = fixture->dir;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1);
    for (int step = 1; step <= 3; step++) assert_ok(save(fixture, run, step, &stores, 0));
    assert_int_equal(truncate(path_of(fixture, "checkpoints/step-3/config.json"), 20), 0);
    assert_int_equal(unlink(path_of(fixture, "checkpoints/step-2/config.json")), 0);
    assert_resumes_at(run, 0, "step-1", "step-3/config.json: not valid JSON");
    assert_true(has(fixture, "checkpoints/step-2.damaged"));
}

/* Nor one with a directory in place of a file. */
static void directory_for_a_file_is_damage(void **state) {
    const Fixture *fixture = *state;
    const char *run = fixture->dir;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1);
    for (int step = 1; step <= 2; step++) assert_ok(save(fixture, run, step, &stores, 0));
    const char *file = path_of(fixture, "checkpoints/step-2/model.safetensors");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkdir(file, 0777), 0);
    assert_resumes_at(run, 0, "step-1", "step-2/model.safetensors: expected a file, found a directory");
}

/* A checkpoint whose weft.json was lost, as in an incomplete copy, is set aside and never deleted. */
static void without_state_is_damaged(void **state) {
    const Fixture *fixture = *state;
    const char *run = fixture->dir;
    CLEANUP(stores_done) Stores stores = stores_of(fixture, 1);
    CLEANUP(mem_freep) char *none = NULL, *note = NULL;
    bool any = true;
    assert_ok(ckpt_any(run, &any));
    assert_false(any);
    for (int step = 1; step <= 2; step++) assert_ok(save(fixture, run, step, &stores, 0));
    assert_int_equal(unlink(path_of(fixture, "checkpoints/step-2/weft.json")), 0);
    assert_resumes_at(run, 0, "step-1", "step-2 has no weft.json");
    assert_ok(save(fixture, run, 2, &stores, 1));
    assert_true(has(fixture, "checkpoints/step-2.damaged/model.safetensors"));
    assert_int_equal(unlink(path_of(fixture, "checkpoints/step-2/weft.json")), 0);
    assert_ok(ckpt_any(run, &any));
    assert_true(any);
    assert_fails(ckpt_resume_dir(run, 0, NULL, NULL, &none, &note), 1, "no checkpoint is intact");
    assert_true(has(fixture, "checkpoints/step-2/model.safetensors"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(restores_every_bit),
        TEST(keeps_the_newest),
        TEST(nothing_poisoned_is_saved),
        TEST(saves_a_step_again),
        TEST(leftovers_are_ignored_then_removed),
        TEST(killed_at_any_moment),
        TEST(full_disk),
        TEST(unwritable_directory),
        TEST(damage_is_named),
        TEST(every_flipped_bit_is_noticed),
        TEST(files_of_two_checkpoints_do_not_mix),
        TEST(directories_without_checksums_pass),
        TEST(readers_keep_their_checkpoint),
        TEST(readers_beside_a_writer),
        TEST(resumes_from_the_newest_intact_checkpoint),
        TEST(unreadable_is_not_damaged),
        TEST(without_config_is_damaged),
        TEST(directory_for_a_file_is_damage),
        TEST(without_state_is_damaged),
    };
    return cmocka_run_group_tests_name("checkpoint.ckpt", tests, NULL, NULL);
}
