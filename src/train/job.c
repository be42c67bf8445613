/* Resolving a configuration into a model, a task and a device, and loading the weights. */
#include "train/job.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/progress.h"
#include "base/setting.h"
#include "checkpoint/adapter.h"
#include "checkpoint/checksums.h"
#include "data/chats.h"
#include "data/released.h"
#include "data/squad_features.h"
#include "data/task.h"
#include "model/head.h"
#include "model/rope.h"
#include "model/upcycle.h"

static Status parse_format(const char *name, DataFormat *ret_format) {
    for (int i = 0; i < FORMAT_COUNT; i++) {
        if (strcmp(name, data_format_name((DataFormat)i))) continue;
        *ret_format = (DataFormat)i;
        return OK;
    }
    return USAGE("unknown format '%s'; expected auto, bytes, u16, u32, ids, tokens, text, squad, pairs, "
                 "cornell, records or chat",
                 name);
}

static int64_t byte_vocab(const ModelConfig *config) {
    return config->family->byte_specials ? BYTE_VOCAB_BERT : BYTE_VOCAB_GPT2;
}

/* A preset takes its vocabulary and special tokens from the data. */
static void change_vocab(const Job *job, ModelConfig *config) {
    bool decoder = config_is_decoder(config);
    const SpecialTokens *special = &job->tokens.special;
    if (job->bytes) {
        config->vocab = byte_vocab(config);
        if (decoder)
            config->bos_token = config->eos_token = BYTE_END;
        else
            config->pad_token = BYTE_PAD;
    } else if (job->tokens_known) {
        config->vocab = job->tokens.vocab;
        if (decoder)
            config->bos_token = config->eos_token = special->end >= 0 ? special->end : special->sep;
        else if (special->pad >= 0)
            config->pad_token = special->pad;
    }
    if (job->settings.model.vocab) config->vocab = job->settings.model.vocab;
    if (config->eos_token >= config->vocab) config->bos_token = config->eos_token = -1;
}

/* A usage error if sequences are longer than the context of `what`, which may be extended. */
static Status check_seq(const ModelSettings *model, const char *what, const ModelConfig *config) {
    int64_t context = config_context(config);
    char extension[ROPE_TEXT];
    if (model->seq <= context) return OK;
    rope_extension(config, model->seq, extension);
    if (!*extension)
        return USAGE("{seq} %lld exceeds the context length of %s (%lld)", (long long)model->seq, what,
                     (long long)context);
    if (model->rope_scaling)
        return USAGE("{seq} %lld exceeds the context length that {rope-scaling} %s gives %s (%lld); use "
                     "{rope-scaling} %s",
                     (long long)model->seq, model->rope_scaling, what, (long long)context, extension);
    return USAGE("{seq} %lld exceeds the context length of %s (%lld); add {rope-scaling} %s to extend it",
                 (long long)model->seq, what, (long long)context, extension);
}

/* Makes a dense preset a mixture, or changes the sizes of one. */
static Status change_experts(const ModelSettings *model, ModelConfig *config) {
    if (!config->experts) {
        if (!model->experts && (model->top_k || model->expert_inner))
            return USAGE("{%s} is for mixtures of experts; add {experts} to make the preset one",
                         model->top_k ? "top-k" : "expert-inner");
        if (!model->experts) return OK;
        TRY(config_upcycle(config, model->experts, model->top_k));
    } else if (model->inner && config->expert_inner == config->inner) {
        config->expert_inner = model->inner;
    }
    if (model->experts) config->experts = model->experts;
    if (model->top_k) config->top_k = model->top_k;
    if (model->expert_inner) config->expert_inner = model->expert_inner;
    if (config->top_k > config->experts)
        return USAGE("{top-k} %lld: the model has %lld expert%s; use at most as many",
                     (long long)config->top_k, (long long)config->experts, PLURAL(config->experts));
    return OK;
}

