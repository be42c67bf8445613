/* Training of merges.
 *
 * Each pair of adjacent symbols has a count over all words. A heap contains candidates: a pair, the count it
 * had when it was pushed, and the words in which it appeared. If the count of the top candidate's pair has
 * changed since, the candidate is reinserted with the new count. Otherwise the pair is replaced by a new
 * symbol in these words, and the counts of the neighboring pairs are adjusted. Pairs that this creates become
 * new candidates. So the cost of a merge is proportional to what it changes, regardless of the size of the
 * text.
 *
 * Order: higher count first, then smaller left symbol, then smaller right symbol, as in Hugging Face's
 * trainers.
 *
 * A string becomes a symbol in only one way: since no merge crossed its ends, the same merges were done
 * inside it everywhere. So all occurrences of a pair appear in a single step, the one that creates the later
 * of its two symbols, and a pair has one candidate. From then on its count only decreases, so a pair that
 * starts below min_count can be ignored.
 */
#include "tokenizer/learn_merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tokenizer/internal.h"

typedef struct Pair {
    uint64_t key;
    int64_t count;
    uint32_t step;      /* the last step in which it appeared; 0: never */
    uint32_t new_index; /* its index in Merger.new_pairs during that step */
} Pair;

typedef struct Candidate {
    int64_t count;
    uint64_t key;
    size_t at;     /* its first word in Merger.pair_words */
    uint32_t size; /* number of words */
} Candidate;

typedef struct CandidateList {
    Candidate *items;
    size_t count, capacity;
} CandidateList;

/* A pair that appears in the current step. */
typedef struct NewPair {
    uint64_t key;
    size_t at; /* its words in Merger.pair_words */
    uint32_t size, last_word;
} NewPair;

/* A word in which a new pair appears. */
typedef struct Occurrence {
    uint32_t new_pair, word;
} Occurrence;

typedef struct Merger {
    const MergeSpec *spec;
    int32_t *symbols;
    SymbolWord *words;
    size_t word_count;
    Pair *pairs; /* open-addressing hash table */
    size_t pair_count, pair_slots;
    CandidateList heap;
    uint32_t *pair_words; /* word indices of all candidates */
    size_t pair_word_count, pair_word_capacity;
    NewPair *new_pairs;
    size_t new_pair_count, new_pair_capacity;
    Occurrence *occurrences;
    size_t occurrence_count, occurrence_capacity;
    LearnedMerge *merges;
    size_t merge_count, merge_capacity;
    char *name;
    size_t name_capacity;
    uint32_t step;
    bool joined; /* some words have several parts */
} Merger;

#define NO_PAIR UINT64_MAX
enum { FIRST_PAIRS = 1 << 16, HEAP_ARITY = 4, PROGRESS_EVERY = 256 };

