/* Fields of config.json, for the families' readers and writers. */
#ifndef WEFT_MODEL_FIELDS_H
#define WEFT_MODEL_FIELDS_H

#include "base/json.h"
#include "model/config.h"

/* The largest values that a file may give. */
enum {
    MAX_LAYERS = 10000,
    MAX_WIDTH = 1 << 20,
    MAX_INNER = 1 << 23,
    MAX_ROWS = 1 << 27 /* rows of an embedding */
};

typedef struct IntField {
    const char *key, *alias; /* alias may be NULL */
    int64_t low, high;
    int64_t *value; /* initialized to the default */
} IntField;

MUST_USE Status fields_ints(const json_t *json, const char *from, const IntField *field, size_t count);
MUST_USE Status field_float(const json_t *json, const char *from, const char *key, double low, double high,
                            float *value);
MUST_USE Status field_act(const json_t *json, const char *from, const char *key, Act *act);
/* Fail if a feature that weft does not support is on, if a field is set at all, or if it is not `only`. */
MUST_USE Status field_refuse_true(const json_t *json, const char *from, const char *key);
MUST_USE Status field_refuse_set(const json_t *json, const char *from, const char *key);
MUST_USE Status field_refuse_other(const json_t *json, const char *from, const char *key, const char *only);

/* The shortest decimal that parses to this float: 0.1, not 0.10000000149. */
json_t *field_real(float value);
/* transformers' name of an activation function. */
const char *field_act_name(Act act);

/* "pruned_heads" maps each layer to the list of its pruned heads; the usual field gives the original number
 * of heads, and tensors contain only the remaining ones. weft requires the same number in every layer.
 *
 * Sets config->heads from the original to the remaining number and config->head_width accordingly; does
 * nothing if the field is absent or empty. */
MUST_USE Status pruned_heads_read(const json_t *json, const char *from, ModelConfig *config);
/* The original number of heads. */
int64_t pruned_heads_before(const ModelConfig *config);
/* The field, or NULL if memory runs out; the caller releases it. Which heads were pruned is not recorded,
 * so it lists the last ones; only their number matters to readers. */
json_t *pruned_heads_json(const ModelConfig *config);

#endif
