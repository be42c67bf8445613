/* Weights in transformers format: round trips of every kind of model, names used by older files, and errors
 * for files that do not match the model. */
#include "fixture.h"

#include "checkpoint/hf_names.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const struct {
    const Family *family;
    unsigned heads;
    bool pooler, tied;
} kinds[] = {
    {&family_gpt2, OUTPUT_LM, false, true},
    {&family_gpt2, OUTPUT_LM, false, false},
    {&family_bert, OUTPUT_MLM | OUTPUT_NSP, true, true},
    {&family_bert, OUTPUT_MLM | OUTPUT_NSP, true, false},
    {&family_bert, OUTPUT_MLM, false, true},
    {&family_bert, OUTPUT_NSP, true, true},
    {&family_bert, OUTPUT_SPAN, false, true},
    {&family_bert, OUTPUT_CLASSIFY, true, true},
    {&family_bert, 0, true, true},
    {&family_bert, OUTPUT_MLM | OUTPUT_NSP | OUTPUT_SPAN | OUTPUT_CLASSIFY, true, true},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* A model and two stores with different contents. */
typedef struct Pair {
    Model *model;
    Store *saved, *loaded;
} Pair;

static Pair pair_of(const Fixture *fixture, int kind) {
    ModelConfig config =
        small_config(kinds[kind].family, kinds[kind].heads, kinds[kind].pooler, kinds[kind].tied);
    Pair pair = {0};
    assert_ok(model_new(&pair.model, &config));
    pair.saved = store_of(fixture, pair.model, 1);
    pair.loaded = store_of(fixture, pair.model, 100);
    return pair;
}

static void pair_done(Pair *pair) {
    store_free(pair->saved);
    store_free(pair->loaded);
    model_free(pair->model);
}

static void load_whole(const Fixture *fixture, const char *dir, Store *store) {
    CLEANUP(load_report_done) LoadReport report = {0};
    assert_ok(hf_weights_load(dir, store, fixture->stream, &report));
    if (report.missing_count) fail_msg("%s: %s is missing", dir, report.missing[0]);
    if (report.unexpected_count) fail_msg("%s: %s is unexpected", dir, report.unexpected[0]);
}

static void round_trips(void **state) {
    const Fixture *fixture = *state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int64_t shard = 0; shard <= 4000; shard += 2000) {
            CLEANUP(pair_done) Pair pair = pair_of(fixture, kind);
            char name[32];
            snprintf(name, sizeof name, "k%d-%d", kind, (int)shard);
            SaveOptions options = {.dtype = DT_F32, .max_file_bytes = shard};
            assert_ok(hf_save(path_of(fixture, name), pair.saved, fixture->stream, &options));
            ModelConfig config;
            assert_ok(hf_config_read(path_of(fixture, name), &config));
            assert_int_equal(config.outputs_mask, kinds[kind].heads);
            assert_false(store_same(pair.saved, pair.loaded));
            load_whole(fixture, path_of(fixture, name), pair.loaded);
            assert_true(store_same(pair.saved, pair.loaded));
        }
}

/* Every element of a part equals that of the complete store, and padding is zero. */
static void assert_part(const Store *part, const Store *whole) {
    for (int u = 0; u < part->model->units; u++)
        for (size_t j = 0; j < part->unit[u].count; j++) {
            const ParamSlot *slot = &part->unit[u].slot[j];
            const float *global = (float *)whole->flat[u].data + whole->unit[u].slot[j].offset;
            int64_t from, count;
            if (!slot_overlap(slot, part->first[u], part->count[u], &from, &count)) continue;
            const float *local = (float *)part->flat[u].data + (slot->offset - part->first[u]);
            for (int64_t at = from; at < from + count; at++) {
                ParamRun run = slot_run(slot, at, 1);
                float expected = run.global < 0 ? 0 : global[run.global];
                if (local[at] != expected)
                    fail_msg("%s, slice starting at %d: element %d is %g; expected %g", slot->desc.name,
                             (int)slot->start, (int)at, (double)local[at], (double)expected);
            }
        }
}

