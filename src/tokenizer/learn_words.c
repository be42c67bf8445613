/* A hash table of byte strings: open addressing with linear probing over small slots. Each slot stores
 * part of the hash, so a word's bytes are compared only when they are very likely equal. Words are in an
 * array in insertion order, their bytes contiguous in a second array. */
#include "tokenizer/learn_words.h"

#include "tokenizer/internal.h"

typedef struct WordSlot {
    uint32_t tag;
    uint32_t number; /* index of the word + 1; 0: empty */
} WordSlot;

enum { FIRST_SLOTS = 1024 };

void word_table_done(WordTable *table) {
    free(table->words);
    free(table->bytes);
    free(table->slots);
    *table = (WordTable){0};
}

/* The word's slot, or the empty slot where it would be inserted. */
static WordSlot *find_slot(const WordTable *table, const char *bytes, size_t size, uint64_t hash) {
    uint32_t tag = (uint32_t)(hash >> 32);
    size_t mask = table->slot_count - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
        WordSlot *slot = &table->slots[at];
        if (slot->number == 0) return slot;
        if (slot->tag != tag) continue;
        const Word *word = &table->words[slot->number - 1];
        if (word->size == size && memcmp(table->bytes + word->at, bytes, size) == 0) return slot;
    }
}

static Status grow_slots(WordTable *table) {
    WordTable grown = *table;
    grown.slot_count = table->slot_count ? table->slot_count * 2 : FIRST_SLOTS;
    grown.slots = NULL;
    TRY(mem_new(grown.slot_count, sizeof *grown.slots, &grown.slots));
    size_t mask = grown.slot_count - 1;
    for (size_t i = 0; i < table->count; i++) {
        const Word *word = &table->words[i];
        size_t at = hash_text(table->bytes + word->at, word->size) & mask;
        while (grown.slots[at].number) at = (at + 1) & mask;
        grown.slots[at] = (WordSlot){.tag = word->tag, .number = (uint32_t)i + 1};
    }
    free(table->slots);
    *table = grown;
    return OK;
}

static Status append(WordTable *table, const char *bytes, size_t size, uint64_t hash) {
    if (table->count >= UINT32_MAX - 1) return FAILED("the text has more than %u distinct words", UINT32_MAX);
    TRY(mem_grow(&table->words, &table->capacity, table->count + 1, sizeof *table->words));
    TRY(mem_grow(&table->bytes, &table->byte_capacity, table->used + size, 1));
    memcpy(table->bytes + table->used, bytes, size);
    table->words[table->count++] =
        (Word){.at = table->used, .size = (uint32_t)size, .tag = (uint32_t)(hash >> 32)};
    table->used += size;
    return OK;
}

Status word_table_add(WordTable *table, const char *bytes, size_t size, int64_t count, uint32_t *ret_number) {
    if (size > UINT32_MAX) return FAILED("a word of %zu bytes is too long", size);
    if (table->count >= table->slot_count / 2) TRY(grow_slots(table));
    uint64_t hash = hash_text(bytes, size);
    WordSlot *slot = find_slot(table, bytes, size, hash);
    if (slot->number == 0) {
        TRY(append(table, bytes, size, hash));
        *slot = (WordSlot){.tag = (uint32_t)(hash >> 32), .number = (uint32_t)table->count};
    }
    table->words[slot->number - 1].count += count;
    if (ret_number) *ret_number = slot->number - 1;
    return OK;
}

uint32_t word_table_find(const WordTable *table, const char *bytes, size_t size) {
    if (!table->slot_count) return UINT32_MAX;
    return find_slot(table, bytes, size, hash_text(bytes, size))->number - 1;
}

Status word_table_merge(WordTable *table, const WordTable *other) {
    for (size_t i = 0; i < other->count; i++) {
        const Word *word = &other->words[i];
        TRY(word_table_add(table, other->bytes + word->at, word->size, word->count, NULL));
    }
    return OK;
}
