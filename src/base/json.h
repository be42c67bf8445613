/* JSON on top of jansson, with messages that name the file and the field. For CLEANUP use jansson's
 * json_decrefp. */
#ifndef WEFT_BASE_JSON_H
#define WEFT_BASE_JSON_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"

/* `from` names the source in messages. Duplicate keys, trailing text and deep nesting are errors. */
MUST_USE Status json_parse(const char *text, size_t size, const char *from, json_t **ret_json);
MUST_USE Status json_read_file(const char *path, json_t **ret_json);
/* The same for files whose integers do not matter: transformers writes 10^30 for "no limit". If one exceeds
 * 64 bits, all become reals. */
MUST_USE Status json_read_any(const char *path, json_t **ret_json);
/* What jansson found wrong, without the names of its flags. */
const char *json_problem(const json_error_t *error);
/* Instead of json_dumps, which leaves text out if memory runs out in between. NULL: out of memory. */
char *json_serialize(const json_t *json, size_t flags);
/* Instead of json_copy and json_deep_copy, which leave members out then. NULL: out of memory. */
json_t *json_clone(const json_t *json);
json_t *json_clone_deep(const json_t *json);
/* Serializes with jansson's `flags`. Reals take the shortest form that reads back as the same double: 0.0006,
 * never 0.00059999999999999995. The caller frees *ret_text. */
MUST_USE Status json_text(const json_t *json, size_t flags, char **ret_text);
/* Writes indented JSON, replacing the file atomically. */
MUST_USE Status json_write_file(const char *path, const json_t *json);

/* Members of an object. An absent or null member leaves *ret_value unchanged, so the caller presets the
 * default. A member of the wrong type or out of range is an error that names `from` and the key. */
MUST_USE Status json_get_int(const json_t *object, const char *from, const char *key, int64_t low,
                             int64_t high, int64_t *ret_value);
MUST_USE Status json_get_double(const json_t *object, const char *from, const char *key, double low,
                                double high, double *ret_value);
MUST_USE Status json_get_bool(const json_t *object, const char *from, const char *key, bool *ret_value);
/* *ret_value belongs to the object. */
MUST_USE Status json_get_string(const json_t *object, const char *from, const char *key,
                                const char **ret_value);

/* Members of results and of files that weft wrote itself: one that is absent or of another type counts as
 * absent. `object` may be NULL. The _at functions return 0 or NULL then. Only integers count for json_int_at.
 */
bool json_has_number(const json_t *object, const char *key, double *ret_number);
double json_number_at(const json_t *object, const char *key);
double json_number_or(const json_t *object, const char *key, double absent);
int64_t json_int_at(const json_t *object, const char *key);
const char *json_string_at(const json_t *object, const char *key);
const char *json_string_or(const json_t *object, const char *key, const char *absent);

/* A number, or null if it is not finite. */
json_t *json_finite(double number);
/* With no more digits than tell it from other fp32 numbers; NULL: it is not finite. */
json_t *json_float(float number);
/* json_object_set_new as a Status; a NULL value is a failure. */
MUST_USE Status json_put(json_t *object, const char *key, json_t *value);

#endif
