/* Configuration: defaults, configuration file and command line are merged into one Settings, DeepSpeed
 * keys map to the same settings, and all recipes are valid. */
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "cli/train_options.h"
#include "compare/recipe.h"
#include "compress/quantize.h"

static char config_path[] = "/tmp/weft-config-XXXXXX";

static int make_file(void **state) {
    int fd = mkstemp(config_path);
    return fd < 0 || close(fd) != 0;
}

static int remove_file(void **state) {
    return unlink(config_path);
}

/* Parses a train command line, with `text` as its configuration file unless it is NULL. */
static Status read_line(Invocation **ret_call, const char *text, const char *const *line) {
    const char *argv[40];
    int argc = 0;
    while (*line) argv[argc++] = *line++;
    argv[argc++] = "--data";
    argv[argc++] = "corpus.txt";
    if (text) {
        TRY(file_replace(config_path, text, strlen(text)));
        argv[argc++] = "--config";
        argv[argc++] = config_path;
    }
    return invocation_new(ret_call, &command_train, argc, (char **)(uintptr_t)argv);
}

#define LINE(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static Invocation *read_ok(const char *text, const char *const *line) {
    Invocation *call = NULL;
    assert_ok(read_line(&call, text, line));
    return call;
}

static void refused(const char *text, const char *message) {
    Invocation *call = NULL;
    assert_fails(read_line(&call, text, (const char *const[]){NULL}), 2, message);
    assert_null(call);
}

static const Settings *config_of(const Invocation *call) {
    return &((const TrainArgs *)call->config)->config;
}

/* "shards" is the old spelling of the format "tokens", which earlier versions wrote to config.json. */
static void old_spellings(void **state) {
    Invocation *calls[] = {read_ok("{\"format\": \"shards\"}", LINE()),
                           read_ok(NULL, LINE("--format", "shards")),
                           read_ok("{\"format\": \"shards\"}", LINE("--format", "tokens"))};
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        json_t *json = NULL;
        assert_string_equal(config_of(calls[i])->data.format, "tokens");
        assert_ok(invocation_json(calls[i], &json));
        assert_string_equal(json_string_value(json_object_get(json, "format")), "tokens");
        json_decref(json);
        invocation_free(calls[i]);
    }
    refused("{\"format\": \"shard\"}", "format shard: expected auto, bytes, u16, u32, ids, tokens, text");
}

/* A flag may have a word that changes nothing. */
static void resume_auto(void **state) {
    Invocation *calls[] = {read_ok(NULL, LINE("--out", "o", "--resume", "auto")),
                           read_ok(NULL, LINE("--out", "o", "--resume=auto")),
                           read_ok(NULL, LINE("--out", "o", "--resume")),
                           read_ok("{\"resume\": \"auto\"}", LINE("--out", "o")),
                           read_ok("{\"resume\": false}", LINE("--out", "o", "--resume", "auto")),
                           read_ok("{\"resume\": \"auto\"}", LINE("--no-resume"))};
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        assert_int_equal(config_of(calls[i])->ckpt.resume, i + 1 < COUNT_OF(calls));
        assert_int_equal(config_of(calls[i])->data.files_count, 1);
        invocation_free(calls[i]);
    }
    Invocation *call = NULL;
    refused("{\"resume\": \"always\"}", "resume: expected true, false or auto, found \"always\"");
    assert_fails(read_line(&call, NULL, LINE("--resume=always")), 2, "use --resume or --no-resume");
    assert_fails(read_line(&call, NULL, LINE("--no-resume=auto")), 2, "use --resume or --no-resume");
    /* A flag has no number to compare with, and is one byte wherever it stands. */
    CLEANUP(mem_freep) bool *flag = calloc(1, sizeof *flag);
    assert_true(option_in_range(&(Option){.type = OPTION_FLAG, .word = "auto", .low = 1, .high = 2}, flag));
}

