/* Finds options that make a plan fit. Each change can be applied repeatedly; every step saves more memory and
 * costs more time. Single changes are tried first, then pairs, then all of them together, each as far as
 * possible. Every candidate is planned. Planning a model with very many layers takes a long time, so the
 * search stops at a bound on the total work. */
#include "plan/fit.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/setting.h"

/* ---- cluster limits ---- */

static Status check_precision(const Cluster *cluster, const char *precision) {
    char list[64] = "";
    size_t used = 0;
    Rate wanted = 0;
    while (wanted < RATE_COUNT && strcmp(precision, rate_name(wanted))) wanted++;
    /* an invalid precision is reported elsewhere */
    if (wanted == RATE_COUNT || cluster_computes(cluster, wanted)) return OK;
    for (Rate rate = 0; rate < RATE_COUNT; rate++)
        if (cluster_computes(cluster, rate))
            used += (size_t)snprintf(list + used, sizeof list - used, used ? ", %s" : "%s", rate_name(rate));
    if (!cluster->software.present && cluster->capability > 0 &&
        cluster->capability < rate_capability(wanted))
        return USAGE(
            "{precision} %s: the %s of cluster %s has compute capability %.1f, but %s needs %.1f; use %s",
            precision, cluster->device, cluster->name, cluster->capability, precision,
            rate_capability(wanted), list);
    return USAGE("{precision} %s: the %s of cluster %s does not support it; use %s", precision,
                 cluster->device, cluster->name, list);
}

/* Usually fp32 on CPUs and bf16 on GPUs; a cluster may have been measured in another one only. */
static const char *default_precision(const Cluster *cluster) {
    static const Rate of_cpu[] = {RATE_FP32, RATE_BF16, RATE_FP16},
                      of_gpu[] = {RATE_BF16, RATE_FP16, RATE_TF32, RATE_FP32, RATE_FP8};
    const Rate *list = cluster->gpu ? of_gpu : of_cpu;
    size_t count = cluster->gpu ? sizeof of_gpu / sizeof *list : sizeof of_cpu / sizeof *list;
    for (size_t i = 0; i < count; i++)
        if (cluster_computes(cluster, list[i])) return rate_name(list[i]);
    return rate_name(list[0]);
}

Status fit_settle(PlanSpec *spec, const Cluster *cluster) {
    Settings *c = &spec->config;
    const char *kind = cluster->gpu ? "cuda" : "cpu";
    if (c->device.name && strcmp(c->device.name, kind))
        return USAGE("{device} %s: cluster %s has %s devices", c->device.name, cluster->name, kind);
    c->device.name = kind;
    spec->capability = (int)(10 * cluster->capability + 0.5);
    spec->per_node = (int)cluster->devices_per_node;
    spec->software = cluster->software.present ? &cluster->software : NULL;
    if (spec->software && c->run.offload)
        return USAGE("{offload} %s: cluster %s describes %s, which does not offload",
                     offload_names[c->run.offload], cluster->name, cluster->software.title);
    if (!c->device.precision) c->device.precision = default_precision(cluster);
    if (cluster->gpu && !spec->software && cluster->capability > 0 && cluster->capability < 7)
        return USAGE("{cluster} %s: the %s has compute capability %.1f, but weft needs 7.0 or newer",
                     cluster->name, cluster->device, cluster->capability);
    return check_precision(cluster, c->device.precision);
}

/* Device memory that a rank of this stage needs; on a CPU, host memory is the same memory. */
static double needed_by(const Plan *plan, int stage, const Cluster *cluster) {
    const RankMemory *memory = &plan->stage[stage].memory;
    return (double)memory->needed + (cluster->gpu ? 0 : (double)memory->host);
}

static Fit memory_available(const Cluster *cluster, MeshSpec mesh) {
    double ranks = (double)mesh_ranks(mesh, AXES_ALL);
    double here = ranks < cluster->devices_per_node ? ranks : cluster->devices_per_node;
    return (Fit){.available = cluster->memory_bytes - cluster->reserve_bytes,
                 .host_available = cluster->host_memory_bytes / here};
}

