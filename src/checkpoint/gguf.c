/* Writes GGUF files. Every parameter that the family's rules name (model/family.h) becomes one tensor or
 * several; others, such as BERT's output heads, are left out, since llama.cpp does not have them. */
#include "checkpoint/gguf.h"

#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/gguf_meta.h"
#include "checkpoint/gguf_vocab.h"
#include "checkpoint/slices.h"
#include "model/family.h"
#include "model/rope.h"

enum { GGUF_VERSION = 3, QUANTIZATION_VERSION = 2, POOLING_MEAN = 1 };
enum { NAME = 2 * PARAM_NAME + 64, CHUNK = 1 << 16 /* values converted at a time */ };

/* One tensor of the file. */
typedef struct Item {
    char name[NAME];
    GgufType type;
    int64_t rows, cols; /* rows: 0 for a vector */
    int64_t matrices;   /* of experts, the third dim; otherwise 0 */
    int64_t first;      /* its first value in the parameter */
    int64_t stride;     /* values from one matrix to the next */
    int64_t head_rows;  /* rows of a head whose halves are interleaved in the file; 0: rows are in order */
    ParamRef ref;
    const float *values; /* instead of a parameter's; or NULL */
} Item;

typedef struct Manifest {
    float *factors; /* of rotary frequencies */
    Item *item;
    size_t count, capacity;
} Manifest;

static void manifest_done(Manifest *manifest) {
    free(manifest->factors);
    free(manifest->item);
}

/* Values of one matrix, or of a vector. */
static int64_t matrix_count(const Item *item) {
    return item->rows ? item->rows * item->cols : item->cols;
}

static int64_t item_count(const Item *item) {
    return (item->matrices ? item->matrices : 1) * matrix_count(item);
}

/* ---- what the file contains ---- */

static GgufType item_type(const GgufRule *rule, const Item *item, GgufType wanted) {
    if (rule->plain || !item->rows || wanted == GGUF_F32) return GGUF_F32;
    bool vocabulary = !strcmp(rule->ours, "embed.token") || !strcmp(rule->ours, "head.output");
    if (wanted == GGUF_Q4_0 && vocabulary) wanted = GGUF_Q8_0;
    bool blocks = wanted == GGUF_Q4_0 || wanted == GGUF_Q8_0;
    return blocks && item->cols % GGUF_BLOCK ? GGUF_F16 : wanted;
}

/* The experts' matrices of a parameter: all, or every second one. */
static void put_matrices(Item *item, int part, const ParamDesc *desc) {
    int64_t step = part < PART_EACH ? 2 : 1;
    int64_t count = desc->dim[1] * desc->dim[2];
    item->matrices = desc->dim[0] / step;
    item->rows = desc->dim[1];
    item->first = part == PART_ODD ? count : 0;
    item->stride = step * count;
}

static Status add_param(Manifest *manifest, const ModelConfig *config, const ParamDesc *desc, ParamRef ref,
                        GgufType type) {
    for (const GgufRule *rule = config->family->gguf_names; rule->ours; rule++) {
        Item item = {.ref = ref};
        bool applies = false;
        TRY(hf_rename(rule->ours, rule->theirs, desc->name, 0, item.name, &applies));
        if (!applies) continue;
        int skip = rule->part == PART_WHOLE ? 0 : 1;
        bool vector = desc->ndim == skip + 1 || !strcmp(strrchr(desc->name, '.'), ".bias");
        item.cols = vector ? 1 : desc->dim[desc->ndim - 1];
        int64_t rest = 1;
        for (int i = skip; i < desc->ndim; i++) rest *= desc->dim[i];
        if (vector)
            item.cols = rest;
        else
            item.rows = rest / item.cols;
        item.first = rule->part == PART_WHOLE ? 0 : rule->part * rest;
        if (rule->part <= PART_EACH) put_matrices(&item, rule->part, desc);
        item.type = item_type(rule, &item, type);
        if (rule->heads && config->family->gguf_pairs) item.head_rows = config_head_width(config);
        TRY(mem_grow(&manifest->item, &manifest->capacity, manifest->count + 1, sizeof *manifest->item));
        manifest->item[manifest->count++] = item;
    }
    return OK;
}

static Status add_values(Manifest *manifest, const char *name, const float *values, int64_t count) {
    Item item = {.type = GGUF_F32, .cols = count, .values = values};
    snprintf(item.name, sizeof item.name, "%s", name);
    TRY(mem_grow(&manifest->item, &manifest->capacity, manifest->count + 1, sizeof *manifest->item));
    manifest->item[manifest->count++] = item;
    return OK;
}

