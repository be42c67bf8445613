/* Each option is a knob with settings of rising cost in time. One knob is turned at a time, as far as it
 * takes; where none alone is enough, two are; then all as far as they go. Plans of models with very many
 * layers take long: once they come to a bound, no more are tried. */
#include "plan/fit.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

/* ---- what there is ---- */

static bool has(const Cluster *cluster, const char *precision) {
    for (Rate rate = 0; rate < RATE_COUNT; rate++)
        if (strcmp(precision, rate_name(rate)) == 0) return cluster->peak_flops[rate] > 0;
    return true; /* not a precision: others say so */
}

static Status refuse_precision(const Cluster *cluster, const char *precision) {
    char list[64];
    size_t used = 0;
    for (Rate rate = 0; rate < RATE_COUNT; rate++)
        if (cluster->peak_flops[rate] > 0)
            used += (size_t)snprintf(list + used, sizeof list - used, used ? ", %s" : "%s", rate_name(rate));
    return USAGE("--precision %s: a %s of cluster %s has no such products; it has %s", precision,
                 cluster->device, cluster->name, list);
}

Status fit_settle(PlanSpec *spec, const Cluster *cluster) {
    TrainConfig *c = &spec->config;
    const char *kind = cluster->gpu ? "cuda" : "cpu";
    if (c->device && strcmp(c->device, kind))
        return USAGE("--device %s: the devices of cluster %s are of kind %s", c->device, cluster->name, kind);
    c->device = kind;
    spec->software = cluster->software.present ? &cluster->software : NULL;
    if (spec->software && c->offload && strcmp(c->offload, "none"))
        return USAGE("--offload %s: cluster %s describes %s, which keeps everything on its GPUs", c->offload,
                     cluster->name, cluster->software.title);
    if (!c->precision) c->precision = !cluster->gpu ? "fp32" : has(cluster, "bf16") ? "bf16" : "fp16";
    return has(cluster, c->precision) ? OK : refuse_precision(cluster, c->precision);
}

/* What a stage's ranks need of their devices; a CPU's memory is its host's, too. */
static double needed_by(const Plan *plan, int stage, const Cluster *cluster) {
    const RankMemory *memory = &plan->stage[stage].memory;
    return (double)memory->saving + (cluster->gpu ? 0 : (double)memory->host);
}

static Fit room_of(const Cluster *cluster, MeshSpec mesh) {
    double ranks = (double)mesh.dp * mesh.tp * mesh.pp;
    double here = ranks < cluster->devices_per_node ? ranks : cluster->devices_per_node;
    return (Fit){.available = cluster->memory_bytes - cluster->reserve_bytes,
                 .host_available = cluster->host_memory_bytes / here};
}

bool fit_fits(const Plan *plan, const Cluster *cluster) {
    Fit room = room_of(cluster, plan->mesh);
    for (int s = 0; s < plan->stages; s++) {
        if (needed_by(plan, s, cluster) > room.available) return false;
        if ((double)plan->stage[s].memory.host > room.host_available) return false;
    }
    return true;
}

/* ---- knobs ---- */

enum { KNOB_TEXT = 64 };

/* Sets the knob one further; false where it is at its end. */
typedef struct Knob {
    bool (*turn)(PlanSpec *spec);
    void (*say)(const PlanSpec *spec, char text[KNOB_TEXT]);
} Knob;

static bool turn_micro_batch(PlanSpec *spec) {
    TrainConfig *c = &spec->config;
    int64_t share = c->batch / spec->mesh.dp, micro = c->micro_batch / 2;
    while (micro > 1 && share % micro) micro--;
    if (micro < 1) return false;
    c->micro_batch = micro;
    return true;
}
static void say_micro_batch(const PlanSpec *spec, char text[KNOB_TEXT]) {
    snprintf(text, KNOB_TEXT, "--micro-batch %lld", (long long)spec->config.micro_batch);
}

static bool turn_recompute(PlanSpec *spec) {
    const char **recompute = &spec->config.recompute;
    if (!strcmp(*recompute, "block")) return false;
    *recompute = strcmp(*recompute, "none") ? "block" : "selective";
    return true;
}
static void say_recompute(const PlanSpec *spec, char text[KNOB_TEXT]) {
    snprintf(text, KNOB_TEXT, "--recompute %s", spec->config.recompute);
}

static bool turn_zero(PlanSpec *spec) {
    if (spec->mesh.dp == 1 || spec->config.zero == 3) return false;
    spec->config.zero++;
    return true;
}
static void say_zero(const PlanSpec *spec, char text[KNOB_TEXT]) {
    snprintf(text, KNOB_TEXT, "--zero %lld", (long long)spec->config.zero);
}