bool fit_fits(const Plan *plan, const Cluster *cluster) {
    Fit memory = memory_available(cluster, plan->mesh);
    for (int s = 0; s < plan->stages; s++) {
        if (needed_by(plan, s, cluster) > memory.available) return false;
        if ((double)plan->stage[s].memory.host > memory.host_available) return false;
    }
    return true;
}

/* ---- changes ---- */

enum { CHANGE_TEXT = 64 };

/* apply() takes the change one step further and returns false if it is exhausted; print() writes its options.
 */
typedef struct Change {
    bool (*apply)(const ModelConfig *model, PlanSpec *spec);
    void (*print)(const PlanSpec *spec, char text[CHANGE_TEXT]);
} Change;

static bool apply_micro_batch(const ModelConfig *model, PlanSpec *spec) {
    (void)model;
    Settings *c = &spec->config;
    int64_t share = c->training.batch / spec->mesh.dp, micro = c->run.micro_batch / 2;
    while (micro > 1 && share % micro) micro--;
    if (micro < 1) return false;
    c->run.micro_batch = micro;
    return true;
}
static void print_micro_batch(const PlanSpec *spec, char text[CHANGE_TEXT]) {
    setting_print(text, CHANGE_TEXT, "{micro-batch} %lld", (long long)spec->config.run.micro_batch);
}

static bool apply_recompute(const ModelConfig *model, PlanSpec *spec) {
    (void)model;
    if (spec->config.run.recompute == RECOMPUTE_BLOCK) return false;
    spec->config.run.recompute++;
    return true;
}
static void print_recompute(const PlanSpec *spec, char text[CHANGE_TEXT]) {
    setting_print(text, CHANGE_TEXT, "{recompute} %s", recompute_names[spec->config.run.recompute]);
}

static bool apply_zero(const ModelConfig *model, PlanSpec *spec) {
    (void)model;
    if (mesh_copies(spec->mesh) == 1 || spec->config.run.zero == 3) return false;
    spec->config.run.zero++;
    return true;
}
static void print_zero(const PlanSpec *spec, char text[CHANGE_TEXT]) {
    setting_print(text, CHANGE_TEXT, "{zero} %lld", (long long)spec->config.run.zero);
}

/* Divides experts among more of the ranks. */
static bool apply_experts(const ModelConfig *model, PlanSpec *spec) {
    int ep = mesh_experts(spec->mesh) + 1, copies = mesh_copies(spec->mesh);
    while (ep <= copies && (copies % ep || model->experts % ep)) ep++;
    if (!model->experts || ep > copies) return false;
    spec->mesh.ep = ep;
    return true;
}
static void print_experts(const PlanSpec *spec, char text[CHANGE_TEXT]) {
    setting_print(text, CHANGE_TEXT, "{ep} %d", spec->mesh.ep);
}

/* Other programs do not offload. A CPU's device and host share memory. */
static bool can_offload(const PlanSpec *spec) {
    return !spec->software && strcmp(spec->config.device.name, "cpu");
}

static bool apply_offload(const ModelConfig *model, PlanSpec *spec) {
    (void)model;
    if (!can_offload(spec) || offload_state(spec->config.run.offload) == OFFLOAD_PARAMS) return false;
    spec->config.run.offload++;
    return true;
}
/* Otherwise layers keep far more than their inputs. */
static bool apply_activations(const ModelConfig *model, PlanSpec *spec) {
    (void)model;
    Offload *offload = &spec->config.run.offload;
    if (!can_offload(spec) || offload_activations(*offload)) return false;
    if (spec->config.run.recompute != RECOMPUTE_BLOCK) return false;
    *offload = offload_join(*offload, OFFLOAD_ACTIVATIONS);
    return true;
}
static void print_offload(const PlanSpec *spec, char text[CHANGE_TEXT]) {
    setting_print(text, CHANGE_TEXT, "{offload} %s", offload_names[spec->config.run.offload]);
}

