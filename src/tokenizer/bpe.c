/* Byte-level BPE: the model built from a vocabulary and its merges.
 *
 * The vocabulary spells bytes as characters: printable bytes as themselves, the others, in order, as
 * characters from U+0100 on ("Ġ", U+0120, is a space). A token decodes to the bytes its characters stand for.
 * An added token decodes to its own name, normalized if it is matched in normalized text, and so does a token
 * with a character that does not stand for a byte.
 */
#include "tokenizer/bpe.h"

/* ---- spelling ---- */

static bool is_printable(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/* The bytes that are not printable are 0x00 - 0x20, 0x7F - 0xA0 and 0xAD; they map to 0x100 - 0x143. */
static uint32_t spelling_of(unsigned char byte) {
    if (is_printable(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    return byte == 0xAD ? 0x143 : 0x121u + (byte - 0x7Fu);
}

size_t bpe_spell(unsigned char byte, char out[2]) {
    uint32_t c = spelling_of(byte);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3F));
    return 2;
}

int bpe_unspell(uint32_t c) {
    if (c < 0x100) return is_printable((int)c) ? (int)c : -1;
    if (c <= 0x120) return (int)c - 0x100;
    if (c <= 0x142) return (int)(c - 0x121) + 0x7F;
    return c == 0x143 ? 0xAD : -1;
}

/* ---- merges ---- */

void bpe_free(void *model) {
    Bpe *bpe = model;
    if (!bpe) return;
    free(bpe->merges);
    free(bpe->merged);
    free(bpe->pair_keys);
    free(bpe->pair_ranks);
    free(bpe->text);
    free(bpe->starts);
    bpe_pipeline_free(bpe->pipeline);
    free(bpe);
}

static void bpe_freep(Bpe **bpe) {
    bpe_free(*bpe);
}

Status bpe_new(Bpe **ret_bpe, size_t merges) {
    if (merges > VOCAB_LIMIT) return FAILED("%zu merges, but at most %d are supported", merges, VOCAB_LIMIT);
    CLEANUP(bpe_freep) Bpe *bpe = NULL;
    TRY(mem_new(1, sizeof *bpe, &bpe));
    bpe->use_regex = true;
    TRY(mem_new(merges, sizeof *bpe->merges, &bpe->merges));
    TRY(mem_new(merges, sizeof *bpe->merged, &bpe->merged));
    int bits = 4;
    while ((size_t)1 << bits < merges * 2) bits++;
    bpe->pair_shift = 64 - bits;
    bpe->pair_mask = ((size_t)1 << bits) - 1;
    TRY(mem_new(bpe->pair_mask + 1, sizeof *bpe->pair_keys, &bpe->pair_keys));
    TRY(mem_new(bpe->pair_mask + 1, sizeof *bpe->pair_ranks, &bpe->pair_ranks));
    memset(bpe->pair_keys, 0xFF, (bpe->pair_mask + 1) * sizeof *bpe->pair_keys);
    return MOVE(ret_bpe, bpe);
}

/* The table has room: bpe_new sized it for all merges. */
static Status put_merge(Bpe *bpe, BpeMerge merge, int32_t merged, const char *where) {
    int32_t before = bpe_rank(bpe, merge.left, merge.right);
    if (before != RANK_NONE) return FAILED("%s: duplicate of merge %d", where, before + 1);
    uint64_t key = (uint64_t)(uint32_t)merge.left << 32 | (uint32_t)merge.right;
    size_t at = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> bpe->pair_shift);
    while (bpe->pair_keys[at] != PAIR_EMPTY) at = (at + 1) & bpe->pair_mask;
    bpe->pair_keys[at] = key;
    bpe->pair_ranks[at] = (int32_t)bpe->merge_count;
    bpe->merges[bpe->merge_count] = merge;
    bpe->merged[bpe->merge_count++] = merged;
    return OK;
}

static Status find_part(const Vocab *vocab, const char *token, size_t size, const char *where,
                        int32_t *ret_id) {
    int32_t id = vocab_find(vocab, token, size);
    if (id < 0)
        return FAILED("%s: '%.*s' is not in the vocabulary", where, size > 60 ? 60 : (int)size, token);
    *ret_id = id;
    return OK;
}

static Status find_merged(const Vocab *vocab, const char *left, size_t left_size, const char *right,
                          size_t right_size, const char *where, int32_t *ret_id) {
    CLEANUP(bytes_done) Bytes both = {0};
    TRY(bytes_add(&both, left, left_size));
    TRY(bytes_add(&both, right, right_size));
    return find_part(vocab, both.data, both.size, where, ret_id);
}

