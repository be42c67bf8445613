#include "base/process.h"

#include <stdio.h>
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
