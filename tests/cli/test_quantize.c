/* `weft quantize` through the program, on a small model that is trained first: loss and generated text are
 * preserved, even with outlier channels in the layers' inputs, and invalid requests are refused. */
#include <math.h>

#include "base/load.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "corpus.h"
#include "infer/session.h"

#define CASES WEFT_TEST_DIR "/golden/cases/"

static json_t *parse_ok(Ran ran) {
    if (ran.code) fail_msg("%s", ran.err);
    json_t *json = NULL;
    assert_ok(json_parse(ran.out, strlen(ran.out), "stdout", &json));
    ran_done(&ran);
    return json;
}

#define run_json(...) parse_ok(program_run(__VA_ARGS__, "--json"))

static int setup(void **state) {
    if (corpus_setup(state)) return -1;
    put_sentences("train.txt", 1500, 1, false);
    put_sentences("other.txt", 150, 2, false);
    put_sentences("few.txt", 12, 3, false);
    Ran ran = program_run("train", "--model", "gpt2", "--layers", "2", "--hidden", "64", "--heads", "4",
                          "--seq", "64", "--batch", "8", "--steps", "150", "--lr", "3e-3", "--threads", "2",
                          "--data", at("train.txt"), "--out", at("run"));
    int code = ran.code;
    if (code) print_error("%s\n", ran.err);
    ran_done(&ran);
    return code;
}

static double loss_on(const char *data, const char *model, const char *kernels) {
    CLEANUP(json_decrefp)
    json_t *json = run_json("eval", "--model", at(model), "--data", at(data), "--batch", "8", "--kernels",
                            kernels, "--threads", "2");
    return json_real_value(json_object_get(json, "loss"));
}

static double loss_of(const char *model) {
    return loss_on("other.txt", model, "cpu");
}

/* Little data, because the reference backend is slow. */
static void matches_reference(const char *model) {
    assert_float_equal(loss_on("few.txt", model, "ref"), loss_on("few.txt", model, "cpu"), 1e-4);
}

static void quantize(const char *model, const char *out, const char *how) {
    assert_runs(program_run("quantize", "--model", at(model), "--out", at(out), how));
}

static void test_loss(void **state) {
    quantize("run", "layers", "--balance");
    quantize("run", "all", "--int8-embedding");
    double before = loss_of("run");
    assert_true(before < 2);
    assert_float_equal(loss_of("layers"), before, 0.005);
    double all = loss_of("all");
    assert_float_equal(all, before, 0.005);
    matches_reference("all");
    assert_true(all != before);
}

/* int4 weights, with the embedding in fp32, int8 and int4, and with the oldest instruction set. */
static void test_int4(void **state) {
#if defined(__x86_64__)
    const char *oldest = "sse2";
#else
    const char *oldest = "neon";
#endif
    quantize("run", "four", "--bits=4");
    assert_runs(program_run("quantize", "--model", at("run"), "--out", at("four-all"), "--bits", "4",
                            "--int4-embedding"));
    double before = loss_of("run"), four = loss_of("four");
    assert_float_equal(four, before, 0.03);
    assert_true(four != before);
    matches_reference("four");
    assert_float_equal(loss_of("four-all"), before, 0.08);
    assert_refused(1, "already quantized to int4", "quantize", "--model", at("four"), "--out", at("none"));
    setenv("WEFT_CPU_INT8", "fast", 1);
    assert_refused(1, "WEFT_CPU_INT8 is 'fast'", "generate", "--model", at("four"), "--prompt", "a");
    unsetenv("WEFT_CPU_INT8");
    setenv("WEFT_CPU", "abacus", 1);
    assert_refused(1, "WEFT_CPU is 'abacus'", "generate", "--model", at("four"), "--prompt", "a");
    setenv("WEFT_CPU", oldest, 1);
    matches_reference("four");
    unsetenv("WEFT_CPU");
}

static char *greedy(const char *model, const char *prompt) {
    Ran ran = program_run("generate", "--model", at(model), "--prompt", prompt, "--max-tokens", "2",
                          "--temperature", "0", "--threads", "1");
    if (ran.code) fail_msg("%s", ran.err);
    free(ran.err);
    return ran.out;
}

