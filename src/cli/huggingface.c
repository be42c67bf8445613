/* The fields of Hugging Face's TrainingArguments, as its example scripts read them from a JSON file, and the
 * scripts' own arguments for model and data.
 *
 * A field that is absent keeps weft's default, with one exception: the schedule is transformers', which is
 * linear, without warm-up and counts from 0 unless the file asks for something else. */
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "cli/keys.h"

enum { INCLUDED_LIMIT = 16 << 20 };

static const json_t *field(const Invocation *call, const char *name) {
    return json_object_get(call->file, name);
}

static bool names(const Invocation *call, const char *name) {
    return field(call, name) && !json_is_null(field(call, name));
}

static bool is_text(const json_t *value, const char *text) {
    const char *own = json_string_value(value);
    return own && strcmp(own, text) == 0;
}

/* Set together with others by huggingface_finish. */
static Status take_later(Invocation *call, const Key *key, json_t *value) {
    (void)call, (void)key, (void)value;
    return OK;
}

static Status take_resume(Invocation *call, const Key *key, json_t *value) {
    if (!json_is_boolean(value))
        return key_must_be(call, key->path, "true: weft continues from the newest checkpoint in --out");
    return configfile_set(call, key->option, key->path, value);
}

static Status take_percentage(Invocation *call, const Key *key, json_t *value) {
    CLEANUP(json_decrefp) json_t *fraction = json_real(json_number_value(value) / 100);
    if (!json_is_number(value)) return key_must_be(call, key->path, "a number from 0 to 100");
    if (!fraction) return FAILED("out of memory while reading %s", call->config_path);
    return configfile_set(call, key->option, key->path, fraction);
}

/* weft's best checkpoint, to which the link best in --out leads, has the lowest validation loss. */
static Status take_best(Invocation *call, const Key *key, json_t *value) {
    const json_t *metric = field(call, "metric_for_best_model");
    bool loss =
        !names(call, "metric_for_best_model") || is_text(metric, "loss") || is_text(metric, "eval_loss");
    if (!json_is_boolean(value)) return key_must_be(call, key->path, "true or false");
    if (json_is_false(value) || loss) return OK;
    return key_must_be(call, "metric_for_best_model",
                       "\"loss\": the link best leads to the lowest validation loss");
}

/* logging_steps below 1 is a fraction of the run; metrics.jsonl then keeps every step. */
static Status take_logging(Invocation *call, const Key *key, json_t *value) {
    bool steps = !field(call, "logging_strategy") || is_text(field(call, "logging_strategy"), "steps");
    if (!steps || json_number_value(value) < 1) return key_unused(call, key->path, value);
    return configfile_set(call, key->option, key->path, value);
}

static Status take_fsdp_word(Invocation *call, const Key *key, const char *word, size_t length) {
    static const struct {
        const char *word, *option;
        double zero;
    } words[] = {{"full_shard", "zero", 3}, {"shard_grad_op", "zero", 2}, {"no_shard", "zero", 0}};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (strlen(words[i].word) == length && !strncmp(words[i].word, word, length))
            return key_set_number(call, words[i].option, key->path, words[i].zero);
    if (length == 7 && !strncmp(word, "offload", 7))
        return key_set_text(call, "offload", key->path, "params");
    if (length == 9 && !strncmp(word, "auto_wrap", 9)) return OK;
    return key_must_be(
        call, key->path,
        "full_shard, shard_grad_op, no_shard, offload or auto_wrap; for hybrid_shard, set zero and "
        "shard");
}

/* "full_shard auto_wrap" or ["full_shard", "auto_wrap"]. */
static Status take_fsdp(Invocation *call, const Key *key, json_t *value) {
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_is_array(value) ? json_array_get(value, i) : value);
        if (!text) return json_is_false(value) ? OK : key_must_be(call, key->path, "a string");
        for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
            size_t length = strcspn(text, " ");
            TRY(take_fsdp_word(call, key, text, length));
            text += length;
        }
    }
    return OK;
}