/* Each tensor-parallel rank and ZeRO shard reads its own part, whatever the file's type and orientation. */
static void each_rank_reads_its_part(void **state) {
    const Fixture *fixture = *state;
    for (int kind = 0; kind < 4; kind++)
        for (DType dtype = DT_F32; dtype <= DT_F64; dtype++) {
            CLEANUP(pair_done) Pair pair = pair_of(fixture, kind);
            char name[32];
            snprintf(name, sizeof name, "k%d-%s", kind, dtype_name(dtype));
            SaveOptions options = {.dtype = dtype};
            assert_ok(hf_save(path_of(fixture, name), pair.saved, fixture->stream, &options));
            load_whole(fixture, path_of(fixture, name), pair.loaded);
            for (int tp = 1; tp <= 4; tp *= 2)
                for (int shards = 1; shards <= 5; shards += 2)
                    for (int rank = 0; rank < tp * shards; rank++) {
                        CLEANUP(store_freep)
                        Store *part = part_of(fixture, pair.model, rank / shards, tp, rank % shards, shards);
                        load_whole(fixture, path_of(fixture, name), part);
                        assert_part(part, pair.loaded);
                    }
        }
}

static void narrow_types_round_once(void **state) {
    const Fixture *fixture = *state;
    for (int kind = 0; kind <= 2; kind += 2)
        for (DType dtype = DT_BF16; dtype <= DT_F64; dtype++) {
            CLEANUP(pair_done) Pair pair = pair_of(fixture, kind);
            char name[32];
            snprintf(name, sizeof name, "k%d-%s", kind, dtype_name(dtype));
            SaveOptions options = {.dtype = dtype};
            assert_ok(hf_save(path_of(fixture, name), pair.saved, fixture->stream, &options));
            load_whole(fixture, path_of(fixture, name), pair.loaded);
            for (int i = 0; i < pair.model->count; i++)
                for (size_t j = 0; j < pair.model->block[i].params.count; j++) {
                    Tensor from = pair.saved->view[i][j], to = pair.loaded->view[i][j];
                    for (int64_t k = 0; k < tensor_count(from); k++) {
                        double narrow = 0;
                        float back;
                        assert_ok(dtype_convert(&narrow, dtype, tensor_f32(from) + k, DT_F32, 1));
                        assert_ok(dtype_convert(&back, DT_F32, &narrow, dtype, 1));
                        assert_true(back == tensor_f32(to)[k]);
                    }
                }
        }
}

/* ---- files with other names ---- */

typedef const char *(*Rename)(const char *name); /* returns NULL to leave the tensor out */

/* Copies a saved model, renaming its tensors. */
static void copy_renamed(const char *from, const char *to, Rename rename_tensor) {
    char source[256], target[256];
    snprintf(source, sizeof source, "%s/model.safetensors", from);
    snprintf(target, sizeof target, "%s/model.safetensors", to);
    CLEANUP(safe_freep) SafeFile *file = NULL;
    CLEANUP(safe_writer_freep) SafeWriter *writer = NULL;
    assert_ok(safe_open(&file, source));
    assert_ok(dir_make(to));
    assert_ok(safe_writer_new(&writer, target));
    for (size_t i = 0; i < safe_count(file); i++) {
        const SafeTensor *tensor = safe_at(file, i);
        const char *name = rename_tensor(tensor->name);
        if (name) assert_ok(safe_writer_declare(writer, name, tensor->dtype, tensor->ndim, tensor->dim));
    }
    assert_ok(safe_writer_create(writer));
    int64_t at = 0;
    for (size_t i = 0; i < safe_count(file); i++) {
        const SafeTensor *tensor = safe_at(file, i);
        if (!rename_tensor(tensor->name)) continue;
        assert_ok(safe_writer_write(writer, at, tensor->data, tensor->bytes));
        at += (int64_t)tensor->bytes;
    }
    assert_ok(safe_writer_close(writer));
}

