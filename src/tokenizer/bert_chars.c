/* Character properties for BERT, from the tables of unicode.c.
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

#include "tokenizer/unicode.h"

enum {
    CAPITAL_I_DOT = 0x130, /* the only character whose lowercase form is two characters */
    DOT_ABOVE = 0x307,
    ARMENIAN = 0x530 /* first block after Latin, Greek and Cyrillic */
};

/* NFD without accents. */
static int decompose(uint32_t c, uint32_t to[BERT_PARTS]) {
    NormalChar parts[DECOMPOSED_LIMIT];
    int length = unicode_decompose(c, FORM_NFD, parts), count = 0;
    for (int i = 0; i < length; i++)
        if (!(char_kind(parts[i].c).bert & BERT_MARK)) to[count++] = parts[i].c;
    return count;
}

bool bert_char_is_spaced(const BertChars *chars, uint32_t c) {
    return chars->settings.handle_chinese_chars && char_kind(c).bert & BERT_CJK;
}

bool bert_char_is_punctuation(uint32_t c) {
    return char_kind(c).bert & BERT_PUNCT;
}

bool bert_char_is_upper(uint32_t c) {
    return c < ARMENIAN && char_lower(c) != c;
}

/* All steps except the pre-tokenizer's; returns the number of characters in `to`, possibly 0. */
static int normalize(const BertSettings *settings, uint32_t c, uint32_t to[BERT_PARTS]) {
    uint8_t flags = char_kind(c).bert;
    if (settings->clean_text && flags & BERT_DROP) return 0;
    if (settings->clean_text && flags & BERT_BLANK) {
        to[0] = ' ';
        return 1;
    }
    if (settings->strip_accents && flags & BERT_MARK) return 0;
    to[0] = c;
    int count = settings->strip_accents && flags & BERT_SPLITS ? decompose(c, to) : 1;
    if (!settings->lowercase) return count;
    if (to[0] == CAPITAL_I_DOT) {
        to[0] = 'i', to[1] = DOT_ABOVE;
        return 2;
    }
    for (int i = 0; i < count; i++) to[i] = char_lower(to[i]);
    return count;
}

int bert_char_parts(const BertChars *chars, uint32_t c, BertPart ret_parts[BERT_PARTS]) {
    uint32_t to[BERT_PARTS];
    int count = normalize(&chars->settings, c, to);
    for (int i = 0; i < count && i < BERT_PARTS; i++)
        ret_parts[i] = (BertPart){to[i], chars->settings.strip_accents ? char_kind(to[i]).combining : 0};
    return count;
}

uint32_t bert_char_entry(const BertChars *chars, uint32_t c) {
    const BertSettings *settings = &chars->settings;
    const CharKind kind = char_kind(c);
    if (!kind.bert && !kind.combining) return c << BERT_CLASS_BITS | BERT_LETTER; /* the common case */
    uint32_t to[BERT_PARTS];
    int count = normalize(settings, c, to);
    if (count == 0)
        return kind.combining || (settings->clean_text && kind.bert & BERT_DROP) ? BERT_DROPPED : BERT_OTHER;
    const CharKind made = char_kind(to[0]);
    if (count > 1 || (settings->strip_accents && made.combining)) return BERT_OTHER;
    BertClass class = made.bert & BERT_WHITE   ? BERT_SPACE
                      : made.bert & BERT_PUNCT ? BERT_ISOLATED
                                               : BERT_LETTER;
    if (settings->handle_chinese_chars && kind.bert & BERT_CJK) class = BERT_ISOLATED;
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
