/* Both checks name the setting that differs and both ways out: to drop it, or to start another run. */
#include "train/trainer.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/setting.h"
#include "model/family.h"
#include "model/rope.h"

static Status other_model(const Settings *settings, const char *size, int64_t now, int64_t was) {
    return USAGE("{model} %s: the run in %s has another model, with {%s} %lld instead of %lld; drop {model}, "
                 "or choose another {out}",
                 settings->model.name, settings->ckpt.out, size, (long long)was, (long long)now);
}

static Status other_value(const char *run, const char *setting, const char *now, const char *was) {
    return USAGE("{%s} %s: the run in %s has %s; drop {%s}, or choose another {out}", setting, now, run, was,
                 setting);
}

/* A run with an extended context continues with the same scaling. */
static Status check_rope(const char *run, const ModelConfig *now, const ModelConfig *was) {
    const char *name = rope_scaling_name(was->rope.scaling);
    if (now->rope.scaling == was->rope.scaling && now->rope.factor == was->rope.factor) return OK;
    if (was->rope.scaling == ROPE_PLAIN)
        return USAGE("the run in %s has no rotary scaling; drop {rope-scaling}, or choose another {out}",
                     run);
    return USAGE("the run in %s has {rope-scaling} %s:%g; pass the same, or choose another {out}", run, name,
                 (double)was->rope.factor);
}

Status resume_check_model(const Settings *settings, const ModelConfig *now, const ModelConfig *was) {
    const ModelSettings *model = &settings->model;
    const char *run = settings->ckpt.out;
    if (now->family != was->family)
        return USAGE(
            "{model} %s: the run in %s has a %s model, not %s; drop {model}, or choose another {out}",
            model->name, run, was->family->title, now->family->title);
    if (model->untie && was->tied)
        return USAGE("{untie}: the run in %s has no output matrix of its own; drop {untie}, or choose "
                     "another {out}",
                     run);
    TRY(check_rope(run, now, was));
    const struct {
        const char *setting;
        int64_t asked, now, was;
    } sizes[] = {{"layers", model->layers, now->layers, was->layers},
                 {"hidden", model->hidden, now->hidden, was->hidden},
                 {"heads", model->heads, now->heads, was->heads},
                 {"inner", model->inner, now->inner, was->inner},
                 {"experts", model->experts, now->experts, was->experts},
                 {"top-k", model->top_k, now->top_k, was->top_k},
                 {"expert-inner", model->expert_inner, now->expert_inner, was->expert_inner},
                 {"seq", model->seq, now->positions, was->positions},
                 {"vocab", model->vocab, now->vocab, was->vocab}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char now_text[24], was_text[24];
        bool vocab = !strcmp(sizes[i].setting, "vocab");
        if (sizes[i].now == sizes[i].was) continue;
        snprintf(now_text, sizeof now_text, "%lld", (long long)sizes[i].now);
        snprintf(was_text, sizeof was_text, "%lld", (long long)sizes[i].was);
        if (sizes[i].asked == sizes[i].now) return other_value(run, sizes[i].setting, now_text, was_text);
        if (!vocab) return other_model(settings, sizes[i].setting, sizes[i].now, sizes[i].was);
        return USAGE(
            "the run in %s has a vocabulary of %s, but that of this data is %s; pass the same {data} "
            "and {tokenizer}, or choose another {out}",
            run, was_text, now_text);
    }
    return OK;
}

/* Numbers and names as users write them. */
static const char *value_text(const json_t *value, char *text, size_t size) {
    if (json_is_string(value)) return json_string_value(value);
    snprintf(text, size, "%.6g", json_number_value(value));
    if (json_is_integer(value)) snprintf(text, size, "%lld", (long long)json_integer_value(value));
    return text;
}

/* The patterns of frozen parameters as users write them. */
static const char *patterns_text(const json_t *patterns, char *text, size_t size) {
    size_t used = 0, i;
    json_t *pattern;
    text[0] = 0;
    json_array_foreach(patterns, i, pattern) used +=
        (size_t)setting_print(text + used, used < size ? size - used : 0, "%s{freeze} '%s'", i ? " " : "",
                              json_string_value(pattern));
    return text;
}

/* Without frozen parameters, there is nothing about them in either. */
static Status check_frozen(const char *run, const json_t *now, const json_t *was) {
    char text[512];
    now = json_object_get(now, "freeze");
    was = json_object_get(was, "freeze");
    if ((!now && !was) || (now && was && json_equal(now, was))) return OK;
    if (!was)
        return USAGE("the run in %s trains all parameters; drop {freeze}, or choose another {out}", run);
    return USAGE("the run in %s has frozen parameters; pass the same %s, or choose another {out}", run,
                 patterns_text(was, text, sizeof text));
}