/* Scaled rotary frequencies that follow from no key: the tensors have what llama.cpp divides the plain ones
 * by. */
static Status add_frequencies(Manifest *manifest, const ModelConfig *config) {
    const Rope *rope = &config->rope;
    int64_t half = config_head_width(config) / 2;
    if (config->position != POSITION_ROPE) return OK;
    if (rope->scaling == ROPE_LONGROPE) {
        TRY(add_values(manifest, "rope_factors_long.weight", rope->long_factor, half));
        return add_values(manifest, "rope_factors_short.weight", rope->short_factor, half);
    }
    if (rope->scaling != ROPE_LLAMA3) return OK;
    CLEANUP(mem_freep) float *scaled = NULL;
    TRY(mem_new((size_t)half, sizeof *scaled, &scaled));
    TRY(mem_new((size_t)half, sizeof *manifest->factors, &manifest->factors));
    ModelConfig plain = *config;
    plain.rope.scaling = ROPE_PLAIN;
    rope_frequencies(config, 0, scaled);
    rope_frequencies(&plain, 0, manifest->factors);
    for (int64_t i = 0; i < half; i++) manifest->factors[i] /= scaled[i];
    return add_values(manifest, "rope_freqs.weight", manifest->factors, half);
}

static Status manifest_init(Manifest *manifest, const Model *model, GgufType type) {
    TRY(add_frequencies(manifest, &model->config));
    for (ModelParam param = {0}; model_param_next(model, &param);)
        TRY(add_param(manifest, &model->config, param.desc, param.ref, type));
    return OK;
}

static int64_t file_type(GgufType type) {
    return type == GGUF_F32 ? 0 : type == GGUF_F16 ? 1 : type == GGUF_Q4_0 ? 2 : type == GGUF_Q8_0 ? 7 : 32;
}

typedef struct Size {
    const char *key;
    int64_t value;
} Size;

/* A key of the model's family. */
static const char *own_key(char key[NAME], const ModelConfig *c, const char *name) {
    snprintf(key, NAME, "%s.%s", c->family->gguf, name);
    return key;
}

/* The list ends with a key that is NULL. */
static Status put_sizes(GgufMeta *meta, const ModelConfig *c, const Size *sizes) {
    char key[NAME];
    for (; sizes->key; sizes++) TRY(meta_put_u32(meta, own_key(key, c, sizes->key), sizes->value));
    return OK;
}

/* Llama 3's scaling has no key: its tensor has the frequencies. llama.cpp multiplies yarn's attention factor
 * by what the paper suggests. */
static Status put_scaling(GgufMeta *meta, const ModelConfig *c) {
    const Rope *rope = &c->rope;
    char key[NAME];
    if (rope->scaling == ROPE_PLAIN || rope->scaling == ROPE_LLAMA3) return OK;
    TRY(meta_put_text(meta, own_key(key, c, "rope.scaling.type"), rope_scaling_name(rope->scaling)));
    if (rope->scaling != ROPE_LONGROPE)
        TRY(meta_put_f32(meta, own_key(key, c, "rope.scaling.factor"), rope->factor));
    if (rope->scaling == ROPE_LINEAR) return OK;
    TRY(put_sizes(meta, c, (const Size[]){{"rope.scaling.original_context_length", rope->original}, {0}}));
    float attention = rope_attention_factor(rope);
    if (rope->scaling == ROPE_YARN) {
        Rope plain = {.scaling = ROPE_YARN, .factor = rope->factor};
        attention /= rope_attention_factor(&plain);
    }
    return meta_put_f32(meta, own_key(key, c, "rope.scaling.attn_factor"), attention);
}

/* Grouped heads and rotary positions. */
static Status put_rope(GgufMeta *meta, const ModelConfig *c) {
    char key[NAME];
    int64_t width = config_head_width(c);
    TRY(put_sizes(meta, c,
                  (const Size[]){{"attention.head_count_kv", config_kv_heads(c)},
                                 {"attention.key_length", width},
                                 {"attention.value_length", width},
                                 {"rope.dimension_count", width},
                                 {0}}));
    TRY(meta_put_f32(meta, own_key(key, c, "rope.freq_base"), c->rope.theta));
    return put_scaling(meta, c);
}

