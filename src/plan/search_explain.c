/* Presents the result of a search: command-line options, explanations and JSON. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/setting.h"
#include "plan/search_space.h"

const char *search_options(const SearchLayout *l, char text[SEARCH_OPTIONS]) {
    int used = 0;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (mesh_shows(l->mesh, axis))
            used += setting_print(text + used, SEARCH_OPTIONS - (size_t)used, "{%s} %d ",
                                  axis_info(axis)->name, mesh_extent(l->mesh, axis));
    if (l->mesh.ep > 1)
        used += setting_print(text + used, SEARCH_OPTIONS - (size_t)used, "{ep} %d ", l->mesh.ep);
    used += setting_print(text + used, SEARCH_OPTIONS - (size_t)used, "{zero} %d {micro-batch} %lld", l->zero,
                          (long long)l->micro_batch);
    if (mesh_extent(l->mesh, AXIS_CP) > 1)
        used += setting_print(text + used, SEARCH_OPTIONS - (size_t)used, " {cp-mode} %s",
                              context_mode_names[l->cp_mode]);
    if (l->mesh.heads)
        used += setting_print(text + used, SEARCH_OPTIONS - (size_t)used, " {cp-heads} %d", l->mesh.heads);
    if (l->mesh.pp > 1)
        used += setting_print(text + used, SEARCH_OPTIONS - (size_t)used, " {pp-schedule} %s",
                              schedule_name(l->schedule));
    if (l->chunks > 1)
        used += setting_print(text + used, SEARCH_OPTIONS - (size_t)used, " {pp-chunks} %d", l->chunks);
    if (l->recompute != RECOMPUTE_NONE)
        used += setting_print(text + used, SEARCH_OPTIONS - (size_t)used, " {recompute} %s",
                              recompute_names[l->recompute]);
    if (l->sequence) setting_print(text + used, SEARCH_OPTIONS - (size_t)used, " {sequence-parallel}");
    return text;
}

const char *search_other_name(SearchOther other) {
    static const char *const names[OTHER_COUNT] = {
        [OTHER_DDP] = "data parallelism only, nothing sharded (DDP)",
        [OTHER_FSDP] = "data parallelism only, everything sharded (ZeRO-3, FSDP)",
        [OTHER_DATA] = "fastest with data parallelism only",
        [OTHER_TENSOR] = "fastest with tensor parallelism and no pipeline",
        [OTHER_PIPELINE] = "fastest with a pipeline and no tensor parallelism",
        [OTHER_WIDE] = "fastest with tensor parallelism across nodes",
        [OTHER_WHOLE] = "fastest with whole sequences (no context parallelism)",
        [OTHER_HEADS] = "fastest with context parallelism that exchanges positions for heads",
        [OTHER_GATHER] = "fastest with context parallelism that gathers keys and values",
        [OTHER_RING] = "fastest with context parallelism around a ring",
        [OTHER_BOTH] =
            "fastest with context parallelism that exchanges heads in groups, around a ring of them",
        [OTHER_TOGETHER] = "fastest with all experts on every rank (no expert parallelism)",
        [OTHER_NO_RECOMPUTE] = "fastest without recompute",
        [OTHER_1F1B] = "fastest with the non-interleaved 1F1B schedule",
        [OTHER_LARGE] = "fastest estimate, but does not fit",
    };
    return names[other];
}

/* ---- explanations ---- */

static const double same_speed = 1.005; /* layouts closer than this are equally fast */

static const char *communication_text(const SearchLayout *first, const SearchLayout *other) {
    static const char *const modes[CONTEXT_MODES] = {
        [CONTEXT_HEADS] = "communication (all exchange heads)",
        [CONTEXT_GATHER] = "communication (keys and values gathered)",
        [CONTEXT_RING] = "communication (keys and values passed from rank to rank)",
        [CONTEXT_BOTH] = "communication (heads exchanged in groups, keys and values passed on)"};
    bool parts = mesh_extent(other->mesh, AXIS_CP) > 1;
    bool differs = other->cp_mode != first->cp_mode || other->mesh.heads != first->mesh.heads;
    return other->zero == 3                  ? "parameter all-gathers and gradient reduce-scatters"
           : other->mesh.tp > first->mesh.tp ? "communication between more tensor-parallel ranks"
           : mesh_experts(other->mesh) > mesh_experts(first->mesh) ? "tokens exchanged between more ranks"
           : other->mesh.dp > first->mesh.dp                       ? "gradient reduction over more replicas"
           : other->mesh.cp > first->mesh.cp ? "communication between more parts of sequences"
           : parts && differs                ? modes[other->cp_mode]
                                             : "communication";
}

