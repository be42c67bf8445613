/* Fuzzes the weights of a model of fixed size, dense and sparse: a file is rejected, or all parameters have
 * been loaded from it. The first byte of the input selects the kind of file; the rest is the file's header, a
 * NUL and its data, so that mutations get past the length of the header. */
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/slices.h"
#include "header.h"

enum { KINDS = 2 };
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP(load_report_done) LoadReport report = {0};
    if (!size) return 0;
    make_rig();
    for (int i = 0; i < KINDS; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", fuzz_dir_path(), files[i]);
        unlink(path);
    }
    put_header_file(files[data[0] % KINDS], data + 1, size - 1);
    (void)fuzz_succeeded(hf_weights_check(fuzz_dir_path(), rig.model, NULL));
    if (!fuzz_succeeded(hf_weights_load(fuzz_dir_path(), rig.store, rig.stream, &report))) return 0;
    (void)fuzz_succeeded(load_report_check(&report, fuzz_dir_path(), &rig.model->config, false));
    return 0;
}

/* A file that weft saves. */
size_t fuzz_seed(size_t index, uint8_t *out) {
    char dir[128], path[160];
    if (index >= KINDS) return 0;
    make_rig();
    snprintf(dir, sizeof dir, "%s/seed", fuzz_dir_path());
    snprintf(path, sizeof path, "%s/%s", dir, files[index]);
    fuzz_require(fuzz_succeeded(dir_remove(dir)));
    SaveOptions options = {.dtype = DT_F32, .sparse = index == 1};
    fuzz_require(fuzz_succeeded(hf_save(dir, rig.store, rig.stream, &options)));
    out[0] = (uint8_t)index;
    return 1 + read_header_file(path, out + 1, FUZZ_INPUT_LIMIT - 1);
}
