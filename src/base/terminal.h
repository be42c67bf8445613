/* What is known of the terminal behind a stream. */
#ifndef WEFT_BASE_TERMINAL_H
#define WEFT_BASE_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* A terminal that can move its cursor: not a file or a pipe, and TERM neither unset nor "dumb". */
bool terminal_live(FILE *out);
/* Columns, from the terminal itself, else from COLUMNS, else 80. */
int terminal_width(FILE *out);
bool terminal_color(FILE *out); /* live, and NO_COLOR is not set */
bool terminal_utf8(void);       /* the locale's character set is UTF-8 */

#endif
