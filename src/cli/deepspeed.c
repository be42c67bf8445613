/* DeepSpeed's configuration keys (ds_config.json). */
#include <string.h>
#include <strings.h>

#include "cli/keys.h"
#include "parallel/shard.h"

static Status take_accumulation(Invocation *call, const Key *key, json_t *value) {
    json_int_t steps = json_integer_value(value);
    if (steps < 1 || steps > INT32_MAX) return key_must_be(call, key->path, "an integer >= 1");
    call->accumulation = steps;
    return OK;
}

static Status take_betas(Invocation *call, const Key *key, json_t *value) {
    if (json_array_size(value) != 2) return key_must_be(call, key->path, "an array of two numbers");
    TRY(configfile_set(call, "beta1", key->path, json_array_get(value, 0)));
    return configfile_set(call, "beta2", key->path, json_array_get(value, 1));
}

static Status take_scheduler(Invocation *call, const Key *key, json_t *value) {
    char ours[KEY_WORD];
    TRY(key_set_word(call, key, value, ours));
    call->log_warmup = strcmp(ours, "cosine") != 0; /* the default of warmup_type */
    return OK;
}

static Status take_scale_power(Invocation *call, const Key *key, json_t *value) {
    json_int_t power = json_integer_value(value);
    if (!json_is_integer(value) || power < 0 || power > 24)
        return key_must_be(call, key->path, "an integer from 0 to 24");
    CLEANUP(json_decrefp) json_t *scale = json_real((double)((int64_t)1 << power));
    if (!scale) return FAILED("out of memory while reading %s", call->config_path);
    return configfile_set(call, key->option, key->path, scale);
}

/* Several keys say together what is offloaded. */
static Status add_offload(Invocation *call, const Key *key, Offload what) {
    const Slot *slot = invocation_slot(call, "offload");
    const char *before = slot->file_value ? json_string_value(slot->file_value) : NULL;
    for (int i = 0; before && i < OFFLOAD_COUNT; i++)
        if (!strcmp(before, offload_names[i])) what = offload_join(what, (Offload)i);
    if (before) configfile_unset(call, "offload");
    return key_set_text(call, "offload", key->path, offload_names[what]);
}

/* Offloaded parameters imply an offloaded optimizer. */
static Offload offloaded_by(const Key *key) {
    return strstr(key->path, "param") ? OFFLOAD_PARAMS : OFFLOAD_OPTIMIZER;
}

static Status take_offload(Invocation *call, const Key *key, json_t *value) {
    const char *device = json_string_value(value);
    if (device && strcmp(device, "none") == 0) return OK;
    if (!device || strcmp(device, "cpu") != 0) return key_must_be(call, key->path, "\"none\" or \"cpu\"");
    return add_offload(call, key, offloaded_by(key));
}

static Status take_old_offload(Invocation *call, const Key *key, json_t *value) {
    if (!json_is_boolean(value)) return key_must_be(call, key->path, "true or false");
    return json_is_true(value) ? add_offload(call, key, offloaded_by(key)) : OK;
}

/* Any of these settings means that activations are checkpointed. */
static Status take_recompute(Invocation *call, const Key *key, json_t *value) {
    bool on = json_is_true(value) || json_number_value(value) > 0;
    if (!json_is_boolean(value) && !json_is_number(value))
        return key_must_be(call, key->path, "true, false or a number");
    return on ? key_set_text(call, key->option, key->path, "block") : OK;
}

static Status take_cpu_checkpointing(Invocation *call, const Key *key, json_t *value) {
    TRY(take_recompute(call, key, value));
    return json_is_true(value) ? add_offload(call, key, OFFLOAD_ACTIVATIONS) : OK;
}

/* weft reduces and accumulates gradients in fp32. */
static Status take_fp32(Invocation *call, const Key *key, json_t *value) {
    const char *type = json_string_value(value);
    if (type && (!strcmp(type, "fp32") || !strcmp(type, "float32"))) return OK;
    return key_unused(call, key->path, value);
}

static Status take_schedule(Invocation *call, const Key *key, json_t *value) {
    const char *name = json_string_value(value);
    if (name && strcasecmp(name, "1f1b") == 0) return key_set_text(call, key->option, key->path, "1f1b");
    return configfile_set(call, key->option, key->path, value);
}

/* MiCS shards within groups of replicas; -1 and 0 turn it off. */
static Status take_group(Invocation *call, const Key *key, json_t *value) {
    if (json_is_number(value) && json_number_value(value) <= 0) return OK;
    return configfile_set(call, key->option, key->path, value);
}

#define ADAMW     "true: weft has AdamW, with decoupled weight decay, but not Adam"
#define FROM_ZERO "0: weft's warm-up starts from zero"

