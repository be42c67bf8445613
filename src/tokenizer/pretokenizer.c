#include "tokenizer/pretokenizer.h"

#include "tokenizer/bert_chars.h"
#include "tokenizer/bpe_pretokenize.h"

typedef enum { STEP_REGEX, STEP_STRING, STEP_CHARS, STEP_METASPACE, STEP_BYTE_LEVEL } StepKind;

/* What becomes of a match: dropped, a piece of its own, joined to the text before or after it, or to other
 * matches next to it. */
typedef enum {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS
} SplitBehavior;

typedef enum { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } PrependScheme;

typedef struct Step {
    StepKind kind;
    SplitBehavior behavior;
    bool invert;  /* the text between matches is the match */
    Regex *regex; /* STEP_REGEX */
    char *string; /* STEP_STRING; STEP_METASPACE: the replacement */
    size_t string_size;
    CharSet *chars;         /* STEP_CHARS: each character in the set is a match */
    PrependScheme scheme;   /* STEP_METASPACE */
    bool split;             /* STEP_METASPACE: each replaced space starts a piece */
    bool prefix, use_regex; /* STEP_BYTE_LEVEL */
    bool spells;            /* STEP_BYTE_LEVEL: pieces have characters for bytes */
} Step;

struct Pretokenizer {
    Step *steps;
    size_t count, capacity;
    bool traces; /* a later step needs to know which pieces come from the start of the text */
};

void pretokenizer_free(Pretokenizer *pre) {
    if (!pre) return;
    for (size_t i = 0; i < pre->count; i++) {
        regex_free(pre->steps[i].regex);
        free(pre->steps[i].string);
        free(pre->steps[i].chars);
    }
    free(pre->steps);
    free(pre);
}

void pretokenizer_scratch_done(PretokenizerScratch *scratch) {
    regex_scratch_done(&scratch->regex);
    for (size_t i = 0; i < scratch->count; i++) {
        normal_text_done(&scratch->buffers[i]);
        normal_text_done(&scratch->spelled[i]);
    }
    free(scratch->buffers);
    free(scratch->spelled);
    *scratch = (PretokenizerScratch){0};
}

/* ---- reading ---- */

/* The index of a member's value in a list of names. */
static Status read_choice(const json_t *json, const char *key, const char *const *names, int count,
                          const char *from, int *ret_choice) {
    const json_t *value = json_object_get(json, key);
    if (!value) return OK;
    for (int i = 0; i < count; i++) {
        if (!json_is_string(value) || strcmp(json_string_value(value), names[i]) != 0) continue;
        *ret_choice = i;
        return OK;
    }
    return FAILED("%s: '%s' of the pre-tokenizer is not supported; expected %s, %s or the like", from, key,
                  names[0], names[1]);
}

static Status read_behavior(Step *step, const json_t *json, const char *from) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                        "Contiguous"};
    int choice = (int)step->behavior;
    TRY(read_choice(json, "behavior", names, 5, from, &choice));
    step->behavior = (SplitBehavior)choice;
    return OK;
}

static Status copy_string(Step *step, const json_t *value, const char *what, const char *from) {
    step->string_size = json_string_length(value);
    if (!json_is_string(value) || step->string_size == 0 ||
        strlen(json_string_value(value)) != step->string_size)
        return FAILED("%s: %s must be a string that is not empty", from, what);
    return str_dup(json_string_value(value), &step->string);
}

static Status read_split(Step *step, const json_t *json, const char *from) {
    const json_t *pattern = json_object_get(json, "pattern"), *regex = json_object_get(pattern, "Regex");
    step->behavior = SPLIT_ISOLATED;
    TRY(read_behavior(step, json, from));
    TRY(json_get_bool(json, from, "invert", &step->invert));
    if (json_is_string(regex)) {
        step->kind = STEP_REGEX;
        return regex_new(&step->regex, json_string_value(regex), json_string_length(regex), from);
    }
    step->kind = STEP_STRING;
    return copy_string(step, json_object_get(pattern, "String"),
                       "the pattern of a pre-tokenizer of type Split", from);
}

