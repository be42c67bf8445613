/* Character properties for BERT, from tables that bert_tables.py generates with Hugging Face's tokenizers.
 *
 * The steps for one character are those of BertNormalizer and BertPreTokenizer, in their order: clean-up
 * (drop the character or replace it with a space), isolate ideographs, decompose (NFD) and strip accents,
 * lowercase, then split at whitespace and punctuation. All but one depend on the character alone, so their
 * result is a table entry. The exception: NFD also sorts runs of combining marks by canonical combining
 * class. Most marks are dropped afterwards, but not all. Those that remain are BERT_OTHER and carry their
 * class; a dropped mark of class 0 is BERT_OTHER too, because marks are not sorted across it.
 */
#include "tokenizer/bert_chars.h"

#include "base/memory.h"

typedef struct Kind {
    uint8_t flags;
    uint8_t ccc; /* canonical combining class, renumbered from 1; 0: not a mark that is sorted */
} Kind;

typedef struct Lower {
    uint32_t first, last;
    int32_t step, delta;
} Lower;

/* Bits of Kind.flags; bert_tables.py defines the same values. */
enum {
    DROP = 1,    /* clean-up removes it */
    BLANK = 2,   /* clean-up replaces it with a space */
    WHITE = 4,   /* separates words */
    PUNCT = 8,   /* separates words and is a word itself */
    CJK = 16,    /* ideograph */
    MARK = 32,   /* accent, removed by strip_accents */
    SPLITS = 64, /* its decomposition without accents differs from it */
    LOWERS = 128 /* has a lowercase form */
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
    CAPITAL_I_DOT = 0x130, /* the only character whose lowercase form is two characters */
    DOT_ABOVE = 0x307,
    ARMENIAN = 0x530 /* first block after Latin, Greek and Cyrillic */
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

uint8_t bert_char_combining_class(uint32_t c) {
    return kind_of(c).ccc;
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

bool bert_char_is_punctuation(uint32_t c) {
    return kind_of(c).flags & PUNCT;
}

bool bert_char_is_upper(uint32_t c) {
    return c < ARMENIAN && bert_char_lower(c) != c;
}

/* All steps except the pre-tokenizer's; returns the number of characters in `to`, possibly 0. */
static int normalize(const BertSettings *settings, uint32_t c, uint32_t to[BERT_PARTS]) {
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
    int count = normalize(&chars->settings, c, to);
    for (int i = 0; i < count; i++)
        ret_parts[i] = (BertPart){to[i], chars->settings.strip_accents ? kind_of(to[i]).ccc : 0};
    return count;
}

uint32_t bert_char_entry(const BertChars *chars, uint32_t c) {
    const BertSettings *settings = &chars->settings;
    const Kind kind = kind_of(c);
    if (!kind.flags && !kind.ccc) return c << BERT_CLASS_BITS | BERT_LETTER; /* the common case */
    uint32_t to[BERT_PARTS];
    int count = normalize(settings, c, to);
    if (count == 0)
        return kind.ccc || (settings->clean_text && kind.flags & DROP) ? BERT_DROPPED : BERT_OTHER;
    const Kind made = kind_of(to[0]);
    if (count > 1 || (settings->strip_accents && made.ccc)) return BERT_OTHER;
    BertClass class = made.flags & WHITE ? BERT_SPACE : made.flags & PUNCT ? BERT_ISOLATED : BERT_LETTER;
    if (settings->handle_chinese_chars && kind.flags & CJK) class = BERT_ISOLATED;
    return to[0] << BERT_CLASS_BITS | class;
}

Status bert_settings_read(const json_t *json, const char *from, BertSettings *settings) {
    TRY(json_get_bool(json, from, "clean_text", &settings->clean_text));
    TRY(json_get_bool(json, from, "handle_chinese_chars", &settings->handle_chinese_chars));
    TRY(json_get_bool(json, from, "lowercase", &settings->lowercase));
    settings->strip_accents = settings->lowercase;
    return json_get_bool(json, from, "strip_accents", &settings->strip_accents);
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
