/* weft plan --draw: the timeline of a pipeline schedule. */
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "cli/plan.h"
#include "plan/draw.h"

enum { MAX_BOXES = 1 << 16, MAX_STAGES = 1024, DEFAULT_STAGES = 4 };

static Status count_micros(const Invocation *call, const PlanArgs *args, int *ret_micros) {
    if (args->micros && args->train.config.training.batch)
        return USAGE("--micros cannot be combined with --batch; use one or the other");
    if (!args->train.config.training.batch) {
        *ret_micros = args->micros ? (int)args->micros : 8;
        return OK;
    }
    char label[LABEL_SIZE];
    const Settings *config = &args->train.config;
    int64_t batch = config->training.batch,
            micro_batch = config->run.micro_batch ? config->run.micro_batch : 1;
    int64_t dp = args->train.layout.dp ? args->train.layout.dp : 1, each = micro_batch * dp;
    if (batch % each)
        return USAGE("%s %lld: expected a multiple of micro-batch x replicas, %lld x %lld",
                     invocation_label(call, "batch", label), (long long)batch, (long long)micro_batch,
                     (long long)dp);
    if (batch / each > 1 << 16)
        return USAGE("%s %lld: gives %lld micro-batches; expected at most %d",
                     invocation_label(call, "batch", label), (long long)batch, (long long)(batch / each),
                     1 << 16);
    *ret_micros = (int)(batch / each);
    return OK;
}

/* The schedules of all stages. */
typedef struct Pipeline {
    Schedule *stages;
    int count;
    ScheduleTimes times;
} Pipeline;

static void pipeline_done(Pipeline *pipeline) {
    for (int s = 0; pipeline->stages && s < pipeline->count; s++) schedule_done(&pipeline->stages[s]);
    free(pipeline->stages);
}

static Status pipeline_init(Pipeline *ret_pipeline, const ScheduleSpec *spec) {
    CLEANUP(pipeline_done) Pipeline pipeline = {.count = spec->stages};
    TRY(mem_new((size_t)spec->stages, sizeof *pipeline.stages, &pipeline.stages));
    TRY(schedule_init_all(pipeline.stages, spec));
    pipeline.times = schedule_times(pipeline.stages, spec->stages);
    return MOVE(ret_pipeline, pipeline);
}

static Status pipeline_of(Pipeline *ret_pipeline, const Invocation *call) {
    const PlanArgs *args = call->config;
    int64_t pp = invocation_given(call, "pp") ? args->train.layout.pp : DEFAULT_STAGES;
    char label[LABEL_SIZE];
    if (pp > MAX_STAGES)
        return USAGE("%s %lld: too many stages to draw; expected at most %d",
                     invocation_label(call, "pp", label), (long long)pp, MAX_STAGES);
    ScheduleSpec spec = {.kind = args->train.config.run.schedule, .stages = (int)pp};
    spec.chunks = args->train.config.run.chunks       ? (int)args->train.config.run.chunks
                  : spec.kind == SCHEDULE_INTERLEAVED ? 2
                                                      : 1;
    TRY(count_micros(call, args, &spec.micros));
    if ((double)spec.stages * spec.chunks * spec.micros > MAX_BOXES)
        return USAGE(
            "%d stages x %d chunks x %d micro-batches: too many boxes to draw; expected at most %d of a "
            "kind",
            spec.stages, spec.chunks, spec.micros, MAX_BOXES);
    return pipeline_init(ret_pipeline, &spec);
}

/* The bubble of a schedule with one chunk per stage and an unsplit backward pass. */
static double formula(const ScheduleSpec *spec) {
    return (spec->stages - 1.0) / (spec->micros + spec->stages - 1.0);
}

/* ---- the result ---- */

static json_t *describe_stage(const Pipeline *pipeline, int stage) {
    const Schedule *schedule = &pipeline->stages[stage];
    json_t *boxes = json_array();
    for (int i = 0; i < schedule->count; i++) {
        Action action = schedule->action[i];
        double end = schedule->end[i];
        if (!action_computes(action.kind)) continue;
        json_array_append_new(boxes,
                              json_pack("{s:s, s:i, s:i, s:f, s:f}", "action", action_name(action.kind),
                                        "micro", action.micro, "chunk", action.chunk, "start",
                                        end - action_length(action.kind), "end", end));
    }
    return json_pack("{s:i, s:i, s:i, s:o}", "stage", stage, "in_flight", schedule->in_flight, "deferred",
                     schedule->deferred, "timeline", boxes);
}