/* Metaspace without prepend_scheme is of an old version, which had add_prefix_space. */
static Status read_metaspace(Step *step, const json_t *json, const char *from) {
    static const char *const names[] = {"always", "first", "never"};
    uint32_t c;
    int scheme = PREPEND_ALWAYS;
    bool prefix = true;
    *step = (Step){.kind = STEP_METASPACE, .behavior = SPLIT_MERGED_WITH_NEXT, .split = true};
    TRY(copy_string(step, json_object_get(json, "replacement"), "'replacement' of Metaspace", from));
    if (utf8_next(step->string, step->string_size, &c) != step->string_size)
        return FAILED("%s: 'replacement' of Metaspace must be one character", from);
    TRY(json_get_bool(json, from, "split", &step->split));
    TRY(json_get_bool(json, from, "add_prefix_space", &prefix));
    TRY(read_choice(json, "prepend_scheme", names, 3, from, &scheme));
    if (!prefix && json_object_get(json, "prepend_scheme") && scheme != PREPEND_NEVER)
        return FAILED("%s: 'prepend_scheme' of Metaspace contradicts 'add_prefix_space'", from);
    step->scheme = prefix ? (PrependScheme)scheme : PREPEND_NEVER;
    return OK;
}

static void add_punctuation(CharSet *set) {
    for (uint32_t c = 0; c < UTF8_INVALID; c++)
        if (bert_char_is_punctuation(c)) char_set_add(set, c, c);
}

/* Types that match single characters. "Words" is the second part of Whitespace. */
static Status read_chars(Step *step, const json_t *json, const char *type, const char *from) {
    *step = (Step){.kind = STEP_CHARS, .behavior = SPLIT_ISOLATED};
    TRY(mem_new(1, sizeof *step->chars, &step->chars));
    if (!strcmp(type, "Digits")) {
        bool individual = false;
        TRY(json_get_bool(json, from, "individual_digits", &individual));
        step->behavior = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
        char_set_add_property(step->chars, PROPERTY_NUMERIC);
        return OK;
    }
    if (!strcmp(type, "Punctuation")) {
        add_punctuation(step->chars);
        return read_behavior(step, json, from);
    }
    step->behavior = strcmp(type, "Words") ? SPLIT_REMOVED : SPLIT_CONTIGUOUS;
    for (uint32_t c = 0; c < UTF8_INVALID; c++)
        if (step->behavior == SPLIT_REMOVED ? char_is_space(c) : char_is_word(c))
            char_set_add(step->chars, c, c);
    return OK;
}

static Status read_step(Pretokenizer *pre, const json_t *json, const char *type, const char *from) {
    static const char *const chars[] = {"Digits",          "Punctuation",      "Whitespace",
                                        "WhitespaceSplit", "BertPreTokenizer", "Words"};
    TRY(mem_grow(&pre->steps, &pre->capacity, pre->count + 1, sizeof *pre->steps));
    Step *step = &pre->steps[pre->count++];
    *step = (Step){0};
    if (!strcmp(type, "Split")) return read_split(step, json, from);
    if (!strcmp(type, "Metaspace")) return read_metaspace(step, json, from);
    for (size_t i = 0; i < sizeof chars / sizeof *chars; i++)
        if (!strcmp(type, chars[i])) TRY(read_chars(step, json, type, from));
    if (!strcmp(type, "Whitespace")) return read_step(pre, json, "Words", from);
    if (!strcmp(type, "BertPreTokenizer")) return read_step(pre, json, "Punctuation", from);
    if (!strcmp(type, "CharDelimiterSplit")) {
        *step = (Step){.kind = STEP_STRING, .behavior = SPLIT_REMOVED};
        return copy_string(step, json_object_get(json, "delimiter"), "'delimiter' of CharDelimiterSplit",
                           from);
    }
    if (step->kind == STEP_CHARS) return OK;
    if (strcmp(type, "ByteLevel") != 0)
        return FAILED(
            "%s: 'pre_tokenizer' of type %.60s is not supported; expected ByteLevel, Split, Digits, "
            "Metaspace, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, BertPreTokenizer or a "
            "Sequence "
            "of these",
            from, type);
    *step = (Step){.kind = STEP_BYTE_LEVEL, .prefix = true, .use_regex = true}; /* Hugging Face's defaults */
    TRY(json_get_bool(json, from, "add_prefix_space", &step->prefix));
    return json_get_bool(json, from, "use_regex", &step->use_regex);
}

