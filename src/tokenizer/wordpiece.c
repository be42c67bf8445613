/* WordPiece encoding for BERT: each word of bert_pretokenize.h is split from left to right into the longest
 * matching pieces. A word that cannot be split, or that exceeds max_word_chars (usually 100), becomes a
 * single [UNK].
 *
 * Two fast paths. English is mostly ASCII letters, so eight bytes at a time are classified and lowercased
 * in registers and the result is looked up; the general path takes over where a word does not end in ASCII
 * whitespace or punctuation. And words repeat: each encoder caches the pieces of words of up to 16 bytes
 * in a fixed-size table, where a new word replaces an older one. The general path stores at most
 * max_word_chars characters of a word, so longer words must not be cached under what is stored. */
#include "tokenizer/wordpiece.h"

#include "tokenizer/bert_pretokenize.h"

enum { KEY_BYTES = 16, CACHE_BITS = 14, CACHED_PIECES = 3 };

/* A word of up to KEY_BYTES bytes, zero-padded, and its pieces. */
typedef struct Cached {
    uint64_t key[2];
    int32_t count; /* number of ids; 0: empty slot */
    int32_t ids[CACHED_PIECES];
} Cached;

typedef struct Scratch {
    BertPretokenizer pre;
    Cached *cache;
} Scratch;

/* ---- the model ---- */

static Status make_tries(WordPiece *model, const Vocab *vocab) {
    const size_t prefix = strlen(WORDPIECE_PREFIX);
    CLEANUP(mem_freep) TrieEntry *starts = NULL, *continuations = NULL;
    TRY(mem_new((size_t)vocab->count, sizeof *starts, &starts));
    TRY(mem_new((size_t)vocab->count, sizeof *continuations, &continuations));
    size_t start_count = 0, continuation_count = 0;
    for (int32_t id = 0; id < vocab->count; id++) {
        size_t size;
        const char *text = vocab_token(vocab, id, &size);
        if (!model->is_piece[id] || size == 0) continue;
        starts[start_count++] = (TrieEntry){text, (uint32_t)size, id};
        if (size > prefix && !memcmp(text, WORDPIECE_PREFIX, prefix))
            continuations[continuation_count++] = (TrieEntry){text + prefix, (uint32_t)(size - prefix), id};
    }
    TRY(trie_new(&model->starts, starts, start_count));
    return trie_new(&model->continuations, continuations, continuation_count);
}

static Status make_model(Tokenizer *tokenizer, const WordPieceSpec *spec, const char *from) {
    const Vocab *vocab = &tokenizer->vocab;
    WordPiece *model;
    TRY(mem_new(1, sizeof *model, &model));
    tokenizer->model = model;
    model->max_word_chars = spec->max_word_chars;
    model->joins = spec->joins;
    model->clean_up = spec->clean_up;
    TRY(mem_new((size_t)vocab->count, 1, &model->is_piece));
    for (int32_t id = 0; id < vocab->count; id++)
        model->is_piece[id] = spec->is_piece ? spec->is_piece[id] : true;
    model->unk = vocab_find(vocab, spec->unk, strlen(spec->unk));
    if (model->unk < 0 || !model->is_piece[model->unk])
        return FAILED("%s: the vocabulary has no '%.60s', which is required for unknown words", from,
                      spec->unk);
    TRY(bert_chars_new(&model->chars, &spec->settings));
    return make_tries(model, vocab);
}

static void set_role(const Tokenizer *tokenizer, const char *spelling, int32_t *id) {
    int32_t found = spelling ? vocab_find(&tokenizer->vocab, spelling, strlen(spelling)) : -1;
    if (found >= 0) *id = found;
}

Status wordpiece_finish(Tokenizer *tokenizer, const WordPieceSpec *spec,
                        const char *const roles[WORDPIECE_ROLES], const char *from) {
    TRY(make_model(tokenizer, spec, from));
    TRY(tokenizer_finish(tokenizer, from));
    SpecialTokens *found = &tokenizer->roles;
    int32_t *const ids[WORDPIECE_ROLES] = {&found->pad, &found->unk, &found->cls, &found->sep, &found->mask};
    for (int i = 0; i < WORDPIECE_ROLES; i++) set_role(tokenizer, roles[i], ids[i]);
    found->unk = ((const WordPiece *)tokenizer->model)->unk;
    return OK;
}

static void wordpiece_free(void *pointer) {
    WordPiece *model = pointer;
    if (!model) return;
    bert_chars_free(model->chars);
    trie_free(model->starts);
    trie_free(model->continuations);
    free(model->is_piece);
    free(model);
}

