/* Other tools' configuration keys: DeepSpeed's and those of transformers' TrainingArguments. The files in
 * configs/ have the form of those that people use with DeepSpeed, Megatron-DeepSpeed, transformers, axolotl
 * and DeepSpeed-Chat. */
#include "test.h"

#include <unistd.h>

#include "base/fs.h"
#include "cli/train_options.h"

static char config_path[] = "/tmp/weft-keys-XXXXXX";

static int make_file(void **state) {
    int fd = mkstemp(config_path);
    return fd < 0 || close(fd) != 0;
}

static int remove_file(void **state) {
    return unlink(config_path);
}

/* Reads a configuration with `train` on some ranks. */
static Status read_file(Invocation **ret_call, const char *path, int ranks) {
    char count[16];
    snprintf(count, sizeof count, "%d", ranks);
    const char *argv[] = {"--config", path, "--ranks", count, "--data", "x"};
    return invocation_new(ret_call, &command_train, 6, (char **)(uintptr_t)argv);
}

static Status read_text(Invocation **ret_call, const char *text, int ranks) {
    TRY(file_replace(config_path, text, strlen(text)));
    return read_file(ret_call, config_path, ranks);
}

/* Asserts the values of the options in `expected`; null: the option has its default. */
static void assert_options(const Invocation *call, const char *name, const char *expected) {
    json_t *all = NULL, *some = NULL, *value;
    const char *key;
    assert_ok(json_parse(expected, strlen(expected), name, &some));
    assert_ok(invocation_json(call, &all));
    json_object_foreach(some, key, value) {
        const json_t *found = json_object_get(all, key);
        const Slot *slot = invocation_slot(call, key);
        bool same = json_is_null(value)     ? slot->source == SOURCE_DEFAULT
                    : json_is_number(value) ? json_number_value(found) == json_number_value(value)
                                            : json_equal(found, value);
        char *text = json_dumps(found, JSON_ENCODE_ANY);
        if (!same) fail_msg("%s: %s is %s", name, key, text ? text : "not set");
        free(text);
    }
    json_decref(all);
    json_decref(some);
}

static void assert_text(const char *text, int ranks, const char *expected) {
    Invocation *call = NULL;
    assert_ok(read_text(&call, text, ranks));
    assert_options(call, text, expected);
    invocation_free(call);
}

static void assert_rejected(const char *text, const char *message) {
    Invocation *call = NULL;
    assert_fails(read_text(&call, text, 1), 2, message);
    assert_null(call);
}

