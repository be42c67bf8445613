#include "cli/processes.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"

/* The program that a process runs; empty if unknown. */
static void program_of(const char *process, char program[PATH_MAX]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/exe", process);
    ssize_t length = readlink(path, program, PATH_MAX - 1);
    program[length > 0 ? length : 0] = 0;
}

/* Launchers start ranks through processes of their own, which a signal may kill. */
static bool is_own(const char *process) {
    char program[PATH_MAX], own[PATH_MAX];
    program_of(process, program);
    program_of("self", own);
    return *own && strcmp(program, own) == 0;
}

int processes_signal(pid_t parent, int number, bool own) {
    int count = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        pid_t process = (pid_t)strtol(entry->d_name, NULL, 10), above = 0;
        char state = process > 1 ? process_state(process, &above) : 0;
        if (!state || state == 'Z' || above != parent) continue;
        if (number == SIGKILL) kill(process, SIGSTOP); /* it starts no others meanwhile */
        count += processes_signal(process, number, own);
        if (own && !is_own(entry->d_name)) continue;
        kill(process, number);
        count++;
    }
    if (dir) closedir(dir);
    return count;
}

pid_t processes_in_state(pid_t parent, const char *states) {
    pid_t found = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        pid_t process = (pid_t)strtol(entry->d_name, NULL, 10), above = 0;
        char state = process > 1 ? process_state(process, &above) : 0;
        if (state && above == parent && strchr(states, state)) found = process;
    }
    if (dir) closedir(dir);
    return found;
}