static uint64_t fingerprint_wordpiece(const Tokenizer *tokenizer, uint64_t hash) {
    const WordPiece *model = tokenizer->model;
    const BertSettings *settings = &model->chars->settings;
    hash = fingerprint_number(hash, (uint64_t)(settings->clean_text | settings->handle_chinese_chars << 1 |
                                               settings->strip_accents << 2 | settings->lowercase << 3));
    hash = fingerprint_number(hash, (uint64_t)model->unk);
    hash = fingerprint_number(hash, (uint64_t)model->max_word_chars);
    for (int32_t id = 0; id < tokenizer->vocab.count; id++)
        if (!model->is_piece[id]) hash = fingerprint_number(hash, (uint64_t)id);
    return hash;
}

/* ---- one word ---- */

/* Appends the longest matching pieces of a word to `list`, which must have room for one per byte, or [UNK]
 * if they do not cover it. `offsets` are those of the word's characters, relative to `base`; NULL if not
 * requested. */
static void match_pieces(const WordPiece *model, const BertWord *word, const TokenOffset *offsets,
                         size_t base, TokenList *list) {
    const size_t before = list->count;
    size_t at = 0, size = 0, character = 0;
    while (at < word->size && word->chars <= (size_t)model->max_word_chars) {
        int32_t id =
            trie_longest(at ? model->continuations : model->starts, word->text + at, word->size - at, &size);
        if (id < 0) break;
        if (offsets) {
            size_t first = character;
            for (size_t i = at; i < at + size; i++)
                character += ((unsigned char)word->text[i] & 0xC0) != 0x80;
            token_list_put_offset(list, id, base + offsets[first].start, base + offsets[character - 1].end);
        } else {
            token_list_put(list, id);
        }
        at += size;
    }
    if (at == word->size && word->chars <= (size_t)model->max_word_chars) return;
    list->count = before;
    if (offsets)
        token_list_put_offset(list, model->unk, base + word->start, base + word->end);
    else
        token_list_put(list, model->unk);
}

static inline Cached *cache_slot(const Scratch *scratch, const uint64_t key[2]) {
    uint64_t hash = hash_mix(key[0] * UINT64_C(0xD6E8FEB86659FD93), key[1]);
    return &scratch->cache[hash >> (64 - CACHE_BITS)];
}

static inline bool cache_hit(const Cached *cached, const uint64_t key[2]) {
    return cached->key[0] == key[0] && cached->key[1] == key[1] && cached->count;
}

/* The list must have room for CACHED_PIECES. */
static inline void put_cached(TokenList *list, const Cached *cached) {
    memcpy(list->ids + list->count, cached->ids, sizeof cached->ids);
    list->count += (size_t)cached->count;
}

static void match_and_cache(const WordPiece *model, Cached *cached, const uint64_t key[2],
                            const BertWord *word, TokenList *list) {
    const size_t before = list->count;
    match_pieces(model, word, NULL, 0, list);
    const size_t count = list->count - before;
    if (count > CACHED_PIECES) return;
    *cached = (Cached){.key = {key[0], key[1]}, .count = (int32_t)count};
    memcpy(cached->ids, list->ids + before, count * sizeof *list->ids);
}

/* ---- ASCII fast path ---- */

#define REPEAT_BYTE(byte) (UINT64_C(0x0101010101010101) * (byte))

/* The leading ASCII letters and digits of 8 bytes, lowercased if `lower`, zero-padded. */
static inline uint64_t ascii_start(uint64_t bytes, bool lower, unsigned *ret_count) {
    uint64_t low = bytes & REPEAT_BYTE(0x7F), folded = low | REPEAT_BYTE(0x20);
    uint64_t letter = (folded + REPEAT_BYTE(0x80 - 'a')) & ~(folded + REPEAT_BYTE(0x7F - 'z'));
    uint64_t digit = (low + REPEAT_BYTE(0x80 - '0')) & ~(low + REPEAT_BYTE(0x7F - '9'));
    uint64_t stop = (~(letter | digit) | bytes) & REPEAT_BYTE(0x80);
    if (lower) bytes |= (letter & REPEAT_BYTE(0x80)) >> 2;
    *ret_count = stop ? (unsigned)__builtin_ctzll(stop) / 8 : 8;
    return stop ? bytes & (((stop & -stop) >> 7) - 1) : bytes;
}

/* The size of the word at `text` if it is ASCII, has up to KEY_BYTES bytes and is followed by a character
 * that ends it; otherwise 0. At least KEY_BYTES + 1 bytes must be readable. */
static inline size_t ascii_word(const BertChars *chars, const char *text, uint64_t key[2]) {
    uint64_t bytes;
    unsigned count, more = 0;
    memcpy(&bytes, text, 8);
    key[0] = ascii_start(bytes, chars->settings.lowercase, &count);
    key[1] = 0;
    if (count == 8) {
        memcpy(&bytes, text + 8, 8);
        key[1] = ascii_start(bytes, chars->settings.lowercase, &more);
    }
    const unsigned char next = (unsigned char)text[count + more];
    if (next >= 0x80 || (chars->ascii[next] != BERT_SPACE && chars->ascii[next] != BERT_ISOLATED)) return 0;
    return count + more;
}

