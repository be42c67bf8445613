/* Character properties for BERT, from tables that bert_tables.py took from the Hugging Face library.
 *
 * The steps for one character are BertNormalizer's and BertPreTokenizer's in their order: clean-up (drop it,
 * or make it a space), ideographs stand alone, decomposition without accents, lower case, and then white
 * space and punctuation part words. All but one depend on the character alone, so their result is a table
 * entry. The exception: decomposition also sorts runs of marks by their level. Most marks are dropped after
 * it, but not all; those that stay are BERT_OTHER and carry their level, as is a dropped mark without a
 * level, across which nothing is sorted.
 */
#include "tokenizer/bert_chars.h"

#include "base/memory.h"

typedef struct Kind {
    uint8_t flags;
    uint8_t level;
} Kind;

typedef struct Lower {
    uint32_t first, last;
    int32_t step, delta;
} Lower;

/* Bits of Kind.flags, as in bert_tables.py. */
enum {
    DROP = 1,    /* clean-up drops it */
    BLANK = 2,   /* clean-up makes it a space */
    WHITE = 4,   /* parts words */
    PUNCT = 8,   /* parts words, and is one */
    CJK = 16,    /* an ideograph */
    MARK = 32,   /* an accent */
    SPLITS = 64, /* has a decomposition other than itself, accents taken away */
    LOWERS = 128
};

#include "tokenizer/bert_tables.inc"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum {
    HANGUL = 0xAC00,
    HANGUL_END = 0xD7A4,
    HANGUL_VOWELS = 21,
    HANGUL_TAILS = 28,
    LEAD = 0x1100,
    VOWEL = 0x1161,
    TAIL = 0x11A7,
    CAPITAL_I_DOT = 0x130, /* the one whose lower case is two characters */
    DOT_ABOVE = 0x307,
    ARMENIAN = 0x530 /* the first block after Latin, Greek and Cyrillic */
};

static Kind kind_of(uint32_t c) {
    size_t low = 0, high = COUNT(runs);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (runs[middle] >> 8 <= c)
            low = middle;
        else
            high = middle;
    }
    return kinds[runs[low] & 255];
}

uint8_t bert_char_level(uint32_t c) {
    return kind_of(c).level;
}

static int decompose(uint32_t c, uint32_t to[BERT_PARTS]) {
    if (c >= HANGUL && c < HANGUL_END) {
        uint32_t i = c - HANGUL, tail = i % HANGUL_TAILS;
        to[0] = LEAD + i / (HANGUL_VOWELS * HANGUL_TAILS);
        to[1] = VOWEL + i / HANGUL_TAILS % HANGUL_VOWELS;
        to[2] = TAIL + tail;
        return tail ? 3 : 2;
    }
    size_t low = 0, high = COUNT(strip_from);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (strip_from[middle] >> 2 <= c)
            low = middle;
        else
            high = middle;
    }
    int count = (int)(strip_from[low] & 3);
    for (int i = 0; i < count; i++) to[i] = strip_to[strip_at[low] + i];
    return count;
}

uint32_t bert_char_lower(uint32_t c) {
    for (size_t low = 0, high = COUNT(lowers); low < high;) {
        size_t middle = (low + high) / 2;
        const Lower *run = &lowers[middle];
        if (c > run->last)
            low = middle + 1;
        else if (c < run->first)
            high = middle;
        else
            return (c - run->first) % (uint32_t)run->step ? c : (uint32_t)((int32_t)c + run->delta);
    }
    return c;
}

bool bert_char_is_spaced(const BertChars *chars, uint32_t c) {
    return chars->settings.handle_chinese_chars && kind_of(c).flags & CJK;
}

bool bert_char_is_upper(uint32_t c) {
    return c < ARMENIAN && bert_char_lower(c) != c;
}

/* All steps but the last, which is the class. */
static int normalise(const BertSettings *settings, uint32_t c, uint32_t to[BERT_PARTS]) {
    uint8_t flags = kind_of(c).flags;
    if (settings->clean_text && flags & DROP) return 0;
    if (settings->clean_text && flags & BLANK) {
        to[0] = ' ';
        return 1;
    }
    if (settings->strip_accents && flags & MARK) return 0;
    to[0] = c;
    int count = settings->strip_accents && flags & SPLITS ? decompose(c, to) : 1;
    if (!settings->lowercase) return count;
    if (to[0] == CAPITAL_I_DOT) {
        to[0] = 'i', to[1] = DOT_ABOVE;
        return 2;
    }
    for (int i = 0; i < count; i++) to[i] = bert_char_lower(to[i]);
    return count;
}

int bert_char_parts(const BertChars *chars, uint32_t c, BertPart ret_parts[BERT_PARTS]) {
    uint32_t to[BERT_PARTS];
    int count = normalise(&chars->settings, c, to);
    for (int i = 0; i < count; i++)
        ret_parts[i] = (BertPart){to[i], chars->settings.strip_accents ? kind_of(to[i]).level : 0};
    return count;
}

uint32_t bert_char_entry(const BertChars *chars, uint32_t c) {
    const BertSettings *settings = &chars->settings;
    const Kind kind = kind_of(c);
    if (!kind.flags && !kind.level) return c << BERT_CLASS_BITS | BERT_LETTER; /* as most are */
    uint32_t to[BERT_PARTS];
    int count = normalise(settings, c, to);
    if (count == 0) return kind.level || (settings->clean_text && kind.flags & DROP) ? BERT_GONE : BERT_OTHER;
    const Kind made = kind_of(to[0]);
    if (count > 1 || (settings->strip_accents && made.level)) return BERT_OTHER;
    BertClass class = made.flags & WHITE ? BERT_SPACE : made.flags & PUNCT ? BERT_ALONE : BERT_LETTER;
    if (settings->handle_chinese_chars && kind.flags & CJK) class = BERT_ALONE;
    return to[0] << BERT_CLASS_BITS | class;
}

Status bert_chars_new(BertChars **ret_chars, const BertSettings *settings) {
    BertChars *chars;
    TRY(mem_new(1, sizeof *chars, &chars));
    chars->settings = *settings;
    for (uint32_t c = 0; c < BERT_TABLE; c++) chars->table[c] = bert_char_entry(chars, c);
    for (uint32_t c = 0; c < 128; c++) chars->ascii[c] = chars->table[c] & ((1 << BERT_CLASS_BITS) - 1);
    *ret_chars = chars;
    return OK;
}

void bert_chars_free(BertChars *chars) {
    free(chars);
}
