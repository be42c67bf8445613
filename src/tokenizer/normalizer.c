/* Each step rewrites the text. Offsets follow Hugging Face's: a character that a step inserts belongs to the
 * character before it, a prepended one to the first character, a composed one to the first of its parts, and
 * a replacement to the last character of what it replaces.
 */
#include "tokenizer/normalizer.h"

#include "tokenizer/bert_chars.h"
#include "tokenizer/bert_pretokenize.h"
#include "tokenizer/regex.h"

typedef enum {
    STEP_FORM,
    STEP_LOWERCASE,
    STEP_STRIP,
    STEP_PREPEND,
    STEP_REPLACE,
    STEP_FILTER,
    STEP_BERT,
    STEP_SPELL
} StepKind;

typedef struct Step {
    StepKind kind;
    NormalForm form;
    CharSet *unstable; /* STEP_FORM: characters that may change */
    bool left, right;  /* STEP_STRIP */
    CharSet *dropped;  /* STEP_FILTER: characters that are removed */
    CharSet *blanks;   /* STEP_FILTER: characters that become a space */
    BertChars *bert;   /* STEP_BERT */
    char *from, *to;   /* STEP_REPLACE; `to` also STEP_PREPEND */
    size_t from_size, to_size;
    Regex *regex; /* STEP_REPLACE: instead of `from` */
} Step;

struct Normalizer {
    Step *steps;
    size_t count, capacity;
};

void normalizer_free(Normalizer *normalizer) {
    if (!normalizer) return;
    for (size_t i = 0; i < normalizer->count; i++) {
        Step *step = &normalizer->steps[i];
        free(step->unstable);
        free(step->dropped);
        free(step->blanks);
        bert_chars_free(step->bert);
        free(step->from);
        free(step->to);
        regex_free(step->regex);
    }
    free(normalizer->steps);
    free(normalizer);
}

/* ---- reading ---- */

static Status copy_text(const json_t *object, const char *key, const char *type, const char *from,
                        char **ret_text, size_t *ret_size) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return FAILED("%s: 'normalizer' of type %s has no '%s'; expected a string", from, type, key);
    *ret_size = json_string_length(value);
    if (strlen(json_string_value(value)) != *ret_size)
        return FAILED("%s: '%s' of the normalizer contains a NUL character", from, key);
    return str_dup(json_string_value(value), ret_text);
}

static Status read_replace(Step *step, const json_t *json, const char *from) {
    const json_t *pattern = json_object_get(json, "pattern"), *regex = json_object_get(pattern, "Regex");
    TRY(copy_text(json, "content", "Replace", from, &step->to, &step->to_size));
    if (json_is_string(regex))
        return regex_new_replacing(&step->regex, json_string_value(regex), json_string_length(regex), from);
    TRY(copy_text(pattern, "String", "Replace", from, &step->from, &step->from_size));
    if (step->from_size == 0)
        return FAILED("%s: 'normalizer' of type Replace replaces the empty string", from);
    return OK;
}

/* StripAccents removes marks; Nmt, control characters, and turns others into spaces. */
static Status read_filter(Step *step, bool marks) {
    static const uint32_t dropped[][2] = {{0x1, 0x8},   {0xB, 0xB},   {0xE, 0x1F},
                                          {0x7F, 0x7F}, {0x8F, 0x8F}, {0x9F, 0x9F}};
    static const uint32_t blanks[][2] = {{0x9, 0xA},       {0xC, 0xD},       {0x1680, 0x1680},
                                         {0x200B, 0x200F}, {0x2028, 0x2029}, {0x2581, 0x2581},
                                         {0xFEFF, 0xFEFF}, {0xFFFD, 0xFFFD}};
    step->kind = STEP_FILTER;
    TRY(mem_new(1, sizeof *step->dropped, &step->dropped));
    TRY(mem_new(1, sizeof *step->blanks, &step->blanks));
    if (marks) char_set_add_property(step->dropped, PROPERTY_ACCENT);
    for (size_t i = 0; !marks && i < sizeof dropped / sizeof *dropped; i++)
        char_set_add(step->dropped, dropped[i][0], dropped[i][1]);
    for (size_t i = 0; !marks && i < sizeof blanks / sizeof *blanks; i++)
        char_set_add(step->blanks, blanks[i][0], blanks[i][1]);
    return OK;
}

