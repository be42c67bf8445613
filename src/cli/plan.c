/* weft plan: memory, time and fit of a layout, without running it. */
#include "cli/plan.h"

#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "model/family.h"
#include "plan/fit.h"
#include "plan/time.h"
#include "report/page_plan.h"

/* Default batch: one micro-batch per replica or, with a pipeline, four per stage. */
static void settle_batch(Settings *config, const Layout *layout) {
    if (config->training.batch) return;
    if (!config->run.micro_batch) config->run.micro_batch = 1;
    config->training.batch = layout->dp * config->run.micro_batch * (layout->pp > 1 ? 4 * layout->pp : 1);
}

/* Default threads: the cores of this machine divided among the ranks, as in a run. */
static void settle_threads(Settings *config, int64_t ranks) {
    if (config->device.threads) return;
    config->device.threads = device_host_threads(0) / ranks;
    if (config->device.threads < 1) config->device.threads = 1;
}

static Status plan_spec(Invocation *call, PlanArgs *args, const Cluster *cluster, PlanSpec *ret_spec) {
    Layout *layout = &args->train.layout;
    TRY(layout_settle(call, layout, 0));
    settle_batch(&args->train.config, layout);
    settle_threads(&args->train.config, layout->ranks);
    PlanSpec spec = {.config = args->train.config};
    if (cluster) {
        if (!invocation_given(call, "device")) spec.config.device.name = NULL;
        TRY(fit_settle(&spec, cluster));
        args->train.config.device.name = spec.config.device.name;
    }
    TRY(layout_check(call, &args->train));
    spec.mesh = layout_mesh(layout);
    *ret_spec = spec;
    return OK;
}

Status plan_only(const Invocation *call, const char *mode, const char *const *known) {
    for (const OptionGroup *group = plan_groups; group->options; group++)
        for (size_t i = 0; i < group->count; i++) {
            const char *name = group->options[i].name;
            const Slot *slot = invocation_slot(call, name);
            const char *const *at = known;
            while (*at && strcmp(*at, name)) at++;
            if (!*at && slot && slot->source == SOURCE_LINE)
                return USAGE("--%s cannot be combined with --%s", name, mode);
        }
    return OK;
}

Status plan_cluster(const PlanArgs *args, Cluster *ret_cluster) {
    TRY(cluster_find(args->cluster, ret_cluster));
    if (args->price > 0) ret_cluster->price_per_hour = args->price;
    if (args->power > 0) ret_cluster->power_watts = args->power;
    return OK;
}

void plan_page_add(const Invocation *call, json_t *result) {
    const PlanArgs *args = call->config;
    if (args->html) json_object_set_new(result, "html", json_string(args->html));
}

void plan_page_show(const json_t *result, FILE *out) {
    const char *path = json_string_at(result, "html");
    if (path) fprintf(out, "\nwrote %s\n", path);
}

static Status write_page(const PlanArgs *args, const Plan *plan, const PlanSpec *spec, const Fit *fit,
                         const StepEstimate *time, const Cluster *cluster) {
    CLEANUP(plan_timeline_done) PlanTimeline timeline = {0};
    PlanFacts facts = {.model = &plan->model,
                       .params = plan->params_total,
                       .cluster = cluster,
                       .ranks = (int)mesh_ranks(plan->mesh, AXES_ALL),
                       .batch = plan->batch,
                       .seq = plan->seq,
                       .precision = spec->config.device.precision,
                       .price = cluster->price_per_hour};
    PlannedLayout first = {
        .plan = plan,
        .result = {
            .layout = page_layout_of(plan), .bytes = (size_t)fit->needed, .fits = fit->fits, .time = *time}};
    TRY(plan_timeline(plan, cluster, &timeline));
    first.timeline = &timeline;
    return page_write_plan(&facts, NULL, &first, fit, args->html);
}

void plan_needs_add(const Cluster *cluster, json_t *result) {
    const char *needs = cluster_needs(cluster);
    if (needs) json_object_set_new(result, "needs", json_string(needs));
}