static void defaults(void **state) {
    Invocation *call = read_ok(NULL, LINE());
    const Settings *config = config_of(call);
    assert_string_equal(config->model.task, "auto");
    assert_string_equal(config->training.schedule, "cosine");
    assert_int_equal(config->run.recompute, RECOMPUTE_NONE);
    assert_string_equal(config->device.name, "cpu");
    assert_true(config->training.lr == 6e-4 && config->run.optim.beta1 == 0.9 &&
                config->run.optim.beta2 == 0.999 && config->run.optim.clip == 1);
    assert_true(config->model.dropout < 0 && config->training.epochs == 0);
    assert_int_equal(config->model.layers, 0);
    assert_int_equal(config->run.micro_batch, 0);
    assert_false(config->data.no_shuffle || config->model.no_next_sentence || config->ckpt.resume ||
                 config->report.quiet);
    assert_null(config->ckpt.out);
    assert_false(invocation_given(call, "lr"));
    assert_true(invocation_given(call, "data"));
    invocation_free(call);
}

/* Settings that are not given have the optimizer's defaults; those that it does not have are warned about. */
static void optimizer_defaults(void **state) {
    Invocation *call = read_ok(NULL, LINE("--optimizer", "lion"));
    const Settings *config = config_of(call);
    assert_true(config->training.lr == 1e-4 && config->run.optim.beta2 == 0.99 &&
                config->run.optim.weight_decay == 0.1);
    assert_int_equal(call->warning_count, 0);
    invocation_free(call);
    call = read_ok("{\"optimizer\": \"muon\", \"group\": [\"*.bias:lr=0.1\"]}", LINE("--lr", "0.05"));
    config = config_of(call);
    assert_true(config->training.lr == 0.05 && config->run.optim.momentum == 0.95 &&
                config->run.optim.nesterov && config->training.adamw_lr == 6e-4);
    assert_int_equal(config->training.group_count, 1);
    assert_string_equal(config->training.group[0], "*.bias:lr=0.1");
    invocation_free(call);
    call = read_ok(NULL, LINE("--optimizer", "muon", "--no-nesterov", "--beta2", "0.9"));
    assert_false(config_of(call)->run.optim.nesterov);
    assert_true(config_of(call)->run.optim.beta2 == 0.9);
    invocation_free(call);
    call = read_ok(NULL, LINE("--optimizer", "sgd", "--beta2", "0.9", "--eps", "1e-6", "--nesterov"));
    assert_true(config_of(call)->training.lr == 0.1 && config_of(call)->run.optim.weight_decay == 0);
    assert_int_equal(call->warning_count, 2);
    assert_string_equal(call->warnings[0], "--beta2 has no effect with --optimizer sgd");
    invocation_free(call);
    refused("{\"optimizer\": \"adam\"}", "optimizer adam: expected adamw, lion, sgd or muon");
}

static void line_forms(void **state) {
    Invocation *call =
        read_ok(NULL, LINE("--lr=1e-3", "--steps", "12", "--no-shuffle", "--quiet", "--no-quiet", "--seed",
                           "18446744073709551615", "--val", "a", "b", "--val=c", "--task=mlm",
                           "--no-next-sentence", "--out", "-", "--steps", "13"));
    const Settings *config = config_of(call);
    assert_true(config->training.lr == 1e-3);
    assert_int_equal(config->training.steps, 13);
    assert_true(config->data.no_shuffle && config->model.no_next_sentence);
    assert_false(config->report.quiet);
    assert_true(config->run.seed == UINT64_MAX);
    assert_int_equal(config->data.val_count, 3);
    assert_string_equal(config->data.val[0], "a");
    assert_string_equal(config->data.val[2], "c");
    assert_string_equal(config->model.task, "mlm");
    assert_string_equal(config->ckpt.out, "-");
    invocation_free(call);
}