/* The rest of a word; which word follows is random. */
static void test_text(void **state) {
    static const char *const text[][2] = {
        {"the qui", "the quick"}, {"the bro", "the brown"}, {"a la", "a lazy"}};
    quantize("run", "writes", "--int8-embedding");
    for (int i = 0; i < 3; i++) {
        CLEANUP(mem_freep) char *before = greedy("run", text[i][0]), *after = greedy("writes", text[i][0]);
        assert_int_equal(strncmp(before, text[i][1], strlen(text[i][1])), 0);
        assert_string_equal(before, after);
    }
}

enum { BATCH = 70, PROMPT = 40, ROUNDS = 3 };

/* Prompts of 1 to PROMPT tokens, then single tokens. */
static void feed_round(Session *session, int32_t ids[][PROMPT + ROUNDS], const int *who, int count,
                       int round) {
    Feed feed[BATCH];
    for (int i = 0; i < count; i++) {
        int length = 1 + who[i] * 7 % PROMPT;
        feed[i] = round ? (Feed){ids[who[i]] + length + round - 1, 1} : (Feed){ids[who[i]], length};
    }
    assert_ok(session_feed(session, feed, count));
}

/* A sequence has bitwise the same logits alone and in a large batch. */
static void alone_equals_batched(const char *model, DType dtype, const char *cache) {
    CLEANUP(engine_freep) Engine *engine = NULL;
    CLEANUP(session_freep) Session *many = NULL, *one = NULL;
    EngineOptions options = {.threads = 2, .dtype = dtype, .cache = cache};
    assert_ok(engine_new(&engine, at(model), &options));
    static int32_t ids[BATCH][PROMPT + ROUNDS];
    int64_t V = engine->model->config.vocab;
    int who[BATCH];
    for (int b = 0; b < BATCH; b++) {
        who[b] = b;
        for (int t = 0; t < PROMPT + ROUNDS; t++)
            ids[b][t] = (int32_t)rng_below(rng_key(7, "crowd", 0), (uint64_t)(b * 100 + t), (uint64_t)V);
    }
    assert_ok(session_new(&many, engine, BATCH, PROMPT + ROUNDS, 32));
    assert_ok(session_new(&one, engine, 1, PROMPT + ROUNDS, 32));
    static const int some[] = {0, 5, 66};
    for (int i = 0; i < 3; i++) {
        session_reset(many);
        session_reset(one);
        for (int round = 0; round < ROUNDS; round++) {
            feed_round(many, ids, who, BATCH, round);
            feed_round(one, ids, &some[i], 1, round);
            assert_memory_equal(session_logits(many, some[i]), session_logits(one, 0),
                                (size_t)V * sizeof(float));
        }
    }
}

static void test_batches(void **state) {
    quantize("run", "crowd8", "--int8-embedding");
    quantize("run", "crowd4", "--bits=4");
    alone_equals_batched("run", DT_F32, NULL);
    alone_equals_batched("run", DT_F32, "bf16");
    alone_equals_batched("run", DT_BF16, NULL);
    alone_equals_batched("crowd8", DT_F32, "int8");
    alone_equals_batched("crowd4", DT_F32, "int8");
}

/* The logits after each of the tokens, (SPAN,V). */
enum { SPAN = 12 };
static void logits_of(const char *model, float *ret_logits) {
    CLEANUP(engine_freep) Engine *engine = NULL;
    CLEANUP(session_freep) Session *session = NULL;
    assert_ok(engine_new(&engine, model, &(EngineOptions){.threads = 1, .dtype = DT_F32}));
    assert_ok(session_new(&session, engine, 1, SPAN, SPAN));
    size_t V = (size_t)engine->model->config.vocab;
    for (int t = 0; t < SPAN; t++) {
        int32_t id = (int32_t)rng_below(rng_key(3, "tokens", 0), (uint64_t)t, V);
        assert_ok(session_feed(session, &(Feed){&id, 1}, 1));
        memcpy(ret_logits + (size_t)t * V, session_logits(session, 0), V * sizeof *ret_logits);
    }
}

/* Models whose heads share keys and values: their matrices of q, k and v, with and without biases, gated
 * MLPs, and mixtures, some of whose tokens choose other experts. */
