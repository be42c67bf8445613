/* BPE encoding: split off a word, look it up in the cache, merge it on a miss.
 *
 * The cache is a fixed-size table per encoder. A word of up to 15 bytes makes a 16-byte key with the size in
 * the last byte, so a lookup compares two 64-bit values. Results of up to CACHED_IDS tokens are cached. Sets
 * have two entries, and a new word evicts the least recently used.
 */
#include "tokenizer/bpe.h"
#include "tokenizer/bpe_pretokenize.h"

enum { CACHED_BYTES = 15, CACHED_IDS = 4, CACHE_BITS = 15 };

typedef struct WordKey {
    uint64_t low, high;
} WordKey;

typedef struct CachedWord {
    WordKey key;             /* all zero: empty slot, since no word has size 0 */
    int32_t ids[CACHED_IDS]; /* unused entries are -1 */
} CachedWord;

typedef struct BpeScratch {
    CachedWord *cache; /* sets of two, most recently used first */
    MergeScratch merge;
    Bytes prefixed;
    /* pipelines only: */
    NormalText normal;
    PretokenizerScratch pre;
    int32_t *symbols; /* of a word, before merging; for offsets */
    uint32_t *lengths;
    size_t symbol_capacity, length_capacity;
} BpeScratch;

Status bpe_encoder_init(Encoder *encoder) {
    BpeScratch *scratch = NULL;
    TRY(mem_new(1, sizeof *scratch, &scratch));
    encoder->scratch = scratch;
    return mem_new((size_t)2 << CACHE_BITS, sizeof *scratch->cache, &scratch->cache);
}

void bpe_encoder_done(Encoder *encoder) {
    BpeScratch *scratch = encoder->scratch;
    if (!scratch) return;
    merge_scratch_done(&scratch->merge);
    bytes_done(&scratch->prefixed);
    normal_text_done(&scratch->normal);
    pretokenizer_scratch_done(&scratch->pre);
    free(scratch->symbols);
    free(scratch->lengths);
    free(scratch->cache);
    free(scratch);
}

/* `readable`: bytes that may be read from `word` on, at least `size`. */
static inline WordKey word_key(const unsigned char *word, size_t size, size_t readable) {
    unsigned char bytes[16] = {0};
    WordKey key;
    if (__builtin_expect(readable >= 16, 1)) {
        memcpy(&key, word, 16);
    } else {
        memcpy(bytes, word, size);
        memcpy(&key, bytes, 16);
    }
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (size < 8) {
        key.low &= (UINT64_C(1) << size * 8) - 1;
        key.high = 0;
    } else {
        key.high &= (UINT64_C(1) << (size - 8) * 8) - 1;
    }
#else
    memset(bytes, 0, 16);
    memcpy(bytes, word, size);
    memcpy(&key, bytes, 16);
#endif
    key.high |= (uint64_t)size << 56;
    return key;
}

static inline bool same_key(WordKey a, WordKey b) {
    return ((a.low ^ b.low) | (a.high ^ b.high)) == 0;
}

static inline CachedWord *cache_set(const BpeScratch *scratch, WordKey key) {
    uint64_t hash = (key.low ^ key.high * UINT64_C(0xD6E8FEB86659FD93)) * UINT64_C(0x9E3779B97F4A7C15);
    return scratch->cache + 2 * (hash >> (64 - CACHE_BITS));
}

static void cache_put(CachedWord *set, WordKey key, const int32_t *ids, size_t count) {
    if (count == 0 || count > CACHED_IDS) return;
    set[1] = set[0];
    set[0].key = key;
    for (size_t i = 0; i < CACHED_IDS; i++) set[0].ids[i] = i < count ? ids[i] : -1;
}