Status job_change_preset(const ModelSettings *model, ModelConfig *config) {
    int64_t width = config->hidden;
    if (model->layers) config->layers = model->layers;
    if (model->hidden) config->hidden = model->hidden;
    if (config->hidden != width) { /* the same proportions */
        config->inner = config->inner * config->hidden / width;
        config->expert_inner = config->expert_inner * config->hidden / width;
        config->shared_inner = config->shared_inner * config->hidden / width;
        if (!model->heads && config->hidden % config->heads)
            return USAGE("{hidden} %lld is not a multiple of the preset's %lld heads; set {heads} too",
                         (long long)config->hidden, (long long)config->heads);
    }
    if (model->heads) {
        if (config->kv_heads && model->heads % config->kv_heads) config->kv_heads = model->heads;
        config->heads = model->heads;
    }
    if (model->inner) config->inner = model->inner;
    TRY(change_experts(model, config));
    if (model->untie) config->tied = false;
    if (model->rope_scaling) {
        TRY(rope_extend(model->rope_scaling, config));
        return check_seq(model, "the preset", config);
    }
    if (model->seq) config->positions = model->seq;
    return OK;
}

static Status refuse_changes(const ModelSettings *model, const char *dir, const ModelConfig *config) {
    const struct {
        const char *setting;
        int64_t asked, is;
    } fixed[] = {{"layers", model->layers, config->layers},
                 {"hidden", model->hidden, config->hidden},
                 {"heads", model->heads, config->heads},
                 {"inner", model->inner, config->inner},
                 {"experts", model->experts, config->experts},
                 {"top-k", model->top_k, config->top_k},
                 {"expert-inner", model->expert_inner, config->expert_inner},
                 {"vocab", model->vocab, config->vocab}};
    if (model->experts && !config->experts)
        return USAGE(
            "{experts} %lld: the checkpoint %s is dense; 'weft convert' with {experts} makes it a mixture",
            (long long)model->experts, dir);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (fixed[i].asked && fixed[i].asked != fixed[i].is)
            return USAGE("{%s} %lld: the checkpoint %s has %lld, and a checkpoint's size cannot be changed",
                         fixed[i].setting, (long long)fixed[i].asked, dir, (long long)fixed[i].is);
    if (model->untie && config->tied)
        return USAGE("{untie}: the checkpoint %s has no output matrix of its own; {untie} is for presets",
                     dir);
    char what[512];
    snprintf(what, sizeof what, "the checkpoint %s", dir);
    return check_seq(model, what, config);
}

/* The task of a model: the first of its family unless it has the head of another one, to which it was
 * fine-tuned. */
static Task task_of(const ModelConfig *config) {
    Task first = family_task(config->family);
    for (Task task = first + 1; task < TASK_COUNT; task++)
        if (task_heads(task) & config->outputs_mask) return task;
    return first;
}

/* A list for a message, of the tasks that train one of these heads. */
enum { TASKS_TEXT = 128 };
static const char *list_tasks(unsigned heads, char text[TASKS_TEXT]) {
    const char *names[2 * TASK_COUNT];
    int count = 0, used = 0;
    for (Task task = 0; task < TASK_COUNT; task++) {
        if (!(task_heads(task) & heads)) continue;
        names[count++] = task_names[task];
        if (task_data(task)->alias) names[count++] = task_data(task)->alias;
    }
    for (int i = 0; i < count; i++)
        used += snprintf(text + used, (size_t)(TASKS_TEXT - used), "%s%s",
                         i == 0          ? ""
                         : i + 1 < count ? ", "
                                         : " or ",
                         names[i]);
    return text;
}

/* The task with this name or alias; TASK_COUNT: none. */
static Task task_named(const char *name) {
    Task task = 0;
    for (; task < TASK_COUNT; task++) {
        const char *alias = task_data(task)->alias;
        if (!strcmp(name, task_names[task]) || (alias && !strcmp(name, alias))) break;
    }
    return task;
}

static Status find_task(const char *name, const ModelConfig *config, Task *ret_task) {
    unsigned supported = config->family->outputs;
    char text[TASKS_TEXT];
    Task task = strcmp(name, "auto") ? task_named(name) : task_of(config);
    if (task == TASK_COUNT) return USAGE("unknown task '%s'; expected %s", name, list_tasks(~0u, text));
    if (!(task_heads(task) & supported))
        return USAGE("task %s is not supported by %s; use %s", task_names[task], config->family->title,
                     list_tasks(supported, text));
    *ret_task = task;
    return OK;
}

