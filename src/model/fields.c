#include "model/fields.h"

#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"

/* Writing uses the first name of an activation function. */
static const struct {
    const char *name;
    Act act;
} acts[] = {
    {"gelu_new", ACT_GELU_TANH},
    {"gelu_pytorch_tanh", ACT_GELU_TANH},
    {"gelu_fast", ACT_GELU_TANH},
    {"gelu_accurate", ACT_GELU_TANH},
    {"gelu_python_tanh", ACT_GELU_TANH},
    {"gelu", ACT_GELU_ERF},
    {"gelu_python", ACT_GELU_ERF},
    {"relu", ACT_RELU},
    {"tanh", ACT_TANH},
    {"silu", ACT_SILU},
    {"swish", ACT_SILU},
};

enum { ACT_NAMES = sizeof acts / sizeof acts[0] };

/* Two names of one size must agree: which of them transformers uses depends on the version. */
static Status check_alias(const json_t *json, const char *from, const IntField *field) {
    if (!field->alias) return OK;
    const json_t *one = json_object_get(json, field->key), *other = json_object_get(json, field->alias);
    if (!json_is_integer(one) || !json_is_integer(other)) return OK;
    if (json_integer_value(one) == json_integer_value(other)) return OK;
    return FAILED("%s: '%s' is %lld, but '%s' is %lld; they are the same size under two names, so remove the "
                  "wrong one",
                  from, field->key, (long long)json_integer_value(one), field->alias,
                  (long long)json_integer_value(other));
}

Status fields_ints(const json_t *json, const char *from, const IntField *field, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *key = field[i].key;
        TRY(check_alias(json, from, &field[i]));
        if (field[i].alias && !json_object_get(json, key)) key = field[i].alias;
        TRY(json_get_int(json, from, key, field[i].low, field[i].high, field[i].value));
    }
    return OK;
}

Status field_float(const json_t *json, const char *from, const char *key, double low, double high,
                   float *value) {
    double number = (double)*value;
    TRY(json_get_double(json, from, key, low, high, &number));
    *value = (float)number;
    return OK;
}

Status field_act(const json_t *json, const char *from, const char *key, Act *act) {
    const char *name = NULL;
    TRY(json_get_string(json, from, key, &name));
    if (!name) return OK;
    for (size_t i = 0; i < ACT_NAMES; i++) {
        if (strcmp(acts[i].name, name)) continue;
        *act = acts[i].act;
        return OK;
    }
    char shown[NAME_TEXT];
    return FAILED(
        "%s: '%s' is \"%s\"; expected gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu, silu or tanh", from,
        key, name_text(shown, name));
}

Status field_refuse_true(const json_t *json, const char *from, const char *key) {
    bool on = false;
    TRY(json_get_bool(json, from, key, &on));
    if (on) return FAILED("%s: '%s' is true, which weft does not support; expected false", from, key);
    return OK;
}

Status field_refuse_set(const json_t *json, const char *from, const char *key) {
    CLEANUP(mem_freep) char *text = NULL;
    char shown[NAME_TEXT];
    const json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value)) return OK;
    TRY(json_text(value, JSON_COMPACT | JSON_ENCODE_ANY, &text));
    return FAILED("%s: '%s' is %s, which weft does not support; expected null", from, key,
                  name_text(shown, text));
}

Status field_refuse_other(const json_t *json, const char *from, const char *key, const char *only) {
    const char *value = only;
    char shown[NAME_TEXT];
    TRY(json_get_string(json, from, key, &value));
    if (strcmp(value, only))
        return FAILED("%s: '%s' is \"%s\", which weft does not support; expected \"%s\"", from, key,
                      name_text(shown, value), only);
    return OK;
}

json_t *field_real(float value) {
    char text[40];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    return json_real(strtod(text, NULL));
}

const char *field_act_name(Act act) {
    for (size_t i = 0; i < ACT_NAMES; i++)
        if (acts[i].act == act) return acts[i].name;
    return "linear";
}