static void files(void **state) {
    static const struct {
        const char *file;
        int ranks;
        const char *options, *unused; /* unused: the end of the warning; NULL: no warning */
    } cases[] = {
        {"zero2-auto", 2,
         "{\"zero\": 2, \"batch\": null, \"micro-batch\": null, \"lr\": null, \"clip\": null, \"precision\": "
         "null, \"schedule\": \"constant\", \"loss-scale\": 65536, \"loss-scale-steps\": 1000}",
         "zero_optimization.reduce_scatter"},
        {"zero3-offload", 4,
         "{\"zero\": 3, \"offload\": \"params\", \"precision\": \"bf16\", \"batch\": 32, \"micro-batch\": 2, "
         "\"clip\": 1}",
         ": 7 keys have no effect in weft: steps_per_print,"},
        {"megatron-pretraining", 8,
         "{\"batch\": 128, \"micro-batch\": 4, \"zero\": 1, \"precision\": \"bf16\"}",
         ": 3 keys have no effect in weft: steps_per_print, wall_clock_breakdown and memory_breakdown"},
        {"bert-pretraining", 4,
         "{\"batch\": 1024, \"micro-batch\": 64, \"clip\": 0.8, \"lr\": 1.1e-4, \"beta1\": 0.9, \"beta2\": "
         "0.98, \"eps\": 1e-6, \"weight-decay\": 0.02, \"schedule\": \"linear\", \"steps\": 15000, "
         "\"warmup\": "
         "1500, \"warmup-type\": \"linear\", \"precision\": \"fp16\", \"loss-scale\": 4096}",
         ": 2 keys have no effect in weft: steps_per_print and fp16.min_loss_scale"},
        {"pipeline-checkpointing", 4,
         "{\"batch\": 64, \"micro-batch\": 2, \"pp\": 2, \"recompute\": \"block\", \"zero\": 1, "
         "\"precision\": \"fp16\", \"loss-scale-steps\": 500}",
         ": 2 keys have no effect in weft: pipeline.partition and zero_optimization.reduce_bucket_size"},
        {"finetune-disabled-blocks", 2,
         "{\"precision\": \"bf16\", \"zero\": 3, \"offload\": \"optimizer\", \"clip\": 1, \"recompute\": "
         "null, "
         "\"batch\": null, \"loss-scale\": null}",
         ": 1 key has no effect in weft: aio"},
        {"chat-training", 2,
         "{\"batch\": 16, \"micro-batch\": 8, \"zero\": 2, \"offload\": null, \"precision\": \"fp16\", "
         "\"loss-scale-steps\": 100}",
         "prescale_gradients, tensorboard and comms_logger"},
        {"early-deepspeed", 2,
         "{\"batch\": 16, \"micro-batch\": 4, \"zero\": 2, \"offload\": \"optimizer\", \"lr\": 2e-4, "
         "\"beta1\": "
         "0.8, \"weight-decay\": 3e-7, \"precision\": null}",
         "zero_optimization.reduce_bucket_size"},
        {"training-arguments", 2,
         "{\"model\": \"gpt2-tiny\", \"out\": \"runs/finetuned\", \"batch\": 32, \"micro-batch\": 8, \"lr\": "
         "5e-5, \"weight-decay\": 0.1, \"beta2\": 0.95, \"eps\": 1e-6, \"clip\": 0.5, \"epochs\": 3, "
         "\"steps\": "
         "null, \"schedule\": \"cosine\", \"min-lr\": 5e-6, \"warmup\": null, \"warmup-ratio\": 0.03, "
         "\"log-every\": 10, \"eval-every\": 250, \"save-every\": 500, \"keep\": 3, \"seed\": 42, "
         "\"precision\": \"bf16\", \"recompute\": \"block\", \"seq\": 512, \"zero\": null}",
         ": 7 keys have no effect in weft: do_train, do_eval, per_device_eval_batch_size, logging_dir, "
         "save_safetensors, report_to and dataloader_num_workers"},
        {"transformers-arguments", 2,
         "{\"out\": \"runs/finetuned\", \"batch\": 16, \"micro-batch\": 4, \"lr\": 3e-5, \"weight-decay\": "
         "0.01, "
         "\"epochs\": 2, \"steps\": null, \"schedule\": \"linear\", \"schedule-from-zero\": true, "
         "\"warmup\": 10, "
         "\"eval-every\": 20, \"save-every\": 20, \"keep\": 2, \"recompute\": \"block\", \"device\": "
         "\"cpu\", "
         "\"precision\": null, \"zero\": null, \"log-every\": 500}",
         "eval_do_concat_batches and 11 more"},
        {"trainer-with-deepspeed", 4,
         "{\"model\": \"bert-tiny\", \"out\": \"runs/classifier\", \"batch\": 128, \"micro-batch\": 4, "
         "\"steps\": 600, \"epochs\": null, \"eval-every\": \"epoch\", \"save-every\": \"epoch\", \"lr\": "
         "2e-5, "
         "\"schedule\": \"linear\", \"warmup\": 60, \"warmup-type\": null, \"precision\": \"fp16\", "
         "\"loss-scale\": 16384, \"zero\": 3, \"offload\": \"optimizer\", \"quiet\": true, \"labels\": 3}",
         ": 1 key has no effect in weft: zero_optimization.offload_optimizer.pin_memory"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char path[512];
        Invocation *call = NULL;
        snprintf(path, sizeof path, WEFT_TEST_DIR "/cli/configs/%s.json", cases[i].file);
        assert_ok(read_file(&call, path, cases[i].ranks));
        assert_options(call, cases[i].file, cases[i].options);
        assert_int_equal(call->warning_count, 1);
        if (!strstr(call->warnings[0], cases[i].unused)) fail_msg("%s", call->warnings[0]);
        invocation_free(call);
    }
}

/* What transformers writes is also what to plan and to profile. */
static void written_by_transformers(void **state) {
    static const Command *const commands[] = {&command_plan, &command_bench};
    const char *path = WEFT_TEST_DIR "/cli/configs/transformers-arguments.json";
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        Invocation *call = NULL;
        const char *argv[] = {"--config", path, "--ranks", "2", "--model", "gpt2-tiny"};
        assert_ok(invocation_new(&call, commands[i], 6, (char **)(uintptr_t)argv));
        assert_options(call, commands[i]->name,
                       "{\"batch\": 16, \"micro-batch\": 4, \"recompute\": \"block\"}");
        invocation_free(call);
    }
}

