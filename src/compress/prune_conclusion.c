/* Conclusions from the rounds of one or two kinds of pruning: what it costs, where the loss rises sharply,
 * and how much time it saves. A rise is sharp if a round adds more than SHARP of the unpruned loss and more
 * than all rounds before it together. */
#include <math.h>
#include <string.h>

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

static double speedup(const Curve *curve) {
    return value(curve, 0, "step_ms") / value(curve, curve->last, "step_ms");
}

static double projected(const Curve *curve) {
    return (1 - value(curve, 0, "sparsity")) / (1 - value(curve, curve->last, "sparsity"));
}

static Status add_figures(json_t *kinds, const Curve *curve) {
    size_t sharp = sharp_rise(curve);
    json_t *figures = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kind", curve->kind, "pruned",
        json_finite(value(curve, curve->last, "sparsity")), "val_loss_unpruned",
        json_finite(value(curve, 0, "val_loss")), "val_loss",
        json_finite(value(curve, curve->last, "val_loss")), "rises_sharply_at",
        sharp ? json_finite(value(curve, sharp, "sparsity")) : json_null(), "step_ms_unpruned",
        json_finite(value(curve, 0, "step_ms")), "step_ms", json_finite(value(curve, curve->last, "step_ms")),
        "speedup", json_finite(speedup(curve)), "speedup_projected", json_finite(projected(curve)));
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

static Status add_time(json_t *sentences, const Curve *curve) {
    CLEANUP(mem_freep) char *text = NULL;
    double faster = speedup(curve);
    if (!isfinite(faster)) return OK;
    TRY(str_format(&text,
                   "%s: %.2f ms per step unpruned, %.2f ms with %.0f%% pruned: measured speedup %.2fx%s",
                   curve->kind, value(curve, 0, "step_ms"), value(curve, curve->last, "step_ms"),
                   percent(curve, curve->last), faster,
                   strcmp(curve->kind, "weights") ? "" : "; zeros are multiplied like other weights."));
    if (!strcmp(curve->kind, "weights")) return add_text(sentences, text);
    CLEANUP(mem_freep) char *all = NULL;
    TRY(str_format(&all, "%s, %.2fx if projected from the share pruned.", text, projected(curve)));
    return add_text(sentences, all);
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

Status prune_conclude(json_t *to, const json_t *result, const json_t *other) {
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
    return OK;
}