Status job_find_formats(Job *job) {
    const char *name = job->settings.model.task;
    Task task = task_named(name);
    ModelConfig config = {0};
    if (task == TASK_COUNT && job->model_dir) {
        TRY(hf_config_read(job->model_dir, &config));
        TRY(find_task(name, &config, &task));
    }
    if (task == TASK_COUNT) return OK;
    const TaskData *data = task_data(task);
    job->task = task;
    job->tables = data->tables;
    if (data->alias && !strcmp(name, data->alias)) job->unknown = data->unknown;
    return OK;
}

/* Chooses the task from the configuration or the model's heads, then keeps only the heads that it needs. */
static Status resolve_task(const ModelSettings *model, ModelConfig *config, Task *ret_task) {
    unsigned without = (model->no_next_sentence ? OUTPUT_NSP : 0) | (model->no_masks ? OUTPUT_MLM : 0);
    TRY(find_task(model->task, config, ret_task));
    unsigned heads = task_heads(*ret_task) & config->family->outputs & ~without;
    if (!heads)
        return USAGE("task %s has no objective left; remove {no-masked-tokens} or {no-next-sentence}",
                     task_names[*ret_task]);
    config->outputs_mask &= heads;
    if (!config->outputs_mask) config->outputs_mask = heads;
    if (model->headless) config->outputs_mask = 0;
    HeadTraits traits = heads_traits(config->outputs_mask);
    config->pooler = traits.pooled;
    if (traits.labeled && model->labels) config->labels = model->labels;
    return OK;
}

/* Special tokens come from the data's tokenizer, else from the checkpoint's vocabulary file, else from the
 * byte vocabulary or from BERT's published vocabularies, which differ in size but share these ids. */
static Status special_tokens(const Job *job, const ModelConfig *config, SpecialTokens *ret_special) {
    SpecialTokens none = {-1, -1, -1, -1, -1, -1}, special = none;
    if (job->tokens_known && !job->bytes)
        special = job->tokens.special;
    else if (job->model_dir)
        TRY(special_tokens_read(job->model_dir, &special));
    bool named = special.cls >= 0 || special.sep >= 0 || special.mask >= 0;
    bool from_tokenizer =
        job->tokens_known && !job->bytes; /* a token missing from a tokenizer does not exist */
    if (config_is_decoder(config))
        special = none;
    else if (!named && !from_tokenizer && config->vocab == BYTE_VOCAB_BERT)
        special = (SpecialTokens){BYTE_PAD, BYTE_CLS, BYTE_SEP, BYTE_MASK, BYTE_UNK, -1};
    else if (!named && !from_tokenizer)
        special = config->vocab >= 28996 ? (SpecialTokens){0, 101, 102, 103, 100, -1} : none;
    if (special.pad < 0) special.pad = (int32_t)config->pad_token;
    *ret_special = special;
    return OK;
}

/* The token that ends a document is the tokenizer's, as in weft prepare, or without one the model's. */
static Status find_end_token(Job *job, const ModelConfig *config) {
    const SpecialTokens *special = &job->tokens.special;
    job->end_token = config->eos_token;
    if (job->bytes)
        job->end_token = BYTE_END;
    else if (job->tokens_known)
        job->end_token = special->end >= 0 ? special->end : special->sep;
    if (!job->settings.data.text.no_cross_document) return OK;
    if (!config_is_decoder(config))
        return USAGE(
            "{no-cross-document} is for language models; %s reads a whole sequence in both directions",
            config->family->title);
    if (!config_causal(config))
        return USAGE("{no-cross-document} needs a causal model, but this one attends in both directions "
                     "('is_causal' is false in config.json)");
    if (job->end_token >= 0) return OK;
    return USAGE("{no-cross-document} needs a token that ends a document, but %s has none",
                 job->tokens_known ? "the data's tokenizer" : "the model");
}

/* What determines the size of the vocabulary: `dir`, or without one the setting. */
enum { VOCAB_SOURCE = 16 };
static const char *vocab_source(const char *dir, char text[VOCAB_SOURCE]) {
    setting_print(text, VOCAB_SOURCE, "{vocab}");
    return dir ? dir : text;
}

static Status check_bytes(const char *dir, const ModelConfig *config) {
    int64_t needed = byte_vocab(config);
    char source[VOCAB_SOURCE];
    if (config->vocab >= needed && config->vocab < needed + BYTE_PADDING) return OK;
    return USAGE("the data is bytes, which need a vocabulary of %lld, but %s has %lld; pass its tokenizer "
                 "({tokenizer} DIR), or use token files ({format} u16, u32 or ids)",
                 (long long)needed, vocab_source(dir, source), (long long)config->vocab);
}

