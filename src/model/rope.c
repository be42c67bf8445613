/* Frequencies are computed in fp32 by the operations of transformers, in the same order, so that angles far
 * into a long context agree, too. What remains is the last bit of PyTorch's powers. */
#include "model/rope.h"

#include <math.h>

/* ---- frequencies ---- */

/* theta^(2i/D), whose reciprocal is the plain frequency. */
static float power(float theta, int64_t i, int64_t D) {
    return powf(theta, (float)(2 * i) / (float)D);
}

/* Llama 3: wavelengths below original / high_freq_factor stay, those above original / low_freq_factor are
 * stretched by `factor`, and those in between partly. */
static float scale_llama3(const Rope *rope, float frequency) {
    float length = 1 / frequency * (2 * (float)M_PI), original = (float)rope->original;
    if (length < original / rope->high_freq_factor) return frequency;
    if (length > original / rope->low_freq_factor) return frequency / rope->factor;
    float smooth =
        (1 / length * original - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * frequency / rope->factor + smooth * frequency;
}

/* NTK: beyond the original context, a larger theta, so that high frequencies hardly change. */
static float dynamic_theta(const ModelConfig *config, int64_t length) {
    const Rope *rope = &config->rope;
    int64_t D = config_head_width(config);
    if (length <= config->positions) return rope->theta;
    float stretch = rope->factor * (float)length / (float)config->positions - (rope->factor - 1);
    return rope->theta * (float)pow((double)stretch, (double)D / (double)(D - 2));
}

/* YaRN: the pair that rotates `rotations` times within the original context. */
static double yarn_pair(const ModelConfig *config, double rotations) {
    const Rope *rope = &config->rope;
    double D = (double)config_head_width(config);
    return D * log((double)rope->original / (rotations * 2 * M_PI)) / (2 * log((double)rope->theta));
}

/* Pairs before `low` keep their frequency, pairs from `high` on have it divided by the factor, and those in
 * between partly. */
typedef struct Ramp {
    double low, high;
} Ramp;

static Ramp yarn_ramp(const ModelConfig *config) {
    const Rope *rope = &config->rope;
    double last = (double)config_head_width(config) - 1;
    Ramp ramp = {yarn_pair(config, (double)rope->beta_fast), yarn_pair(config, (double)rope->beta_slow)};
    if (!rope->no_truncate) ramp = (Ramp){floor(ramp.low), ceil(ramp.high)};
    ramp.low = fmax(ramp.low, 0);
    ramp.high = fmin(ramp.high, last);
    if (ramp.low == ramp.high) ramp.high += 0.001;
    return ramp;
}

static float scale_yarn(const Rope *rope, Ramp ramp, int64_t i, float power) {
    float kept = 1 - fminf(fmaxf(((float)i - (float)ramp.low) / (float)(ramp.high - ramp.low), 0), 1);
    return 1 / (rope->factor * power) * (1 - kept) + 1 / power * kept;
}

void rope_frequencies(const ModelConfig *config, int64_t length, float *ret_frequency) {
    const Rope *rope = &config->rope;
    int64_t D = config_head_width(config);
    float theta = rope->scaling == ROPE_DYNAMIC ? dynamic_theta(config, length) : rope->theta;
    const float *factors = length > rope->original ? rope->long_factor : rope->short_factor;
    Ramp ramp = {0};
    if (rope->scaling == ROPE_YARN) ramp = yarn_ramp(config);
    for (int64_t i = 0; i < D / 2; i++) {
        float p = power(theta, i, D), frequency = 1 / p;
        switch (rope->scaling) {
        case ROPE_PLAIN:
        case ROPE_DYNAMIC: break;
        case ROPE_LINEAR: frequency /= rope->factor; break;
        case ROPE_LLAMA3: frequency = scale_llama3(rope, frequency); break;
        case ROPE_YARN: frequency = scale_yarn(rope, ramp, i, p); break;
        case ROPE_LONGROPE: frequency = 1 / (factors[i] * p); break;
        }
        ret_frequency[i] = frequency;
    }
}

bool rope_varies(const ModelConfig *config) {
    RopeScaling scaling = config->rope.scaling;
    return config->position == POSITION_ROPE && (scaling == ROPE_DYNAMIC || scaling == ROPE_LONGROPE);
}

/* YaRN's, of the published code. */
static double yarn_scale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

float rope_attention_factor(const Rope *rope) {
    double factor = (double)rope->factor, all = (double)rope->mscale_all_dim;
    if (rope->scaling != ROPE_YARN && rope->scaling != ROPE_LONGROPE) return 1;
    if (rope->attention_factor > 0) return rope->attention_factor;
    if (rope->scaling == ROPE_LONGROPE)
        return factor <= 1 ? 1 : (float)sqrt(1 + log(factor) / log((double)rope->original));
    if (rope->mscale > 0 && all > 0)
        return (float)(yarn_scale(factor, (double)rope->mscale) / yarn_scale(factor, all));
    return (float)yarn_scale(factor, 1);
}

int64_t rope_original(const ModelConfig *config) {
    const Rope *rope = &config->rope;
    switch (rope->scaling) {
    case ROPE_PLAIN:
    case ROPE_DYNAMIC: break;
    case ROPE_LINEAR: return (int64_t)fmax(1, round((double)config->positions / (double)rope->factor));
    case ROPE_LLAMA3:
    case ROPE_YARN:
    case ROPE_LONGROPE: return rope->original;
    }
    return config->positions;
}

/* ---- the table ---- */

Status rope_rows(const ModelConfig *config, int64_t length, int64_t first, int64_t count, float *ret_rows) {
    int64_t width = config_head_width(config), half = width / 2;
    bool growing = !length && rope_varies(config);
    float scale = rope_attention_factor(&config->rope);
    CLEANUP(mem_freep) float *frequency = NULL;
    TRY(mem_new((size_t)half, sizeof *frequency, &frequency));
    rope_frequencies(config, length, frequency);
    for (int64_t t = first; t < first + count; t++, ret_rows += width) {
        if (growing) rope_frequencies(config, t + 1, frequency);
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)t * frequency[i]; /* in fp32, as transformers does */
            ret_rows[i] = (float)cos((double)angle) * scale;
            ret_rows[half + i] = (float)sin((double)angle) * scale;
        }
    }
    return OK;
}

