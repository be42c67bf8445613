/* The vocabulary: one buffer with all spellings, entries indexed by id, and an open-addressing hash table
 * of ids that is at most half full. The number of ids is known up front, so every duplicate or missing id
 * is detected. Also the byte buffer, normalized text and fingerprint helpers of internal.h. */
#include "tokenizer/internal.h"

Status bytes_add(Bytes *bytes, const char *data, size_t size) {
    if (size > SIZE_MAX - bytes->size) return FAILED("out of memory for %zu bytes of text", size);
    if (bytes->size + size > bytes->capacity)
        TRY(mem_grow(&bytes->data, &bytes->capacity, bytes->size + size, 1));
    if (size) memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    return OK;
}

void bytes_done(Bytes *bytes) {
    free(bytes->data);
    *bytes = (Bytes){0};
}

Status normal_text_add(NormalText *normal, const char *bytes, size_t size, TokenOffset offset) {
    size_t before = normal->text.size;
    TRY(bytes_add(&normal->text, bytes, size));
    if (normal->plain) return OK;
    TRY(mem_grow(&normal->offsets, &normal->capacity, normal->text.size, sizeof *normal->offsets));
    for (size_t i = before; i < normal->text.size; i++) normal->offsets[i] = offset;
    return OK;
}

void normal_text_done(NormalText *normal) {
    bytes_done(&normal->text);
    free(normal->offsets);
    *normal = (NormalText){0};
}

uint64_t fingerprint_number(uint64_t hash, uint64_t number) {
    for (int i = 0; i < 8; i++) hash = (hash ^ (number >> 8 * i & 0xFF)) * UINT64_C(0x100000001B3);
    return hash;
}

uint64_t fingerprint_text(uint64_t hash, const char *text, size_t size) {
    hash = fingerprint_number(hash, size);
    for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001B3);
    return hash;
}

Status vocab_init(Vocab *ret_vocab, int64_t count, const char *from) {
    if (count <= 0) return FAILED("%s: the vocabulary is empty", from);
    if (count > VOCAB_LIMIT)
        return FAILED("%s: the vocabulary has %lld tokens, but at most %d are supported", from,
                      (long long)count, VOCAB_LIMIT);
    size_t slots = 16;
    while (slots < (size_t)count * 2) slots *= 2;
    CLEANUP(mem_freep) VocabEntry *entries = NULL;
    CLEANUP(mem_freep) int32_t *table = NULL;
    TRY(mem_new((size_t)count, sizeof *entries, &entries));
    TRY(mem_new(slots, sizeof *table, &table));
    *ret_vocab = (Vocab){.entries = entries, .slots = table, .mask = slots - 1, .count = (int32_t)count};
    entries = NULL;
    table = NULL;
    return OK;
}

void vocab_done(Vocab *vocab) {
    bytes_done(&vocab->text);
    free(vocab->entries);
    free(vocab->slots);
    *vocab = (Vocab){0};
}

/* The token's slot, or the empty slot where it would be inserted. */
static size_t slot_of(const Vocab *vocab, const char *token, size_t size) {
    size_t at = (size_t)hash_text(token, size) & vocab->mask;
    for (;; at = (at + 1) & vocab->mask) {
        if (!vocab->slots[at]) return at;
        size_t have;
        const char *other = vocab_token(vocab, vocab->slots[at] - 1, &have);
        if (have == size && !memcmp(other, token, size)) return at;
    }
}

int32_t vocab_find(const Vocab *vocab, const char *token, size_t size) {
    return vocab->slots[slot_of(vocab, token, size)] - 1;
}

int32_t vocab_find_model(const Vocab *vocab, const char *token, size_t size) {
    int32_t id = vocab_find(vocab, token, size);
    return id >= 0 && vocab->entries[id].outside ? -1 : id;
}

Status vocab_put(Vocab *vocab, int64_t id, const char *token, size_t size, const char *from) {
    int shown = size > 60 ? 60 : (int)size;
    if (size > TOKEN_LIMIT)
        return FAILED("%s: token '%.*s...' has %zu bytes, but at most %d are supported", from, shown, token,
                      size, TOKEN_LIMIT);
    if (id < 0 || id >= vocab->count)
        return FAILED("%s: token '%.*s' has id %lld; expected 0 to %d for a vocabulary of %d tokens", from,
                      shown, token, (long long)id, vocab->count - 1, vocab->count);
    size_t slot = slot_of(vocab, token, size);
    if (vocab->slots[slot])
        return FAILED("%s: duplicate token '%.*s' with ids %d and %lld", from, shown, token,
                      vocab->slots[slot] - 1, (long long)id);
    VocabEntry *entry = &vocab->entries[id];
    if (entry->taken) {
        int other = entry->size > 60 ? 60 : (int)entry->size;
        return FAILED("%s: tokens '%.*s' and '%.*s' have the same id %lld", from, other,
                      vocab->text.data + entry->start, shown, token, (long long)id);
    }
    size_t start = vocab->text.size;
    TRY(bytes_add(&vocab->text, token, size));
    TRY(bytes_add(&vocab->text, "", 1)); /* so that the buffer exists even if all spellings are empty */
    *entry = (VocabEntry){.start = start, .size = (uint32_t)size, .taken = true};
    vocab->slots[slot] = (int32_t)id + 1;
    return OK;
}

Status vocab_check(const Vocab *vocab, const char *from) {
    for (int32_t id = 0; id < vocab->count; id++)
        if (!vocab->entries[id].taken)
            return FAILED("%s: no token has id %d; expected ids 0 to %d without gaps", from, id,
                          vocab->count - 1);
    return OK;
}
