#include "cli/processes.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The parent of a process, or -1, and its state. The second field of stat, the name, may contain anything. */
static pid_t parent_of(pid_t process, char *ret_state) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    int parent = -1;
    const char *end = strrchr(text, ')');
    if (!end || sscanf(end + 1, " %c %d", ret_state, &parent) != 2) return -1;
    return parent;
}

int processes_signal(pid_t parent, int number, bool whole_tree) {
    int count = 0;
    DIR *dir = opendir("/proc");
    if (whole_tree) kill(parent, SIGSTOP); /* it starts no others meanwhile */
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        pid_t process = (pid_t)strtol(entry->d_name, NULL, 10);
        char state;
        if (process <= 1 || parent_of(process, &state) != parent) continue;
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

pid_t processes_in_state(pid_t parent, const char *states) {
    pid_t found = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        pid_t process = (pid_t)strtol(entry->d_name, NULL, 10);
        char state = 0;
        if (process > 1 && parent_of(process, &state) == parent && state && strchr(states, state))
            found = process;
    }
    if (dir) closedir(dir);
    return found;
}