static void test_grouped(void **state) {
    static const char *const models[] = {"llama-3", "qwen2", "qwen3", "mixtral", "qwen2-moe", "qwen3-moe"};
    enum { V = 96, MIXTURES = 6 }; /* from this file on */
    static float exact[SPAN * V], found[SPAN * V];
    for (int i = 0; i < 12; i++) {
        char model[512], out[32];
        bool four = i % 2;
        snprintf(model, sizeof model, CASES "%s", models[i / 2]);
        snprintf(out, sizeof out, "%s-%d", models[i / 2], four ? 4 : 8);
        assert_runs(program_run("quantize", "--model", model, "--out", at(out), "--bits", four ? "4" : "8"));
        logits_of(model, exact);
        logits_of(at(out), found);
        double apart = 0, size = 0;
        for (int k = 0; k < SPAN * V; k++) {
            apart += pow((double)found[k] - exact[k], 2);
            size += pow(exact[k], 2);
        }
        double error = sqrt(apart / size), limit = four ? 0.4 : i < MIXTURES ? 0.05 : 0.1;
        if (!(error < limit) || error == 0) fail_msg("%s: relative error %g", out, error);
    }
}

/* KV caches in narrower types barely change the output; unsupported types are refused. */
static void test_caches(void **state) {
    static const char *const types[] = {"fp32", "bf16", "int8"};
    char *text[3];
    for (int i = 0; i < 3; i++) {
        Ran ran = program_run("generate", "--model", at("run"), "--prompt", "the quick brown", "--max-tokens",
                              "40", "--greedy", "--threads", "1", "--kv", types[i]);
        if (ran.code) fail_msg("%s", ran.err);
        free(ran.err);
        text[i] = ran.out;
        assert_int_equal(strncmp(text[i], text[0], 40), 0);
    }
    for (int i = 0; i < 3; i++) free(text[i]);
    const char *model = at("run");
    assert_refused(2, "int4", "generate", "--model", model, "--prompt", "a", "--kv", "int4");
    assert_refused(2, "use bf16 or int8", "generate", "--model", model, "--prompt", "a", "--kv", "fp32",
                   "--precision", "bf16");
}

/* Multiplies some columns of a parameter, if the model has it. Returns whether it does. */
static bool scale_columns(Store *params, int layer, const char *part, float factor) {
    enum { C = 64 };
    char name[PARAM_NAME];
    const ParamDesc *desc;
    Tensor view;
    snprintf(name, sizeof name, "layer.%d.%s", layer, part);
    if (!store_find(params, name, &desc, &view)) return false;
    for (int64_t row = 0; row < tensor_count(view) / C; row++)
        for (int64_t column = 5; column < C; column += 29) tensor_f32(view)[row * C + column] *= factor;
    return true;
}

/* Multiplies some channels of the norms by 200 and divides the matching columns of the following matrices by
 * 200, which leaves the model's function unchanged. */
static void scale_layer(Store *params, int layer) {
    static const char *const norms[] = {"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"};
    static const char *const matrices[] = {"attn.qkv.weight", "attn.q.weight", "attn.kv.weight",
                                           "mlp.up.weight",   "moe.up.weight", "moe.router.weight"};
    int found = 0;
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        found += scale_columns(params, layer, norms[i], 200);
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        found += scale_columns(params, layer, matrices[i], 1.0f / 200);
    assert_true(found == 6);
}

static void make_outliers(const char *from, const char *to) {
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(stream_freep) Stream *stream = NULL;
    CLEANUP(model_freep) Model *model = NULL;
    CLEANUP(store_freep) Store *params = NULL;
    CLEANUP(model_dir_done) ModelDir source = {0};
    ModelConfig config;
    assert_ok(model_dir_open(&source, at(from)));
    const char *dir = source.path;
    assert_ok(hf_config_read(dir, &config));
    assert_ok(device_new_cpu(&device, 1));
    assert_ok(stream_new(&stream, device));
    assert_ok(model_new(&model, &config));
    assert_ok(store_new(&params, model, device, MEM_PARAMS));
    assert_ok(hf_weights_load(dir, params, stream, NULL));
    for (int layer = 0; layer < 2; layer++) scale_layer(params, layer);
    assert_ok(hf_save(at(to), params, stream, &(SaveOptions){.dtype = DT_F32, .assets_dir = dir}));
}