static const char *without_prefix(const char *name) {
    if (!strncmp(name, "transformer.", 12)) return name + 12;
    if (!strncmp(name, "bert.", 5)) return name + 5;
    return name;
}

static const char *old_norms(const char *name) {
    static char old[256];
    const char *norm = strstr(name, "LayerNorm.");
    if (!norm) return name;
    snprintf(old, sizeof old, "%.*sLayerNorm.%s", (int)(norm - name), name,
             strstr(norm, "weight") ? "gamma" : "beta");
    return old;
}

static const char *as_output(const char *name) {
    return strstr(name, "wte.weight") ? "lm_head.weight" : name;
}

static const char *as_decoder_bias(const char *name) {
    return strcmp(name, "cls.predictions.bias") ? name : "cls.predictions.decoder.bias";
}

static void other_names_are_understood(void **state) {
    const Fixture *fixture = *state;
    static const struct {
        int kind;
        Rename rename;
    } cases[] = {{0, without_prefix}, {1, without_prefix}, {2, without_prefix},
                 {2, old_norms},      {0, as_output},      {2, as_decoder_bias}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLEANUP(pair_done) Pair pair = pair_of(fixture, cases[i].kind);
        char from[32], to[32];
        snprintf(from, sizeof from, "from-%zu", i);
        snprintf(to, sizeof to, "to-%zu", i);
        SaveOptions options = {.dtype = DT_F32};
        assert_ok(hf_save(path_of(fixture, from), pair.saved, fixture->stream, &options));
        copy_renamed(path_of(fixture, from), path_of(fixture, to), cases[i].rename);
        load_whole(fixture, path_of(fixture, to), pair.loaded);
        assert_true(store_same(pair.saved, pair.loaded));
    }
}

static const char *shuffled_names(const char *name) {
    if (!strcmp(name, "transformer.ln_f.bias")) return NULL;
    if (!strcmp(name, "transformer.h.0.ln_1.bias")) return "transformer.h.0.attn.masked_bias";
    if (!strcmp(name, "transformer.h.1.ln_1.bias")) return "h.1.attn.bias";
    if (!strcmp(name, "transformer.wpe.weight")) return "transformer.wpe.wait";
    return name;
}

static void missing_and_unknown_are_named(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(pair_done) Pair pair = pair_of(fixture, 0);
    SaveOptions options = {.dtype = DT_F32};
    assert_ok(hf_save(path_of(fixture, "m"), pair.saved, fixture->stream, &options));
    copy_renamed(path_of(fixture, "m"), path_of(fixture, "n"), shuffled_names);
    CLEANUP(load_report_done) LoadReport report = {0};
    assert_ok(hf_weights_load(path_of(fixture, "n"), pair.loaded, fixture->stream, &report));
    assert_int_equal(report.missing_count, 4);
    assert_string_equal(report.missing[0], "embed.position");
    assert_string_equal(report.missing[3], "head.norm.bias");
    assert_int_equal(report.unexpected_count, 1);
    assert_string_equal(report.unexpected[0], "transformer.wpe.wait");
    assert_fails(load_report_check(&report, "n", &pair.model->config, true), 1,
                 "n: no tensors for 4 of the model's parameters; the first is embed.position");
    /* Missing tensors keep their values. */
    const ParamDesc *desc;
    Tensor before, after;
    CLEANUP(store_freep) Store *fresh = store_of(fixture, pair.model, 100);
    assert_true(store_find(fresh, "head.norm.bias", &desc, &before));
    assert_true(store_find(pair.loaded, "head.norm.bias", &desc, &after));
    assert_memory_equal(before.data, after.data, tensor_bytes(before));
}

