/* `weft convert` and `weft info` through the program, on models saved by transformers. */
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "infer/session.h"
#include "model/upcycle.h"
#include "program.h"

#define CASES WEFT_TEST_DIR "/golden/cases/"

/* Stores the path of a new directory in *state. */
static int setup(void **state) {
    char *dir = strdup("/tmp/weft-test-XXXXXX");
    *state = dir;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    assert_ok(dir_remove(*state));
    free(*state);
    return 0;
}

static const char *in(const char *dir, const char *name) {
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

#define run_json(...) parse_ok(program_run(__VA_ARGS__, "--json"))

static json_t *parse_ok(Ran ran) {
    if (ran.code) fail_msg("%s", ran.err);
    json_t *json = NULL;
    assert_ok(json_parse(ran.out, strlen(ran.out), "stdout", &json));
    ran_done(&ran);
    return json;
}

static void assert_same_file(const char *a, const char *b) {
    CLEANUP(file_map_done) FileMap x = {0}, y = {0};
    assert_ok(file_map_init(&x, a));
    assert_ok(file_map_init(&y, b));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
}

/* A decoder that attends in both directions is converted, but does not generate. */
static void both_directions(void **state) {
    static const char model[] = CASES "qwen2-both-ways";
    static const uint16_t tokens[256];
    char data[256], run[256];
    snprintf(data, sizeof data, "%s/data.u16", (char *)*state);
    snprintf(run, sizeof run, "%s/run", (char *)*state);
    FILE *file = fopen(data, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(tokens, sizeof tokens, 1, file), 1);
    fclose(file);
    json_t *json = run_json("convert", model, in(*state, "out")), *config = NULL;
    json_decref(json);
    assert_ok(json_read_file(in(*state, "out/config.json"), &config));
    assert_true(json_is_false(json_object_get(config, "is_causal")));
    json_decref(config);
    assert_refused(1, "attends in both directions ('is_causal' is false in config.json)", "generate", model,
                   "--prompt-ids", "1");
    assert_refused(1, "does not support attention in both directions", "convert", model,
                   in(*state, "x.gguf"));
    assert_refused(2, "--no-cross-document needs a causal model", "train", "--model", model, "--data", data,
                   "--format", "u16", "--seq", "8", "--out", run, "--no-cross-document");
    assert_refused(2, "--sample-every needs a model that generates text", "train", "--model", model, "--data",
                   data, "--format", "u16", "--seq", "8", "--out", run, "--sample-every", "1");
}

/* A name that ends like a file of another format is refused, with what to use instead. */
static void other_formats(void **state) {
    assert_refused(2, "--out m.onnx: expected a directory, not a .onnx file: weft writes no ONNX", "convert",
                   CASES "gpt2", "m.onnx");
    assert_refused(2, "not a .pt file: PyTorch loads checkpoint directories through transformers", "convert",
                   CASES "gpt2", "--out", "model.PT");
    assert_refused(2, "weft writes safetensors", "convert", CASES "gpt2", "pytorch_model.bin");
    assert_refused(2, "the directory will contain model.safetensors", "convert", CASES "gpt2",
                   "m.safetensors");
}

static void round_trip(void **state) {
    CLEANUP(json_decrefp)
    json_t *one = run_json("convert", "--model", CASES "bert-pretrain", "--out", in(*state, "shards"),
                           "--max-shard-size", "20kB");
    assert_ok(file_replace(in(*state, "shards/chat_template.jinja"), "{{ x }}", 7));
    assert_ok(file_replace(in(*state, "shards/tokenizer.model"), "x", 1));
    CLEANUP(json_decrefp)
    json_t *two = run_json("convert", "--model", in(*state, "shards"), "--out", in(*state, "a"));
    CLEANUP(json_decrefp)
    json_t *three = run_json("convert", "--model", CASES "bert-pretrain", "--out", in(*state, "b"));
    assert_true(path_exists(in(*state, "shards/model.safetensors.index.json")));
    assert_same_file(in(*state, "a/model.safetensors"), in(*state, "b/model.safetensors"));
    assert_same_file(in(*state, "a/config.json"), in(*state, "b/config.json"));
    assert_same_file(in(*state, "a/chat_template.jinja"), in(*state, "shards/chat_template.jinja"));
    assert_true(path_exists(in(*state, "a/tokenizer.model")));
    assert_string_equal(json_string_value(json_object_get(one, "dtype")), "fp32");
    assert_int_equal(json_array_size(json_object_get(one, "left_out")), 0);
    assert_true(json_equal(json_object_get(two, "params_total"), json_object_get(three, "params_total")));
}

static void types_and_heads(void **state) {
    CLEANUP(json_decrefp)
    json_t *narrow = run_json("convert", "--model", CASES "bert-pretrain", "--out", in(*state, "qa"),
                              "--head", "span", "--dtype", "bf16");
    assert_int_equal(json_array_size(json_object_get(narrow, "fresh")), 2);
    assert_int_equal(json_array_size(json_object_get(narrow, "left_out")), 9);
    CLEANUP(json_decrefp) json_t *info = run_json("info", in(*state, "qa"));
    assert_non_null(json_object_get(json_object_get(info, "elements_by_dtype"), "BF16"));
    assert_null(json_object_get(json_object_get(info, "elements_by_dtype"), "F32"));
    const json_t *heads = json_object_get(json_object_get(info, "model"), "output_heads");
    assert_int_equal(json_array_size(heads), 1);
    assert_string_equal(json_string_value(json_array_get(heads, 0)), "span");
    assert_int_equal(json_array_size(json_object_get(info, "missing")), 0);
    Ran ran = program_run("info", in(*state, "qa/model.safetensors"));
    assert_contains(ran.out, "BF16  [2,");
    assert_contains(ran.out, "qa_outputs.weight");
    ran_done(&ran);
}

static void refusals(void **state) {
    assert_refused(2, "--model", "convert", "--out", "x");
    assert_refused(2, "only the output heads of encoders", "convert", "--model", CASES "gpt2", "--out",
                   in(*state, "x"), "--head", "span");
    assert_refused(2, "unknown head 'sapn'", "convert", "--model", CASES "bert-mlm", "--out", in(*state, "x"),
                   "--head", "sapn");
    assert_refused(2, "--head none cannot be combined", "convert", CASES "bert-mlm", in(*state, "x"),
                   "--head", "none", "mlm");
    assert_refused(2, "which a GPT-2 cannot have", "convert", CASES "gpt2", in(*state, "x"), "--labels", "3");
    assert_refused(2, "add --head classify", "convert", CASES "bert-mlm", in(*state, "x"), "--labels", "3");
    assert_refused(2, "add --head classify", "convert", CASES "bert-mlm", in(*state, "x"), "--labels", "3",
                   "--head", "span");
    assert_refused(2, "--head or --labels", "convert", CASES "bert-mlm", in(*state, "x.gguf"), "--labels",
                   "3");
    assert_refused(1, "does not exist", "convert", "--model", in(*state, "none"), "--out", in(*state, "x"));
    assert_refused(1, "is not empty", "convert", "--model", CASES "gpt2", "--out", CASES "gpt2");
    assert_refused(1, "does not exist", "info", in(*state, "none"));
    assert_int_equal(setenv("WEFT_DATA", in(*state, "none"), 1), 0);
    assert_refused(2, "run 'weft fetch gpt2' first", "info", "@gpt2");
    assert_int_equal(unsetenv("WEFT_DATA"), 0);
    assert_ok(file_replace(in(*state, "short.safetensors"), "{}", 2));
    assert_refused(1, "too short", "info", in(*state, "short.safetensors"));
    assert_refused(2, "not a safetensors file", "info", WEFT_SOURCE_DIR "/README.md");
    assert_false(path_exists(in(*state, "x")));
}

/* 70000 fits fp32 and bf16 but overflows fp16; 65504 and an infinity in the original are fine in all
 * three. */
static void range_too_small(void **state) {
    CLEANUP(json_decrefp)
    json_t *made = run_json("convert", "--model", CASES "gpt2", "--out", in(*state, "big"));
    CLEANUP(mem_freep) char *bytes = NULL;
    size_t size;
    assert_ok(file_read(in(*state, "big/model.safetensors"), 1 << 24, &bytes, &size));
    uint64_t header;
    memcpy(&header, bytes, sizeof header);
    CLEANUP(json_decrefp) json_t *names = NULL;
    assert_ok(json_parse(bytes + 8, header, "header", &names));
    const json_t *entry = json_object_get(names, "transformer.ln_f.weight");
    size_t at = (size_t)json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
    char *values = bytes + 8 + header + at;
    float odd[] = {65504, 70000, 1, -1e6f, 1.0f / 0.0f};
    memcpy(values, odd, sizeof odd);
    assert_ok(file_replace(in(*state, "big/model.safetensors"), bytes, size));
    assert_refused(1,
                   "tensor 'transformer.ln_f.weight': 2 values (largest -1e+06) would overflow to "
                   "infinity in fp16; save as bf16 or fp32 instead",
                   "convert", "--model", in(*state, "big"), "--out", in(*state, "new/half"), "--dtype",
                   "fp16");
    assert_false(path_exists(in(*state, "new")));
    CLEANUP(json_decrefp)
    json_t *brain = run_json("convert", "--model", in(*state, "big"), "--out", in(*state, "new/brain"),
                             "--dtype", "bf16");
    odd[0] = odd[1] = odd[3] = 3.4e38f;
    memcpy(values, odd, sizeof odd);
    assert_ok(file_replace(in(*state, "big/model.safetensors"), bytes, size));
    assert_refused(1, "3 values (largest 3.4e+38) would overflow to infinity in bf16", "convert", "--model",
                   in(*state, "big"), "--out", in(*state, "x"), "--dtype", "bf16");
}

static void info_of_this_host(void **state) {
    CLEANUP(json_decrefp) json_t *info = run_json("info");
    assert_string_equal(json_string_value(json_object_get(info, "version")), WEFT_VERSION);
    assert_true(json_integer_value(json_object_get(info, "threads")) >= 1);
    assert_true(json_integer_value(json_object_get(info, "memory_bytes")) > 0);
    Ran ran = program_run("info");
    assert_contains(ran.out, "CPU ");
    ran_done(&ran);
}

/* What a killed command left behind is removed by the next one. */
static void leftovers_are_removed(void **state) {
    const char *dir = *state;
    assert_ok(dir_make(in(dir, "out.tmp.4194305/below")));
    json_decref(run_json("convert", CASES "gpt2", in(dir, "out")));
    assert_true(path_exists(in(dir, "out/config.json")));
    assert_false(path_exists(in(dir, "out.tmp.4194305")));
}

/* ---- mixtures ---- */

enum { SPAN = 12, VOCAB = 96 };

static void logits_of(const char *model, float logits[SPAN][VOCAB]) {
    CLEANUP(engine_freep) Engine *engine = NULL;
    CLEANUP(session_freep) Session *session = NULL;
    assert_ok(engine_new(&engine, model, &(EngineOptions){.threads = 1, .dtype = DT_F32}));
    assert_ok(session_new(&session, engine, 1, SPAN, SPAN));
    assert_int_equal(engine->model->config.vocab, VOCAB);
    for (int t = 0; t < SPAN; t++) {
        int32_t id = (int32_t)rng_below(rng_key(3, "tokens", 0), (uint64_t)t, VOCAB);
        assert_ok(session_feed(session, &(Feed){&id, 1}, 1));
        memcpy(logits[t], session_logits(session, 0), sizeof logits[t]);
    }
}

/* A mixture whose experts are copies of the dense MLP computes what the dense model does; its routers differ
 * with the seed. */
static void upcycled(void **state) {
    static const struct {
        const char *model, *type;
    } cases[] = {
        {"llama", "mixtral"}, {"mistral", "mixtral"}, {"qwen2", "qwen2_moe"}, {"qwen3", "qwen3_moe"}};
    static float dense[SPAN][VOCAB], mixture[SPAN][VOCAB];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char model[256], out[64], config[80];
        snprintf(model, sizeof model, CASES "%s", cases[i].model);
        snprintf(out, sizeof out, "%s-mixture", cases[i].model);
        snprintf(config, sizeof config, "%s/config.json", out);
        CLEANUP(json_decrefp)
        json_t *made = run_json("convert", model, in(*state, out), "--experts", "5", "--top-k", "3"),
               *json = NULL;
        assert_int_equal(json_integer_value(json_object_get(made, "experts")), 5);
        assert_ok(json_read_file(in(*state, config), &json));
        assert_string_equal(json_string_value(json_object_get(json, "model_type")), cases[i].type);
        assert_int_equal(json_integer_value(json_object_get(json, "num_experts_per_tok")), 3);
        logits_of(model, dense);
        logits_of(in(*state, out), mixture);
        for (int t = 0; t < SPAN; t++)
            for (int v = 0; v < VOCAB; v++) assert_float_equal(dense[t][v], mixture[t][v], 1e-5);
    }
    json_decref(run_json("convert", CASES "llama", in(*state, "other"), "--experts", "5", "--top-k", "3",
                         "--seed", "1"));
    CLEANUP(file_map_done) FileMap one = {0}, two = {0};
    assert_ok(file_map_init(&one, in(*state, "llama-mixture/model.safetensors")));
    assert_ok(file_map_init(&two, in(*state, "other/model.safetensors")));
    assert_int_equal(one.size, two.size);
    assert_memory_not_equal(one.data, two.data, one.size);
}