static Status put_experts(GgufMeta *meta, const ModelConfig *c) {
    TRY(put_sizes(meta, c,
                  (const Size[]){{"expert_count", c->experts},
                                 {"expert_used_count", c->top_k},
                                 {"expert_feed_forward_length", c->expert_inner},
                                 {0}}));
    if (!c->shared_inner) return OK;
    return put_sizes(meta, c, (const Size[]){{"expert_shared_feed_forward_length", c->shared_inner}, {0}});
}

static Status put_model(GgufMeta *meta, const ModelConfig *c, GgufType type) {
    /* llama.cpp attends to all positions, which a model with a window does up to its window's length. */
    int64_t window = config_window(c, (int)c->layers - 1);
    int64_t longest = config_context(c), context = window && window < longest ? window : longest;
    bool rms = c->norm == NORM_RMS;
    char key[NAME];
    TRY(meta_put_text(meta, "general.architecture", c->family->gguf));
    TRY(meta_put_u32(meta, "general.file_type", file_type(type)));
    TRY(meta_put_u32(meta, "general.quantization_version", QUANTIZATION_VERSION));
    TRY(meta_put_u32(meta, "general.alignment", GGUF_ALIGNMENT));
    TRY(put_sizes(meta, c,
                  (const Size[]){{"context_length", context},
                                 {"embedding_length", c->hidden},
                                 {"block_count", c->layers},
                                 {"feed_forward_length", c->inner},
                                 {"attention.head_count", c->heads},
                                 {"vocab_size", c->vocab},
                                 {0}}));
    own_key(key, c, rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon");
    TRY(meta_put_f32(meta, key, c->norm_eps));
    if (c->position == POSITION_ROPE) TRY(put_rope(meta, c));
    if (c->experts) TRY(put_experts(meta, c));
    if (config_causal(c)) return OK;
    TRY(meta_put_bool(meta, own_key(key, c, "attention.causal"), false));
    TRY(put_sizes(meta, c, (const Size[]){{"pooling_type", POOLING_MEAN}, {0}}));
    return meta_put_u32(meta, "tokenizer.ggml.token_type_count", c->types);
}

/* ---- writing ---- */

static size_t aligned(size_t size) {
    return (size + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

static Status put_items(GgufMeta *meta, const Manifest *manifest) {
    size_t offset = 0;
    for (size_t i = 0; i < manifest->count; i++) {
        const Item *item = &manifest->item[i];
        TRY(meta_text(meta, item->name, strlen(item->name)));
        TRY(meta_u32(meta, item->matrices ? 3 : item->rows ? 2 : 1));
        TRY(meta_u64(meta, (uint64_t)item->cols));
        if (item->rows) TRY(meta_u64(meta, (uint64_t)item->rows));
        if (item->matrices) TRY(meta_u64(meta, (uint64_t)item->matrices));
        TRY(meta_u32(meta, item->type));
        TRY(meta_u64(meta, offset));
        offset += aligned(gguf_bytes(item->type, item_count(item)));
    }
    return OK;
}

static Status pad(FileWriter *writer, size_t size) {
    static const char zeros[GGUF_ALIGNMENT];
    return file_write(writer, zeros, aligned(size) - size);
}

/* The largest magnitude that a type represents. Blocks of Q8_0 and Q4_0 have fp16 scales. */
static double largest_value(GgufType type) {
    switch (type) {
    case GGUF_F16: return 65504;
    case GGUF_Q8_0: return 127 * 65504.0;
    case GGUF_Q4_0: return 8 * 65504.0;
    default: return INFINITY;
    }
}

/* Values that are not finite keep their meaning in all types but Q8_0 and Q4_0. */
static Status check_range(const Item *item, const float *values, int64_t count) {
    double largest = largest_value(item->type);
    bool quantized = item->type == GGUF_Q8_0 || item->type == GGUF_Q4_0;
    for (int64_t i = 0; largest < INFINITY && i < count; i++)
        if (!isfinite(values[i]) && quantized)
            return FAILED("tensor '%s' contains a weight that is not finite; it cannot be converted to %s",
                          item->name, gguf_type_name(item->type));
        else if (isfinite(values[i]) && fabs((double)values[i]) > largest)
            return FAILED("tensor '%s': the value %g would overflow to infinity in %s; use bf16 or fp32",
                          item->name, (double)values[i], gguf_type_name(item->type));
    return OK;
}

/* A copy in which each head's row i of the first half is followed by row i of the second. */
static Status pair_rows(const Item *item, const float *data, float **ret_paired) {
    int64_t rows = item->rows ? item->rows : item->cols, cols = item->rows ? item->cols : 1;
    int64_t half = item->head_rows / 2;
    float *to;
    TRY(mem_new((size_t)(rows * cols), sizeof *to, ret_paired));
    to = *ret_paired;
    for (int64_t head = 0; head < rows; head += item->head_rows)
        for (int64_t i = 0; i < item->head_rows; i++, to += cols)
            memcpy(to, data + (head + i % 2 * half + i / 2) * cols, (size_t)cols * sizeof *to);
    return OK;
}

/* Writes a matrix, number `at` of those of experts, or a vector. */
static Status write_matrix(FileWriter *writer, const Item *item, int64_t at, const Store *params,
                           Stream *stream) {
    const ParamSlot *slot = &params->unit[item->ref.unit].slot[item->ref.slot];
    const float *data = item->values;
    int64_t count = matrix_count(item);
    CLEANUP(mem_freep) float *copy = NULL;
    CLEANUP(mem_freep) char *converted = NULL;
    if (!data) {
        Values from = store_values(params, item->ref.unit, slot->offset + item->first + at * item->stride);
        TRY(values_get(stream, from, count, &copy, &data));
    }
    TRY(mem_new(gguf_bytes(item->type, CHUNK), 1, &converted));
    TRY(check_range(item, data, count));
    CLEANUP(mem_freep) float *paired = NULL;
    if (item->head_rows) {
        TRY(pair_rows(item, data, &paired));
        data = paired;
    }
    for (int64_t done = 0; done < count; done += CHUNK) {
        int64_t n = count - done < CHUNK ? count - done : CHUNK;
        gguf_convert(item->type, data + done, n, converted);
        TRY(file_write(writer, converted, gguf_bytes(item->type, n)));
    }
    return OK;
}

static Status write_item(FileWriter *writer, const Item *item, const Store *params, Stream *stream) {
    int64_t matrices = item->matrices ? item->matrices : 1;
    for (int64_t at = 0; at < matrices; at++) TRY(write_matrix(writer, item, at, params, stream));
    return pad(writer, gguf_bytes(item->type, item_count(item)));
}

Status gguf_check(const char *path, const ModelConfig *c) {
    if (path_exists(path)) return FAILED("%s already exists; choose another file", path);
    if (config_quantized(c) || (c->head_width && !c->free_head_width))
        return FAILED("a GGUF file cannot store a model %s; convert the original model instead",
                      config_quantized(c) ? "quantized by weft" : "with pruned attention heads");
    if (!c->family->gguf) return FAILED("weft does not write %s models to GGUF files", c->family->title);
    const char *obstacle = c->family->gguf_obstacle(c);
    if (!c->scale_attn) obstacle = "unscaled attention scores";
    if (c->scale_attn_by_layer) obstacle = "attention scores scaled by layer";
    if (config_is_decoder(c) && !config_causal(c)) obstacle = "attention in both directions in this family";
    return obstacle ? FAILED("llama.cpp cannot run this model: it does not support %s", obstacle) : OK;
}

Status gguf_save(const char *path, const char *dir, const Store *params, Stream *stream, GgufType type) {
    const Model *model = params->model;
    CLEANUP(manifest_done) Manifest manifest = {0};
    CLEANUP(gguf_meta_done) GgufMeta meta = {0};
    CLEANUP(gguf_meta_done) GgufMeta head = {0};
    TRY(gguf_check(path, &model->config));
    TRY(manifest_init(&manifest, model, type));
    TRY(put_model(&meta, &model->config, type));
    TRY(gguf_put_vocab(&meta, dir, &model->config));
    uint64_t keys = meta.count;
    TRY(put_items(&meta, &manifest));
    TRY(meta_bytes(&head, "GGUF", 4));
    TRY(meta_u32(&head, GGUF_VERSION));
    TRY(meta_u64(&head, manifest.count));
    TRY(meta_u64(&head, keys));
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    TRY(path_clear_leftovers(path));
    TRY(file_writer_new(&writer, path));
    TRY(file_write(writer, head.data, head.size));
    TRY(file_write(writer, meta.data, meta.size));
    TRY(pad(writer, head.size + meta.size));
    for (size_t i = 0; i < manifest.count; i++) TRY(write_item(writer, &manifest.item[i], params, stream));
    return file_commit(writer);
}