/* Completes "3 ms more in ...": the phase that takes longer, with the reason if the layouts show it. */
static const char *phase_text(TimePhase phase, const SearchLayout *first, const SearchLayout *other) {
    switch (phase) {
    case TIME_FORWARD:
    case TIME_BACKWARD:
        return other->mesh.tp > first->mesh.tp           ? "compute (smaller GEMMs)"
               : other->micro_batch < first->micro_batch ? "compute (smaller micro-batches)"
               : other->micro_batch > first->micro_batch ? "compute (slowest stage)"
                                                         : "compute";
    case TIME_RECOMPUTE: return "recompute";
    case TIME_COMMUNICATION: return communication_text(first, other);
    case TIME_BUBBLE: return "the pipeline bubble";
    case TIME_OPTIMIZER:
        return other->zero == 0 && first->zero > 0 ? "the optimizer step (not sharded)"
                                                   : "the optimizer step";
    default: return "";
    }
}

/* Seconds in a phase; forward and backward are combined under TIME_FORWARD. */
static double phase_seconds(const StepEstimate *time, TimePhase phase) {
    if (phase == TIME_FORWARD) return time->phase_s[TIME_FORWARD] + time->phase_s[TIME_BACKWARD];
    return phase == TIME_BACKWARD ? 0 : time->phase_s[phase];
}

static const char *seconds_text(char text[32], double seconds) {
    snprintf(text, 32, seconds < 0.1 ? "%.3g ms" : "%.3g s", seconds < 0.1 ? 1e3 * seconds : seconds);
    return text;
}

const char *search_why(const SearchResult *first, const SearchResult *other, char text[SEARCH_TEXT]) {
    double slower = other->time.step_s - first->time.step_s;
    int named = 0;
    size_t used = 0;
    text[0] = 0;
    bool done[TIME_COUNT] = {false};
    while (named < 2 && used < SEARCH_TEXT) {
        TimePhase slowest = TIME_COUNT;
        double worst = 0.2 * fabs(slower);
        for (TimePhase phase = 0; phase < TIME_COUNT; phase++) {
            double more = phase_seconds(&other->time, phase) - phase_seconds(&first->time, phase);
            if (done[phase] || more <= worst) continue;
            worst = more;
            slowest = phase;
        }
        if (slowest == TIME_COUNT) break;
        char seconds[32];
        done[slowest] = true;
        used += (size_t)snprintf(text + used, SEARCH_TEXT - used, "%s%s more in %s", named ? ", " : "",
                                 seconds_text(seconds, worst),
                                 phase_text(slowest, &first->layout, &other->layout));
        named++;
    }
    return text;
}

SearchLoss search_loss(const SearchResult *first, const SearchResult *other) {
    static const SearchLoss losses[TIME_COUNT] = {[TIME_FORWARD] = LOSES_TO_COMPUTE,
                                                  [TIME_RECOMPUTE] = LOSES_TO_RECOMPUTE,
                                                  [TIME_COMMUNICATION] = LOSES_TO_COMMUNICATION,
                                                  [TIME_BACKWARD] = LOSES_TO_COMPUTE,
                                                  [TIME_BUBBLE] = LOSES_TO_BUBBLE,
                                                  [TIME_OPTIMIZER] = LOSES_TO_OPTIMIZER};
    SearchLoss loss = LOSES_TO_NONE;
    double worst = 0;
    if (!other->fits) return LOSES_TO_MEMORY;
    if (other->time.step_s < same_speed * first->time.step_s) return LOSES_TO_NONE;
    for (TimePhase phase = 0; phase < TIME_COUNT; phase++) {
        double more = phase_seconds(&other->time, phase) - phase_seconds(&first->time, phase);
        if (more <= worst) continue;
        worst = more;
        loss = losses[phase];
    }
    return loss;
}

const char *search_reason(const SearchResult *first, const SearchResult *other, double available,
                          char text[SEARCH_TEXT]) {
    char needed[FORMAT_SIZE], limit[FORMAT_SIZE], why[SEARCH_TEXT], slower[32] = "equally fast";
    double ratio = other->time.step_s / first->time.step_s;
    if (!other->fits) {
        snprintf(text, SEARCH_TEXT, "does not fit: needs %s per rank, %s available",
                 format_bytes(needed, (double)other->bytes), format_bytes(limit, available));
        return text;
    }
    if (ratio >= 2)
        snprintf(slower, sizeof slower, "%.3g times as long", ratio);
    else if (ratio >= same_speed)
        snprintf(slower, sizeof slower, "%.1f%% slower", 100 * (ratio - 1));
    why[0] = 0;
    if (ratio >= same_speed) search_why(first, other, why);
    snprintf(text, SEARCH_TEXT, "%s%s%.*s", slower, *why ? "; " : "", SEARCH_TEXT - 40, why);
    return text;
}

