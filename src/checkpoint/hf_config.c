/* config.json of a checkpoint <-> ModelConfig: what all families share. A family reads and writes its own
 * fields (model/family.h).
 *
 * Absent fields get transformers' defaults. The class in `architectures` determines the output heads. A
 * combination of heads that no class has is written as the nearest class, with the exact list under weft's
 * own key, "weft", which transformers ignores. Settings that weft does not implement are errors that give
 * the field and its value. */
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/adapter.h"
#include "checkpoint/hf_save.h"
#include "data/released.h"
#include "model/family.h"
#include "model/fields.h"
#include "model/head.h"

/* A list of names for a message. */
enum { LIST_TEXT = 1024 };
static void add_choice(char text[LIST_TEXT], const char *name) {
    size_t used = strlen(text);
    snprintf(text + used, LIST_TEXT - used, used ? ", %s" : "%s", name);
}

/* ---- reading ---- */

static Status read_one_token(const json_t *value, const char *from, const char *key, int64_t *token) {
    if (!value) return OK;
    if (json_is_null(value)) {
        *token = -1;
        return OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < -1 || json_integer_value(value) > INT32_MAX)
        return FAILED("%s: '%s' must be a token id or null", from, key);
    *token = json_integer_value(value);
    return OK;
}

/* A special token: an integer or, in newer files, a list, whose first entry is used. */
static Status read_token(const json_t *json, const char *from, const char *key, int64_t *token) {
    const json_t *value = json_object_get(json, key);
    return read_one_token(json_is_array(value) ? json_array_get(value, 0) : value, from, key, token);
}

/* Reads all EOS tokens. */
static Status read_eos(const json_t *json, const char *from, ModelConfig *config) {
    static const char key[] = "eos_token_id";
    TRY(read_token(json, from, key, &config->eos_token));
    const json_t *list = json_object_get(json, key);
    size_t count = json_array_size(list); /* 0 for anything but a list */
    if (count > 1 + MORE_EOS)
        return FAILED("%s: '%s' lists %zu tokens; expected at most %d", from, key, count, 1 + MORE_EOS);
    for (size_t i = 1; i < count; i++) {
        int64_t end = -1;
        TRY(read_one_token(json_array_get(list, i), from, key, &end));
        if (end >= 0) config->eos_more[config->eos_more_count++] = end;
    }
    return OK;
}

static Status read_labels(const json_t *json, const char *from, int64_t *labels) {
    int64_t number = 0;
    TRY(json_get_int(json, from, "num_labels", 1, MAX_LABELS, &number));
    if (number) *labels = number;
    const json_t *names = json_object_get(json, "id2label");
    if (!names || json_is_null(names)) return OK;
    if (!json_is_object(names))
        return FAILED("%s: 'id2label' must be an object that maps ids to label names", from);
    size_t count = json_object_size(names);
    if (count < 1 || count > MAX_LABELS)
        return FAILED("%s: 'id2label' has %zu labels; expected 1 to %d", from, count, MAX_LABELS);
    if (number && (size_t)number != count)
        return FAILED("%s: 'num_labels' is %lld, but 'id2label' has %zu labels", from, (long long)number,
                      count);
    *labels = (int64_t)count;
    return OK;
}

Status hf_labels_read(const char *dir, int64_t count, LabelSet *ret_labels) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    CLEANUP(label_set_done) LabelSet labels = {0};
    TRY(path_join(&path, dir, "config.json"));
    TRY(json_read_file(path, &json));
    for (int64_t i = 0; i < count; i++) {
        char id[24], name[32];
        snprintf(id, sizeof id, "%lld", (long long)i);
        snprintf(name, sizeof name, "LABEL_%lld", (long long)i);
        const char *given = json_string_value(json_object_get(json_object_get(json, "id2label"), id));
        if (!given) given = name;
        TRY(label_set_add(&labels, given, strlen(given)));
    }
    return MOVE(ret_labels, labels);
}

static Status read_problem(const json_t *json, const char *from, ProblemType *problem) {
    const char *name = NULL;
    char shown[NAME_TEXT];
    TRY(json_get_string(json, from, "problem_type", &name));
    if (!name) return OK;
    for (ProblemType one = PROBLEM_SINGLE_LABEL; one <= PROBLEM_MULTI_LABEL; one++) {
        if (strcmp(problem_name(one), name)) continue;
        *problem = one;
        return OK;
    }
    return FAILED("%s: 'problem_type' is \"%s\"; expected regression, single_label_classification or "
                  "multi_label_classification",
                  from, name_text(shown, name));
}

