/* Numbers for people: short, with a unit. Each writes into the buffer it is given and returns it. */
#ifndef WEFT_BASE_FORMAT_H
#define WEFT_BASE_FORMAT_H

enum { FORMAT_SIZE = 32 };

const char *format_count(char *buffer, double count);      /* 950, 12.3k, 124M */
const char *format_bytes(char *buffer, double bytes);      /* 512 B, 1.25 GB (powers of 1000) */
const char *format_duration(char *buffer, double seconds); /* 0:07, 3:25, 1:02:03, 4d 1:02:03 */

#endif