/* The model's vocabulary must cover every token, with at most the usual padding. */
static Status check_vocab(const Job *job, const ModelConfig *config) {
    if (job->bytes) return check_bytes(job->model_dir, config);
    int64_t needed = job->tokens_known ? job->tokens.vocab : config->vocab;
    if (tokenizer_fits(needed, config->vocab)) return OK;
    char text[TOKENIZER_ID_TEXT], source[VOCAB_SOURCE];
    return USAGE("%s has a vocabulary of %lld, which does not match the tokenizer %s (%s)",
                 vocab_source(job->model_dir, source), (long long)config->vocab, job->tokenizer_name,
                 tokenizer_id_text(&job->tokens, text));
}

static Status find_preset(const char *name, ModelConfig *ret_config) {
    char hint[RELEASED_HINT];
    Status unknown = config_preset(name, ret_config);
    if (!unknown) return OK;
    released_hint(name, true, hint);
    if (!*hint && !strchr(name, '/') && !path_exists(name)) return unknown; /* it suggests presets */
    status_free(unknown);
    return USAGE("model '%s': %s%s", name,
                 path_exists(name)     ? "not a directory; expected a checkpoint directory or a preset"
                 : strstr(name, "://") ? "a URL; expected a checkpoint directory or a preset"
                                       : "no such directory",
                 hint);
}

static Status resolve_model(Job *job, ModelConfig *ret_config) {
    const ModelSettings *model = &job->settings.model;
    ModelConfig config;
    if (job->model_dir) {
        TRY(hf_config_read(job->model_dir, &config));
        if (model->rope_scaling) TRY(rope_extend(model->rope_scaling, &config));
        TRY(refuse_changes(model, job->model_dir, &config));
        if (config_quantized(&config) && job->settings.run.train)
            return FAILED(
                "%s is quantized to int%d and cannot be trained; use the checkpoint it was quantized from",
                job->model_dir, packing_bits(config.packed_layers));
    } else {
        TRY(find_preset(model->name, &config));
        TRY(job_change_preset(model, &config));
        change_vocab(job, &config);
    }
    TRY(resolve_task(model, &config, &job->task));
    TRY(task_prepare(job, &config));
    if (job->settings.run.train && model->dropout >= 0)
        config.dropout_embed = config.dropout_attn = config.dropout_hidden = config.dropout_classify =
            (float)model->dropout;
    TRY(check_vocab(job, &config));
    job->seq = model->seq ? model->seq : config.positions;
    if (job->squad && !model->seq && job->seq > SQUAD_SEQ) job->seq = SQUAD_SEQ;
    if (job->chats && !model->seq && job->seq > CHAT_SEQ) job->seq = CHAT_SEQ;
    TRY(special_tokens(job, &config, &job->special));
    TRY(find_end_token(job, &config));
    TRY(seq_warmup_init(&job->seq_warmup, &job->settings.training, &config, job->seq));
    job->next_sentence = config_has(&config, OUTPUT_NSP);
    job->no_masks = job->next_sentence && !config_has(&config, OUTPUT_MLM);
    *ret_config = config;
    return OK;
}

int64_t job_micro_batch(int64_t batch, int64_t dp, int64_t pp) {
    int64_t share = batch / dp, micro = pp > 1 ? share / (4 * pp) : share;
    while (micro > 1 && share % micro) micro--;
    return micro < 1 ? 1 : micro;
}

static Status find_optimizer(const TrainingSettings *training, const Optimizer **ret_kind) {
    return optim_find(training->optimizer ? training->optimizer : optim_row(0)->name, ret_kind);
}

Status job_default_optim(Settings *settings) {
    const Optimizer *kind = NULL;
    TRY(find_optimizer(&settings->training, &kind));
    settings->run.optim = optim_defaults(kind);
    return OK;
}

#define TRY_SMALLER   "a smaller {micro-batch}, {recompute} block, "
#define TRY_SPLITTING "a higher {zero} on more ranks, or a smaller model"

