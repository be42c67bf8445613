/* Positions are selected by selection sampling: each of the n candidates is selected with probability needed
 * / left, which yields exactly the required number and makes all subsets equally likely. Each position uses
 * four random words: two for the selection, one for the kind of replacement, one for the random token. Whole
 * words are visited in random order, and those that still fit are selected. */
#include "data/mask.h"

#include <math.h>

static void add_special(Masking *masking, int32_t token) {
    if (token < 0) return;
    int at = 0;
    while (at < masking->special_count && masking->special[at] < token) at++;
    if (at < masking->special_count && masking->special[at] == token) return;
    for (int i = masking->special_count; i > at; i--) masking->special[i] = masking->special[i - 1];
    masking->special[at] = token;
    masking->special_count++;
}

Masking masking_from(const DataSpec *spec) {
    Masking masking = {.rate = spec->mask_rate,
                       .vocab = spec->vocab,
                       .mask = spec->special.mask,
                       .continues = spec->continues};
    add_special(&masking, spec->special.pad);
    add_special(&masking, spec->special.cls);
    add_special(&masking, spec->special.sep);
    add_special(&masking, spec->special.mask);
    return masking;
}

static bool is_special(const Masking *masking, int32_t token) {
    for (int i = 0; i < masking->special_count; i++)
        if (masking->special[i] == token) return true;
    return false;
}

/* Maps `draw` to a token that is not special. */
static int32_t random_token(const Masking *masking, uint32_t draw) {
    uint64_t ordinary = (uint64_t)(masking->vocab - masking->special_count);
    int32_t token = (int32_t)((draw * ordinary) >> 32);
    for (int i = 0; i < masking->special_count; i++) token += token >= masking->special[i];
    return token;
}

static int32_t shown_token(const Masking *masking, int32_t token, const uint32_t draw[4]) {
    double kind = draw[2] * 0x1p-32;
    if (kind < 0.8) return masking->mask;
    return kind < 0.9 ? random_token(masking, draw[3]) : token;
}

/* ---- whole words ---- */

/* End of the word that begins at t. */
static int64_t word_end(const Masking *masking, const int32_t *tokens, int64_t t, int64_t count) {
    for (t++; t < count && masking->continues[tokens[t]] && !is_special(masking, tokens[t]);) t++;
    return t;
}

/* Selects words until `needed` tokens are selected. `word` (n) contains the start of each word; a selected
 * entry s becomes -s - 1. */
static void select_words(const Masking *masking, RngKey key, const int32_t *tokens, int64_t count,
                         int32_t *word, int64_t n, int64_t needed) {
    RngKey order = {.key = rng_mix(key.key, 1), .step = key.step};
    bool any = false;
    for (int64_t i = 0; i < n && needed > 0; i++) {
        int32_t *at = &word[rng_permute(order, (uint64_t)i, (uint64_t)n)];
        int64_t size = word_end(masking, tokens, *at, count) - *at;
        if (size > needed) continue;
        needed -= size;
        *at = -*at - 1;
        any = true;
    }
    if (any || n == 0) return;
    int32_t *at = &word[rng_permute(order, 0, (uint64_t)n)];
    *at = -*at - 1;
}

/* The word list is kept at the start of `labels`. Entry i never lies after its word's positions, so labels
 * can overwrite the list from the last word to the first. */
static void mask_words(const Masking *masking, RngKey key, int32_t *tokens, int32_t *labels, int64_t count,
                       int64_t needed) {
    int64_t n = 0, stop = count;
    for (int64_t t = 0; t < count;) {
        bool word = !is_special(masking, tokens[t]);
        if (word) labels[n++] = (int32_t)t;
        t = word ? word_end(masking, tokens, t, count) : t + 1;
    }
    select_words(masking, key, tokens, count, labels, n, needed);
    for (int64_t i = n - 1; i >= 0; i--) {
        bool selected = labels[i] < 0;
        int64_t begin = selected ? -(int64_t)labels[i] - 1 : labels[i];
        int64_t end = word_end(masking, tokens, begin, stop);
        for (int64_t t = begin; t < stop; t++) {
            labels[t] = LABEL_IGNORED;
            if (!selected || t >= end) continue;
            uint32_t draw[4];
            rng_block(key, (uint64_t)t, draw);
            labels[t] = tokens[t];
            tokens[t] = shown_token(masking, tokens[t], draw);
        }
        stop = begin;
    }
    for (int64_t t = 0; t < stop; t++) labels[t] = LABEL_IGNORED;
}

void masking_apply(const Masking *masking, RngKey key, int32_t *tokens, int32_t *labels, int64_t count) {
    int64_t left = 0;
    for (int64_t t = 0; t < count; t++) left += !is_special(masking, tokens[t]);
    int64_t needed = llround(masking->rate * (double)left);
    if (needed < 1) needed = 1;
    if (masking->continues) {
        mask_words(masking, key, tokens, labels, count, needed);
        return;
    }
    for (int64_t t = 0; t < count; t++) {
        labels[t] = LABEL_IGNORED;
        if (is_special(masking, tokens[t])) continue;
        uint32_t draw[4];
        rng_block(key, (uint64_t)t, draw);
        uint64_t wide = (uint64_t)draw[0] << 32 | draw[1];
        uint64_t choice = (uint64_t)(((unsigned __int128)wide * (uint64_t)left) >> 64);
        left--;
        if (choice >= (uint64_t)needed) continue;
        needed--;
        labels[t] = tokens[t];
        tokens[t] = shown_token(masking, tokens[t], draw);
    }
}
