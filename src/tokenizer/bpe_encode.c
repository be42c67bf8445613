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
    if (count > CACHED_IDS) return;
    set[1] = set[0];
    set[0].key = key;
    for (size_t i = 0; i < CACHED_IDS; i++) set[0].ids[i] = i < count ? ids[i] : -1;
}

/* Writes the tokens of an uncached word past the end of the list, which has room for `size` tokens; does not
 * update list->count. */
static Status add_uncached_word(const Encoder *encoder, const unsigned char *word, size_t size,
                                TokenList *list, size_t *ret_count) {
    const Bpe *bpe = encoder->tokenizer->model;
    BpeScratch *scratch = encoder->scratch;
    int32_t *ids = list->ids + list->count;
    if (bpe->ignore_merges) {
        char spelled[2 * 256];
        size_t length = 0;
        if (size <= sizeof spelled / 2)
            for (size_t i = 0; i < size; i++) length += bpe_spell(word[i], spelled + length);
        int32_t token = length ? vocab_find(&encoder->tokenizer->vocab, spelled, length) : -1;
        if (token >= 0) {
            ids[0] = token;
            *ret_count = 1;
            return OK;
        }
    }
    return bpe_merge(bpe, &scratch->merge, word, size, ids, ret_count);
}

/* Does not fill offsets; add_offsets derives them from the sizes of the tokens. */
static Status add_words(Encoder *encoder, const unsigned char *text, size_t size, TokenList *list) {
    BpeScratch *scratch = encoder->scratch;
    for (size_t at = 0; at < size;) {
        size_t word = word_size(text + at, size - at), count;
        if (list->capacity - list->count < word + CACHED_IDS)
            TRY(token_list_reserve(list, word + CACHED_IDS, false));
        if (word > CACHED_BYTES) {
            TRY(add_uncached_word(encoder, text + at, word, list, &count));
        } else {
            WordKey key = word_key(text + at, word, size - at);
            CachedWord *set = cache_set(scratch, key);
            if (!same_key(set[0].key, key)) {
                if (same_key(set[1].key, key)) {
                    CachedWord first = set[0];
                    set[0] = set[1];
                    set[1] = first;
                } else {
                    TRY(add_uncached_word(encoder, text + at, word, list, &count));
                    cache_put(set, key, list->ids + list->count, count);
                    list->count += count;
                    at += word;
                    continue;
                }
            }
            memcpy(list->ids + list->count, set[0].ids, sizeof set[0].ids);
            for (count = 1; count < CACHED_IDS && set[0].ids[count] >= 0;) count++;
        }
        list->count += count;
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
 * inserted by add_prefix_space. */
static Status add_offsets(const Encoder *encoder, size_t first, size_t base, size_t extra, TokenList *list) {
    const Bpe *bpe = encoder->tokenizer->model;
    TRY(token_list_reserve(list, 0, true));
    size_t at = 0;
    for (size_t i = first; i < list->count; i++) {
        size_t end = at + bpe->starts[list->ids[i] + 1] - bpe->starts[list->ids[i]];
        list->offsets[i] =
            (TokenOffset){base + (at > extra ? at - extra : 0), base + (end > extra ? end - extra : 0)};
        at = end;
    }
    return OK;
}

Status bpe_encode(Encoder *encoder, const char *text, size_t size, size_t base, TokenList *list) {
    const Bpe *bpe = encoder->tokenizer->model;
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
    return encoder->options.offsets ? add_offsets(encoder, first, base, extra, list) : OK;
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
    if (!bpe->use_regex) return 0;
    return bpe->add_prefix_space ? cut_at_space(text, size) : bpe_cut(text, size);
}
