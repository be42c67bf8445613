#include "data/folder.h"

#include <errno.h>
#include <string.h>

#include "base/memory.h"
#include "data/source.h"
#include "data/token_file.h"

/* The names of a part's splits, the first that occurs first. */
static const char *const splits[][5] = {[FOLDER_TRAIN] = {"train"}, [FOLDER_VAL] = {"val", "dev", "test"}};
static const char *const suffixes[] = {".parquet", ".jsonl", ".ndjson", ".csv", ".tsv", ".json", ".txt"};

void folder_files_done(FolderFiles *files) {
    for (size_t i = 0; i < files->count; i++) free(files->path[i]);
    free(files->path);
    *files = (FolderFiles){0};
}

static bool begins_with(const char *path, const char *name) {
    return !strncmp(path_base(path), name, strlen(name));
}

static Status list_suffix(const char *dir, const char *suffix, FolderFiles *files) {
    CLEANUP(dir_closep) DIR *open = opendir(dir);
    if (!open) return FAILED("%s: cannot open: %s", dir, strerror(errno));
    for (struct dirent *entry; (entry = readdir(open));) {
        char *path;
        if (entry->d_name[0] == '.' || !path_has_suffix(entry->d_name, suffix)) continue;
        TRY(mem_grow(&files->path, &files->capacity, files->count + 1, sizeof *files->path));
        TRY(path_join(&path, dir, entry->d_name));
        files->path[files->count++] = path;
    }
    return OK;
}

/* Keeps the files of a split, or all if there is none. */
static bool keep_split(FolderFiles *files, const char *split) {
    size_t kept = 0;
    for (size_t i = 0; i < files->count; i++) kept += begins_with(files->path[i], split);
    if (!kept) return false;
    size_t to = 0;
    for (size_t i = 0; i < files->count; i++) {
        if (begins_with(files->path[i], split))
            files->path[to++] = files->path[i];
        else
            free(files->path[i]);
    }
    files->count = to;
    return true;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static Status has_model(const char *dir, bool *ret_has) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, "config.json"));
    *ret_has = path_exists(path);
    return OK;
}

Status folder_list(const char *dir, FolderPart part, FolderFiles *ret_files) {
    CLEANUP(folder_files_done) FolderFiles files = {0};
    bool model = false;
    TRY(has_model(dir, &model));
    bool other = model || path_has_token_files(dir);
    for (size_t i = 0; !other && !files.count && i < sizeof suffixes / sizeof *suffixes; i++)
        TRY(list_suffix(dir, suffixes[i], &files));
    for (int i = 0; splits[part][i]; i++)
        if (keep_split(&files, splits[part][i])) break;
    if (files.count) qsort(files.path, files.count, sizeof *files.path, by_name);
    return MOVE(ret_files, files);
}
