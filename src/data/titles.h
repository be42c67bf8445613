/* WikiText's articles: each begins with its title, a line " = Title = " between two blank ones. Lines of
 * sections, " = = Section = = ", and of tables that look alike begin none. */
#ifndef WEFT_DATA_TITLES_H
#define WEFT_DATA_TITLES_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the line that begins at `at` > 0 is a title. The text's first line is a whole one where `starts`.
 * A title is known as such once the line after it is there, too. */
bool title_at(const char *text, size_t size, size_t at, bool starts);
/* Whether there is nothing but space. */
bool text_is_blank(const char *text, size_t size);

#endif
