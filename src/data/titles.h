/* Finds WikiText articles: each begins with its title, a line " = Title = " between two blank lines. Section
 * headings, " = = Section = = ", and similar lines in tables are not titles. */
#ifndef WEFT_DATA_TITLES_H
#define WEFT_DATA_TITLES_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the line that begins at `at` > 0 is a title. The first line of the text is complete only if
 * `starts`. A title is recognized only once the line after it is available. */
bool title_at(const char *text, size_t size, size_t at, bool starts);
/* Whether the text is empty or all white space. */
bool text_is_blank(const char *text, size_t size);

#endif
