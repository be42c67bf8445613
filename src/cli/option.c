/* Option values: parsing from text and JSON, with error messages that state what was expected. A number must
 * span the whole text; infinities and NaN are rejected. */
#include "cli/option.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/suggest.h"
#include "cli/foreign.h"

static const double size_end = 0x1p62; /* sizes are below it, so that sums of two do not overflow */

static bool has_range(const Option *option) {
    return option->low != 0 || option->high != 0;
}

static bool in_range(const Option *option, double value) {
    if (!has_range(option)) return true;
    if (option->above_low ? !(value > option->low) : !(value >= option->low)) return false;
    return option->below_high ? value < option->high : value <= option->high;
}

bool option_is_word(const Option *option, const char *text) {
    return option->word && text && strcmp(text, option->word) == 0;
}

/* Whether a size is one per second. */
static bool is_rate(const Option *option) {
    return option->type == OPTION_SIZE && strcmp(option->placeholder, "RATE") == 0;
}

static const char *kind_of(const Option *option) {
    switch (option->type) {
    case OPTION_INT: return "an integer";
    case OPTION_FLOAT: return "a number";
    case OPTION_SIZE:
        return is_rate(option) ? "bytes or bits per second (such as 500MB/s, 1GB or 10Gbit/s)"
                               : "a size (such as 4096, 512MB or 1.5GiB)";
    case OPTION_SEED: return "an integer from 0 to 18446744073709551615";
    case OPTION_FLAG: return option->word ? "true, false" : "true or false";
    case OPTION_LIST: return "a string or a list of strings";
    default: return "a string";
    }
}

static size_t append(char *buffer, size_t used, const char *text) {
    if (used >= OPTION_EXPECTS_SIZE) return used;
    return used + (size_t)snprintf(buffer + used, OPTION_EXPECTS_SIZE - used, "%s", text);
}

static size_t append_bound(char *buffer, size_t used, const char *word, double bound) {
    if (used >= OPTION_EXPECTS_SIZE) return used;
    return used + (size_t)snprintf(buffer + used, OPTION_EXPECTS_SIZE - used, " %s %.10g", word, bound);
}

static void append_word(const Option *option, char *buffer, size_t used) {
    if (!option->word) return;
    used = append(buffer, used, " or ");
    append(buffer, used, option->word);
}

const char *option_expects(const Option *option, char *buffer) {
    size_t used = 0;
    buffer[0] = 0;
    if (option->type == OPTION_CHOICE) {
        for (const char *const *choice = option->choices; *choice; choice++) {
            used = append(buffer, used, choice == option->choices ? "" : choice[1] ? ", " : " or ");
            used = append(buffer, used, *choice);
        }
        return buffer;
    }
    used = append(buffer, used, kind_of(option));
    if (!has_range(option)) {
        append_word(option, buffer, used);
        return buffer;
    }
    bool top = isfinite(option->high), bottom = isfinite(option->low);
    if (top && bottom && !option->above_low && !option->below_high) {
        used = append_bound(buffer, used, "from", option->low);
        used = append_bound(buffer, used, "to", option->high);
        append_word(option, buffer, used);
        return buffer;
    }
    if (bottom) used = append_bound(buffer, used, option->above_low ? ">" : ">=", option->low);
    if (top && bottom) used = append(buffer, used, " and");
    if (top) used = append_bound(buffer, used, option->below_high ? "<" : "<=", option->high);
    append_word(option, buffer, used);
    return buffer;
}

static const char *const *find_choice(const Option *option, const char *text) {
    const char *const *choice = option->choices;
    while (*choice && strcmp(*choice, text)) choice++;
    return *choice ? choice : NULL;
}

const char *option_choice(const Option *option, const void *field) {
    return option->indexed ? option->choices[*(const unsigned *)field] : *(const char *const *)field;
}

/* Rejects leading blanks, which strtod and strtoll would skip. */
static bool starts_number(const char *text) {
    return (*text >= '0' && *text <= '9') || *text == '-' || *text == '+' || *text == '.';
}

static bool parse_int(const char *text, int64_t *ret_value) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!starts_number(text) || end == text || *end || errno) return false;
    *ret_value = value;
    return true;
}

static bool parse_seed(const char *text, uint64_t *ret_value) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno) return false;
    *ret_value = value;
    return true;
}

static bool parse_float(const char *text, const char **ret_end, double *ret_value) {
    char *end;
    double value = strtod(text, &end);
    if (!starts_number(text) || end == text || !isfinite(value) || strpbrk(text, "xX")) return false;
    *ret_value = value;
    *ret_end = end;
    return true;
}