static void a_new_head_may_be_fresh(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(pair_done) Pair pretrained = pair_of(fixture, 2), span = pair_of(fixture, 6);
    SaveOptions options = {.dtype = DT_F32};
    assert_ok(hf_save(path_of(fixture, "m"), pretrained.saved, fixture->stream, &options));
    CLEANUP(load_report_done) LoadReport report = {0};
    assert_ok(hf_weights_check(path_of(fixture, "m"), span.model, &report));
    assert_int_equal(report.missing_count, 2);
    assert_int_equal(report.unexpected_count, 9);
    assert_ok(load_report_check(&report, "m", &span.model->config, true));
    assert_fails(load_report_check(&report, "m", &span.model->config, false), 1, "head.span.weight");
}

static const char *without_output(const char *name) {
    return strcmp(name, "lm_head.weight") ? name : NULL;
}

/* The output matrix of a base model is new; one that a complete class lacks is an error. */
static void a_base_model_has_no_output(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(pair_done) Pair pair = pair_of(fixture, 1);
    SaveOptions options = {.dtype = DT_F32};
    assert_ok(hf_save(path_of(fixture, "m"), pair.saved, fixture->stream, &options));
    copy_renamed(path_of(fixture, "m"), path_of(fixture, "b"), without_output);
    CLEANUP(load_report_done) LoadReport report = {0};
    assert_ok(hf_weights_check(path_of(fixture, "b"), pair.model, &report));
    assert_int_equal(report.missing_count, 1);
    ModelConfig config = pair.model->config;
    assert_fails(load_report_check(&report, "b", &config, true), 1, "b: no tensor for the model's parameter");
    config.bare = true;
    assert_ok(load_report_check(&report, "b", &config, true));
    assert_fails(load_report_check(&report, "b", &config, false), 1,
                 "b is a base model without an output matrix; 'weft train' starts from it");
}

/* ---- files that do not match the model ---- */

static const char *other_output(const char *name) {
    return !strcmp(name, "transformer.wte.weight") ? "lm_head.weight"
           : !strcmp(name, "lm_head.weight")       ? "transformer.wte.weight"
                                                   : name;
}

static void mismatched_files(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(pair_done) Pair tied = pair_of(fixture, 0), untied = pair_of(fixture, 1);
    SaveOptions options = {.dtype = DT_F32};
    assert_ok(hf_save(path_of(fixture, "m"), untied.saved, fixture->stream, &options));
    assert_fails(hf_weights_load(path_of(fixture, "m"), tied.loaded, fixture->stream, NULL), 1,
                 "'tie_word_embeddings' in config.json");
    copy_renamed(path_of(fixture, "m"), path_of(fixture, "swapped"), other_output);
    load_whole(fixture, path_of(fixture, "swapped"), untied.loaded);
    assert_false(store_same(untied.saved, untied.loaded));

    ModelConfig config = untied.model->config;
    config.vocab = 38;
    CLEANUP(model_freep) Model *wide = NULL;
    assert_ok(model_new(&wide, &config));
    assert_fails(hf_weights_check(path_of(fixture, "m"), wide, NULL), 1,
                 "vocabulary size mismatch: vocab_size is 38, but 'transformer.wte.weight' has 37 rows");
    config.vocab = 37;
    config.inner = 24;
    CLEANUP(model_freep) Model *deep = NULL;
    assert_ok(model_new(&deep, &config));
    assert_fails(hf_weights_check(path_of(fixture, "m"), deep, NULL), 1,
                 "'transformer.h.0.mlp.c_fc.weight' has shape (12, 20), but the model expects (12, 24)");
}

static void wrong_types_and_no_weights(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(pair_done) Pair pair = pair_of(fixture, 0);
    assert_fails(hf_weights_load(fixture->dir, pair.loaded, fixture->stream, NULL), 1, "contains no weights");
    put_file(path_of(fixture, "pytorch_model.bin"), "x");
    assert_fails(hf_weights_load(fixture->dir, pair.loaded, fixture->stream, NULL), 1, "save_pretrained()");
    CLEANUP(safe_writer_freep) SafeWriter *writer = NULL;
    assert_ok(safe_writer_new(&writer, path_of(fixture, "model.safetensors")));
    assert_ok(safe_writer_declare(writer, "wte.weight", DT_I32, 2, (int64_t[]){37, 12}));
    assert_ok(safe_writer_create(writer));
    assert_ok(safe_writer_close(writer));
    assert_fails(hf_weights_load(fixture->dir, pair.loaded, fixture->stream, NULL), 1,
                 "'wte.weight' has dtype I32; expected F32, F16, BF16 or F64");
}

