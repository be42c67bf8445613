/* Conclusions from the rounds of one or two kinds of pruning: what it costs, where the loss rises sharply,
 * and how much time it saves. A rise is sharp if a round adds more than SHARP of the unpruned loss and more
 * than all rounds before it together. Zeroed weights save no time, and times with CPU contention show no
 * speedup, so neither has one. */
#include <math.h>
#include <string.h>

#include "base/load.h"
#include "base/memory.h"
#include "compress/prune_rounds.h"

#define SHARP 0.01

typedef struct Curve {
    const json_t *rounds;
    const char *kind;
    size_t last; /* index of the last round */
} Curve;

static Curve curve_of(const json_t *result) {
    const json_t *rounds = json_object_get(result, "rounds");
    const char *kind = json_string_at(json_object_get(result, "settings"), "kind");
    size_t count = json_array_size(rounds);
    return (Curve){.rounds = rounds, .kind = kind ? kind : "pruned", .last = count ? count - 1 : 0};
}

static double value(const Curve *curve, size_t round, const char *key) {
    double number = NAN;
    json_has_number(json_array_get(curve->rounds, round), key, &number);
    return number;
}

static double percent(const Curve *curve, size_t round) {
    return 100 * value(curve, round, "sparsity");
}

/* The first round with a sharp rise; 0: none. */
static size_t sharp_rise(const Curve *curve) {
    double unpruned = value(curve, 0, "val_loss"), before = unpruned;
    for (size_t i = 1; i <= curve->last; i++) {
        double loss = value(curve, i, "val_loss"), rise = loss - before;
        if (rise > SHARP * unpruned && rise > before - unpruned) return i;
        before = loss;
    }
    return 0;
}

static const json_t *load_at(const Curve *curve, size_t round) {
    return json_object_get(json_array_get(curve->rounds, round), "load");
}

static bool is_contended(const Curve *curve) {
    return load_is_disturbed(load_at(curve, 0)) || load_is_disturbed(load_at(curve, curve->last));
}

static bool is_clean(const Curve *curve) {
    return load_is_clean(load_at(curve, 0)) && load_is_clean(load_at(curve, curve->last));
}

static bool leaves_size(const Curve *curve) {
    return !strcmp(curve->kind, "weights");
}

static double speedup(const Curve *curve) {
    if (leaves_size(curve) || is_contended(curve)) return NAN;
    return value(curve, 0, "step_ms") / value(curve, curve->last, "step_ms");
}

static double projected(const Curve *curve) {
    return (1 - value(curve, 0, "sparsity")) / (1 - value(curve, curve->last, "sparsity"));
}

static Status add_figures(json_t *kinds, const Curve *curve) {
    size_t sharp = sharp_rise(curve);
    json_t *figures =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "kind", curve->kind, "pruned",
                  json_finite(value(curve, curve->last, "sparsity")), "val_loss_unpruned",
                  json_finite(value(curve, 0, "val_loss")), "val_loss",
                  json_finite(value(curve, curve->last, "val_loss")), "rises_sharply_at",
                  sharp ? json_finite(value(curve, sharp, "sparsity")) : json_null(), "step_ms_unpruned",
                  json_finite(value(curve, 0, "step_ms")), "step_ms",
                  json_finite(value(curve, curve->last, "step_ms")), "speedup", json_finite(speedup(curve)),
                  "speedup_projected", json_finite(projected(curve)), "contended", is_contended(curve));
    return json_array_append_new(kinds, figures) ? FAILED("out of memory") : OK;
}

static Status add_text(json_t *sentences, const char *text) {
    return json_array_append_new(sentences, json_string(text)) ? FAILED("out of memory") : OK;
}

static Status add_loss(json_t *sentences, const Curve *curve) {
    CLEANUP(mem_freep) char *start = NULL, *text = NULL;
    double unpruned = value(curve, 0, "val_loss"), loss = value(curve, curve->last, "val_loss");
    size_t sharp = sharp_rise(curve);
    if (!isfinite(unpruned) || !isfinite(loss)) return OK;
    TRY(str_format(&start, "%s: validation loss %.4f unpruned, %.4f with %.0f%% pruned (%+.1f%%)",
                   curve->kind, unpruned, loss, percent(curve, curve->last), 100 * (loss / unpruned - 1)));
    if (sharp) {
        double rise = value(curve, sharp, "val_loss") - value(curve, sharp - 1, "val_loss");
        TRY(str_format(&text, "%s; it rises sharply at %.0f%%, by %.4f.", start, percent(curve, sharp),
                       rise));
    } else {
        TRY(str_format(&text, "%s, without a sharp rise.", start));
    }
    return add_text(sentences, text);
}

