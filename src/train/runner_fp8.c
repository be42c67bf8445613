/* Delayed scaling in fp8: the scales of a step follow from the amax of each operand in the previous step,
 * over all its micro-batches and all ranks, so that they do not depend on the layout. The first step scales
 * exactly. A step that is abandoned or skipped leaves the scales as they are. They are part of a checkpoint,
 * so that a resumed run continues with the same bits.
 *
 * Kernels read the scales and record amax on the device. The host reads amax together with the losses, when
 * it waits for the device anyway. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "train/runner_internal.h"

/* Room for growth between two steps; beyond it, values are clipped. It costs only small values: fp8's
 * precision is relative, and gradients have a wider type. */
static const double input_margin = 2, gradient_margin = 8;

const char *const fp8_scaling_names[] = {"exact", "delayed", NULL};

static int64_t slot_count(const Runner *runner) {
    return (runner->model->config.layers + 1) * (int64_t)FP8_SLOTS; /* with those of the head */
}

Status runner_fp8_init(Runner *runner) {
    size_t count = (size_t)slot_count(runner);
    const RunnerSpec *spec = &runner->spec;
    if (!spec->fp8 || spec->fp8_scaling != FP8_DELAYED || !spec->train) return OK;
    TRY(mem_new(count, sizeof *runner->fp8.host_scale, &runner->fp8.host_scale));
    TRY(mem_new(count, sizeof *runner->fp8.host_amax, &runner->fp8.host_amax));
    for (size_t i = 0; i < count; i++) runner->fp8.host_scale[i] = 1;
    TRY(dev_alloc(runner->device, MEM_OPTIMIZER, count * sizeof(float), &runner->fp8.scale));
    return dev_alloc(runner->device, MEM_OPTIMIZER, count * sizeof(float), &runner->fp8.amax);
}

Fp8State runner_fp8_state(const Runner *runner, bool train) {
    int64_t count = slot_count(runner);
    Fp8State state = {0};
    if (!train || !runner->fp8.scale.data) return state;
    state.amax = tensor_1d(runner->fp8.amax.data, DT_F32, count);
    if (runner->fp8.ready) state.scale = tensor_1d(runner->fp8.scale.data, DT_F32, count);
    return state;
}

Status runner_fp8_begin(Runner *runner) {
    if (!runner->fp8.scale.data) return OK;
    return stream_zero(runner_exec(runner)->stream, runner->fp8.amax.data, runner->fp8.amax.bytes);
}

Status runner_fp8_read(Runner *runner) {
    if (!runner->fp8.scale.data) return OK;
    return stream_copy(runner->stream, runner->fp8.host_amax, runner->fp8.amax.data, runner->fp8.amax.bytes,
                       COPY_TO_HOST);
}

/* Bits of magnitudes are ordered like them, with NaN last. */
static Status reduce_amax(Runner *runner, float *amax, int64_t count) {
    CLEANUP(mem_freep) int64_t *bits = NULL;
    if (runner->mesh->world->size == 1) return OK;
    TRY(mem_new((size_t)count, sizeof *bits, &bits));
    for (int64_t i = 0; i < count; i++) {
        uint32_t word;
        memcpy(&word, &amax[i], sizeof word);
        bits[i] = word;
    }
    TRY(host_reduce(runner->mesh->world, bits, count, DT_I64, REDUCE_MAX));
    for (int64_t i = 0; i < count; i++) {
        uint32_t word = (uint32_t)bits[i];
        memcpy(&amax[i], &word, sizeof word);
    }
    return OK;
}

static Status upload_scales(Runner *runner) {
    runner->fp8.ready = true;
    return stream_copy(runner->stream, runner->fp8.scale.data, runner->fp8.host_scale,
                       runner->fp8.scale.bytes, COPY_TO_DEVICE);
}

Status runner_fp8_next(Runner *runner) {
    int64_t count = slot_count(runner);
    if (!runner->fp8.scale.data) return OK;
    TRY(reduce_amax(runner, runner->fp8.host_amax, count));
    for (int64_t i = 0; i < count; i++) {
        bool gradient = i % FP8_OPERANDS == FP8_GRADIENT;
        double amax = runner->fp8.host_amax[i] * (gradient ? gradient_margin : input_margin);
        if (amax > 0 && isfinite(amax))
            runner->fp8.host_scale[i] = fp8_scale(amax, gradient ? DT_E5M2 : DT_E4M3);
    }
    return upload_scales(runner);
}

Status runner_fp8_save(const Runner *runner, json_t *progress) {
    if (!runner->fp8.ready) return OK;
    CLEANUP(json_decrefp) json_t *scales = json_array();
    for (int64_t i = 0; i < slot_count(runner); i++)
        if (json_array_append_new(scales, json_real(runner->fp8.host_scale[i])))
            return FAILED("out of memory");
    return json_put(progress, "fp8_scales", json_incref(scales));
}

Status runner_fp8_load(Runner *runner, const char *from, const json_t *progress) {
    const json_t *scales = json_object_get(progress, "fp8_scales");
    runner->fp8.ready = false;
    if (!scales || !runner->fp8.scale.data) return OK;
    if ((int64_t)json_array_size(scales) != slot_count(runner))
        return FAILED("%s: fp8_scales has %zu elements; expected %lld", from, json_array_size(scales),
                      (long long)slot_count(runner));
    for (int64_t i = 0; i < slot_count(runner); i++) {
        double scale = json_number_value(json_array_get(scales, (size_t)i));
        if (!(scale > 0 && isfinite((float)scale)))
            return FAILED("%s: fp8_scales[%lld] must be a positive number", from, (long long)i);
        runner->fp8.host_scale[i] = (float)scale;
    }
    return upload_scales(runner);
}