/* A number with a unit, in bytes; false if it is not one. */
static bool read_size(const char *text, double *ret_bytes) {
    static const struct {
        const char *suffix;
        double scale;
    } units[] = {{"", 1},         {"B", 1},    {"K", 1e3},      {"KB", 1e3},    {"KiB", 0x1p10},
                 {"M", 1e6},      {"MB", 1e6}, {"MiB", 0x1p20}, {"G", 1e9},     {"GB", 1e9},
                 {"GiB", 0x1p30}, {"T", 1e12}, {"TB", 1e12},    {"TiB", 0x1p40}};
    double number;
    const char *end;
    if (!parse_float(text, &end, &number) || number < 0) return false;
    if (*end == ' ') end++;
    for (size_t i = 0; i < COUNT_OF(units); i++) {
        if (strcasecmp(end, units[i].suffix) != 0) continue;
        *ret_bytes = number * units[i].scale;
        return true;
    }
    return false;
}

/* The same per second, with or without "/s"; network rates are often given in bits. */
static bool read_rate(const char *text, double *ret_bytes) {
    char size[64];
    size_t length = strlen(text);
    if (length >= sizeof size) return false;
    snprintf(size, sizeof size, "%s", text);
    if (length > 2 && strcmp(size + length - 2, "/s") == 0) size[length -= 2] = 0;
    bool bits = length > 3 && strcasecmp(size + length - 3, "bit") == 0;
    if (bits) size[length - 3] = 0;
    if (!read_size(size, ret_bytes)) return false;
    if (bits) *ret_bytes = floor(*ret_bytes / 8);
    return true;
}

static bool parse_size(const Option *option, const char *text, int64_t *ret_value) {
    double bytes;
    if (!(is_rate(option) ? read_rate : read_size)(text, &bytes) || bytes >= size_end ||
        bytes != floor(bytes))
        return false;
    *ret_value = (int64_t)bytes;
    return true;
}

/* The largest value of the type, if only that is in the way of `text`; else NULL. */
static const char *limit_of(const Option *option, const char *text) {
    char *end;
    double number = strtod(text, &end), bytes;
    if (!starts_number(text) || (has_range(option) && isfinite(option->high))) return NULL;
    if (option->type == OPTION_SIZE)
        return read_size(text, &bytes) && bytes >= size_end ? "4194303TiB" : NULL;
    if (*end || strpbrk(text, "xX")) return NULL;
    if (option->type == OPTION_FLOAT) return number > DBL_MAX ? "1.79e308" : NULL;
    if (option->type != OPTION_INT || strpbrk(text, ".eE")) return NULL;
    return number >= 0x1p63 ? "9223372036854775807" : NULL;
}

static Status refuse(const Option *option, const char *label, const char *text) {
    char expects[OPTION_EXPECTS_SIZE];
    const char *limit = limit_of(option, text);
    if (limit) return USAGE("%s %s: too large; expected at most %s", label, text, limit);
    option_expects(option, expects);
    if (option->type == OPTION_CHOICE) {
        const char *near = foreign_value(option->name, text);
        if (!near || !find_choice(option, near)) near = suggest(text, option->choices);
        if (near) return USAGE("%s %s: expected %s; did you mean '%s'?", label, text, expects, near);
    }
    return USAGE("%s %s: expected %s", label, *text ? text : "''", expects);
}

static Status set_choice(const Option *option, void *field, const char *label, const char *text) {
    for (const char *const *old = option->old_choices; old && *old; old += 2)
        if (strcmp(*old, text) == 0) text = old[1];
    const char *const *choice = find_choice(option, text);
    if (!choice) return refuse(option, label, text);
    if (option->indexed)
        *(unsigned *)field = (unsigned)(choice - option->choices);
    else
        *(const char **)field = *choice;
    return OK;
}

static Status set_checked(const Option *option, void *field, const char *label, const char *text, bool any) {
    int64_t whole;
    uint64_t seed;
    double number;
    const char *end;
    switch (option->type) {
    case OPTION_INT:
    case OPTION_SIZE:
        if (option_is_word(option, text)) {
            *(int64_t *)field = option->word_value;
            return OK;
        }
        if (option->type == OPTION_INT ? !parse_int(text, &whole) : !parse_size(option, text, &whole))
            return refuse(option, label, text);
        if (!any && !in_range(option, (double)whole)) return refuse(option, label, text);
        *(int64_t *)field = whole;
        return OK;
    case OPTION_FLOAT:
        if (!parse_float(text, &end, &number) || *end || (!any && !in_range(option, number)))
            return refuse(option, label, text);
        *(double *)field = number;
        return OK;
    case OPTION_SEED:
        if (!parse_seed(text, &seed)) return refuse(option, label, text);
        *(uint64_t *)field = seed;
        return OK;
    case OPTION_CHOICE: return set_choice(option, field, label, text);
    case OPTION_TEXT:
        if (!*text && !option->may_be_empty)
            return USAGE("%s: expected %s, found an empty string", label, option->placeholder);
        *(const char **)field = text;
        return OK;
    default: return FAILED("internal: option %s does not have a single value", option->name);
    }
}

