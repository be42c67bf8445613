/* Tables by binary search. Sets of characters are bitmaps, built once when a tokenizer is loaded, so that a
 * test in the inner loops is a single load. */
#include "tokenizer/unicode.h"

typedef struct CharRun {
    uint32_t first, value;
} CharRun;

typedef struct CharPair {
    uint32_t first, second, composed;
} CharPair;

#include "tokenizer/unicode_tables.inc"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { CATEGORY_BITS = 5, SCRIPT_BITS = 4 }; /* the rest of a property value: one bit per CharProperty */

/* ---- sets ---- */

void char_set_add(CharSet *set, uint32_t first, uint32_t last) {
    for (uint32_t c = first; c <= last;) {
        if (c % 64 == 0 && last - c >= 63) {
            set->bits[c / 64] = UINT64_MAX;
            c += 64;
        } else {
            set->bits[c / 64] |= UINT64_C(1) << c % 64;
            c++;
        }
    }
}

void char_set_invert(CharSet *set) {
    for (size_t i = 0; i < CHAR_SET_WORDS; i++) set->bits[i] = ~set->bits[i];
}

/* Adds all characters whose property value is `wanted` under the mask. */
static void add_runs(CharSet *set, uint32_t mask, uint32_t wanted) {
    for (size_t i = 0; i < COUNT(property_runs); i++) {
        uint32_t end = i + 1 < COUNT(property_runs) ? property_runs[i + 1].first : UTF8_INVALID;
        if ((property_runs[i].value & mask) == wanted) char_set_add(set, property_runs[i].first, end - 1);
    }
}

void char_set_add_property(CharSet *set, CharProperty property) {
    uint32_t bit = 1u << (CATEGORY_BITS + SCRIPT_BITS + (int)property);
    add_runs(set, bit, bit);
}

bool char_set_add_named(CharSet *set, const char *name, size_t size) {
    bool found = false;
    for (uint32_t i = 0; i < COUNT(category_names); i++) {
        if (size == 0 || size > 2 || memcmp(category_names[i], name, size) != 0) continue;
        add_runs(set, (1u << CATEGORY_BITS) - 1, i);
        found = true;
    }
    for (uint32_t i = 0; i < COUNT(script_names); i++) {
        if (strlen(script_names[i]) != size || memcmp(script_names[i], name, size) != 0) continue;
        add_runs(set, ((1u << SCRIPT_BITS) - 1) << CATEGORY_BITS, (i + 1) << CATEGORY_BITS);
        found = true;
    }
    return found;
}

static void add_named(CharSet *set, const char *name) {
    char_set_add_named(set, name, strlen(name));
}

/* All characters but spaces, control characters, surrogates and those not assigned. */
static Status add_graphic(CharSet *set) {
    CLEANUP(mem_freep) CharSet *other = NULL;
    TRY(mem_new(1, sizeof *other, &other));
    char_set_add_property(other, PROPERTY_SPACE);
    add_named(other, "Cc");
    add_named(other, "Cn");
    char_set_add(other, 0xD800, 0xDFFF);
    char_set_add(other, UTF8_INVALID, UTF8_INVALID);
    char_set_invert(other);
    for (size_t i = 0; i < CHAR_SET_WORDS; i++) set->bits[i] |= other->bits[i];
    return OK;
}

static void add_text(CharSet *set, const char *chars) {
    for (; *chars; chars++) char_set_add(set, (unsigned char)*chars, (unsigned char)*chars);
}