/* The token of a complete word, or -1. */
static int32_t find_word(const Tokenizer *tokenizer, const unsigned char *word, size_t size) {
    const Bpe *bpe = tokenizer->model;
    char spelled[2 * 256];
    size_t length = 0;
    if (bpe->pipeline && bpe->pipeline->chars)
        return size <= TOKEN_LIMIT ? vocab_find_model(&tokenizer->vocab, (const char *)word, size) : -1;
    if (size > sizeof spelled / 2) return -1;
    for (size_t i = 0; i < size; i++) length += bpe_spell(word[i], spelled + length);
    return vocab_find_model(&tokenizer->vocab, spelled, length);
}

/* Writes the tokens of an uncached word past the end of the list, which has room for `size` tokens; does not
 * update list->count. */
static Status add_uncached_word(const Encoder *encoder, const unsigned char *word, size_t size,
                                TokenList *list, size_t *ret_count) {
    const Tokenizer *tokenizer = encoder->tokenizer;
    const Bpe *bpe = tokenizer->model;
    BpeScratch *scratch = encoder->scratch;
    int32_t *ids = list->ids + list->count,
            token = bpe->ignore_merges ? find_word(tokenizer, word, size) : -1;
    if (token >= 0) {
        ids[0] = token;
        *ret_count = 1;
        return OK;
    }
    if (bpe->pipeline && bpe->pipeline->chars)
        size = bpe_pipeline_symbols(bpe->pipeline, &tokenizer->vocab, (const char *)word, size, ids, NULL);
    else
        for (size_t i = 0; i < size; i++) ids[i] = bpe->byte_ids[word[i]];
    return bpe_merge(bpe, &scratch->merge, ids, size, ret_count);
}

/* Appends the tokens of a word; `readable`: bytes that may be read from it on, at least `size`. Does not fill
 * offsets. */
static inline __attribute__((always_inline)) Status add_word(Encoder *encoder, const unsigned char *word,
                                                             size_t size, size_t readable, TokenList *list) {
    BpeScratch *scratch = encoder->scratch;
    size_t count;
    if (list->capacity - list->count < size + CACHED_IDS)
        TRY(token_list_reserve(list, size + CACHED_IDS, false));
    if (size > CACHED_BYTES) {
        TRY(add_uncached_word(encoder, word, size, list, &count));
        list->count += count;
        return OK;
    }
    WordKey key = word_key(word, size, readable);
    CachedWord *set = cache_set(scratch, key);
    if (!same_key(set[0].key, key)) {
        if (!same_key(set[1].key, key)) {
            TRY(add_uncached_word(encoder, word, size, list, &count));
            cache_put(set, key, list->ids + list->count, count);
            list->count += count;
            return OK;
        }
        CachedWord first = set[0];
        set[0] = set[1];
        set[1] = first;
    }
    memcpy(list->ids + list->count, set[0].ids, sizeof set[0].ids);
    for (count = 1; count < CACHED_IDS && set[0].ids[count] >= 0;) count++;
    list->count += count;
    return OK;
}

/* Does not fill offsets; add_offsets derives them from the sizes of the tokens. */
static Status add_words(Encoder *encoder, const unsigned char *text, size_t size, TokenList *list) {
    for (size_t at = 0; at < size;) {
        size_t word = word_size(text + at, size - at);
        TRY(add_word(encoder, text + at, word, size - at, list));
        at += word;
    }
    return OK;
}

static Status add_one_word(Encoder *encoder, const unsigned char *text, size_t size, TokenList *list) {
    size_t count = 0;
    TRY(token_list_reserve(list, size, false));
    TRY(add_uncached_word(encoder, text, size, list, &count));
    list->count += count;
    return OK;
}

/* The tokens from index `first` on are contiguous and start at offset `base`. The first `extra` bytes were
 * inserted by add_prefix_space; as in Hugging Face, a token of these alone is at the first character, of
 * `lead` bytes. */