/* "other processes used 0.8 to 1.4 of the 2 cores" in the first or the last round. */
static Status load_text(const Curve *curve, char **ret_text) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    Load least, most;
    load_extend(&least, &most, 0, load_read(load_at(curve, 0)));
    load_extend(&least, &most, 1, load_read(load_at(curve, curve->last)));
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory");
    load_put(out, &least, &most);
    if (fclose(out)) return FAILED("out of memory");
    *ret_text = text;
    text = NULL;
    return OK;
}

static Status add_time(json_t *sentences, const Curve *curve) {
    CLEANUP(mem_freep) char *text = NULL, *load = NULL, *times = NULL;
    double before = value(curve, 0, "step_ms"), after = value(curve, curve->last, "step_ms");
    if (!isfinite(before) || !isfinite(after)) return OK;
    if (leaves_size(curve)) {
        TRY(str_format(&text, "%s: no time is saved, because zeros are multiplied like other weights.",
                       curve->kind));
        return add_text(sentences, text);
    }
    TRY(str_format(&times, "%s: %.2f ms per step unpruned, %.2f ms with %.0f%% pruned", curve->kind, before,
                   after, percent(curve, curve->last)));
    if (is_contended(curve)) {
        TRY(load_text(curve, &load));
        TRY(str_format(&text,
                       "%s, but with CPU contention, so that no speedup is stated: %s; %.2fx if "
                       "projected from the share pruned.",
                       times, load, projected(curve)));
        return add_text(sentences, text);
    }
    TRY(str_format(&text, "%s: measured speedup %.2fx%s, %.2fx if projected from the share pruned.", times,
                   speedup(curve), is_clean(curve) ? "" : " (load unknown)", projected(curve)));
    return add_text(sentences, text);
}

/* Compares the rounds of two kinds, which have the same target percentages. */
static Status add_comparison(json_t *sentences, const Curve *one, const Curve *two) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t last = one->last < two->last ? one->last : two->last, worse = 0;
    double first = value(two, 1, "val_loss") - value(one, 1, "val_loss");
    double end = value(two, last, "val_loss") - value(one, last, "val_loss");
    if (!last || !isfinite(first) || !isfinite(end)) return OK;
    for (size_t i = 1; i <= last; i++) worse += value(two, i, "val_loss") > value(one, i, "val_loss");
    TRY(str_format(&text,
                   "%s has a higher loss than %s in %zu of %zu rounds: difference %+.4f at %.0f%%, %+.4f at "
                   "%.0f%%.",
                   two->kind, one->kind, worse, last, first, percent(two, 1), end, percent(two, last)));
    return add_text(sentences, text);
}

Status prune_conclude(const PruneSpec *spec, json_t *to, const json_t *result, const json_t *other) {
    CLEANUP(json_decrefp) json_t *kinds = json_array(), *sentences = json_array();
    Curve curve[2] = {curve_of(result)};
    int count = 1;
    if (other) curve[count++] = curve_of(other);
    for (int i = 0; i < count; i++) TRY(add_figures(kinds, &curve[i]));
    for (int i = 0; i < count; i++)
        if (curve[i].last) TRY(add_loss(sentences, &curve[i]));
    if (other) TRY(add_comparison(sentences, &curve[0], &curve[1]));
    for (int i = 0; i < count; i++)
        if (curve[i].last) TRY(add_time(sentences, &curve[i]));
    json_t *conclusion = json_pack("{s:O, s:O}", "kinds", kinds, "text", sentences);
    if (!conclusion || json_object_set_new(to, "conclusion", conclusion)) return FAILED("out of memory");
    if (spec->study && json_object_set(to, "study", (json_t *)(uintptr_t)spec->study))
        return FAILED("out of memory");
    return OK;
}