bool char_set_add_posix(CharSet *set, const char *name, size_t size) {
    static const char *const names[] = {"alpha", "digit", "alnum", "upper",  "lower", "space", "punct",
                                        "cntrl", "graph", "print", "xdigit", "word",  "blank", "ascii"};
    size_t i = 0;
    while (i < COUNT(names) && (strlen(names[i]) != size || strncasecmp(names[i], name, size) != 0)) i++;
    CLEANUP(status_freep) Status status = OK;
    switch (i) {
    case 0: char_set_add_property(set, PROPERTY_ALPHABETIC); break;
    case 1: add_named(set, "Nd"); break;
    case 2: char_set_add_property(set, PROPERTY_ALPHABETIC), add_named(set, "Nd"); break;
    case 3: char_set_add_property(set, PROPERTY_UPPER); break;
    case 4: char_set_add_property(set, PROPERTY_LOWER); break;
    case 5: char_set_add_property(set, PROPERTY_SPACE); break;
    case 6: add_named(set, "P"), add_named(set, "S"); break;
    case 7: add_named(set, "Cc"); break;
    case 8: status = add_graphic(set); break;
    case 9: status = add_graphic(set), add_named(set, "Zs"); break;
    case 10: add_text(set, "0123456789abcdefABCDEF"); break;
    case 11: char_set_add_property(set, PROPERTY_CLASS_WORD); break;
    case 12: add_named(set, "Zs"), add_text(set, "\t"); break;
    case 13: char_set_add(set, 0, 0x7F); break;
    default: return false;
    }
    return !status;
}

size_t utf8_put(uint32_t c, char out[4]) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t size = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(0xF00 >> size | c);
    return size;
}

/* ---- normalization ---- */

/* Hangul syllables consist of a leading consonant, a vowel and possibly a trailing consonant. */
enum {
    HANGUL = 0xAC00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11A7,
    HANGUL_L_COUNT = 19,
    HANGUL_V_COUNT = 21,
    HANGUL_T_COUNT = 28,
    HANGUL_COUNT = HANGUL_L_COUNT * HANGUL_V_COUNT * HANGUL_T_COUNT
};

static bool composes(NormalForm form) {
    return form == FORM_NFC || form == FORM_NFKC;
}

static uint8_t combining_class(uint32_t c) {
    size_t low = 0, high = COUNT(combining_runs);
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (combining_runs[middle].first <= c)
            low = middle;
        else
            high = middle;
    }
    return (uint8_t)combining_runs[low].value;
}

/* The index of a character in a table of decompositions, or -1. */
static ptrdiff_t find_decomposition(const uint32_t *from, size_t count, uint32_t c) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (from[middle] >> 8 < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && from[low] >> 8 == c ? (ptrdiff_t)low : -1;
}

static int decompose_hangul(uint32_t c, NormalChar *ret_chars) {
    uint32_t i = c - HANGUL, trail = i % HANGUL_T_COUNT;
    ret_chars[0] = (NormalChar){.c = HANGUL_L + i / (HANGUL_V_COUNT * HANGUL_T_COUNT)};
    ret_chars[1] =
        (NormalChar){.c = HANGUL_V + i % (HANGUL_V_COUNT * HANGUL_T_COUNT) / HANGUL_T_COUNT, .change = 1};
    if (trail) ret_chars[2] = (NormalChar){.c = HANGUL_T + trail, .change = 1};
    return trail ? 3 : 2;
}

int unicode_decompose(uint32_t c, NormalForm form, NormalChar ret_chars[DECOMPOSED_LIMIT]) {
    if (c >= HANGUL && c < HANGUL + HANGUL_COUNT) return decompose_hangul(c, ret_chars);
    const uint32_t *from = compatible_from, *to = compatible_to;
    const uint16_t *at = compatible_at;
    ptrdiff_t found = -1;
    if (form == FORM_NFKD || form == FORM_NFKC) found = find_decomposition(from, COUNT(compatible_from), c);
    if (found < 0) {
        from = canonical_from, to = canonical_to, at = canonical_at;
        found = find_decomposition(from, COUNT(canonical_from), c);
    }
    if (found < 0) {
        ret_chars[0] = (NormalChar){.c = c, .combining = combining_class(c)};
        return 1;
    }
    int length = (int)(from[found] & 0xFF);
    for (int i = 0; i < length; i++) {
        uint32_t part = to[at[found] + i];
        ret_chars[i] = (NormalChar){.c = part, .combining = combining_class(part), .change = i > 0};
    }
    return length;
}