/* Finds the class named in `architectures`; outputs are untouched if the field is absent or empty. */
static Status find_architecture(const json_t *json, const char *from, const Family **ret_family,
                                Architecture *ret_found) {
    const json_t *list = json_object_get(json, "architectures");
    if (!list || json_is_null(list)) return OK;
    if (!json_is_array(list)) return FAILED("%s: 'architectures' must be a list of names", from);
    if (json_array_size(list) == 0) return OK;
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name) return FAILED("%s: 'architectures' must be a list of names", from);
    char shown[NAME_TEXT], known[LIST_TEXT] = "";
    Architecture one;
    for (const Family *const *family = families(); *family; family++)
        for (int i = 0; family_class(*family, i, &one); i++) {
            add_choice(known, one.name);
            if (strcmp(one.name, name)) continue;
            *ret_family = *family;
            *ret_found = one;
            return OK;
        }
    return FAILED("%s: 'architectures' is \"%s\"; expected one of %s", from, name_text(shown, name), known);
}

/* Sets *family to the family that `model_type` names; without the field, the class's family remains. */
static Status find_family(const json_t *json, const char *from, const Architecture *found,
                          const Family **family) {
    const char *type = NULL;
    char shown[NAME_TEXT], known[LIST_TEXT] = "";
    for (const Family *const *one = families(); *one; one++) add_choice(known, (*one)->type);
    TRY(json_get_string(json, from, "model_type", &type));
    if (!type && !found) return FAILED("%s: 'model_type' is missing; expected one of %s", from, known);
    if (!type) return OK;
    const Family *named = family_find(type);
    if (!named)
        return FAILED("%s: 'model_type' is \"%s\"; expected one of %s", from, name_text(shown, type), known);
    if (found && *family != named)
        return FAILED("%s: 'model_type' is \"%s\", but 'architectures' is \"%s\"", from, type, found->name);
    *family = named;
    return OK;
}

static Status read_head_list(const json_t *list, const char *from, unsigned *ret_mask) {
    unsigned mask = 0;
    size_t index;
    json_t *entry;
    if (!json_is_array(list)) return FAILED("%s: 'weft.heads' must be a list of names", from);
    json_array_foreach((json_t *)(uintptr_t)list, index, entry) {
        const char *name = json_string_value(entry);
        unsigned bit = head_find(name, ~0u);
        char shown[NAME_TEXT], known[HEAD_NAMES];
        if (!bit)
            return FAILED("%s: 'weft.heads' contains \"%s\"; expected %s", from,
                          name_text(shown, name ? name : "(not a string)"), head_names(~0u, NULL, known));
        mask |= bit;
    }
    *ret_mask = mask;
    return OK;
}

/* Output heads and other settings that have no field in transformers. */
static Status read_weft_fields(const json_t *json, const char *from, ModelConfig *config) {
    const json_t *own = json_object_get(json, "weft");
    if (!own || json_is_null(own)) return OK;
    if (!json_is_object(own)) return FAILED("%s: 'weft' must be an object", from);
    const json_t *heads = json_object_get(own, "heads");
    if (heads) TRY(read_head_list(heads, from, &config->outputs_mask));
    TRY(json_get_bool(own, from, "pooler", &config->pooler));
    TRY(field_float(own, from, "dropout_hidden", 0, 1, &config->dropout_hidden));
    return field_float(own, from, "dropout_embed", 0, 1, &config->dropout_embed);
}

/* Quantization methods of `weft quantize`: int8 or int4 weights, with dynamic or static activation scales.
 * Each has its own name, so that a version that supports only some of them rejects the others. */
enum { METHODS = 4 };
static const char *const methods[METHODS] = {"weft-int8", "weft-int4", "weft-int8-static",
                                             "weft-int4-static"};

static Status read_quantization(const json_t *json, const char *from, ModelConfig *config) {
    const json_t *quantization = json_object_get(json, "quantization");
    if (!quantization) return OK;
    const char *method = json_string_value(json_object_get(quantization, "method"));
    size_t at = 0;
    while (at < METHODS && (!method || strcmp(method, methods[at]))) at++;
    if (at == METHODS)
        return FAILED("%s: 'quantization.method' is '%.40s'; expected '%s', '%s', '%s' or '%s'", from,
                      method ? method : "(not a string)", methods[0], methods[1], methods[2], methods[3]);
    config->packed_layers = at & 1 ? PACK_INT4 : PACK_INT8;
    config->static_scales = at & 2;
    bool embedding = false;
    int64_t embedding_bits = 8;
    TRY(json_get_bool(quantization, from, "embedding", &embedding));
    TRY(json_get_int(quantization, from, "embedding_bits", 4, 32, &embedding_bits));
    if (!embedding) return OK;
    if (embedding_bits != 4 && embedding_bits != 8)
        return FAILED("%s: 'quantization.embedding_bits' is %lld; expected 4 or 8", from,
                      (long long)embedding_bits);
    config->packed_embedding = embedding_bits == 4 ? PACK_INT4 : PACK_INT8;
    return OK;
}