/* Without balancing, outlier channels leave no resolution for the others. */
static void test_outliers(void **state) {
    make_outliers("run", "wild");
    quantize("wild", "wild-balanced", "--int8-embedding");
    quantize("wild", "wild-plain", "--no-balance");
    double before = loss_of("run");
    assert_float_equal(loss_of("wild"), before, 1e-3);
    assert_float_equal(loss_of("wild-balanced"), before, 0.02);
    assert_true(loss_of("wild-plain") > before + 0.05);
    /* Calibration with the user's data, which must exist and use the model's tokenizer. */
    CLEANUP(json_decrefp)
    json_t *made =
        run_json("quantize", "--model", at("wild"), "--out", at("wild-data"), "--calibrate", at("train.txt"));
    assert_true(json_is_true(json_object_get(made, "balanced")));
    assert_float_equal(loss_of("wild-data"), before, 0.02);
    const char *out = at("none");
    assert_ok(file_replace(at("empty.txt"), "", 0));
    assert_refused(1, "empty.txt", "quantize", "--model", at("wild"), "--out", out, "--calibrate",
                   at("empty.txt"));
    assert_ok(file_replace(at("short.txt"), "a", 1));
    assert_ran(program_run("quantize", at("wild"), out, "--calibrate", at("short.txt")), 1, err,
               "; use more data\n");
    assert_refused(2, "drop one of them", "quantize", "--model", at("wild"), "--out", out, "--calibrate",
                   at("train.txt"), "--no-balance");
}

/* Replaces `from` with `to` in a file. Both have the same length and contain no NUL. */
static void replace_in(const char *name, const char *from, const char *to) {
    CLEANUP(file_map_done) FileMap map = {0};
    assert_ok(file_map_init(&map, at(name)));
    CLEANUP(mem_freep) char *copy = malloc(map.size);
    assert_non_null(copy);
    memcpy(copy, map.data, map.size);
    char *found = memmem(copy, map.size, from, strlen(from));
    assert_non_null(found);
    memcpy(found, to, strlen(from));
    put_file(name, copy, map.size);
}

/* Static quantization, with input scales found in advance: similar quality, the same results alone and in
 * batches, and the checkpoint's format marker is checked. */
static void test_static(void **state) {
    CLEANUP(json_decrefp)
    json_t *made = run_json("quantize", "--model", at("run"), "--out", at("static"), "--int8-embedding",
                            "--activations", "static", "--calibrate", at("train.txt"));
    assert_string_equal(json_string_value(json_object_get(made, "activations")), "static");
    assert_runs(program_run("quantize", "--model", at("wild"), "--out", at("static4"), "--bits", "4",
                            "--activations", "static"));
    CLEANUP(json_decrefp)
    json_t *both = run_json("eval", "--model", at("run"), "--against", at("static"), at("static4"), "--data",
                            at("other.txt"), "--batch", "8", "--threads", "2");
    double loss[3];
    for (size_t i = 0; i < 3; i++)
        loss[i] =
            json_real_value(json_object_get(json_array_get(json_object_get(both, "models"), i), "loss"));
    assert_float_equal(loss[1], loss[0], 0.01);
    assert_float_equal(loss[2], loss[0], 0.04);
    assert_true(loss[1] != loss[0] && loss[1] != loss_of("all"));
    CLEANUP(json_decrefp) json_t *info = run_json("info", at("static"));
    const json_t *quantized = json_object_get(info, "quantized");
    assert_string_equal(json_string_value(json_object_get(quantized, "activations")), "static");
    matches_reference("static");
    alone_equals_batched("static", DT_F32, NULL);

    const char *out = at("none"), *text = at("train.txt");
    assert_refused(1, "already quantized to int8", "quantize", "--model", at("static"), "--out", out);
    assert_refused(2, "pass --calibrate", "quantize", "--model", CASES "bert-pretrain", "--out", out,
                   "--activations", "static");
    assert_refused(1, "empty.txt", "quantize", "--model", at("run"), "--out", out, "--activations", "static",
                   "--calibrate", at("empty.txt"));
    assert_refused(2, "pass its tokenizer", "quantize", "--model", CASES "bert-pretrain", "--out", out,
                   "--activations", "static", "--calibrate", text);
    replace_in("static/int8.safetensors", "layer.1.mlp.up.weight.largest", "layer.1.mlp.up.weight.xargest");
    assert_refused(1, "layer.1.mlp.up.weight", "generate", "--model", at("static"), "--prompt", "a");
    replace_in("static/int8.safetensors", "layer.1.mlp.up.weight.xargest", "layer.1.mlp.up.weight.largest");
    replace_in("static/config.json", "weft-int8-static\"", "weft-int8\"       ");
    assert_refused(1, "requires static activation quantization", "generate", "--model", at("static"),
                   "--prompt", "a");
    replace_in("static/config.json", "weft-int8\"       ", "weft-int8-sttaic\"");
    assert_refused(1, "weft-int8-sttaic", "eval", "--model", at("static"), "--data", text);
    replace_in("all/config.json", "weft-int8\"", "weft-int4\"");
    assert_refused(1, "all", "generate", "--model", at("all"), "--prompt", "a");
}