/* The global batch is micro-batch x accumulation x replicas; any three give the fourth. */
static void batches(void **state) {
    assert_text("{\"per_device_train_batch_size\": 4}", 8, "{\"batch\": 32, \"micro-batch\": 4}");
    assert_text("{\"per_device_train_batch_size\": 4, \"gradient_accumulation_steps\": 3, \"tp\": 2}", 8,
                "{\"batch\": 48, \"micro-batch\": 4}");
    assert_text("{\"train_batch_size\": 48, \"gradient_accumulation_steps\": 3, \"pp\": 4}", 8,
                "{\"batch\": 48, \"micro-batch\": 8}");
    assert_text("{\"train_batch_size\": 64, \"per_device_train_batch_size\": 8, "
                "\"gradient_accumulation_steps\": 2}",
                4, "{\"batch\": 64, \"micro-batch\": 8}");
    Invocation *call = NULL;
    assert_fails(read_text(&call,
                           "{\"train_batch_size\": 64, \"per_device_train_batch_size\": 8, "
                           "\"gradient_accumulation_steps\": 2}",
                           2),
                 2, "batch is 64, but micro-batch 8 x accumulation 2 x 2 replicas is 32");
    assert_fails(read_text(&call, "{\"train_batch_size\": 12, \"gradient_accumulation_steps\": 2}", 4), 2,
                 "gradient_accumulation_steps 2 x 4 replicas must divide the batch of 12");
}

