/* A word is gathered character by character from the table of bert_chars.h. Beyond the limit characters are
 * only counted, so a word of a gigabyte takes no memory.
 *
 * Marks that survive are put in order as they come: one with a level goes before those of a higher level
 * that stand right before it. Places stay in the order of the text. (The original also counts the marks it
 * drops when it hands places to sorted ones, and so points at a neighbour now and then; ids are the same.) */
#include "tokenizer/bert_pretokenize.h"

#include <string.h>

#include "base/memory.h"
#include "tokenizer/internal.h"

enum { REPLACEMENT = 0xFFFD, CHAR_BYTES = 4, CLASS_MASK = (1 << BERT_CLASS_BITS) - 1 };

Status bert_pretokenizer_init(BertPretokenizer *words, const BertChars *chars, size_t limit, bool places) {
    BertPretokenizer made = {.chars = chars, .limit = limit};
    TRY(mem_new(limit, CHAR_BYTES, &made.buffer));
    Status status = places ? mem_new(limit, sizeof *made.places, &made.places) : OK;
    if (status) free(made.buffer);
    TRY(status);
    *words = made;
    return OK;
}

void bert_pretokenizer_done(BertPretokenizer *words) {
    free(words->buffer);
    free(words->places);
    *words = (BertPretokenizer){0};
}

void bert_pretokenizer_start(BertPretokenizer *words, const char *text, size_t size) {
    words->text = text;
    words->size = size;
    words->at = 0;
}

static inline uint32_t next_char(const char *text, size_t size, size_t *ret_bytes) {
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) {
        *ret_bytes = 1;
        return at[0];
    }
    if (size >= 2 && at[0] >= 0xC2 && at[0] < 0xE0 && (at[1] & 0xC0) == 0x80) {
        *ret_bytes = 2;
        return (at[0] & 0x1Fu) << 6 | (at[1] & 0x3Fu);
    }
    uint32_t c;
    *ret_bytes = utf8_next(text, size, &c);
    return c == UTF8_BROKEN ? REPLACEMENT : c;
}

static inline size_t put_char(char *to, uint32_t c) {
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xC0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    size_t size = c < 0x10000 ? 3 : 4;
    to[0] = (char)((size == 3 ? 0xE0 : 0xF0) | c >> (6 * (size - 1)));
    for (size_t i = 1; i < size; i++) to[i] = (char)(0x80 | (c >> (6 * (size - 1 - i)) & 0x3F));
    return size;
}

/* What is gathered of a word. */
typedef struct Gather {
    size_t size, chars;
    size_t barrier; /* marks are not moved before this byte */
} Gather;

static void add_char(BertPretokenizer *words, Gather *gather, uint32_t c, size_t start, size_t end) {
    if (gather->chars < words->limit) {
        if (words->places) words->places[gather->chars] = (TokenPlace){start, end};
        gather->size += put_char(words->buffer + gather->size, c);
    }
    gather->chars++;
}

/* Moves the mark at the end of a buffer, which starts at `from`, to its place. */
static void sort_mark(char *buffer, size_t end, size_t barrier, size_t from, uint8_t level) {
    size_t to = from;
    while (to > barrier) {
        uint32_t before;
        size_t bytes = utf8_previous(buffer, to, &before);
        if (bert_char_level(before) <= level) break;
        to -= bytes;
    }
    char mark[CHAR_BYTES];
    size_t size = end - from;
    memcpy(mark, buffer + from, size);
    memmove(buffer + to + size, buffer + to, from - to);
    memcpy(buffer + to, mark, size);
}

static void add_parts(BertPretokenizer *words, Gather *gather, uint32_t c, size_t start, size_t end) {
    BertPart parts[BERT_PARTS];
    int count = bert_char_parts(words->chars, c, parts);
    if (count == 0) gather->barrier = gather->size;
    for (int i = 0; i < count; i++) {
        size_t from = gather->size;
        add_char(words, gather, parts[i].c, start, end);
        if (parts[i].level && gather->size > from)
            sort_mark(words->buffer, gather->size, gather->barrier, from, parts[i].level);
    }
}

bool bert_pretokenizer_next(BertPretokenizer *words, BertWord *ret_word) {
    Gather gather = {0};
    size_t at = words->at, first = 0, last = 0;
    while (at < words->size) {
        size_t bytes, chars = gather.chars;
        uint32_t c = next_char(words->text + at, words->size - at, &bytes);
        uint32_t entry = bert_char(words->chars, c), class = entry & CLASS_MASK;
        if ((class == BERT_SPACE || class == BERT_ALONE) && chars) break;
        size_t start = at;
        at += bytes;
        if (class == BERT_LETTER || class == BERT_ALONE)
            add_char(words, &gather, entry >> BERT_CLASS_BITS, start, at);
        else if (class == BERT_OTHER)
            add_parts(words, &gather, c, start, at);
        if (gather.chars == chars) continue;
        if (!chars) first = start;
        last = at;
        if (class == BERT_ALONE) break;
    }
    words->at = at;
    *ret_word = (BertWord){words->buffer, gather.size, gather.chars, first, last};
    return gather.chars > 0;
}

/* A cut is right after a space, a word of one character or the start, and what is gone may lie between. */
size_t bert_pretokenizer_cut(const BertChars *chars, const char *text, size_t size) {
    size_t end = size - utf8_unfinished(text, size), cut = end;
    while (end > 0) {
        uint32_t c;
        size_t bytes = utf8_previous(text, end, &c);
        uint32_t class = bert_char(chars, c == UTF8_BROKEN ? REPLACEMENT : c) & CLASS_MASK;
        if (class == BERT_SPACE || class == BERT_ALONE) return cut;
        end -= bytes;
        if (class != BERT_GONE) cut = end;
    }
    return cut;
}

/* ---- the text as a whole ---- */

static Status put_normal(NormalText *normal, uint32_t c, TokenPlace place) {
    char bytes[CHAR_BYTES];
    return normal_text_add(normal, bytes, put_char(bytes, c), place);
}

static Status put_parts(const BertChars *chars, NormalText *normal, uint32_t c, TokenPlace place,
                        size_t *barrier) {
    BertPart parts[BERT_PARTS];
    int count = bert_char_parts(chars, c, parts);
    if (count == 0) *barrier = normal->text.size;
    for (int i = 0; i < count; i++) {
        size_t from = normal->text.size;
        TRY(put_normal(normal, parts[i].c, place));
        if (parts[i].level) sort_mark(normal->text.data, normal->text.size, *barrier, from, parts[i].level);
    }
    return OK;
}

Status bert_normalise(const BertChars *chars, const char *text, size_t size, NormalText *normal) {
    size_t barrier = normal->text.size, bytes;
    for (size_t at = 0; at < size; at += bytes) {
        uint32_t c = next_char(text + at, size - at, &bytes);
        uint32_t entry = bert_char(chars, c), class = entry & CLASS_MASK;
        TokenPlace place = {at, at + bytes};
        bool spaced = class == BERT_ALONE && bert_char_is_spaced(chars, c);
        if (class == BERT_GONE) continue;
        if (class == BERT_OTHER) {
            TRY(put_parts(chars, normal, c, place, &barrier));
            continue;
        }
        if (spaced) TRY(put_normal(normal, ' ', place));
        TRY(put_normal(normal, entry >> BERT_CLASS_BITS, place));
        if (spaced) TRY(put_normal(normal, ' ', place));
    }
    return OK;
}