/* The five leaderboard figures, for a checkpoint and for a preset model. */
static void test_leaderboard(void **state) {
    static const char *const keys[] = {"loss", "inference_latency_1", "inference_latency_12",
                                       "training_throughput_4", "training_throughput_12"};
    CLEANUP(json_decrefp)
    json_t *result =
        run_json("bench", "--model", at("run"), "--leaderboard", at("board.json"), "--data", at("other.txt"),
                 "--seq", "16", "--steps", "1", "--accumulate", "2", "--new-tokens", "20", "--threads", "1");
    CLEANUP(json_decrefp) json_t *file = NULL;
    assert_ok(json_read_file(at("board.json"), &file));
    assert_true(json_equal(result, file));
    assert_int_equal(json_object_size(file), 5);
    for (int i = 0; i < 5; i++) assert_true(json_number_value(json_object_get(file, keys[i])) > 0);
    assert_float_equal(json_number_value(json_object_get(file, "loss")), loss_of("run"), 1e-3);
    CLEANUP(json_decrefp)
    json_t *fresh = run_json("bench", "--model", "gpt2", "--layers", "1", "--hidden", "32", "--heads", "2",
                             "--vocab", "200", "--leaderboard", at("fresh.json"), "--seq", "8", "--steps",
                             "1", "--accumulate", "1", "--new-tokens", "3", "--threads", "1");
    assert_true(json_is_null(json_object_get(fresh, "loss")));
    Ran ran = program_run("bench", "--model", "gpt2", "--layers", "1", "--hidden", "32", "--heads", "2",
                          "--vocab", "200", "--leaderboard", at("fresh.json"), "--seq", "8", "--steps", "1",
                          "--accumulate", "1", "--new-tokens", "3", "--threads", "1", "--published",
                          "loss=2.837,training_throughput_4=1e-3");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "                             measured    published\n");
    assert_contains(ran.out, "\nloss                          unknown       2.8370\n");
    assert_contains(ran.out, "       0.0010  +"); /* many times as fast */
    ran_done(&ran);
    static const char *const wrong[] = {"los=2", "loss", "loss=", "loss=2,", "loss=2 3", "loss=nan"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(2, "expected KEY=NUMBER,...", "bench", "--leaderboard", at("no.json"), "--published",
                       wrong[i]);
    assert_refused(2, "--new-tokens 64", "bench", "--model", at("run"), "--leaderboard", at("no.json"),
                   "--seq", "8", "--steps", "1", "--accumulate", "1", "--new-tokens", "64", "--threads", "1");
}

/* A quantized model has every figure that needs no training. */
static void test_leaderboard_quantized(void **state) {
    quantize("run", "ranked", "--int8-embedding");
    CLEANUP(json_decrefp)
    json_t *board = run_json("bench", "--model", at("ranked"), "--leaderboard", at("ranked.json"), "--data",
                             at("other.txt"), "--new-tokens", "20", "--threads", "1");
    assert_int_equal(json_object_size(board), 5);
    assert_true(json_is_null(json_object_get(board, "training_throughput_4")));
    assert_true(json_is_null(json_object_get(board, "training_throughput_12")));
    assert_true(json_number_value(json_object_get(board, "inference_latency_1")) > 0);
    assert_true(json_number_value(json_object_get(board, "inference_latency_12")) > 0);
    assert_float_equal(json_number_value(json_object_get(board, "loss")), loss_of("ranked"), 1e-3);
}