/* The shared expert of a Qwen2-MoE can learn: only its down matrix is zero. */
static void shared_expert(void **state) {
    (void)state;
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(stream_freep) Stream *stream = NULL;
    CLEANUP(model_freep) Model *model = NULL, *mixed = NULL;
    CLEANUP(store_freep) Store *dense = NULL, *mixture = NULL;
    const ParamDesc *desc;
    ModelConfig config;
    Tensor up, shared, experts, down;
    assert_ok(hf_config_read(CASES "qwen2", &config));
    assert_ok(device_new_cpu(&device, 1));
    assert_ok(stream_new(&stream, device));
    assert_ok(model_new(&model, &config));
    assert_ok(store_new(&dense, model, device, MEM_PARAMS));
    assert_ok(store_init_params(dense, stream, 1));
    assert_ok(config_upcycle(&config, 2, 0));
    assert_int_equal(config.top_k, 2);
    assert_ok(model_new(&mixed, &config));
    assert_ok(store_new(&mixture, mixed, device, MEM_PARAMS));
    assert_ok(store_upcycle(mixture, dense, 1));
    assert_true(store_find(dense, "layer.1.mlp.up.weight", &desc, &up));
    assert_true(store_find(mixture, "layer.1.moe.shared.up.weight", &desc, &shared));
    assert_true(store_find(mixture, "layer.1.moe.up.weight", &desc, &experts));
    assert_true(store_find(mixture, "layer.1.moe.shared.down.weight", &desc, &down));
    assert_int_equal(tensor_bytes(shared), tensor_bytes(up));
    assert_memory_equal(shared.data, up.data, tensor_bytes(up));
    assert_int_equal(tensor_bytes(experts), 2 * tensor_bytes(up));
    assert_memory_equal(tensor_f32(experts) + tensor_count(up), up.data, tensor_bytes(up));
    for (int64_t i = 0; i < tensor_count(down); i++) assert_true(tensor_f32(down)[i] == 0);
}

