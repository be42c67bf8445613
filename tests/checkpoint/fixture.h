/* Fixture of the checkpoint tests: a temporary directory, small models, and stores that are filled and
 * compared. */
#ifndef WEFT_TESTS_CHECKPOINT_FIXTURE_H
#define WEFT_TESTS_CHECKPOINT_FIXTURE_H

#include "test.h"
#include "tiny.h"

#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

typedef struct Fixture {
    char dir[64]; /* a new directory, removed by the teardown */
    Device *device;
    Stream *stream;
} Fixture;

static inline int fixture_setup(void **state) {
    Fixture *fixture = calloc(1, sizeof *fixture);
    strcpy(fixture->dir, "/tmp/weft-test-XXXXXX");
    if (!mkdtemp(fixture->dir)) return -1;
    assert_ok(device_new_cpu(&fixture->device, 1));
    assert_ok(stream_new(&fixture->stream, fixture->device));
    *state = fixture;
    return 0;
}

static inline int fixture_teardown(void **state) {
    Fixture *fixture = *state;
    assert_ok(dir_remove(fixture->dir));
    stream_free(fixture->stream);
    device_free(fixture->device);
    free(fixture);
    return 0;
}

/* A path in the fixture's directory. The result stays valid for the next seven calls. */
static inline const char *path_of(const Fixture *fixture, const char *name) {
    static char path[8][256];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", fixture->dir, name);
    return path[turn];
}

static inline void put_file(const char *path, const char *text) {
    assert_ok(file_replace(path, text, strlen(text)));
}

/* A small model of a family's first preset. */
static inline ModelConfig small_config(const Family *family, unsigned heads, bool pooler, bool tied) {
    ModelConfig config;
    assert_ok(config_preset(family->presets[0].name, &config));
    tiny_resize(&config, TINY_SAVED);
    config.outputs_mask = heads;
    config.pooler = pooler;
    config.tied = tied;
    return config;
}

static inline Store *store_of(const Fixture *fixture, const Model *model, uint64_t seed) {
    Store *store = NULL;
    assert_ok(store_new(&store, model, fixture->device, MEM_PARAMS));
    assert_ok(store_init_params(store, fixture->stream, seed));
    /* Biases and norms start as 0 and 1; give every element a different value. */
    for (int i = 0; i < model->units; i++) {
        float *values = store->flat[i].data;
        for (int64_t j = 0; j < store->unit[i].numel; j++)
            values[j] = (float)seed + (float)i + (float)j / 4096;
        for (size_t j = 0; j < store->unit[i].count; j++) { /* padding of the vocabulary is 0 */
            const ParamSlot *slot = &store->unit[i].slot[j];
            if (!slot->desc.vocab) continue;
            int64_t real = slot->count / slot->dim[0] * slot->valid;
            memset(values + slot->offset + real, 0, (size_t)(slot->count - real) * sizeof *values);
        }
    }
    return store;
}

/* The store of one of several ranks, filled with values that loading must replace. */
static inline Store *part_of(const Fixture *fixture, const Model *model, int tp_rank, int tp_size, int shard,
                             int shards) {
    Store *store = NULL;
    UnitSpec *spec = calloc((size_t)model->units, sizeof *spec);
    for (int i = 0; i < model->units; i++)
        spec[i] = (UnitSpec){.tp_rank = tp_rank, .tp_size = tp_size, .shards = shards};
    assert_ok(store_new_borrowed(&store, model, spec, DT_F32));
    free(spec);
    store->borrowed = false;
    for (int i = 0; i < model->units; i++) {
        store->count[i] = store->unit[i].numel / shards;
        store->first[i] = store->count[i] * shard;
        size_t bytes = (size_t)store->count[i] * sizeof(float);
        assert_ok(dev_alloc(fixture->device, MEM_PARAMS, bytes, &store->flat[i]));
        memset(store->flat[i].data, 0xff, bytes);
    }
    return store;
}

/* Whether all parameters are bitwise equal; padding between them is not compared. */
static inline bool store_same(const Store *a, const Store *b) {
    for (int i = 0; i < a->model->count; i++)
        for (size_t j = 0; j < a->model->block[i].params.count; j++)
            if (memcmp(a->view[i][j].data, b->view[i][j].data, tensor_bytes(a->view[i][j]))) return false;
    return true;
}

#endif