/* Data that cannot be read is found before anything is written; a later failure says what was. */
static void test_evaluate_fails(void **state) {
    char prompt[4096] = "";
    memset(prompt, 'a', sizeof prompt - 1);
    assert_refused(1, "absent.txt: cannot open", "quantize", "--model", at("run"), "--out", at("unjudged"),
                   "--evaluate", at("absent.txt"), "--threads", "1");
    assert_false(path_exists(at("unjudged")));
    Ran ran = program_run("quantize", "--model", at("run"), "--out", at("unjudged"), "--evaluate",
                          at("other.txt"), "--max-batches", "1", "--prompt", prompt, "--threads", "1");
    assert_contains(ran.err, "unjudged was written, but not evaluated: ");
    assert_true(path_exists(at("unjudged")));
    ran_done(&ran);
}

/* The text that `weft generate` writes. */
static void assert_writes(const char *model, const char *prompt, const json_t *text) {
    CLEANUP(json_decrefp)
    json_t *generated = run_json("generate", "--model", model, "--prompt", prompt, "--greedy", "--max-tokens",
                                 "8", "--threads", "1");
    const json_t *first = json_array_get(json_object_get(generated, "samples"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "text")), json_string_value(text));
}

/* The evaluation as a page and as tables. */
static void reports_levels(const char *dir) {
    CLEANUP(mem_freep) char *page = NULL;
    size_t size;
    assert_runs(program_run("report", dir, "--out", at("judged.html")));
    assert_ok(file_read(at("judged.html"), 1 << 24, &page, &size));
    assert_contains(page, "<span>int4</span>the cat");
    assert_contains(page, "int8: loss ");
    assert_ran(program_run("report", dir, "--format", "latex"), 0, out,
               "level & batch & time & speedup & loss");
    assert_ran(program_run("report", dir, "--format", "csv"), 0, out, "level,batch,seconds,speedup,loss");
    assert_ran(program_run("report", dir, dir, "--format", "markdown"), 0, out, "judged: fp32");
}

/* One command: both levels beside the original, with seconds, losses and load of batches of 32 and 64, and
 * what each writes. */
static void test_evaluate(void **state) {
    static const char *const names[] = {"fp32", "int8", "int4"};
    static const int sizes[] = {32, 64};
    CLEANUP(json_decrefp)
    json_t *json = run_json("quantize", "--model", at("run"), "--out", at("judged"), "--bits", "8,4",
                            "--evaluate", at("other.txt"), "--max-batches", "1", "--prompt", "the cat",
                            "--prompt", "", "--new-tokens", "8", "--threads", "1");
    CLEANUP(json_decrefp) json_t *file = NULL;
    assert_ok(json_read_file(at("judged/quantization.json"), &file));
    assert_true(json_equal(json, file));
    assert_int_equal(json_array_size(json_object_get(json, "levels")), 2);
    const json_t *evaluation = json_object_get(json, "evaluation"),
                 *levels = json_object_get(evaluation, "levels"), *level, *row;
    const json_t *original = json_object_get(json_array_get(levels, 0), "batches");
    size_t i, b;
    assert_int_equal(json_integer_value(json_object_get(evaluation, "seq")), 64);
    assert_int_equal(json_array_size(json_object_get(evaluation, "prompts")), 2);
    assert_int_equal(json_array_size(levels), 3);
    json_array_foreach(levels, i, level) {
        const json_t *texts = json_object_get(level, "texts");
        assert_string_equal(json_string_at(level, "name"), names[i]);
        assert_int_equal(json_array_size(json_object_get(level, "batches")), 2);
        json_array_foreach(json_object_get(level, "batches"), b, row) {
            const json_t *first = json_array_get(original, b);
            bool trusted = !load_is_disturbed(json_object_get(row, "load")) &&
                           !load_is_disturbed(json_object_get(first, "load"));
            assert_int_equal(json_integer_value(json_object_get(row, "batch")), sizes[b]);
            assert_true(json_number_at(row, "seconds") > 0);
            assert_float_equal(json_number_at(row, "loss"), json_number_at(first, "loss"), 0.05);
            if (i && trusted)
                assert_float_equal(json_number_at(row, "speedup"),
                                   json_number_at(first, "seconds") / json_number_at(row, "seconds"), 1e-9);
            else
                assert_false(json_is_number(json_object_get(row, "speedup")));
        }
        assert_int_equal(json_array_size(texts), 2);
        assert_writes(json_string_at(level, "model"), "the cat", json_array_get(texts, 0));
    }
    assert_refused(1, "judged", "quantize", "--model", at("run"), "--out", at("judged"), "--bits", "8,4");
    assert_refused(2, "--bits", "quantize", "--model", at("run"), "--out", at("none"), "--bits", "4,8");
    assert_true(path_exists(at("judged/report.html")));
    reports_levels(at("judged"));
    /* What failed halfway leaves nothing. */
    assert_refused(2, "drop one of them", "quantize", "--model", at("run"), "--out", at("halfway"), "--bits",
                   "8,4", "--calibrate", at("train.txt"), "--no-balance");
    assert_false(path_exists(at("halfway")));
}