/* A DeepSpeed configuration: an object, or the path of a file. */
static Status take_deepspeed(Invocation *call, const Key *key, json_t *value) {
    if (json_is_object(value)) return keys_take_in(call, &deepspeed_keys, value);
    const char *path = json_string_value(value);
    if (!path) return key_must_be(call, key->path, "an object or the path of a file");
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    TRY(file_read(path, INCLUDED_LIMIT, &text, &size));
    CLEANUP(status_freep) Status parsed = json_parse(text, size, path, &call->included);
    if (parsed) return USAGE("%s", status_message(parsed));
    if (!json_is_object(call->included)) return USAGE("%s: expected a JSON object", path);
    return keys_take_in(call, &deepspeed_keys, call->included);
}

#define LATER(path_, option_) TAKE(path_, option_, take_later)

/* clang-format off */
static const Key keys[] = {
    /* model and data, in the example scripts */
    SET("model_name_or_path", "model"),
    SET("tokenizer_name", "tokenizer"),
    SET("train_file", "data"),
    SET("validation_file", "val"),
    TAKE("validation_split_percentage", "val-fraction", take_percentage),
    SET("block_size", "seq"),
    SET("max_seq_length", "seq"),
    SET("mlm_probability", "mask-rate"),
    SET("whole_word_mask", "whole-word-masking"),
    SET("max_query_length", "max-query"),
    SET("text_column_name", "text-field"),
    SET("label_column_name", "label-field"),
    SET("num_labels", "labels"),
    /* TrainingArguments */
    SET("output_dir", "out"),
    SET("per_device_train_batch_size", "micro-batch"),
    SET("per_gpu_train_batch_size", "micro-batch"),
    LATER("num_train_epochs", "epochs"),
    LATER("max_steps", "steps"),
    SET("learning_rate", "lr"),
    SET("adam_beta1", "beta1"),
    SET("adam_beta2", "beta2"),
    SET("adam_epsilon", "eps"),
    SET("max_grad_norm", "clip"),
    WORDS("optim", "optimizer", key_take_optimizer,
          "adamw_torch=adamw adamw_torch_fused=adamw adamw_torch_xla=adamw adamw_torch_npu_fused=adamw "
          "adamw_apex_fused=adamw adamw_anyprecision=adamw adamw_hf=adamw adamw=adamw lion_32bit=lion "
          "paged_lion_32bit=lion sgd=sgd",
          "\"adamw_torch\" or another name of AdamW, \"lion_32bit\" or \"sgd\""),
    WORDS("lr_scheduler_type", "schedule", NULL,
          "linear=linear cosine=cosine cosine_with_min_lr=cosine warmup_stable_decay=wsd constant=constant "
          "constant_with_warmup=constant",
          "linear, cosine, cosine_with_min_lr, warmup_stable_decay, constant or constant_with_warmup"),
    SET("lr_scheduler_kwargs.min_lr", "min-lr"),
    TAKE("lr_scheduler_kwargs.min_lr_rate", "min-lr", key_take_min_ratio),
    TAKE("lr_scheduler_kwargs.min_lr_ratio", "min-lr", key_take_min_ratio),
    SET("lr_scheduler_kwargs.num_decay_steps", "decay-steps"),
    SET("lr_scheduler_kwargs.decay_type", "decay-type"),
    ONLY("lr_scheduler_kwargs.num_cycles", "schedule", "0.5", "0.5, half a cosine"),
    OFF("lr_scheduler_kwargs.num_stable_steps", "the decay ends with the run; set num_decay_steps"),
    LATER("warmup_steps", "warmup"),
    LATER("warmup_ratio", "warmup"),
    TAKE("logging_steps", "log-every", take_logging),
    LATER("logging_strategy", "log-every"),
    LATER("eval_strategy", "eval-every"),
    LATER("evaluation_strategy", "eval-every"),
    LATER("eval_steps", "eval-every"),
    LATER("save_strategy", "save-every"),
    LATER("save_steps", "save-every"),
    SET("save_total_limit", "keep"),
    WHEN("fp16", "precision", "fp16"),
    WHEN("bf16", "precision", "bf16"),
    WHEN("tf32", "precision", "tf32"),
    WHEN("no_cuda", "device", "cpu"),
    WHEN("use_cpu", "device", "cpu"),
    WHEN("gradient_checkpointing", "recompute", "block"),
    WHEN("activation_checkpointing", "recompute", "block"),
    TAKE("fsdp", "zero", take_fsdp),
    TAKE("deepspeed", NULL, take_deepspeed),
    TAKE("resume_from_checkpoint", "resume", take_resume),
    SET("disable_tqdm", "quiet"),
    OFF("adafactor", "weft has no Adafactor"),
    OFF("label_smoothing_factor", "weft has no label smoothing"),
    OFF("neftune_noise_alpha", "weft adds no noise to embeddings"),
    TAKE("load_best_model_at_end", "eval-every", take_best),
    LATER("metric_for_best_model", "eval-every"),
    LATER("greater_is_better", "eval-every"),
    OFF("auto_find_batch_size", "use 'weft plan' to find a micro-batch that fits"),
    OFF("galore", "weft has no GaLore"),
    OFF("fp16_full_eval", "weft evaluates in the training precision"),
    OFF("bf16_full_eval", "weft evaluates in the training precision"),
};