/* Other tools' quantized weights. */
static Status refuse_quantized(const json_t *json, const char *from) {
    const json_t *quantization = json_object_get(json, "quantization_config");
    const char *method = json_string_value(json_object_get(quantization, "quant_method"));
    char shown[NAME_TEXT];
    if (!json_is_object(quantization)) return OK;
    bool bits4 = json_is_true(json_object_get(quantization, "load_in_4bit"));
    if (method && !strcmp(method, "bitsandbytes") && bits4) return OK; /* bnb.h */
    return FAILED("%s: 'quantization_config' is set (quant_method \"%s\"), but weft does not read weights "
                  "quantized by other tools; use the original model",
                  from, name_text(shown, method ? method : "unknown"));
}

static Status read_sparsity(const json_t *json, const char *from, ModelConfig *config) {
    const json_t *sparsity = json_object_get(json, "sparsity");
    if (!sparsity) return OK;
    const char *method = json_string_value(json_object_get(sparsity, "method"));
    if (!method || strcmp(method, "weft-sparse"))
        return FAILED("%s: 'sparsity.method' is '%.40s'; expected 'weft-sparse'", from,
                      method ? method : "(not a string)");
    config->sparse = true;
    return OK;
}

/* Fails if `layer_types` is present and differs from what the configuration implies: full attention in the
 * first `window_from` layers and a window in the others. */
static Status check_layer_types(const json_t *json, const char *from, const ModelConfig *config) {
    const json_t *list = json_object_get(json, "layer_types");
    if (!list || json_is_null(list)) return OK;
    if (!json_is_array(list) || (int64_t)json_array_size(list) != config->layers)
        return FAILED("%s: 'layer_types' must be a list of %lld names", from, (long long)config->layers);
    for (int64_t i = 0; i < config->layers; i++) {
        const char *name = json_string_value(json_array_get(list, (size_t)i));
        const char *expected = config_window(config, (int)i) ? "sliding_attention" : "full_attention";
        char shown[NAME_TEXT];
        if (!name || strcmp(name, expected))
            return FAILED("%s: 'layer_types' has \"%s\" for layer %lld, which weft does not support; "
                          "expected \"%s\", as its other fields say",
                          from, name_text(shown, name ? name : "(not a string)"), (long long)i, expected);
    }
    return OK;
}

/* transformers computes null and numbers differently in its two implementations of attention, as it does
 * true for BERT. */
static Status read_direction(const json_t *json, const char *from, ModelConfig *config) {
    static const char key[] = "is_causal";
    if (!config_is_decoder(config)) return field_refuse_true(json, from, key);
    const json_t *value = json_object_get(json, key);
    if (!value) return OK;
    if (!json_is_boolean(value)) return FAILED("%s: '%s' must be true or false", from, key);
    config->attention = json_is_true(value) ? ATTEND_CAUSAL : ATTEND_ALL;
    return OK;
}

/* Absent fields have defaults, but null is no value of these: transformers fails, or takes it as false. */
static Status refuse_null(const json_t *json, const char *from) {
    static const char *const keys[] = {"vocab_size",
                                       "hidden_size",
                                       "num_hidden_layers",
                                       "num_attention_heads",
                                       "intermediate_size",
                                       "hidden_act",
                                       "max_position_embeddings",
                                       "type_vocab_size",
                                       "n_embd",
                                       "n_layer",
                                       "n_head",
                                       "n_positions",
                                       "activation_function",
                                       "tie_word_embeddings",
                                       "scale_attn_weights",
                                       "scale_attn_by_inverse_layer_idx",
                                       "attention_bias",
                                       "mlp_bias",
                                       "is_decoder",
                                       "add_cross_attention"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_is_null(json_object_get(json, keys[i])))
            return FAILED("%s: '%s' is null; expected a value, or no such field", from, keys[i]);
    return OK;
}