static Status resolve_device(Job *job) {
    const DeviceSettings *device = &job->settings.device;
    Precision precision = {0};
    TRY(kernels_check_device(device->name, device->kernels));
    TRY(kernels_precision(device->name, device->precision, &precision));
    if (!device->on) TRY(device_new(&job->own_device, device->name, 0, (int)device->threads));
    job->device = device->on ? device->on : job->own_device;
    if (job->settings.run.train)
        job->device->advice = device_is_host(job->device) ? TRY_SMALLER TRY_SPLITTING
                                                          : TRY_SMALLER
                                  "{offload} params+activations, " TRY_SPLITTING;
    if (device_is_dryrun(job->device)) return OK;
    device_allow_tf32(job->device, precision.tf32);
    return device_check_precision(job->device, precision.name);
}

static int64_t count_matches(const Model *model, const OptimGroup *group) {
    int64_t count = 0;
    for (ModelParam param = {0}; model_param_next(model, &param);)
        count += optim_group_matches(group, param.desc);
    return count;
}

/* Parses the parameter groups. Every group must match a parameter. */
static Status resolve_groups(Job *job) {
    const TrainingSettings *training = &job->settings.training;
    TRY(mem_new((size_t)training->group_count, sizeof *job->group, &job->group));
    for (int i = 0; i < training->group_count; i++) {
        TRY(optim_group_parse(training->group[i], &job->group[i]));
        if (!count_matches(job->model, &job->group[i]))
            return USAGE("{group} '%s': no parameter of the model matches '%s'; names are like "
                         "'embed.token', 'layer.0.attn.qkv.weight' and 'layer.0.norm1.bias'",
                         training->group[i], job->group[i].pattern);
    }
    job->settings.run.optim.group = job->group;
    job->settings.run.optim.groups = training->group_count;
    return OK;
}

Status job_adapt(const TrainingSettings *training, Model *model) {
    const LoraSettings *given = &training->lora;
    LoraConfig lora = {.rank = (int)given->rank,
                       .alpha = (float)(given->alpha > 0 ? given->alpha : 2 * (double)given->rank),
                       .dropout = (float)given->dropout,
                       .rslora = given->rslora};
    if (!lora.rank) return model_freeze(model, training->freeze, training->freeze_count);
    return lora_adapt(model, lora, given->targets, given->targets_count, training->freeze,
                      training->freeze_count);
}

/* Adapters read inputs that fp8 and quantization-aware training do not keep as they are. */
static Status check_adapters(const Job *job) {
    const RunnerSpec *run = &job->settings.run;
    if (!job->settings.training.lora.rank) return OK;
    bool saved = job->settings.ckpt.out, again = false;
    if (saved && !job->model_dir)
        return USAGE(
            "{lora}: {model} %s is a preset with random weights, which checkpoints of adapters would not "
            "have; use a checkpoint directory",
            job->settings.model.name);
    if (saved) TRY(adapter_in(job->model_dir, &again));
    if (again)
        return USAGE(
            "{lora}: {model} %s has adapters already; merge them with 'weft convert' and use the result",
            job->settings.model.name);
    if (run->base && run->outer.every)
        return USAGE("{lora-base} cannot be combined with {sync-every}; drop one of them");
    if (run->fp8) return USAGE("{lora} cannot be combined with {precision} fp8; use bf16");
    if (run->fake_quant)
        return USAGE("{lora} cannot be combined with {quantize-aware}; merge the adapters before");
    return OK;
}

/* Completes what the runner needs apart from the layout. */
static Status resolve_run(Job *job) {
    const TrainingSettings *training = &job->settings.training;
    const DeviceSettings *device = &job->settings.device;
    RunnerSpec *run = &job->settings.run;
    run->seq = job->seq;
    const Mesh *mesh = run->mesh;
    if (!run->micro_batch)
        run->micro_batch = job_micro_batch(training->batch, mesh ? mesh->extent[AXIS_DP] : 1,
                                           mesh ? mesh->extent[AXIS_PP] : 1);
    TRY(find_optimizer(training, &run->optim.kind));
    if (training->lr > 0) run->optim.adamw_lr = training->adamw_lr / training->lr;
    return device_is_dryrun(job->device) ? kernels_dryrun(device->name, &run->table)
                                         : kernels_for(device->name, device->kernels, &run->table);
}