/* Replaces `from` with `to` in the index of a sharded model. */
static void change_index(const Fixture *fixture, const char *from, const char *to) {
    const char *path = path_of(fixture, "m/model.safetensors.index.json");
    CLEANUP(mem_freep) char *text = NULL, *changed = NULL;
    assert_ok(file_read(path_of(fixture, "index"), 1 << 20, &text, NULL));
    char *at = strstr(text, from);
    assert_non_null(at);
    assert_ok(str_format(&changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)));
    put_file(path, changed);
}

static void wrong_index(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(pair_done) Pair pair = pair_of(fixture, 0);
    SaveOptions options = {.dtype = DT_F32, .max_file_bytes = 4000};
    char kept[80];
    snprintf(kept, sizeof kept, "%s/m", fixture->dir);
    assert_ok(hf_save(kept, pair.saved, fixture->stream, &options));
    CLEANUP(mem_freep) char *text = NULL;
    assert_ok(file_read(path_of(fixture, "m/model.safetensors.index.json"), 1 << 20, &text, NULL));
    put_file(path_of(fixture, "index"), text);
    char shard[40], other[40], whole[48], lie[64];
    assert_int_equal(sscanf(strstr(text, "model-00001-of-"), "%39[^\"]", shard), 1);
    snprintf(other, sizeof other, "model-00002%s", shard + strlen("model-00001"));
    snprintf(whole, sizeof whole, "\"%s", shard);

    change_index(fixture, "\"transformer.wte.weight\"", "\"transformer.wte.height\"");
    assert_fails(hf_weights_load(kept, pair.loaded, fixture->stream, NULL), 1,
                 "lists tensor 'transformer.wte.height' in model-00001");
    snprintf(lie, sizeof lie, "\"../%s", shard);
    change_index(fixture, whole, lie);
    assert_fails(hf_weights_load(kept, pair.loaded, fixture->stream, NULL), 1,
                 "expected a .safetensors file in the same directory");
    snprintf(lie, sizeof lie, "\"%s", other);
    change_index(fixture, whole, lie);
    assert_fails(hf_weights_load(kept, pair.loaded, fixture->stream, NULL), 1, "which does not contain it");
    change_index(fixture, "weight_map", "weight_mop");
    assert_fails(hf_weights_load(kept, pair.loaded, fixture->stream, NULL), 1, "expected a 'weight_map'");
    change_index(fixture, "\"transformer.wpe.weight\": ", "\"transformer.wpe.weight\": 3, \"x\": ");
    assert_fails(hf_weights_load(kept, pair.loaded, fixture->stream, NULL), 1, "no file name for");

    change_index(fixture, "weight_map", "weight_map");
    load_whole(fixture, kept, pair.loaded);
    char path[128];
    snprintf(path, sizeof path, "%s/%s", kept, shard);
    unlink(path);
    assert_fails(hf_weights_load(kept, pair.loaded, fixture->stream, NULL), 1,
                 "lists a file that cannot be used");
}

/* ---- the directory ---- */

static int entries_in(const char *path) {
    DIR *dir = opendir(path);
    int count = 0;
    while (readdir(dir)) count++;
    closedir(dir);
    return count - 2;
}

