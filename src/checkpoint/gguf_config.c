/* The configuration of a model in a GGUF file: the reverse of what gguf.c writes. Whatever the file does not
 * say is the family's default. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint/gguf_read.h"
#include "model/rope.h"

enum { KEY = 128 };

static const char *own_key(char key[KEY], const Family *family, const char *name) {
    snprintf(key, KEY, "%s.%s", family->gguf, name);
    return key;
}

Status gguf_family(const GgufFile *file, const Family **ret_family) {
    const char *name = NULL;
    char titles[FAMILY_TITLES], key[KEY];
    int64_t experts = 0;
    TRY(json_get_string(file->meta, file->path, "general.architecture", &name));
    if (!name) return FAILED("%s has no general.architecture; expected a model", file->path);
    for (const Family *const *family = families(); *family; family++) {
        if (!(*family)->gguf || strcmp((*family)->gguf, name)) continue;
        TRY(json_get_int(file->meta, file->path, own_key(key, *family, "expert_count"), 0, MOST_EXPERTS,
                         &experts));
        *ret_family = experts && (*family)->mixture ? (*family)->mixture : *family;
        return OK;
    }
    return FAILED("%s has the architecture %.64s; weft reads %s", file->path, name,
                  family_titles(~0u, "and", titles));
}

typedef struct Size {
    const char *key;
    int64_t low, high;
    int64_t *value;
} Size;

static Status read_sizes(const GgufFile *file, const Family *family, const Size *sizes, size_t count) {
    char key[KEY];
    for (size_t i = 0; i < count; i++) {
        if (json_is_array(json_object_get(file->meta, own_key(key, family, sizes[i].key))))
            return FAILED("%s: '%s' differs from layer to layer, which weft does not support", file->path,
                          key);
        TRY(json_get_int(file->meta, file->path, key, sizes[i].low, sizes[i].high, sizes[i].value));
    }
    return OK;
}

static Status read_float(const GgufFile *file, const Family *family, const char *name, float *value) {
    char key[KEY];
    double number = (double)*value;
    TRY(json_get_double(file->meta, file->path, own_key(key, family, name), 0, 1e30, &number));
    *value = (float)number;
    return OK;
}

/* ---- rotary positions ---- */

/* Values of a tensor of the file that has one for each pair of a head. */
static Status read_factors(const GgufFile *file, const char *name, int64_t half, float *ret_values) {
    const GgufTensor *tensor = gguf_find(file, name);
    if (!tensor || tensor->type != GGUF_F32 || tensor->ndim != 1 || tensor->dim[0] != half ||
        half > ROPE_PAIRS)
        return FAILED("%s: expected a tensor '%s' with %lld values in fp32", file->path, name,
                      (long long)half);
    memcpy(ret_values, tensor->data, (size_t)half * sizeof *ret_values);
    return OK;
}

/* Whether Llama 3's scaling with these settings gives the factors. */
static bool gives_factors(const ModelConfig *config, const float *factors, int64_t half) {
    float plain[ROPE_PAIRS], scaled[ROPE_PAIRS];
    ModelConfig other = *config;
    other.rope.scaling = ROPE_PLAIN;
    rope_frequencies(&other, 0, plain);
    rope_frequencies(config, 0, scaled);
    for (int64_t i = 0; i < half; i++)
        if (fabsf(plain[i] / scaled[i] - factors[i]) > 1e-4f * factors[i]) return false;
    return true;
}

/* How far a factor is from that of low frequencies (0) to that of high ones (1). */
static double smooth_of(float factor, float largest) {
    return (1 / (double)factor - 1 / (double)largest) / (1 - 1 / (double)largest);
}

/* Llama 3's scaling has no keys, only its factors: 1 for high frequencies and the largest for low ones.
 * Between them, `smooth` is linear in the frequency: frequency * original / 2 pi = low + smooth * (high -
 * low). Two points determine the settings up to a common scale; with fewer, published ones are tried. */