static Status read_any(Pretokenizer *pre, const json_t *json, int depth, const char *from) {
    enum { DEPTH_LIMIT = 20 };
    if (depth == 0 && (!json || json_is_null(json))) return OK;
    const char *type = json_string_value(json_object_get(json, "type"));
    if (!type) type = "(none)";
    if (!strcmp(type, "Words")) type = "(none)"; /* the name is internal */
    if (strcmp(type, "Sequence") != 0) return read_step(pre, json, type, from);
    const json_t *list = json_object_get(json, "pretokenizers");
    if (!json_is_array(list)) return FAILED("%s: 'pre_tokenizer.pretokenizers' must be a list", from);
    if (depth == DEPTH_LIMIT) return FAILED("%s: 'pre_tokenizer' is nested too deeply", from);
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(read_any(pre, json_array_get(list, i), depth + 1, from));
    return OK;
}

Status pretokenizer_new(Pretokenizer **ret_pre, const json_t *json, const char *from) {
    CLEANUP(pretokenizer_freep) Pretokenizer *pre = NULL;
    TRY(mem_new(1, sizeof *pre, &pre));
    TRY(read_any(pre, json, 0, from));
    for (size_t i = 1; i < pre->count; i++)
        pre->traces |= pre->steps[i].kind == STEP_METASPACE && pre->steps[i].scheme == PREPEND_FIRST;
    return MOVE(ret_pre, pre);
}

bool pretokenizer_is_byte_level(const Pretokenizer *pre) {
    for (size_t i = 0; i + 1 < pre->count; i++)
        if (pre->steps[i].kind == STEP_BYTE_LEVEL) return false;
    return pre->count > 0 && pre->steps[pre->count - 1].kind == STEP_BYTE_LEVEL;
}

void pretokenizer_spell_bytes(Pretokenizer *pre) {
    for (size_t i = 0; i < pre->count; i++) pre->steps[i].spells = true;
}

const char *pretokenizer_space(const Pretokenizer *pre, size_t *ret_size) {
    for (size_t i = 0; i < pre->count; i++) {
        if (pre->steps[i].kind != STEP_METASPACE) continue;
        *ret_size = pre->steps[i].string_size;
        return pre->steps[i].string;
    }
    return NULL;
}

bool pretokenizer_prefixes(const Pretokenizer *pre) {
    for (size_t i = 0; i < pre->count; i++)
        if (pre->steps[i].kind == STEP_METASPACE && pre->steps[i].scheme == PREPEND_FIRST) return true;
    return false;
}

bool pretokenizer_splits_spaces(const Pretokenizer *pre) {
    return pre->count > 0 && pre->steps[0].kind == STEP_METASPACE && pre->steps[0].split;
}

/* ---- running ---- */

typedef struct Run {
    const Pretokenizer *pre;
    PretokenizerScratch *scratch;
    bool offsets;
    VisitPiece visit;
    void *context;
} Run;

static Status run_step(const Run *run, size_t number, const Piece *piece);

static Piece part_of(const Piece *piece, size_t start, size_t end) {
    bool starts = piece->offsets && start < end ? piece->offsets[start].start == 0 : start == 0;
    return (Piece){piece->text + start, end - start, piece->offsets ? piece->offsets + start : NULL,
                   piece->base + start, piece->starts && starts};
}

static Status pass_on(const Run *run, size_t number, const Piece *piece, size_t start, size_t end) {
    if (start == end) return OK;
    Piece part = part_of(piece, start, end);
    return number + 1 < run->pre->count ? run_step(run, number + 1, &part) : run->visit(run->context, &part);
}

/* The first match from `at` on; start and end are `size` if there is none. */
static Status find_match(const Step *step, RegexScratch *scratch, const char *text, size_t size, size_t at,
                         size_t *ret_start, size_t *ret_end) {
    if (step->kind == STEP_REGEX) return regex_find(step->regex, scratch, text, size, at, ret_start, ret_end);
    *ret_start = *ret_end = size;
    scratch->seen = size + 1;
    if (step->kind != STEP_CHARS) {
        const char *found = at < size ? memmem(text + at, size - at, step->string, step->string_size) : NULL;
        if (found) *ret_start = (size_t)(found - text), *ret_end = *ret_start + step->string_size;
        if (found) scratch->seen = *ret_end;
        return OK;
    }
    for (size_t bytes; at < size; at += bytes) {
        uint32_t c;
        bytes = utf8_next(text + at, size - at, &c);
        if (!char_set_has(step->chars, c)) continue;
        *ret_start = at;
        *ret_end = scratch->seen = at + bytes;
        break;
    }
    return OK;
}