/* ---- JSON ---- */

static json_t *phases_json(const StepEstimate *time) {
    json_t *json = json_object();
    for (TimePhase phase = 0; phase < TIME_COUNT; phase++)
        json_object_set_new(json, time_phase(phase), json_real(1e3 * time->phase_s[phase]));
    return json;
}

static json_t *plan_row(const SearchResult *plan) {
    const SearchLayout *l = &plan->layout;
    char options[SEARCH_OPTIONS];
    json_t *layout = json_object();
    mesh_put(layout, l->mesh);
    if (mesh_extent(l->mesh, AXIS_CP) > 1)
        json_object_set_new(layout, "cp_mode", json_string(context_mode_names[l->cp_mode]));
    if (l->mesh.heads) json_object_set_new(layout, "cp_heads", json_integer(l->mesh.heads));
    json_t *rest = json_pack("{s:i, s:b, s:s, s:i, s:s, s:I, s:i}", "zero", l->zero, "sequence_parallel",
                             (int)l->sequence, "pp_schedule", schedule_name(l->schedule), "pp_chunks",
                             l->chunks, "recompute", recompute_names[l->recompute], "micro_batch",
                             (json_int_t)l->micro_batch, "micros", l->micros);
    json_object_update(layout, rest);
    json_decref(rest);
    return json_pack("{s:s, s:o, s:I, s:b, s:f, s:f, s:f, s:f, s:f, s:o}", "options",
                     search_options(l, options), "layout", layout, "memory", (json_int_t)plan->bytes, "fits",
                     (int)plan->fits, "step_ms", 1e3 * plan->time.step_s, "samples_per_s",
                     plan->time.samples_per_s, "tokens_per_s", plan->time.tokens_per_s, "mfu", plan->time.mfu,
                     "bubble", plan->time.bubble, "phases_ms", phases_json(&plan->time));
}

static json_t *others_json(const Search *search) {
    json_t *list = json_array();
    for (SearchOther other = 0; other < OTHER_COUNT; other++) {
        if (!search->has_other[other]) continue;
        const SearchResult *plan = &search->other[other];
        char why[SEARCH_TEXT] = "", reason[SEARCH_TEXT] = "";
        if (search->count && plan->fits) search_why(&search->best[0], plan, why);
        if (search->count) search_reason(&search->best[0], plan, search->available, reason);
        json_t *row = plan_row(plan);
        json_object_set_new(row, "reason", json_string(reason));
        json_object_set_new(row, "what", json_string(search_other_name(other)));
        json_object_set_new(row, "why", json_string(why));
        json_array_append_new(list, row);
    }
    return list;
}

Status search_json(const Search *search, const SearchSpec *spec, const Cluster *cluster, json_t **ret_json) {
    const Settings *c = &spec->base.config;
    const ModelConfig *m = &search->model;
    json_t *best = json_array();
    for (int i = 0; i < search->count; i++) json_array_append_new(best, plan_row(&search->best[i]));
    json_t *json = json_pack(
        "{s:{s:s, s:I, s:I, s:I, s:I}, s:I, s:{s:s, s:s}, s:f, s:i, s:I, s:I, s:s, s:{s:b, s:i, s:i, s:i, "
        "s:i, s:i, s:I, s:I, s:I}, s:b, s:o, s:o}",
        "model", "family", m->family->type, "layers", (json_int_t)m->layers, "hidden", (json_int_t)m->hidden,
        "heads", (json_int_t)m->heads, "vocab", (json_int_t)m->vocab, "params_total",
        (json_int_t)search->params_total, "cluster", "name", cluster->name, "device", cluster->device,
        "memory_available", search->available, "ranks", spec->ranks, "batch", (json_int_t)c->training.batch,
        "seq", (json_int_t)search->seq, "precision", c->device.precision, "layouts", "context",
        search->grids.context, "grids", search->grids.all, "grids_without_heads", search->grids.by_heads,
        "grids_without_layers", search->grids.by_layers, "grids_without_batch", search->grids.by_batch,
        "grids_without_context", search->grids.by_context, "legal", (json_int_t)search->legal,
        "fit_by_estimate", (json_int_t)search->estimated_to_fit, "planned", (json_int_t)search->planned,
        "fits", search->count > 0, "best", best, "others", others_json(search));
    if (json && !search->count) {
        json_object_set_new(json, "smallest", plan_row(&search->smallest));
        json_object_set_new(json, "all_tried", json_boolean(search->all_tried));
    }
    if (!json) return FAILED("out of memory while writing the search result");
    *ret_json = json;
    return OK;
}