static Status read_step(Normalizer *normalizer, const json_t *json, const char *type, const char *from) {
    static const char *const forms[] = {
        [FORM_NFD] = "NFD", [FORM_NFC] = "NFC", [FORM_NFKD] = "NFKD", [FORM_NFKC] = "NFKC"};
    TRY(mem_grow(&normalizer->steps, &normalizer->capacity, normalizer->count + 1,
                 sizeof *normalizer->steps));
    Step *step = &normalizer->steps[normalizer->count++];
    *step = (Step){0};
    for (int i = 0; i < 4; i++) {
        if (strcmp(type, forms[i]) != 0) continue;
        step->kind = STEP_FORM;
        step->form = (NormalForm)i;
        TRY(mem_new(1, sizeof *step->unstable, &step->unstable));
        char_set_add_unstable(step->unstable, step->form);
        return OK;
    }
    if (!strcmp(type, "Lowercase")) {
        step->kind = STEP_LOWERCASE;
        return OK;
    }
    if (!strcmp(type, "StripAccents") || !strcmp(type, "Nmt")) return read_filter(step, *type == 'S');
    if (!strcmp(type, "ByteLevel")) {
        step->kind = STEP_SPELL;
        return OK;
    }
    if (!strcmp(type, "BertNormalizer")) {
        BertSettings settings = {true, true, true, true};
        step->kind = STEP_BERT;
        TRY(bert_settings_read(json, from, &settings));
        return bert_chars_new(&step->bert, &settings);
    }
    if (!strcmp(type, "Strip")) {
        *step = (Step){.kind = STEP_STRIP, .left = true, .right = true};
        TRY(json_get_bool(json, from, "strip_left", &step->left));
        return json_get_bool(json, from, "strip_right", &step->right);
    }
    if (!strcmp(type, "Prepend")) {
        step->kind = STEP_PREPEND;
        return copy_text(json, "prepend", type, from, &step->to, &step->to_size);
    }
    if (!strcmp(type, "Replace")) {
        step->kind = STEP_REPLACE;
        return read_replace(step, json, from);
    }
    return FAILED(
        "%s: 'normalizer' of type %.60s is not supported; expected NFC, NFD, NFKC, NFKD, Lowercase, Strip, "
        "StripAccents, Nmt, BertNormalizer, ByteLevel, Prepend, Replace or a Sequence of these",
        from, type);
}

static Status read_any(Normalizer *normalizer, const json_t *json, int depth, const char *from) {
    enum { DEPTH_LIMIT = 20 };
    if (depth == 0 && (!json || json_is_null(json))) return OK;
    const char *type = json_string_value(json_object_get(json, "type"));
    if (!type) type = "(none)";
    if (strcmp(type, "Sequence") != 0) return read_step(normalizer, json, type, from);
    const json_t *list = json_object_get(json, "normalizers");
    if (!json_is_array(list)) return FAILED("%s: 'normalizer.normalizers' must be a list", from);
    if (depth == DEPTH_LIMIT) return FAILED("%s: 'normalizer' is nested too deeply", from);
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(read_any(normalizer, json_array_get(list, i), depth + 1, from));
    return OK;
}

Status normalizer_new(Normalizer **ret_normalizer, const json_t *json, const char *from) {
    CLEANUP(normalizer_freep) Normalizer *normalizer = NULL;
    TRY(mem_new(1, sizeof *normalizer, &normalizer));
    TRY(read_any(normalizer, json, 0, from));
    *ret_normalizer = NULL;
    if (normalizer->count == 0) return OK;
    return MOVE(ret_normalizer, normalizer);
}

/* ---- steps ---- */

/* The text that a step reads. */
typedef struct Source {
    const char *text;
    size_t size;
    const TokenOffset *offsets; /* per byte; NULL: each byte is its own */
} Source;

static TokenOffset origin(const Source *source, size_t start, size_t end) {
    if (!source->offsets) return (TokenOffset){start, end};
    return (TokenOffset){source->offsets[start].start, source->offsets[end - 1].end};
}

/* Copies bytes that do not change. */
static Status copy(const Source *source, size_t start, size_t end, NormalText *out) {
    if (out->plain) return bytes_add(&out->text, source->text + start, end - start);
    for (size_t at = start, bytes; at < end; at += bytes) {
        uint32_t c;
        bytes = utf8_next(source->text + at, end - at, &c);
        TRY(normal_text_add(out, source->text + at, bytes, origin(source, at, at + bytes)));
    }
    return OK;
}

/* The first unstable character from `at` on; *before is the character before it, or itself at the start. */
static size_t find_unstable(const CharSet *unstable, const char *text, size_t size, size_t at,
                            size_t *before) {
    uint32_t c;
    *before = at;
    while (at < size) {
        size_t here = at;
        if ((unsigned char)text[at] < 0x80) {
            at++;
        } else {
            size_t bytes = utf8_next(text + at, size - at, &c);
            if (char_set_has(unstable, c)) return at;
            at += bytes;
        }
        *before = here;
    }
    return size;
}

typedef struct FormScratch {
    NormalChar *chars, *spare;
    TokenOffset *origins; /* of the characters before normalization */
    size_t capacity, spare_capacity, origin_capacity;
} FormScratch;

