/* Tables by binary search, except where inner loops look characters up: their classes are a table, and sets
 * of characters bitmaps, built once when a tokenizer is loaded. The generated tables are texts of numbers,
 * so that their source is short. They are read, and what follows from them is built, before main.
 */
#include "tokenizer/unicode.h"

/* Characters of the same kind: from `first` to the next run. */
typedef struct KindRun {
    uint32_t first, kind;
} KindRun;

/* A character that is decomposed into `length` characters, which are at `at` in the table of results. */
typedef struct Decomposition {
    uint32_t first, at;
    int length;
    bool excluded; /* no pair composes to it */
} Decomposition;

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

unsigned char char_classes[CHAR_COUNT];
static CharPair composed[COUNT(canonical_from)];
static size_t composed_count;

/* ---- characters ---- */

CharKind char_kind(uint32_t c) {
    size_t low = 0, high = COUNT(kind_runs);
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(kind_runs[middle].first <= c ? &low : &high) = middle;
    }
    return kinds[kind_runs[low].kind];
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

/* The character after the last of a run. */
static uint32_t run_end(size_t run) {
    return run + 1 < COUNT(kind_runs) ? kind_runs[run + 1].first : CHAR_COUNT;
}

static void add_kinds(CharSet *set, KindTest *test, int wanted) {
    for (size_t i = 0; i < COUNT(kind_runs); i++)
        if (test(kinds[kind_runs[i].kind], wanted)) char_set_add(set, kind_runs[i].first, run_end(i) - 1);
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

static int compare_from(const void *c, const void *entry) {
    uint32_t first = ((const Decomposition *)entry)->first;
    return *(const uint32_t *)c < first ? -1 : *(const uint32_t *)c > first;
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
    const Decomposition *found = NULL;
    const uint32_t *to = compatible_to;
    if (form == FORM_NFKD || form == FORM_NFKC)
        found = bsearch(&c, compatible_from, COUNT(compatible_from), sizeof *found, compare_from);
    if (!found) {
        to = canonical_to;
        found = bsearch(&c, canonical_from, COUNT(canonical_from), sizeof *found, compare_from);
    }
    if (!found) {
        ret_chars[0] = (NormalChar){.c = c, .combining = char_kind(c).combining};
        return 1;
    }
    for (int i = 0; i < found->length; i++) {
        uint32_t part = to[found->at + (uint32_t)i];
        ret_chars[i] = (NormalChar){.c = part, .combining = char_kind(part).combining, .change = i > 0};
    }
    return found->length;
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
        uint32_t c = canonical_from[i].first;
        int length = unicode_decompose(c, FORM_NFD, chars);
        bool restored =
            composes(form) && unicode_finish(chars, spare, (size_t)length, FORM_NFC) == 1 && chars[0].c == c;
        if (!restored) char_set_add(set, c, c);
    }
    for (size_t i = 0; (form == FORM_NFKD || form == FORM_NFKC) && i < COUNT(compatible_from); i++)
        char_set_add(set, compatible_from[i].first, compatible_from[i].first);
    if (!composes(form)) {
        char_set_add(set, HANGUL, HANGUL + HANGUL_COUNT - 1);
        return;
    }
    for (size_t i = 0; i < composed_count; i++) char_set_add(set, composed[i].second, composed[i].second);
    char_set_add(set, HANGUL_V, HANGUL_V + HANGUL_V_COUNT - 1);
    char_set_add(set, HANGUL_T + 1, HANGUL_T + HANGUL_T_COUNT - 1);
}

/* ---- tables built before main ---- */

/* The next number of a text: digits of 5 bits from '#' on, but no '\\', lowest first; all but the last have
 * 32 added. */
static uint32_t read_number(const char **text) {
    uint32_t number = 0, digit = 32;
    for (int shift = 0; digit >= 32; shift += 5) {
        char c = *(*text)++;
        digit = (uint32_t)(c - '#' - (c > '\\'));
        number |= (digit & 31) << shift;
    }
    return number;
}

/* Sign in the lowest bit. */
static int32_t read_signed(const char **text) {
    uint32_t number = read_number(text);
    return (int32_t)(number >> 1) ^ -(int32_t)(number & 1);
}

static void read_kinds(void) {
    const char *text = kinds_text;
    for (size_t i = 0; i < sizeof kinds; i++) ((uint8_t *)kinds)[i] = (uint8_t)read_number(&text);
    text = kind_runs_text;
    uint32_t last = 0;
    for (size_t i = 0; i < COUNT(kind_runs); i++) {
        kind_runs[i].first = last += read_number(&text);
        kind_runs[i].kind = read_number(&text);
    }
}

static void read_decompositions(Decomposition *from, size_t count, const char *text, uint32_t *to,
                                const char *results) {
    uint32_t last = 0, at = 0;
    int32_t result = 0;
    for (size_t i = 0; i < count; i++) {
        last += read_number(&text);
        uint32_t length = read_number(&text);
        from[i] = (Decomposition){last, at, (int)(length / 2), length & 1};
        for (uint32_t j = 0; j < length / 2; j++) to[at++] = (uint32_t)(result += read_signed(&results));
    }
}

static void read_lower(void) {
    const char *text = lower_runs_text;
    uint32_t last = 0;
    for (size_t i = 0; i < COUNT(lower_runs); i++) {
        CharDelta *run = &lower_runs[i];
        run->first = last += read_number(&text);
        run->last = run->first + read_number(&text);
        run->step = (int32_t)read_number(&text);
        run->delta = read_signed(&text);
    }
}

static int compare_pairs(const void *a, const void *b) {
    const CharPair *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->second < y->second ? -1 : x->second > y->second;
}

/* A character composes from the last one of its decomposition and the character to which those before it
 * compose, so shorter decompositions come first. */
static void collect_pairs(void) {
    for (int length = 2, left = 1; left; length++) {
        size_t known = composed_count;
        left = 0;
        for (size_t i = 0; i < COUNT(canonical_from); i++) {
            const Decomposition *from = &canonical_from[i];
            left += from->length > length;
            if (from->length != length || from->excluded) continue;
            const uint32_t *to = canonical_to + from->at;
            uint32_t first = to[0];
            for (int j = 1; j + 1 < length; j++) first = compose(first, to[j]);
            composed[known++] = (CharPair){first, to[length - 1], from->first};
        }
        composed_count = known;
        qsort(composed, composed_count, sizeof *composed, compare_pairs);
    }
}

static void fill_classes(void) {
    for (size_t i = 0; i < COUNT(kind_runs); i++) {
        CharKind kind = kinds[kind_runs[i].kind];
        char group = *category_names[kind.category];
        int class = group == 'L' ? CHAR_LETTER : group == 'N' ? CHAR_NUMBER : 0;
        if (kind_has_property(kind, PROPERTY_SPACE)) class |= CHAR_SPACE;
        if (kind_has_property(kind, PROPERTY_CLASS_WORD)) class |= CHAR_WORD;
        uint32_t first = kind_runs[i].first;
        if (class) memset(char_classes + first, class, run_end(i) - first);
    }
    char_classes[0x200C] |= CHAR_WORD; /* zero-width non-joiner and joiner */
    char_classes[0x200D] |= CHAR_WORD;
}

__attribute__((constructor)) static void build_tables(void) {
    read_kinds();
    read_decompositions(canonical_from, COUNT(canonical_from), canonical_from_text, canonical_to,
                        canonical_to_text);
    read_decompositions(compatible_from, COUNT(compatible_from), compatible_from_text, compatible_to,
                        compatible_to_text);
    read_lower();
    collect_pairs();
    fill_classes();
}