static void nothing_is_overwritten(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(pair_done) Pair pair = pair_of(fixture, 0);
    SaveOptions options = {.dtype = DT_F32};
    assert_ok(dir_make(path_of(fixture, "empty")));
    assert_ok(hf_save(path_of(fixture, "empty/"), pair.saved, fixture->stream, &options));
    assert_int_equal(entries_in(path_of(fixture, "empty")), 2);
    assert_fails(hf_save(path_of(fixture, "empty"), pair.saved, fixture->stream, &options), 1,
                 "is not empty");
    put_file(path_of(fixture, "file"), "x");
    assert_fails(hf_save(path_of(fixture, "file"), pair.saved, fixture->stream, &options), 1,
                 "is a file; expected a new or empty directory");
    assert_fails(hf_save(path_of(fixture, "file/below"), pair.saved, fixture->stream, &options), 1, "file");
    assert_int_equal(entries_in(fixture->dir), 2);
}

static void full_disk(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(pair_done) Pair pair = pair_of(fixture, 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){2100, 2100});
        SaveOptions options = {.dtype = DT_F32, .max_file_bytes = 2000};
        Status status = hf_save(path_of(fixture, "m"), pair.saved, fixture->stream, &options);
        if (!status) _exit(0);
        _exit(strstr(status_message(status), strerror(EFBIG)) ? 10 : 20);
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 10);
    assert_int_equal(entries_in(fixture->dir), 0);
}

static void assets_are_copied(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(pair_done) Pair pair = pair_of(fixture, 7);
    assert_ok(dir_make(path_of(fixture, "source")));
    put_file(path_of(fixture, "source/vocab.txt"), "[PAD]\n");
    put_file(path_of(fixture, "source/notes.txt"), "not an asset");
    put_file(path_of(fixture, "source/config.json"),
             "{\"model_type\":\"bert\",\"vocab_size\":9999,\"torch_dtype\":\"float16\",\"num_labels\":7,"
             "\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\",\"3\":\"d\",\"4\":\"e\"},"
             "\"label2id\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4},\"finetuning_task\":\"mood\"}");
    SaveOptions options = {.dtype = DT_F32, .assets_dir = path_of(fixture, "source")};
    assert_ok(hf_save(path_of(fixture, "m"), pair.saved, fixture->stream, &options));
    assert_true(path_exists(path_of(fixture, "m/vocab.txt")));
    assert_false(path_exists(path_of(fixture, "m/notes.txt")));
    CLEANUP(json_decrefp) json_t *json = NULL;
    assert_ok(json_read_file(path_of(fixture, "m/config.json"), &json));
    assert_int_equal(json_integer_value(json_object_get(json, "vocab_size")), 37);
    assert_string_equal(json_string_value(json_object_get(json, "finetuning_task")), "mood");
    assert_string_equal(json_string_value(json_object_get(json, "dtype")), "float32");
    assert_null(json_object_get(json, "num_labels"));
    assert_string_equal(json_string_value(json_object_get(json_object_get(json, "id2label"), "3")), "d");
}

/* ---- files written by transformers ---- */

static void golden_models_load(void **state) {
    const Fixture *fixture = *state;
    static const char *const names[] = {"gpt2",     "gpt2-untied-padded", "bert-bare",     "bert-classify",
                                        "bert-mlm", "bert-nsp",           "bert-pretrain", "bert-span",
                                        "mixtral",  "qwen2-moe",          "qwen3-moe",     "olmoe"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char dir[512];
        snprintf(dir, sizeof dir, "%s/golden/cases/%s", WEFT_TEST_DIR, names[i]);
        ModelConfig config;
        CLEANUP(model_freep) Model *model = NULL;
        assert_ok(hf_config_read(dir, &config));
        assert_ok(model_new(&model, &config));
        CLEANUP(store_freep) Store *store = store_of(fixture, model, 1);
        load_whole(fixture, dir, store);
    }
}

static void the_reference_model_loads(void **state) {
    const Fixture *fixture = *state;
    const char *dir = WEFT_SOURCE_DIR "/../shared/data/reference/tiny-gpt2";
    if (!path_exists(dir)) skip();
    ModelConfig config = small_config(&family_gpt2, OUTPUT_LM, false, true);
    config.layers = 5;
    config.hidden = 32;
    config.heads = 4;
    config.inner = 128;
    config.vocab = 1000;
    config.positions = 512;
    CLEANUP(model_freep) Model *model = NULL;
    assert_ok(model_new(&model, &config));
    CLEANUP(store_freep) Store *store = store_of(fixture, model, 1);
    load_whole(fixture, dir, store);
}

