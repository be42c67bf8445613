/* Fuzzes weft.json of a checkpoint: it is rejected, or the loader returns its object and has loaded the
 * checkpoint's weights. Then with a correct seal, which would otherwise reject every mutation of the
 * checksums. */
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checksums.h"
#include "dir.h"

/* A checkpoint of a minimal model, created for the first input; only its weft.json changes. */
static struct {
    char progress[128];
    char *dir;
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
    free(rig.dir);
}

static Status make_checkpoint(void) {
    ModelConfig config;
    TRY(config_preset("gpt2-tiny", &config));
    config.layers = config.heads = 1;
    config.hidden = config.inner = config.vocab = config.positions = 2;
    TRY(device_new_cpu(&rig.device, 1));
    TRY(stream_new(&rig.stream, rig.device));
    TRY(model_new(&rig.model, &config));
    TRY(store_new(&rig.store, rig.model, rig.device, MEM_PARAMS));
    TRY(store_init_params(rig.store, rig.stream, 1));
    CLEANUP(json_decrefp) json_t *progress = json_object();
    Store *const stores[OPTIM_STATES] = {rig.store, rig.store};
    OptimSpec optim = {0};
    CheckpointState state = {.params = rig.store, .state = stores, .optim = &optim, .progress = progress};
    TRY(ckpt_save(fuzz_dir_path(), 1, &state, rig.stream, 1));
    return ckpt_latest(fuzz_dir_path(), &rig.dir);
}

static void make_rig(void) {
    atexit(clear_up);
    fuzz_require(fuzz_succeeded(make_checkpoint()) && rig.dir);
    snprintf(rig.progress, sizeof rig.progress, "%s/weft.json", rig.dir);
}

static void put_state(const void *data, size_t size) {
    FILE *file = fopen(rig.progress, "wb");
    fuzz_require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void verify_sealed(const uint8_t *data, size_t size) {
    CLEANUP(json_decrefp) json_t *state = json_loadb((const char *)data, size, 0, NULL);
    if (!json_is_object(state) || !fuzz_succeeded(checksums_seal(state))) return;
    CLEANUP(mem_freep) char *text = json_dumps(state, 0);
    Verified verified = {0};
    fuzz_require(text);
    put_state(text, strlen(text));
    if (fuzz_succeeded(checksums_verify(rig.dir, VERIFY_ALL, NULL, &verified)))
        fuzz_require(verified.tensors >= 0 && verified.bytes >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!rig.dir) make_rig();
    put_state(data, size);
    (void)fuzz_succeeded(checksums_verify(rig.dir, VERIFY_ALL, NULL, NULL));
    CLEANUP(json_decrefp) json_t *progress = NULL;
    CheckpointState state = {.params = rig.store,
                             .state = (Store *const[OPTIM_STATES]){rig.store, rig.store},
                             .optim = &(OptimSpec){0}};
    if (fuzz_succeeded(ckpt_load(rig.dir, &state, rig.stream, NULL, &progress)))
        fuzz_require(json_is_object(progress));
    else
        fuzz_require(!progress);
    verify_sealed(data, size);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "{\"format\":1,\"step\":4,\"progress\":{\"step\":4,\"tokens\":64,\"loss_first\":5.5,\"loss_last\":"
        "null,"
        "\"settings\":{\"seed\":1,\"batch\":2,\"task\":\"lm\",\"shuffle\":true}}}",
        "{\"format\":1,\"progress\":{}}",
        "{\"format\":9,\"step\":4,\"progress\":{}}",
        ("{\"format\":1,\"progress\":{},\"checksums\":{\"model.safetensors\":{\"transformer.wte.weight\":"
         "\"00000000\"},\"optimizer.safetensors\":{}},\"seal\":\"0a1b2c3d\"}"),
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