/* A piece that may still be joined with the next one. */
typedef struct Pending {
    size_t start, end;
    bool match, any;
} Pending;

/* Whether the next part, a match or not, joins the pending one. */
static bool joins(const Step *step, const Pending *pending, bool match) {
    switch (step->behavior) {
    case SPLIT_MERGED_WITH_PREVIOUS: return match && !pending->match;
    case SPLIT_MERGED_WITH_NEXT: return !match && pending->match;
    case SPLIT_CONTIGUOUS: return match == pending->match;
    default: return false;
    }
}

static Status add_part(const Run *run, size_t number, const Piece *piece, Pending *pending, size_t start,
                       size_t end, bool match) {
    const Step *step = &run->pre->steps[number];
    if (start == end && !match) return OK;
    match ^= step->invert;
    if (step->behavior == SPLIT_ISOLATED) return pass_on(run, number, piece, start, end);
    if (step->behavior == SPLIT_REMOVED) return match ? OK : pass_on(run, number, piece, start, end);
    if (pending->any && joins(step, pending, match)) {
        pending->end = end;
        pending->match = match;
        return OK;
    }
    if (pending->any) TRY(pass_on(run, number, piece, pending->start, pending->end));
    *pending = (Pending){start, end, match, true};
    return OK;
}

static Status run_split(const Run *run, size_t number, const Piece *piece) {
    const Step *step = &run->pre->steps[number];
    Pending pending = {0};
    size_t done = 0, size = piece->size;
    bool any = false;
    for (size_t at = 0, start, end; at < size;) {
        TRY(find_match(step, &run->scratch->regex, piece->text, size, at, &start, &end));
        if (start == size) break;
        /* As in Oniguruma's bindings, an empty match directly after another match does not count. */
        if (start == end && any && start == done) {
            uint32_t c;
            at = start + utf8_next(piece->text + start, size - start, &c);
            continue;
        }
        TRY(add_part(run, number, piece, &pending, done, start, false));
        TRY(add_part(run, number, piece, &pending, start, end, true));
        done = at = end;
        any = true;
    }
    TRY(add_part(run, number, piece, &pending, done, size, false));
    return pending.any ? pass_on(run, number, piece, pending.start, pending.end) : OK;
}

/* Copies a piece into the step's buffer, after `prefix` and with its spaces replaced. */
static Status rewrite(const Run *run, size_t number, const Piece *piece, const char *prefix,
                      size_t prefix_size, const char *space, size_t space_size, Piece *ret_piece) {
    NormalText *buffer = &run->scratch->buffers[number];
    uint32_t c;
    buffer->text.size = 0;
    buffer->plain = !run->offsets;
    if (prefix_size)
        TRY(normal_text_add(buffer, prefix, prefix_size,
                            piece_offset(piece, 0, utf8_next(piece->text, piece->size, &c))));
    for (size_t at = 0; at < piece->size;) {
        const char *found = memchr(piece->text + at, ' ', piece->size - at);
        size_t end = found ? (size_t)(found - piece->text) : piece->size;
        if (buffer->plain) TRY(bytes_add(&buffer->text, piece->text + at, end - at));
        for (size_t i = at, bytes; !buffer->plain && i < end; i += bytes) {
            bytes = utf8_next(piece->text + i, end - i, &c);
            TRY(normal_text_add(buffer, piece->text + i, bytes, piece_offset(piece, i, i + bytes)));
        }
        if (found) TRY(normal_text_add(buffer, space, space_size, piece_offset(piece, end, end + 1)));
        at = end + (found != NULL);
    }
    *ret_piece = (Piece){buffer->text.data, buffer->text.size, run->offsets ? buffer->offsets : NULL,
                         piece->base, piece->starts};
    return OK;
}