/* Any number of numbers in a name, and of tensors in a parameter. */
static void names_have_any_numbers_and_parts(void **state) {
    static const HfRule rules[] = {
        {"layer.*.experts.up", "layers.*.moe.experts.*.w1", PART_EACH, true, false},
        {"layer.*.group.*.norm", "layers.*.groups.*.norm", PART_WHOLE, true, false},
        {"layer.*.experts.pairs", "layers.*.experts.*.gate", PART_EVEN, true, false},
        {"layer.*.experts.pairs", "layers.*.experts.*.up", PART_ODD, true, false},
        {0},
    };
    const Family family = {.names = rules};
    ParamDesc experts = {.name = "layer.12.experts.up.weight", .ndim = 3, .dim = {5, 7, 3}, .split = -1};
    ParamDesc pairs = {.name = "layer.9.experts.pairs.weight", .ndim = 3, .dim = {6, 5, 2}, .split = -1};
    ParamDesc norm = {.name = "layer.3.group.41.norm.bias", .ndim = 1, .dim = {6}, .split = -1};
    ParamDesc other = {.name = "layer.3.group.norm.bias", .ndim = 1, .dim = {6}, .split = -1};
    ParamDesc long_name = {.name = "layer.3.experts.up.weight", .ndim = 1, .dim = {6}, .split = -1};
    CLEANUP(hf_tensors_done) HfTensorList list = {0}, both = {0}, single = {0}, none = {0};
    assert_ok(hf_tensors(&family, &experts, &list));
    assert_int_equal(list.count, 5);
    assert_string_equal(list.tensor[4].name, "layers.12.moe.experts.4.w1.weight");
    assert_int_equal(list.tensor[4].part, 4);
    assert_int_equal(list.tensor[4].ndim, 2);
    assert_int_equal(hf_tensor_count(&list.tensor[4]), 7 * 3);
    assert_ok(hf_tensors(&family, &pairs, &both));
    assert_int_equal(both.count, 6);
    for (int i = 0; i < 6; i++) { /* gates first */
        char name[HF_NAME];
        snprintf(name, sizeof name, "layers.9.experts.%d.%s.weight", i % 3, i < 3 ? "gate" : "up");
        assert_string_equal(both.tensor[i].name, name);
        assert_int_equal(both.tensor[i].part, 2 * (i % 3) + i / 3);
        assert_int_equal(both.tensor[i].ndim, 2);
        assert_int_equal(hf_tensor_count(&both.tensor[i]), 5 * 2);
    }
    assert_ok(hf_tensors(&family, &norm, &single));
    assert_int_equal(single.count, 1);
    assert_string_equal(single.tensor[0].name, "layers.3.groups.41.norm.bias");
    assert_fails(hf_tensors(&family, &other, &none), 1, "no checkpoint name");
    char text[2 * HF_NAME];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    const HfRule long_rules[] = {{"layer.*.experts.up", text, PART_WHOLE, true, false}, {0}};
    assert_fails(hf_tensors(&(Family){.names = long_rules}, &long_name, &none), 1, "too long");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(round_trips),
        TEST(each_rank_reads_its_part),
        TEST(narrow_types_round_once),
        TEST(other_names_are_understood),
        TEST(missing_and_unknown_are_named),
        TEST(a_new_head_may_be_fresh),
        TEST(a_base_model_has_no_output),
        TEST(mismatched_files),
        TEST(wrong_types_and_no_weights),
        TEST(wrong_index),
        TEST(nothing_is_overwritten),
        TEST(full_disk),
        TEST(assets_are_copied),
        TEST(names_have_any_numbers_and_parts),
        TEST(golden_models_load),
        TEST(the_reference_model_loads),
    };
    return cmocka_run_group_tests_name("checkpoint.hf_weights", tests, NULL, NULL);
}
