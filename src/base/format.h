/* Human-readable numbers: short, with a unit. Each function writes into the caller's buffer of FORMAT_SIZE
 * bytes and returns it. Also names that are safe to print. */
#ifndef WEFT_BASE_FORMAT_H
#define WEFT_BASE_FORMAT_H

#include <stdint.h>

enum { FORMAT_SIZE = 32 };

/* "%d rank%s", n, PLURAL(n) */
#define PLURAL(count) ((count) == 1 ? "" : "s")

const char *format_count(char *buffer, double count);      /* 950, 12.3 k, 124 M, 8.31 B */
const char *format_si(char *buffer, double value);         /* "1.23 T", to be followed by a unit: FLOP/s */
const char *format_bytes(char *buffer, double bytes);      /* 512 B, 1.25 GB (powers of 1000) */
const char *format_rate(char *buffer, double bytes_per_s); /* 24.1 MB/s, 8610 MB/s: always in MB/s */
const char *format_duration(char *buffer, double seconds); /* 0:07, 3:25, 1:02:03, 4d 1:02:03 */
const char *format_seconds(char *buffer, double seconds);  /* 0.0012 s, 2.5 s, 75 s */

/* The divisors of a number up to `max`, as "1, 2, 4"; returns `text`. */
enum { DIVISORS_TEXT = 160 };
const char *format_divisors(char text[DIVISORS_TEXT], int64_t number, int64_t max);

/* A name from a file, made safe to print: control characters replaced, long names truncated; returns
 * `text`. */
enum { NAME_TEXT = 160 };
const char *name_text(char text[NAME_TEXT], const char *name);

#endif
