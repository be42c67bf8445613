#include "base/format.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Three significant digits, with the unit that keeps the number below 1000. */
static const char *scaled(char *buffer, double value, const char *const *units, size_t count) {
    size_t unit = 0;
    while (fabs(value) >= 999.5 && unit + 1 < count) {
        value /= 1000;
        unit++;
    }
    int digits = unit == 0 || fabs(value) >= 99.95 ? 0 : fabs(value) >= 9.995 ? 1 : 2;
    snprintf(buffer, FORMAT_SIZE, "%.*f%s", digits, value, units[unit]);
    return buffer;
}

const char *format_count(char *buffer, double count) {
    static const char *const units[] = {"", " k", " M", " B", " T"};
    return scaled(buffer, count, units, 5);
}

const char *format_si(char *buffer, double value) {
    static const char *const units[] = {" ", " k", " M", " G", " T", " P", " E"};
    return scaled(buffer, value, units, 7);
}

const char *format_bytes(char *buffer, double bytes) {
    static const char *const units[] = {" B", " kB", " MB", " GB", " TB", " PB"};
    return scaled(buffer, bytes, units, 6);
}

const char *format_rate(char *buffer, double bytes_per_s) {
    double rate = 1e-6 * bytes_per_s;
    snprintf(buffer, FORMAT_SIZE, "%.*f MB/s", rate < 9.995 ? 2 : rate < 99.95 ? 1 : 0, rate);
    return buffer;
}

const char *format_duration(char *buffer, double seconds) {
    if (!(seconds >= 0 && seconds < 1e10)) {
        snprintf(buffer, FORMAT_SIZE, "?");
        return buffer;
    }
    long long whole = llround(seconds), days = whole / 86400, hours = whole / 3600 % 24;
    int minutes = (int)(whole / 60 % 60), rest = (int)(whole % 60);
    if (days)
        snprintf(buffer, FORMAT_SIZE, "%lldd %lld:%02d:%02d", days, hours, minutes, rest);
    else if (hours)
        snprintf(buffer, FORMAT_SIZE, "%lld:%02d:%02d", hours, minutes, rest);
    else
        snprintf(buffer, FORMAT_SIZE, "%d:%02d", minutes, rest);
    return buffer;
}

const char *format_seconds(char *buffer, double seconds) {
    snprintf(buffer, FORMAT_SIZE, seconds < 9.95 ? "%.2g s" : "%.0f s", seconds);
    return buffer;
}

const char *name_text(char text[NAME_TEXT], const char *name) {
    size_t at = 0;
    for (; name[at] && at < NAME_TEXT - 4; at++) {
        unsigned char c = (unsigned char)name[at];
        text[at] = c < 0x20 || c == 0x7f ? '?' : name[at];
    }
    /* Do not truncate inside a UTF-8 character: bytes 10xxxxxx continue one. */
    while (name[at] && at > 0 && ((unsigned char)name[at] & 0xc0) == 0x80) at--;
    strcpy(text + at, name[at] ? "..." : "");
    return text;
}

const char *format_divisors(char text[DIVISORS_TEXT], int64_t number, int64_t max) {
    size_t used = 0;
    text[0] = 0;
    for (int64_t d = 1; d <= max && used + 24 < DIVISORS_TEXT; d++)
        if (number % d == 0)
            used +=
                (size_t)snprintf(text + used, DIVISORS_TEXT - used, used ? ", %lld" : "%lld", (long long)d);
    return text;
}
