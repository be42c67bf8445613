/* Rotary positions in config.json, and {rope-scaling}.
 *
 * transformers 5 has one object, rope_parameters. Before, there were rope_theta and rope_scaling, which
 * transformers 5 still reads, rope_scaling first. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "model/family.h"
#include "model/fields.h"
#include "model/rope.h"

static const struct {
    const char *name;
    RopeScaling scaling;
} types[] = {{"default", ROPE_PLAIN}, {"linear", ROPE_LINEAR}, {"dynamic", ROPE_DYNAMIC},
             {"llama3", ROPE_LLAMA3}, {"yarn", ROPE_YARN},     {"longrope", ROPE_LONGROPE}};

enum { TYPES = sizeof types / sizeof *types };
enum { BETA_FAST = 32, BETA_SLOW = 1, LOW_FREQ = 1, HIGH_FREQ = 4 }; /* as published */

static const char ORIGINAL[] = "original_max_position_embeddings";

const char *rope_scaling_name(RopeScaling scaling) {
    size_t i = 0;
    while (i + 1 < TYPES && types[i].scaling != scaling) i++;
    return types[i].name;
}

/* ---- reading ---- */

/* An object with rotary settings. */
typedef struct Dict {
    const json_t *json;
    const char *from, *key; /* the file, and the object's name in it */
} Dict;

static Status read_type(Dict dict, RopeScaling *scaling) {
    const json_t *named = json_object_get(dict.json, "rope_type");
    const char *type = "default", *field = named ? "rope_type" : "type";
    char shown[NAME_TEXT];
    TRY(json_get_string(dict.json, dict.from, field, &type));
    for (size_t i = 0; i < TYPES; i++) {
        if (strcmp(types[i].name, type)) continue;
        *scaling = types[i].scaling;
        return OK;
    }
    return FAILED("%s: '%s.%s' is \"%s\", which weft does not support; expected default, linear, dynamic, "
                  "llama3, yarn or longrope",
                  dict.from, dict.key, field, name_text(shown, type));
}

static bool is_set(Dict dict, const char *name) {
    const json_t *value = json_object_get(dict.json, name);
    return value && !json_is_null(value);
}

static Status read_factor(Dict dict, const char *name, float *value) {
    if (!is_set(dict, name)) return FAILED("%s: '%s.%s' is missing", dict.from, dict.key, name);
    return field_float(dict.json, dict.from, name, 1e-6, 1e9, value);
}

/* For transformers, 0 is the default as well. */
static Status read_beta(Dict dict, const char *name, float *value) {
    float found = 0;
    TRY(field_float(dict.json, dict.from, name, 0, 1e9, &found));
    if (found > 0) *value = found;
    return OK;
}

/* A number for each pair of a head. */
static Status read_factors(Dict dict, const char *name, int64_t pairs, float *ret_factors) {
    const json_t *list = json_object_get(dict.json, name);
    if (!list) return FAILED("%s: '%s.%s' is missing", dict.from, dict.key, name);
    if (!json_is_array(list))
        return FAILED("%s: '%s.%s' must be a list of numbers", dict.from, dict.key, name);
    if (pairs > ROPE_PAIRS)
        return FAILED("%s: '%s.%s' is for heads of width %lld; weft supports up to %d", dict.from, dict.key,
                      name, (long long)(2 * pairs), 2 * ROPE_PAIRS);
    if ((int64_t)json_array_size(list) != pairs)
        return FAILED("%s: '%s.%s' has %zu numbers; expected %lld, half the width of a head", dict.from,
                      dict.key, name, json_array_size(list), (long long)pairs);
    for (int64_t i = 0; i < pairs; i++) {
        double factor = json_number_value(json_array_get(list, (size_t)i));
        if (!(factor >= 1e-6 && factor <= 1e9))
            return FAILED("%s: '%s.%s[%lld]' must be a number from 1e-06 to 1e+09", dict.from, dict.key, name,
                          (long long)i);
        ret_factors[i] = (float)factor;
    }
    return OK;
}

/* `key` names the object in `from`, with a dot; empty for the file's own. */
static Status refuse_partial(const json_t *object, const char *from, const char *key) {
    float part = 1;
    TRY(field_float(object, from, "partial_rotary_factor", 0, 1, &part));
    if (part == 1) return OK;
    return FAILED("%s: '%spartial_rotary_factor' is %g, which weft does not support; expected 1", from, key,
                  (double)part);
}

