/* A cgroup's limit holds for all its descendants, so every ancestor counts. /proc/self/cgroup names the
 * process's cgroup: version 2 as "0::/PATH", version 1 as "N:memory:/PATH". Inside a container, PATH may be
 * the host's while only the end of that tree is mounted, so absent directories are skipped.
 * The page cache counts as used by a cgroup, but the kernel gives it back when memory is needed. */
#include "device/host_memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* How the two versions of cgroups name their files. */
typedef struct GroupFiles {
    const char *mounts[2]; /* where the hierarchy may be mounted */
    const char *limit, *used, *inactive, *active;
} GroupFiles;

static const GroupFiles version1 = {{"/sys/fs/cgroup/memory", NULL},
                                    "memory.limit_in_bytes",
                                    "memory.usage_in_bytes",
                                    "total_inactive_file",
                                    "total_active_file"};
static const GroupFiles version2 = {{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"},
                                    "memory.max",
                                    "memory.current",
                                    "inactive_file",
                                    "active_file"};

static FILE *open_in(const char *dir, const char *name) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) return NULL;
    return fopen(path, "re");
}

/* The number in a file; false if it has none, such as "max". */
static bool read_number(const char *dir, const char *name, unsigned long long *ret_value) {
    FILE *file = open_in(dir, name);
    unsigned long long value;
    bool found = file && fscanf(file, "%llu", &value) == 1;
    if (file) fclose(file);
    if (found) *ret_value = value;
    return found;
}

/* The value of a line "key value" or "key: value"; 0 if there is none. */
static unsigned long long read_line(const char *dir, const char *name, const char *key) {
    FILE *file = open_in(dir, name);
    unsigned long long value = 0;
    size_t length = strlen(key);
    char line[256];
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, length) && strchr(": ", line[length]))
            sscanf(line + length + 1, "%llu", &value);
    if (file) fclose(file);
    return value;
}

/* The room that one cgroup leaves. */
static unsigned long long group_room(const char *dir, const GroupFiles *files) {
    unsigned long long limit, used = 0, cache;
    if (!read_number(dir, files->limit, &limit)) return ULLONG_MAX;
    read_number(dir, files->used, &used);
    cache = read_line(dir, "memory.stat", files->inactive) + read_line(dir, "memory.stat", files->active);
    used = used > cache ? used - cache : 0;
    return limit > used ? limit - used : 0;
}

/* The least room that a cgroup and its ancestors leave. */
static unsigned long long path_room(const char *root, const GroupFiles *files, const char *group) {
    unsigned long long least = ULLONG_MAX;
    for (size_t i = 0; i < sizeof files->mounts / sizeof *files->mounts && files->mounts[i]; i++) {
        char dir[PATH_MAX];
        size_t top = (size_t)snprintf(dir, sizeof dir, "%s%s", root, files->mounts[i]);
        if (top + (size_t)snprintf(dir + top, sizeof dir - top, "%s", group) >= sizeof dir) continue;
        for (char *end = dir + strlen(dir); end; end = strrchr(dir, '/')) {
            *end = 0;
            if (strlen(dir) < top) break;
            unsigned long long room = group_room(dir, files);
            if (room < least) least = room;
        }
    }
    return least;
}

/* Whether a comma-separated list has the word. */
static bool lists(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, word, length) && (at[length] == ',' || !at[length])) return true;
    return false;
}

static unsigned long long groups_room(const char *root) {
    char dir[PATH_MAX], line[PATH_MAX + 256];
    unsigned long long least = ULLONG_MAX;
    snprintf(dir, sizeof dir, "%s/proc/self", root);
    FILE *file = open_in(dir, "cgroup");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        const GroupFiles *files = !controllers[1]                    ? &version2
                                  : lists(controllers + 1, "memory") ? &version1
                                                                     : NULL;
        unsigned long long room = files ? path_room(root, files, path) : ULLONG_MAX;
        if (room < least) least = room;
    }
    if (file) fclose(file);
    return least;
}

/* What `ulimit -v` leaves, besides the address space that is mapped already. */
static size_t process_room(const char *root) {
    struct rlimit limit;
    char dir[PATH_MAX];
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    snprintf(dir, sizeof dir, "%s/proc/self", root);
    unsigned long long used = 1024 * read_line(dir, "status", "VmSize");
    return limit.rlim_cur > used ? (size_t)(limit.rlim_cur - used) : 1;
}

HostMemory host_memory(const char *root) {
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s/proc", root);
    unsigned long long available = read_line(dir, "meminfo", "MemAvailable");
    unsigned long long bytes = 1024 * (available + read_line(dir, "meminfo", "SwapFree"));
    unsigned long long group = groups_room(root);
    if (group < bytes) bytes = group ? group : 1;
    return (HostMemory){.host = available ? (size_t)bytes : 0, .process = process_room(root)};
}
