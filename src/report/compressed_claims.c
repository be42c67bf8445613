/* Conclusions of a study about pruning or quantization: {"text", "of", "batch", "figure", "relation", "than",
 * "by"}. `of` is a kind of pruning or a level, `figure` a key of its conclusion in pruning.json, or of a
 * level's row with that batch in quantization.json. `than` is a published number or another kind or level. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "report/compressed.h"
#include "report/study.h"

#define DEFAULT_BY 0.01

static const struct {
    const char *key, *words;
    FigureFormat unit;
} known[] = {{"val_loss", "validation loss", FIGURE_FORMAT_LOSS},
             {"rises_sharply_at", "sharp rise at", FIGURE_FORMAT_SHARE},
             {"speedup", "speedup", FIGURE_FORMAT_RATE},
             {"speedup_projected", "projected speedup", FIGURE_FORMAT_RATE},
             {"step_ms", "ms per step", FIGURE_FORMAT_MS},
             {"loss", "loss", FIGURE_FORMAT_LOSS},
             {"seconds", "time", FIGURE_FORMAT_SECONDS}};
enum { KNOWN = sizeof known / sizeof *known };

/* KNOWN: there is none. */
static size_t figure_at(const json_t *claim) {
    size_t at = 0;
    while (at < KNOWN && strcmp(json_string_or(claim, "figure", ""), known[at].key)) at++;
    return at;
}

static const char *const relations[] = {"higher", "lower", "equal"};

static bool is_relation(const json_t *claim, const char *relation) {
    return !strcmp(json_string_or(claim, "relation", ""), relation);
}

static bool knows_relation(const json_t *claim) {
    for (size_t i = 0; i < sizeof relations / sizeof *relations; i++)
        if (is_relation(claim, relations[i])) return true;
    return false;
}

static Status check_claim(const json_t *claim, const char *from) {
    static const char *const keys[] = {"text", "of", "figure", "relation", "than", "batch", "by"};
    enum { KEYS = sizeof keys / sizeof *keys, TEXTS = 4, NEEDED = 5 };
    const char *key;
    json_t *value;
    if (!json_is_object(claim)) return USAGE("%s: expected an object", from);
    json_object_foreach((json_t *)(uintptr_t)claim, key, value) {
        size_t at = 0;
        while (at < KEYS && strcmp(key, keys[at])) at++;
        if (at == KEYS) return USAGE("%s: unknown key '%s'; see docs/comparing.md", from, key);
        if (at < TEXTS && !json_is_string(value)) return USAGE("%s: %s: expected a string", from, key);
        if (at >= NEEDED && !json_is_number(value)) return USAGE("%s: %s: expected a number", from, key);
    }
    for (size_t i = 0; i < NEEDED; i++)
        if (!json_object_get(claim, keys[i])) return USAGE("%s: expected '%s'", from, keys[i]);
    value = json_object_get(claim, "than");
    if (!json_is_string(value) && !json_is_number(value))
        return USAGE("%s: than: expected a number, or a kind or level", from);
    if (figure_at(claim) == KNOWN)
        return USAGE("%s: figure: unknown key '%s'; see docs/comparing.md", from,
                     json_string_at(claim, "figure"));
    return knows_relation(claim) ? OK
                                 : USAGE("%s: relation: expected \"higher\", \"lower\" or \"equal\"", from);
}

Status compressed_check_claims(const json_t *claims, const char *from) {
    const json_t *claim;
    char where[256];
    size_t i;
    if (!claims) return OK;
    if (!json_is_array(claims)) return USAGE("%s: compression: expected a list of objects", from);
    json_array_foreach(claims, i, claim) {
        snprintf(where, sizeof where, "%s: compression: claim %zu", from, i + 1);
        TRY(check_claim(claim, where));
    }
    return OK;
}

/* ---- verdicts ---- */

/* A figure of a kind of pruning, or of a level with the claim's batch; NAN: unknown. */
static double figure_of(const json_t *result, const json_t *claim, const char *name) {
    const json_t *kinds = json_object_get(json_object_get(result, "conclusion"), "kinds");
    const json_t *levels = json_object_get(json_object_get(result, "evaluation"), "levels"), *entry, *row;
    const char *figure = json_string_at(claim, "figure");
    double batch = json_number_at(claim, "batch");
    size_t i, k;
    json_array_foreach(kinds, i, entry) if (!strcmp(json_string_or(entry, "kind", ""),
                                                    name)) return json_number_or(entry, figure, NAN);
    json_array_foreach(levels, i, entry) {
        if (strcmp(json_string_or(entry, "name", ""), name)) continue;
        json_array_foreach(json_object_get(entry, "batches"), k,
                           row) if (!batch || json_number_at(row, "batch") ==
                                                  batch) return json_number_or(row, figure, NAN);
    }
    return NAN;
}

static Verdict judge(const json_t *claim, double own, double than) {
    double by = json_number_or(claim, "by", DEFAULT_BY), difference = (own - than) / fabs(than);
    bool holds = is_relation(claim, "higher")  ? difference > 0 && difference >= by
                 : is_relation(claim, "lower") ? difference < 0 && -difference >= by
                                               : fabs(difference) <= by;
    return !isfinite(difference) ? VERDICT_UNKNOWN : holds ? VERDICT_HOLDS : VERDICT_FAILS;
}

Status compressed_judge(const json_t *result, json_t *findings) {
    const json_t *claim;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(result, "study"), "compression"), i, claim) {
        CLEANUP(mem_freep) char *detail = NULL;
        char mine[FORMAT_SIZE], others[FORMAT_SIZE];
        size_t figure = figure_at(claim);
        if (figure == KNOWN) continue;
        const char *other = json_string_at(claim, "than"), *words = known[figure].words;
        double own = figure_of(result, claim, json_string_or(claim, "of", ""));
        double than = other ? figure_of(result, claim, other) : json_number_or(claim, "than", NAN);
        Verdict verdict = judge(claim, own, than);
        if (verdict == VERDICT_UNKNOWN)
            TRY(str_format(&detail, "%s not known, or measured with CPU contention", words));
        else
            TRY(str_format(&detail, "%s %s vs %s", words, figure_text(mine, known[figure].unit, own),
                           figure_text(others, known[figure].unit, than)));
        json_t *finding = json_pack("{s:s, s:s, s:s}", "text", json_string_or(claim, "text", "?"), "verdict",
                                    verdict_name(verdict), "detail", detail);
        if (json_array_append_new(findings, finding)) return FAILED("out of memory");
    }
    return OK;
}