static void form_scratch_done(FormScratch *scratch) {
    free(scratch->chars);
    free(scratch->spare);
    free(scratch->origins);
}

/* Normalizes a stable character and the unstable ones after it. */
static Status add_segment(const Step *step, const Source *source, size_t start, size_t end,
                          FormScratch *scratch, NormalText *out) {
    size_t count = 0, chars = 0;
    for (size_t at = start, bytes; at < end; at += bytes, chars++) {
        uint32_t c;
        bytes = utf8_next(source->text + at, end - at, &c);
        TRY(mem_grow(&scratch->chars, &scratch->capacity, count + DECOMPOSED_LIMIT, sizeof *scratch->chars));
        TRY(mem_grow(&scratch->origins, &scratch->origin_capacity, chars + 1, sizeof *scratch->origins));
        scratch->origins[chars] = origin(source, at, at + bytes);
        count += (size_t)unicode_decompose(c, step->form, scratch->chars + count);
    }
    TRY(mem_grow(&scratch->spare, &scratch->spare_capacity, count, sizeof *scratch->spare));
    count = unicode_finish(scratch->chars, scratch->spare, count, step->form);
    ptrdiff_t next = 0;
    for (size_t i = 0; i < count; i++) {
        const NormalChar *one = &scratch->chars[i];
        char bytes[4];
        ptrdiff_t at = one->change > 0 ? next - 1 : next;
        if (at < 0) at = 0;
        if (at >= (ptrdiff_t)chars) at = (ptrdiff_t)chars - 1;
        TRY(normal_text_add(out, bytes, utf8_put(one->c, bytes), scratch->origins[at]));
        next += 1 - one->change;
    }
    return OK;
}

static Status apply_form(const Step *step, const Source *source, NormalText *out) {
    CLEANUP(form_scratch_done) FormScratch scratch = {0};
    for (size_t at = 0; at < source->size;) {
        size_t start, found = find_unstable(step->unstable, source->text, source->size, at, &start),
                      end = found;
        uint32_t c;
        if (found == source->size) return copy(source, at, found, out);
        /* A byte that is not UTF-8 stays, and separates. */
        utf8_next(source->text + start, source->size - start, &c);
        if (c == UTF8_INVALID) start = found;
        TRY(copy(source, at, start, out));
        while (end < source->size) {
            size_t bytes = utf8_next(source->text + end, source->size - end, &c);
            if (!char_set_has(step->unstable, c)) break;
            end += bytes;
        }
        TRY(add_segment(step, source, start, end, &scratch, out));
        at = end;
    }
    return OK;
}

static Status apply_lowercase(const Source *source, NormalText *out) {
    for (size_t at = 0, bytes; at < source->size; at += bytes) {
        uint32_t c;
        char lower[4];
        bytes = utf8_next(source->text + at, source->size - at, &c);
        TokenOffset offset = origin(source, at, at + bytes);
        if (c == UTF8_INVALID)
            TRY(normal_text_add(out, source->text + at, 1, offset));
        else if (c == 0x130) /* the only letter with a lowercase form of two characters */
            TRY(normal_text_add(out, "i\xCC\x87", 3, offset));
        else
            TRY(normal_text_add(out, lower, utf8_put(char_lower(c), lower), offset));
    }
    return OK;
}

static Status apply_strip(const Step *step, const Source *source, NormalText *out) {
    size_t start = 0, end = source->size;
    uint32_t c;
    while (step->left && start < end) {
        size_t bytes = utf8_next(source->text + start, end - start, &c);
        if (!char_is_space(c)) break;
        start += bytes;
    }
    while (step->right && start < end) {
        size_t bytes = utf8_previous(source->text + start, end - start, &c);
        if (!char_is_space(c)) break;
        end -= bytes;
    }
    return copy(source, start, end, out);
}

static Status apply_prepend(const Step *step, const Source *source, bool continues, NormalText *out) {
    if (source->size > 0 && !continues) {
        uint32_t c;
        size_t first = utf8_next(source->text, source->size, &c);
        TRY(normal_text_add(out, step->to, step->to_size, origin(source, 0, first)));
    }
    return copy(source, 0, source->size, out);
}

static Status apply_replace(const Step *step, const Source *source, NormalText *out) {
    CLEANUP(regex_scratch_done) RegexScratch scratch = {0};
    for (size_t at = 0; at < source->size;) {
        size_t start = source->size, end = source->size;
        if (step->regex) {
            TRY(regex_find(step->regex, &scratch, source->text, source->size, at, &start, &end));
        } else {
            const char *found = memmem(source->text + at, source->size - at, step->from, step->from_size);
            if (found) start = (size_t)(found - source->text), end = start + step->from_size;
        }
        TRY(copy(source, at, start, out));
        uint32_t c;
        size_t last = start < end ? end - utf8_previous(source->text + start, end - start, &c) : end;
        if (start < end) TRY(normal_text_add(out, step->to, step->to_size, origin(source, last, end)));
        at = end;
    }
    return OK;
}