Status hf_config_parse(const json_t *json, const char *from, ModelConfig *ret_config) {
    if (!json_is_object(json)) return FAILED("%s: expected a JSON object", from);
    Architecture class = {0};
    const Family *family = NULL;
    TRY(find_architecture(json, from, &family, &class));
    const Architecture *found = family ? &class : NULL;
    TRY(find_family(json, from, found, &family));
    TRY(refuse_quantized(json, from));
    TRY(refuse_null(json, from));

    ModelConfig config;
    family->defaults(&config);
    TRY(family->read(json, from, &config));
    TRY(check_layer_types(json, from, &config));
    TRY(read_direction(json, from, &config));
    TRY(field_float(json, from, "initializer_range", 0, 1000, &config.init_std));
    TRY(field_refuse_true(json, from, "add_cross_attention"));
    TRY(read_token(json, from, "pad_token_id", &config.pad_token));
    TRY(read_token(json, from, "bos_token_id", &config.bos_token));
    TRY(read_eos(json, from, &config));
    TRY(json_get_bool(json, from, "tie_word_embeddings", &config.tied));
    if (found) {
        config.outputs_mask = found->heads;
        config.pooler = found->pooler;
        config.tied |= found->tied;
        config.bare = found->bare && !config.tied;
    }
    if (heads_traits(family->outputs).labeled) {
        TRY(read_problem(json, from, &config.problem));
        TRY(read_labels(json, from, &config.labels));
    }
    if (!config.free_head_width) TRY(pruned_heads_read(json, from, &config));
    TRY(read_weft_fields(json, from, &config));
    TRY(read_quantization(json, from, &config));
    TRY(read_sparsity(json, from, &config));
    TRY(status_wrap(config_check(&config), "%s", from));
    *ret_config = config;
    return OK;
}

/* Whether a config.json belongs to a run (options of 'weft train') rather than a model. */
static bool is_run_config(const json_t *json) {
    return json_is_string(json_object_get(json, "model")) && json_is_array(json_object_get(json, "data")) &&
           !json_object_get(json, "model_type") && !json_object_get(json, "architectures");
}

static Status no_checkpoint_yet(const char *dir) {
    return FAILED("%s is the directory of a run that has not saved a checkpoint yet", dir);
}

Status hf_config_read(const char *dir, ModelConfig *ret_config) {
    char hint[RELEASED_HINT];
    if (!path_is_dir(dir))
        return FAILED("%s: %s; expected a checkpoint directory%s", dir,
                      path_exists(dir) ? "is not a directory" : "does not exist",
                      path_exists(dir) ? "" : released_hint(dir, false, hint));
    CLEANUP(mem_freep) char *path = NULL, *checkpoints = NULL, *base = NULL;
    TRY(path_join(&path, dir, "config.json"));
    TRY(path_join(&checkpoints, dir, "checkpoints"));
    if (!path_exists(path) && path_is_dir(checkpoints)) return no_checkpoint_yet(dir);
    if (!path_exists(path)) TRY(adapter_base(dir, &base));
    if (base) return hf_config_read(base, ret_config);
    if (!path_exists(path))
        return FAILED("%s: no config.json found; expected a checkpoint saved by transformers or weft", dir);
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_read_file(path, &json));
    if (is_run_config(json)) return no_checkpoint_yet(dir);
    return hf_config_parse(json, path, ret_config);
}

Status hf_generation_read(const char *dir, ModelConfig *config) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, "generation_config.json"));
    if (!path_exists(path)) return OK;
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_read_file(path, &json));
    if (!json_is_object(json)) return FAILED("%s: expected a JSON object", path);
    ModelConfig named = {.bos_token = -1, .eos_token = -1};
    TRY(read_token(json, path, "bos_token_id", &named.bos_token));
    TRY(read_eos(json, path, &named));
    if (named.bos_token >= 0) config->bos_token = named.bos_token;
    if (named.eos_token < 0) return OK;
    config->eos_token = named.eos_token;
    config->eos_more_count = named.eos_more_count;
    memcpy(config->eos_more, named.eos_more, sizeof config->eos_more);
    return OK;
}

/* ---- writing ---- */

static json_t *token(int64_t value) {
    return value < 0 ? json_null() : json_integer(value);
}

