/* Each setting of the schedule that changed becomes one clause, such as "... is 2000 (was 1000)". */
#include "train/lr_change.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/setting.h"

Status lr_save(const LrSchedule *schedule, json_t **ret_json) {
    *ret_json = json_pack("{s:s, s:s, s:f, s:f, s:I, s:I, s:b}", "schedule", lr_name(schedule->kind),
                          "warmup_type", lr_warmup_name(schedule->warmup_type), "lr", schedule->peak,
                          "min_lr", schedule->floor, "warmup", (json_int_t)schedule->warmup, "steps",
                          (json_int_t)schedule->steps, "from_zero", schedule->from_zero);
    if (*ret_json && schedule->kind == LR_WSD) {
        json_object_set_new(*ret_json, "decay", json_integer((json_int_t)schedule->decay));
        json_object_set_new(*ret_json, "decay_type", json_string(lr_decay_name(schedule->decay_type)));
    }
    return *ret_json ? OK : FAILED("out of memory");
}

static Status restore(const json_t *saved, LrSchedule *ret_schedule) {
    *ret_schedule = (LrSchedule){.peak = json_number_at(saved, "lr"),
                                 .floor = json_number_at(saved, "min_lr"),
                                 .warmup = json_int_at(saved, "warmup"),
                                 .decay = json_int_at(saved, "decay"),
                                 .steps = json_int_at(saved, "steps"),
                                 .from_zero = json_is_true(json_object_get(saved, "from_zero"))};
    TRY(lr_parse(json_string_or(saved, "schedule", ""), &ret_schedule->kind));
    TRY(lr_parse_decay(json_string_value(json_object_get(saved, "decay_type")), &ret_schedule->decay_type));
    return lr_parse_warmup(json_string_or(saved, "warmup_type", ""), &ret_schedule->warmup_type);
}

typedef struct Clauses {
    char text[512];
    size_t used;
} Clauses;

static void add(Clauses *clauses, const char *setting, const char *now, const char *was) {
    if (!strcmp(now, was) || clauses->used >= sizeof clauses->text) return;
    clauses->used +=
        (size_t)setting_print(clauses->text + clauses->used, sizeof clauses->text - clauses->used,
                              "%s{%s} is %s (was %s)", clauses->used ? ", " : "", setting, now, was);
}

static void add_number(Clauses *clauses, const char *setting, double now, double was) {
    char here[32], there[32];
    snprintf(here, sizeof here, "%.10g", now);
    snprintf(there, sizeof there, "%.10g", was);
    add(clauses, setting, here, there);
}

Status lr_change_text(const LrSchedule *now, const json_t *saved, int64_t step, char **ret_text) {
    LrSchedule was;
    Clauses clauses = {0};
    *ret_text = NULL;
    if (!json_is_object(saved)) return OK;
    TRY(restore(saved, &was));
    add_number(&clauses, "steps", (double)now->steps, (double)was.steps);
    add_number(&clauses, "lr", now->peak, was.peak);
    add_number(&clauses, "min-lr", now->floor, was.floor);
    add(&clauses, "schedule", lr_name(now->kind), lr_name(was.kind));
    add_number(&clauses, "warmup", (double)now->warmup, (double)was.warmup);
    add(&clauses, "warmup-type", lr_warmup_name(now->warmup_type), lr_warmup_name(was.warmup_type));
    add(&clauses, "schedule-from-zero", now->from_zero ? "on" : "off", was.from_zero ? "on" : "off");
    if (now->kind == LR_WSD && was.kind == LR_WSD) {
        add_number(&clauses, "decay-steps", (double)now->decay, (double)was.decay);
        add(&clauses, "decay-type", lr_decay_name(now->decay_type), lr_decay_name(was.decay_type));
    }
    if (!clauses.used || step >= now->steps) return OK;
    return str_format(ret_text, "learning rate: %.3g in step %lld, %.3g from step %lld on, because %s",
                      lr_at(&was, step), (long long)step, lr_at(now, step + 1), (long long)(step + 1),
                      clauses.text);
}