void plan_needs_show(const json_t *result, FILE *out) {
    if (json_string_at(result, "needs")) fprintf(out, "\nnote: %s\n", json_string_at(result, "needs"));
}

void plan_cost_add(const Cluster *cluster, double ranks, double goodput, json_t *result) {
    double units = cluster_units(cluster, ranks), hour = cluster->price_per_hour * units,
           watts = cluster->power_watts * units,
           tokens_per_s = goodput * json_number_at(result, "tokens_per_s");
    if (hour > 0) {
        json_object_set_new(result, "cost_per_hour", json_real(hour));
        json_object_set_new(result, "cost_per_million_tokens", json_finite(1e6 * hour / 3600 / tokens_per_s));
    }
    if (watts > 0) {
        json_object_set_new(result, "power_watts", json_real(watts));
        json_object_set_new(result, "tokens_per_j", json_finite(tokens_per_s / watts));
    }
}

void plan_cost_show(const json_t *result, FILE *out) {
    double tokens_per_j = json_number_at(result, "tokens_per_j");
    char joules[FORMAT_SIZE], watts[FORMAT_SIZE];
    if (json_object_get(result, "cost_per_hour"))
        fprintf(out, "Cost: %.4g per million tokens, %.4g per hour\n",
                json_number_at(result, "cost_per_million_tokens"), json_number_at(result, "cost_per_hour"));
    if (tokens_per_j > 0)
        fprintf(out, "Energy: %sJ per million tokens, at a rated power of %sW\n",
                format_si(joules, 1e6 / tokens_per_j),
                format_si(watts, json_number_at(result, "power_watts")));
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    PlanArgs *args = arguments;
    if (args->draw) return plan_draw(call, ret_result);
    if (args->measure) return plan_measure(call, ret_result);
    /* A file may be one of train, with its run directory. */
    if (invocation_slot(call, "out")->source == SOURCE_LINE) return USAGE("--out applies only to --measure");
    if (args->html && path_is_dir(args->html))
        return USAGE("--html %s is a directory; expected a file", args->html);
    if (args->sweep) return plan_sweep(call, ret_result);
    if (call->operand_count) return USAGE("'%s': only --draw and --sweep write a file", call->operands[0]);
    if (args->search) return plan_search(call, ret_result);
    if (args->micros) return USAGE("--micros applies only to --draw; use --batch and --micro-batch");
    if (args->html && !args->cluster) return USAGE("--html requires --cluster NAME");
    PlanSpec spec;
    Cluster cluster;
    Fit fit;
    StepEstimate time;
    CLEANUP(plan_done) Plan plan = {0};
    CLEANUP(plan_progress_done) PlanProgress progress = {0};
    CLEANUP(json_decrefp) json_t *result = NULL;
    if (args->cluster) TRY(plan_cluster(args, &cluster));
    TRY(plan_spec(call, args, args->cluster ? &cluster : NULL, &spec));
    spec.timed = args->cluster;
    TRY(plan_progress_init(&progress, stderr));
    spec.progress = &progress;
    TRY(plan_init(&plan, &spec));
    if (args->cluster && !fit_fits(&plan, &cluster))
        plan_progress_note(&progress, "looking for changes that fit");
    TRY(plan_json(&plan, &spec, &result));
    if (args->cluster) {
        TRY(fit_find(&fit, &plan, &spec, &cluster));
        TRY(fit_json(&fit, &cluster, result));
        plan_needs_add(&cluster, result);
        TRY(plan_time(&plan, &cluster, &time));
        TRY(time_json(&time, result));
        plan_cost_add(&cluster, (double)args->train.layout.ranks, 1, result);
        if (args->html) TRY(write_page(args, &plan, &spec, &fit, &time, &cluster));
        plan_page_add(call, result);
    }
    TRY(plan_failure_add(call, result, result));
    *ret_result = json_incref(result);
    return OK;
}

/* ---- for a person ---- */

