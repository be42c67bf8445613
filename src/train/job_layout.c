/* Checks that a layout divides the model and the batch, before any memory is allocated. Each error names
 * values that work. */
#include <string.h>

#include "base/format.h"
#include "base/setting.h"
#include "train/job.h"

/* The inner sizes of a dense layer, an expert and a shared one; 0: there is none. */
enum { INNER_SIZES = 3 };
static void inner_sizes(const ModelConfig *c, int64_t inner[INNER_SIZES]) {
    inner[0] = config_sparse_layers(c) < c->layers ? c->inner : 0;
    inner[1] = c->experts ? c->expert_inner : 0;
    inner[2] = c->shared_inner;
}

static Status check_tensor(const ModelConfig *c, int64_t tp) {
    char text[DIVISORS_TEXT];
    if (c->heads % tp)
        return USAGE("{tp} %lld does not divide the model's %lld head%s; valid values: %s", (long long)tp,
                     (long long)c->heads, PLURAL(c->heads), format_divisors(text, c->heads, c->heads));
    if (!config_splits_groups(c, tp))
        return USAGE("{tp} %lld neither divides the model's %lld key-value heads nor is a multiple of them",
                     (long long)tp, (long long)config_kv_heads(c));
    int64_t inner[INNER_SIZES];
    inner_sizes(c, inner);
    for (size_t i = 0; i < INNER_SIZES; i++)
        if (inner[i] % tp)
            return USAGE("{tp} %lld does not divide the feed-forward size %lld%s; valid values: %s",
                         (long long)tp, (long long)inner[i], i ? " of an expert" : "",
                         format_divisors(text, inner[i], c->heads));
    if (tp > 1 && c->qk_norm_whole)
        return USAGE("{tp} %lld: %s normalizes q and k over all heads together, so heads cannot be split; "
                     "use {tp} 1",
                     (long long)tp, c->family->title);
    return OK;
}

/* Each int4 group of inputs has its own scale, so a group must not be split between tensor-parallel ranks. */
static Status check_qat(const RunnerSpec *run, const ModelConfig *c, int64_t tp) {
    if (!run->fake_quant) return OK;
    if (run->fp8)
        return USAGE("{quantize-aware} %s cannot be combined with {precision} fp8; use {precision} bf16",
                     fake_quant_names[run->fake_quant]);
    if (run->fake_quant != FAKE_QUANT_INT4 || tp == 1) return OK;
    int64_t width = config_attention(c) / tp, inner[INNER_SIZES];
    inner_sizes(c, inner);
    for (size_t i = 0; i < INNER_SIZES; i++)
        if (width % INT4_GROUP || (inner[i] / tp) % INT4_GROUP)
            return USAGE(
                "{quantize-aware} int4: the %lld attention and %lld feed-forward inputs per "
                "tensor-parallel rank are not multiples of the int4 group size %d; use a smaller {tp}",
                (long long)width, (long long)(inner[i] / tp), INT4_GROUP);
    return OK;
}

static int64_t heads_each(const ModelConfig *c, int64_t tp) {
    int64_t groups = config_kv_heads(c);
    return groups > tp ? groups / tp : 1;
}

/* The key-value heads of a tensor-parallel rank are enough for all ranks to swap rows for heads. */
static Status check_swap(const ModelConfig *c, int64_t tp, int64_t cp) {
    char text[DIVISORS_TEXT];
    int64_t each = heads_each(c, tp);
    if (config_splits_context(c, tp, cp)) return OK;
    return USAGE(
        "{cp} %lld does not divide the %lld key-value head%s of each tensor-parallel rank; valid values "
        "with {tp} %lld: %s, or use {cp-mode} gather or ring",
        (long long)cp, (long long)each, PLURAL(each), (long long)tp, format_divisors(text, each, each));
}

/* The same for groups of `heads` adjacent ranks; 1: not given. */
static Status check_groups(const ModelConfig *c, int64_t tp, int64_t cp, int64_t heads) {
    char text[DIVISORS_TEXT] = "";
    size_t used = 0;
    bool given = heads > 1 && heads < cp;
    if (given && config_splits_context(c, tp, heads)) return OK;
    for (int64_t d = 2; d < cp && used + 24 < sizeof text; d++)
        if (cp % d == 0 && config_splits_context(c, tp, d))
            used += (size_t)snprintf(text + used, sizeof text - used, used ? ", %lld" : "%lld", (long long)d);
    int64_t each = heads_each(c, tp);
    if (!used)
        return USAGE("{cp-mode} heads+ring: no smaller group of ranks divides both {cp} %lld and the %lld "
                     "key-value head%s of each tensor-parallel rank; use {cp-mode} gather or ring",
                     (long long)cp, (long long)each, PLURAL(each));
    if (given)
        return USAGE(
            "{cp-heads} %lld does not divide the %lld key-value head%s of each tensor-parallel rank; "
            "valid values with {cp} %lld and {tp} %lld: %s",
            (long long)heads, (long long)each, PLURAL(each), (long long)cp, (long long)tp, text);
    return USAGE(
        "{cp-mode} heads+ring needs {cp-heads}, the adjacent ranks that exchange heads; valid values "
        "with {cp} %lld and {tp} %lld: %s",
        (long long)cp, (long long)tp, text);
}