static void file_and_line(void **state) {
    Invocation *call = read_ok(
        "{\"lr\": 0.002, \"steps\": 5e1, \"micro_batch\": 2, \"shuffle\": false, \"val\": [\"p\", \"q\"],"
        " \"val-fraction\": 0, \"task\": \"auto\", \"schedule\": \"linear\", \"no-next-sentence\": true,"
        " \"threads\": null, \"data\": \"other.txt\"}",
        LINE("--lr", "0.5", "--val", "r"));
    const Settings *config = config_of(call);
    assert_true(config->training.lr == 0.5);
    assert_int_equal(config->training.steps, 50);
    assert_int_equal(config->run.micro_batch, 2);
    assert_true(config->data.no_shuffle && config->model.no_next_sentence);
    assert_int_equal(config->data.val_count, 1);
    assert_string_equal(config->data.val[0], "r");
    assert_int_equal(config->data.files_count, 1);
    assert_string_equal(config->data.files[0], "corpus.txt");
    assert_string_equal(config->training.schedule, "linear");
    invocation_free(call);
}

/* The config.json that a run writes is a configuration that reproduces the run. */
static void round_trip(void **state) {
    Invocation *call = read_ok(NULL, LINE("--lr", "0.1", "--layers", "3", "--no-shuffle", "--val", "x", "y",
                                          "--seed", "18446744073709551615"));
    json_t *json = NULL;
    assert_ok(invocation_json(call, &json));
    char *text = json_dumps(json, 0);
    Invocation *again = read_ok(text, LINE());
    json_t *repeated = NULL;
    assert_ok(invocation_json(again, &repeated));
    assert_true(json_equal(json, repeated));
    assert_true(config_of(again)->training.lr == 0.1 && config_of(again)->model.layers == 3 &&
                config_of(again)->data.no_shuffle);
    assert_int_equal(config_of(again)->data.val_count, 2);
    assert_true(config_of(again)->run.seed == UINT64_MAX);
    free(text);
    json_decref(json);
    json_decref(repeated);
    invocation_free(call);
    invocation_free(again);
}

static void bad_files(void **state) {
    refused("{\"lr\": \"high\"}", "lr: expected a number > 0, found \"high\"");
    refused("{\"steps\": 1.5}", "steps: expected an integer >= 1, found 1.5");
    refused("{\"steps\": 0}", "steps 0: expected an integer >= 1");
    refused("{\"shuffle\": 1}", "shuffle: expected true or false, found 1");
    refused("{\"data\": [1]}", "data: entry 1 is not a string");
    refused("{\"schedule\": \"cosinus\"}", "did you mean 'cosine'?");
    refused("{\"learning_rat\": 1}", "unknown key 'learning_rat'");
    refused("{\"micro_bach\": 1}", "unknown key 'micro_bach'; did you mean 'micro-batch'?");
    refused("{\"json\": true}", "unknown key 'json'");
    refused("[]", "expected a JSON object with options");
    refused("{\"lr\": 1, \"lr\": 2}", "not valid JSON");
    refused("{", "not valid JSON");
    refused("", "not valid JSON");
    refused("{\"seed\": -1}", "seed -1: expected an integer from 0");
    Invocation *call = NULL;
    const char *argv[] = {"--data", "x", "--config", "/nonexistent/run.json"};
    assert_fails(invocation_new(&call, &command_train, 4, (char **)(uintptr_t)argv), 1,
                 "/nonexistent/run.json");
}

static void deepspeed_keys(void **state) {
    Invocation *call =
        read_ok("{\"train_batch_size\": 32, \"gradient_accumulation_steps\": 4, \"gradient_clipping\": 0.5,"
                " \"train_micro_batch_size_per_gpu\": \"auto\", \"steps_per_print\": 10,"
                " \"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true, \"reduce_bucket_size\": 5e8},"
                " \"fp16\": {\"enabled\": false, \"loss_scale\": 0}, \"bf16\": {\"enabled\": \"auto\"},"
                " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-5, \"betas\": [0.8, 0.95], "
                "\"eps\": 1e-7,"
                " \"weight_decay\": 0.1}},"
                " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": 0, "
                "\"warmup_max_lr\": 3e-5,"
                " \"warmup_num_steps\": 7, \"total_num_steps\": 70}}}",
                LINE("--eps", "1e-6"));
    const Settings *config = config_of(call);
    assert_int_equal(config->training.batch, 32);
    assert_int_equal(config->run.micro_batch, 8);
    assert_true(config->run.optim.clip == 0.5 && config->training.lr == 3e-5 &&
                config->run.optim.beta1 == 0.8 && config->run.optim.beta2 == 0.95);
    assert_true(config->run.optim.weight_decay == 0.1 && config->run.optim.eps == 1e-6);
    assert_string_equal(config->training.schedule, "linear");
    assert_int_equal(config->training.warmup, 7);
    assert_int_equal(config->training.steps, 70);
    assert_int_equal(((const TrainArgs *)call->config)->config.run.zero, 2);
    assert_null(((const TrainArgs *)call->config)->config.device.precision);
    invocation_free(call);

    call = read_ok("{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.01}},"
                   " \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"cos_min_ratio\": 0.1}}}",
                   LINE("--lr", "0.02"));
    assert_string_equal(config_of(call)->training.schedule, "cosine");
    assert_float_equal(config_of(call)->training.min_lr, 0.002, 1e-12);
    invocation_free(call);
}

