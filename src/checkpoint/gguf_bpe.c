/* Which of llama.cpp's tokenizers gives the same tokens as a BPE.
 *
 * llama.cpp knows pre-tokenizers of byte-level BPEs by name; a tokenizer must equal one of them exactly.
 *
 * Its BPE of SentencePiece has no list of merges: it joins any two neighbors whose text is a token, the one
 * with the highest score first. A list of merges is equivalent if it has every pair that forms a token, and
 * if those that form the same token follow each other, as in lists made from SentencePiece models. The
 * scores are then the positions in the list. */
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "checkpoint/gguf_vocab.h"

void gguf_bpe_done(GgufBpe *bpe) {
    free(bpe->scores);
}

static Status refuse(const char *from, const char *why) {
    return FAILED("%s: llama.cpp has no such tokenizer: %s", from, why);
}

/* ---- byte-level BPE ---- */

enum { STEPS = 4 };

/* Steps of a pre-tokenizer of this name: at most one before ByteLevel. */
static const struct Pre {
    const char *name;
    const char *split; /* expression of a Split, or NULL */
    bool digits;       /* a Digits that isolates each */
    bool words;        /* ByteLevel splits into GPT-2's words */
    bool ignore_merges;
} pres[] = {
    {.name = "gpt-2", .words = true},
    {.name = "smollm", .digits = true, .words = true},
    {.name = "llama-bpe",
     .split = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
              "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     .ignore_merges = true},
    {.name = "qwen2",
     .split = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"
              "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};

bool gguf_pre_find(const char *name, GgufPre *ret_pre) {
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++) {
        const struct Pre *pre = &pres[i];
        if (strcmp(pre->name, name)) continue;
        *ret_pre = (GgufPre){pre->split, pre->digits, pre->words, pre->ignore_merges};
        return true;
    }
    return false;
}

static bool has_type(const json_t *step, const char *type) {
    const char *name = json_string_value(json_object_get(step, "type"));
    return name && !strcmp(name, type);
}

static bool has_text(const json_t *object, const char *key, const char *text) {
    const char *value = json_string_value(json_object_get(object, key));
    return value && !strcmp(value, text);
}

/* The steps of a normalizer or pre-tokenizer; `list` is the key of a Sequence's steps. Returns more than
 * STEPS if there are more. */
static size_t find_steps(const json_t *component, const char *list, const json_t *ret_step[STEPS]) {
    if (!component || json_is_null(component)) return 0;
    if (!has_type(component, "Sequence")) {
        ret_step[0] = component;
        return 1;
    }
    const json_t *steps = json_object_get(component, list);
    for (size_t i = 0; i < STEPS; i++) ret_step[i] = json_array_get(steps, i);
    return json_array_size(steps);
}

static bool is_split(const json_t *step, const char *expression) {
    return has_type(step, "Split") && has_text(step, "behavior", "Isolated") &&
           !json_is_true(json_object_get(step, "invert")) &&
           has_text(json_object_get(step, "pattern"), "Regex", expression);
}

static bool is_pre(const struct Pre *pre, const json_t *const step[STEPS], size_t count) {
    const json_t *last = step[count - 1];
    bool before = pre->split || pre->digits;
    if (count != (before ? 2 : 1) || !has_type(last, "ByteLevel")) return false;
    if (!json_is_false(json_object_get(last, "add_prefix_space"))) return false;
    if (json_is_false(json_object_get(last, "use_regex")) == pre->words) return false;
    if (pre->split) return is_split(step[0], pre->split);
    return !pre->digits ||
           (has_type(step[0], "Digits") && json_is_true(json_object_get(step[0], "individual_digits")));
}

/* llama.cpp does not normalize; NFC changes few texts. */
static bool changes_text(const json_t *json) {
    const json_t *step[STEPS];
    size_t count = find_steps(json_object_get(json, "normalizer"), "normalizers", step);
    return count > 1 || (count == 1 && !has_type(step[0], "NFC"));
}

static Status find_pre(const json_t *json, const char *from, const char **ret_pre) {
    const json_t *step[STEPS];
    size_t count = find_steps(json_object_get(json, "pre_tokenizer"), "pretokenizers", step), at = 0;
    bool ignores = json_is_true(json_object_get(json_object_get(json, "model"), "ignore_merges"));
    bool known = count >= 1 && count <= STEPS;
    while (known && at < sizeof pres / sizeof *pres && !is_pre(&pres[at], step, count)) at++;
    if (!known || at == sizeof pres / sizeof *pres)
        return refuse(from, "its pre-tokenizer differs from those of GPT-2, Llama 3, Qwen2 and SmolLM");
    if (changes_text(json)) return refuse(from, "it normalizes text, other than by NFC");
    if (ignores != pres[at].ignore_merges)
        return refuse(from, ignores ? "'model.ignore_merges' is true, unlike in GPT-2, Qwen2 and SmolLM"
                                    : "'model.ignore_merges' is false, unlike in Llama 3");
    *ret_pre = pres[at].name;
    return OK;
}

/* ---- SentencePiece's BPE ---- */

static const char space[] = "\xE2\x96\x81";

static bool is_prepend(const json_t *step) {
    return has_type(step, "Prepend") && has_text(step, "prepend", space);
}

static bool is_replace(const json_t *step) {
    return has_type(step, "Replace") && has_text(step, "content", space) &&
           has_text(json_object_get(step, "pattern"), "String", " ");
}

/* Spaces become U+2581. The normalizer, or a Metaspace that does not split, may also put one before the text.
 */
static bool find_spaces(const json_t *json, bool *ret_prefix) {
    const json_t *step[STEPS], *pre[STEPS];
    size_t steps = find_steps(json_object_get(json, "normalizer"), "normalizers", step);
    size_t pres_count = find_steps(json_object_get(json, "pre_tokenizer"), "pretokenizers", pre);
    if (pres_count == 0) {
        *ret_prefix = steps == 2;
        return (steps == 2 && is_prepend(step[0]) && is_replace(step[1])) ||
               (steps == 1 && is_replace(step[0]));
    }
    *ret_prefix = !has_text(pre[0], "prepend_scheme", "never") &&
                  !json_is_false(json_object_get(pre[0], "add_prefix_space"));
    return steps == 0 && pres_count == 1 && has_type(pre[0], "Metaspace") &&
           has_text(pre[0], "replacement", space) && json_is_false(json_object_get(pre[0], "split"));
}

/* A search for the merges that llama.cpp performs. */
typedef struct Merges {
    const Tokenizer *tokenizer;
    const char *from;
    int32_t *first; /* by token: 1 + the first merge that forms it, or 0 */
    int32_t *count; /* by token: merges that form it */
} Merges;

static void merges_done(Merges *merges) {
    free(merges->first);
    free(merges->count);
}

/* Whether merging can produce the token: a character, or what a merge forms. */
static bool is_reachable(const Merges *merges, const char *text, size_t size) {
    int32_t id = tokenizer_find(merges->tokenizer, text, size);
    if (id < 0) return false;
    size_t chars = 0;
    for (size_t i = 0; i < size; i++) chars += ((unsigned char)text[i] & 0xC0) != 0x80;
    return chars == 1 || merges->first[id] > 0;
}

/* What a merge forms, as text; the left part has *ret_left bytes. */
static Status merged(const Merges *merges, size_t rank, char **ret_text, size_t *ret_left, int32_t *ret_id) {
    TRY(tokenizer_merge(merges->tokenizer, rank, ret_text));
    char *gap = strchr(*ret_text + 1, ' ');
    memmove(gap, gap + 1, strlen(gap));
    *ret_left = (size_t)(gap - *ret_text);
    *ret_id = tokenizer_find(merges->tokenizer, *ret_text, strlen(*ret_text));
    return *ret_id < 0 ? refuse(merges->from, "its tokens contain spaces") : OK;
}

static Status find_first(Merges *merges) {
    for (size_t rank = 0; rank < tokenizer_merge_count(merges->tokenizer); rank++) {
        CLEANUP(mem_freep) char *text = NULL;
        size_t left = 0;
        int32_t id = 0;
        TRY(merged(merges, rank, &text, &left, &id));
        if (!merges->first[id]) merges->first[id] = 1 + (int32_t)rank;
    }
    return OK;
}

/* Merges of special tokens and of parts that never occur do nothing. */
static Status count_merges(Merges *merges) {
    int32_t last = -1;
    for (size_t rank = 0; rank < tokenizer_merge_count(merges->tokenizer); rank++) {
        CLEANUP(mem_freep) char *text = NULL;
        size_t left = 0;
        int32_t id = 0;
        TRY(merged(merges, rank, &text, &left, &id));
        if (tokenizer_class(merges->tokenizer, id) != TOKEN_NORMAL || !is_reachable(merges, text, left) ||
            !is_reachable(merges, text + left, strlen(text + left)))
            continue;
        if (merges->count[id]++ && id != last)
            return refuse(merges->from, "its merges are not in the order of SentencePiece's");
        last = id;
    }
    return OK;
}

/* Fails unless the token's merges are all pairs of tokens that form it. */
static Status check_token(const Merges *merges, int32_t id) {
    size_t size;
    const char *text = tokenizer_token(merges->tokenizer, id, &size);
    int32_t pairs = 0;
    for (size_t at = 1; at < size; at++)
        if (((unsigned char)text[at] & 0xC0) != 0x80 && is_reachable(merges, text, at) &&
            is_reachable(merges, text + at, size - at))
            pairs++;
    if (pairs == merges->count[id]) return OK;
    return refuse(merges->from, "its merges lack pairs that form tokens, unlike those of SentencePiece");
}

static Status find_scores(const Tokenizer *tokenizer, const char *from, float **ret_scores) {
    CLEANUP(merges_done) Merges merges = {.tokenizer = tokenizer, .from = from};
    CLEANUP(mem_freep) float *scores = NULL;
    size_t count = (size_t)tokenizer_vocab(tokenizer);
    TRY(mem_new(count, sizeof *merges.first, &merges.first));
    TRY(mem_new(count, sizeof *merges.count, &merges.count));
    TRY(mem_new(count, sizeof *scores, &scores));
    TRY(find_first(&merges));
    TRY(count_merges(&merges));
    for (size_t id = 0; id < count; id++) {
        if (tokenizer_class(tokenizer, (int32_t)id) != TOKEN_NORMAL) continue;
        TRY(check_token(&merges, (int32_t)id));
        scores[id] =
            -(float)(merges.first[id] ? merges.first[id] : (int32_t)tokenizer_merge_count(tokenizer) + 1);
    }
    return MOVE(ret_scores, scores);
}

static Status find_sentencepiece(const Tokenizer *tokenizer, const json_t *json, const char *from,
                                 GgufBpe *bpe) {
    const json_t *model = json_object_get(json, "model");
    const char *unk = json_string_value(json_object_get(model, "unk_token"));
    if (!find_spaces(json, &bpe->space_prefix))
        return refuse(from, "its pre-tokenizer differs from those of GPT-2, Llama, Qwen2 and SmolLM");
    if (json_is_true(json_object_get(model, "ignore_merges")))
        return refuse(from, "'model.ignore_merges' is true, unlike in Llama 2");
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        if (tokenizer_find(tokenizer, name, 6) < 0)
            return refuse(from, "it has no token for each byte, <0x00> to <0xFF>");
    }
    bpe->unk = unk ? tokenizer_find(tokenizer, unk, strlen(unk)) : -1;
    return find_scores(tokenizer, from, &bpe->scores);
}

/* ---- both ---- */

static Status check_added(const json_t *json, const char *from) {
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    const json_t *list = json_object_get(json, "added_tokens");
    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
            const json_t *token = json_array_get(list, i);
            char shown[NAME_TEXT];
            const char *name = json_string_value(json_object_get(token, "content"));
            if (json_is_true(json_object_get(token, flags[k])))
                return FAILED("%s: llama.cpp has no such tokenizer: '%s' of the added token '%s' is true",
                              from, flags[k], name_text(shown, name ? name : ""));
        }
    return OK;
}

Status gguf_bpe_find(const Tokenizer *tokenizer, const json_t *json, const char *from, GgufBpe *ret_bpe) {
    CLEANUP(gguf_bpe_done) GgufBpe bpe = {.pre = "gpt-2", .unk = -1};
    bool plain = tokenizer_is_plain(tokenizer);
    if (json) TRY(check_added(json, from));
    if (!plain && !json) return refuse(from, "it puts a space before texts");
    if (!plain) {
        bool fallback = json_is_true(json_object_get(json_object_get(json, "model"), "byte_fallback"));
        bpe.pre = NULL;
        if (fallback)
            TRY(find_sentencepiece(tokenizer, json, from, &bpe));
        else
            TRY(find_pre(json, from, &bpe.pre));
    }
    *ret_bpe = bpe;
    bpe.scores = NULL;
    return OK;
}