static void training_arguments(void **state) {
    assert_text("{\"num_train_epochs\": 2}", 1, "{\"epochs\": 2, \"steps\": null}");
    assert_text("{\"num_train_epochs\": 2, \"max_steps\": 9}", 1, "{\"epochs\": null, \"steps\": 9}");
    assert_text("{\"learning_rate\": 1e-3}", 1,
                "{\"lr\": 1e-3, \"warmup\": 0, \"schedule\": \"linear\", \"schedule-from-zero\": true}");
    assert_text("{\"num_train_epochs\": 2}", 1,
                "{\"warmup\": 0, \"schedule\": \"linear\", \"schedule-from-zero\": true}");
    assert_text("{\"seed\": 2, \"weight_decay\": 0.1}", 1,
                "{\"warmup\": null, \"schedule\": null, \"schedule-from-zero\": null}");
    assert_text("{\"learning_rate\": 1e-3, \"warmup\": 7}", 1,
                "{\"warmup\": 7, \"schedule\": null, \"schedule-from-zero\": null}");
    assert_text("{\"learning_rate\": 1e-3, \"schedule\": \"cosine\"}", 1,
                "{\"warmup\": null, \"schedule\": \"cosine\", \"schedule-from-zero\": null}");
    assert_text("{\"learning_rate\": 1e-3, \"schedule-from-zero\": false}", 1,
                "{\"warmup\": 0, \"schedule-from-zero\": false}");
    assert_text("{\"lr_scheduler_type\": \"linear\"}", 1,
                "{\"schedule\": \"linear\", \"warmup\": 0, \"schedule-from-zero\": true}");
    assert_text("{\"lr_scheduler_type\": \"constant\", \"warmup_steps\": 9}", 1,
                "{\"schedule\": \"constant\", \"warmup\": 0}");
    assert_text("{\"lr_scheduler_type\": \"constant_with_warmup\", \"warmup_steps\": 9}", 1,
                "{\"schedule\": \"constant\", \"warmup\": 9}");
    assert_text("{\"warmup_steps\": 0.1}", 1,
                "{\"warmup\": null, \"warmup-ratio\": 0.1, \"schedule\": \"linear\"}");
    assert_text("{\"lr_scheduler_type\": \"cosine\", \"lr_scheduler_kwargs\": {\"num_cycles\": 0.5}}", 1,
                "{\"schedule\": \"cosine\"}");
    assert_rejected("{\"lr_scheduler_type\": \"cosine\", \"lr_scheduler_kwargs\": {\"num_cycles\": 1}}",
                    "lr_scheduler_kwargs.num_cycles: expected 0.5");
    assert_rejected("{\"lr_scheduler_kwargs\": {\"num_stable_steps\": 5}}",
                    "num_stable_steps: not supported");
    assert_text("{\"warmup_ratio\": 0.1, \"warmup_steps\": 5}", 1, "{\"warmup\": 5, \"warmup-ratio\": null}");
    assert_text("{\"eval_strategy\": \"no\", \"save_strategy\": \"no\", \"save_steps\": 5}", 1,
                "{\"eval-every\": 0, \"save-every\": 0}");
    assert_text("{\"eval_steps\": 5, \"save_steps\": 6}", 1, "{\"eval-every\": 5, \"save-every\": 6}");
    assert_text("{\"fp16\": false, \"bf16\": true}", 1, "{\"precision\": \"bf16\"}");
    assert_text("{\"fp16\": true}", 1, "{\"precision\": \"fp16\"}");
    assert_text("{\"fsdp\": \"full_shard auto_wrap offload\"}", 2, "{\"zero\": 3, \"offload\": \"params\"}");
    assert_text("{\"activation_checkpointing\": {\"cpu_checkpointing\": true}}", 1,
                "{\"recompute\": \"block\", \"offload\": \"activations\"}");
    assert_text("{\"zero_optimization\": {\"cpu_offload\": true, \"cpu_offload_params\": true}, "
                "\"activation_checkpointing\": {\"cpu_checkpointing\": true}}",
                1, "{\"recompute\": \"block\", \"offload\": \"params+activations\"}");
    assert_text("{\"fsdp\": [\"shard_grad_op\"]}", 2, "{\"zero\": 2, \"offload\": null}");
    assert_text("{\"validation_split_percentage\": 5}", 1, "{\"val-fraction\": 0.05}");
    assert_text("{\"use_cpu\": true, \"disable_tqdm\": true}", 1, "{\"device\": \"cpu\", \"quiet\": true}");
    assert_rejected("{\"lr_scheduler_type\": \"polynomial\"}", "lr_scheduler_type: expected linear, cosine");
    assert_text("{\"optim\": \"lion_32bit\", \"adam_beta2\": 0.98}", 1,
                "{\"optimizer\": \"lion\", \"beta2\": 0.98, \"lr\": 1e-4}");
    assert_text("{\"optim\": \"sgd\", \"learning_rate\": 0.2}", 1,
                "{\"optimizer\": \"sgd\", \"momentum\": 0, \"lr\": 0.2}");
    assert_text("{\"optim\": \"adamw_torch_fused\"}", 1, "{\"optimizer\": \"adamw\"}");
    assert_text("{\"lr_scheduler_type\": \"warmup_stable_decay\", \"warmup_steps\": 2, "
                "\"lr_scheduler_kwargs\": {\"num_decay_steps\": 30, \"decay_type\": \"1-sqrt\"}}",
                1, "{\"schedule\": \"wsd\", \"decay-steps\": 30, \"decay-type\": \"1-sqrt\", \"warmup\": 2}");
    assert_text("{\"lr_scheduler_type\": \"warmup_stable_decay\"}", 1, "{\"decay-type\": \"cosine\"}");
    assert_rejected("{\"optim\": \"adafactor\"}", "optim: expected \"adamw_torch\"");
    assert_rejected("{\"optim\": \"adamw_bnb_8bit\"}", "optim: expected \"adamw_torch\"");
    assert_rejected("{\"optim\": \"adamw_torch(\"}", "optim: expected \"adamw_torch\"");
    assert_text("{\"load_best_model_at_end\": true, \"metric_for_best_model\": \"eval_loss\"}", 1, "{}");
    assert_text("{\"load_best_model_at_end\": false, \"metric_for_best_model\": \"f1\"}", 1, "{}");
    assert_rejected("{\"load_best_model_at_end\": true, \"metric_for_best_model\": \"f1\"}",
                    "metric_for_best_model: expected \"loss\"");
    assert_rejected("{\"load_best_model_at_end\": 1}", "load_best_model_at_end: expected true or false");
    assert_rejected("{\"activation_checkpointing\": 7}", "activation_checkpointing: expected");
    assert_rejected("{\"gradient_checkpointing\": 7}", "gradient_checkpointing: expected true or false");
    assert_rejected("{\"use_cpu\": \"yes\"}", "use_cpu: expected true or false");
    assert_rejected("{\"tf32\": 1}", "tf32: expected true or false");
    assert_rejected("{\"warmup_steps\": \"100\"}", "warmup_steps: expected a number >= 0");
    assert_rejected("{\"warmup_steps\": -1}", "warmup_steps: expected a number >= 0");
    assert_rejected("{\"warmup_ratio\": \"0.1\"}", "warmup_ratio: expected a number from 0 to 1");
    assert_rejected("{\"label_smoothing_factor\": 0.1}",
                    "label_smoothing_factor: not supported: weft has no");
    assert_rejected("{\"fsdp\": \"hybrid_shard\"}", "fsdp: expected full_shard");
    assert_rejected("{\"fp16\": true, \"bf16\": true}", "'fp16' and 'bf16' set the same option");
    assert_rejected("{\"learning_rate\": 1, \"lr\": 2}", "'learning_rate' and 'lr' set the same option");
    assert_rejected("{\"eval_strategy\": \"often\"}",
                    "eval_strategy: expected \"no\", \"steps\" or \"epoch\"");
    assert_rejected("{\"save_steps\": 0.5}", "save_steps: expected an integer >= 1");
    assert_rejected("{\"warmup_ratio\": 5}", "warmup_ratio: expected a number from 0 to 1");
    assert_rejected("{\"resume_from_checkpoint\": \"runs/x\"}", "resume_from_checkpoint: expected true");
}