/* The character that two characters compose to, or 0. */
static uint32_t compose(uint32_t first, uint32_t second) {
    if (first >= HANGUL_L && first < HANGUL_L + HANGUL_L_COUNT && second >= HANGUL_V &&
        second < HANGUL_V + HANGUL_V_COUNT)
        return HANGUL + ((first - HANGUL_L) * HANGUL_V_COUNT + (second - HANGUL_V)) * HANGUL_T_COUNT;
    if (first >= HANGUL && first < HANGUL + HANGUL_COUNT && (first - HANGUL) % HANGUL_T_COUNT == 0 &&
        second > HANGUL_T && second < HANGUL_T + HANGUL_T_COUNT)
        return first + (second - HANGUL_T);
    size_t low = 0, high = COUNT(composed);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const CharPair *pair = &composed[middle];
        if (pair->first < first || (pair->first == first && pair->second < second))
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < COUNT(composed) && composed[low].first == first && composed[low].second == second;
    return found ? composed[low].composed : 0;
}

/* A stable sort of each run of marks by combining class, in linear time: hostile text has long runs. */
static void sort_marks(NormalChar *chars, NormalChar *spare, size_t count) {
    for (size_t start = 0, end; start < count; start = end + 1) {
        size_t place[257] = {0};
        bool sorted = true;
        for (end = start; end < count && chars[end].combining; end++) {
            sorted &= end == start || chars[end - 1].combining <= chars[end].combining;
            place[chars[end].combining + 1]++;
        }
        if (sorted) continue;
        for (int i = 0; i < 256; i++) place[i + 1] += place[i];
        for (size_t i = start; i < end; i++) spare[place[chars[i].combining]++] = chars[i];
        memcpy(chars + start, spare, (end - start) * sizeof *chars);
    }
}

size_t unicode_finish(NormalChar *chars, NormalChar *spare, size_t count, NormalForm form) {
    sort_marks(chars, spare, count);
    if (!composes(form)) return count;
    size_t kept = 0, starter = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        /* A mark is blocked from the starter by one of the same or a higher class in between. */
        bool adjacent = starter != SIZE_MAX && starter + 1 == kept;
        bool free = starter != SIZE_MAX && (adjacent || chars[kept - 1].combining < chars[i].combining);
        uint32_t both = free ? compose(chars[starter].c, chars[i].c) : 0;
        if (both) {
            chars[starter].c = both;
            chars[starter].change += chars[i].change - 1;
            continue;
        }
        if (chars[i].combining == 0) starter = kept;
        chars[kept++] = chars[i];
    }
    return kept;
}

void char_set_add_unstable(CharSet *set, NormalForm form) {
    for (size_t i = 0; i < COUNT(combining_runs); i++) {
        uint32_t end = i + 1 < COUNT(combining_runs) ? combining_runs[i + 1].first : UTF8_INVALID;
        if (combining_runs[i].value) char_set_add(set, combining_runs[i].first, end - 1);
    }
    for (size_t i = 0; i < COUNT(canonical_from); i++) {
        NormalChar chars[DECOMPOSED_LIMIT], spare[DECOMPOSED_LIMIT];
        uint32_t c = canonical_from[i] >> 8;
        int length = unicode_decompose(c, FORM_NFD, chars);
        bool restored =
            composes(form) && unicode_finish(chars, spare, (size_t)length, FORM_NFC) == 1 && chars[0].c == c;
        if (!restored) char_set_add(set, c, c);
    }
    for (size_t i = 0; (form == FORM_NFKD || form == FORM_NFKC) && i < COUNT(compatible_from); i++)
        char_set_add(set, compatible_from[i] >> 8, compatible_from[i] >> 8);
    if (!composes(form)) {
        char_set_add(set, HANGUL, HANGUL + HANGUL_COUNT - 1);
        return;
    }
    for (size_t i = 0; i < COUNT(composed); i++) char_set_add(set, composed[i].second, composed[i].second);
    char_set_add(set, HANGUL_V, HANGUL_V + HANGUL_V_COUNT - 1);
    char_set_add(set, HANGUL_T + 1, HANGUL_T + HANGUL_T_COUNT - 1);
}
