/* Where sentences of English text end. Any bytes are text; what is not UTF-8 counts as letters. */
#ifndef WEFT_DATA_SENTENCE_H
#define WEFT_DATA_SENTENCE_H

#include <stdbool.h>
#include <stddef.h>

enum { SENTENCE_RULES = 1 /* changes when texts are split in another way */ };

/* The end of the sentence that begins at `from`: just behind its last character that is no space, quotes and
 * brackets after the stop included. The spaces that follow belong to the next sentence. `size` where no
 * other sentence follows. Whether a place is an end depends on some 100 bytes around it alone. */
size_t sentence_end(const char *text, size_t size, size_t from);
/* The largest such end in the last bytes of a text that goes on, `size` included where it may be one; 0
 * where there is none. */
size_t sentence_last_end(const char *text, size_t size);

#endif