static Status add_offsets(const Encoder *encoder, size_t first, size_t base, size_t extra, size_t lead,
                          TokenList *list) {
    const Bpe *bpe = encoder->tokenizer->model;
    TRY(token_list_reserve(list, 0, true));
    size_t at = 0;
    for (size_t i = first; i < list->count; i++) {
        size_t end = at + bpe->starts[list->ids[i] + 1] - bpe->starts[list->ids[i]];
        list->offsets[i] =
            (TokenOffset){base + (at > extra ? at - extra : 0), base + (end > extra ? end - extra : lead)};
        at = end;
    }
    return OK;
}

/* ---- pipelines ---- */

typedef struct Adding {
    Encoder *encoder;
    TokenList *list;
} Adding;

/* The end of the word at `at`: a run of spaces and the characters up to the next space. */
static size_t spaced_word(const BpePipeline *pipeline, const Piece *piece, size_t at) {
    const char *text = piece->text, *found;
    size_t space = pipeline->space_size, size = piece->size;
    while (size - at >= space && !memcmp(text + at, pipeline->space, space)) at += space;
    for (; at < size && (found = memchr(text + at, pipeline->space[0], size - at)); at++) {
        at = (size_t)(found - text);
        if (size - at >= space && !memcmp(found, pipeline->space, space)) return at;
    }
    return size;
}

/* Offsets of the tokens of one word of bytes, from index `first` of the list on. */
static void place_bytes(const Bpe *bpe, const Piece *piece, size_t at, size_t first, TokenList *list) {
    for (size_t i = first; i < list->count; i++) {
        size_t end = at + bpe->starts[list->ids[i] + 1] - bpe->starts[list->ids[i]];
        if (end > piece->size) end = piece->size; /* a normalized added token decodes to another length */
        list->offsets[i] = piece_offset(piece, at < end ? at : end - 1, end);
        at = end;
    }
}

/* The same for a word of characters. A token is spelled like the symbols it was merged from, so their
 * spellings tell which they are; an unknown token may stand for any number of bytes. */
static Status place_chars(Encoder *encoder, const Piece *piece, size_t at, size_t end, size_t first,
                          TokenList *list) {
    const Bpe *bpe = encoder->tokenizer->model;
    const Vocab *vocab = &encoder->tokenizer->vocab;
    BpeScratch *scratch = encoder->scratch;
    if (list->count - first == 1) {
        list->offsets[first] = piece_offset(piece, at, end);
        return OK;
    }
    TRY(mem_grow(&scratch->symbols, &scratch->symbol_capacity, end - at, sizeof *scratch->symbols));
    TRY(mem_grow(&scratch->lengths, &scratch->length_capacity, end - at, sizeof *scratch->lengths));
    size_t count = bpe_pipeline_symbols(bpe->pipeline, vocab, piece->text + at, end - at, scratch->symbols,
                                        scratch->lengths),
           symbol = 0;
    for (size_t i = first; i < list->count; i++) {
        size_t start = at, spelled = vocab->entries[list->ids[i]].size;
        if (bpe->pipeline->words) spelled = 1; /* nothing was merged */
        for (bool more = true; more && symbol<count; more = spelled> 0) {
            at += scratch->lengths[symbol];
            size_t part = vocab->entries[scratch->symbols[symbol++]].size;
            spelled -= part < spelled ? part : spelled;
        }
        list->offsets[i] = piece_offset(piece, start < at ? start : at - 1, at);
    }
    return OK;
}

static Status add_piece(void *context, const Piece *piece) {
    const Adding *adding = context;
    Encoder *encoder = adding->encoder;
    const Bpe *bpe = encoder->tokenizer->model;
    TokenList *list = adding->list;
    for (size_t at = 0, end; at < piece->size; at = end) {
        size_t first = list->count;
        end = bpe->pipeline->space_size ? spaced_word(bpe->pipeline, piece, at) : piece->size;
        TRY(add_word(encoder, (const unsigned char *)piece->text + at, end - at, piece->size - at, list));
        if (!encoder->options.offsets) continue;
        TRY(token_list_reserve(list, 0, true));
        if (bpe->pipeline->chars)
            TRY(place_chars(encoder, piece, at, end, first, list));
        else
            place_bytes(bpe, piece, at, first, list);
    }
    return OK;
}

