/* Fuzzes the weights of a model of fixed size, dense and sparse: a file is rejected, or all parameters have
 * been loaded from it. The first byte of the input selects the kind of file; the rest is the file's header, a
 * NUL and its data, so that mutations get past the length of the header. */
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/hf_load.h"
#include "checkpoint/safetensors.h"
#include "dir.h"

enum { KINDS = 2, LENGTH_BYTES = 8 };
static const char *const files[KINDS] = {HF_WEIGHTS, HF_SPARSE};

static struct {
    Device *device;
    Stream *stream;
    Model *model;
    Store *store;
} rig;

static void clear_up(void) {
    store_free(rig.store);
    model_free(rig.model);
    stream_free(rig.stream);
    device_free(rig.device);
}

static Status make_model(void) {
    ModelConfig config;
    TRY(config_preset("gpt2-tiny", &config));
    config.layers = config.heads = 1;
    config.hidden = config.inner = 3;
    config.vocab = config.positions = 2;
    TRY(device_new_cpu(&rig.device, 1));
    TRY(stream_new(&rig.stream, rig.device));
    TRY(model_new(&rig.model, &config));
    TRY(store_new(&rig.store, rig.model, rig.device, MEM_PARAMS));
    return store_init_params(rig.store, rig.stream, 1);
}

static void make_rig(void) {
    if (rig.store) return;
    fuzz_require(fuzz_succeeded(make_model()));
    atexit(clear_up);
}

static void put_file(const char *name, const uint8_t *data, size_t size) {
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t header = nul ? (size_t)(nul - data) : size, rest = nul ? size - header - 1 : 0;
    uint8_t length[LENGTH_BYTES];
    char path[128];
    for (int i = 0; i < LENGTH_BYTES; i++) length[i] = (uint8_t)(header >> (8 * i));
    snprintf(path, sizeof path, "%s/%s", fuzz_dir_path(), name);
    FILE *file = fopen(path, "wb");
    fuzz_require(file && fwrite(length, 1, sizeof length, file) == sizeof length);
    fuzz_require(fwrite(data, 1, header, file) == header);
    fuzz_require(!rest || fwrite(nul + 1, 1, rest, file) == rest);
    fclose(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP(load_report_done) LoadReport report = {0};
    if (!size) return 0;
    make_rig();
    for (int i = 0; i < KINDS; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", fuzz_dir_path(), files[i]);
        unlink(path);
    }
    put_file(files[data[0] % KINDS], data + 1, size - 1);
    (void)fuzz_succeeded(hf_weights_check(fuzz_dir_path(), rig.model, NULL));
    if (!fuzz_succeeded(hf_weights_load(fuzz_dir_path(), rig.store, rig.stream, &report))) return 0;
    (void)fuzz_succeeded(load_report_check(&report, fuzz_dir_path(), &rig.model->config, false));
    return 0;
}

/* A file that weft saves. */
size_t fuzz_seed(size_t index, uint8_t *out) {
    char dir[128], path[160];
    CLEANUP(file_map_done) FileMap map = {0};
    if (index >= KINDS) return 0;
    make_rig();
    snprintf(dir, sizeof dir, "%s/seed", fuzz_dir_path());
    snprintf(path, sizeof path, "%s/%s", dir, files[index]);
    fuzz_require(fuzz_succeeded(dir_remove(dir)));
    SaveOptions options = {.dtype = DT_F32, .sparse = index == 1};
    fuzz_require(fuzz_succeeded(hf_save(dir, rig.store, rig.stream, &options)));
    fuzz_require(fuzz_succeeded(file_map_init(&map, path)));
    size_t header = 0;
    for (int i = 0; i < LENGTH_BYTES; i++) header |= (size_t)((const uint8_t *)map.data)[i] << (8 * i);
    fuzz_require(map.size + 2 - LENGTH_BYTES <= FUZZ_INPUT_LIMIT && LENGTH_BYTES + header <= map.size);
    out[0] = (uint8_t)index;
    memcpy(out + 1, (const uint8_t *)map.data + LENGTH_BYTES, header);
    out[1 + header] = 0;
    memcpy(out + 2 + header, (const uint8_t *)map.data + LENGTH_BYTES + header,
           map.size - LENGTH_BYTES - header);
    return 2 + map.size - LENGTH_BYTES;
}
