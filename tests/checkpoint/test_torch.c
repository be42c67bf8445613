/* State dicts that torch.save wrote (make_torch.py): their values, and that nothing else is accepted. */
#include "checkpoint/torch_read.h"

#include <stdlib.h>

#include "checkpoint/hf_files.h"
#include "fixture.h"

#define FOLDER WEFT_TEST_DIR "/checkpoint/torch/"

static void assert_tensor(const SafeFile *file, const char *name, const char *type, int ndim, int64_t first,
                          int64_t second, const float *values) {
    const SafeTensor *tensor = safe_find(file, name);
    if (!tensor) fail_msg("no tensor '%s'", name);
    assert_string_equal(tensor->type, type);
    assert_int_equal(tensor->ndim, ndim);
    int64_t count = 1;
    for (int i = 0; i < ndim; i++) {
        assert_int_equal(tensor->dim[i], i ? second : first);
        count *= tensor->dim[i];
    }
    float found[16];
    if (!values) return;
    assert_ok(values_read(found, tensor, 0, count));
    assert_memory_equal(found, values, (size_t)count * sizeof *found);
    for (int64_t i = 0; i < count; i++) { /* any part of it */
        assert_ok(values_read(found, tensor, i, 1));
        assert_true(found[0] == values[i]);
    }
}

static void assert_state(const SafeFile *file) {
    assert_int_equal(safe_count(file), 12);
    assert_tensor(file, "plain", "F32", 2, 2, 3, (float[]){0, 0.25f, 0.5f, 0.75f, 1, 1.25f});
    assert_tensor(file, "turned", "F32", 2, 2, 3, (float[]){0, 0.5f, 1, 0.25f, 0.75f, 1.25f});
    assert_tensor(file, "part", "F32", 1, 4, 0, (float[]){0.75f, 1, 1.25f, 1.5f});
    assert_tensor(file, "shared", "F32", 1, 2, 0, (float[]){1, 1.25f});
    assert_tensor(file, "bf16", "BF16", 1, 2, 0, (float[]){1.5f, -2});
    assert_tensor(file, "fp16", "F16", 1, 1, 0, (float[]){0.25f});
    assert_tensor(file, "fp64", "F64", 2, 1, 1, (float[]){0.5f});
    assert_tensor(file, "empty", "F32", 2, 0, 3, (float[]){0});
    assert_tensor(file, "scalar", "F32", 0, 0, 0, (float[]){7});
    assert_tensor(file, "ids", "I64", 1, 3, 0, NULL);
    assert_tensor(file, "mask", "BOOL", 1, 2, 0, NULL);
    assert_tensor(file, "parameter", "F32", 1, 2, 0, (float[]){1, 1});
}

static void reads_values(void **state) {
    (void)state;
    CLEANUP(safe_freep) SafeFile *archive = NULL, *old = NULL, *nested = NULL, *module = NULL;
    assert_ok(torch_open(&archive, FOLDER "state.bin"));
    assert_state(archive);
    assert_ok(torch_open(&old, FOLDER "old.bin"));
    assert_state(old);
    assert_ok(torch_open(&nested, FOLDER "nested.bin"));
    assert_int_equal(safe_count(nested), 1);
    assert_tensor(nested, "plain", "F32", 1, 2, 0, (float[]){1, 1});
    assert_ok(torch_open(&module, FOLDER "module.bin"));
    assert_int_equal(safe_count(module), 2);
    assert_tensor(module, "weight", "F32", 2, 2, 3, NULL);
}

static void executes_nothing(void **state) {
    (void)state;
    SafeFile *file;
    assert_fails(torch_open(&file, FOLDER "call.bin"), 1, "system, which weft does not execute");
    assert_fails(torch_open(&file, FOLDER "list.bin"), 1, "expected a state dict");
    assert_fails(torch_open(&file, WEFT_TEST_DIR "/checkpoint/make_torch.py"), 1,
                 "not a file of torch.save; load the model in transformers");
}

/* One file, or those that the index lists. */
static void serves_checkpoints(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(hf_files_freep) HfFiles *single = NULL, *sharded = NULL;
    CLEANUP(mem_freep) char *data = NULL;
    size_t size;
    assert_ok(file_read(FOLDER "module.bin", 1 << 20, &data, &size));
    assert_ok(file_replace(path_of(fixture, HF_TORCH), data, size));
    assert_ok(hf_files_open(&single, fixture->dir));
    assert_non_null(hf_files_find(single, "bias"));
    assert_int_equal(rename(path_of(fixture, HF_TORCH), path_of(fixture, "part-1.bin")), 0);
    put_file(path_of(fixture, HF_TORCH_INDEX),
             "{\"weight_map\":{\"weight\":\"part-1.bin\",\"bias\":\"part-1.bin\"}}");
    assert_ok(hf_files_open(&sharded, fixture->dir));
    assert_non_null(hf_files_find(sharded, "weight"));
    HfFiles *files;
    put_file(path_of(fixture, HF_TORCH_INDEX), "{\"weight_map\":{\"weight\":\"../part-1.bin\"}}");
    assert_fails(hf_files_open(&files, fixture->dir), 1, "expected a .bin file in the same directory");
}

/* Files that are cut off anywhere fail; a changed byte gives values or an error. */
static void survives_damage(void **state) {
    const Fixture *fixture = *state;
    static const char *const names[] = {FOLDER "state.bin", FOLDER "old.bin"};
    const char *path = path_of(fixture, "damaged.bin");
    for (int i = 0; i < 2; i++) {
        CLEANUP(mem_freep) char *data = NULL;
        size_t size;
        assert_ok(file_read(names[i], 1 << 20, &data, &size));
        for (size_t at = 0; at < size; at += at < 2000 ? 1 : 7) {
            CLEANUP(safe_freep) SafeFile *cut = NULL, *file = NULL;
            assert_ok(file_replace(path, data, at));
            Status status = torch_open(&cut, path);
            assert_non_null(status);
            status_free(status);
            data[at] ^= 0x21;
            assert_ok(file_replace(path, data, size));
            status_free(torch_open(&file, path));
            data[at] ^= 0x21;
        }
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {CASE(reads_values), CASE(executes_nothing), CASE(serves_checkpoints),
                                       CASE(survives_damage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