static void print_sync(const json_t *layout, FILE *out) {
    long long every = json_int_at(layout, "sync_every"), fragments = json_int_at(layout, "sync_fragments"),
              overlap = json_int_at(layout, "sync_overlap"),
              workers = mesh_copies(mesh_read(layout)) / json_int_at(layout, "shard");
    if (!every) return;
    fprintf(out, "%lld worker%s, synchronized every %lld step%s in %lld fragment%s", workers, PLURAL(workers),
            every, PLURAL(every), fragments, PLURAL(fragments));
    if (overlap) fprintf(out, " beside %lld step%s each", overlap, PLURAL(overlap));
    fprintf(out, ", in %s\n", json_string_at(layout, "sync_dtype"));
}

static void print_layout(const json_t *result, FILE *out) {
    const json_t *model = json_object_get(result, "model"), *layout = json_object_get(result, "layout");
    char total[FORMAT_SIZE], stored[FORMAT_SIZE], each[FORMAT_SIZE], mesh[MESH_TEXT];
    fprintf(out, "%s, %lld layer%s, hidden size %lld, %lld head%s, vocabulary %lld\n",
            family_find(json_string_at(model, "family"))->title, (long long)json_int_at(model, "layers"),
            PLURAL(json_int_at(model, "layers")), (long long)json_int_at(model, "hidden"),
            (long long)json_int_at(model, "heads"), PLURAL(json_int_at(model, "heads")),
            (long long)json_int_at(model, "vocab"));
    fprintf(out, "%s parameters; %s stored per replica, %s per rank\n",
            format_count(total, (double)json_int_at(result, "params_total")),
            format_count(stored, (double)json_int_at(result, "params_stored")),
            format_count(each, (double)json_int_at(result, "params_per_rank")));
    if (json_object_get(result, "params_trained"))
        fprintf(out, "%s parameters are trained, the others frozen\n",
                format_count(total, (double)json_int_at(result, "params_trained")));
    fprintf(out, "%lld rank%s: %s, ZeRO %lld, %s, recompute %s, offload %s\n",
            (long long)json_int_at(layout, "ranks"), PLURAL(json_int_at(layout, "ranks")),
            mesh_text(mesh_read(layout), mesh), (long long)json_int_at(layout, "zero"),
            json_string_at(layout, "precision"), json_string_at(layout, "recompute"),
            json_string_at(layout, "offload"));
    print_sync(layout, out);
    fprintf(out, "batch %lld x %lld tokens: %lld micro-batch%s of %lld per replica\n\n",
            (long long)json_int_at(layout, "batch"), (long long)json_int_at(layout, "seq"),
            (long long)json_int_at(layout, "micros"), json_int_at(layout, "micros") == 1 ? "" : "es",
            (long long)json_int_at(layout, "micro_batch"));
}

static void print_bytes(double bytes, FILE *out) {
    char text[FORMAT_SIZE];
    fprintf(out, " %11s", bytes > 0 ? format_bytes(text, bytes) : "-");
}

/* Consecutive stages with equal needs share a row. */
static void print_memory(const json_t *result, FILE *out) {
    static const char *const columns[] = {"params", "grads",   "optimizer", "activations",
                                          "comm",   "scratch", "total",     "host"};
    const json_t *stages = json_object_get(result, "stages");
    size_t count = json_array_size(stages);
    fprintf(out, "%-12s", "memory");
    for (size_t k = 0; k < COUNT_OF(columns); k++) fprintf(out, " %11s", columns[k]);
    bool nodes = json_int_at(json_object_get(result, "comm"), "between_nodes") > 0;
    fprintf(out, " %11s%s\n", "sent/step", nodes ? " between nodes" : "");
    for (size_t from = 0, to; from < count; from = to) {
        const json_t *stage = json_array_get(stages, from), *memory = json_object_get(stage, "memory");
        for (to = from + 1; to < count; to++) {
            const json_t *other = json_array_get(stages, to);
            if (!json_equal(json_object_get(other, "memory"), memory) ||
                !json_equal(json_object_get(other, "comm_bytes"), json_object_get(stage, "comm_bytes")))
                break;
        }
        char name[48];
        snprintf(name, sizeof name,
                 count == 1       ? "every rank"
                 : to == from + 1 ? "stage %zu"
                                  : "stage %zu-%zu",
                 from, to - 1);
        fprintf(out, "%-12s", name);
        for (size_t k = 0; k < COUNT_OF(columns); k++)
            print_bytes((double)json_int_at(memory, columns[k]), out);
        const json_t *sent = json_object_get(stage, "comm_bytes");
        print_bytes((double)json_int_at(sent, "total"), out);
        if (nodes) fputs("  ", out);
        if (nodes) print_bytes((double)json_int_at(sent, "between_nodes"), out);
        fputc('\n', out);
    }
}

