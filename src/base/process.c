#include "base/process.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The second field of stat, the program's name, may contain anything. */
char process_state(pid_t process, pid_t *ret_parent) {
    char path[64], text[512], state = 0;
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    const char *end = strrchr(text, ')');
    if (!end || sscanf(end + 1, " %c %d", &state, &parent) != 2) return 0;
    if (ret_parent) *ret_parent = parent;
    return state;
}

/* Threads have entries in /proc under their own numbers, too. */
bool process_awaits_disk(void) {
    bool awaits = false;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *entry; dir && !awaits && (entry = readdir(dir));) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        awaits = thread > 0 && process_state(thread, NULL) == 'D';
    }
    if (dir) closedir(dir);
    return awaits;
}