/* Without warmup_type, each DeepSpeed scheduler has the default that DeepSpeed gives it. */
static void deepspeed_warmup(void **state) {
    static const struct {
        const char *file, *line[3], *type;
    } cases[] = {
        {"{}", {NULL}, "linear"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\"}}", {NULL}, "log"},
        {"{\"scheduler\": {\"type\": \"WarmupDecayLR\"}}", {NULL}, "log"},
        {"{\"scheduler\": {\"type\": \"WarmupCosineLR\"}}", {NULL}, "linear"},
        {"{\"scheduler\": {\"params\": {\"warmup_type\": \"log\"}, \"type\": \"WarmupCosineLR\"}}",
         {NULL},
         "log"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"linear\"}}}",
         {NULL},
         "linear"},
        {"{\"scheduler\": {\"params\": {\"warmup_type\": \"linear\"}, \"type\": \"WarmupLR\"}}",
         {NULL},
         "linear"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\"}}", {"--warmup-type", "linear"}, "linear"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Invocation *call = read_ok(cases[i].file, cases[i].line);
        assert_string_equal(config_of(call)->training.warmup_type, cases[i].type);
        invocation_free(call);
    }
}

/* bench reads the same file and uses the keys that apply to it. */
static void deepspeed_bench(void **state) {
    static const char text[] =
        "{\"train_batch_size\": 6, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
        "{\"lr\": 1e-4, \"betas\": [0.9, 0.95]}}, \"scheduler\": {\"type\": \"WarmupLR\"}}";
    assert_ok(file_replace(config_path, text, strlen(text)));
    const char *argv[] = {"--config", config_path};
    Invocation *call = NULL;
    assert_ok(invocation_new(&call, &command_bench, 2, (char **)(uintptr_t)argv));
    assert_int_equal(config_of(call)->training.batch, 6);
    invocation_free(call);
}

static void batches(void **state) {
    static const struct {
        const char *file, *line[5];
        int batch, micro;
    } cases[] = {
        {"{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": "
         "4}",
         {NULL},
         12,
         3},
        {"{\"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 4}", {NULL}, 12, 3},
        {"{\"train_batch_size\": 12, \"gradient_accumulation_steps\": 4}", {NULL}, 12, 3},
        {"{\"train_batch_size\": 12}", {NULL}, 12, 0},
        {"{\"train_micro_batch_size_per_gpu\": 16}", {NULL}, 16, 16},
        {"{\"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 4}",
         {"--batch", "6"},
         6,
         3},
        {"{\"gradient_accumulation_steps\": 4}", {"--batch", "8"}, 8, 2},
        {"{\"gradient_accumulation_steps\": 4}", {"--batch", "8", "--micro-batch", "1"}, 8, 1},
        {"{\"batch\": 12, \"train_batch_size\": 12.0}", {NULL}, 12, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Invocation *call = read_ok(cases[i].file, cases[i].line);
        assert_int_equal(config_of(call)->training.batch, cases[i].batch);
        assert_int_equal(config_of(call)->run.micro_batch, cases[i].micro);
        invocation_free(call);
    }
    refused("{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4, "
            "\"gradient_accumulation_steps\": 4}",
            "batch is 32, but micro-batch 4 x accumulation 4 x 1 replica is 16");
    refused("{\"train_batch_size\": 10, \"gradient_accumulation_steps\": 4}",
            "gradient_accumulation_steps 4 x 1 replica must divide the batch of 10");
    refused("{\"gradient_accumulation_steps\": 4}",
            "requires train_batch_size or train_micro_batch_size_per_gpu");
    refused("{\"gradient_accumulation_steps\": 0}", "expected an integer >= 1");
    refused("{\"train_micro_batch_size_per_gpu\": 1000000, \"gradient_accumulation_steps\": 2147483647}",
            "exceeds the maximum batch of");
    refused("{\"batch\": 12, \"train_batch_size\": 13}",
            "'batch' and 'train_batch_size' set the same option to different values");
}

static void deepspeed_refusals(void **state) {
    refused("{\"train_batchsize\": 12}", "unknown key 'train_batchsize'; did you mean 'train_batch_size'?");
    refused("{\"zero_optimization\": {\"stge\": 1}}",
            "unknown key 'zero_optimization.stge'; did you mean 'zero_optimization.stage'?");
    refused("{\"zero_optimization\": {\"stage\": 4}}", "zero_optimization.stage 4: expected");
    refused("{\"zero_optimization\": 2}", "zero_optimization: expected an object");
    refused("{\"optimizer\": {\"type\": \"Lamb\"}}", "optimizer.type: expected AdamW, Adam, FusedAdam");
    refused("{\"optimizer\": {\"params\": {\"betas\": [0.9]}}}", "expected an array of two numbers");
    refused("{\"optimizer\": {\"params\": {\"betas\": [0.9, 1.5]}}}", "optimizer.params.betas 1.5: expected");
    refused("{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}}}", "decoupled");
    refused("{\"optimizer\": {\"params\": {\"lr\": 1}}, \"scheduler\": {\"params\": {\"warmup_max_lr\": 2}}}",
            "'optimizer.params.lr' and 'scheduler.params.warmup_max_lr' set the same option");
    refused("{\"scheduler\": {\"type\": \"OneCycle\"}}",
            "expected WarmupLR, WarmupDecayLR or WarmupCosineLR");
    refused("{\"scheduler\": {\"params\": {\"warmup_type\": \"exp\"}}}",
            "scheduler.params.warmup_type exp: expected");
    refused("{\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}}", "set the same option");
}

/* A precision from the file is checked like one from the command line, and the error names the file. */
static void deepspeed_precision(void **state) {
    Invocation *call = read_ok("{\"bf16\": {\"enabled\": true}}", LINE());
    assert_string_equal(((const TrainArgs *)call->config)->config.device.precision, "bf16");
    assert_ok(layout_check(call, call->config));
    invocation_free(call);
    call = read_ok("{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 12, \"loss_scale_window\": 500}}",
                   LINE());
    assert_true(((const TrainArgs *)call->config)->config.run.loss_scale == 4096);
    assert_int_equal(((const TrainArgs *)call->config)->config.run.scale_steps, 500);
    refused("{\"fp16\": {\"enabled\": true, \"loss_scale\": 128}}", "weft only has dynamic loss scaling");
    refused("{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 99}}", "from 0 to 24");
    invocation_free(call);
    call = read_ok("{\"bf16\": {\"enabled\": true}}", LINE("--precision", "fp32"));
    assert_ok(layout_check(call, call->config));
    invocation_free(call);
    call = read_ok("{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}}",
                   LINE());
    assert_ok(layout_check(call, call->config));
    assert_int_equal(((const TrainArgs *)call->config)->config.run.offload, OFFLOAD_OPTIMIZER);
    invocation_free(call);
}

/* A scale overrides the file's settings, null removes one, and the command line overrides both. */
static void scales(void **state) {
    const char *text = "{\"about\": \"a test\", \"steps\": 500, \"lr\": 0.5, \"layers\": 7, \"scales\": "
                       "{\"small\": {\"steps\": 5, \"layers\": null}}}";
    Invocation *call = read_ok(text, LINE());
    assert_int_equal(config_of(call)->training.steps, 500);
    assert_int_equal(config_of(call)->model.layers, 7);
    invocation_free(call);
    call = read_ok(text, LINE("--scale", "small", "--lr", "0.25"));
    assert_int_equal(config_of(call)->training.steps, 5);
    assert_int_equal(config_of(call)->model.layers, 0);
    assert_true(config_of(call)->training.lr == 0.25);
    invocation_free(call);
    call = NULL;
    assert_fails(read_line(&call, text, LINE("--scale", "large")), 2,
                 "has no such scale; available: 'small'");
    assert_fails(read_line(&call, "{\"steps\": 5}", LINE("--scale", "small")), 2, "defines no scales");
    assert_fails(read_line(&call, NULL, LINE("--scale", "small")), 2, "pass it with --config");
    refused("{\"about\": 5}", "about: expected a string");
    refused("{\"scales\": 5}", "scales: expected an object");
    assert_fails(read_line(&call, "{\"scales\": {\"small\": 5}}", LINE("--scale", "small")), 2,
                 "small: expected an object");
    assert_fails(read_line(&call, "{\"scales\": {\"small\": {\"stepz\": 5}}}", LINE("--scale", "small")), 2,
                 "did you mean 'steps'");
}

/* "@SET/FILE" names a fetched file, which must exist unless the command line names another. */
static void fetched_files(void **state) {
    char dir[] = "/tmp/weft-fetched-XXXXXX", path[200];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("WEFT_DATA", dir, 1), 0);
    const char *text = "{\"tokenizer\": \"@gpt2-tokenizer\", \"val\": [\"@tinyshakespeare/input.txt\"]}";
    Invocation *call = NULL;
    assert_fails(read_line(&call, text, LINE()), 2, "run 'weft fetch gpt2-tokenizer' first");
    assert_fails(read_line(&call, text, LINE("--tokenizer", "bytes")), 2,
                 "run 'weft fetch tinyshakespeare' first");
    refused("{\"tokenizer\": \"@gpt3\"}", "gpt3");
    call = read_ok(text, LINE("--tokenizer", "bytes", "--val", "other.txt"));
    assert_string_equal(config_of(call)->data.val[0], "other.txt");
    invocation_free(call);
    snprintf(path, sizeof path, "%s/tinyshakespeare", dir);
    assert_ok(dir_make(path));
    snprintf(path, sizeof path, "%s/tinyshakespeare/input.txt", dir);
    assert_ok(file_replace(path, "text", 4));
    call = read_ok(text, LINE("--tokenizer", "bytes"));
    assert_string_equal(config_of(call)->data.val[0], path);
    invocation_free(call);
    /* The same on the command line, for options that read a path. */
    call = read_ok("{}", LINE("--val", "x.txt", "@tinyshakespeare/input.txt", "--model", "@tinyshakespeare",
                              "--label-field", "@odd", "--out", "@run"));
    assert_string_equal(config_of(call)->data.val[0], "x.txt");
    assert_string_equal(config_of(call)->data.val[1], path);
    assert_non_null(strstr(config_of(call)->model.name, "/tinyshakespeare"));
    assert_string_equal(config_of(call)->data.text.label_field, "@odd");
    assert_string_equal(config_of(call)->ckpt.out, "@run");
    invocation_free(call);
    assert_fails(read_line(&call, "{}", LINE("--tokenizer", "@gpt2-tokenizer")), 2, "--tokenizer: ");
    assert_fails(read_line(&call, "{}", LINE("--model", "@gpt2-midium")), 2, "--model: @gpt2-midium: ");
    assert_ok(dir_remove(dir));
    assert_int_equal(unsetenv("WEFT_DATA"), 0);
}

/* Train accepts each run of the recipe. */
static void check_recipe_runs(const char *path, bool small) {
    Recipe recipe = {0};
    Status none = recipe_read(&recipe, path, small ? "small" : NULL);
    if (none) assert_non_null(strstr(status_message(none), "contains no runs to compare"));
    status_free(none);
    for (size_t i = 0; i < json_array_size(recipe.runs); i++) {
        const json_t *run = json_array_get(recipe.runs, i);
        const char *line[] = {"--config", path,   "--run", json_string_value(json_object_get(run, "name")),
                              "--scale",  "small"};
        Invocation *call = NULL;
        assert_ok(invocation_new(&call, &command_train, small ? 6 : 4, (char **)(uintptr_t)line));
        assert_ok(layout_settle(call, &((TrainArgs *)call->config)->layout, 0));
        assert_ok(layout_check(call, call->config));
        invocation_free(call);
    }
    recipe_done(&recipe);
}

/* By default, the prune recipe compares weights with rows of all matrices; --run selects one kind. */
static void check_prune_recipe(void) {
    static const char *const ways[][2] = {
        {NULL, "weights"}, {"weights", "weights"}, {"rows", "rows"}, {"all-rows", "all-rows"}};
    for (size_t i = 0; i < 2 * (sizeof ways / sizeof *ways); i++) {
        const char *const *way = ways[i / 2];
        const char *line[] = {"--config", WEFT_SOURCE_DIR "/recipes/wikitext-gpt2-prune.json",
                              "--model",  "runs/bytes",
                              "--out",    "pruned",
                              "--scale",  "small",
                              "--run",    way[0]};
        if (i % 2 == 0) line[6] = "--amount", line[7] = "0.9";
        Invocation *call = NULL;
        assert_ok(invocation_new(&call, &command_prune, way[0] ? 10 : 8, (char **)(uintptr_t)line));
        const PruneArgs *args = call->config;
        assert_string_equal(args->prune.kind, way[1]);
        if (way[0])
            assert_null(args->prune.also);
        else
            assert_string_equal(args->prune.also, "all-rows");
        assert_non_null(strstr(json_string_value(json_object_get(call->study, "note")), "sharply at 90%"));
        invocation_free(call);
    }
}

/* Every quantization method, of the fetched model and, at the small scale, of a model trained for it. */
static void check_quantize_recipe(void) {
    static const char *const ways[][3] = {{"int8", "8", "dynamic"},     {"int8-static", "8", "static"},
                                          {"int4", "4", "dynamic"},     {"int8-unbalanced", "8", "dynamic"},
                                          {"int4-all", "4", "dynamic"}, {"int4-unbalanced", "4", "dynamic"}};
    for (size_t i = 0; i < 2 * (sizeof ways / sizeof *ways); i++) {
        const char *const *way = ways[i / 2];
        const char *line[] = {"--config", WEFT_SOURCE_DIR "/recipes/wikitext-gpt2-quantize.json",
                              "--run",    way[0],
                              "--out",    "quantized",
                              "--scale",  "small",
                              "--model",  "runs/aware"};
        Invocation *call = NULL;
        assert_ok(invocation_new(&call, &command_quantize, i % 2 ? 10 : 6, (char **)(uintptr_t)line));
        const QuantizeConfig *config = call->config;
        bool unbalanced = strstr(way[0], "unbalanced");
        assert_string_equal(config->bits, way[1]);
        assert_string_equal(config->activations, way[2]);
        assert_true(config->no_balance == unbalanced && config->data.files_count == !unbalanced);
        assert_true(config->embedding || config->int4_embedding);
        invocation_free(call);
    }
}

/* Every recipe is valid at every scale for the command it is made for, once the files that it names are
 * fetched. */
static void recipes(void **state) {
    static const char *const sets[] = {
        "bert-base-uncased/config.json",   "bert-base-uncased-tokenizer/vocab.txt",
        "cornell/movie_conversations.txt", "cornell/movie_lines.txt",
        "gpt2-medium/config.json",         "gpt2/config.json",
        "gpt2-tokenizer/vocab.json",       "squad-v2/dev-v2.0.json",
        "squad-v2/train-v2.0.json",        "tinyshakespeare/input.txt",
        "wikitext-103-raw/wiki.train.raw", "wikitext-103-raw/wiki.valid.raw",
        "wikitext-2-raw/wiki.train.raw",   "wikitext-2-raw/wiki.valid.raw",
        "smollm2-135m/config.json"};
    static const char *const names[] = {
        "squad-bert-base",     "wikipedia-gpt2",       "wikipedia-bert",         "shakespeare-mingpt",
        "dialogues-bert",      "wikitext-gpt2-medium", "shakespeare-characters", "megatron-sizes",
        "wikitext-gpt2-aware", "fine-tuning"};
    char dir[] = "/tmp/weft-recipes-XXXXXX", path[400];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("WEFT_DATA", dir, 1), 0);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        snprintf(path, sizeof path, "%s/%.*s", dir, (int)strcspn(sets[i], "/"), sets[i]);
        assert_ok(dir_make(path));
        snprintf(path, sizeof path, "%s/%s", dir, sets[i]);
        assert_ok(file_replace(path, "text", 4));
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int small = 0; small < 2; small++) {
            snprintf(path, sizeof path, "%s/recipes/%s.json", WEFT_SOURCE_DIR, names[i]);
            const char *line[] = {"--config", path, "--data", "own.txt", "--scale", "small"};
            Invocation *call = NULL;
            assert_ok(invocation_new(&call, &command_train, small ? 6 : 4, (char **)(uintptr_t)line));
            assert_ok(layout_check(call, call->config));
            assert_true(config_of(call)->training.steps <= (small ? 500 : 1000000));
            invocation_free(call);
            check_recipe_runs(path, small);
        }
    const char *needle[] = {"--config", WEFT_SOURCE_DIR "/recipes/needle.json"};
    Invocation *needles = NULL;
    assert_ok(invocation_new(&needles, &command_train, 2, (char **)(uintptr_t)needle));
    assert_ok(layout_check(needles, needles->config));
    invocation_free(needles);
    static const char *const scales[] = {"stand-in", "bytes"};
    for (size_t i = 0; i < 2; i++) {
        const char *line[] = {"--config", WEFT_SOURCE_DIR "/recipes/wikitext-gpt2-medium.json",
                              "--scale",  scales[i],
                              "--model",  "gpt2-tiny"};
        Invocation *call = NULL;
        assert_ok(invocation_new(&call, &command_train, 6, (char **)(uintptr_t)line));
        invocation_free(call);
    }
    check_prune_recipe();
    check_quantize_recipe();
    assert_ok(dir_remove(dir));
    assert_int_equal(unsetenv("WEFT_DATA"), 0);
}

