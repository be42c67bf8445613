/* Matching by PCRE2, with just-in-time compilation where it exists. Limits stop a pattern that backtracks too
 * much. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tokenizer/regex_pcre.h"

enum {
    MATCH_LIMIT = 1000000,
    HEAP_LIMIT = 256 << 10 /* KiB */,
    STACK_START = 32 << 10,
    STACK_LIMIT = 1 << 20
};

struct Pcre {
    pcre2_code *code;
};

struct PcreScratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

bool regex_pcre_exists(void) {
    return true;
}

void regex_pcre_free(Pcre *pcre) {
    if (!pcre) return;
    pcre2_code_free(pcre->code);
    free(pcre);
}

DEFINE_FREEP(Pcre, regex_pcre)

Status regex_pcre_new(Pcre **ret_pcre, const char *translated, const char *pattern, const char *from) {
    CLEANUP(regex_pcre_freep) Pcre *pcre = NULL;
    TRY(mem_new(1, sizeof *pcre, &pcre));
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return FAILED("%s: out of memory", from);
    int error = pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    PCRE2_SIZE at;
    pcre->code = pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED,
                               PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE, &error, &at, context);
    pcre2_compile_context_free(context);
    if (!pcre->code) {
        char message[200] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof message);
        return FAILED("%s: the pattern '%.200s' is not supported: PCRE2 says: %s", from, pattern, message);
    }
    (void)pcre2_jit_compile(pcre->code, PCRE2_JIT_COMPLETE); /* without it, matching is only slower */
    return MOVE(ret_pcre, pcre);
}

bool regex_pcre_can_be_empty(const Pcre *pcre) {
    uint32_t empty = 0;
    return pcre2_pattern_info(pcre->code, PCRE2_INFO_MATCHEMPTY, &empty) != 0 || empty;
}

void regex_pcre_scratch_free(PcreScratch *scratch) {
    if (!scratch) return;
    pcre2_match_data_free(scratch->data);
    pcre2_match_context_free(scratch->context);
    pcre2_jit_stack_free(scratch->stack);
    free(scratch);
}

static Status scratch_new(PcreScratch **ret_scratch) {
    PcreScratch *made = NULL;
    TRY(mem_new(1, sizeof *made, &made));
    made->data = pcre2_match_data_create(1, NULL);
    made->context = pcre2_match_context_create(NULL);
    made->stack = pcre2_jit_stack_create(STACK_START, STACK_LIMIT, NULL); /* NULL without JIT */
    if (!made->data || !made->context) {
        regex_pcre_scratch_free(made);
        return FAILED("out of memory for matching a pattern");
    }
    pcre2_set_match_limit(made->context, MATCH_LIMIT);
    pcre2_set_heap_limit(made->context, HEAP_LIMIT);
    if (made->stack) pcre2_jit_stack_assign(made->context, NULL, made->stack);
    *ret_scratch = made;
    return OK;
}

Status regex_pcre_find(const Pcre *pcre, RegexScratch *scratch, const char *text, size_t size, size_t at,
                       size_t *ret_start, size_t *ret_end) {
    if (!scratch->pcre) TRY(scratch_new(&scratch->pcre));
    const PcreScratch *own = scratch->pcre;
    int found = pcre2_match(pcre->code, (PCRE2_SPTR)text, size, at, 0, own->data, own->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(pcre->code, (PCRE2_SPTR)text, size, at, PCRE2_NO_JIT, own->data, own->context);
    scratch->seen = size + 1;
    *ret_start = *ret_end = size;
    if (found == PCRE2_ERROR_NOMATCH) return OK;
    if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT || found == PCRE2_ERROR_HEAPLIMIT)
        return FAILED("a pattern of the tokenizer takes more than %d steps to match", MATCH_LIMIT);
    if (found < 0) return FAILED("a pattern of the tokenizer cannot be matched: PCRE2 error %d", found);
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(own->data);
    *ret_start = ends[0];
    *ret_end = ends[1];
    return OK;
}
