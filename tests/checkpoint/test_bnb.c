/* Checkpoints in 4 bits by bitsandbytes: matrices have its values, NF4 here is NF4 there, and files whose
 * parts do not fit are refused. */
#include <stdlib.h>

#include "test.h"

#include "base/fs.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "device/device.h"
#include "tensor/blocks.h"

#define CASES WEFT_TEST_DIR "/golden/bnb/"
static const char *const names[] = {"nf4", "nf4-nested", "fp4"};

static const SafeTensor *expected_at(SafeFile **file, const char *name, const char *tensor) {
    char path[512];
    snprintf(path, sizeof path, CASES "%s/expected.safetensors", name);
    if (!*file) assert_ok(safe_open(file, path));
    const SafeTensor *found = safe_find(*file, tensor);
    assert_non_null(found);
    return found;
}

static void decoded(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char dir[512];
        ModelConfig config;
        CLEANUP(model_freep) Model *model = NULL;
        CLEANUP(store_freep) Store *store = NULL;
        CLEANUP(safe_freep) SafeFile *file = NULL;
        LoadReport report = {0};
        Device *device = NULL;
        Stream *stream = NULL;
        const ParamDesc *desc;
        Tensor found;
        snprintf(dir, sizeof dir, CASES "%s", names[i]);
        assert_ok(hf_config_read(dir, &config));
        assert_ok(model_new(&model, &config));
        assert_ok(device_new_cpu(&device, 1));
        assert_ok(stream_new(&stream, device));
        assert_ok(store_new(&store, model, device, MEM_PARAMS));
        assert_ok(hf_weights_load(dir, store, stream, &report));
        assert_int_equal(report.missing_count + report.unexpected_count, 0);
        load_report_done(&report);
        assert_true(store_find(store, "layer.0.mlp.down.weight", &desc, &found));
        const SafeTensor *expected = expected_at(&file, names[i], "decoded");
        assert_int_equal(expected->bytes, tensor_bytes(found));
        assert_memory_equal(found.data, expected->data, expected->bytes);
        store_free(store);
        store = NULL;
        stream_free(stream);
        device_free(device);
    }
}

/* Encoding the original weights gives its codes and values; encoding these again changes nothing. */
static void encoded(void **state) {
    (void)state;
    CLEANUP(safe_freep) SafeFile *file = NULL;
    const SafeTensor *original = expected_at(&file, "nf4", "original"),
                     *codes = expected_at(&file, "nf4", "codes"),
                     *values = expected_at(&file, "nf4", "decoded");
    int64_t count = (int64_t)(original->bytes / sizeof(float));
    float *from = malloc(original->bytes), *back = malloc(original->bytes),
          *scales = malloc((size_t)code_blocks(count) * sizeof(float));
    uint8_t *found = malloc((size_t)code_bytes(BLOCKS_NF4, count));
    memcpy(from, original->data, original->bytes);
    for (int again = 0; again < 2; again++) {
        blocks_encode(BLOCKS_NF4, found, scales, from, count);
        assert_memory_equal(found, codes->data, codes->bytes);
        blocks_decode(BLOCKS_NF4, back, found, scales, count);
        assert_memory_equal(back, values->data, values->bytes);
        memcpy(from, back, original->bytes);
    }
    free(from);
    free(back);
    free(scales);
    free(found);
}

/* Changes a byte sequence of the case's file, of equal length. */
static void refused(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *message;
    } cases[] = {{"\"blocksize\": 64", "\"blocksize\": 32", "do not belong to a matrix of"},
                 {"\"shape\": [64, 64]", "\"shape\": [64, 32]", "do not belong to a matrix of"},
                 {"\"shape\": [64, 64]", "\"shape\": [64, -4]", "'shape' has the number -4"},
                 {"q_proj.weight.quant_map", "q_proj.weight.quant_mop", "do not belong to a matrix of"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[] = "/tmp/weft-bnb-XXXXXX", path[64];
        ModelConfig config;
        CLEANUP(model_freep) Model *model = NULL;
        CLEANUP(file_map_done) FileMap map = {0};
        assert_non_null(mkdtemp(dir));
        assert_ok(file_map_init(&map, CASES "nf4/model.safetensors"));
        char *data = malloc(map.size);
        memcpy(data, map.data, map.size);
        char *at = memmem(data, map.size, cases[i].from, strlen(cases[i].from));
        assert_non_null(at);
        memcpy(at, cases[i].to, strlen(cases[i].to));
        snprintf(path, sizeof path, "%s/model.safetensors", dir);
        assert_ok(file_replace(path, data, map.size));
        assert_ok(hf_config_read(CASES "nf4", &config));
        assert_ok(model_new(&model, &config));
        assert_fails(hf_weights_check(dir, model, NULL), 1, cases[i].message);
        free(data);
        assert_ok(dir_remove(dir));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(decoded), cmocka_unit_test(encoded),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