static uint64_t pair_key(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static void merger_done(Merger *merger) {
    free(merger->pairs);
    free(merger->heap.items);
    free(merger->pair_words);
    free(merger->new_pairs);
    free(merger->occurrences);
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

/* Finds or inserts a pair; the pointer is valid until the next call. */
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

/* The pair must exist, as all adjacent symbols do. */
static void pair_subtract(Merger *merger, int32_t left, int32_t right, int64_t count) {
    pair_slot(merger->pairs, merger->pair_slots, pair_key(left, right))->count -= count;
}

/* Counts a pair that appears in a word in the current step. */
static Status pair_add(Merger *merger, int32_t left, int32_t right, uint32_t word) {
    Pair *pair = NULL;
    TRY(pair_get(merger, pair_key(left, right), &pair));
    pair->count += merger->words[word].count;
    if (pair->step != merger->step) {
        TRY(mem_grow(&merger->new_pairs, &merger->new_pair_capacity, merger->new_pair_count + 1,
                     sizeof *merger->new_pairs));
        if (merger->new_pair_count >= UINT32_MAX) return FAILED("the text has too many distinct pairs");
        merger->new_pairs[merger->new_pair_count] = (NewPair){.key = pair->key, .last_word = UINT32_MAX};
        pair->step = merger->step;
        pair->new_index = (uint32_t)merger->new_pair_count++;
    }
    NewPair *new_pair = &merger->new_pairs[pair->new_index];
    if (new_pair->last_word == word) return OK;
    new_pair->last_word = word;
    new_pair->size++;
    TRY(mem_grow(&merger->occurrences, &merger->occurrence_capacity, merger->occurrence_count + 1,
                 sizeof *merger->occurrences));
    merger->occurrences[merger->occurrence_count++] = (Occurrence){pair->new_index, word};
    return OK;
}

/* ---- candidates ---- */

static bool comes_before(const Candidate *a, const Candidate *b) {
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static void sift_down(CandidateList *heap, size_t at) {
    Candidate moving = heap->items[at];
    for (;;) {
        size_t first = at * HEAP_ARITY + 1, best = first;
        if (first >= heap->count) break;
        size_t end = first + HEAP_ARITY < heap->count ? first + HEAP_ARITY : heap->count;
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
    while (at > 0 && comes_before(&candidate, &heap->items[(at - 1) / HEAP_ARITY])) {
        heap->items[at] = heap->items[(at - 1) / HEAP_ARITY];
        at = (at - 1) / HEAP_ARITY;
    }
    heap->items[at] = candidate;
    return OK;
}

static void heap_pop(CandidateList *heap) {
    heap->items[0] = heap->items[--heap->count];
    if (heap->count) sift_down(heap, 0);
}

/* Turns the pairs that appeared in this step into candidates. */
static Status finish_step(Merger *merger) {
    size_t end = merger->pair_word_count;
    for (size_t i = 0; i < merger->new_pair_count; i++) {
        NewPair *new_pair = &merger->new_pairs[i];
        Pair *pair = pair_slot(merger->pairs, merger->pair_slots, new_pair->key);
        new_pair->at = end;
        if (pair->count < merger->spec->min_count) {
            new_pair->size = 0;
            continue;
        }
        end += new_pair->size;
        TRY(heap_push(&merger->heap, (Candidate){pair->count, new_pair->key, new_pair->at, new_pair->size}));
    }
    TRY(mem_grow(&merger->pair_words, &merger->pair_word_capacity, end, sizeof *merger->pair_words));
    for (size_t i = 0; i < merger->occurrence_count; i++) {
        NewPair *new_pair = &merger->new_pairs[merger->occurrences[i].new_pair];
        if (new_pair->size) merger->pair_words[new_pair->at++] = merger->occurrences[i].word;
    }
    merger->pair_word_count = end;
    merger->new_pair_count = merger->occurrence_count = 0;
    merger->step++;
    return OK;
}

/* The part of a word that has the next symbol after a part, or the one before it; UINT32_MAX at the end of
 * the word. Merges can leave parts empty. */
static uint32_t next_part(const Merger *merger, uint32_t part) {
    while (merger->words[part].joined)
        if (merger->words[++part].size) return part;
    return UINT32_MAX;
}

static uint32_t previous_part(const Merger *merger, uint32_t part) {
    while (part > 0 && merger->words[part - 1].joined)
        if (merger->words[--part].size) return part;
    return UINT32_MAX;
}

static int32_t first_symbol(const Merger *merger, uint32_t part) {
    return merger->symbols[merger->words[part].at];
}

static int32_t last_symbol(const Merger *merger, uint32_t part) {
    return merger->symbols[merger->words[part].at + merger->words[part].size - 1];
}

/* A pair belongs to the part that has its left symbol. */
static Status count_pairs(Merger *merger) {
    for (size_t w = 0; w < merger->word_count; w++) {
        const int32_t *symbols = merger->symbols + merger->words[w].at;
        for (uint32_t i = 1; i < merger->words[w].size; i++)
            TRY(pair_add(merger, symbols[i - 1], symbols[i], (uint32_t)w));
        if (!merger->words[w].joined) continue;
        merger->joined = true;
        TRY(pair_add(merger, last_symbol(merger, (uint32_t)w), first_symbol(merger, (uint32_t)w + 1),
                     (uint32_t)w));
    }
    return finish_step(merger);
}

/* ---- a merge ---- */

/* The symbol of two concatenated symbols: a new one unless the string already is a token. */
static Status join_symbols(Merger *merger, int32_t left, int32_t right, int32_t *ret_result) {
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

/* A merge replaces `left` in part `number`, which has `kept` symbols before it: adjusts the pair with the
 * symbol before, which may be in an earlier part. */
static Status pair_before(Merger *merger, uint32_t number, uint32_t kept, LearnedMerge merge) {
    uint32_t part = kept ? number : previous_part(merger, number);
    if (part == UINT32_MAX) return OK;
    int32_t before = kept ? merger->symbols[merger->words[number].at + kept - 1] : last_symbol(merger, part);
    pair_subtract(merger, before, merge.left, merger->words[number].count);
    return pair_add(merger, before, merge.result, part);
}

static Status pair_after(Merger *merger, uint32_t number, int32_t after, LearnedMerge merge) {
    pair_subtract(merger, merge.right, after, merger->words[number].count);
    return pair_add(merger, merge.result, after, number);
}

/* The last symbol of part `number` may be `left`, and the next part start with `right`. */
static Status merge_across(Merger *merger, uint32_t number, LearnedMerge merge) {
    SymbolWord *word = &merger->words[number];
    uint32_t part = next_part(merger, number);
    if (part == UINT32_MAX || !word->size || last_symbol(merger, number) != merge.left ||
        first_symbol(merger, part) != merge.right)
        return OK;
    TRY(pair_before(merger, number, word->size - 1, merge));
    merger->words[part].at++;
    merger->words[part].size--;
    merger->symbols[word->at + word->size - 1] = merge.result;
    if (!merger->words[part].size) part = next_part(merger, part);
    return part == UINT32_MAX ? OK : pair_after(merger, number, first_symbol(merger, part), merge);
}

static Status merge_in_word(Merger *merger, uint32_t number, LearnedMerge merge) {
    SymbolWord *word = &merger->words[number];
    int32_t *symbols = merger->symbols + word->at;
    uint32_t kept = 0, size = word->size;
    for (uint32_t i = 0; i < size; i++) {
        bool here = symbols[i] == merge.left && i + 1 < size && symbols[i + 1] == merge.right;
        if (!here) {
            symbols[kept++] = symbols[i];
            continue;
        }
        TRY(pair_before(merger, number, kept, merge));
        i++;
        uint32_t part = i + 1 < size ? number : next_part(merger, number);
        if (part != UINT32_MAX)
            TRY(pair_after(merger, number, part == number ? symbols[i + 1] : first_symbol(merger, part),
                           merge));
        symbols[kept++] = merge.result;
    }
    word->size = kept;
    return merge_across(merger, number, merge);
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static Status do_merge(Merger *merger, const Candidate *candidate) {
    LearnedMerge merge = {.left = (int32_t)(candidate->key >> 32), .right = (int32_t)candidate->key};
    TRY(join_symbols(merger, merge.left, merge.right, &merge.result));
    TRY(mem_grow(&merger->merges, &merger->merge_capacity, merger->merge_count + 1, sizeof *merger->merges));
    merger->merges[merger->merge_count++] = merge;
    uint32_t *words = merger->pair_words + candidate->at;
    /* A run of equal symbols is merged from its start, part by part. */
    if (merger->joined && merge.left == merge.right) qsort(words, candidate->size, sizeof *words, ascending);
    for (uint32_t i = 0; i < candidate->size; i++) TRY(merge_in_word(merger, words[i], merge));
    return finish_step(merger);
}

/* A vocabulary cannot contain a longer token; a text can, if it repeats one character often enough. */
static bool is_too_long(const Merger *merger, uint64_t key) {
    const Word *tokens = merger->spec->tokens->words;
    return (size_t)tokens[key >> 32].size + tokens[(uint32_t)key].size > TOKEN_LIMIT;
}

static void report_progress(const Merger *merger, size_t first) {
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
        if (is_too_long(merger, top.key)) continue;
        TRY(do_merge(merger, &top));
        if (merger->merge_count % PROGRESS_EVERY == 0) report_progress(merger, first);
    }
    report_progress(merger, first);
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