/* Where only rank 0 has the directories of model and tokenizer, the others read mirrors. */
static Status open_mirrors(Job *job) {
    const char **tokenizer = &job->settings.data.text.tokenizer;
    TRY(root_disk_new(&job->disk, job->settings.ckpt.files, job->device));
    TRY(mirror_init(&job->model_mirror, job->disk, job->first && job->model_dir ? job->model_dir : ""));
    job->model_dir = job->model_mirror.path;
    if (!*tokenizer || !strcmp(*tokenizer, "bytes")) return OK;
    TRY(mirror_init(&job->tokenizer_mirror, job->disk, *tokenizer));
    if (job->tokenizer_mirror.path) *tokenizer = job->tokenizer_mirror.path;
    return OK;
}

Status job_new(Job **ret_job, const Settings *settings, JobUse use) {
    CLEANUP(job_freep) Job *job = NULL;
    TRY(mem_new(1, sizeof *job, &job));
    job->settings = *settings;
    RunnerSpec *run = &job->settings.run;
    run->train = use == JOB_TRAIN;
    TRY(parse_format(settings->data.format, &job->format));
    job->first = !run->mesh || run->mesh->rank == 0;
    TRY(resolve_device(job));
    if (path_is_dir(settings->model.name) || model_path_is_file(settings->model.name))
        TRY(model_dir_open(&job->source, settings->model.name));
    job->model_dir = job->source.path;
    if (settings->ckpt.files) TRY(open_mirrors(job));
    TRY(job_resolve_data(job));
    ModelConfig config;
    TRY(resolve_model(job, &config));
    if (settings->model.whole_words && task_data(job->task)->picks) TRY(job_find_words(job, config.vocab));
    TRY(resolve_run(job));
    TRY(job_resolve_layout(job, &config));
    if (config_quantized(&config) && run->mesh && run->mesh->axis[AXIS_TP]->size > 1)
        return USAGE("{tp} %d: %s is quantized, and quantized weights cannot be split; drop {tp}",
                     run->mesh->axis[AXIS_TP]->size, job->model_dir);
    if (config_quantized(&config) && run->mesh && run->mesh->expert->size > 1)
        return USAGE(
            "{ep} %d: %s is quantized, and quantized weights cannot be divided among ranks; drop {ep}",
            run->mesh->expert->size, job->model_dir);
    TRY(hf_quantized_check(job->model_dir, &config, job->device, run->dtype));
    if (!run->train && (!run->mesh || run->mesh->world->size == 1))
        hf_sparse_choose(&config, job->device, run->dtype);
    TRY(model_new(&job->model, &config));
    if (run->train) TRY(check_adapters(job));
    if (run->train) TRY(job_adapt(&settings->training, job->model));
    TRY(resolve_groups(job));
    return MOVE(ret_job, job);
}

CheckpointState runner_checkpoint(const Runner *runner) {
    const Mesh *mesh = runner->mesh;
    CheckpointState state = {.params = runner->outer ? runner->outer : runner->params,
                             .state = runner->state,
                             .optim = &runner->spec.optim,
                             .mesh = runner->spec.mesh};
    if (runner->outer)
        state.workers = (WorkerState){.count = mesh->replica->size,
                                      .index = mesh->replica->rank,
                                      .params = runner->params,
                                      .outer_momentum = runner->outer_momentum,
                                      .outer_grad = runner->outer_grad};
    if (runner->residual)
        state.replicas = (ReplicaState){.count = mesh->shard->size * mesh->replica->size,
                                        .index = mesh_number(mesh, AXES_COPIES, mesh->rank),
                                        .experts = mesh->ep,
                                        .residual = runner->residual};
    return state;
}

/* Merges adapters into the model or, if it trains adapters, starts these from one. */
static Status load_adapters(Job *job) {
    const ModelSettings *model = &job->settings.model;
    Runner *runner = job->runner;
    if (!job->model->config.lora.rank)
        return adapters_merge(model->adapters, model->adapters_count, runner->params, job->disk,
                              runner->stream);
    if (model->adapters_count > 1) return USAGE("{adapter}: adapters start from one adapter; give one");
    return model->adapters_count ? adapter_load(model->adapters[0], runner->params, job->disk, runner->stream)
                                 : OK;
}