/* Doubles an axis. The ranks come from the replicas if their number is even, otherwise they are added. */
static bool apply_axis(PlanSpec *spec, int *axis) {
    enum { MAX_AXIS = 1 << 16 };
    if (*axis >= MAX_AXIS) return false;
    *axis *= 2;
    if (spec->mesh.dp % 2 == 0) spec->mesh.dp /= 2;
    spec->mesh.shard = 0;
    spec->mesh.ep = mesh_experts_fit(spec->mesh);
    return true;
}
static bool apply_tensor(const ModelConfig *model, PlanSpec *spec) {
    (void)model;
    return apply_axis(spec, &spec->mesh.tp);
}
static bool apply_pipeline(const ModelConfig *model, PlanSpec *spec) {
    (void)model;
    return apply_axis(spec, &spec->mesh.pp);
}
static void print_mesh(const PlanSpec *spec, char text[CHANGE_TEXT]) {
    int used = setting_print(text, CHANGE_TEXT, "{ranks} %lld", (long long)mesh_ranks(spec->mesh, AXES_ALL));
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (mesh_shows(spec->mesh, axis))
            used += setting_print(text + used, CHANGE_TEXT - (size_t)used, " {%s} %d", axis_info(axis)->name,
                                  mesh_extent(spec->mesh, axis));
    if (spec->mesh.ep > 1) setting_print(text + used, CHANGE_TEXT - (size_t)used, " {ep} %d", spec->mesh.ep);
}

static const Change changes[] = {
    {apply_micro_batch, print_micro_batch},
    {apply_recompute, print_recompute},
    {apply_zero, print_zero},
    {apply_experts, print_experts},
    {apply_offload, print_offload},
    {apply_activations, print_offload},
    {apply_tensor, print_mesh},
    {apply_pipeline, print_mesh},
};

enum {
    CHANGES = sizeof changes / sizeof *changes,
    SAME_RANKS = 6 /* the first ones keep the number of ranks */
};

/* ---- search ---- */

typedef struct FitSearch {
    Fit fit;
    const Cluster *cluster;
    const ModelConfig *model;
    double work; /* total work of the plans so far, in layers */
} FitSearch;

/* Counts the layers that a plan executes, about 10 us each, and returns false once the bound is exceeded. At
 * least one plan is tried. */
static bool within_bound(FitSearch *search, const PlanSpec *spec) {
    const double max_work = 4e5;
    double pp = spec->mesh.pp, micros = (double)spec->config.training.batch / spec->mesh.dp /
                                        (double)spec->config.run.micro_batch;
    double layers = (double)search->model->layers / pp + 2, at_once = micros < 3 * pp ? micros : 3 * pp;
    if (search->work > max_work) return search->fit.incomplete = true, false;
    search->work += 3 * layers * at_once;
    return true;
}

/* Plans a changed layout; an invalid layout counts as one that does not fit. */
static Status try_spec(FitSearch *search, const PlanSpec *spec, bool *ret_legal, bool *ret_fits,
                       size_t *ret_total) {
    CLEANUP(plan_done) Plan plan = {0};
    PlanSpec changed = *spec;
    changed.sketch = true;
    *ret_legal = *ret_fits = false;
    if (!within_bound(search, spec)) return OK;
    Status status = plan_init(&plan, &changed);
    *ret_legal = !status;
    *ret_fits = !status && fit_fits(&plan, search->cluster);
    if (*ret_fits) *ret_total = plan.stage[plan.fullest].memory.needed;
    if (!status || status_exit_code(status) == STATUS_USAGE) {
        status_free(status);
        return OK;
    }
    return status;
}

/* Applies a change until the layout fits or the change is exhausted. */
static Status apply_until(FitSearch *search, const Change *change, PlanSpec *spec, bool *ret_fits,
                          size_t *ret_total) {
    *ret_fits = false;
    bool legal = true;
    while (legal && !*ret_fits && change->apply(search->model, spec))
        TRY(try_spec(search, spec, &legal, ret_fits, ret_total));
    return OK;
}

