/* Matching by backtracking with an explicit stack. A loop over a set of characters takes one frame however
 * long it is, so long runs of one class need no memory. */
#include "tokenizer/regex_pcre.h"

/* Oniguruma gives up after as many. */
enum { STEP_LIMIT = 10000000 };

void regex_free(Regex *regex) {
    if (!regex) return;
    for (size_t i = 0; i < regex->set_count; i++) free(regex->sets[i]);
    free(regex->sets);
    free(regex->ops);
    regex_pcre_free(regex->pcre);
    free(regex);
}

void regex_scratch_done(RegexScratch *scratch) {
    free(scratch->stack);
    regex_pcre_scratch_free(scratch->pcre);
    *scratch = (RegexScratch){0};
}

typedef struct Subject {
    const Regex *regex;
    RegexScratch *scratch;
    const char *text;
    size_t size;
} Subject;

static Status push(RegexScratch *scratch, uint32_t op, size_t low, size_t at) {
    if (scratch->count == scratch->capacity)
        TRY(mem_grow(&scratch->stack, &scratch->capacity, scratch->count + 1, sizeof *scratch->stack));
    scratch->stack[scratch->count++] = (RegexFrame){op, low, at};
    return OK;
}

static inline void see(RegexScratch *scratch, size_t end) {
    if (end > scratch->seen) scratch->seen = end;
}

/* The character at `at` and its length; UTF8_INVALID + 1, which no set and no literal has, at the end of the
 * text. */
static inline uint32_t char_at(const Subject *subject, size_t at, size_t *ret_bytes) {
    uint32_t c;
    *ret_bytes = 1;
    if (at == subject->size)
        c = UTF8_INVALID + 1;
    else if ((unsigned char)subject->text[at] < 0x80)
        c = (unsigned char)subject->text[at];
    else
        *ret_bytes = utf8_next(subject->text + at, subject->size - at, &c);
    see(subject->scratch, at + *ret_bytes);
    return c;
}

/* Matches a set as often as possible; false if that is less often than required. *low is set to the end of
 * the characters that cannot be given back. */
static bool match_set(const Subject *subject, const RegexOp *op, size_t *at, size_t *low) {
    const CharSet *set = op->set;
    size_t here = *at, bytes = 1;
    uint32_t count = 0;
    for (; count < op->high; count++, here += bytes) {
        if (count == op->low) *low = here;
        if (here < subject->size && (unsigned char)subject->text[here] < 0x80) {
            bytes = 1;
            if (char_set_has(set, (unsigned char)subject->text[here])) continue;
            see(subject->scratch, here + 1);
            break;
        }
        uint32_t c = char_at(subject, here, &bytes);
        if (c > UTF8_INVALID || !char_set_has(set, c)) break;
    }
    if (count == op->low) *low = here;
    see(subject->scratch, here);
    *at = here;
    return count >= op->low;
}

static Status run(const Subject *subject, uint32_t start, size_t at, bool *ret_matched, size_t *ret_end);

static Status match_ahead(const Subject *subject, const RegexOp *op, size_t at, bool *ret_matched) {
    size_t end;
    TRY(run(subject, op->next, at, ret_matched, &end));
    if (op->kind == REGEX_NOT_AHEAD) *ret_matched = !*ret_matched;
    return OK;
}

/* Goes back to the latest choice above `base`; false if there is none. */
static bool backtrack(const Subject *subject, size_t base, uint32_t *op, size_t *at) {
    RegexScratch *scratch = subject->scratch;
    if (scratch->count == base) return false;
    RegexFrame *frame = &scratch->stack[scratch->count - 1];
    uint32_t c;
    if (frame->at > frame->low)
        frame->at -= utf8_previous(subject->text + frame->low, frame->at - frame->low, &c);
    *op = frame->op;
    *at = frame->at;
    if (frame->at <= frame->low) scratch->count--;
    return true;
}

static Status run(const Subject *subject, uint32_t start, size_t at, bool *ret_matched, size_t *ret_end) {
    RegexScratch *scratch = subject->scratch;
    const RegexOp *ops = subject->regex->ops;
    size_t base = scratch->count, bytes;
    *ret_matched = false;
    for (uint32_t number = start;;) {
        const RegexOp *op = &ops[number];
        bool good = true;
        if (++scratch->steps > STEP_LIMIT)
            return FAILED("a pattern of the pre-tokenizer takes more than %d steps to match", STEP_LIMIT);
        switch (op->kind) {
        case REGEX_CHAR: {
            uint32_t c = char_at(subject, at, &bytes);
            good = c == op->chars[0] || c == op->chars[1] || c == op->chars[2];
            at += bytes;
            number = op->next;
            break;
        }
        case REGEX_SET: {
            size_t low = at;
            good = match_set(subject, op, &at, &low);
            number = op->next;
            if (good && at > low && !op->possessive) TRY(push(scratch, number, low, at));
            break;
        }
        case REGEX_SPLIT: {
            uint32_t c = char_at(subject, at, &bytes);
            if (c < 0x80 && !(op->ascii[c >> 6] >> (c & 63) & 1)) {
                number = op->other;
                break;
            }
            TRY(push(scratch, op->other, at, at));
            number = op->next;
            break;
        }
        case REGEX_JUMP: number = op->next; break;
        case REGEX_AHEAD:
        case REGEX_NOT_AHEAD:
            TRY(match_ahead(subject, op, at, &good));
            number = op->other;
            break;
        case REGEX_LINE_END:
            good = at == subject->size || subject->text[at] == '\n';
            see(scratch, at + 1);
            number = op->next;
            break;
        case REGEX_MATCH:
            scratch->count = base;
            *ret_matched = true;
            *ret_end = at;
            return OK;
        }
        if (!good && !backtrack(subject, base, &number, &at)) return OK;
    }
}

Status regex_find(const Regex *regex, RegexScratch *scratch, const char *text, size_t size, size_t at,
                  size_t *ret_start, size_t *ret_end) {
    if (regex->pcre) return regex_pcre_find(regex->pcre, scratch, text, size, at, ret_start, ret_end);
    Subject subject = {regex, scratch, text, size};
    scratch->seen = at;
    while (at < size) {
        size_t bytes;
        uint32_t c = char_at(&subject, at, &bytes);
        if (char_set_has(&regex->first, c)) {
            bool matched;
            scratch->steps = scratch->count = 0;
            TRY(run(&subject, 0, at, &matched, ret_end));
            if (matched) {
                *ret_start = at;
                return OK;
            }
        }
        at += bytes;
    }
    scratch->seen = size + 1;
    *ret_start = *ret_end = size;
    return OK;
}