/* TrainingArguments may name a DeepSpeed file. */
static void named_file(void **state) {
    assert_text("{\"learning_rate\": 1e-3, \"deepspeed\": \"" WEFT_TEST_DIR "/cli/configs/zero2-auto.json\"}",
                2, "{\"lr\": 1e-3, \"zero\": 2}");
    Invocation *call = NULL;
    assert_fails(read_text(&call, "{\"deepspeed\": \"/nonexistent.json\"}", 1), 1, "/nonexistent.json");
    assert_rejected("{\"deepspeed\": 5}", "deepspeed: expected an object or the path of a file");
    assert_rejected("{\"deepspeed\": {\"zero_optimization\": {\"stage\": 9}}}", "zero_optimization.stage 9");
}

/* Features that are on and that weft lacks are errors. */
static void features(void **state) {
    assert_rejected("{\"amp\": {\"enabled\": true}}",
                    "amp: not supported: weft has no Apex AMP; use fp16 or bf16");
    assert_rejected("{\"elasticity\": {\"enabled\": true}}", "elasticity: not supported");
    assert_rejected(
        "{\"compression_training\": {\"weight_quantization\": {\"shared_parameters\": {\"enabled\": "
        "true}}}}",
        "compression_training: not supported: use 'weft prune'");
    assert_rejected("{\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\"}}}",
                    "offload_optimizer.device: expected \"none\" or \"cpu\"");
    assert_rejected("{\"zero_optimization\": {\"zero_quantized_weights\": true}}",
                    "does not quantize communication");
    assert_text("{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 2}}", 4, "{\"shard\": 2}");
    assert_rejected("{\"zero_optimization\": {\"mics_shard_size\": \"two\"}}", "mics_shard_size: expected");
    assert_rejected("{\"zero_optimization\": {\"cpu_offload\": \"true\"}}",
                    "cpu_offload: expected true or false");
    assert_rejected("{\"activation_checkpointing\": {\"partition_activations\": \"true\"}}",
                    "partition_activations: expected true, false or a number");
    assert_text("{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": -1}}", 4, "{\"shard\": null}");
    assert_text("{\"pipeline\": {\"enabled\": true, \"pipeline_parallel_size\": 2, \"schedule\": \"1F1B\"}}",
                2, "{\"pp\": 2, \"pp-schedule\": \"1f1b\"}");
    assert_text("{\"bfloat16\": {\"enabled\": true}}", 1, "{\"precision\": \"bf16\"}");
    assert_text("{\"optimizer\": {\"params\": {\"max_grad_norm\": 2}}}", 1, "{\"clip\": 2}");
    assert_text("{\"optimizer\": {\"type\": \"Muon\", \"params\": {\"lr\": 0.03, \"adam_lr\": 1e-3}}}", 1,
                "{\"optimizer\": \"muon\", \"lr\": 0.03, \"adamw-lr\": 1e-3, \"momentum\": 0.95}");
    assert_text("{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.3}}}", 1,
                "{\"optimizer\": \"sgd\", \"lr\": 0.3, \"momentum\": 0}");
    assert_text("{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentum\": 0.8, \"nesterov\": true}}}",
                1, "{\"optimizer\": \"sgd\", \"momentum\": 0.8, \"nesterov\": true}");
    assert_text("{\"optimizer\": {\"type\": \"Lion\", \"params\": {\"betas\": [0.8, 0.9]}}}", 1,
                "{\"optimizer\": \"lion\", \"beta1\": 0.8, \"beta2\": 0.9}");
    assert_rejected("{\"optimizer\": {\"params\": {\"dampening\": 0.1}}}", "no dampening");
}