static void not_upcycled(void **state) {
    const char *out = in(*state, "x");
    assert_refused(2, "weft has no mixtures of experts of GPT-2", "convert", CASES "gpt2", out, "--experts",
                   "4");
    assert_refused(2, "weft has no mixtures of experts of BERT", "convert", CASES "bert-mlm", out,
                   "--experts", "4");
    assert_refused(2, "already is a mixture of 4 experts", "convert", CASES "mixtral", out, "--experts", "4");
    assert_refused(2, "--top-k 5: the model has 4 experts", "convert", CASES "llama", out, "--experts", "4",
                   "--top-k", "5");
    assert_refused(2, "Mixtral models, which do not support this model's biases", "convert",
                   CASES "llama-bias", out, "--experts", "4");
    assert_refused(2, "'weft convert' with --experts makes it a mixture", "train", "--model", CASES "llama",
                   "--experts", "4", "--data", CASES "llama/config.json");
    assert_false(path_exists(out));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_formats),
        cmocka_unit_test_setup_teardown(both_directions, setup, teardown),
        cmocka_unit_test_setup_teardown(round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(types_and_heads, setup, teardown),
        cmocka_unit_test_setup_teardown(refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(range_too_small, setup, teardown),
        cmocka_unit_test_setup_teardown(leftovers_are_removed, setup, teardown),
        cmocka_unit_test(info_of_this_host),
        cmocka_unit_test_setup_teardown(upcycled, setup, teardown),
        cmocka_unit_test(shared_expert),
        cmocka_unit_test_setup_teardown(not_upcycled, setup, teardown),
    };
    return cmocka_run_group_tests_name("cli.convert", tests, program_setup, NULL);
}