Status bpe_add_merge(Bpe *bpe, const Vocab *vocab, const char *left, size_t left_size, const char *right,
                     size_t right_size, const char *where) {
    BpeMerge merge = {0};
    int32_t merged = 0;
    TRY(find_part(vocab, left, left_size, where, &merge.left));
    TRY(find_part(vocab, right, right_size, where, &merge.right));
    TRY(find_merged(vocab, left, left_size, right, right_size, where, &merged));
    return put_merge(bpe, merge, merged, where);
}

/* ---- derived tables ---- */

static Status find_bytes(Bpe *bpe, const Vocab *vocab, const char *from) {
    for (int byte = 0; byte < 256; byte++) {
        char spelled[2];
        size_t size = bpe_spell((unsigned char)byte, spelled);
        bpe->byte_ids[byte] = vocab_find(vocab, spelled, size);
        if (bpe->byte_ids[byte] < 0)
            return FAILED(
                "%s: the vocabulary has no token '%.*s' for byte 0x%02X; all 256 bytes are required", from,
                (int)size, spelled, byte);
    }
    return OK;
}

size_t bpe_unspell_text(const char *token, size_t size, char *out) {
    size_t count = 0;
    for (size_t at = 0; at < size;) {
        uint32_t c;
        at += utf8_next(token + at, size - at, &c);
        int byte = bpe_unspell(c);
        if (byte < 0) {
            memcpy(out, token, size);
            return size;
        }
        out[count++] = (char)byte;
    }
    return count;
}

static Status fill_text(Bpe *bpe, const Tokenizer *tokenizer) {
    const Vocab *vocab = &tokenizer->vocab;
    size_t next = 0; /* added tokens are sorted by id */
    TRY(mem_new((size_t)vocab->count + 1, sizeof *bpe->starts, &bpe->starts));
    size_t used = 0, capacity = 0;
    TRY(mem_grow(&bpe->text, &capacity, vocab->text.size, 1));
    CLEANUP(bytes_done) Bytes out = {0};
    for (int32_t id = 0; id < vocab->count; id++) {
        size_t size;
        const char *token = vocab_token(vocab, id, &size);
        bool added = next < tokenizer->added_count && tokenizer->added[next].id == id;
        if (added) token = tokenizer->added[next].name, size = tokenizer->added[next++].name_size;
        bpe->starts[id] = used;
        TRY(mem_grow(&bpe->text, &capacity, used + size + 1, 1));
        if (bpe->pipeline && bpe->pipeline->chars) {
            out.size = 0;
            TRY(bpe_decoder_token(bpe->pipeline->decoder, token, size, false, &out));
            TRY(mem_grow(&bpe->text, &capacity, used + out.size + 1, 1));
            if (out.size) memcpy(bpe->text + used, out.data, out.size);
            used += out.size;
        } else if (added) {
            memcpy(bpe->text + used, token, size);
            used += size;
        } else {
            used += bpe_unspell_text(token, size, bpe->text + used);
        }
    }
    bpe->starts[vocab->count] = used;
    return OK;
}

/* Without a normalizer the flag only decides which pass matches a token. If all tokens have it, clear it. */
static void clear_normalized_flags(Tokenizer *tokenizer) {
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (!tokenizer->added[i].normalized) return;
    for (size_t i = 0; i < tokenizer->added_count; i++) tokenizer->added[i].normalized = false;
}

/* An added token decodes to its name. It must not also be the token of a byte or the result of a merge,
 * unless both decode to the same bytes. */
static Status check_added(const Bpe *bpe, const Tokenizer *tokenizer, const char *from) {
    CLEANUP(mem_freep) unsigned char *made = NULL;
    CLEANUP(mem_freep) char *bytes = NULL;
    TRY(mem_new((size_t)tokenizer->vocab.count, 1, &made));
    TRY(mem_new(TOKEN_LIMIT, 1, &bytes));
    for (int byte = 0; byte < 256; byte++) made[bpe->byte_ids[byte]] = 1;
    for (size_t rank = 0; rank < bpe->merge_count; rank++) made[bpe->merged[rank]] = 1;
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        size_t size;
        int32_t id = tokenizer->added[i].id;
        const char *token = vocab_token(&tokenizer->vocab, id, &size);
        if (!made[id] || (bpe_unspell_text(token, size, bytes) == size && !memcmp(bytes, token, size)))
            continue;
        return FAILED("%s: added token '%.*s' is also the result of a merge or a byte's token, so its "
                      "decoding is ambiguous",
                      from, size > 60 ? 60 : (int)size, token);
    }
    return OK;
}

Status bpe_finish(Tokenizer *tokenizer, const char *from) {
    Bpe *bpe = tokenizer->model;
    TRY(vocab_check(&tokenizer->vocab, from));
    tokenizer->normalizes = false;
    if (bpe->pipeline) TRY(bpe_pipeline_finish(tokenizer, from));
    if (!bpe->pipeline || !bpe->pipeline->chars) {
        TRY(find_bytes(bpe, &tokenizer->vocab, from));
        TRY(check_added(bpe, tokenizer, from));
    }
    if (!tokenizer->normalizes) clear_normalized_flags(tokenizer);
    TRY(tokenizer_finish(tokenizer, from));
    return fill_text(bpe, tokenizer);
}