static Status read_llama3(const GgufFile *file, ModelConfig *config) {
    float factors[ROPE_PAIRS], plain[ROPE_PAIRS], largest = 1;
    int64_t half = config_head_width(config) / 2, a = -1, b = -1;
    TRY(read_factors(file, "rope_freqs.weight", half, factors));
    rope_frequencies(config, 0, plain);
    for (int64_t i = 0; i < half; i++) largest = fmaxf(largest, factors[i]);
    for (int64_t i = 0; i < half; i++) {
        if (factors[i] <= 1 || factors[i] >= largest) continue;
        if (a < 0) a = i;
        b = i;
    }
    Rope *rope = &config->rope;
    *rope = (Rope){.theta = rope->theta,
                   .scaling = ROPE_LLAMA3,
                   .factor = largest,
                   .low_freq_factor = 1,
                   .high_freq_factor = 4};
    for (rope->original = 1; rope->original < MAX_POSITIONS; rope->original *= 2)
        if (gives_factors(config, factors, half)) return OK;
    double first = a < 0 ? 0 : smooth_of(factors[a], largest),
           last = b < 0 ? 0 : smooth_of(factors[b], largest);
    double high = 4;
    if (b > a) { /* low is 1 */
        double ratio = (double)plain[a] / (double)plain[b];
        high = 1 + (ratio - 1) / (first - ratio * last);
    }
    double original = a < 0 ? 0 : (1 + first * (high - 1)) * 2 * M_PI / (double)plain[a];
    rope->high_freq_factor = (float)high;
    rope->original = original >= 1 && original < MAX_POSITIONS ? llround(original) : 1;
    if (isfinite(high) && high > 1 && gives_factors(config, factors, half)) return OK;
    return FAILED("%s: the factors in 'rope_freqs.weight' are not those of Llama 3's scaling", file->path);
}

static Status read_scaling(const GgufFile *file, ModelConfig *config) {
    const Family *family = config->family;
    Rope *rope = &config->rope;
    const char *name = NULL;
    char key[KEY];
    float attention = 1;
    TRY(json_get_string(file->meta, file->path, own_key(key, family, "rope.scaling.type"), &name));
    if (!name || !strcmp(name, "none"))
        return gguf_find(file, "rope_freqs.weight") ? read_llama3(file, config) : OK;
    while (rope->scaling <= ROPE_LONGROPE && strcmp(name, rope_scaling_name(rope->scaling))) rope->scaling++;
    if (rope->scaling != ROPE_LINEAR && rope->scaling != ROPE_YARN && rope->scaling != ROPE_LONGROPE)
        return FAILED("%s: '%s' is %.64s; weft reads linear, yarn and longrope", file->path, key, name);
    rope->factor = 1;
    TRY(read_float(file, family, "rope.scaling.factor", &rope->factor));
    if (rope->scaling == ROPE_LINEAR) return OK;
    const Size original[] = {{"rope.scaling.original_context_length", 1, MAX_POSITIONS, &rope->original}};
    rope->original = config->positions;
    TRY(read_sizes(file, family, original, 1));
    TRY(read_float(file, family, "rope.scaling.attn_factor", &attention));
    if (rope->scaling == ROPE_YARN) {
        rope->beta_fast = 32;
        rope->beta_slow = 1;
        if (attention != 1) rope->attention_factor = attention * rope_attention_factor(rope);
        return OK;
    }
    int64_t half = config_head_width(config) / 2;
    rope->attention_factor = attention;
    TRY(read_factors(file, "rope_factors_long.weight", half, rope->long_factor));
    return read_factors(file, "rope_factors_short.weight", half, rope->short_factor);
}

/* ---- sizes ---- */

static Status read_model(const GgufFile *file, ModelConfig *c) {
    int64_t width = 0, rotated = 0;
    const Size sizes[] = {{"context_length", 1, MAX_POSITIONS, &c->positions},
                          {"embedding_length", 1, MOST_HIDDEN, &c->hidden},
                          {"block_count", 1, MOST_LAYERS, &c->layers},
                          {"feed_forward_length", 1, MOST_INNER, &c->inner},
                          {"attention.head_count", 1, MOST_HEADS, &c->heads},
                          {"attention.head_count_kv", 1, MOST_HEADS, &c->kv_heads},
                          {"attention.key_length", 1, MOST_HIDDEN, &width},
                          {"rope.dimension_count", 1, MOST_HIDDEN, &rotated},
                          {"expert_count", 0, MOST_EXPERTS, &c->experts},
                          {"expert_used_count", 0, MOST_EXPERTS, &c->top_k},
                          {"expert_feed_forward_length", 1, MOST_INNER, &c->expert_inner},
                          {"expert_shared_feed_forward_length", 1, MOST_INNER, &c->shared_inner}};
    c->kv_heads = 0;
    TRY(read_sizes(file, c->family, sizes, sizeof sizes / sizeof *sizes));
    if (c->kv_heads == c->heads) c->kv_heads = 0;
    if (c->free_head_width) c->head_width = width;
    if (c->hidden % c->heads && !c->head_width)
        return FAILED("%s: its %lld heads do not divide the width of %lld", file->path, (long long)c->heads,
                      (long long)c->hidden);
    if (c->position == POSITION_ROPE && rotated && rotated != config_head_width(c))
        return FAILED("%s: rotary positions cover %lld of %lld values of a head, which weft does not support",
                      file->path, (long long)rotated, (long long)config_head_width(c));
    TRY(read_float(file, c->family,
                   c->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
                   &c->norm_eps));
    if (c->position != POSITION_ROPE) return OK;
    TRY(read_float(file, c->family, "rope.freq_base", &c->rope.theta));
    return read_scaling(file, c);
}