/* Encodes ASCII words, spaces and punctuation from *at on, and advances *at to the first word that needs
 * the general path. */
static Status encode_ascii(const WordPiece *model, const Scratch *scratch, const char *text, size_t size,
                           size_t *at, TokenList *list) {
    const BertChars *chars = model->chars;
    while (*at + KEY_BYTES < size) {
        unsigned char c = (unsigned char)text[*at];
        if (c >= 0x80) return OK;
        uint64_t key[2] = {c, 0};
        size_t length = 1;
        if (chars->ascii[c] == BERT_SPACE) {
            ++*at;
            continue;
        }
        if (chars->ascii[c] != BERT_ISOLATED) length = ascii_word(chars, text + *at, key);
        if (length == 0) return OK;
        if (list->count + KEY_BYTES > list->capacity) TRY(token_list_reserve(list, KEY_BYTES, false));
        Cached *cached = cache_slot(scratch, key);
        if (cache_hit(cached, key)) {
            put_cached(list, cached);
        } else {
            BertWord word = {.text = (const char *)key, .size = length, .chars = length};
            match_and_cache(model, cached, key, &word, list);
        }
        *at += length;
    }
    return OK;
}

/* ---- encoding ---- */

static Status encode_word(const WordPiece *model, const Scratch *scratch, const BertWord *word, size_t base,
                          TokenList *list) {
    const TokenOffset *offsets = scratch->pre.offsets;
    TRY(token_list_reserve(list, word->size > CACHED_PIECES ? word->size : CACHED_PIECES, offsets != NULL));
    bool cut_off = word->chars > (size_t)model->max_word_chars;
    if (offsets || cut_off || word->size > KEY_BYTES || memchr(word->text, 0, word->size)) {
        match_pieces(model, word, offsets, base, list);
        return OK;
    }
    uint64_t key[2] = {0};
    memcpy(key, word->text, word->size);
    Cached *cached = cache_slot(scratch, key);
    if (cache_hit(cached, key))
        put_cached(list, cached);
    else
        match_and_cache(model, cached, key, word, list);
    return OK;
}

static Status encode_wordpiece(Encoder *encoder, const char *text, size_t size, size_t base,
                               TokenList *list) {
    const WordPiece *model = encoder->tokenizer->model;
    Scratch *scratch = encoder->scratch;
    bert_pretokenizer_start(&scratch->pre, text, size);
    for (BertWord word;;) {
        if (!scratch->pre.offsets) TRY(encode_ascii(model, scratch, text, size, &scratch->pre.at, list));
        if (!bert_pretokenizer_next(&scratch->pre, &word)) return OK;
        TRY(encode_word(model, scratch, &word, base, list));
    }
}

static size_t cut_wordpiece(const Encoder *encoder, const char *text, size_t size) {
    const WordPiece *model = encoder->tokenizer->model;
    return bert_pretokenizer_cut(model->chars, text, size);
}

static Status normalize_wordpiece(const Tokenizer *tokenizer, const char *text, size_t size,
                                  NormalText *normal) {
    const WordPiece *model = tokenizer->model;
    return bert_normalize(model->chars, text, size, normal);
}

static void encoder_done_wordpiece(Encoder *encoder) {
    Scratch *scratch = encoder->scratch;
    if (!scratch) return;
    bert_pretokenizer_done(&scratch->pre);
    free(scratch->cache);
    free(scratch);
}

static Status encoder_init_wordpiece(Encoder *encoder) {
    const WordPiece *model = encoder->tokenizer->model;
    Scratch *scratch;
    TRY(mem_new(1, sizeof *scratch, &scratch));
    encoder->scratch = scratch;
    TRY(mem_new((size_t)1 << CACHE_BITS, sizeof *scratch->cache, &scratch->cache));
    return bert_pretokenizer_init(&scratch->pre, model->chars, (size_t)model->max_word_chars,
                                  encoder->options.offsets);
}

const TokenizerOps tokenizer_ops_wordpiece = {
    .kind = TOKENIZER_WORDPIECE,
    .name = "wordpiece",
    .encoder_init = encoder_init_wordpiece,
    .encoder_done = encoder_done_wordpiece,
    .encode = encode_wordpiece,
    .cut = cut_wordpiece,
    .normalize = normalize_wordpiece,
    .decode = decode_wordpiece,
    .save = save_wordpiece,
    .fingerprint = fingerprint_wordpiece,
    .free = wordpiece_free,
};