/* How ranks of context parallelism reach each other's positions: by default they swap rows for heads, if
 * there are enough. `heads`: adjacent ranks that do so while others do not. */
static Status resolve_context(RunnerSpec *run, const ModelConfig *c, int64_t tp, int64_t cp, int64_t heads) {
    if (run->cp_mode == CONTEXT_AUTO)
        run->cp_mode = config_splits_context(c, tp, cp) ? CONTEXT_HEADS : CONTEXT_GATHER;
    if (run->cp_mode == CONTEXT_HEADS) return check_swap(c, tp, cp);
    return run->cp_mode == CONTEXT_BOTH ? check_groups(c, tp, cp, heads) : OK;
}

static Status check_context(const RunnerSpec *run, int64_t seq, int64_t cp, int64_t tp) {
    char text[DIVISORS_TEXT];
    if (cp == 1) return OK;
    if (seq % cp || seq == cp)
        return USAGE("{cp} %lld does not divide the sequence length %lld into parts of at least 2 tokens; "
                     "valid values: %s",
                     (long long)cp, (long long)seq, format_divisors(text, seq, seq / 2));
    if (run->sequence && seq / cp % tp)
        return USAGE(
            "{sequence-parallel}: the %lld tokens of a sequence on each rank, with {cp} %lld, are not "
            "a multiple of {tp} %lld; use {seq} %lld",
            (long long)(seq / cp), (long long)cp, (long long)tp,
            (long long)((seq + cp * tp - 1) / (cp * tp) * cp * tp));
    return OK;
}

static Status check_pipeline(const RunnerSpec *run, const ModelConfig *c, int64_t pp) {
    if (run->chunks > 1 && run->schedule != SCHEDULE_INTERLEAVED)
        return USAGE("{pp-chunks} %lld applies only to {pp-schedule} interleaved", (long long)run->chunks);
    if (run->schedule == SCHEDULE_INTERLEAVED && pp == 1)
        return USAGE("{pp-schedule} interleaved needs at least two stages; use {pp} 2 or more");
    if (pp > c->layers)
        return USAGE(
            "{pp} %lld: the model has %lld layer%s and every stage needs at least one; use {pp} %lld or less",
            (long long)pp, (long long)c->layers, PLURAL(c->layers), (long long)c->layers);
    if (pp * run->chunks > c->layers)
        return USAGE(
            c->layers / pp > 1
                ? "{pp-chunks} %lld with {pp} %lld needs more layers than the model's %lld; use fewer chunks"
                : "{pp-chunks} %lld with {pp} %lld needs more layers than the model's %lld; use "
                  "{pp-schedule} 1f1b",
            (long long)run->chunks, (long long)pp, (long long)c->layers);
    return OK;
}

/* Rows of a batch have 32-bit numbers. */
static Status check_micro_batch(const RunnerSpec *run, int64_t seq) {
    enum { LIMIT = 1 << 20 }; /* of the option */
    char name[32];
    int64_t most = INT32_MAX / seq;
    if (run->micro_batch <= most) return OK;
    if (most > LIMIT) most = LIMIT;
    setting_print(name, sizeof name, run->train ? "{micro-batch}" : "{batch}");
    return USAGE("%s %lld with {seq} %lld is more than %d tokens at a time; use %s %lld or less", name,
                 (long long)run->micro_batch, (long long)seq, INT32_MAX, name, (long long)most);
}

static Status check_batch(int64_t batch, int64_t micro, int64_t dp) {
    int64_t multiple = dp * micro, below = batch / multiple * multiple;
    if (!batch || batch % multiple == 0) return OK;
    if (!below)
        return USAGE(
            "{batch} %lld is less than one micro-batch of %lld on each of %lld replica%s; use {batch} %lld",
            (long long)batch, (long long)micro, (long long)dp, PLURAL(dp), (long long)multiple);
    return USAGE(
        "{batch} %lld does not divide into micro-batches of %lld on %lld replica%s; use {batch} %lld or %lld",
        (long long)batch, (long long)micro, (long long)dp, PLURAL(dp), (long long)below,
        (long long)(below + multiple));
}

