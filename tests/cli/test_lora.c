/* Adapters through the program: training, resuming, PEFT's files, merging, and adapters of another model. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/safetensors.h"
#include "program.h"

static char dir[] = "/tmp/weft-lora-XXXXXX", corpus[64];

static int setup(void **state) {
    (void)state;
    char text[4000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "a weft crosses the warp, over and under; "[i * i % 41];
    if (!mkdtemp(dir)) return -1;
    snprintf(corpus, sizeof corpus, "%s/corpus.txt", dir);
    assert_ok(file_replace(corpus, text, sizeof text));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    assert_ok(dir_remove(dir));
    return 0;
}

static const char *in(const char *name) {
    static char path[4][96];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

#define COMMON                                                                                               \
    "--data", corpus, "--batch", "4", "--threads", "1", "--schedule", "constant", "--warmup", "0",           \
        "--val-fraction", "0", "--eval-every", "0", "--quiet"
#define SIZES "--layers", "2", "--hidden", "16", "--heads", "4", "--seq", "16"

static void train_base(const char *model, const char *name) {
    assert_runs(program_run("train", "--model", model, SIZES, COMMON, "--steps", "2", "--out", in(name)));
}

static double loss_of(Ran ran) {
    json_t *json = NULL;
    if (ran.code) fail_msg("%s", ran.err);
    assert_ok(json_parse(ran.out, strlen(ran.out), "stdout", &json));
    double loss = json_number_value(json_object_get(json, "loss"));
    json_decref(json);
    ran_done(&ran);
    return loss;
}

#define EVAL(...)                                                                                            \
    loss_of(program_run("eval", "--data", corpus, "--threads", "1", "--seq", "16", "--json", __VA_ARGS__))

static void assert_same_tensors(const char *a, const char *b) {
    CLEANUP(safe_freep) SafeFile *x = NULL, *y = NULL;
    assert_ok(safe_open(&x, a));
    assert_ok(safe_open(&y, b));
    assert_int_equal(safe_count(x), safe_count(y));
    for (size_t i = 0; i < safe_count(x); i++) {
        const SafeTensor *t = safe_at(x, i), *other = safe_find(y, t->name);
        assert_non_null(other);
        assert_memory_equal(t->data, other->data, t->bytes);
    }
}

/* An interrupted run has the bits of one that was not, and its checkpoint has nothing but adapters. */
static void resume(void **state) {
    (void)state;
    train_base("llama-1m", "base");
#define LORA                                                                                                 \
    "train", "--model", in("base"), COMMON, "--lora", "3", "--lora-dropout", "0.1", "--rslora",              \
        "--lora-targets", "q_proj", "v_proj", "*.mlp.*"
    assert_runs(program_run(LORA, "--steps", "6", "--out", in("whole")));
    assert_runs(program_run(LORA, "--steps", "3", "--out", in("run")));
    assert_runs(program_run("train", "--out", in("run"), "--resume", "--steps", "6", "--quiet"));
    assert_same_tensors(in("run/latest/adapter_model.safetensors"),
                        in("whole/latest/adapter_model.safetensors"));
    assert_same_tensors(in("run/latest/optimizer.safetensors"), in("whole/latest/optimizer.safetensors"));
    CLEANUP(safe_freep) SafeFile *file = NULL;
    CLEANUP(json_decrefp) json_t *config = NULL;
    assert_ok(safe_open(&file, in("run/latest/adapter_model.safetensors")));
    assert_int_equal(safe_count(file), 2 * 2 * 5);
    assert_non_null(safe_find(file, "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"));
    assert_false(path_exists(in("run/latest/model.safetensors")));
    assert_ok(json_read_file(in("run/latest/adapter_config.json"), &config));
    assert_int_equal(json_array_size(json_object_get(config, "target_modules")), 5);
    assert_true(json_is_true(json_object_get(config, "use_rslora")));
    Ran other = program_run("train", "--out", in("run"), "--resume", "--steps", "8", "--lora-dropout", "0");
    assert_int_equal(other.code, 2);
    assert_contains(other.err, "has --lora 3 --lora-alpha 6 --lora-dropout 0.1 --rslora; pass the same");
    ran_done(&other);
}

/* A run that starts from another's adapters continues from its loss. */
static void start(void **state) {
    (void)state;
    train_base("llama-1m", "first");
#define FROM(...) program_run("train", "--model", in("first"), COMMON, "--lora", "2", "--lr", __VA_ARGS__)
    assert_runs(FROM("0.01", "--steps", "4", "--out", in("one")));
    assert_runs(FROM("1e-9", "--steps", "1", "--adapter", in("one"), "--out", in("two")));
    double one = EVAL("--model", in("one")), two = EVAL("--model", in("two"));
    assert_true(fabs(one - two) < 1e-6 && one < EVAL("--model", in("first")) - 1e-3);
    assert_refused(2, "has a scale of its own; use --lora-alpha 4 without --rslora", "train", "--model",
                   in("first"), COMMON, "--lora", "2", "--rslora", "--steps", "1", "--adapter", in("one"));
    assert_refused(2, "has the tensor 'base_model.model.model.layers.0.mlp.down_proj.lora_A.weight', but",
                   "train", "--model", in("first"), COMMON, "--lora", "2", "--lora-targets", "q_proj",
                   "--steps", "1", "--adapter", in("one"));
}