/* clang-format off */
static const Key keys[] = {
    SET("train_batch_size", "batch"),
    SET("train_micro_batch_size_per_gpu", "micro-batch"),
    TAKE("gradient_accumulation_steps", NULL, take_accumulation),
    SET("gradient_clipping", "clip"),
    TAKE("communication_data_type", NULL, take_fp32),
    TAKE("data_types.grad_accum_dtype", NULL, take_fp32),
    OFF("sparse_gradients", "weft has no sparse gradients"),
    OFF("amp", "weft has no Apex AMP; use fp16 or bf16"),
    OFF("torch_autocast", "use fp16 or bf16"),
    OFF("elasticity", "weft has no elastic batch sizes; --resume continues a run on other ranks"),
    OFF("autotuning", "use 'weft plan --search'"),
    OFF("progressive_layer_drop", "weft does not drop layers"),
    OFF("curriculum_learning", "use --seq-warmup for sequences that grow; weft has no other curriculum"),
    OFF("data_efficiency", "weft has no curriculum learning"),
    OFF("compression_training", "use 'weft prune' or --quantize-aware"),
    OFF("quantize_training", "use --quantize-aware"),
    OFF("sparse_attention", "weft has dense attention only"),
    OFF("zero_optimization.zero_quantized_weights", "weft does not quantize communication"),
    OFF("zero_optimization.zero_quantized_gradients", "weft does not quantize communication"),
    OFF("fp16.fp16_master_weights_and_grads", "weft's master weights are fp32"),
    OFF("bf16.bf16_master_weights_and_grads", "weft's master weights are fp32"),
    SET("zero_optimization.stage", "zero"),
    TAKE("zero_optimization.mics_shard_size", "shard", take_group),
    TAKE("zero_optimization.offload_optimizer.device", "offload", take_offload),
    TAKE("zero_optimization.offload_param.device", "offload", take_offload),
    /* of the first releases: */
    TAKE("zero_optimization.cpu_offload", "offload", take_old_offload),
    TAKE("zero_optimization.cpu_offload_params", "offload", take_old_offload),
    TAKE("activation_checkpointing.enabled", "recompute", take_recompute),
    TAKE("activation_checkpointing.partition_activations", "recompute", take_recompute),
    TAKE("activation_checkpointing.cpu_checkpointing", "recompute", take_cpu_checkpointing),
    TAKE("activation_checkpointing.contiguous_memory_optimization", "recompute", take_recompute),
    TAKE("activation_checkpointing.number_checkpoints", "recompute", take_recompute),
    SET("pipeline.stages", "pp"),
    SET("pipeline.pipeline_parallel_size", "pp"),
    TAKE("pipeline.schedule", "pp-schedule", take_schedule),
    TAKE("pipeline.activation_checkpoint_interval", "recompute", take_recompute),
    SET("tensor_parallel.autotp_size", "tp"),
    WHEN("fp16.enabled", "precision", "fp16"),
    ONLY("fp16.loss_scale", NULL, "0", "0: weft only has dynamic loss scaling"),
    SET("fp16.loss_scale_window", "loss-scale-steps"),
    TAKE("fp16.initial_scale_power", "loss-scale", take_scale_power),
    WHEN("bf16.enabled", "precision", "bf16"),
    WHEN("bfloat16.enabled", "precision", "bf16"),
    {.path = "optimizer.type", .option = "optimizer", .take = key_take_optimizer, .any_case = true,
     .words = "AdamW=adamw Adam=adamw FusedAdam=adamw DeepSpeedCPUAdam=adamw CPUAdam=adamw TorchAdam=adamw "
              "Lion=lion FusedLion=lion DeepSpeedCPULion=lion SGD=sgd Muon=muon",
     .expects = "AdamW, Adam, FusedAdam or DeepSpeedCPUAdam (all mean AdamW here), Lion, SGD or Muon"},
    SET("optimizer.params.lr", "lr"),
    TAKE("optimizer.params.betas", "beta1", take_betas),
    SET("optimizer.params.eps", "eps"),
    SET("optimizer.params.weight_decay", "weight-decay"),
    SET("optimizer.params.momentum", "momentum"),
    SET("optimizer.params.nesterov", "nesterov"),
    SET("optimizer.params.adam_lr", "adamw-lr"),
    SET("optimizer.params.max_grad_norm", "clip"),
    ONLY("optimizer.params.adam_w_mode", NULL, "true", ADAMW),
    ONLY("optimizer.params.bias_correction", NULL, "true", ADAMW),
    OFF("optimizer.params.amsgrad", "weft has no AMSGrad"),
    OFF("optimizer.params.dampening", "weft's momentum has no dampening"),
    {.path = "scheduler.type", .option = "schedule", .take = take_scheduler, .any_case = true,
     .words = "WarmupLR=constant WarmupDecayLR=linear WarmupCosineLR=cosine",
     .expects = "WarmupLR, WarmupDecayLR or WarmupCosineLR"},
    ONLY("scheduler.params.warmup_min_lr", NULL, "0", FROM_ZERO),
    ONLY("scheduler.params.warmup_min_ratio", NULL, "0", FROM_ZERO),
    SET("scheduler.params.warmup_max_lr", "lr"),
    SET("scheduler.params.warmup_num_steps", "warmup"),
    SET("scheduler.params.warmup_type", "warmup-type"),
    SET("scheduler.params.total_num_steps", "steps"),
    TAKE("scheduler.params.cos_min_ratio", NULL, key_take_min_ratio),
};