static void print_saving(const json_t *result, FILE *out) {
    char text[FORMAT_SIZE];
    if (json_string_at(json_object_get(result, "cluster"), "software"))
        return; /* another program's memory is not modeled while saving */
    fprintf(out, "background saves use up to %s of host memory per rank, if available\n",
            format_bytes(text, (double)json_int_at(result, "memory_snapshot")));
}

static void print_time(const json_t *result, FILE *out) {
    const json_t *phases = json_object_get(result, "phases_ms");
    if (!phases) return;
    const char *program = json_string_at(json_object_get(result, "cluster"), "software"), *separator = "";
    char samples[FORMAT_SIZE], tokens[FORMAT_SIZE];
    double step = json_number_at(result, "step_ms"), unit = step < 1e4 ? 1 : 1e3,
           rate = json_number_at(result, "samples_per_s");
    fprintf(out, "\nstep time %.4g %s%s%s: ", step / unit, step < 1e4 ? "ms" : "s", program ? " with " : "",
            program ? program : "");
    for (TimePhase phase = 0; phase < TIME_COUNT; phase++) {
        double ms = json_number_at(phases, time_phase(phase));
        if (ms < 5e-4 * step) continue;
        fprintf(out, "%s%s %.4g (%.1f%%)", separator, time_phase(phase), ms / unit, 100 * ms / step);
        separator = ", ";
    }
    if (rate < 1000)
        snprintf(samples, sizeof samples, "%.3g", rate);
    else
        format_count(samples, rate);
    fprintf(out, "\n%s samples/s, %s tokens/s, MFU %.1f%%, utilization %.1f%%, bubble %.1f%%\n", samples,
            format_count(tokens, json_number_at(result, "tokens_per_s")), 100 * json_number_at(result, "mfu"),
            100 * json_number_at(result, "utilization"), 100 * json_number_at(result, "bubble"));
    plan_cost_show(result, out);
}

/* On a CPU, device memory is host memory, so the two add up. */
static void print_need(const json_t *result, FILE *out) {
    char needed[FORMAT_SIZE], available[FORMAT_SIZE];
    bool gpu = !strcmp(json_string_at(json_object_get(result, "layout"), "device"), "cuda");
    double host = 0, total = (double)json_int_at(result, "memory_saving");
    for (size_t i = 0; i < json_array_size(json_object_get(result, "stages")); i++) {
        const json_t *stage = json_array_get(json_object_get(result, "stages"), i);
        double own = (double)json_int_at(json_object_get(stage, "memory"), "host");
        double both = own + (double)json_int_at(stage, "memory_saving");
        if (own > host) host = own;
        if (!gpu && both > total) total = both;
    }
    const char *software = json_string_at(json_object_get(result, "cluster"), "software");
    fprintf(out, "needs %s per rank", format_bytes(needed, total));
    if (software && *software) fprintf(out, " with %s (the table above is for weft)", software);
    fprintf(out, ", %s available", format_bytes(available, json_number_at(result, "memory_available")));
    if (gpu && host > 0)
        fprintf(out, "; host memory %s, %s available", format_bytes(needed, host),
                format_bytes(available, json_number_at(result, "host_memory_available")));
    fputc('\n', out);
}