static Status apply_filter(const Step *step, const Source *source, NormalText *out) {
    for (size_t at = 0, bytes; at < source->size; at += bytes) {
        uint32_t c;
        bytes = utf8_next(source->text + at, source->size - at, &c);
        TokenOffset offset = origin(source, at, at + bytes);
        if (char_set_has(step->dropped, c)) continue;
        if (char_set_has(step->blanks, c))
            TRY(normal_text_add(out, " ", 1, offset));
        else
            TRY(normal_text_add(out, source->text + at, bytes, offset));
    }
    return OK;
}

static Status apply_bert(const Step *step, const Source *source, NormalText *out) {
    TRY(bert_normalize(step->bert, source->text, source->size, out));
    for (size_t i = 0; !out->plain && i < out->text.size; i++)
        out->offsets[i] = origin(source, out->offsets[i].start, out->offsets[i].end);
    return OK;
}

static Status apply_spell(const Source *source, NormalText *out) {
    for (size_t at = 0; at < source->size; at++) {
        char bytes[2];
        TRY(normal_text_add(out, bytes, bpe_spell((unsigned char)source->text[at], bytes),
                            origin(source, at, at + 1)));
    }
    return OK;
}

static Status apply(const Step *step, const Source *source, bool continues, NormalText *out) {
    switch (step->kind) {
    case STEP_FORM: return apply_form(step, source, out);
    case STEP_LOWERCASE: return apply_lowercase(source, out);
    case STEP_STRIP: return apply_strip(step, source, out);
    case STEP_PREPEND: return apply_prepend(step, source, continues, out);
    case STEP_REPLACE: return apply_replace(step, source, out);
    case STEP_FILTER: return apply_filter(step, source, out);
    case STEP_BERT: return apply_bert(step, source, out);
    case STEP_SPELL: return apply_spell(source, out);
    }
    return OK;
}

Status normalizer_run(const Normalizer *normalizer, const char *text, size_t size, bool continues,
                      NormalText *out) {
    CLEANUP(normal_text_done) NormalText before = {.plain = out->plain};
    Source source = {.text = text, .size = size};
    for (size_t i = 0; i < normalizer->count; i++) {
        if (i > 0) {
            NormalText swap = before;
            before = *out;
            *out = swap;
            out->text.size = 0;
            source = (Source){before.text.data, before.text.size, before.plain ? NULL : before.offsets};
        }
        TRY(apply(&normalizer->steps[i], &source, continues, out));
    }
    return OK;
}

/* ---- what a normalizer does ---- */

bool normalizer_keeps(const Normalizer *normalizer, const char *text, size_t size) {
    for (size_t i = 0; i < normalizer->count; i++) {
        size_t before;
        const Step *step = &normalizer->steps[i];
        if (step->kind != STEP_FORM || find_unstable(step->unstable, text, size, 0, &before) < size)
            return false;
    }
    return true;
}

bool normalizer_is_local(const Normalizer *normalizer) {
    for (size_t i = 0; i < normalizer->count; i++) {
        const Step *step = &normalizer->steps[i];
        if (step->kind == STEP_STRIP || (step->kind == STEP_REPLACE && (step->regex || step->from_size != 1)))
            return false;
    }
    return true;
}

bool normalizer_prepends(const Normalizer *normalizer) {
    for (size_t i = 0; i < normalizer->count; i++)
        if (normalizer->steps[i].kind == STEP_PREPEND) return true;
    return false;
}

bool normalizer_keeps_char(const Normalizer *normalizer, uint32_t c) {
    for (size_t i = 0; i < normalizer->count; i++) {
        const Step *step = &normalizer->steps[i];
        if (step->kind == STEP_FORM && char_set_has(step->unstable, c)) return false;
        if (step->kind == STEP_FILTER && (char_set_has(step->dropped, c) || char_set_has(step->blanks, c)))
            return false;
        if (step->kind == STEP_SPELL && (c <= ' ' || c >= 0x7F)) return false;
        if (step->kind == STEP_BERT && bert_char(step->bert, c) != (c << BERT_CLASS_BITS | BERT_LETTER))
            return false;
        if (step->kind == STEP_REPLACE && c < 0x80 && (char)c == step->from[0]) return false;
    }
    return true;
}

const char *normalizer_space(const Normalizer *normalizer, size_t *ret_size) {
    *ret_size = 0;
    for (size_t i = 0; i < normalizer->count; i++) {
        const Step *step = &normalizer->steps[i];
        if (step->kind != STEP_REPLACE || step->regex || strcmp(step->from, " ") != 0) continue;
        *ret_size = step->to_size;
        return step->to;
    }
    return NULL;
}