/* Every choice of every option can be selected, and config.json records it by name. */
static void choices(void **state) {
    (void)state;
    for (int group = 0; train_groups[group].options; group++)
        for (size_t i = 0; i < train_groups[group].count; i++) {
            const Option *option = &train_groups[group].options[i];
            char name[64];
            if (option->type != OPTION_CHOICE) continue;
            snprintf(name, sizeof name, "--%s", option->name);
            for (const char *const *choice = option->choices; *choice; choice++) {
                Invocation *call = read_ok(NULL, LINE(name, *choice));
                CLEANUP(json_decrefp) json_t *json = NULL;
                assert_ok(invocation_json(call, &json));
                assert_string_equal(json_string_value(json_object_get(json, option->name)), *choice);
                invocation_free(call);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices),
        cmocka_unit_test(old_spellings),
        cmocka_unit_test(resume_auto),
        cmocka_unit_test(defaults),
        cmocka_unit_test(optimizer_defaults),
        cmocka_unit_test(line_forms),
        cmocka_unit_test(file_and_line),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(scales),
        cmocka_unit_test(fetched_files),
        cmocka_unit_test(recipes),
        cmocka_unit_test(deepspeed_keys),
        cmocka_unit_test(deepspeed_warmup),
        cmocka_unit_test(deepspeed_bench),
        cmocka_unit_test(batches),
        cmocka_unit_test(deepspeed_refusals),
        cmocka_unit_test(deepspeed_precision),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