/* The same over weights in blocks. Its adapters fit the model as it is. */
static void quantized(void **state) {
    (void)state;
    static const char *const types[] = {"int8", "int4", "nf4"};
    assert_runs(program_run("train", "--model", "llama-1m", "--layers", "2", "--hidden", "64", "--heads", "4",
                            "--seq", "16", COMMON, "--steps", "4", "--lr", "0.01", "--out", in("base64")));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char whole[32], run[32];
        snprintf(whole, sizeof whole, "whole-%s", types[i]);
        snprintf(run, sizeof run, "run-%s", types[i]);
#define OVER(steps, out)                                                                                     \
    program_run("train", "--model", in("base64"), COMMON, "--lora", "4", "--lora-base", types[i], "--lr",    \
                "0.003", "--steps", steps, "--precision", "bf16", "--out", in(out))
        assert_runs(OVER("8", whole));
        assert_runs(OVER("4", run));
        assert_runs(program_run("train", "--out", in(run), "--resume", "--steps", "8", "--quiet"));
        char a[80], b[80];
        snprintf(a, sizeof a, "%s/latest/adapter_model.safetensors", whole);
        snprintf(b, sizeof b, "%s/latest/adapter_model.safetensors", run);
        assert_same_tensors(in(a), in(b));
        assert_true(EVAL("--model", in(run)) < EVAL("--model", in("base64")));
    }
}

/* A run of adapters, its adapters merged into their base on the fly, and the merged checkpoint are one model.
 */
static void merge(void **state) {
    (void)state;
    static const char *const models[] = {"gpt2-tiny", "qwen3-0.6b", "qwen2.5-0.5b"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char base[32], run[32], merged[32];
        snprintf(base, sizeof base, "base-%zu", i);
        snprintf(run, sizeof run, "run-%zu", i);
        snprintf(merged, sizeof merged, "merged-%zu", i);
        train_base(models[i], base);
        assert_runs(program_run("train", "--model", in(base), COMMON, "--lora", "2", "--steps", "4", "--lr",
                                "0.01", "--freeze", "!head.norm", "--out", in(run)));
        assert_runs(program_run("convert", in(run), in(merged)));
        double before = EVAL("--model", in(base)), after = EVAL("--model", in(run));
        double on_base = EVAL("--model", in(base), "--adapter", in(run)), whole = EVAL("--model", in(merged));
        double twice = EVAL("--model", in(merged), "--adapter", in(run));
        assert_true(after < before - 1e-3);
        assert_true(fabs(on_base - after) < 1e-6 && fabs(whole - after) < 1e-6);
        assert_true(fabs(twice - after) > 1e-5);
        Ran a = program_run("generate", in(run), "a weft", "--max-tokens", "5", "--greedy");
        Ran b = program_run("generate", in(merged), "a weft", "--max-tokens", "5", "--greedy");
        assert_int_equal(a.code, 0);
        assert_string_equal(a.out, b.out);
        ran_done(&a);
        ran_done(&b);
    }
}

/* Adapters of another model, and what is not an adapter, are refused in one sentence. */
static void refusals(void **state) {
    (void)state;
    train_base("gpt2-tiny", "small");
    assert_runs(program_run("train", "--model", "gpt2-tiny", "--layers", "2", "--hidden", "32", "--heads",
                            "4", "--seq", "16", COMMON, "--steps", "2", "--out", in("wide")));
    train_base("llama-1m", "llama");
    assert_runs(program_run("train", "--model", in("small"), COMMON, "--lora", "2", "--steps", "2", "--out",
                            in("adapter")));
    assert_refused(
        1, "is F32 of shape (2, 16), but the model expects a floating-point one of shape (2, 32); is this",
        "generate", in("wide"), "x", "--adapter", in("adapter"));
    assert_refused(
        1, "the model has nothing that tensor 'base_model.model.transformer.h.0.attn.c_attn.lora_A.weight'",
        "generate", in("llama"), "x", "--adapter", in("adapter"));
    assert_refused(1, "is no adapter: it has no adapter_config.json", "generate", in("small"), "x",
                   "--adapter", in("wide"));
    assert_refused(2, "is a preset with random weights", "train", "--model", "gpt2-tiny", COMMON, "--lora",
                   "2", "--out", in("none"));
    assert_refused(2, "has adapters already; merge them with 'weft convert'", "train", "--model",
                   in("adapter"), COMMON, "--lora", "2", "--out", in("none"));
    assert_refused(2, "no linear layer of attention or an MLP matches 'q_prj'", "train", "--model",
                   in("llama"), COMMON, "--lora", "2", "--lora-targets", "q_prj", "--out", in("none"));
    assert_refused(2, "--lora cannot be combined with --quantize-aware", "train", "--model", in("llama"),
                   COMMON, "--lora", "2", "--quantize-aware", "int8", "--out", in("none"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume), cmocka_unit_test(quantized), cmocka_unit_test(start),
        cmocka_unit_test(merge),  cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