static Status run_metaspace(const Run *run, size_t number, const Piece *piece) {
    const Step *step = &run->pre->steps[number];
    bool marked = piece->text[0] == ' ' ||
                  (piece->size >= step->string_size && !memcmp(piece->text, step->string, step->string_size));
    bool wanted = step->scheme == PREPEND_ALWAYS || (step->scheme == PREPEND_FIRST && piece->starts);
    Piece changed = {0};
    TRY(rewrite(run, number, piece, step->string, wanted && !marked ? step->string_size : 0, step->string,
                step->string_size, &changed));
    return step->split ? run_split(run, number, &changed) : pass_on(run, number, &changed, 0, changed.size);
}

/* The text of a piece with GPT-2's characters for its bytes. */
static Status spell(const Run *run, size_t number, const Piece *piece) {
    NormalText *buffer = &run->scratch->spelled[number];
    buffer->text.size = 0;
    buffer->plain = !run->offsets;
    for (size_t at = 0; at < piece->size; at++) {
        char bytes[2];
        TRY(normal_text_add(buffer, bytes, bpe_spell((unsigned char)piece->text[at], bytes),
                            piece_offset(piece, at, at + 1)));
    }
    Piece spelled = {buffer->text.data, buffer->text.size, run->offsets ? buffer->offsets : NULL, piece->base,
                     piece->starts};
    return pass_on(run, number, &spelled, 0, spelled.size);
}

static Status pass_bytes(const Run *run, size_t number, const Piece *piece, size_t start, size_t end) {
    if (!run->pre->steps[number].spells) return pass_on(run, number, piece, start, end);
    Piece part = part_of(piece, start, end);
    return spell(run, number, &part);
}

static Status run_byte_level(const Run *run, size_t number, const Piece *piece) {
    const Step *step = &run->pre->steps[number];
    Piece changed = *piece;
    if (step->prefix && piece->text[0] != ' ') TRY(rewrite(run, number, piece, " ", 1, " ", 1, &changed));
    if (!step->use_regex) return pass_bytes(run, number, &changed, 0, changed.size);
    for (size_t at = 0; at < changed.size;) {
        size_t size = word_size((const unsigned char *)changed.text + at, changed.size - at);
        TRY(pass_bytes(run, number, &changed, at, at + size));
        at += size;
    }
    return OK;
}

static Status run_step(const Run *run, size_t number, const Piece *piece) {
    switch (run->pre->steps[number].kind) {
    case STEP_METASPACE: return run_metaspace(run, number, piece);
    case STEP_BYTE_LEVEL: return run_byte_level(run, number, piece);
    default: return run_split(run, number, piece);
    }
}

Status pretokenizer_run(const Pretokenizer *pre, PretokenizerScratch *scratch, const Piece *text,
                        bool offsets, VisitPiece visit, void *context) {
    Run run = {pre, scratch, offsets || text->offsets || pre->traces, visit, context};
    if (text->size == 0) return OK;
    if (pre->count == 0) return visit(context, text);
    if (scratch->count < pre->count) {
        TRY(mem_new(pre->count, sizeof *scratch->spelled, &scratch->spelled));
        TRY(mem_new(pre->count, sizeof *scratch->buffers, &scratch->buffers));
        scratch->count = pre->count;
    }
    return run_step(&run, 0, text);
}

/* ---- safe cuts ---- */

/* The latest parts of a text, matches and what is between them. */
enum { RECENT = 32 };
typedef struct Recent {
    size_t end[RECENT], seen[RECENT]; /* how far the search that found it looked */
    size_t count;
} Recent;

static void remember(Recent *recent, size_t start, size_t end, size_t seen) {
    if (start == end) return;
    recent->end[recent->count % RECENT] = end;
    recent->seen[recent->count++ % RECENT] = seen;
}

/* Whether the text up to the end of part number `last` has the same parts if it ends there. Parts found
 * without looking further are the same; the others are searched again. */
