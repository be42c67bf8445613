#include "report/figure_files.h"

#include <dirent.h>
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
enum {
    NAMES = sizeof names / sizeof *names,
    ENDINGS = 3,
    FILES = NAMES * ENDINGS,
    NAME_SIZE = 32,
    TRIES = 100
};

static const char *file_name(size_t at, char name[NAME_SIZE]) {
    snprintf(name, NAME_SIZE, "%s.%s", names[at / ENDINGS], endings[at % ENDINGS]);
    return name;
}

static Status has_file(const char *dir, size_t at, bool *ret_has) {
    CLEANUP(mem_freep) char *path = NULL;
    char name[NAME_SIZE];
    TRY(path_join(&path, dir, file_name(at, name)));
    *ret_has = access(path, F_OK) == 0;
    return OK;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The page's name in the list, which is UTF-8. */
static Status listed_name(const char *page, char **ret_name) {
    size_t size;
    return text_to_utf8(base_name(page), strlen(base_name(page)), ret_name, &size);
}

/* ---- the list ---- */

/* Which files the directory's list names. *ret_own is false if it has none, or that of another page. */
static Status read_list(const char *page, const char *dir, bool *ret_own, bool listed[FILES]) {
    CLEANUP(mem_freep) char *path = NULL, *name = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    const json_t *file;
    size_t i;
    TRY(listed_name(page, &name));
    memset(listed, 0, FILES * sizeof *listed);
    *ret_own = false;
    TRY(path_join(&path, dir, FIGURE_LIST));
    if (!path_exists(path)) return OK;
    CLEANUP(status_freep) Status damaged = json_read_file(path, &json);
    const char *owner = damaged ? NULL : json_string_at(json, "page");
    *ret_own = owner && !strcmp(owner, name);
    json_array_foreach(json_object_get(json, "files"), i, file) {
        char chart[NAME_SIZE];
        for (size_t k = 0; k < FILES && json_is_string(file); k++)
            listed[k] |= !strcmp(json_string_value(file), file_name(k, chart));
    }
    return OK;
}

static Status write_list(const char *page, const char *dir, const bool listed[FILES]) {
    CLEANUP(mem_freep) char *path = NULL, *name = NULL;
    char chart[NAME_SIZE];
    TRY(listed_name(page, &name));
    CLEANUP(json_decrefp) json_t *json = json_pack("{s:s, s:[]}", "page", name, "files");
    if (!json) return FAILED("out of memory while listing the figures of %s", page);
    for (size_t i = 0; i < FILES; i++)
        if (listed[i])
            json_array_append_new(json_object_get(json, "files"), json_string(file_name(i, chart)));
    TRY(path_join(&path, dir, FIGURE_LIST));
    return json_write_file(path, json);
}

/* ---- the directory ---- */

static bool is_empty(const char *dir) {
    DIR *stream = opendir(dir);
    bool empty = stream != NULL;
    for (const struct dirent *entry; empty && (entry = readdir(stream));)
        empty = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
    if (stream) closedir(stream);
    return empty;
}

/* Whether the page may use the directory: it is absent, empty or the page's own, and no file that is not
 * listed has the name of a chart. */
static Status is_free(const char *page, const char *dir, bool *ret_free, bool listed[FILES]) {
    bool own = false, exists = false;
    TRY(read_list(page, dir, &own, listed));
    *ret_free = own || !path_exists(dir) || is_empty(dir);
    for (size_t i = 0; own && i < FILES; i++) {
        TRY(has_file(dir, i, &exists));
        if (exists && !listed[i]) *ret_free = false;
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

static Status delete_listed(const char *dir, const bool listed[FILES]) {
    for (size_t i = 0; i < FILES; i++) {
        CLEANUP(mem_freep) char *path = NULL;
        char name[NAME_SIZE];
        TRY(path_join(&path, dir, file_name(i, name)));
        if (listed[i]) unlink(path);
    }
    return OK;
}

Status figure_files_begin(const char *page, char **ret_dir) {
    bool listed[FILES], every[FILES];
    if (path_is_special(page)) {
        *ret_dir = NULL;
        return OK;
    }
    for (int at = 0; at < TRIES; at++) {
        CLEANUP(mem_freep) char *dir = NULL;
        bool is_usable = false;
        TRY(candidate(page, at, &dir));
        TRY(is_free(page, dir, &is_usable, listed));
        if (!is_usable) continue;
        TRY(dir_make(dir));
        TRY(delete_listed(dir, listed));
        memset(every, 1, sizeof every); /* in case that this process is killed before the list is complete */
        TRY(write_list(page, dir, every));
        *ret_dir = dir;
        dir = NULL;
        return OK;
    }
    return FAILED("%s: all directories for its figures contain other files", page);
}

Status figure_files_end(const char *page, const char *dir) {
    CLEANUP(mem_freep) char *list = NULL;
    bool listed[FILES], any = false;
    if (!dir) return OK;
    for (size_t i = 0; i < FILES; i++) {
        TRY(has_file(dir, i, &listed[i]));
        any |= listed[i];
    }
    if (any) return write_list(page, dir, listed);
    TRY(path_join(&list, dir, FIGURE_LIST));
    unlink(list);
    rmdir(dir); /* fails if it contains anything else */
    return OK;
}

Status figure_files_find(const char *page, char **ret_dir) {
    bool listed[FILES];
    for (int at = 0; at < TRIES; at++) {
        CLEANUP(mem_freep) char *dir = NULL;
        bool is_own = false, is_usable = false;
        TRY(candidate(page, at, &dir));
        TRY(read_list(page, dir, &is_own, listed));
        TRY(is_free(page, dir, &is_usable, listed));
        if (!is_usable) continue;
        *ret_dir = is_own ? dir : NULL;
        if (is_own) dir = NULL;
        return OK;
    }
    *ret_dir = NULL;
    return OK;
}
