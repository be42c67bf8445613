#include "report/figure_files.h"

#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

/* Every chart of any page. */
static const char *const names[] = {"throughput",
                                    "memory",
                                    "memory-throughput",
                                    "loss-tokens",
                                    "loss-time",
                                    "validation-loss",
                                    "loss-difference",
                                    "throughput-batch",
                                    "memory-batch",
                                    "scaling",
                                    "work-size",
                                    "mfu-size",
                                    "time-per-sample",
                                    "memory-ranks",
                                    "timeline",
                                    "speed-memory",
                                    "cost-memory",
                                    "speed-cost",
                                    "step-time",
                                    "memory-stages",
                                    "tokens",
                                    "efficiency",
                                    "mfu"};
static const char *const endings[] = {"svg", "pdf", "csv"};
enum { FILES = 3 * sizeof names / sizeof *names, NAME_SIZE = 32, TRIES = 100 };

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A file of a chart: its name, its path, and whether it exists. */
typedef struct ChartFile {
    char name[NAME_SIZE], *path;
    bool exists;
} ChartFile;

static void file_done(ChartFile *file) {
    free(file->path);
}

static Status file_at(const char *dir, size_t at, ChartFile *ret_file) {
    snprintf(ret_file->name, NAME_SIZE, "%s.%s", names[at / 3], endings[at % 3]);
    TRY(path_join(&ret_file->path, dir, ret_file->name));
    ret_file->exists = access(ret_file->path, F_OK) == 0;
    return OK;
}

/* ---- the list ---- */

static bool is_listed(const json_t *files, const char *name) {
    const json_t *file;
    size_t i;
    json_array_foreach(files, i, file) {
        if (json_is_string(file) && !strcmp(json_string_value(file), name)) return true;
    }
    return false;
}

/* The files that the directory's list names; NULL if it has none, or that of another page. */
static Status read_list(const char *page, const char *dir, json_t **ret_files) {
    CLEANUP(mem_freep) char *path = NULL, *name = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    size_t size;
    *ret_files = NULL;
    TRY(text_to_utf8(base_name(page), strlen(base_name(page)), &name, &size));
    TRY(path_join(&path, dir, FIGURE_LIST));
    CLEANUP(status_freep) Status damaged = path_exists(path) ? json_read_file(path, &json) : OK;
    const char *owner = damaged ? NULL : json_string_at(json, "page");
    if (owner && !strcmp(owner, name)) *ret_files = json_incref(json_object_get(json, "files"));
    return OK;
}

/* Lists every chart, or those that exist. *ret_any: there is one. */
static Status write_list(const char *page, const char *dir, bool every, bool *ret_any) {
    CLEANUP(mem_freep) char *path = NULL, *name = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL, *files = json_array();
    size_t size;
    TRY(text_to_utf8(base_name(page), strlen(base_name(page)), &name, &size)); /* a list is UTF-8 */
    for (size_t i = 0; i < FILES; i++) {
        CLEANUP(file_done) ChartFile file = {0};
        TRY(file_at(dir, i, &file));
        if (every || file.exists) json_array_append_new(files, json_string(file.name));
    }
    json = json_pack("{s:s, s:O}", "page", name, "files", files);
    if (!json) return FAILED("out of memory while listing the figures of %s", page);
    TRY(path_join(&path, dir, FIGURE_LIST));
    *ret_any = json_array_size(files) > 0;
    return json_write_file(path, json);
}

/* ---- the directory ---- */

/* Whether the page may use the directory: it is absent, empty or the page's own, and no file that is not
 * listed has the name of a chart. *ret_files: as read_list. */
static Status is_free(const char *page, const char *dir, bool *ret_free, json_t **ret_files) {
    TRY(read_list(page, dir, ret_files));
    *ret_free = *ret_files || !path_exists(dir) || dir_is_empty(dir);
    for (size_t i = 0; *ret_files && i < FILES; i++) {
        CLEANUP(file_done) ChartFile file = {0};
        TRY(file_at(dir, i, &file));
        if (file.exists && !is_listed(*ret_files, file.name)) *ret_free = false;
    }
    return OK;
}

/* The directory to try after `at` others. */
static Status candidate(const char *page, int at, char **ret_dir) {
    const char *name = base_name(page), *dot = strrchr(name, '.');
    bool html = dot && dot > name && (!strcmp(dot, ".html") || !strcmp(dot, ".htm"));
    int length = html ? (int)(dot - name) : (int)strlen(name), folder = (int)(name - page);
    bool usual = length == 6 && !strncmp(name, "report", 6);
    if (usual && !at) return str_format(ret_dir, "%.*sfigures", folder, page);
    int number = usual ? at : at + 1;
    if (number == 1) return str_format(ret_dir, "%.*s-figures", folder + length, page);
    return str_format(ret_dir, "%.*s-figures-%d", folder + length, page, number);
}

/* Finds the page's directory; *ret_dir is NULL if there is none. *ret_files: as read_list. */
static Status find_dir(const char *page, char **ret_dir, json_t **ret_files) {
    for (int at = 0; at < TRIES; at++) {
        CLEANUP(mem_freep) char *dir = NULL;
        CLEANUP(json_decrefp) json_t *files = NULL;
        bool is_usable = false;
        TRY(candidate(page, at, &dir));
        TRY(is_free(page, dir, &is_usable, &files));
        if (!is_usable) continue;
        *ret_files = json_incref(files);
        *ret_dir = dir;
        dir = NULL;
        return OK;
    }
    *ret_dir = NULL;
    return OK;
}

Status figure_files_begin(const char *page, char **ret_dir) {
    CLEANUP(mem_freep) char *dir = NULL;
    CLEANUP(json_decrefp) json_t *files = NULL;
    bool any;
    *ret_dir = NULL;
    if (path_is_special(page)) return OK;
    TRY(find_dir(page, &dir, &files));
    if (!dir) return FAILED("%s: all directories for its figures contain other files", page);
    TRY(dir_make(dir));
    for (size_t i = 0; i < FILES; i++) {
        CLEANUP(file_done) ChartFile file = {0};
        TRY(file_at(dir, i, &file));
        if (is_listed(files, file.name)) unlink(file.path);
    }
    TRY(write_list(page, dir, true,
                   &any)); /* in case that this process is killed before the list is complete */
    *ret_dir = dir;
    dir = NULL;
    return OK;
}

Status figure_files_end(const char *page, const char *dir) {
    CLEANUP(mem_freep) char *list = NULL;
    bool any;
    if (!dir) return OK;
    TRY(write_list(page, dir, false, &any));
    if (any) return OK;
    TRY(path_join(&list, dir, FIGURE_LIST));
    unlink(list);
    rmdir(dir); /* fails if it contains anything else */
    return OK;
}

Status figure_files_find(const char *page, char **ret_dir) {
    CLEANUP(mem_freep) char *dir = NULL;
    CLEANUP(json_decrefp) json_t *files = NULL;
    TRY(find_dir(page, &dir, &files));
    *ret_dir = files ? dir : NULL;
    if (files) dir = NULL;
    return OK;
}
