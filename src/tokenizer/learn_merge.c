/* Merging pairs.
 *
 * Each pair of neighbouring symbols has a count over all words. A heap holds candidates: a pair, the count it
 * had, and the words in which it came about. The top one is taken; if its pair's count has changed since, it
 * goes back with the new count; otherwise its words are gone through, the pair replaced by a new symbol, and
 * the counts of the neighbouring pairs adjusted. Pairs that this brings about become new candidates. So a
 * merge costs as much as it changes, whatever the size of the text.
 *
 * The higher count comes first, then the smaller left symbol, then the smaller right one: the order of
 * Hugging Face's trainer.
 *
 * A string becomes a symbol in one way only: as no merge crossed its ends where it stands, the same merges
 * were done between them everywhere. So a pair comes about in a single step, the one that makes the later of
 * its symbols, and has one candidate; from then on its count only falls, and one that starts below the least
 * count is of no interest.
 */
#include "tokenizer/learn_merge.h"

#include <string.h>

#include "base/memory.h"

typedef struct Pair {
    uint64_t key;
    int64_t count;
    uint32_t step;  /* in which it last came about; 0: never */
    uint32_t fresh; /* in that step, its place in Merger.fresh */
} Pair;

typedef struct Candidate {
    int64_t count;
    uint64_t key;
    size_t at; /* its words, in Merger.places */
    uint32_t size;
} Candidate;

typedef struct CandidateList {
    Candidate *items;
    size_t count, capacity;
} CandidateList;

/* A pair that the current step brings about. */
typedef struct Fresh {
    uint64_t key;
    size_t at;
    uint32_t size, last_word;
} Fresh;

typedef struct FreshPlace {
    uint32_t fresh, word;
} FreshPlace;

typedef struct Merger {
    const MergeSpec *spec;
    int32_t *symbols;
    SymbolWord *words;
    size_t word_count;
    Pair *pairs; /* open addressing */
    size_t pair_count, pair_slots;
    CandidateList heap;
    uint32_t *places;
    size_t place_count, place_capacity;
    Fresh *fresh;
    size_t fresh_count, fresh_capacity;
    FreshPlace *fresh_places;
    size_t fresh_place_count, fresh_place_capacity;
    LearnedMerge *merges;
    size_t merge_count, merge_capacity;
    char *name;
    size_t name_capacity;
    uint32_t step;
} Merger;

#define NO_PAIR UINT64_MAX
enum { FIRST_PAIRS = 1 << 16, HEAP_WAYS = 4, PROGRESS_EVERY = 256 };