/* transformers 5 may have settings per type of layer, {"full_attention": {"rope_theta": ...}}. Unlike
 * elsewhere, null is the default only of a few. */
static Status check_members(Dict dict) {
    static const char *const optional[] = {"factor",    "attention_factor", "beta_fast",
                                           "beta_slow", "mscale",           "mscale_all_dim"};
    const char *name;
    json_t *value;
    char shown[NAME_TEXT];
    json_object_foreach((json_t *)(uintptr_t)dict.json, name, value) {
        bool may_be_null = false;
        for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
            may_be_null |= !strcmp(name, optional[i]);
        if (json_is_object(value))
            return FAILED(
                "%s: '%s.%s' has rotary positions of one type of layer, which weft does not support; "
                "expected the same in all layers",
                dict.from, dict.key, name_text(shown, name));
        if (json_is_null(value) && !may_be_null)
            return FAILED("%s: '%s.%s' is null; expected a value, or no such field", dict.from, dict.key,
                          name_text(shown, name));
    }
    return OK;
}

/* The context length before scaling. As in transformers, a value outside the rotary settings wins. */
static Status read_original(const json_t *json, Dict dict, ModelConfig *config) {
    const json_t *outside = json_object_get(json, ORIGINAL);
    config->rope.original = config->positions;
    if (json_is_null(outside)) return FAILED("%s: '%s' is null; expected an integer", dict.from, ORIGINAL);
    return json_get_int(outside ? json : dict.json, dict.from, ORIGINAL, 1, MAX_ROWS, &config->rope.original);
}

static Status read_llama3(Dict dict, Rope *rope) {
    TRY(read_factor(dict, "low_freq_factor", &rope->low_freq_factor));
    TRY(read_factor(dict, "high_freq_factor", &rope->high_freq_factor));
    if (rope->high_freq_factor > rope->low_freq_factor) return OK;
    return FAILED("%s: '%s.high_freq_factor' is %g; expected more than low_freq_factor, %g", dict.from,
                  dict.key, (double)rope->high_freq_factor, (double)rope->low_freq_factor);
}

static Status read_yarn(Dict dict, Rope *rope) {
    bool truncate = true;
    rope->beta_fast = BETA_FAST;
    rope->beta_slow = BETA_SLOW;
    TRY(read_beta(dict, "beta_fast", &rope->beta_fast));
    TRY(read_beta(dict, "beta_slow", &rope->beta_slow));
    TRY(field_float(dict.json, dict.from, "mscale", 0, 1e9, &rope->mscale));
    TRY(field_float(dict.json, dict.from, "mscale_all_dim", 0, 1e9, &rope->mscale_all_dim));
    TRY(json_get_bool(dict.json, dict.from, "truncate", &truncate));
    rope->no_truncate = !truncate;
    if (rope->beta_fast >= rope->beta_slow) return OK;
    return FAILED("%s: '%s.beta_fast' is %g; expected at least beta_slow, %g", dict.from, dict.key,
                  (double)rope->beta_fast, (double)rope->beta_slow);
}

static Status read_dict(const json_t *json, Dict dict, ModelConfig *config) {
    Rope *rope = &config->rope;
    char prefix[NAME_TEXT];
    snprintf(prefix, sizeof prefix, "%s.", dict.key);
    TRY(check_members(dict));
    TRY(read_type(dict, &rope->scaling));
    TRY(field_float(dict.json, dict.from, "rope_theta", 1, 1e30, &rope->theta));
    TRY(refuse_partial(dict.json, dict.from, prefix));
    if (rope->scaling == ROPE_PLAIN) return OK;
    bool ratio =
        !is_set(dict, "factor") && (rope->scaling == ROPE_LONGROPE ||
                                    (rope->scaling == ROPE_YARN && json_object_get(dict.json, "factor")));
    if (!ratio) TRY(read_factor(dict, "factor", &rope->factor));
    if (rope->scaling == ROPE_LINEAR || rope->scaling == ROPE_DYNAMIC) return OK;
    TRY(read_original(json, dict, config));
    if (rope->scaling == ROPE_LLAMA3) return read_llama3(dict, rope);
    if (ratio) rope->factor = (float)((double)config->positions / (double)rope->original);
    if (is_set(dict, "attention_factor"))
        TRY(field_float(dict.json, dict.from, "attention_factor", 1e-6, 1e9, &rope->attention_factor));
    if (rope->scaling == ROPE_YARN) return read_yarn(dict, rope);
    int64_t pairs = config_head_width(config) / 2;
    TRY(read_factors(dict, "short_factor", pairs, rope->short_factor));
    return read_factors(dict, "long_factor", pairs, rope->long_factor);
}