Status option_set_text(const Option *option, void *field, const char *label, const char *text) {
    return set_checked(option, field, label, text, false);
}

void option_set_flag(const Option *option, void *field, bool on) {
    *(bool *)field = on != option->inverted;
}

Status option_set_fallback(const Option *option, void *field) {
    if (option->type == OPTION_FLAG) {
        option_set_flag(option, field, option_default_on(option));
        return OK;
    }
    if (!option->fallback || option->type == OPTION_LIST) return OK;
    return set_checked(option, field, option->name, option->fallback, true);
}

/* Accepts reals without a fraction as integers, since people write 5e8. */
static bool json_whole(const json_t *value, char *text, size_t size) {
    double real = json_number_value(value);
    if (json_is_integer(value))
        snprintf(text, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value) && real == floor(real) && fabs(real) < 0x1p53)
        snprintf(text, size, "%.0f", real);
    else
        return false;
    return true;
}

Status option_set_json(const Option *option, void *field, const char *label, const json_t *value) {
    char text[64];
    bool fits = false;
    switch (option->type) {
    case OPTION_FLAG:
        if (!json_is_boolean(value) && !option_is_word(option, json_string_value(value))) break;
        option_set_flag(option, field, !json_is_false(value));
        return OK;
    case OPTION_SIZE:
    case OPTION_SEED: /* also as a string, because JSON integers are signed */
        if (json_is_string(value)) return option_set_text(option, field, label, json_string_value(value));
        fits = json_whole(value, text, sizeof text);
        break;
    case OPTION_INT:
        if (option->word && json_is_string(value))
            return option_set_text(option, field, label, json_string_value(value));
        fits = json_whole(value, text, sizeof text);
        break;
    case OPTION_FLOAT:
        fits = json_is_number(value);
        if (fits) snprintf(text, sizeof text, "%.17g", json_number_value(value));
        break;
    default:
        if (json_is_string(value)) return option_set_text(option, field, label, json_string_value(value));
    }
    if (fits) return option_set_text(option, field, label, text);
    CLEANUP(mem_freep) char *found = json_serialize(value, JSON_ENCODE_ANY | JSON_COMPACT);
    char expects[OPTION_EXPECTS_SIZE];
    return USAGE("%s: expected %s, found %.60s", label, option_expects(option, expects), found ? found : "?");
}

static json_t *seed_json(uint64_t seed) {
    if (seed <= INT64_MAX) return json_integer((json_int_t)seed);
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    return json_string(text);
}

json_t *option_json(const Option *option, const void *field, const int *count) {
    switch (option->type) {
    case OPTION_FLAG: return json_boolean(*(const bool *)field != option->inverted);
    case OPTION_INT:
    case OPTION_SIZE:
        if (option->word && *(const int64_t *)field == option->word_value) return json_string(option->word);
        return json_integer(*(const int64_t *)field);
    case OPTION_FLOAT: return json_real(*(const double *)field);
    case OPTION_SEED: return seed_json(*(const uint64_t *)field);
    case OPTION_LIST: {
        json_t *list = json_array();
        const char *const *entries = *(const char *const *const *)field;
        for (int i = 0; i < *count; i++)
            if (json_array_append_new(list, json_string(entries[i])) != 0) {
                json_decref(list);
                return NULL;
            }
        return list;
    }
    default: {
        const char *text =
            option->type == OPTION_CHOICE ? option_choice(option, field) : *(const char *const *)field;
        return text ? json_string(text) : json_null();
    }
    }
}

bool option_in_range(const Option *option, const void *field) {
    if (option->type == OPTION_FLOAT) return in_range(option, *(const double *)field);
    if (option->type != OPTION_INT && option->type != OPTION_SIZE) return true;
    int64_t value = *(const int64_t *)field;
    return (option->word && value == option->word_value) || in_range(option, (double)value);
}

bool option_default_on(const Option *option) {
    return option->type == OPTION_FLAG && option->fallback && strcmp(option->fallback, "on") == 0;
}

const char *option_typed_prefix(const Option *option) {
    return option_default_on(option) ? "--no-" : "--";
}
