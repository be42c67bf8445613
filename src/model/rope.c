#include "model/rope.h"

#include <math.h>

/* Llama 3: wavelengths below original / high_freq_factor stay, those above original / low_freq_factor are
 * stretched by `factor`, and those in between partly. */
static float scale_llama3(const Rope *rope, float frequency) {
    float length = 2 * (float)M_PI / frequency, original = (float)rope->original;
    if (length < original / rope->high_freq_factor) return frequency;
    if (length > original / rope->low_freq_factor) return frequency / rope->factor;
    float smooth =
        (original / length - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * frequency / rope->factor + smooth * frequency;
}

void rope_frequencies(const ModelConfig *config, float *ret_frequency) {
    const Rope *rope = &config->rope;
    int64_t width = config_head_width(config);
    for (int64_t i = 0; i < width / 2; i++) {
        float frequency = 1.0f / powf(rope->theta, (float)(2 * i) / (float)width);
        switch (rope->scaling) {
        case ROPE_PLAIN: break;
        case ROPE_LINEAR: frequency /= rope->factor; break;
        case ROPE_LLAMA3: frequency = scale_llama3(rope, frequency); break;
        }
        ret_frequency[i] = frequency;
    }
}

Status rope_table_new(const ModelConfig *config, int64_t rows, Device *device, Stream *stream,
                      Buffer *ret_buffer, Tensor *ret_table) {
    if (config->position != POSITION_ROPE) return OK;
    int64_t width = config_head_width(config), half = width / 2;
    CLEANUP(mem_freep) float *values = NULL;
    CLEANUP(mem_freep) float *frequency = NULL;
    TRY(mem_new((size_t)(rows * width), sizeof *values, &values));
    TRY(mem_new((size_t)half, sizeof *frequency, &frequency));
    rope_frequencies(config, frequency);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)t * frequency[i]; /* in fp32, as transformers does */
            values[t * width + i] = (float)cos((double)angle);
            values[t * width + half + i] = (float)sin((double)angle);
        }
    size_t bytes = (size_t)(rows * width) * sizeof *values;
    TRY(dev_alloc(device, MEM_SCRATCH, bytes, ret_buffer));
    TRY(stream_copy(stream, ret_buffer->data, values, bytes, COPY_TO_DEVICE));
    TRY(stream_sync(stream));
    *ret_table = tensor_2d(ret_buffer->data, DT_F32, rows, width);
    return OK;
}