Status rope_read(const json_t *json, const char *from, ModelConfig *config) {
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    TRY(refuse_partial(json, from, ""));
    if (json_is_null(json_object_get(json, "rope_theta")))
        return FAILED("%s: 'rope_theta' is null; expected a number, or no such field", from);
    TRY(field_float(json, from, "rope_theta", 1, 1e30, &config->rope.theta));
    for (int i = 0; i < 2; i++) {
        const json_t *dict = json_object_get(json, keys[i]);
        if (!dict || json_is_null(dict)) continue;
        if (!json_is_object(dict)) return FAILED("%s: '%s' must be an object", from, keys[i]);
        if (json_object_size(dict)) return read_dict(json, (Dict){dict, from, keys[i]}, config);
    }
    return OK;
}

Status rope_check(const ModelConfig *config) {
    const Rope *rope = &config->rope;
    int64_t width = config_head_width(config);
    if (width % 2) return USAGE("rotary positions need an even head width, not %lld", (long long)width);
    if (rope->scaling == ROPE_DYNAMIC && width < 4)
        return USAGE("dynamic rotary scaling needs a head width of at least 4, not %lld", (long long)width);
    if (rope->scaling == ROPE_YARN && !(rope->theta > 1))
        return USAGE("yarn rotary scaling needs a rope_theta above 1, not %g", (double)rope->theta);
    if (!isfinite(rope_attention_factor(rope)) || !(rope_attention_factor(rope) > 0))
        return USAGE("%s rotary scaling by %g needs an original context of more than %lld token%s",
                     rope_scaling_name(rope->scaling), (double)rope->factor, (long long)rope->original,
                     PLURAL(rope->original));
    return OK;
}

bool rope_yarn_changed(const Rope *rope) {
    if (rope->scaling != ROPE_YARN) return false;
    return rope->no_truncate || rope->beta_fast != BETA_FAST || rope->beta_slow != BETA_SLOW;
}

/* ---- writing ---- */

