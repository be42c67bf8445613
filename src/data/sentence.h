/* Splits English text into sentences. Accepts any bytes; invalid UTF-8 is treated as letters. */
#ifndef WEFT_DATA_SENTENCE_H
#define WEFT_DATA_SENTENCE_H

#include <stdbool.h>
#include <stddef.h>

enum { SENTENCE_RULES = 1 /* version of the rules; increment when they split text differently */ };

/* End of the sentence that begins at `from`: the offset after its last character that is not white space,
 * including quotes and brackets after the stop. The white space that follows belongs to the next sentence.
 * Returns `size` if no other sentence follows. The decision at an offset depends only on about 100 bytes
 * around it. */
size_t sentence_end(const char *text, size_t size, size_t from);
/* The last sentence end near the end of a text that continues, possibly `size` itself; 0: there is none. */
size_t sentence_last_end(const char *text, size_t size);

#endif
