#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* The shell is in a session of its own, so that signals to the job do not end it. The writing end of the pipe
 * stays open until this process ends. */
void process_remove_at_end(const char *dir) {
    static char script[] = "trap '' HUP INT TERM; read end; rm -rf -- \"$0\"";
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, script, (char *)(uintptr_t)dir, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int ends[2];
    pid_t child;
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    bool fine = posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO) == 0 &&
                posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
                posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
                posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID) == 0 &&
                posix_spawn(&child, "/bin/sh", &actions, &attributes, argv, environ) == 0;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[0]);
    if (!fine) close(ends[1]);
}

/* The kernel appends a mark to the name of a file that has been removed or replaced. */
Status process_program(char ret_path[PROGRAM_SIZE]) {
    static const char mark[] = " (deleted)";
    const size_t marked = sizeof mark - 1;
    char path[PROGRAM_SIZE];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) return FAILED("/proc/self/exe: cannot read: %s", strerror(errno));
    path[length] = 0;
    if ((size_t)length > marked && !strcmp(path + length - marked, mark) && access(path, F_OK) != 0)
        path[(size_t)length - marked] = 0;
    strcpy(ret_path, path);
    return OK;
}
