#include "train/run_summary.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"

static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
#define ROW(key) {#key, offsetof(RunSummary, key)},
    RUN_SUMMARY_NUMBERS(ROW)
#undef ROW
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

RunSummary run_summary_take(json_t *json) {
    RunSummary summary = {.json = json,
                          .interrupted = json_is_true(json_object_get(json, "interrupted")),
                          .by_metrics = json_object_get(json, "by_metrics") != NULL,
                          .predicted = json_string_at(json, "predicted"),
                          .program = json_string_at(json, "program"),
                          .weft = json_object_get(json, "weft"),
                          .layout = json_object_get(json, "layout"),
                          .phases = json_object_get(json, "phases"),
                          .peak_bytes = json_object_get(json, "peak_bytes"),
                          .ranks = json_object_get(json, "ranks")};
    for (int i = 0; i < NUMBERS; i++) {
        double number = json_number_or(json, numbers[i].key, NAN);
        memcpy((char *)&summary + numbers[i].offset, &number, sizeof number);
    }
    return summary;
}

void run_summary_done(RunSummary *summary) {
    json_decref(summary->json);
    *summary = run_summary_take(NULL);
}

void run_summary_replace(RunSummary *summary, json_t *json) {
    json_decref(summary->json);
    *summary = run_summary_take(json);
}

double run_summary_number(const RunSummary *summary, const char *key) {
    for (int i = 0; i < NUMBERS; i++) {
        double number;
        if (strcmp(numbers[i].key, key)) continue;
        memcpy(&number, (const char *)summary + numbers[i].offset, sizeof number);
        return number;
    }
    return NAN;
}

Status run_summary_write(const char *dir, const json_t *json) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, RUN_SUMMARY_FILE));
    return json_write_file(path, json);
}
