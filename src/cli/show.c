#include "cli/show.h"

bool show_number(const json_t *object, const char *key, double *ret_number) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) return false;
    *ret_number = json_number_value(value);
    return true;
}

int64_t show_int(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

const json_t *show_rank_peak(const json_t *summary) {
    return json_object_get(json_array_get(json_object_get(summary, "ranks"), 0), "peak_bytes");
}

json_t *show_names(char *const *names, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_string(names[i]));
    return list;
}

void show_study(const json_t *study, FILE *out) {
    const char *title = json_string_value(json_object_get(study, "title"));
    const char *hardware = json_string_value(json_object_get(study, "hardware"));
    const char *note = json_string_value(json_object_get(study, "note"));
    if (!note) return;
    fprintf(out, "\npublished%s%s%s%s%s: %s\n", title ? " (" : "", title ? title : "",
            title && hardware ? ", " : "", title && hardware ? hardware : "", title ? ")" : "", note);
}