static json_t *eos_json(const ModelConfig *config) {
    if (!config->eos_more_count) return token(config->eos_token);
    json_t *list = json_array();
    int failed = json_array_append_new(list, token(config->eos_token));
    for (int i = 0; i < config->eos_more_count; i++)
        failed |= json_array_append_new(list, token(config->eos_more[i]));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static Architecture pick_architecture(const ModelConfig *config) {
    Architecture one;
    for (int i = 0; family_class(config->family, i, &one); i++)
        if ((one.heads & config->outputs_mask) == one.heads) break;
    return one;
}

int hf_put_labels(json_t *json, int64_t count, const LabelSet *labels) {
    json_t *id2label = json_object(), *label2id = json_object();
    int failed = json_object_set_new(json, "id2label", id2label);
    failed |= json_object_set_new(json, "label2id", label2id);
    for (int64_t i = 0; i < count && !failed; i++) {
        char id[24], numbered[32];
        snprintf(id, sizeof id, "%lld", (long long)i);
        snprintf(numbered, sizeof numbered, "LABEL_%lld", (long long)i);
        const char *label = labels ? labels->name[i] : numbered;
        failed |= json_object_set_new(id2label, id, json_string(label));
        failed |= json_object_set_new(label2id, label, json_integer(i));
    }
    return failed;
}

/* Adds the "weft" key if transformers' fields, which `json` has, cannot express the configuration. */
static int add_weft_fields(json_t *json, const ModelConfig *config, const Architecture *architecture) {
    ModelConfig read;
    config->family->defaults(&read);
    CLEANUP(status_freep) Status status = config->family->read(json, "config.json", &read);
    bool embed = !status && config->dropout_embed != read.dropout_embed;
    bool hidden = !status && config->dropout_hidden != read.dropout_hidden;
    bool heads = config->outputs_mask != architecture->heads || config->pooler != architecture->pooler;
    if (!embed && !hidden && !heads) return 0;
    json_t *own = json_object();
    int failed = json_object_set_new(json, "weft", own);
    if (embed) failed |= json_object_set_new(own, "dropout_embed", field_real(config->dropout_embed));
    if (hidden) failed |= json_object_set_new(own, "dropout_hidden", field_real(config->dropout_hidden));
    if (!heads) return failed;
    json_t *list = json_array();
    failed |= json_object_set_new(own, "heads", list);
    failed |= json_object_set_new(own, "pooler", json_boolean(config->pooler));
    for (HeadId id = 0; id < HEAD_COUNT; id++)
        if (config->outputs_mask & 1u << id)
            failed |= json_array_append_new(list, json_string(head_name(id)));
    return failed;
}

static json_t *quantization(const ModelConfig *config) {
    bool int4 = config->packed_layers == PACK_INT4, fixed = config->static_scales;
    return json_pack("{s:s, s:i, s:s, s:s, s:b, s:i}", "method", methods[(int4 ? 1 : 0) + (fixed ? 2 : 0)],
                     "bits", packing_bits(config->packed_layers), "weights",
                     int4 ? "symmetric, per group of 32 inputs" : "symmetric, per output", "activations",
                     fixed ? "symmetric, per matrix, static" : "symmetric, per row, dynamic", "embedding",
                     config->packed_embedding != PACK_NONE, "embedding_bits",
                     packing_bits(config->packed_embedding));
}

Status hf_config_json(const ModelConfig *config, json_t **ret_json) {
    Architecture architecture = pick_architecture(config);
    CLEANUP(json_decrefp) json_t *json = config->family->write(config);
    json_t *common = json_pack("{s:s, s:[s], s:o, s:b, s:b, s:o, s:o, s:o}", "model_type",
                               config->family->type, "architectures", architecture.name, "initializer_range",
                               field_real(config->init_std), "tie_word_embeddings", config->tied,
                               "add_cross_attention", false, "pad_token_id", token(config->pad_token),
                               "bos_token_id", token(config->bos_token), "eos_token_id", eos_json(config));
    int failed = !json || !common || json_object_update(json, common);
    json_decref(common);
    if (!failed && config_labeled(config)) failed = hf_put_labels(json, config->labels, NULL);
    if (!failed && config_labeled(config) && config->problem != PROBLEM_AUTO)
        failed = json_object_set_new(json, "problem_type", json_string(problem_name(config->problem)));
    if (!failed) failed = add_weft_fields(json, config, &architecture);
    if (!failed && config_is_decoder(config) && !config_causal(config))
        failed = json_object_set_new(json, "is_causal", json_false());
    if (!failed && config_quantized(config))
        failed = json_object_set_new(json, "quantization", quantization(config));
    if (!failed && config->sparse)
        failed = json_object_set_new(json, "sparsity", json_pack("{s:s}", "method", "weft-sparse"));
    if (!failed && config->head_width && !config->free_head_width)
        failed = json_object_set_new(json, "pruned_heads", pruned_heads_json(config));
    if (failed) return FAILED("config.json: out of memory");
    return MOVE(ret_json, json);
}