/* Fragments take turns, and the exchange of one ends before that of the next begins. */
static Status check_sync(OuterSpec *outer) {
    if (!outer->every) return OK;
    if (!outer->fragments) outer->fragments = 1;
    if (outer->fragments > outer->every)
        return USAGE(
            "{sync-fragments} %lld: each is synchronized once in {sync-every} %lld steps, at a step of "
            "its own; use {sync-fragments} %lld or less",
            (long long)outer->fragments, (long long)outer->every, (long long)outer->every);
    int64_t turn = outer->every / outer->fragments;
    if (outer->overlap > turn)
        return USAGE(
            "{sync-overlap} %lld: with {sync-every} %lld and {sync-fragments} %lld, the next fragment "
            "follows after %lld step%s; use {sync-overlap} %lld or less",
            (long long)outer->overlap, (long long)outer->every, (long long)outer->fragments, (long long)turn,
            PLURAL(turn), (long long)turn);
    return OK;
}

static Status check_gradients(const RunnerSpec *run, const Mesh *mesh) {
    if (run->grad_type != GRAD_INT8 || !mesh) return OK;
    if (run->dtype == DT_F16)
        return USAGE(
            "{grad-dtype} int8 cannot be combined with {precision} fp16, whose loss scale changes; use "
            "{precision} bf16 or {grad-dtype} bf16");
    if (mesh->shard->size > 1 && mesh->replica->size > 1 && !run->outer.every)
        return USAGE(
            "{grad-dtype} int8 cannot be combined with {shard} %d, which sums gradients in two steps; use "
            "{grad-dtype} bf16",
            mesh->shard->size);
    return OK;
}

/* Ranks that hold different experts. */
static Status check_divided(const RunnerSpec *run, const ModelConfig *c, const Mesh *mesh) {
    char text[DIVISORS_TEXT];
    if (!mesh || mesh->ep == 1) return OK;
    if (!c->experts) return USAGE("{ep} %d: the model has no experts; drop {ep}", mesh->ep);
    if (c->experts % mesh->ep) {
        MeshSpec spec = mesh_spec(mesh);
        spec.ep = (int)c->experts;
        int most = mesh_experts_fit(spec); /* divides both the experts and the ranks */
        return USAGE("{ep} %d does not divide the model's %lld experts; valid values: %s", mesh->ep,
                     (long long)c->experts, format_divisors(text, most, most));
    }
    if (run->outer.every)
        return USAGE("{ep} %d cannot be combined with {sync-every}; drop one of them", mesh->ep);
    return OK;
}

Status job_resolve_layout(Job *job, const ModelConfig *config) {
    const DeviceSettings *device = &job->settings.device;
    RunnerSpec *run = &job->settings.run;
    const Mesh *mesh = run->mesh;
    int64_t dp = mesh ? mesh->extent[AXIS_DP] : 1, tp = mesh ? mesh->extent[AXIS_TP] : 1;
    int64_t cp = mesh ? mesh->extent[AXIS_CP] : 1;
    int64_t pp = mesh ? mesh->extent[AXIS_PP] : 1, batch = job->settings.training.batch;
    if (!run->chunks) run->chunks = run->schedule == SCHEDULE_INTERLEAVED ? 2 : 1;
    if ((pp == 1 || !run->train) && run->schedule != SCHEDULE_INTERLEAVED) run->schedule = SCHEDULE_1F1B;
    Precision precision = {0};
    TRY(kernels_precision(device->name, device->precision, &precision));
    run->dtype = precision.dtype;
    run->fp8 = precision.fp8;
    /* On a GPU the loss over a large vocabulary is limited by memory bandwidth, so logits use the compute
     * type. */
    run->logits = strcmp(device->name, "cuda") == 0 ? run->dtype : DT_F32;
    TRY(check_tensor(config, tp));
    TRY(check_context(run, job->seq, cp, tp));
    if (cp > 1) TRY(resolve_context(run, config, tp, cp, mesh->swap->size));
    TRY(check_qat(run, config, tp));
    TRY(check_pipeline(run, config, pp));
    TRY(check_batch(batch, run->micro_batch, dp));
    TRY(check_micro_batch(run, job->seq));
    if (!run->train) run->outer = (OuterSpec){0};
    TRY(check_sync(&run->outer));
    TRY(check_gradients(run, mesh));
    TRY(check_divided(run, config, mesh));
    if (run->sequence && job->seq % tp)
        return USAGE(
            "{sequence-parallel}: the sequence length %lld is not a multiple of {tp} %lld; use {seq} %lld",
            (long long)job->seq, (long long)tp, (long long)(job->seq / tp * tp));
    run->micros = (int)(batch ? batch / (dp * run->micro_batch) : 1);
    int64_t workers = mesh && run->outer.every ? mesh->replica->size : 1, ep = mesh ? mesh->ep : 1;
    /* Ranks that exchange tokens, or parts of a sequence, have one gradient together. */
    int64_t joined = ep > cp ? ep : cp;
    run->noise =
        run->train && joined % ep == 0 && joined % cp == 0 && dp * cp / workers / joined * run->micros > 1;
    return OK;
}