static Status ends_alike(const Step *step, RegexScratch *scratch, const char *text, const Recent *recent,
                         size_t last, bool *ret_alike) {
    size_t size = recent->end[last % RECENT], first = last + 1;
    *ret_alike = false;
    while (first > 0 && recent->count - first < RECENT - 1 && recent->seen[(first - 1) % RECENT] > size)
        first--;
    if (first > 0 && (recent->count - first >= RECENT - 1)) return OK;
    size_t at = first > 0 ? recent->end[(first - 1) % RECENT] : 0;
    for (size_t i = first; i <= last;) {
        size_t start, end;
        TRY(find_match(step, scratch, text, size, at, &start, &end));
        if (start > at && recent->end[i++ % RECENT] != start) return OK;
        if (end > start && (i > last || recent->end[i++ % RECENT] != end)) return OK;
        at = end;
    }
    *ret_alike = at == size;
    return OK;
}

static Status cut_split(const Step *step, RegexScratch *scratch, const char *text, size_t size,
                        size_t *ret_cut) {
    Recent recent = {0};
    for (size_t at = 0; at < size;) {
        size_t start, end;
        TRY(find_match(step, scratch, text, size, at, &start, &end));
        if (scratch->seen > size) break;
        remember(&recent, at, start, scratch->seen);
        remember(&recent, start, end, scratch->seen);
        at = end;
    }
    for (size_t i = recent.count; i > 0 && recent.count - i < RECENT - 2; i--) {
        size_t end = recent.end[(i - 1) % RECENT];
        bool alike = false;
        if (end >= size || (unsigned char)text[end] >= 0x80) continue;
        TRY(ends_alike(step, scratch, text, &recent, i - 1, &alike));
        if (!alike) continue;
        *ret_cut = end;
        return OK;
    }
    return OK;
}

static Status cut_steps(const Pretokenizer *pre, RegexScratch *scratch, size_t number, const char *text,
                        size_t size, size_t *ret_cut);

/* Each character is a match or not whatever surrounds it, so the text after the last match may be cut by the
 * steps that follow. Otherwise the cut is there. */
static Status cut_chars(const Pretokenizer *pre, RegexScratch *scratch, size_t number, const char *text,
                        size_t size, size_t *ret_cut) {
    const Step *step = &pre->steps[number];
    size_t last = size, inner = 0;
    uint32_t c;
    for (size_t bytes; last > 0; last -= bytes) {
        bytes = utf8_previous(text, last, &c);
        if (char_set_has(step->chars, c)) break;
    }
    if (last == size) return OK;
    TRY(cut_steps(pre, scratch, number + 1, text + last, size - last, &inner));
    *ret_cut = inner || (unsigned char)text[last] < 0x80 ? last + inner : 0;
    return OK;
}

static Status cut_byte_level(const Step *step, const char *text, size_t size, size_t *ret_cut) {
    if (!step->use_regex || step->prefix) return OK;
    for (size_t seen = size; seen > 0;) {
        size_t cut = bpe_cut(text, seen);
        if (cut < size && (unsigned char)text[cut] < 0x80) {
            *ret_cut = cut;
            return OK;
        }
        seen = cut < seen ? cut : seen - 1;
    }
    return OK;
}

/* Pieces of the first step stay apart, whatever the others make of them. */
static Status cut_steps(const Pretokenizer *pre, RegexScratch *scratch, size_t number, const char *text,
                        size_t size, size_t *ret_cut) {
    *ret_cut = 0;
    if (number == pre->count) return OK;
    const Step *step = &pre->steps[number];
    if (step->kind == STEP_BYTE_LEVEL) return cut_byte_level(step, text, size, ret_cut);
    bool merges = step->behavior == SPLIT_MERGED_WITH_PREVIOUS || step->behavior == SPLIT_MERGED_WITH_NEXT;
    if (step->kind == STEP_CHARS && !merges) return cut_chars(pre, scratch, number, text, size, ret_cut);
    if (merges || step->behavior == SPLIT_CONTIGUOUS) return OK;
    return cut_split(step, scratch, text, size, ret_cut);
}

bool pretokenizer_leaves_spaces(const Pretokenizer *pre) {
    return pre->count == 0 || pre->steps[0].kind == STEP_METASPACE;
}

Status pretokenizer_cut(const Pretokenizer *pre, PretokenizerScratch *scratch, const char *text, size_t size,
                        size_t *ret_cut) {
    *ret_cut = 0;
    for (size_t i = 0; i < pre->count; i++)
        if (pre->steps[i].kind == STEP_METASPACE) return OK;
    return cut_steps(pre, &scratch->regex, 0, text, size - utf8_unfinished(text, size), ret_cut);
}