static const char *const unused[] = {
    "accelerator_config", "activation_checkpointing_kwargs", "average_tokens_across_devices",
    "batch_eval_metrics", "cache_dir", "data_seed", "dataloader_in_order",
    "dataloader_multiprocessing_context", "dataloader_num_workers", "dataloader_persistent_workers",
    "dataloader_pin_memory", "dataloader_prefetch_factor", "ddp_backend", "ddp_broadcast_buffers",
    "ddp_bucket_cap_mb", "ddp_find_unused_parameters", "ddp_static_graph", "ddp_timeout", "debug",
    "dispatch_batches", "do_eval", "do_predict", "do_train", "eval_accumulation_steps", "eval_batch_size",
    "eval_delay", "eval_do_concat_batches", "enable_jit_checkpoint", "eval_on_start",
    "eval_use_gather_object", "fp16_backend", "fp16_opt_level", "fsdp_config", "fsdp_min_num_params",
    "fsdp_transformer_layer_cls_to_wrap", "full_determinism", "gradient_checkpointing_kwargs",
    "group_by_length", "half_precision_backend", "hub_always_push", "hub_model_id",
    "hub_private_repo", "hub_revision", "hub_strategy", "hub_token", "ignore_data_skip",
    "include_for_metrics", "include_inputs_for_metrics", "include_num_input_tokens_seen",
    "include_tokens_per_second", "jit_mode_eval", "label_names", "length_column_name", "liger_kernel_config",
    "local_rank", "log_level", "log_level_replica", "log_on_each_node", "logging_dir", "logging_first_step",
    "logging_nan_inf_filter", "mp_parameters", "optim_args", "optim_target_modules",
    "overwrite_cache", "overwrite_output_dir", "parallelism_config", "past_index",
    "per_device_eval_batch_size", "per_gpu_eval_batch_size", "prediction_loss_only",
    "preprocessing_num_workers", "project", "push_to_hub", "push_to_hub_model_id",
    "push_to_hub_organization", "push_to_hub_token", "ray_scope", "remove_unused_columns", "report_to",
    "restore_callback_states_from_checkpoint", "run_name", "save_on_each_node", "save_only_model",
    "save_safetensors", "skip_memory_metrics", "split_batches", "torch_compile", "torch_compile_backend",
    "torch_compile_mode", "torch_empty_cache_steps", "torchdynamo", "tp_size", "tpu_metrics_debug",
    "tpu_num_cores", "trackio_bucket_id", "trackio_space_id", "trackio_static_space_id",
    "train_sampling_strategy", "use_cache", "use_fast_tokenizer", "use_ipex", "use_legacy_prediction_loop",
    "use_liger_kernel", "use_mps_device", NULL
};
/* clang-format on */

const KeyTable huggingface_keys = {.keys = keys, .count = COUNT_OF(keys), .unused = unused};

/* ---- fields that belong together ---- */

/* A positive number of steps wins over epochs. */
static Status finish_length(Invocation *call) {
    const json_t *steps = field(call, "max_steps"), *epochs = field(call, "num_train_epochs");
    if (json_number_value(steps) > 0)
        return configfile_set(call, "steps", "max_steps", (json_t *)(uintptr_t)steps);
    if (steps && !json_is_null(steps) && !json_is_number(steps))
        return key_must_be(call, "max_steps", "an integer");
    if (!epochs || json_is_null(epochs)) return OK;
    return configfile_set(call, "epochs", "num_train_epochs", (json_t *)(uintptr_t)epochs);
}

