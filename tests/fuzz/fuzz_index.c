/* Fuzzes model.safetensors.index.json: shards are opened only in the index's folder, and an accepted index
 * lists exactly the tensors in the shards. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "checkpoint/hf_files.h"
#include "fuzz.h"

static char directory[64]; /* created for the first input */

static void clear_up(void) {
    status_free(dir_remove(directory));
}

static void put(const char *name, const void *data, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    fuzz_require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void put_shard(const char *file, const char *tensor) {
    char text[256] = {0};
    int length = snprintf(text + 8, sizeof text - 8,
                          "{\"%s\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", tensor);
    text[0] = (char)length;
    put(file, text, 8 + (size_t)length + 3);
}

static void make_directory(void) {
    /* Prefer memory, because every input rewrites the index. */
    strcpy(directory, "/dev/shm/weft-fuzz-XXXXXX");
    if (!mkdtemp(directory)) {
        strcpy(directory, "/tmp/weft-fuzz-XXXXXX");
        fuzz_require(mkdtemp(directory));
    }
    atexit(clear_up);
    put_shard("model-00001-of-00002.safetensors", "a");
    put_shard("model-00002-of-00002.safetensors", "b");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!directory[0]) make_directory();
    put(HF_INDEX, data, size);
    CLEANUP(hf_files_freep) HfFiles *files = NULL;
    if (!fuzz_succeeded(hf_files_open(&files, directory))) return 0;
    fuzz_require(files->entries == 1 || files->entries == 2);
    fuzz_require(hf_files_find(files, "a") || hf_files_find(files, "b"));
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        ("{\"metadata\":{\"total_size\":6},\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
         "\"b\":\"model-00002-of-00002.safetensors\"}}"),
        "{\"weight_map\":{\"b\":\"model-00002-of-00002.safetensors\"}}",
        "{\"weight_map\":{\"a\":\"../model-00001-of-00002.safetensors\"}}",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