Status job_start(Job *job, LoadReport *ret_report) {
    LoadReport report = {0};
    if (job->model_dir) { /* check shapes first: a wrong config must not allocate */
        TRY(hf_weights_check(job->model_dir, job->model, &report));
        load_report_done(&report);
    }
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(progress_new_phase(&progress, job->settings.report.log,
                           job->model_dir ? "loading model" : "initializing model", 0,
                           job->settings.report.quiet));
    if (job->model_dir)
        TRY(checksums_verify_at(job->model_dir, job->disk, VERIFY_WEIGHTS, job->settings.run.mesh));
    TRY(runner_new(&job->runner, job->model, job->device, &job->settings.run));
    if (job->model_dir) TRY(hf_quantized_load(job->model_dir, job->model, &job->runner->exec));
    if (job->model_dir) TRY(hf_sparse_load(job->model_dir, job->model, &job->runner->exec));
    TRY(store_init_params(job->runner->params, job->runner->stream, job->settings.run.seed));
    *ret_report = (LoadReport){0};
    if (job->model_dir)
        TRY(hf_weights_receive(job->model_dir, job->disk, job->runner->params, job->runner->stream,
                               ret_report));
    TRY(load_adapters(job));
    mirror_clear(&job->model_mirror);
    mirror_clear(&job->tokenizer_mirror);
    return runner_publish(job->runner);
}

void job_free(Job *job) {
    if (!job) return;
    runner_free(job->runner);
    model_free(job->model);
    root_disk_free(job->disk);
    device_free(job->own_device);
    tokenizer_free(job->tokenizer);
    chat_template_free(job->chat);
    if (job->scratch_dir) {
        Status status = dir_remove(job->scratch_dir);
        status_free(status);
    }
    free(job->scratch_dir);
    free(job->continues);
    free(job->group);
    label_set_done(&job->labels);
    free(job->prepared);
    free(job->tokenizer_name);
    free(job->tokenizer_dir);
    model_dir_done(&job->source);
    mirror_done(&job->model_mirror);
    mirror_done(&job->tokenizer_mirror);
    free(job);
}

Status job_fingerprint(const Job *job, const Dataset *data, uint64_t *ret_fingerprint) {
    enum { SAMPLES = 16 };
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    TRY(host_batch_new_targets(&batch, 1, job->seq, config_targets(&job->model->config)));
    int64_t count = dataset_count(data);
    uint64_t fingerprint = (uint64_t)count;
    for (int64_t i = 0; i < SAMPLES && i < count; i++) {
        TRY(dataset_fill(data, (uint64_t)(count < SAMPLES ? i : i * (count / SAMPLES)), false, batch));
        for (int64_t t = 0; t < job->seq; t++) fingerprint = rng_mix(fingerprint, (uint64_t)batch->tokens[t]);
    }
    *ret_fingerprint = fingerprint;
    return OK;
}

void job_report(const Job *job, const LoadReport *report, Progress *progress) {
    for (size_t i = 0; i < report->missing_count; i++)
        progress_line(progress, "warning: %s is missing from %s and is newly initialized", report->missing[i],
                      job->model_dir);
    for (size_t i = 0; i < report->unexpected_count; i++)
        progress_line(progress, "%s in %s is not used by this model", report->unexpected[i], job->model_dir);
}

double job_forward_flops_per_token(const Job *job) {
    const ModelConfig *c = &job->model->config;
    double A = (double)config_attention(c), K = (double)config_kv_width(c), C = (double)c->hidden, seen = 0;
    double mlp = (c->gated ? 3 : 2) * (double)c->inner;
    double sparse = (double)(c->experts + 3 * (c->top_k * c->expert_inner + c->shared_inner));
    double sparse_layers = (double)config_sparse_layers(c), dense_layers = (double)c->layers - sparse_layers;
    for (int i = 0; i < c->layers; i++) {
        int64_t window = config_window(c, i);
        seen += (double)(window && window < job->seq ? window : job->seq);
    }
    double attention = 2 * A * seen / (double)c->layers;
    double head = config_is_decoder(c) ? (double)c->hidden * (double)c->vocab : 0;
    double layers = (double)c->layers * (2 * C * (A + K) + attention);
    return 2.0 * (layers + C * (dense_layers * mlp + sparse_layers * sparse) + head);
}

double job_flops_per_token(const Job *job) {
    double all = 0, done = 0;
    for (int i = 0; i < job->model->count; i++) {
        const Block *block = &job->model->block[i];
        all += block->ops->flops(block, job->seq);
        done += model_block_flops(job->model, i, job->seq);
    }
    return 3 * job_forward_flops_per_token(job) * (done / all);
}
