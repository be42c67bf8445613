/* Tables by binary search, except where inner loops look characters up: their classes are a table, and sets
 * of characters bitmaps, built once when a tokenizer is loaded. What follows from the generated tables is
 * built before main.
 */
#include "tokenizer/unicode.h"

/* A run of characters, `step` apart. Each maps to the character `delta` further. */
typedef struct CharDelta {
    uint32_t first, last;
    int32_t step, delta;
} CharDelta;

typedef struct CharPair {
    uint32_t first, second, composed;
} CharPair;

#include "tokenizer/unicode_tables.inc"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { KIND_BITS = 11 }; /* of kind_runs */
/* Of the tables of decompositions: bits of the length, and of a character that no pair composes to. */
enum { LENGTH_BITS = 8, LENGTH_MASK = 31, EXCLUDED = 128 };

unsigned char char_classes[CHAR_COUNT];
static uint16_t canonical_at[COUNT(canonical_from)], compatible_at[COUNT(compatible_from)];
static CharPair composed[COUNT(canonical_from)];
static size_t composed_count;

/* The last of the sorted entries whose upper bits are at most c; the first one if there is none. */
static size_t find(const uint32_t *entries, size_t count, int bits, uint32_t c) {
    size_t low = 0, high = count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (entries[middle] >> bits <= c)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- characters ---- */

CharKind char_kind(uint32_t c) {
    return kinds[kind_runs[find(kind_runs, COUNT(kind_runs), KIND_BITS, c)] & ((1u << KIND_BITS) - 1)];
}

uint32_t char_lower(uint32_t c) {
    for (size_t low = 0, high = COUNT(lower_runs); low < high;) {
        size_t middle = (low + high) / 2;
        const CharDelta *run = &lower_runs[middle];
        if (c > run->last)
            low = middle + 1;
        else if (c < run->first)
            high = middle;
        else
            return (c - run->first) % (uint32_t)run->step ? c : (uint32_t)((int32_t)c + run->delta);
    }
    return c;
}

static bool kind_has_property(CharKind kind, int wanted) {
    return kind.properties >> wanted & 1;
}

static bool is_category(CharKind kind, const char *names) {
    const char *name = category_names[kind.category];
    for (; *names; names += 2)
        if (memcmp(names, name, 2) == 0) return true;
    return false;
}

bool char_is_case_ignorable(uint32_t c) {
    static const uint32_t inside_words[] = {'\'',   '.',    ':',    0xB7,   0x387,  0x55F,
                                            0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                            0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
    for (size_t i = 0; i < COUNT(inside_words); i++)
        if (c == inside_words[i]) return true;
    return is_category(char_kind(c), "MnMeCfLmSk");
}

bool char_is_cased(uint32_t c) {
    CharKind kind = char_kind(c);
    return (kind_has_property(kind, PROPERTY_UPPER) || kind_has_property(kind, PROPERTY_LOWER) ||
            is_category(kind, "Lt")) &&
           !char_is_case_ignorable(c);
}

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

/* Whether a kind belongs to a set. */
typedef bool KindTest(CharKind kind, int wanted);

static void add_kinds(CharSet *set, KindTest *test, int wanted) {
    for (size_t i = 0; i < COUNT(kind_runs); i++) {
        uint32_t end = i + 1 < COUNT(kind_runs) ? kind_runs[i + 1] >> KIND_BITS : UTF8_INVALID;
        uint32_t first = kind_runs[i] >> KIND_BITS;
        if (test(char_kind(first), wanted)) char_set_add(set, first, end - 1);
    }
}

static bool kind_has_category(CharKind kind, int wanted) {
    return kind.category == wanted;
}

static bool kind_has_script(CharKind kind, int wanted) {
    return kind.script == wanted;
}

static bool kind_combines(CharKind kind, int wanted) {
    return kind.combining >= wanted;
}

void char_set_add_property(CharSet *set, CharProperty property) {
    add_kinds(set, kind_has_property, (int)property);
}

bool char_set_add_named(CharSet *set, const char *name, size_t size) {
    bool found = false;
    for (size_t i = 0; i < COUNT(category_names); i++) {
        if (size == 0 || size > 2 || memcmp(category_names[i], name, size) != 0) continue;
        add_kinds(set, kind_has_category, (int)i);
        found = true;
    }
    for (size_t i = 0; i < COUNT(script_names); i++) {
        if (strlen(script_names[i]) != size || memcmp(script_names[i], name, size) != 0) continue;
        add_kinds(set, kind_has_script, (int)i + 1);
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

/* The index of a character in a table of decompositions, or -1. */
static ptrdiff_t find_decomposition(const uint32_t *from, size_t count, uint32_t c) {
    size_t found = find(from, count, LENGTH_BITS, c);
    return from[found] >> LENGTH_BITS == c ? (ptrdiff_t)found : -1;
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
        ret_chars[0] = (NormalChar){.c = c, .combining = char_kind(c).combining};
        return 1;
    }
    int length = (int)(from[found] & LENGTH_MASK);
    for (int i = 0; i < length; i++) {
        uint32_t part = to[at[found] + i];
        ret_chars[i] = (NormalChar){.c = part, .combining = char_kind(part).combining, .change = i > 0};
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
    size_t low = 0, high = composed_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const CharPair *pair = &composed[middle];
        if (pair->first < first || (pair->first == first && pair->second < second))
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < composed_count && composed[low].first == first && composed[low].second == second;
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
    add_kinds(set, kind_combines, 1);
    for (size_t i = 0; i < COUNT(canonical_from); i++) {
        NormalChar chars[DECOMPOSED_LIMIT], spare[DECOMPOSED_LIMIT];
        uint32_t c = canonical_from[i] >> LENGTH_BITS;
        int length = unicode_decompose(c, FORM_NFD, chars);
        bool restored =
            composes(form) && unicode_finish(chars, spare, (size_t)length, FORM_NFC) == 1 && chars[0].c == c;
        if (!restored) char_set_add(set, c, c);
    }
    for (size_t i = 0; (form == FORM_NFKD || form == FORM_NFKC) && i < COUNT(compatible_from); i++)
        char_set_add(set, compatible_from[i] >> LENGTH_BITS, compatible_from[i] >> LENGTH_BITS);
    if (!composes(form)) {
        char_set_add(set, HANGUL, HANGUL + HANGUL_COUNT - 1);
        return;
    }
    for (size_t i = 0; i < composed_count; i++) char_set_add(set, composed[i].second, composed[i].second);
    char_set_add(set, HANGUL_V, HANGUL_V + HANGUL_V_COUNT - 1);
    char_set_add(set, HANGUL_T + 1, HANGUL_T + HANGUL_T_COUNT - 1);
}

/* ---- tables built before main ---- */

static void index_results(const uint32_t *from, size_t count, uint16_t *at) {
    uint32_t next = 0;
    for (size_t i = 0; i < count; next += from[i++] & LENGTH_MASK) at[i] = (uint16_t)next;
}

static int compare_pairs(const void *a, const void *b) {
    const CharPair *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->second < y->second ? -1 : x->second > y->second;
}

/* A character composes from the last one of its decomposition and the character to which those before it
 * compose, so shorter decompositions come first. */
static void collect_pairs(void) {
    for (uint32_t length = 2, left = 1; left; length++) {
        size_t known = composed_count;
        left = 0;
        for (size_t i = 0; i < COUNT(canonical_from); i++) {
            uint32_t size = canonical_from[i] & LENGTH_MASK;
            left += size > length;
            if (size != length || canonical_from[i] & EXCLUDED) continue;
            const uint32_t *to = canonical_to + canonical_at[i];
            uint32_t first = to[0];
            for (uint32_t j = 1; j + 1 < length; j++) first = compose(first, to[j]);
            composed[known++] = (CharPair){first, to[length - 1], canonical_from[i] >> LENGTH_BITS};
        }
        composed_count = known;
        qsort(composed, composed_count, sizeof *composed, compare_pairs);
    }
}

static void fill_classes(void) {
    for (size_t i = 0; i < COUNT(kind_runs); i++) {
        CharKind kind = kinds[kind_runs[i] & ((1u << KIND_BITS) - 1)];
        char group = *category_names[kind.category];
        int class = group == 'L' ? CHAR_LETTER : group == 'N' ? CHAR_NUMBER : 0;
        if (kind_has_property(kind, PROPERTY_SPACE)) class |= CHAR_SPACE;
        if (kind_has_property(kind, PROPERTY_CLASS_WORD)) class |= CHAR_WORD;
        uint32_t first = kind_runs[i] >> KIND_BITS;
        uint32_t end = i + 1 < COUNT(kind_runs) ? kind_runs[i + 1] >> KIND_BITS : CHAR_COUNT;
        if (class) memset(char_classes + first, class, end - first);
    }
    char_classes[0x200C] |= CHAR_WORD; /* zero-width non-joiner and joiner */
    char_classes[0x200D] |= CHAR_WORD;
}

__attribute__((constructor)) static void build_tables(void) {
    index_results(canonical_from, COUNT(canonical_from), canonical_at);
    index_results(compatible_from, COUNT(compatible_from), compatible_at);
    collect_pairs();
    fill_classes();
}