/* Without a warm-up of the sequence length, or adapters, there is nothing about it in either. */
static Status check_text(const char *run, const char *key, const char *setting, const json_t *now,
                         const json_t *was) {
    now = json_object_get(now, key);
    was = json_object_get(was, key);
    if ((!now && !was) || (now && was && json_equal(now, was))) return OK;
    if (!was) return USAGE("the run in %s has no {%s}; drop it, or choose another {out}", run, setting);
    CLEANUP(mem_freep) char *text = setting_spell(json_is_string(was) ? json_string_value(was) : "others");
    return USAGE("the run in %s has %s; pass the same, or choose another {out}", run, text ? text : "others");
}

static Status refuse(const char *run, const char *key, const json_t *now, const json_t *was) {
    char now_buffer[32], was_buffer[32];
    const char *now_text = value_text(now, now_buffer, sizeof now_buffer);
    const char *was_text = value_text(was, was_buffer, sizeof was_buffer);
    if (!strcmp(key, "data"))
        return USAGE("%s was trained on other data; pass the same {data}, {data-fraction}, {val-fraction}, "
                     "{stride} and {tokenizer}, or start a new run from it with {model} %s and another {out}",
                     run, run);
    if (!strcmp(key, "shuffle"))
        return USAGE("the run in %s %s its data; %s {no-shuffle}, or choose another {out}", run,
                     json_is_true(was) ? "shuffles" : "does not shuffle", json_is_true(was) ? "drop" : "add");
    if (!strcmp(key, "task"))
        return USAGE("the task is %s, but that of the run in %s is %s; pass the same {task} and "
                     "{problem-type}, or choose another {out}",
                     now_text, run, was_text);
    if (!strcmp(key, "params"))
        return USAGE("the model has %s parameters, but that of the run in %s has %s; pass the same model and "
                     "{labels}, or choose another {out}",
                     now_text, run, was_text);
    return other_value(run, key, now_text, was_text);
}

Status resume_check_settings(const char *run, const char *dir, json_t *now, const json_t *was) {
    const char *key;
    json_t *value;
    TRY(check_frozen(run, now, was));
    TRY(check_text(run, "seq_warmup", "seq-warmup", now, was));
    TRY(check_text(run, "lora", "lora", now, was));
    json_object_foreach(now, key, value) {
        const json_t *saved = json_object_get(was, key);
        if (!saved) return FAILED("%s: the saved progress does not record its %s", dir, key);
        if (!json_equal(value, saved)) return refuse(run, key, value, saved);
    }
    return OK;
}

/* ---- the schedule ---- */

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

static void add_clause(Clauses *clauses, const char *setting, const char *now, const char *was) {
    if (!strcmp(now, was) || clauses->used >= sizeof clauses->text) return;
    clauses->used +=
        (size_t)setting_print(clauses->text + clauses->used, sizeof clauses->text - clauses->used,
                              "%s{%s} is %s (was %s)", clauses->used ? ", " : "", setting, now, was);
}

static void add_number(Clauses *clauses, const char *setting, double now, double was) {
    char here[32], there[32];
    snprintf(here, sizeof here, "%.10g", now);
    snprintf(there, sizeof there, "%.10g", was);
    add_clause(clauses, setting, here, there);
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
    add_clause(&clauses, "schedule", lr_name(now->kind), lr_name(was.kind));
    add_number(&clauses, "warmup", (double)now->warmup, (double)was.warmup);
    add_clause(&clauses, "warmup-type", lr_warmup_name(now->warmup_type), lr_warmup_name(was.warmup_type));
    add_clause(&clauses, "schedule-from-zero", now->from_zero ? "on" : "off", was.from_zero ? "on" : "off");
    if (now->kind == LR_WSD && was.kind == LR_WSD) {
        add_number(&clauses, "decay-steps", (double)now->decay, (double)was.decay);
        add_clause(&clauses, "decay-type", lr_decay_name(now->decay_type), lr_decay_name(was.decay_type));
    }
    if (!clauses.used || step >= now->steps) return OK;
    return str_format(ret_text, "learning rate: %.3g in step %lld, %.3g from step %lld on, because %s",
                      lr_at(&was, step), (long long)step, lr_at(now, step + 1), (long long)(step + 1),
                      clauses.text);
}