static uint64_t pair_key(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static void merger_done(Merger *merger) {
    free(merger->pairs);
    free(merger->heap.items);
    free(merger->places);
    free(merger->fresh);
    free(merger->fresh_places);
    free(merger->merges);
    free(merger->name);
}

/* ---- pairs ---- */

static Pair *pair_slot(Pair *pairs, size_t slots, uint64_t key) {
    uint64_t hash = key * 0x9E3779B97F4A7C15u;
    for (size_t at = (hash ^ hash >> 32) & (slots - 1);; at = (at + 1) & (slots - 1))
        if (pairs[at].key == key || pairs[at].key == NO_PAIR) return &pairs[at];
}

static Status grow_pairs(Merger *merger) {
    size_t slots = merger->pair_slots ? merger->pair_slots * 2 : FIRST_PAIRS;
    Pair *grown = NULL;
    TRY(mem_new(slots, sizeof *grown, &grown));
    for (size_t i = 0; i < slots; i++) grown[i].key = NO_PAIR;
    for (size_t i = 0; i < merger->pair_slots; i++)
        if (merger->pairs[i].key != NO_PAIR)
            *pair_slot(grown, slots, merger->pairs[i].key) = merger->pairs[i];
    free(merger->pairs);
    merger->pairs = grown;
    merger->pair_slots = slots;
    return OK;
}

/* The pair, made where it is new; valid until the next call. */
static Status pair_get(Merger *merger, uint64_t key, Pair **ret_pair) {
    if (merger->pair_count >= merger->pair_slots / 2) TRY(grow_pairs(merger));
    Pair *pair = pair_slot(merger->pairs, merger->pair_slots, key);
    if (pair->key == NO_PAIR) {
        pair->key = key;
        merger->pair_count++;
    }
    *ret_pair = pair;
    return OK;
}

/* For a pair that was counted: each two neighbours are. */
static void pair_lose(Merger *merger, int32_t left, int32_t right, int64_t count) {
    pair_slot(merger->pairs, merger->pair_slots, pair_key(left, right))->count -= count;
}

/* Counts a pair that the current step brought about in a word. */
static Status pair_gain(Merger *merger, int32_t left, int32_t right, uint32_t word) {
    Pair *pair = NULL;
    TRY(pair_get(merger, pair_key(left, right), &pair));
    pair->count += merger->words[word].count;
    if (pair->step != merger->step) {
        TRY(mem_grow(&merger->fresh, &merger->fresh_capacity, merger->fresh_count + 1,
                     sizeof *merger->fresh));
        if (merger->fresh_count >= UINT32_MAX) return FAILED("the text has too many pairs to learn from");
        merger->fresh[merger->fresh_count] = (Fresh){.key = pair->key, .last_word = UINT32_MAX};
        pair->step = merger->step;
        pair->fresh = (uint32_t)merger->fresh_count++;
    }
    Fresh *fresh = &merger->fresh[pair->fresh];
    if (fresh->last_word == word) return OK;
    fresh->last_word = word;
    fresh->size++;
    TRY(mem_grow(&merger->fresh_places, &merger->fresh_place_capacity, merger->fresh_place_count + 1,
                 sizeof *merger->fresh_places));
    merger->fresh_places[merger->fresh_place_count++] = (FreshPlace){pair->fresh, word};
    return OK;
}

/* ---- candidates ---- */

static bool comes_before(const Candidate *a, const Candidate *b) {
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static void sift_down(CandidateList *heap, size_t at) {
    Candidate moving = heap->items[at];
    for (;;) {
        size_t first = at * HEAP_WAYS + 1, best = first;
        if (first >= heap->count) break;
        size_t end = first + HEAP_WAYS < heap->count ? first + HEAP_WAYS : heap->count;
        for (size_t i = first + 1; i < end; i++)
            if (comes_before(&heap->items[i], &heap->items[best])) best = i;
        if (!comes_before(&heap->items[best], &moving)) break;
        heap->items[at] = heap->items[best];
        at = best;
    }
    heap->items[at] = moving;
}

static Status heap_push(CandidateList *heap, Candidate candidate) {
    TRY(mem_grow(&heap->items, &heap->capacity, heap->count + 1, sizeof *heap->items));
    size_t at = heap->count++;
    while (at > 0 && comes_before(&candidate, &heap->items[(at - 1) / HEAP_WAYS])) {
        heap->items[at] = heap->items[(at - 1) / HEAP_WAYS];
        at = (at - 1) / HEAP_WAYS;
    }
    heap->items[at] = candidate;
    return OK;
}

static void heap_pop(CandidateList *heap) {
    heap->items[0] = heap->items[--heap->count];
    if (heap->count) sift_down(heap, 0);
}

/* Makes candidates of what the step brought about. */
static Status finish_step(Merger *merger) {
    size_t end = merger->place_count;
    for (size_t i = 0; i < merger->fresh_count; i++) {
        Fresh *fresh = &merger->fresh[i];
        Pair *pair = pair_slot(merger->pairs, merger->pair_slots, fresh->key);
        fresh->at = end;
        if (pair->count < merger->spec->min_count) {
            fresh->size = 0;
            continue;
        }
        end += fresh->size;
        TRY(heap_push(&merger->heap, (Candidate){pair->count, fresh->key, fresh->at, fresh->size}));
    }
    TRY(mem_grow(&merger->places, &merger->place_capacity, end, sizeof *merger->places));
    for (size_t i = 0; i < merger->fresh_place_count; i++) {
        Fresh *fresh = &merger->fresh[merger->fresh_places[i].fresh];
        if (fresh->size) merger->places[fresh->at++] = merger->fresh_places[i].word;
    }
    merger->place_count = end;
    merger->fresh_count = merger->fresh_place_count = 0;
    merger->step++;
    return OK;
}

static Status count_pairs(Merger *merger) {
    for (size_t w = 0; w < merger->word_count; w++) {
        const int32_t *symbols = merger->symbols + merger->words[w].at;
        for (uint32_t i = 1; i < merger->words[w].size; i++)
            TRY(pair_gain(merger, symbols[i - 1], symbols[i], (uint32_t)w));
    }
    return finish_step(merger);
}

/* ---- a merge ---- */

/* The symbol for two joined: a new one, unless the string is a token already. */
static Status join(Merger *merger, int32_t left, int32_t right, int32_t *ret_result) {
    WordTable *tokens = merger->spec->tokens;
    const char *prefix = merger->spec->prefix;
    size_t cut = strlen(prefix), left_size = tokens->words[left].size, right_size = tokens->words[right].size;
    if (right_size < cut || memcmp(word_bytes(tokens, (size_t)right), prefix, cut) != 0) cut = 0;
    size_t size = left_size + right_size - cut;
    TRY(mem_grow(&merger->name, &merger->name_capacity, size, 1));
    memcpy(merger->name, word_bytes(tokens, (size_t)left), left_size);
    memcpy(merger->name + left_size, word_bytes(tokens, (size_t)right) + cut, right_size - cut);
    uint32_t result;
    TRY(word_table_add(tokens, merger->name, size, 0, &result));
    *ret_result = (int32_t)result;
    return OK;
}

static Status merge_in_word(Merger *merger, uint32_t number, LearnedMerge merge) {
    SymbolWord *word = &merger->words[number];
    int32_t *symbols = merger->symbols + word->at;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < word->size; i++) {
        bool here = symbols[i] == merge.left && i + 1 < word->size && symbols[i + 1] == merge.right;
        if (!here) {
            symbols[kept++] = symbols[i];
            continue;
        }
        if (kept > 0) {
            pair_lose(merger, symbols[kept - 1], merge.left, word->count);
            TRY(pair_gain(merger, symbols[kept - 1], merge.result, number));
        }
        i++;
        if (i + 1 < word->size) {
            pair_lose(merger, merge.right, symbols[i + 1], word->count);
            TRY(pair_gain(merger, merge.result, symbols[i + 1], number));
        }
        symbols[kept++] = merge.result;
    }
    word->size = kept;
    return OK;
}

static Status do_merge(Merger *merger, const Candidate *candidate) {
    LearnedMerge merge = {.left = (int32_t)(candidate->key >> 32), .right = (int32_t)candidate->key};
    TRY(join(merger, merge.left, merge.right, &merge.result));
    TRY(mem_grow(&merger->merges, &merger->merge_capacity, merger->merge_count + 1, sizeof *merger->merges));
    merger->merges[merger->merge_count++] = merge;
    for (uint32_t i = 0; i < candidate->size; i++)
        TRY(merge_in_word(merger, merger->places[candidate->at + i], merge));
    return finish_step(merger);
}

static void tell(const Merger *merger, size_t first) {
    const MergeSpec *spec = merger->spec;
    if (spec->progress)
        spec->progress(spec->context, (int64_t)(spec->tokens->count - first), spec->vocab - (int64_t)first);
}

static Status merge_all(Merger *merger) {
    const MergeSpec *spec = merger->spec;
    CandidateList *heap = &merger->heap;
    size_t first = spec->tokens->count;
    while ((int64_t)spec->tokens->count < spec->vocab && heap->count > 0) {
        Candidate top = heap->items[0];
        int64_t count = pair_slot(merger->pairs, merger->pair_slots, top.key)->count;
        if (count != top.count) {
            heap->items[0].count = count;
            sift_down(heap, 0);
            continue;
        }
        if (count < spec->min_count) break;
        heap_pop(heap);
        TRY(do_merge(merger, &top));
        if (merger->merge_count % PROGRESS_EVERY == 0) tell(merger, first);
    }
    tell(merger, first);
    return OK;
}

Status learn_merges(const MergeSpec *spec, int32_t *symbols, SymbolWord *words, size_t word_count,
                    LearnedMerge **ret_merges, size_t *ret_count) {
    CLEANUP(merger_done)
    Merger merger = {.spec = spec, .symbols = symbols, .words = words, .word_count = word_count, .step = 1};
    TRY(grow_pairs(&merger));
    TRY(count_pairs(&merger));
    TRY(merge_all(&merger));
    *ret_merges = merger.merges;
    *ret_count = merger.merge_count;
    merger.merges = NULL;
    return OK;
}
