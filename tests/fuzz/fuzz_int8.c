/* Fuzzes int8 and int4 weights of a model of fixed size: a file is rejected, or all parameters have been
 * loaded from it. The first byte of the input selects the kind of model; the rest is the file's header, a NUL
 * and its data, so that mutations get past the length of the header. */
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hf_files.h"
#include "header.h"

typedef struct Kind {
    bool int4, embedding, fixed; /* fixed: static activation scales */
    bool mixture;
} Kind;

static const Kind kinds[] = {
    {0}, {.embedding = true}, {.fixed = true}, {.int4 = true}, {.fixed = true, .mixture = true}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct {
    Device *device;
    Stream *stream;
    Exec exec;
    Model *model[KINDS];
    Store *store[KINDS];
} rig;

static void clear_up(void) {
    for (int i = 0; i < KINDS; i++) {
        store_free(rig.store[i]);
        model_free(rig.model[i]);
    }
    stream_free(rig.stream);
    device_free(rig.device);
}

static Status make_model(int i) {
    ModelConfig config;
    TRY(config_preset(kinds[i].mixture ? "moe-1m" : "gpt2-tiny", &config));
    config.layers = config.heads = 1;
    if (kinds[i].mixture) {
        config.kv_heads = 1;
        config.head_width = config.experts = 2;
        config.expert_inner = 3;
    }
    config.hidden = config.inner = 3;
    config.vocab = config.positions = 2;
    config.packed_layers = kinds[i].int4 ? PACK_INT4 : PACK_INT8;
    config.packed_embedding = kinds[i].embedding ? PACK_INT8 : PACK_NONE;
    config.static_scales = kinds[i].fixed;
    TRY(model_new(&rig.model[i], &config));
    TRY(store_new(&rig.store[i], rig.model[i], rig.device, MEM_PARAMS));
    return store_init_params(rig.store[i], rig.stream, 1);
}

static Status make_models(void) {
    TRY(device_new_cpu(&rig.device, 1));
    TRY(stream_new(&rig.stream, rig.device));
    rig.exec.stream = rig.stream;
    TRY(kernels_find("ref", &rig.exec.table));
    for (int i = 0; i < KINDS; i++) TRY(make_model(i));
    return OK;
}

static void make_rig(void) {
    if (rig.device) return;
    fuzz_require(fuzz_succeeded(make_models()));
    atexit(clear_up);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP(load_report_done) LoadReport report = {0};
    if (!size) return 0;
    make_rig();
    int kind = data[0] % KINDS;
    put_header_file(HF_INT8, data + 1, size - 1);
    (void)fuzz_succeeded(hf_weights_check(fuzz_dir_path(), rig.model[kind], NULL));
    (void)fuzz_succeeded(hf_quantized_load(fuzz_dir_path(), rig.model[kind], &rig.exec));
    if (!fuzz_succeeded(hf_weights_load(fuzz_dir_path(), rig.store[kind], rig.stream, &report))) return 0;
    (void)fuzz_succeeded(load_report_check(&report, fuzz_dir_path(), &rig.model[kind]->config, false));
    return 0;
}

static Status add_param(QuantizedList *list, const ModelConfig *config, const ParamDesc *desc, bool fixed) {
    int64_t cols = desc->dim[desc->ndim - 1], rows = param_count(desc) / cols;
    int64_t matrices = packed_matrices(config, desc);
    int bits = packing_bits(desc->packing);
    QuantizedParam *param;
    TRY(quantized_list_add(list, desc->name, bits, matrices, rows, cols, &param));
    memset(param->w, 0x5b, (size_t)(rows * (bits == 4 ? (cols + 1) / 2 : cols)));
    if (param->step) memset(param->step, 3, (size_t)rows);
    for (int64_t i = 0; i < rows; i++) param->scale[i] = 0.5f;
    TRY(mem_new((size_t)(matrices * cols), sizeof *param->factor, &param->factor));
    for (int64_t i = 0; i < matrices * cols; i++) param->factor[i] = 2;
    param->is_static = fixed;
    for (int64_t i = 0; i < matrices; i++) param->amax[i] = 4;
    return OK;
}

static Status save_seed(const char *dir, size_t index) {
    CLEANUP(quantized_list_done) QuantizedList list = {0};
    const Model *model = rig.model[index];
    for (int i = 0; i < model->count; i++)
        for (size_t j = 0; j < model->block[i].params.count; j++) {
            const ParamDesc *desc = &model->block[i].params.desc[j];
            if (desc->packing && !desc->tied) TRY(add_param(&list, &model->config, desc, kinds[index].fixed));
        }
    SaveOptions options = {.dtype = DT_F32, .quantized = &list};
    return hf_save(dir, rig.store[index], rig.stream, &options);
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    char dir[128], path[160];
    if (index >= KINDS) return 0;
    make_rig();
    snprintf(dir, sizeof dir, "%s/seed", fuzz_dir_path());
    snprintf(path, sizeof path, "%s/%s", dir, HF_INT8);
    fuzz_require(fuzz_succeeded(dir_remove(dir)) && fuzz_succeeded(save_seed(dir, index)));
    out[0] = (uint8_t)index;
    return 1 + read_header_file(path, out + 1, FUZZ_INPUT_LIMIT - 1);
}