static bool turn_offload(PlanSpec *spec) {
    if (spec->software) return false; /* it has no such thing */
    const char **offload = &spec->config.offload;
    if (!strcmp(spec->config.device, "cpu")) return false; /* its memory is the host's */
    bool none = !*offload || !strcmp(*offload, "none");
    if (!none && strcmp(*offload, "optimizer")) return false;
    *offload = none ? "optimizer" : "params";
    return true;
}
static void say_offload(const PlanSpec *spec, char text[KNOB_TEXT]) {
    snprintf(text, KNOB_TEXT, "--offload %s", spec->config.offload);
}

/* Twice as many along an axis, taken from the replicas where they are even in number, else added. */
static bool turn_axis(PlanSpec *spec, int *axis) {
    enum { MOST = 1 << 16 };
    if (*axis >= MOST) return false;
    *axis *= 2;
    if (spec->mesh.dp % 2 == 0) spec->mesh.dp /= 2;
    spec->mesh.shard = 0;
    return true;
}
static bool turn_tensor(PlanSpec *spec) {
    return turn_axis(spec, &spec->mesh.tp);
}
static bool turn_pipeline(PlanSpec *spec) {
    return turn_axis(spec, &spec->mesh.pp);
}
static void say_mesh(const PlanSpec *spec, char text[KNOB_TEXT]) {
    const MeshSpec *mesh = &spec->mesh;
    snprintf(text, KNOB_TEXT, "--ranks %d --dp %d --tp %d --pp %d", mesh->dp * mesh->tp * mesh->pp, mesh->dp,
             mesh->tp, mesh->pp);
}

static const Knob knobs[] = {
    {turn_micro_batch, say_micro_batch}, {turn_recompute, say_recompute}, {turn_zero, say_zero},
    {turn_offload, say_offload},         {turn_tensor, say_mesh},         {turn_pipeline, say_mesh},
};

enum { KNOBS = sizeof knobs / sizeof *knobs, PLAIN_KNOBS = 4 /* those that leave the ranks as they are */ };

/* ---- trying ---- */

typedef struct Finding {
    Fit fit;
    const Cluster *cluster;
    int64_t layers;
    double work; /* of the plans so far */
} Finding;

/* Layers that are carried out on paper: each takes about 10 us. At least one plan is tried. */
static bool has_time(Finding *finding, const PlanSpec *spec) {
    const double most = 4e5;
    double pp = spec->mesh.pp,
           micros = (double)spec->config.batch / spec->mesh.dp / (double)spec->config.micro_batch;
    double layers = (double)finding->layers / pp + 2, at_once = micros < 3 * pp ? micros : 3 * pp;
    if (finding->work > most) return finding->fit.short_of_work = true, false;
    finding->work += 3 * layers * at_once;
    return true;
}

/* Plans a changed layout; one that cannot be is one that does not fit. */
static Status try_spec(Finding *finding, const PlanSpec *spec, bool *ret_legal, bool *ret_fits,
                       size_t *ret_total) {
    CLEANUP(plan_done) Plan plan = {0};
    PlanSpec changed = *spec;
    changed.sketch = true;
    *ret_legal = *ret_fits = false;
    if (!has_time(finding, spec)) return OK;
    Status status = plan_init(&plan, &changed);
    *ret_legal = !status;
    *ret_fits = !status && fit_fits(&plan, finding->cluster);
    if (*ret_fits) *ret_total = plan.stage[plan.fullest].memory.saving;
    if (!status || status_exit_code(status) == STATUS_USAGE) {
        status_free(status);
        return OK;
    }
    return status;
}

/* Turns a knob until the layout fits. */
static Status turn_until(Finding *finding, const Knob *knob, PlanSpec *spec, bool *ret_fits,
                         size_t *ret_total) {
    *ret_fits = false;
    bool legal = true;
    while (legal && !*ret_fits && knob->turn(spec)) TRY(try_spec(finding, spec, &legal, ret_fits, ret_total));
    return OK;
}

static void add_change(Fit *fit, const PlanSpec *spec, const Knob *const *turned, int count, size_t total) {
    if (fit->changes == FIT_CHANGES) return;
    FitChange *change = &fit->change[fit->changes++];
    size_t used = 0;
    change->total = total;
    for (int i = 0; i < count && used < FIT_TEXT; i++) {
        char text[KNOB_TEXT];
        turned[i]->say(spec, text);
        used += (size_t)snprintf(change->options + used, FIT_TEXT - used, i ? " %s" : "%s", text);
    }
}

