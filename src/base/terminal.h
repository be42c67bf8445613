/* Properties of the terminal behind a stream. */
#ifndef WEFT_BASE_TERMINAL_H
#define WEFT_BASE_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Environment variable with the width of the terminal to which a parent process relays standard error; "0":
 * it relays to none. */
#define TERMINAL_VARIABLE "WEFT_TERMINAL"

/* Whether `out` is a terminal with cursor control, directly or relayed: TERM is set and not "dumb". */
bool terminal_live(FILE *out);
/* Whether a parent process relays `out` to a terminal. It expects a carriage return after each line that is
 * to be redrawn. */
bool terminal_relayed(FILE *out);
/* Columns as the terminal reports them, else COLUMNS, else 80. */
int terminal_width(FILE *out);
bool terminal_color(FILE *out); /* live, and NO_COLOR is not set */
bool terminal_utf8(void);       /* the locale's character set is UTF-8 */

/* The length in bytes of the control character that `text` begins with; 0 if it begins with another
 * character. Control characters are C0 (including tab and newline), DEL, and C1 (U+0080 to U+009F) encoded as
 * UTF-8. */
int terminal_control(const char *text);
/* Replaces every control character in `text` with '?', in place. Text read from files must pass through this
 * or terminal_put before it is printed, because escape sequences in it would otherwise control the terminal.
 */
void terminal_clean(char *text);
/* Prints the first `size` bytes of `text`, with every control character replaced by '?'. */
void terminal_put(FILE *out, const char *text, size_t size);

#endif