Status bpe_set_byte_level(Tokenizer *tokenizer, const char *from) {
    json_t *json = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 1,
                             "trim_offsets", 0, "use_regex", 1);
    return json ? post_processor_set(tokenizer, json, from) : FAILED("%s: out of memory", from);
}

Status tokenizer_new_bpe(Tokenizer **ret_tokenizer, Vocab *vocab, const BpeMerge *merges, size_t merge_count,
                         const int32_t *special, size_t special_count) {
    const char *from = "the trained vocabulary";
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(vocab_done) Vocab taken = *vocab;
    *vocab = (Vocab){0};
    TRY(tokenizer_new(&tokenizer, &tokenizer_ops_bpe));
    tokenizer->vocab = taken;
    taken = (Vocab){0};
    Bpe *bpe = NULL;
    TRY(bpe_new(&bpe, merge_count));
    tokenizer->model = bpe;
    for (size_t i = 0; i < special_count; i++)
        TRY(tokenizer_add(tokenizer, (AddedToken){.id = special[i], .special = true}, from));
    for (size_t i = 0; i < merge_count; i++) {
        size_t left, right;
        const char *left_text = vocab_token(&tokenizer->vocab, merges[i].left, &left);
        const char *right_text = vocab_token(&tokenizer->vocab, merges[i].right, &right);
        TRY(bpe_add_merge(bpe, &tokenizer->vocab, left_text, left, right_text, right, from));
    }
    TRY(bpe_finish(tokenizer, from));
    TRY(bpe_set_byte_level(tokenizer, from));
    return MOVE(ret_tokenizer, tokenizer);
}

/* ---- TokenizerOps ---- */

static Status decode(const Tokenizer *tokenizer, DecodeState *state, int32_t id, Bytes *out) {
    const Bpe *bpe = tokenizer->model;
    const char *text = bpe->text + bpe->starts[id];
    const char *token;
    size_t size = bpe->starts[id + 1] - bpe->starts[id], token_size;
    if (!bpe->pipeline || !bpe->pipeline->chars) {
        if (!bpe->undecoded) return bytes_add(out, text, size);
        if (state->count > 0) TRY(bytes_add(out, " ", 1));
        token = added_name(tokenizer, id, &token_size);
        return bytes_add(out, token, token_size);
    }
    token = added_name(tokenizer, id, &token_size);
    return bpe_decoder_add(bpe->pipeline->decoder, state, token, token_size, text, size, out);
}

static Status decode_end(const Tokenizer *tokenizer, DecodeState *state, Bytes *out) {
    const Bpe *bpe = tokenizer->model;
    bool chars = bpe->pipeline && bpe->pipeline->chars;
    return chars ? bpe_decoder_end(bpe->pipeline->decoder, state, out) : OK;
}

static Status normalize(const Tokenizer *tokenizer, const char *text, size_t size, NormalText *normal) {
    const Bpe *bpe = tokenizer->model;
    return normalizer_run(bpe->pipeline->normalizer, text, size, false, normal);
}

static uint64_t fingerprint(const Tokenizer *tokenizer, uint64_t hash) {
    const Bpe *bpe = tokenizer->model;
    hash = fingerprint_number(
        hash, (uint64_t)(bpe->add_prefix_space | bpe->ignore_merges << 1 | !bpe->use_regex << 2));
    hash = fingerprint_number(hash, bpe->merge_count);
    for (size_t i = 0; i < bpe->merge_count; i++)
        hash = fingerprint_number(hash, (uint64_t)bpe->merges[i].left << 32 | (uint32_t)bpe->merges[i].right);
    return bpe->pipeline ? fingerprint_number(hash, bpe->pipeline->hash) : hash;
}

#define BPE_OPS                                                                                              \
    .encoder_init = bpe_encoder_init, .encoder_done = bpe_encoder_done, .encode = bpe_encode,                \
    .cut = bpe_encoder_cut, .normalize = normalize, .decode = decode, .decode_end = decode_end,              \
    .save = bpe_save, .fingerprint = fingerprint, .free = bpe_free

const TokenizerOps tokenizer_ops_bpe = {.kind = TOKENIZER_BPE, .name = "bpe", BPE_OPS},
                   tokenizer_ops_pieces = {.kind = TOKENIZER_WORDPIECE, .name = "wordpiece", BPE_OPS},
                   tokenizer_ops_wordlevel = {.kind = TOKENIZER_WORDLEVEL, .name = "wordlevel", BPE_OPS};