static void test_info(void **state) {
    quantize("run", "shown", "--int8-embedding");
    CLEANUP(json_decrefp) json_t *info = run_json("info", at("shown"));
    assert_int_equal(json_array_size(json_object_get(info, "missing")), 0);
    assert_int_equal(json_array_size(json_object_get(info, "unknown")), 0);
    assert_true(json_integer_value(json_object_get(json_object_get(info, "elements_by_dtype"), "I8")) >
                100000);
}

/* Lines that repeat one word, so that masked words can be inferred from the others. */
static void put_repeated(const char *name, int lines, unsigned seed) {
    static const char *const words[] = {"the", "quick", "brown", "fox", "over", "a", "lazy", "dog"};
    FILE *file = fopen(at(name), "w");
    assert_non_null(file);
    for (int i = 0; i < lines; i++) {
        seed = seed * 1664525u + 1013904223u;
        for (int j = 0; j < 16; j++) fprintf(file, "%s ", words[(seed >> 16) % 8]);
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
}

/* A trained BERT keeps its loss with dynamic quantization, with calibration data, and with static
 * quantization. */
static void test_bert_loss(void **state) {
    put_wordpiece("vocab");
    put_repeated("same.txt", 600, 3);
    put_repeated("same-other.txt", 60, 4);
    assert_runs(program_run("train", "--model", "bert-tiny", "--layers", "2", "--hidden", "64", "--heads",
                            "4", "--tokenizer", at("vocab"), "--documents", "line", "--no-next-sentence",
                            "--data", at("same.txt"), "--seq", "10", "--batch", "16", "--steps", "75", "--lr",
                            "3e-3", "--warmup", "10", "--dropout", "0", "--eval-every", "0", "--threads", "2",
                            "--quiet", "--out", at("bert-run")));
    quantize("bert-run", "bert8", "--int8-embedding");
    assert_runs(program_run("quantize", "--model", at("bert-run"), "--out", at("bert8s"), "--calibrate",
                            at("same.txt"), "--activations", "static", "--int8-embedding"));
    CLEANUP(json_decrefp)
    json_t *both =
        run_json("eval", "--model", at("bert-run"), "--against", at("bert8"), at("bert8s"), "--data",
                 at("same-other.txt"), "--documents", "line", "--batch", "8", "--threads", "2", "--quiet");
    const json_t *models = json_object_get(both, "models");
    double loss[3];
    for (size_t i = 0; i < 3; i++)
        loss[i] = json_real_value(json_object_get(json_array_get(models, i), "loss"));
    assert_true(loss[0] < 1.2);
    assert_float_equal(loss[1], loss[0], 0.01);
    assert_float_equal(loss[2], loss[0], 0.01);
    assert_true(loss[1] != loss[0] && loss[1] != loss[2]);
}

/* BERT's output heads are not quantized, and models with them are quantized like any other. */
static void test_bert(void **state) {
    CLEANUP(json_decrefp)
    json_t *made =
        run_json("quantize", "--model", CASES "bert-pretrain", "--out", at("bert"), "--int8-embedding");
    assert_true(json_is_false(json_object_get(made, "balanced")));
    CLEANUP(json_decrefp) json_t *info = run_json("info", at("bert"));
    assert_int_equal(json_array_size(json_object_get(info, "missing")), 0);
}

/* A mixture of experts: each has factors and, if static, a largest input of its own; the router is not
 * quantized. */
static void test_mixture(void **state) {
    (void)state;
    assert_runs(program_run("train", "--model", "moe-1m", "--layers", "2", "--hidden", "64", "--seq", "64",
                            "--batch", "8", "--steps", "120", "--lr", "3e-3", "--threads", "2", "--data",
                            at("train.txt"), "--out", at("experts")));
    make_outliers("experts", "experts-wild");
    quantize("experts-wild", "experts8", "--int8-embedding");
    quantize("experts-wild", "experts4", "--bits=4");
    quantize("experts-wild", "experts-plain", "--no-balance");
    quantize("experts-wild", "experts-static", "--activations=static");
    double before = loss_of("experts");
    assert_true(before < 2);
    assert_float_equal(loss_of("experts-wild"), before, 1e-3);
    assert_float_equal(loss_of("experts8"), before, 0.01);
    assert_float_equal(loss_of("experts4"), before, 0.05);
    assert_float_equal(loss_of("experts-static"), before, 0.02);
    assert_true(loss_of("experts-plain") > before + 0.01);
    matches_reference("experts8");
    matches_reference("experts4");
    alone_equals_batched("experts8", DT_F32, NULL);
    alone_equals_batched("experts4", DT_F32, "int8");
    CLEANUP(mem_freep) char *text = greedy("experts", "the qui"), *after = greedy("experts8", "the qui");
    assert_string_equal(text, after);
    assert_int_equal(strncmp(text, "the quick", 9), 0);

    CLEANUP(safe_freep) SafeFile *file = NULL;
    assert_ok(safe_open(&file, at("experts-static/int8.safetensors")));
    const SafeTensor *factor = safe_find(file, "layer.0.moe.down.weight.factor"),
                     *largest = safe_find(file, "layer.0.moe.down.weight.largest");
    assert_non_null(factor);
    assert_non_null(largest);
    assert_int_equal(factor->ndim, 2);
    assert_int_equal(factor->dim[0], 8);
    assert_int_equal(largest->dim[0], 8);
    assert_null(safe_find(file, "layer.0.moe.router.weight.int8"));
    assert_refused(2, "quantized weights cannot be divided among ranks", "eval", "--model", at("experts8"),
                   "--data", at("other.txt"), "--ranks", "2", "--ep", "2");
}

static void test_refused(void **state) {
    quantize("run", "once", "--balance");
    const char *once = at("once"), *out = at("none");
    assert_refused(1, "already quantized to int8", "quantize", "--model", once, "--out", out);
    assert_refused(1, "is not empty", "quantize", "--model", at("run"), "--out", once);
    assert_refused(1, "nowhere", "quantize", "--model", at("nowhere"), "--out", out);
    assert_refused(1, "cannot be trained", "train", "--model", once, "--data", at("train.txt"), "--out", out);
    assert_refused(2, "quantized weights cannot be split", "eval", "--model", once, "--data", at("other.txt"),
                   "--ranks", "2", "--tp", "2");
    assert_refused(1, "is quantized to int8", "convert", "--model", once, "--out", out);
    assert_refused(1, "--precision fp32", "generate", "--model", once, "--prompt", "a", "--precision",
                   "bf16");
    assert_refused(1, "--precision fp32", "eval", "--model", once, "--data", at("other.txt"), "--precision",
                   "bf16");
    assert_false(path_exists(out));
}

/* A file with a missing tensor or an invalid header is refused, and the error names it. */
static void test_damaged(void **state) {
    quantize("run", "torn", "--balance");
    CLEANUP(file_map_done) FileMap map = {0};
    assert_ok(file_map_init(&map, at("torn/int8.safetensors")));
    CLEANUP(mem_freep) char *copy = malloc(map.size);
    assert_non_null(copy);
    memcpy(copy, map.data, map.size);
    char *name = memmem(copy, map.size, "layer.1.mlp.up.weight.int8", 26);
    assert_non_null(name);
    name[24] = 'X';
    put_file("torn/int8.safetensors", copy, map.size);
    assert_refused(1, "layer.1.mlp.up.weight", "generate", "--model", at("torn"), "--prompt", "a");
    put_file("torn/int8.safetensors", copy, map.size / 2);
    assert_refused(1, "int8.safetensors", "generate", "--model", at("torn"), "--prompt", "a");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaderboard), cmocka_unit_test(test_leaderboard_quantized),
        cmocka_unit_test(test_evaluate),    cmocka_unit_test(test_evaluate_fails),
        cmocka_unit_test(test_loss),        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_caches),      cmocka_unit_test(test_int4),
        cmocka_unit_test(test_text),        cmocka_unit_test(test_outliers),
        cmocka_unit_test(test_static),      cmocka_unit_test(test_info),
        cmocka_unit_test(test_bert),        cmocka_unit_test(test_bert_loss),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_grouped),     cmocka_unit_test(test_mixture),
    };
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
