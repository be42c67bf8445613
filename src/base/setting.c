#include "base/setting.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* The length of "{name}" or "{%s}" at `at`; 0 if there is none. */
static size_t length_at(const char *at) {
    if (*at != '{') return 0;
    size_t name = strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789-");
    if (!name && !strncmp(at + 1, "%s", 2)) name = 2;
    return name && at[1 + name] == '}' ? name + 2 : 0;
}

/* "--name" is as long as "{name}". */
char *setting_spell(const char *fmt) {
    char *spelled = strdup(fmt);
    for (char *at = spelled; at && *at; at++) {
        size_t length = length_at(at);
        if (!length) continue;
        memmove(at + 2, at + 1, length - 2);
        at[0] = at[1] = '-';
    }
    return spelled;
}

int setting_print(char *text, size_t size, const char *fmt, ...) {
    char *spelled = setting_spell(fmt);
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(text, size, spelled ? spelled : fmt, args);
    va_end(args);
    free(spelled);
    return length;
}