static Status describe(const Pipeline *pipeline, const char *svg, json_t **ret_result) {
    const ScheduleSpec *spec = &pipeline->stages[0].spec;
    json_t *stages = json_array();
    for (int s = 0; s < pipeline->count; s++) json_array_append_new(stages, describe_stage(pipeline, s));
    json_t *result =
        json_pack("{s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:o, s:s?}", "pp_schedule", schedule_name(spec->kind),
                  "pp", spec->stages, "pp_chunks", spec->chunks, "micros", spec->micros, "makespan",
                  (double)pipeline->times.makespan, "bubble", pipeline->times.bubble, "bubble_formula",
                  formula(spec), "stages", stages, "svg", svg);
    if (!result) return FAILED("out of memory while writing the result");
    *ret_result = result;
    return OK;
}

static Status write_svg(const Pipeline *pipeline, const char *path) {
    const ScheduleSpec *spec = &pipeline->stages[0].spec;
    CLEANUP(mem_freep) char *chunks = NULL;
    CLEANUP(mem_freep) char *title = NULL;
    CLEANUP(mem_freep) char *caption = NULL;
    CLEANUP(mem_freep) char *svg = NULL;
    if (spec->chunks > 1) TRY(str_format(&chunks, " x %d chunks", spec->chunks));
    TRY(str_format(&title, "%s, %d stages%s, %d micro-batches", schedule_name(spec->kind), spec->stages,
                   chunks ? chunks : "", spec->micros));
    TRY(str_format(&caption, "bubble %.1f%%; (p-1)/(m+p-1) = %.1f%%", 100 * pipeline->times.bubble,
                   100 * formula(spec)));
    Timeline timeline = {pipeline->stages, pipeline->count, pipeline->times, title, caption};
    TRY(draw_svg(&timeline, &svg));
    return file_replace(path, svg, strlen(svg));
}

Status plan_draw(const Invocation *call, json_t **ret_result) {
    static const char *const known[] = {"draw",  "pp",          "pp-schedule", "pp-chunks", "micros",
                                        "batch", "micro-batch", "dp",          NULL};
    const char *path = call->operand_count ? call->operands[0] : NULL;
    const Slot *model = invocation_slot(call, "model");
    CLEANUP(pipeline_done) Pipeline pipeline = {0};
    if (model->operand) /* an operand that does not end in .svg */
        return USAGE("'%s': --draw takes no model, only a file to write; expected a name that ends in .svg",
                     *(const char *const *)model->field);
    TRY(plan_only(call, "draw", known));
    TRY(pipeline_of(&pipeline, call));
    if (path) TRY(write_svg(&pipeline, path));
    return describe(&pipeline, path, ret_result);
}

/* ---- for a person ---- */

static void print_in_flight(const Pipeline *pipeline, FILE *out) {
    bool deferred = false;
    fprintf(out, "peak in flight per stage:");
    for (int s = 0; s < pipeline->count; s++) {
        fprintf(out, " %d", pipeline->stages[s].in_flight);
        deferred |= pipeline->stages[s].deferred > 0;
    }
    fprintf(out, " micro-batches%s\n", pipeline->stages[0].spec.chunks > 1 ? " x chunks" : "");
    if (!deferred) return;
    fprintf(out, "peak deferred weight gradients per stage:");
    for (int s = 0; s < pipeline->count; s++) fprintf(out, " %d", pipeline->stages[s].deferred);
    fputc('\n', out);
}

Status plan_draw_show(const Invocation *call, const json_t *result, FILE *out) {
    CLEANUP(pipeline_done) Pipeline pipeline = {0};
    CLEANUP(mem_freep) char *text = NULL;
    TRY(pipeline_of(&pipeline, call));
    Timeline timeline = {.stages = pipeline.stages, .count = pipeline.count, .times = pipeline.times};
    TRY(draw_text(&timeline, terminal_width(out), terminal_color(out), &text));
    fprintf(out, "%s\n", text);
    fprintf(out, "bubble %.1f%%; (p-1)/(m+p-1) = %.1f%%\n", 100 * pipeline.times.bubble,
            100 * formula(&pipeline.stages[0].spec));
    print_in_flight(&pipeline, out);
    const char *svg = json_string_at(result, "svg");
    if (svg) fprintf(out, "wrote %s\n", svg);
    return OK;
}
