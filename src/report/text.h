/* Text that is written to memory, and what texts from users need in a format. */
#ifndef WEFT_REPORT_TEXT_H
#define WEFT_REPORT_TEXT_H

#include <stdarg.h>

#include "base/status.h"

/* A stream into memory: CLEANUP(text_done) Text text = {0}; TRY(text_open(&text)); write to text.out. */
typedef struct Text {
    FILE *out;
    char *data;
    size_t size;
} Text;

MUST_USE Status text_open(Text *text);
/* Ends the text, without spaces at its end. The caller frees *ret_text. */
MUST_USE Status text_take(Text *text, char **ret_text, size_t *ret_size);
void text_done(Text *text);

/* Strings that live as long as the list. */
typedef struct TextList {
    char **texts;
    size_t count, capacity;
} TextList;

/* Replaces *text, unless it is NULL, by a copy in the list. */
MUST_USE Status texts_keep(TextList *list, const char **text);
void texts_done(TextList *list);

/* The characters of UTF-8 text. */
size_t text_length(const char *text);
/* Copies a text, shortened to `most` characters if it is longer, by an ellipsis in the middle: names that are
 * listed together often differ only at the end. */
MUST_USE Status text_shorten(const char *text, size_t most, char **ret_text);

/* The last component of a path, as the name to show. The caller frees it. */
MUST_USE Status text_of_path(const char *path, char **ret_name);

/* Appends to the text in a buffer, as far as there is room. */
void text_append(char *buffer, size_t size, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Writes text with HTML special characters escaped and control characters replaced by '?'. */
void put_html(FILE *out, const char *text);
/* As fprintf, for HTML: the format is HTML, and texts (%s) are escaped. It knows %s, %d, %zu, %lld and
 * doubles, with the precision in the format. */
void put_markup(FILE *out, const char *fmt, ...) PRINTF_LIKE(2, 3);
void put_markup_list(FILE *out, const char *fmt, va_list *args);
/* A quoted field of a CSV file. */
void put_csv(FILE *out, const char *text);

#endif
