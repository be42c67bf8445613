/* Builds each word character by character, using the table of bert_chars.h. Characters beyond the limit are
 * only counted, so a word of a gigabyte needs no extra memory.
 *
 * Remaining marks are sorted by insertion: a mark moves before directly preceding marks of a higher
 * combining class. Offsets stay in text order. (Hugging Face also counts removed marks when it assigns
 * offsets to sorted marks, so its offsets occasionally point to a neighbor; the ids are equal.) */
#include "tokenizer/bert_pretokenize.h"

#include "tokenizer/chars.h"

#include <string.h>

#include "base/memory.h"
#include "tokenizer/internal.h"

enum { REPLACEMENT = 0xFFFD, CHAR_BYTES = 4, CLASS_MASK = (1 << BERT_CLASS_BITS) - 1 };

Status bert_pretokenizer_init(BertPretokenizer *pre, const BertChars *chars, size_t limit, bool offsets) {
    BertPretokenizer made = {.chars = chars, .limit = limit};
    TRY(mem_new(limit, CHAR_BYTES, &made.buffer));
    Status status = offsets ? mem_new(limit, sizeof *made.offsets, &made.offsets) : OK;
    if (status) free(made.buffer);
    TRY(status);
    *pre = made;
    return OK;
}

void bert_pretokenizer_done(BertPretokenizer *pre) {
    free(pre->buffer);
    free(pre->offsets);
    *pre = (BertPretokenizer){0};
}

void bert_pretokenizer_start(BertPretokenizer *pre, const char *text, size_t size) {
    pre->text = text;
    pre->size = size;
    pre->at = 0;
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
    return c == UTF8_INVALID ? REPLACEMENT : c;
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

/* The word built so far. */
typedef struct Gather {
    size_t size, chars; /* bytes in the buffer; characters, including those beyond the limit */
    size_t barrier;     /* marks are not moved before this byte */
} Gather;

static void add_char(BertPretokenizer *pre, Gather *gather, uint32_t c, size_t start, size_t end) {
    if (gather->chars < pre->limit) {
        if (pre->offsets) pre->offsets[gather->chars] = (TokenOffset){start, end};
        gather->size += put_char(pre->buffer + gather->size, c);
    }
    gather->chars++;
}

/* Sorts the last mark, bytes from .. end - 1 of the buffer, into the marks before it. */
static void sort_mark(char *buffer, size_t end, size_t barrier, size_t from, uint8_t ccc) {
    size_t to = from;
    while (to > barrier) {
        uint32_t before;
        size_t bytes = utf8_previous(buffer, to, &before);
        if (char_kind(before).combining <= ccc) break;
        to -= bytes;
    }
    char mark[CHAR_BYTES];
    size_t size = end - from;
    memcpy(mark, buffer + from, size);
    memmove(buffer + to + size, buffer + to, from - to);
    memcpy(buffer + to, mark, size);
}

static void add_parts(BertPretokenizer *pre, Gather *gather, uint32_t c, size_t start, size_t end) {
    BertPart parts[BERT_PARTS];
    int count = bert_char_parts(pre->chars, c, parts);
    if (count == 0) gather->barrier = gather->size;
    for (int i = 0; i < count; i++) {
        size_t from = gather->size;
        add_char(pre, gather, parts[i].c, start, end);
        if (parts[i].ccc && gather->size > from)
            sort_mark(pre->buffer, gather->size, gather->barrier, from, parts[i].ccc);
    }
}

bool bert_pretokenizer_next(BertPretokenizer *pre, BertWord *ret_word) {
    Gather gather = {0};
    size_t at = pre->at, first = 0, last = 0;
    while (at < pre->size) {
        size_t bytes, chars = gather.chars;
        uint32_t c = next_char(pre->text + at, pre->size - at, &bytes);
        uint32_t entry = bert_char(pre->chars, c), class = entry & CLASS_MASK;
        if ((class == BERT_SPACE || class == BERT_ISOLATED) && chars) break;
        size_t start = at;
        at += bytes;
        if (class == BERT_LETTER || class == BERT_ISOLATED)
            add_char(pre, &gather, entry >> BERT_CLASS_BITS, start, at);
        else if (class == BERT_OTHER)
            add_parts(pre, &gather, c, start, at);
        if (gather.chars == chars) continue;
        if (!chars) first = start;
        last = at;
        if (class == BERT_ISOLATED) break;
    }
    pre->at = at;
    *ret_word = (BertWord){pre->buffer, gather.size, gather.chars, first, last};
    return gather.chars > 0;
}

/* The safe cut follows the last space or isolated character, or the start, and any dropped characters
 * after it. */
size_t bert_pretokenizer_cut(const BertChars *chars, const char *text, size_t size) {
    size_t end = size - utf8_unfinished(text, size), cut = end;
    while (end > 0) {
        uint32_t c;
        size_t bytes = utf8_previous(text, end, &c);
        uint32_t class = bert_char(chars, c == UTF8_INVALID ? REPLACEMENT : c) & CLASS_MASK;
        if (class == BERT_SPACE || class == BERT_ISOLATED) return cut;
        end -= bytes;
        if (class != BERT_DROPPED) cut = end;
    }
    return cut;
}

/* ---- normalized text ---- */

static Status put_normal(NormalText *normal, uint32_t c, TokenOffset offset) {
    char bytes[CHAR_BYTES];
    return normal_text_add(normal, bytes, put_char(bytes, c), offset);
}

static Status put_parts(const BertChars *chars, NormalText *normal, uint32_t c, TokenOffset offset,
                        size_t *barrier) {
    BertPart parts[BERT_PARTS];
    int count = bert_char_parts(chars, c, parts);
    if (count == 0) *barrier = normal->text.size;
    for (int i = 0; i < count; i++) {
        size_t from = normal->text.size;
        TRY(put_normal(normal, parts[i].c, offset));
        if (parts[i].ccc) sort_mark(normal->text.data, normal->text.size, *barrier, from, parts[i].ccc);
    }
    return OK;
}

Status bert_normalize(const BertChars *chars, const char *text, size_t size, NormalText *normal) {
    size_t barrier = normal->text.size, bytes;
    for (size_t at = 0; at < size; at += bytes) {
        uint32_t c = next_char(text + at, size - at, &bytes);
        uint32_t entry = bert_char(chars, c), class = entry & CLASS_MASK;
        TokenOffset offset = {at, at + bytes};
        bool spaced = class == BERT_ISOLATED && bert_char_is_spaced(chars, c);
        if (class == BERT_DROPPED) continue;
        if (class == BERT_OTHER) {
            TRY(put_parts(chars, normal, c, offset, &barrier));
            continue;
        }
        if (spaced) TRY(put_normal(normal, ' ', offset));
        TRY(put_normal(normal, entry >> BERT_CLASS_BITS, offset));
        if (spaced) TRY(put_normal(normal, ' ', offset));
    }
    return OK;
}