static void add_change(Fit *fit, const PlanSpec *spec, const Change *const *applied, int count,
                       size_t total) {
    if (fit->changes == FIT_CHANGES) return;
    FitChange *change = &fit->change[fit->changes++];
    size_t used = 0;
    change->total = total;
    for (int i = 0; i < count && used < FIT_TEXT; i++) {
        char text[CHANGE_TEXT];
        applied[i]->print(spec, text);
        if (strstr(change->options, text)) continue; /* two changes of one option */
        used += (size_t)snprintf(change->options + used, FIT_TEXT - used, used ? " %s" : "%s", text);
    }
}

static int64_t ranks_of(const PlanSpec *spec) {
    return mesh_ranks(spec->mesh, AXES_ALL);
}

/* *ret_same: the number of changes found that keep the number of ranks. */
static Status try_one(FitSearch *search, const PlanSpec *spec, int *ret_same) {
    for (int i = 0; i < CHANGES; i++) {
        PlanSpec changed = *spec;
        bool enough;
        size_t total = 0;
        TRY(apply_until(search, &changes[i], &changed, &enough, &total));
        const Change *applied[] = {&changes[i]};
        if (enough) add_change(&search->fit, &changed, applied, 1, total);
        if (enough && ranks_of(&changed) == ranks_of(spec)) ++*ret_same;
    }
    return OK;
}

/* Applies the first change as little as possible. Two changes of the number of ranks are not combined. */
static Status try_two(FitSearch *search, const PlanSpec *spec, int change_count) {
    for (int i = 0; i < SAME_RANKS; i++)
        for (int j = i + 1; j < change_count && search->fit.changes < FIT_CHANGES; j++) {
            PlanSpec first = *spec;
            bool enough = false;
            while (!enough && changes[i].apply(search->model, &first)) {
                PlanSpec both = first;
                size_t total = 0;
                TRY(apply_until(search, &changes[j], &both, &enough, &total));
                const Change *applied[] = {&changes[i], &changes[j]};
                if (enough) add_change(&search->fit, &both, applied, 2, total);
            }
        }
    return OK;
}

/* Applies everything that keeps the number of ranks, then adds ranks. */
static Status try_all(FitSearch *search, const PlanSpec *spec) {
    for (int i = SAME_RANKS; i < CHANGES; i++) {
        PlanSpec changed = *spec;
        const Change *applied[SAME_RANKS + 1];
        int count = 0;
        for (int k = 0; k < SAME_RANKS; k++) {
            bool moved = false;
            while (changes[k].apply(search->model, &changed)) moved = true;
            if (moved) applied[count++] = &changes[k];
        }
        bool legal = false, enough = false;
        size_t total = 0;
        TRY(try_spec(search, &changed, &legal, &enough, &total));
        if (enough) {
            add_change(&search->fit, &changed, applied, count, total);
            return OK;
        }
        TRY(apply_until(search, &changes[i], &changed, &enough, &total));
        applied[count++] = &changes[i];
        if (enough) add_change(&search->fit, &changed, applied, count, total);
    }
    return OK;
}

Status fit_find(Fit *ret_fit, const Plan *plan, const PlanSpec *spec, const Cluster *cluster) {
    FitSearch search = {
        .fit = memory_available(cluster, spec->mesh), .cluster = cluster, .model = &plan->model};
    search.fit.fits = fit_fits(plan, cluster);
    for (int s = 0; s < plan->stages; s++)
        search.fit.needed = fmax(search.fit.needed, needed_by(plan, s, cluster));
    if (!search.fit.fits) {
        PlanSpec settled = *spec;
        settled.config.run.micro_batch = plan->runner.micro_batch;
        int same = 0;
        TRY(try_one(&search, &settled, &same));
        /* More ranks may not be available, so pairs that keep their number are tried as well. */
        if (!same) TRY(try_two(&search, &settled, search.fit.changes ? SAME_RANKS : CHANGES));
        if (!search.fit.changes) TRY(try_all(&search, &settled));
    }
    *ret_fit = search.fit;
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
        fit->host_available, "fits", fit->fits, "would_fit", list, "all_tried", !fit->incomplete);
    if (!more || json_object_update(json, more) != 0) return FAILED("out of memory while writing the plan");
    return OK;
}