static const char *const unused[] = {
    "aio", "checkpoint", "comet", "comms_logger", "compile", "csv_monitor", "dataloader_drop_last",
    "disable_allgather", "dump_state", "eigenvalue", "flops_profiler", "fp32_allreduce",
    "gradient_predivide_factor", "graph_harvesting", "hybrid_engine", "load_universal_checkpoint",
    "memory_breakdown", "monitor_config", "nebula", "prescale_gradients",
    "seq_parallel_communication_data_type", "steps_per_print", "tensorboard", "timers",
    "use_data_before_expert_parallelism", "use_node_local_storage", "wall_clock_breakdown", "wandb",
    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "activation_checkpointing.profile",
    "activation_checkpointing.synchronize_checkpoint_boundary", "bf16.check_grad_overflow",
    "bf16.check_overflow", "bf16.immediate_grad_update", "bf16.loss_scale", "bf16.initial_scale_power",
    "bf16.auto_cast", "fp16.auto_cast", "fp16.consecutive_hysteresis", "fp16.hysteresis",
    "fp16.min_loss_scale", "optimizer.legacy_fusion", "optimizer.params.foreach", "optimizer.params.fused",
    "optimizer.params.torch_adam", "pipeline.chunks", "pipeline.enabled", "pipeline.grad_partitioned",
    "pipeline.partition", "pipeline.partition_method", "pipeline.pipe_partitioned", "pipeline.seed_layers",
    "pipeline.use_reentrant", "scheduler.params.last_batch_iteration",
    "zero_optimization.allgather_bucket_size", "zero_optimization.allgather_partitions",
    "zero_optimization.contiguous_gradients", "zero_optimization.cpu_offload_use_pin_memory",
    "zero_optimization.elastic_checkpoint", "zero_optimization.gather_16bit_weights_on_model_save",
    "zero_optimization.ignore_unused_parameters", "zero_optimization.legacy_stage1",
    "zero_optimization.load_from_fp32_weights", "zero_optimization.log_trace_cache_warnings",
    "zero_optimization.max_live_parameters", "zero_optimization.max_reuse_distance",
    "zero_optimization.memory_efficient_linear", "zero_optimization.mics_hierarchical_params_gather",
    "zero_optimization.model_persistence_threshold", "zero_optimization.offload_optimizer.buffer_count",
    "zero_optimization.offload_optimizer.buffer_size", "zero_optimization.offload_optimizer.fast_init",
    "zero_optimization.offload_optimizer.nvme_path", "zero_optimization.offload_optimizer.pin_memory",
    "zero_optimization.offload_optimizer.pipeline", "zero_optimization.offload_optimizer.pipeline_read",
    "zero_optimization.offload_optimizer.pipeline_write", "zero_optimization.offload_optimizer.ratio",
    "zero_optimization.offload_param.buffer_count", "zero_optimization.offload_param.buffer_size",
    "zero_optimization.offload_param.max_in_cpu", "zero_optimization.offload_param.nvme_path",
    "zero_optimization.offload_param.pin_memory", "zero_optimization.overlap_comm",
    "zero_optimization.param_persistence_threshold", "zero_optimization.prefetch_bucket_size",
    "zero_optimization.reduce_bucket_size", "zero_optimization.reduce_scatter",
    "zero_optimization.round_robin_gradients", "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save",
    "zero_optimization.stage3_max_live_parameters", "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.stage3_module_granularity_threshold",
    "zero_optimization.stage3_param_persistence_threshold", "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.sub_group_size", "zero_optimization.use_all_reduce_for_fetch_params",
    "zero_optimization.use_multi_rank_bucket_allreduce", "zero_optimization.zero_hpz_partition_size",
    "zero_optimization.zero_quantized_nontrainable_weights", NULL
};
/* clang-format on */

const KeyTable deepspeed_keys = {.keys = keys, .count = COUNT_OF(keys), .unused = unused};