static bool set_by_file(const Invocation *call, const char *option) {
    const Slot *slot = invocation_slot(call, option);
    return slot && slot->file_key;
}

/* Whether the file has fields that only TrainingArguments has and most of its files set. */
static bool is_theirs(const Invocation *call) {
    return names(call, "learning_rate") || names(call, "num_train_epochs") || names(call, "max_steps") ||
           names(call, "per_device_train_batch_size");
}

/* The schedule is transformers', with its defaults, if the file names a part of it, or is one of
 * TrainingArguments without a schedule in weft's or DeepSpeed's keys. */
static Status finish_schedule(Invocation *call, bool *ret_theirs) {
    bool type = names(call, "lr_scheduler_type");
    bool named = type || names(call, "warmup_steps") || names(call, "warmup_ratio");
    bool others = set_by_file(call, "schedule") && !type;
    bool own = set_by_file(call, "warmup") || set_by_file(call, "warmup-ratio");
    *ret_theirs = named || (is_theirs(call) && !others && !own);
    if (!*ret_theirs || others || set_by_file(call, "schedule-from-zero")) return OK;
    if (is_text(field(call, "lr_scheduler_type"), "warmup_stable_decay") && !set_by_file(call, "decay-type"))
        TRY(key_set_text(call, "decay-type", "lr_scheduler_type", "cosine"));
    if (!type) TRY(key_set_text(call, "schedule", "lr_scheduler_type", "linear"));
    return configfile_set(call, "schedule-from-zero", "lr_scheduler_type", json_true());
}

static Status finish_warmup(Invocation *call) {
    const json_t *type = field(call, "lr_scheduler_type"), *steps = field(call, "warmup_steps"),
                 *ratio = field(call, "warmup_ratio");
    double count = json_number_value(steps), fraction = json_number_value(ratio);
    bool theirs = false;
    if (names(call, "warmup_steps") && (!json_is_number(steps) || count < 0))
        return key_must_be(call, "warmup_steps", "a number >= 0");
    if (count > 0 && count < 1) fraction = count, count = 0;
    if ((names(call, "warmup_ratio") && !json_is_number(ratio)) || fraction < 0 || fraction > 1)
        return key_must_be(call, "warmup_ratio", "a number from 0 to 1");
    TRY(finish_schedule(call, &theirs));
    if (!theirs) return OK;
    if (is_text(type, "constant")) return key_set_number(call, "warmup", "lr_scheduler_type", 0);
    if (count == 0 && fraction > 0) return key_set_number(call, "warmup-ratio", "warmup_ratio", fraction);
    return key_set_number(call, "warmup", count > 0 ? "warmup_steps" : "lr_scheduler_type", count);
}

/* "no", "steps" or "epoch", and the number of steps. */
static Status finish_every(Invocation *call, const char *option, const char *strategy, const char *steps) {
    const json_t *how = field(call, strategy), *count = field(call, steps);
    if (is_text(how, "no")) return key_set_number(call, option, strategy, 0);
    if (is_text(how, "epoch")) return key_set_text(call, option, strategy, "epoch");
    if (how && !json_is_null(how) && !is_text(how, "steps"))
        return key_must_be(call, strategy, "\"no\", \"steps\" or \"epoch\"");
    if (!count || json_is_null(count)) return OK;
    if (json_number_value(count) < 1)
        return key_must_be(call, steps, "an integer >= 1; weft has no fractions of a run");
    return configfile_set(call, option, steps, (json_t *)(uintptr_t)count);
}

Status huggingface_finish(Invocation *call) {
    if (invocation_slot(call, "epochs")) TRY(finish_length(call));
    if (invocation_slot(call, "warmup")) TRY(finish_warmup(call));
    if (!invocation_slot(call, "eval-every")) return OK;
    TRY(finish_every(call, "eval-every",
                     field(call, "eval_strategy") ? "eval_strategy" : "evaluation_strategy", "eval_steps"));
    return finish_every(call, "save-every", "save_strategy", "save_steps");
}