/* All unknown keys are listed at once, with the nearest known ones. */
static void unknown_keys(void **state) {
    assert_rejected(
        "{\"stepz\": 5, \"zero_optimization\": {\"stge\": 2, \"qqq\": 1}, \"lr\": 1, \"frobnicate\": 1}",
        ": 4 unknown keys: 'stepz' (did you mean 'steps'?), 'zero_optimization.stge' (did you mean "
        "'zero_optimization.stage'?), 'zero_optimization.qqq', 'frobnicate'; keys are option names (see "
        "'weft help train')");
    assert_rejected("{\"n_layer\": 5}",
                    "unknown key 'n_layer'; use 'layers' (nanoGPT: the number of layers)");
}

/* bench and plan read the same files and use the keys that apply to them. */
static void other_commands(void **state) {
    static const Command *const commands[] = {&command_bench, &command_plan};
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        const char *argv[] = {"--config", WEFT_TEST_DIR "/cli/configs/pipeline-checkpointing.json", "--ranks",
                              "4"};
        Invocation *call = NULL;
        assert_ok(invocation_new(&call, commands[i], 4, (char **)(uintptr_t)argv));
        assert_options(
            call, commands[i]->name,
            "{\"batch\": 64, \"micro-batch\": 2, \"pp\": 2, \"recompute\": \"block\", \"zero\": 1}");
        invocation_free(call);
    }
}

/* They skip weft's own keys that concern training only. */
static void training_keys(void **state) {
    static const Command *const commands[] = {&command_bench, &command_plan};
    static const char text[] = "{\"batch\": 16, \"lr\": 1, \"no_shuffle\": true, \"data\": [\"a.txt\"], "
                               "\"runs\": [{\"name\": \"a\", \"steps\": 1}]}";
    static const char unknown[] = "{\"batch\": 16, \"lrr\": 1}";
    const char *argv[] = {"--config", config_path};
    Invocation *call = NULL;
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        assert_ok(file_replace(config_path, text, strlen(text)));
        assert_ok(invocation_new(&call, commands[i], 2, (char **)(uintptr_t)argv));
        assert_options(call, commands[i]->name, "{\"batch\": 16}");
        invocation_free(call);
        assert_ok(file_replace(config_path, unknown, strlen(unknown)));
        assert_fails(invocation_new(&call, commands[i], 2, (char **)(uintptr_t)argv), 2, "unknown key 'lrr'");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files),          cmocka_unit_test(written_by_transformers),
        cmocka_unit_test(batches),        cmocka_unit_test(training_arguments),
        cmocka_unit_test(features),       cmocka_unit_test(unknown_keys),
        cmocka_unit_test(other_commands), cmocka_unit_test(named_file),
        cmocka_unit_test(training_keys),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
