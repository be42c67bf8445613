#include "cli/processes.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The parent of a process, or -1. The second field of stat, the name, may contain anything. */
static pid_t parent_of(pid_t process) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    int parent = -1;
    const char *end = strrchr(text, ')');
    if (!end || sscanf(end + 1, " %*c %d", &parent) != 1) return -1;
    return parent;
}

int processes_signal(pid_t parent, int number, bool whole_tree) {
    int count = 0;
    DIR *dir = opendir("/proc");
    if (whole_tree) kill(parent, SIGSTOP); /* it starts no others meanwhile */
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        pid_t process = (pid_t)strtol(entry->d_name, NULL, 10);
        if (process <= 1 || parent_of(process) != parent) continue;
        count++;
        if (whole_tree)
            processes_signal(process, number, true);
        else
            kill(process, number);
    }
    if (dir) closedir(dir);
    if (whole_tree) kill(parent, number);
    return count;
}
