#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int relayed_width(FILE *out) {
    const char *columns = getenv(TERMINAL_VARIABLE);
    bool relayed = columns && fileno(out) == STDERR_FILENO && !isatty(STDERR_FILENO);
    long width = relayed ? strtol(columns, NULL, 10) : 0;
    return width > 0 && width < 10000 ? (int)width : 0;
}

bool terminal_relayed(FILE *out) {
    return relayed_width(out) > 0;
}

bool terminal_live(FILE *out) {
    const char *term = getenv("TERM");
    return (isatty(fileno(out)) || terminal_relayed(out)) && term && *term && strcmp(term, "dumb") != 0;
}

int terminal_width(FILE *out) {
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    int relayed = relayed_width(out);
    if (relayed) return relayed;
    const char *columns = getenv("COLUMNS");
    long width = columns ? strtol(columns, NULL, 10) : 0;
    return width > 0 && width < 10000 ? (int)width : 80;
}

bool terminal_color(FILE *out) {
    const char *no_color = getenv("NO_COLOR");
    return terminal_live(out) && !(no_color && *no_color);
}

bool terminal_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "UTF-8") || strcasestr(value, "UTF8");
    }
    return false;
}

int terminal_control(const char *text) {
    const unsigned char *byte = (const unsigned char *)text;
    if ((*byte && *byte < ' ') || *byte == 0x7F) return 1;
    return byte[0] == 0xC2 && byte[1] >= 0x80 && byte[1] < 0xA0 ? 2 : 0;
}

void terminal_clean(char *text) {
    char *to = text;
    for (const char *from = text; *from;) {
        int control = terminal_control(from);
        *to++ = control ? '?' : *from;
        from += control ? control : 1;
    }
    *to = 0;
}

void terminal_put(FILE *out, const char *text, size_t size) {
    for (size_t i = 0; i < size && text[i];) {
        int control = terminal_control(text + i);
        fputc(control ? '?' : text[i], out);
        i += control ? (size_t)control : 1;
    }
}