static void print_fit(const json_t *result, FILE *out) {
    const json_t *cluster = json_object_get(result, "cluster"), *list = json_object_get(result, "would_fit");
    char needed[FORMAT_SIZE];
    if (!cluster) return;
    bool fits = json_is_true(json_object_get(result, "fits"));
    bool all = json_is_true(json_object_get(result, "all_tried"));
    fprintf(out, "\n%s (%s): ", fits ? "fits" : "does not fit", json_string_at(cluster, "device"));
    print_need(result, out);
    if (fits) return;
    if (!json_array_size(list))
        fprintf(out, "no change was found that makes it fit: %s\n",
                all ? "tried smaller micro-batches, recompute, ZeRO, offload, larger --tp and --pp"
                    : "only a few changes were tried, because planning this many layers is slow");
    else
        fprintf(out, "each of these changes makes it fit:\n");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *change = json_array_get(list, i);
        fprintf(out, "  %-44s %s\n", json_string_at(change, "options"),
                format_bytes(needed, (double)json_int_at(change, "total")));
    }
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const PlanArgs *args = call->config;
    if (args->draw) return plan_draw_show(call, result, out);
    if (args->measure) return plan_measure_show(result, out), OK;
    if (args->sweep) return plan_sweep_show(result, out), OK;
    if (args->search) return plan_search_show(result, out), OK;
    print_layout(result, out);
    print_memory(result, out);
    print_saving(result, out);
    print_fit(result, out);
    print_time(result, out);
    plan_failure_show(result, out);
    plan_needs_show(result, out);
    plan_page_show(result, out);
    return OK;
}

const Command command_plan = {
    .name = "plan",
    .summary = "predict memory and step time of a layout without running it",
    .description =
        "Reports the number of parameters and a breakdown of each rank's memory. The planner executes the "
        "real training code in dry-run mode without allocating anything, so its figures match the peaks "
        "that a run would report. With --cluster it also checks whether the layout fits the devices, "
        "suggests the smallest changes if it does not, and simulates the step time. With --mtbf it "
        "estimates the goodput under failures and the best checkpoint interval.\n"
        "--search finds the fastest layouts on --ranks devices and explains why the first one wins. --sweep "
        "does so for several device counts. --measure writes a cluster file for this machine.\n"
        "--draw shows the timeline of a pipeline schedule and its bubble, assuming equal cost per chunk, "
        "backward passes twice as long as forward passes, and free communication. It draws the schedules "
        "that runs execute, and checks them for deadlocks.",
    .positional = POSITIONAL("model"),
    .suffix = ".svg",
    .operands = "[FILE.svg]",
    .operands_max = 1,
    .config_size = sizeof(PlanArgs),
    .groups = plan_groups,
    .examples =
        {{"Memory of GPT-2 medium on one rank in bf16", "weft plan gpt2-medium --batch 8 --precision bf16"},
         {"Check whether a model with 8.3 B parameters fits on 16 GPUs",
          "weft plan --model gpt2 --layers 72 --hidden 3072 --heads 32 --ranks 16 --tp 8 --batch 16 "
          "--recompute "
          "block --precision fp16 --cluster dgx2-v100"},
         {"Step time of BERT-large on an H200, by phase",
          "weft plan --model bert-large --batch 32 --micro-batch 32 --dropout 0 --cluster h200"},
         {"Fastest layouts for 175 B parameters on 1024 GPUs",
          "weft plan --search --ranks 1024 --cluster dgx-a100 --model gpt2 --layers 96 --hidden 12288 "
          "--heads 96 "
          "--seq 2048 --batch 1536"},
         {"The same as a page, with costs", "weft plan --search --ranks 64 --cluster h100 --model gpt2-xl "
                                            "--batch 512 --price 2.5 --html plan.html"},
         {"Scaling of GPT-2 medium, with curves",
          "weft plan --sweep 8,16,...,1024 scaling.svg --model gpt2-medium --batch 64 --cluster h100"},
         {"Measure this machine, for --cluster", "weft plan --measure --out here.json"},
         {"Timeline of the 1F1B schedule with four stages", "weft plan --draw --pp 4 --micros 8"},
         {"The zero-bubble schedule, also as SVG",
          "weft plan --draw zb.svg --pp 4 --micros 8 --pp-schedule zero-bubble"}},
    .other_keys = true,
    .run = run,
    .show = show,
};