static json_t *factors_json(const float *factors, int64_t pairs) {
    json_t *list = json_array();
    for (int64_t i = 0; i < pairs; i++)
        if (json_array_append_new(list, field_real(factors[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Adds the settings of yarn that are not the default. */
static int put_yarn(json_t *dict, const Rope *rope) {
    int failed = 0;
    const struct {
        const char *name;
        float value, fallback;
    } reals[] = {{"beta_fast", rope->beta_fast, BETA_FAST},
                 {"beta_slow", rope->beta_slow, BETA_SLOW},
                 {"mscale", rope->mscale, 0},
                 {"mscale_all_dim", rope->mscale_all_dim, 0}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (reals[i].value != reals[i].fallback)
            failed |= json_object_set_new(dict, reals[i].name, field_real(reals[i].value));
    if (rope->no_truncate) failed |= json_object_set_new(dict, "truncate", json_false());
    return failed;
}

static int put_scaling(json_t *dict, const ModelConfig *config) {
    const Rope *rope = &config->rope;
    if (rope->scaling == ROPE_PLAIN) return 0;
    int failed = json_object_set_new(dict, "factor", field_real(rope->factor));
    if (rope->scaling == ROPE_LINEAR || rope->scaling == ROPE_DYNAMIC) return failed;
    failed |= json_object_set_new(dict, ORIGINAL, json_integer((json_int_t)rope->original));
    if (rope->scaling == ROPE_LLAMA3) {
        failed |= json_object_set_new(dict, "low_freq_factor", field_real(rope->low_freq_factor));
        return failed | json_object_set_new(dict, "high_freq_factor", field_real(rope->high_freq_factor));
    }
    if (rope->attention_factor > 0)
        failed |= json_object_set_new(dict, "attention_factor", field_real(rope->attention_factor));
    if (rope->scaling == ROPE_YARN) return failed | put_yarn(dict, rope);
    int64_t pairs = config_head_width(config) / 2;
    failed |= json_object_set_new(dict, "short_factor", factors_json(rope->short_factor, pairs));
    return failed | json_object_set_new(dict, "long_factor", factors_json(rope->long_factor, pairs));
}

json_t *rope_write(const ModelConfig *config) {
    const Rope *rope = &config->rope;
    json_t *dict = json_pack("{s:s, s:o}", "rope_type", rope_scaling_name(rope->scaling), "rope_theta",
                             field_real(rope->theta));
    if (dict && !put_scaling(dict, config)) return dict;
    json_decref(dict);
    return NULL;
}

/* ---- {rope-scaling} ---- */

/* longrope is not among them: its factors are in a checkpoint. */
static Status parse_extension(const char *text, RopeScaling *ret_scaling, float *ret_factor) {
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    for (size_t i = 0; i < TYPES && colon; i++) {
        RopeScaling scaling = types[i].scaling;
        if (scaling == ROPE_PLAIN || scaling == ROPE_LONGROPE) continue;
        if (strlen(types[i].name) != length || strncmp(types[i].name, text, length)) continue;
        char *end = NULL;
        double factor = strtod(colon + 1, &end);
        if (end == colon + 1 || *end || !(factor >= 1 && factor <= MAX_POSITIONS)) break;
        *ret_scaling = scaling;
        *ret_factor = (float)factor;
        return OK;
    }
    return USAGE("{rope-scaling} '%s': expected linear, dynamic, llama3 or yarn, a colon and a factor of at "
                 "least 1, such as yarn:4",
                 text);
}

/* Settings of a kind of scaling that a model does not have yet. */
static Rope fresh_scaling(const ModelConfig *config, RopeScaling scaling) {
    Rope rope = {.theta = config->rope.theta, .scaling = scaling};
    if (scaling == ROPE_LLAMA3 || scaling == ROPE_YARN) rope.original = rope_original(config);
    if (scaling == ROPE_LLAMA3) rope.low_freq_factor = LOW_FREQ, rope.high_freq_factor = HIGH_FREQ;
    if (scaling == ROPE_YARN) rope.beta_fast = BETA_FAST, rope.beta_slow = BETA_SLOW;
    return rope;
}

Status rope_extend(const char *text, ModelConfig *config) {
    Rope *rope = &config->rope;
    RopeScaling scaling = ROPE_PLAIN;
    float factor = 1;
    TRY(parse_extension(text, &scaling, &factor));
    if (config->position != POSITION_ROPE)
        return USAGE("{rope-scaling} %s: %s has no rotary positions", text, config->family->title);
    if (rope->scaling == ROPE_LONGROPE)
        return USAGE("{rope-scaling} %s: the model has longrope scaling, whose factors this would discard",
                     text);
    int64_t original = rope_original(config);
    double positions = round((double)original * (double)(scaling == ROPE_DYNAMIC ? 1 : factor));
    if (!((double)original * (double)factor <= MAX_POSITIONS))
        return USAGE("{rope-scaling} %s extends a context of %lld tokens to more than %d, the maximum", text,
                     (long long)original, MAX_POSITIONS);
    bool same = rope->scaling == scaling && rope->factor == factor;
    if (rope->scaling != scaling) *rope = fresh_scaling(config, scaling);
    if (!same || (double)config->positions < positions) config->positions = (int64_t)positions;
    if (!same) rope->attention_factor = 0;
    rope->factor = factor;
    return OK;
}

const char *rope_extension(const ModelConfig *config, int64_t length, char text[ROPE_TEXT]) {
    RopeScaling scaling = config->rope.scaling;
    text[0] = 0;
    if (config->position != POSITION_ROPE || scaling == ROPE_LONGROPE || length > MAX_POSITIONS) return text;
    int64_t original = rope_original(config), factor = (length + original - 1) / original;
    if (scaling == ROPE_PLAIN) scaling = ROPE_YARN;
    if ((float)factor < config->rope.factor) factor = (int64_t)ceilf(config->rope.factor);
    snprintf(text, ROPE_TEXT, "%s:%lld", rope_scaling_name(scaling), (long long)factor);
    return text;
}