static Status table_new(const ModelConfig *config, int64_t rows, int64_t length, Device *device,
                        Stream *stream, Buffer *ret_buffer, Tensor *ret_table) {
    if (config->position != POSITION_ROPE) return OK;
    int64_t width = config_head_width(config);
    CLEANUP(mem_freep) float *values = NULL;
    size_t bytes = (size_t)(rows * width) * sizeof *values;
    TRY(dev_alloc(device, MEM_SCRATCH, bytes, ret_buffer));
    *ret_table = tensor_2d(ret_buffer->data, DT_F32, rows, width);
    if (device_is_dryrun(device)) return OK; /* most of a plan's time otherwise */
    TRY(mem_new((size_t)(rows * width), sizeof *values, &values));
    TRY(rope_rows(config, length, 0, rows, values));
    TRY(stream_copy(stream, ret_buffer->data, values, bytes, COPY_TO_DEVICE));
    return stream_sync(stream);
}

Status rope_table_new(const ModelConfig *config, int64_t rows, Device *device, Stream *stream,
                      Buffer *ret_buffer, Tensor *ret_table) {
    return table_new(config, rows, rows, device, stream, ret_buffer, ret_table);
}

Status rope_table_growing(const ModelConfig *config, int64_t rows, Device *device, Stream *stream,
                          Buffer *ret_buffer, Tensor *ret_table) {
    return table_new(config, rows, 0, device, stream, ret_buffer, ret_table);
}
