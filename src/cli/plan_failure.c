/* weft plan --mtbf: goodput under failures, and the best checkpoint interval. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "cli/plan.h"

enum { START_SECONDS = 300 };

static Status reject_without_mtbf(const Invocation *call) {
    static const char *const names[] = {"checkpoint-every", "checkpoint-seconds", "restart-seconds",
                                        "storage-bandwidth", "save-stall"};
    char label[LABEL_SIZE];
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (invocation_given(call, names[i]))
            return USAGE("%s requires --mtbf HOURS", invocation_label(call, names[i], label));
    return OK;
}

static Status parse_interval(const Invocation *call, const char *text, double *ret_seconds) {
    char label[LABEL_SIZE], *end;
    *ret_seconds = 0;
    if (strcmp(text, "auto") == 0) return OK;
    double seconds = strtod(text, &end);
    if (end == text || *end || !(seconds > 0) || !isfinite(seconds))
        return USAGE("%s '%s': expected seconds or auto", invocation_label(call, "checkpoint-every", label),
                     text);
    *ret_seconds = seconds;
    return OK;
}

/* Bytes of a checkpoint per parameter: weight and optimizer state in fp32. Hidden matrices, which may have
 * other state than the rest, are most of a model. */
static double state_bytes(const char *optimizer) {
    const Optimizer *kind = optim_row(0);
    for (int i = 0; optimizer && optim_row(i); i++)
        if (!strcmp(optimizer, optim_row(i)->name)) kind = optim_row(i);
    return 4 * (1 + (kind->whole.count ? kind->whole.count : kind->states.count));
}

Status plan_failure_spec(const Invocation *call, int64_t ranks, int64_t params, FailureSpec *ret_spec) {
    const FailureArgs *args = &((const PlanArgs *)call->config)->failure;
    FailureSpec spec = {0};
    if (args->mtbf_hours > 0) {
        double bytes = state_bytes(((const PlanArgs *)call->config)->train.config.training.optimizer);
        double transfer_s = bytes * (double)params / (double)args->storage_bandwidth;
        spec = (FailureSpec){.devices = (double)ranks, .mtbf_s = 3600 * args->mtbf_hours};
        double write_s = args->checkpoint_seconds > 0 ? args->checkpoint_seconds : transfer_s;
        spec.write_s = args->no_async_save ? 0 : write_s;
        spec.checkpoint_s = args->no_async_save ? write_s : fmin(args->save_stall, write_s);
        spec.restart_s = args->restart_seconds >= 0 ? args->restart_seconds : START_SECONDS + transfer_s;
        TRY(parse_interval(call, args->checkpoint_every, &spec.interval_s));
    } else {
        TRY(reject_without_mtbf(call));
    }
    *ret_spec = spec;
    return OK;
}

/* Adds the checkpoint interval in steps and the effective throughput. */
static void add_rates(const json_t *result, const Failure *failure, json_t *json) {
    double step = 1e-3 * json_number_at(result, "step_ms"), rate = json_number_at(result, "tokens_per_s");
    if (!(step > 0)) return;
    double steps = floor(failure->interval_s / step);
    json_object_set_new(json, "save_every", json_integer((json_int_t)fmin(fmax(steps, 1), 1e15)));
    json_object_set_new(json, "tokens_per_s", json_real(failure->shares.goodput * rate));
}

Status plan_failure_add(const Invocation *call, const json_t *timed, json_t *result) {
    FailureSpec spec;
    Failure failure;
    const json_t *layout = json_object_get(result, "layout");
    TRY(plan_failure_spec(call, (int64_t)json_number_at(layout ? layout : result, "ranks"),
                          (int64_t)json_number_at(result, "params_total"), &spec));
    if (!(spec.devices > 0)) return OK;
    TRY(failure_find(&failure, &spec));
    json_t *json = failure_json(&failure, &spec);
    if (!json) return FAILED("out of memory while writing the plan");
    if (timed) add_rates(timed, &failure, json);
    if (json_object_set_new(result, "failures", json) != 0)
        return FAILED("out of memory while writing the plan");
    return OK;
}

/* ---- for a person ---- */

enum { DURATION = 48 };
static const char *duration(char text[DURATION], double seconds) {
    if (seconds < 120)
        snprintf(text, DURATION, "%.3g s", seconds);
    else if (seconds < 2 * 3600)
        snprintf(text, DURATION, "%.3g min", seconds / 60);
    else if (seconds < 2 * 86400)
        snprintf(text, DURATION, "%.3g h", seconds / 3600);
    else if (seconds < 1e3 * 86400)
        snprintf(text, DURATION, "%.3g days", seconds / 86400);
    else
        snprintf(text, DURATION, "%.3g years", seconds / 86400 / 365.25);
    return text;
}

static void show_interval(const json_t *failures, const char *key, const char *name, FILE *out) {
    const json_t *interval = json_object_get(failures, key);
    char text[DURATION];
    fprintf(out, "%s %s (%.2f%%)", name, duration(text, json_number_at(interval, "interval_s")),
            100 * json_number_at(interval, "goodput"));
}

void plan_failure_show(const json_t *result, FILE *out) {
    const json_t *failures = json_object_get(result, "failures");
    if (!failures) return;
    const json_t *shares = json_object_get(failures, "shares");
    char text[DURATION], more[DURATION], count[FORMAT_SIZE];
    fprintf(out, "\none failure every %s", duration(text, 3600 * json_number_at(failures, "mtbf_hours")));
    fprintf(out, ", checkpoint %s", duration(text, json_number_at(failures, "checkpoint_s")));
    if (json_number_at(failures, "stall_s") < json_number_at(failures, "checkpoint_s"))
        fprintf(out, " in the background (stall %s)", duration(text, json_number_at(failures, "stall_s")));
    fprintf(out, ", restart %s\n", duration(more, json_number_at(failures, "restart_s")));
    fprintf(out, "goodput with a checkpoint every %s",
            duration(text, json_number_at(failures, "checkpoint_every_s")));
    if (json_object_get(failures, "save_every"))
        fprintf(out, " (--save-every %lld)", (long long)json_int_at(failures, "save_every"));
    fprintf(out, ": %.2f%%; lost to checkpoints %.2f%%, repeated work %.2f%%, restarts %.2f%%\n",
            100 * json_number_at(failures, "goodput"), 100 * json_number_at(shares, "checkpoints"),
            100 * json_number_at(shares, "lost"), 100 * json_number_at(shares, "restarts"));
    if (json_object_get(failures, "tokens_per_s"))
        fprintf(out, "effective throughput %s tokens/s\n",
                format_count(count, json_number_at(failures, "tokens_per_s")));
    show_interval(failures, "best", "best interval", out);
    show_interval(failures, "daly", ", Daly's formula", out);
    show_interval(failures, "young", ", Young's", out);
    fputc('\n', out);
}
