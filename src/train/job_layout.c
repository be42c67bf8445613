/* Layouts against models: what does not divide is refused before any work, with what would do. */
#include <string.h>

#include "train/job.h"

/* The divisors of `number` up to `most`, as "1, 2, 4"; into a buffer. */
enum { DIVISORS_TEXT = 160 };
static const char *divisors(char text[DIVISORS_TEXT], int64_t number, int64_t most) {
    size_t used = 0;
    text[0] = 0;
    for (int64_t d = 1; d <= most && used + 24 < DIVISORS_TEXT; d++)
        if (number % d == 0)
            used +=
                (size_t)snprintf(text + used, DIVISORS_TEXT - used, used ? ", %lld" : "%lld", (long long)d);
    return text;
}

static Status check_tensor(const ModelConfig *c, int64_t tp) {
    char text[DIVISORS_TEXT];
    if (c->heads % tp)
        return USAGE("--tp %lld: the model's %lld heads do not divide into so many parts; --tp %s would do",
                     (long long)tp, (long long)c->heads, divisors(text, c->heads, c->heads));
    if (c->inner % tp)
        return USAGE(
            "--tp %lld: the inner width of %lld does not divide into so many parts; --tp %s would do",
            (long long)tp, (long long)c->inner, divisors(text, c->inner, c->heads));
    return OK;
}

/* Groups of inputs have a scale each, which no two tensor ranks may have to agree on. */
static Status check_rounding(const JobSpec *spec, const ModelConfig *c, const RunnerSpec *plan, int64_t tp) {
    if (!plan->round) return OK;
    if (plan->fp8)
        return USAGE("--quantize-aware %s: --precision fp8 rounds in its own way; bf16 would do",
                     spec->quantize_aware);
    if (plan->round != ROUND_INT4 || tp == 1) return OK;
    int64_t width = config_attention(c) / tp;
    if (width % INT4_GROUP || (c->inner / tp) % INT4_GROUP)
        return USAGE("--quantize-aware int4: a tensor rank's %lld and %lld inputs are no whole groups of %d; "
                     "a smaller --tp would do",
                     (long long)width, (long long)(c->inner / tp), INT4_GROUP);
    return OK;
}

static Status parse_rounding(const char *name, RoundTo *ret_round) {
    static const char *const names[] = {"none", "int8", "int4"};
    for (int i = 0; i < 3; i++)
        if (!name || !strcmp(name, names[i])) {
            *ret_round = (RoundTo)i;
            return OK;
        }
    return USAGE("--quantize-aware %s: expected none, int8 or int4", name);
}

static Status check_pipeline(const JobSpec *spec, const ModelConfig *c, const RunnerSpec *plan, int64_t pp) {
    if (spec->pp_chunks > 1 && plan->schedule != SCHEDULE_INTERLEAVED)
        return USAGE("--pp-chunks %lld: is for --pp-schedule interleaved", (long long)spec->pp_chunks);
    if (plan->schedule == SCHEDULE_INTERLEAVED && pp == 1)
        return USAGE("--pp-schedule interleaved: needs several stages; use --pp 2 or more");
    if (pp > c->layers)
        return USAGE(
            "--pp %lld: the model has %lld layers, and every stage needs one; at most --pp %lld would do",
            (long long)pp, (long long)c->layers, (long long)c->layers);
    if (pp * plan->chunks > c->layers)
        return USAGE(
            "--pp-chunks %d: %lld stages of so many chunks are more than the model's %lld layers; %s",
            plan->chunks, (long long)pp, (long long)c->layers,
            c->layers / pp > 1 ? "fewer chunks would do" : "--pp-schedule 1f1b would do");
    return OK;
}

static Status check_batch(const JobSpec *spec, int64_t dp) {
    int64_t unit = dp * spec->micro_batch, below = spec->batch / unit * unit;
    if (!spec->batch || spec->batch % unit == 0) return OK;
    if (!below)
        return USAGE(
            "--batch %lld: is less than one micro-batch of %lld for each of %lld replicas; --batch %lld "
            "would do",
            (long long)spec->batch, (long long)spec->micro_batch, (long long)dp, (long long)unit);
    return USAGE(
        "--batch %lld: does not divide into micro-batches of %lld over %lld replicas; --batch %lld or "
        "%lld would do",
        (long long)spec->batch, (long long)spec->micro_batch, (long long)dp, (long long)below,
        (long long)(below + unit));
}

Status job_settle_layout(const JobSpec *spec, const ModelConfig *config, int64_t seq, RunnerSpec *plan) {
    const Mesh *mesh = spec->mesh;
    int64_t dp = mesh ? mesh->extent[AXIS_DP] : 1, tp = mesh ? mesh->extent[AXIS_TP] : 1;
    int64_t pp = mesh ? mesh->extent[AXIS_PP] : 1;
    plan->mesh = spec->mesh;
    plan->zero = (int)spec->zero;
    plan->keep_params = spec->keep_params;
    TRY(offload_parse(spec->offload ? spec->offload : "none", &plan->offload));
    plan->sequence = spec->sequence;
    TRY(schedule_parse(spec->pp_schedule ? spec->pp_schedule : "1f1b", &plan->schedule));
    plan->chunks = spec->pp_chunks ? (int)spec->pp_chunks : plan->schedule == SCHEDULE_INTERLEAVED ? 2 : 1;
    if (pp == 1 && plan->schedule != SCHEDULE_INTERLEAVED) plan->schedule = SCHEDULE_1F1B;
    Precision precision = {0};
    TRY(kernels_precision(spec->device, spec->precision, &precision));
    plan->dtype = precision.dtype;
    plan->fp8 = precision.fp8;
    /* A GPU's memory is what a large vocabulary's loss takes time by. */
    plan->logits = strcmp(spec->device, "cuda") == 0 ? plan->dtype : DT_F32;
    plan->loss_scale = spec->loss_scale;
    plan->scale_steps = spec->loss_scale_steps;
    TRY(parse_rounding(spec->quantize_aware, &plan->round));
    TRY(check_tensor(config, tp));
    TRY(check_rounding(spec, config, plan, tp));
    TRY(check_pipeline(spec, config, plan, pp));
    TRY(check_batch(spec, dp));
    if (spec->sequence && seq % tp)
        return USAGE("--sequence-parallel: sequences of %lld positions do not divide over %lld tensor ranks; "
                     "--seq %lld would do",
                     (long long)seq, (long long)tp, (long long)(seq / tp * tp));
    plan->micros = (int)(spec->batch ? spec->batch / (dp * spec->micro_batch) : 1);
    plan->noise = spec->train && dp * plan->micros > 1;
    return OK;
}