static int64_t ranks_of(const PlanSpec *spec) {
    return (int64_t)spec->mesh.dp * spec->mesh.tp * spec->mesh.pp;
}

/* *ret_same: how many changes leave the number of ranks as it is. */
static Status turn_one(Finding *finding, const PlanSpec *spec, int *ret_same) {
    for (int i = 0; i < KNOBS; i++) {
        PlanSpec changed = *spec;
        bool enough;
        size_t total = 0;
        TRY(turn_until(finding, &knobs[i], &changed, &enough, &total));
        const Knob *turned[] = {&knobs[i]};
        if (enough) add_change(&finding->fit, &changed, turned, 1, total);
        if (enough && ranks_of(&changed) == ranks_of(spec)) ++*ret_same;
    }
    return OK;
}

/* The first knob by as little as possible. Two that change the ranks are not tried together. */
static Status turn_two(Finding *finding, const PlanSpec *spec, int knob_count) {
    for (int i = 0; i < PLAIN_KNOBS; i++)
        for (int j = i + 1; j < knob_count && finding->fit.changes < FIT_CHANGES; j++) {
            PlanSpec first = *spec;
            bool enough = false;
            while (!enough && knobs[i].turn(&first)) {
                PlanSpec both = first;
                size_t total = 0;
                TRY(turn_until(finding, &knobs[j], &both, &enough, &total));
                const Knob *turned[] = {&knobs[i], &knobs[j]};
                if (enough) add_change(&finding->fit, &both, turned, 2, total);
            }
        }
    return OK;
}

/* Everything that leaves the ranks as they are, and then more of them. */
static Status turn_all(Finding *finding, const PlanSpec *spec) {
    for (int i = PLAIN_KNOBS; i < KNOBS; i++) {
        PlanSpec changed = *spec;
        const Knob *turned[PLAIN_KNOBS + 1];
        int count = 0;
        for (int k = 0; k < PLAIN_KNOBS; k++) {
            bool moved = false;
            while (knobs[k].turn(&changed)) moved = true;
            if (moved) turned[count++] = &knobs[k];
        }
        bool legal = false, enough = false;
        size_t total = 0;
        TRY(try_spec(finding, &changed, &legal, &enough, &total));
        if (enough) {
            add_change(&finding->fit, &changed, turned, count, total);
            return OK;
        }
        TRY(turn_until(finding, &knobs[i], &changed, &enough, &total));
        turned[count++] = &knobs[i];
        if (enough) add_change(&finding->fit, &changed, turned, count, total);
    }
    return OK;
}

Status fit_find(Fit *ret_fit, const Plan *plan, const PlanSpec *spec, const Cluster *cluster) {
    Finding finding = {.fit = room_of(cluster, spec->mesh), .cluster = cluster, .layers = plan->model.layers};
    finding.fit.fits = fit_fits(plan, cluster);
    for (int s = 0; s < plan->stages; s++)
        finding.fit.needed = fmax(finding.fit.needed, needed_by(plan, s, cluster));
    if (!finding.fit.fits) {
        PlanSpec settled = *spec;
        settled.config.micro_batch = plan->runner.micro_batch;
        int same = 0;
        TRY(turn_one(&finding, &settled, &same));
        /* More ranks are not always to be had. */
        if (!same) TRY(turn_two(&finding, &settled, finding.fit.changes ? PLAIN_KNOBS : KNOBS));
        if (!finding.fit.changes) TRY(turn_all(&finding, &settled));
    }
    *ret_fit = finding.fit;
    return OK;
}

Status fit_json(const Fit *fit, const Cluster *cluster, json_t *json) {
    CLEANUP(json_decrefp) json_t *list = json_array();
    for (int i = 0; i < fit->changes; i++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "options", fit->change[i].options, "total",
                                              (json_int_t)fit->change[i].total));
    CLEANUP(json_decrefp)
    json_t *more = json_pack(
        "{s:{s:s, s:s, s:f, s:f, s:s*}, s:f, s:f, s:f, s:b, s:O, s:b}", "cluster", "name", cluster->name,
        "device", cluster->device, "memory_bytes", cluster->memory_bytes, "reserve_bytes",
        cluster->reserve_bytes, "software", cluster->software.present ? cluster->software.title : NULL,
        "memory_needed", fit->needed, "memory_available", fit->available, "host_memory_available",
        fit->host_available, "fits", fit->fits, "would_fit", list, "all_tried", !fit->short_of_work);
    if (!more || json_object_update(json, more) != 0) return FAILED("out of memory while writing the plan");
    return OK;
}