/* Normalizes a span unless that was done, and passes it to the pre-tokenizer. */
static Status encode_pipeline(Encoder *encoder, const char *text, size_t size, size_t base, TokenList *list) {
    const BpePipeline *pipeline = ((const Bpe *)encoder->tokenizer->model)->pipeline;
    BpeScratch *scratch = encoder->scratch;
    size_t origin = encoder->normal ? encoder->origin + encoder->normal->offsets[base].start : base;
    bool start = origin == 0;
    Piece piece = {.text = text, .size = size, .base = base, .starts = start && !encoder->continues};
    Adding adding = {encoder, list};
    if (pipeline->normalizer && !encoder->normal && !normalizer_keeps(pipeline->normalizer, text, size)) {
        NormalText *normal = &scratch->normal;
        normal->text.size = 0;
        normal->plain = !encoder->options.offsets && !pretokenizer_prefixes(pipeline->pre);
        TRY(normalizer_run(pipeline->normalizer, text, size, start && encoder->continues, normal));
        for (size_t i = 0; !normal->plain && base > 0 && i < normal->text.size; i++) {
            normal->offsets[i].start += base;
            normal->offsets[i].end += base;
        }
        piece.text = normal->text.data;
        piece.size = normal->text.size;
        if (!normal->plain) piece.offsets = normal->offsets;
        if (piece.offsets && piece.size > 0) piece.starts &= piece.offsets[0].start == 0;
    }
    return pretokenizer_run(pipeline->pre, &scratch->pre, &piece, encoder->options.offsets, add_piece,
                            &adding);
}

Status bpe_encode(Encoder *encoder, const char *text, size_t size, size_t base, TokenList *list) {
    const Bpe *bpe = encoder->tokenizer->model;
    if (bpe->pipeline) return encode_pipeline(encoder, text, size, base, list);
    Bytes *prefixed = &((BpeScratch *)encoder->scratch)->prefixed;
    size_t first = list->count, extra = bpe->add_prefix_space && text[0] != ' ';
    if (extra) {
        prefixed->size = 0;
        TRY(bytes_add(prefixed, " ", 1));
        TRY(bytes_add(prefixed, text, size));
        text = prefixed->data;
        size = prefixed->size;
    }
    TRY(bpe->use_regex ? add_words(encoder, (const unsigned char *)text, size, list)
                       : add_one_word(encoder, (const unsigned char *)text, size, list));
    if (!encoder->options.offsets) return OK;
    uint32_t c;
    size_t lead = extra ? utf8_next(text + extra, size - extra, &c) : 0;
    return add_offsets(encoder, first, base, extra, lead, list);
}

/* With add_prefix_space, the text after the cut must start with a space: one that is not both preceded and
 * followed by whitespace. */
static size_t cut_at_space(const char *text, size_t size) {
    size -= utf8_unfinished(text, size);
    for (size_t end = size; end > 0;) {
        const char *space = memrchr(text, ' ', end);
        if (!space) break;
        size_t at = (size_t)(space - text);
        uint32_t after = ' ', before = ' ';
        if (at + 1 < size) utf8_next(text + at + 1, size - at - 1, &after);
        if (at > 0) utf8_previous(text, at, &before);
        if (!char_is_space(after) || !char_is_space(before)) return at;
        end = at;
    }
    return 0;
}

size_t bpe_encoder_cut(const Encoder *encoder, const char *text, size_t size) {
    const Bpe *bpe = encoder->tokenizer->model;
    if (bpe->pipeline) {
        size_t cut = 0;
        BpeScratch *scratch = encoder->scratch;
        CLEANUP(status_freep)
        Status status = bpe_pipeline_cut(bpe->pipeline, &scratch->pre, text, size, &cut);
        return status ? 0 : cut;
    }
    if (!bpe->use_regex) return 0;
    return bpe->add_prefix_space ? cut_at_space(text, size) : bpe_cut(text, size);
}
