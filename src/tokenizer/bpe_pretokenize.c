/* The ASCII class table of the GPT-2 pre-tokenizer, and safe cuts of a text. */
#include "tokenizer/bpe_pretokenize.h"

#define L   CHAR_LETTER
#define N   CHAR_NUMBER
#define S   CHAR_SPACE
#define H   WORD_HIGH
#define H16 H, H, H, H, H, H, H, H, H, H, H, H, H, H, H, H
const unsigned char word_class[256] = {0,   0,   0,   0,   0,   0,   0,   0,  0, S, S, S, S, S, 0, 0,
                                       0,   0,   0,   0,   0,   0,   0,   0,  0, 0, 0, 0, 0, 0, 0, 0, /* 00 */
                                       S,   0,   0,   0,   0,   0,   0,   0,  0, 0, 0, 0, 0, 0, 0, 0,
                                       N,   N,   N,   N,   N,   N,   N,   N,  N, N, 0, 0, 0, 0, 0, 0, /* 20 */
                                       0,   L,   L,   L,   L,   L,   L,   L,  L, L, L, L, L, L, L, L,
                                       L,   L,   L,   L,   L,   L,   L,   L,  L, L, L, 0, 0, 0, 0, 0, /* 40 */
                                       0,   L,   L,   L,   L,   L,   L,   L,  L, L, L, L, L, L, L, L,
                                       L,   L,   L,   L,   L,   L,   L,   L,  L, L, L, 0, 0, 0, 0, 0, /* 60 */
                                       H16, H16, H16, H16, H16, H16, H16, H16};

size_t bpe_word(const char *text, size_t size) {
    return word_size((const unsigned char *)text, size);
}

/* The last offset where whitespace follows a non-whitespace character; 0 if there is none. */
static size_t last_gap(const char *text, size_t size) {
    bool space_after = false;
    for (size_t at = size; at > 0;) {
        uint32_t c;
        size_t bytes = utf8_previous(text, at, &c);
        bool space = char_is_space(c);
        if (space_after && !space) return at;
        space_after = space;
        at -= bytes;
    }
    return 0;
}

/* No word crosses the last gap. If only whitespace follows the gap, the cut is there. Otherwise the cut is
 * the last word boundary that more text cannot move, with one exception: not after a run of two or more
 * whitespace characters, which would become a single word at the end of the text. */
size_t bpe_cut(const char *text, size_t size) {
    const unsigned char *bytes = (const unsigned char *)text;
    size -= utf8_unfinished(text, size);
    size_t gap = last_gap(text, size), at = gap, good = gap;
    size_t spaces = at < size ? word_run(bytes, size, at, CHAR_SPACE) : at;
    while (at < size) {
        size_t word = word_size(bytes + at, size - at);
        bool contraction = bytes[at] == '\'' && word == word_contraction(bytes + at, size - at);
        bool may_grow = bytes[at] == '\'' && size - at == 2 && memchr("rvl", bytes[at + 1], 3);
        if ((at + word == size && !contraction) || may_grow) break;
        at += word;
        uint32_t c;
        if (at != spaces || utf8_previous(text, at, &c) == at - gap) good = at;
    }
    return good;
}
