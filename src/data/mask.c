/* Picks are drawn by selection sampling: walking over the n positions that qualify, each is taken with
 * probability needed / left, which takes exactly the wanted number and makes every choice of them
 * equally likely. Four words of the generator serve one position: two for the choice, one for what is
 * shown there, one for the random token. */
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
    Masking masking = {.rate = spec->mask_rate, .vocab = spec->vocab, .mask = spec->special.mask};
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

/* Any token but the special ones: number `draw` of those that remain. */
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

void masking_apply(const Masking *masking, RngKey key, int32_t *tokens, int32_t *labels, int64_t count) {
    int64_t left = 0;
    for (int64_t t = 0; t < count; t++) left += !is_special(masking, tokens[t]);
    int64_t needed = llround(masking->rate * (double)left);
    if (needed < 1) needed = 1;
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
