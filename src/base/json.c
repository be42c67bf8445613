#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"

enum { JSON_FILE_LIMIT = 256 << 20 };

const char *json_problem(const json_error_t *error) {
    return json_error_code(error) == json_error_null_character ? "\\u0000 is not allowed" : error->text;
}

Status json_parse(const char *text, size_t size, const char *from, json_t **ret_json) {
    json_error_t error;
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!json && json_error_code(&error) == json_error_out_of_memory)
        return FAILED("%s: out of memory", from);
    if (!json &&
        (path_ends_with(from, ".yaml") || path_ends_with(from, ".yml") || path_ends_with(from, ".toml")))
        return USAGE("%s is a %s file; weft reads JSON: convert it first", from,
                     path_ends_with(from, ".toml") ? "TOML" : "YAML");
    if (!json)
        return DAMAGED("%s: not valid JSON at line %d, column %d: %s", from, error.line, error.column,
                       json_problem(&error));
    *ret_json = json;
    return OK;
}

Status json_read_file(const char *path, json_t **ret_json) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    TRY(file_read(path, JSON_FILE_LIMIT, &text, &size));
    return json_parse(text, size, path, ret_json);
}

Status json_read_any(const char *path, json_t **ret_json) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    json_error_t error;
    TRY(file_read(path, JSON_FILE_LIMIT, &text, &size));
    CLEANUP(json_decrefp) json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!json && json_error_code(&error) == json_error_numeric_overflow)
        json = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    return json ? MOVE(ret_json, json) : json_parse(text, size, path, ret_json);
}

/* Rewrites the number [at, end) in its shortest form. The output never grows: 17 digits always suffice. */
static char *write_shortest(char *out, const char *at, const char *end) {
    char text[40], original[64];
    size_t length = (size_t)(end - at);
    bool real = memchr(at, '.', length) || memchr(at, 'e', length);
    if (!real || length >= sizeof original) {
        memmove(out, at, length);
        return out + length;
    }
    memcpy(original, at, length);
    original[length] = 0;
    double value = strtod(original, NULL);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text - 2, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    /* Keep reals distinguishable from integers. */
    if (!strpbrk(text, ".e")) strcat(text, ".0");
    size_t written = strlen(text);
    if (written > length) {
        memmove(out, at, length);
        return out + length;
    }
    memcpy(out, text, written);
    return out + written;
}

typedef struct Serial {
    char *text;
    size_t size, capacity;
    bool failed;
} Serial;

static int serial_add(const char *part, size_t size, void *context) {
    Serial *serial = context;
    Status status =
        serial->failed ? OK : mem_grow(&serial->text, &serial->capacity, serial->size + size + 1, 1);
    serial->failed |= status != OK;
    status_free(status);
    if (serial->failed) return -1;
    memcpy(serial->text + serial->size, part, size);
    serial->size += size;
    return 0;
}

char *json_serialize(const json_t *json, size_t flags) {
    Serial serial = {0};
    if (json && json_dump_callback(json, serial_add, &serial, flags) == 0 && !serial.failed) {
        serial.text[serial.size] = 0;
        return serial.text;
    }
    free(serial.text);
    return NULL;
}

/* json_copy does not modify its argument. */
static json_t *complete(const json_t *json, json_t *copy) {
    if (copy && json_equal(json, copy)) return copy;
    json_decref(copy);
    return NULL;
}

json_t *json_clone(const json_t *json) {
    return complete(json, json_copy((json_t *)(uintptr_t)json));
}

json_t *json_clone_deep(const json_t *json) {
    return complete(json, json_deep_copy(json));
}

Status json_text(const json_t *json, size_t flags, char **ret_text) {
    char *text = json_serialize(json, flags | JSON_REAL_PRECISION(17));
    if (!text) return FAILED("out of memory while writing JSON");
    char *out = text;
    bool quoted = false;
    for (const char *at = text; *at;) {
        if (!quoted && (*at == '-' || (*at >= '0' && *at <= '9'))) {
            size_t length = strspn(at, "+-.0123456789eE");
            out = write_shortest(out, at, at + length);
            at += length;
            continue;
        }
        if (*at == '"') quoted = !quoted;
        if (quoted && *at == '\\') *out++ = *at++;
        *out++ = *at++;
    }
    *out = 0;
    *ret_text = text;
    return OK;
}

Status json_write_file(const char *path, const json_t *json) {
    CLEANUP(mem_freep) char *text = NULL;
    TRY(json_text(json, JSON_INDENT(2), &text));
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    TRY(file_writer_new(&writer, path));
    TRY(file_print(writer, "%s\n", text));
    return file_commit(writer);
}

static const char *type_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

/* The member, or NULL when it is absent or null. */
static const json_t *member(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value) ? value : NULL;
}

Status json_get_int(const json_t *object, const char *from, const char *key, int64_t low, int64_t high,
                    int64_t *ret_value) {
    const json_t *value = member(object, key);
    if (!value) return OK;
    if (!json_is_integer(value))
        return FAILED("%s: '%s' must be an integer, not %s", from, key, type_name(value));
    int64_t number = json_integer_value(value);
    if (number < low || number > high)
        return FAILED("%s: '%s' is %lld; expected %lld to %lld", from, key, (long long)number, (long long)low,
                      (long long)high);
    *ret_value = number;
    return OK;
}

Status json_get_double(const json_t *object, const char *from, const char *key, double low, double high,
                       double *ret_value) {
    const json_t *value = member(object, key);
    if (!value) return OK;
    if (!json_is_number(value))
        return FAILED("%s: '%s' must be a number, not %s", from, key, type_name(value));
    double number = json_number_value(value);
    if (!(number >= low && number <= high))
        return FAILED("%s: '%s' is %g; expected %g to %g", from, key, number, low, high);
    *ret_value = number;
    return OK;
}

Status json_get_bool(const json_t *object, const char *from, const char *key, bool *ret_value) {
    const json_t *value = member(object, key);
    if (!value) return OK;
    if (!json_is_boolean(value))
        return FAILED("%s: '%s' must be true or false, not %s", from, key, type_name(value));
    *ret_value = json_is_true(value);
    return OK;
}

Status json_get_string(const json_t *object, const char *from, const char *key, const char **ret_value) {
    const json_t *value = member(object, key);
    if (!value) return OK;
    if (!json_is_string(value))
        return FAILED("%s: '%s' must be a string, not %s", from, key, type_name(value));
    *ret_value = json_string_value(value);
    return OK;
}

bool json_has_number(const json_t *object, const char *key, double *ret_number) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) return false;
    *ret_number = json_number_value(value);
    return true;
}

double json_number_at(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

double json_number_or(const json_t *object, const char *key, double absent) {
    double number = absent;
    json_has_number(object, key, &number);
    return number;
}

int64_t json_int_at(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

const char *json_string_at(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

const char *json_string_or(const json_t *object, const char *key, const char *absent) {
    const char *text = json_string_at(object, key);
    return text ? text : absent;
}

json_t *json_finite(double number) {
    return isfinite(number) ? json_real(number) : json_null();
}

json_t *json_float(float number) {
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)number);
        if (strtof(text, NULL) == number) break;
    }
    return json_real(strtod(text, NULL));
}

Status json_put(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value) ? FAILED("out of memory while writing the result") : OK;
}
