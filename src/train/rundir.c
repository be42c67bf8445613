#include "train/rundir.h"

#include <errno.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"

struct RunDir {
    char *path;
    FILE *metrics;
};

enum { METRICS_LIMIT = 1 << 30 };

/* Keeps whole lines up to `step`. A line cut short by a kill, or from a step that the checkpoint does
 * not have, goes. */
static Status trim_metrics(const char *path, int64_t step) {
    if (!path_exists(path)) return OK;
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    TRY(file_read(path, METRICS_LIMIT, &text, &size));
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    TRY(file_writer_new(&writer, path));
    for (char *line = text, *end; (end = memchr(line, '\n', size - (size_t)(line - text))); line = end + 1) {
        CLEANUP(json_decrefp) json_t *entry = json_loadb(line, (size_t)(end - line), 0, NULL);
        const json_t *at = json_object_get(entry, "step");
        if (json_is_integer(at) && json_integer_value(at) <= step)
            TRY(file_write(writer, line, (size_t)(end - line) + 1));
    }
    return file_commit(writer);
}

Status rundir_open(RunDir **ret_dir, const char *path, const json_t *config, int64_t step) {
    CLEANUP(rundir_freep) RunDir *dir = NULL;
    TRY(mem_new(1, sizeof *dir, &dir));
    if (path) {
        TRY(str_dup(path, &dir->path));
        TRY(dir_make(path));
        CLEANUP(mem_freep) char *config_path = NULL;
        CLEANUP(mem_freep) char *metrics_path = NULL;
        TRY(path_join(&config_path, path, "config.json"));
        TRY(path_join(&metrics_path, path, "metrics.jsonl"));
        TRY(json_write_file(config_path, config));
        TRY(trim_metrics(metrics_path, step));
        dir->metrics = fopen(metrics_path, "ae");
        if (!dir->metrics) return FAILED("%s: cannot be written: %s", metrics_path, strerror(errno));
    }
    *ret_dir = dir;
    dir = NULL;
    return OK;
}

void rundir_free(RunDir *dir) {
    if (!dir) return;
    if (dir->metrics) fclose(dir->metrics);
    free(dir->path);
    free(dir);
}

Status rundir_metrics(RunDir *dir, json_t *line) {
    CLEANUP(json_decrefp) json_t *owned = line;
    if (!dir->metrics) return OK;
    CLEANUP(mem_freep) char *text = json_dumps(owned, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (!text) return FAILED("%s: a line of metrics cannot be formed", dir->path);
    if (fprintf(dir->metrics, "%s\n", text) < 0 || fflush(dir->metrics) != 0)
        return FAILED("%s/metrics.jsonl: cannot be written: %s", dir->path, strerror(errno));
    return OK;
}

Status rundir_summary(RunDir *dir, const json_t *summary) {
    if (!dir->path) return OK;
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir->path, "summary.json"));
    return json_write_file(path, summary);
}
