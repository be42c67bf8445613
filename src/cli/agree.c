/* Ranks that were started differently would train to a wrong result, or wait for each other forever. So they
 * compare, before anything is allocated:
 *
 *   the program    its version and the contents of its file
 *   the options    every option's value, from whatever file or line it came; `per_rank` in the option's row
 *                  excludes those that may differ, such as --threads
 *   the files      of options that name files: size and checksum. Paths may differ, so that each host can
 * have its own copy. Of large files, parts are read (fingerprint.h) variables      those that change results
 */
#include "cli/launched.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fingerprint.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "cli/invocation.h"
#include "comm/agree.h"

/* Bytes to read of one file, and of all files of an option together. */
static const uint64_t file_limit = 64 << 20, option_limit = 256 << 20;

enum { FILES_READ = 1024 }; /* of a directory, about */

typedef struct NameList {
    char **name;
    size_t count, capacity;
} NameList;

static void name_list_done(NameList *list) {
    for (size_t i = 0; i < list->count; i++) free(list->name[i]);
    free(list->name);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Descriptions and hidden files do not change a run. */
static bool counts(const char *name) {
    size_t length = strlen(name);
    return name[0] != '.' && !(length > 3 && strcmp(name + length - 3, ".md") == 0);
}

/* The files of a directory, sorted; of a run directory, those of its newest checkpoint. */
static Status list_files(const char *dir, NameList *list) {
    CLEANUP(mem_freep) char *latest = NULL;
    TRY(path_join(&latest, dir, "latest"));
    const char *from = path_is_dir(latest) ? latest : dir;
    DIR *stream = opendir(from);
    if (!stream) return FAILED("%s: cannot read directory: %s", from, strerror(errno));
    Status status = OK;
    for (struct dirent *entry; !status && (entry = readdir(stream));) {
        CLEANUP(mem_freep) char *path = NULL;
        if (!counts(entry->d_name)) continue;
        status = path_join(&path, from, entry->d_name);
        if (status || !is_file(path)) continue;
        status = mem_grow(&list->name, &list->capacity, list->count + 1, sizeof *list->name);
        if (status) continue;
        list->name[list->count++] = path;
        path = NULL;
    }
    closedir(stream);
    if (list->count) qsort(list->name, list->count, sizeof *list->name, by_name);
    return status;
}

/* ---- rows ---- */

/* A file's name within its directory is compared, not its path. */
static Status add_file(AgreeTable *table, const char *option, const char *path, bool named, uint64_t limit) {
    CLEANUP(mem_freep) char *key = NULL, *shown = NULL;
    Fingerprint print;
    char size[FORMAT_SIZE];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    Status status = fingerprint_file(path, limit, &print);
    if (status) { /* the command reports it, if it needs the file */
        status_free(status);
        return agree_add(table, "unreadable", path, true);
    }
    TRY(str_format(&key, "%s %s %llu %08x", option, named ? name : "", (unsigned long long)print.size,
                   print.crc));
    TRY(str_format(&shown, "--%s %s (%s, checksum %08x)", option, path,
                   format_bytes(size, (double)print.size), print.crc));
    return agree_add(table, key, shown, true);
}

static Status add_path(AgreeTable *table, const char *option, const char *path, uint64_t limit) {
    CLEANUP(mem_freep) char *key = NULL, *shown = NULL;
    CLEANUP(name_list_done) NameList files = {0};
    if (is_file(path)) return add_file(table, option, path, false, limit);
    if (!path_is_dir(path)) { /* a preset, or missing */
        TRY(str_format(&key, "%s %s", option, path));
        TRY(str_format(&shown, "--%s %s (no file or directory of this name)", option, path));
        return agree_add(table, key, shown, true);
    }
    TRY(list_files(path, &files));
    size_t every = files.count / FILES_READ + 1; /* of the others, only the sizes */
    for (size_t i = 0; i < files.count; i++)
        TRY(add_file(table, option, files.name[i], true, i % every ? 0 : limit / files.count * every));
    return OK;
}

static Status add_paths(AgreeTable *table, const Slot *slot) {
    const char *const *paths = slot->field; /* a single path, or a list */
    int count = slot->count ? *slot->count : *paths != NULL;
    if (slot->count) paths = *(const char *const *const *)slot->field;
    CLEANUP(mem_freep) char *key = NULL, *shown = NULL;
    TRY(str_format(&key, "%s %d", slot->option->name, count));
    TRY(str_format(&shown, "%d path%s in --%s", count, PLURAL(count), slot->option->name));
    TRY(agree_add(table, key, shown, true));
    for (int i = 0; i < count; i++) {
        uint64_t share = option_limit / (uint64_t)count;
        TRY(add_path(table, slot->option->name, paths[i], share < file_limit ? share : file_limit));
    }
    return OK;
}

/* "--lr 0.001", "--no-shuffle", "no --precision" */
static Status show_value(const Slot *slot, const json_t *value, char **ret_shown) {
    const char *name = slot->option->name;
    if (json_is_true(value)) return str_format(ret_shown, "--%s", name);
    if (json_is_false(value)) return str_format(ret_shown, "--no-%s", name);
    bool none = json_is_null(value) || (json_is_array(value) && !json_array_size(value));
    if (none || !option_in_range(slot->option, slot->field)) return str_format(ret_shown, "no --%s", name);
    if (json_is_string(value)) return str_format(ret_shown, "--%s %s", name, json_string_value(value));
    if (json_is_real(value)) return str_format(ret_shown, "--%s %.9g", name, json_real_value(value));
    CLEANUP(mem_freep) char *text = NULL;
    TRY(json_text(value, JSON_ENCODE_ANY | JSON_COMPACT, &text));
    return str_format(ret_shown, "--%s %s", name, text);
}

static Status add_value(AgreeTable *table, const Slot *slot) {
    CLEANUP(json_decrefp) json_t *value = option_json(slot->option, slot->field, slot->count);
    CLEANUP(mem_freep) char *text = NULL, *key = NULL, *shown = NULL;
    if (!value) return FAILED("out of memory");
    TRY(json_text(value, JSON_ENCODE_ANY | JSON_COMPACT, &text));
    TRY(str_format(&key, "%s %s", slot->option->name, text));
    TRY(show_value(slot, value, &shown));
    return agree_add(table, key, shown, slot->source != SOURCE_DEFAULT);
}

static Status add_program(AgreeTable *table, const char *command) {
    CLEANUP(mem_freep) char *shown = NULL, *name = NULL;
    Fingerprint print = {0};
    status_free(fingerprint_file("/proc/self/exe", file_limit, &print));
    TRY(str_format(&shown, "weft " WEFT_VERSION ", a build with the checksum %08x", print.crc));
    TRY(agree_add(table, shown, shown, true));
    TRY(str_format(&name, "the command '%s'", command));
    return agree_add(table, name, name, true);
}

static Status add_variables(AgreeTable *table) {
    static const char *const names[] = {"WEFT_CPU", "WEFT_CPU_BF16", "WEFT_CPU_FP32", "WEFT_CPU_INT8"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const char *value = getenv(names[i]);
        CLEANUP(mem_freep) char *shown = NULL;
        TRY(str_format(&shown, value ? "%s=%s" : "no %s%s", names[i], value ? value : ""));
        TRY(agree_add(table, shown, shown, true));
    }
    return OK;
}

Status agree_on_start(const Invocation *call) {
    CLEANUP(agree_done) AgreeTable table = {0};
    TRY(add_program(&table, call->command->name));
    for (size_t i = 0; i < call->slot_count; i++) {
        const Slot *slot = &call->slots[i];
        if (slot->option->per_rank == PER_RANK_SAME) TRY(add_value(&table, slot));
    }
    TRY(add_variables(&table));
    const Slot *gather = invocation_slot(call, GATHER_OPTION);
    bool own = !gather || !*(const bool *)gather->field; /* each rank reads its own model */
    for (size_t i = 0; i < call->slot_count; i++) {
        PerRank kind = call->slots[i].option->per_rank;
        if (kind == PER_RANK_PATH || (kind == PER_RANK_MODEL && own)) TRY(add_paths(&table, &call->slots[i]));
    }
    return agree_check(call->world, &table, "start all ranks with the same program, options and files");
}
