/* JSON through jansson, with messages that name the file and the field. For CLEANUP, jansson itself has
 * json_decrefp. */
#ifndef WEFT_BASE_JSON_H
#define WEFT_BASE_JSON_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"

/* `from` names the source in messages. Duplicate keys, trailing text and deep nesting are errors. */
MUST_USE Status json_parse(const char *text, size_t size, const char *from, json_t **ret_json);
MUST_USE Status json_read_file(const char *path, json_t **ret_json);
MUST_USE Status json_write_file(const char *path, const json_t *json); /* pretty, atomic */

/* Members of an object. An absent or null member leaves *ret_ as it is (the default); a member of
 * the wrong type or out of range is an error that names `from` and the key. */
MUST_USE Status json_get_int(const json_t *object, const char *from, const char *key, int64_t low,
                             int64_t high, int64_t *ret_value);
MUST_USE Status json_get_double(const json_t *object, const char *from, const char *key, double low,
                                double high, double *ret_value);
MUST_USE Status json_get_bool(const json_t *object, const char *from, const char *key, bool *ret_value);
/* Borrowed from the object. */
MUST_USE Status json_get_string(const json_t *object, const char *from, const char *key,
                                const char **ret_value);

#endif