/* What follows from the tensors that are there. */
static Status read_tensors(const GgufFile *file, ModelConfig *c) {
    const GgufTensor *tokens = gguf_find(file, "token_embd.weight"),
                     *types = gguf_find(file, "token_types.weight");
    if (!tokens || tokens->ndim != 2 || tokens->dim[1] != c->hidden || tokens->dim[0] > MOST_VOCAB)
        return FAILED("%s: expected a tensor 'token_embd.weight' with rows of %lld values", file->path,
                      (long long)c->hidden);
    c->vocab = tokens->dim[0];
    if (c->types) c->types = types && types->ndim == 2 ? types->dim[0] : 0;
    if (!config_is_decoder(c)) return OK;
    c->tied = !gguf_find(file, "output.weight");
    if (c->biases == BIAS_ALL) return OK;
    if (gguf_find(file, "blk.0.attn_q.bias")) c->biases |= BIAS_QKV;
    if (gguf_find(file, "blk.0.attn_output.bias")) c->biases |= BIAS_OUT;
    if (gguf_find(file, "blk.0.ffn_up.bias")) c->biases |= BIAS_MLP;
    return OK;
}

/* Tokens that end a text: EOS, EOT and EOM. */
static Status read_special(const GgufFile *file, ModelConfig *c) {
    static const char *const more[] = {"tokenizer.ggml.eom_token_id", "tokenizer.ggml.eot_token_id"};
    const struct {
        const char *key;
        int64_t *value;
    } tokens[] = {{"tokenizer.ggml.bos_token_id", &c->bos_token},
                  {"tokenizer.ggml.eos_token_id", &c->eos_token},
                  {"tokenizer.ggml.padding_token_id", &c->pad_token}};
    bool decoder = config_is_decoder(c);
    for (int i = decoder ? 0 : 2; i < 3; i++) {
        int64_t id = -1;
        TRY(json_get_int(file->meta, file->path, tokens[i].key, -1, UINT32_MAX, &id));
        if (decoder || id >= 0) *tokens[i].value = id < c->vocab ? id : -1;
    }
    for (int i = 0; decoder && i < 2; i++) {
        int64_t id = -1;
        TRY(json_get_int(file->meta, file->path, more[i], -1, UINT32_MAX, &id));
        if (id >= 0 && id < c->vocab && id != c->eos_token && c->eos_token >= 0)
            c->eos_more[c->eos_more_count++] = id;
    }
    return OK;
}

Status gguf_config(const GgufFile *file, ModelConfig *ret_config) {
    ModelConfig config = {0};
    const Family *family = NULL;
    bool causal = true;
    char key[KEY];
    TRY(gguf_family(file, &family));
    family->defaults(&config);
    config.outputs_mask &= OUTPUT_LM;
    if (config_is_decoder(&config)) config.outputs_mask = OUTPUT_LM;
    config.pooler = false;
    TRY(read_model(file, &config));
    TRY(read_tensors(file, &config));
    TRY(read_special(file, &config));
    TRY(json_get_bool(file->meta, file->path, own_key(key, family, "attention.causal"), &causal));
    if (!causal && config_is_decoder(&config)) config.attention = ATTEND_ALL;
    TRY(status_wrap(config_check(&config), "%s", file->path));
    *ret_config = config;
    return OK;
}
