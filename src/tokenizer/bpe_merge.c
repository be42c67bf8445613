/* Merges one word: of all adjacent pairs with a merge, the one with the lowest rank is merged, the leftmost
 * first, until no pair can merge.
 *
 * Short words keep ids and pair ranks in two arrays that are compacted after each merge; a linear search for
 * the lowest rank is fastest for few pairs. Long words use a linked list and a heap of (rank, position), so a
 * word of n bytes takes O(n log n). A heap entry whose pair has changed since is skipped when popped.
 */
#include "tokenizer/bpe.h"

enum { SHORT_WORD = 128 };

void merge_scratch_done(MergeScratch *scratch) {
    free(scratch->ids);
    free(scratch->ranks);
    free(scratch->next);
    free(scratch->previous);
    free(scratch->heap);
    *scratch = (MergeScratch){0};
}

static size_t merge_short(const Bpe *bpe, size_t size, int32_t *ids) {
    int32_t ranks[SHORT_WORD];
    for (size_t i = 0; i + 1 < size; i++) ranks[i] = bpe_rank(bpe, ids[i], ids[i + 1]);
    while (size > 1) {
        int32_t lowest = RANK_NONE;
        size_t at = 0;
        for (size_t i = 0; i + 1 < size; i++)
            if (ranks[i] < lowest) lowest = ranks[i], at = i;
        if (lowest == RANK_NONE) break;
        ids[at] = bpe->merged[lowest];
        size--;
        memmove(ids + at + 1, ids + at + 2, (size - at - 1) * sizeof *ids);
        memmove(ranks + at, ranks + at + 1, (size - at - 1) * sizeof *ranks);
        if (at + 1 < size) ranks[at] = bpe_rank(bpe, ids[at], ids[at + 1]);
        if (at > 0) ranks[at - 1] = bpe_rank(bpe, ids[at - 1], ids[at]);
    }
    return size;
}

/* ---- long words ---- */

static void sift_down(uint64_t *heap, size_t count, size_t at) {
    uint64_t moving = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count) break;
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (moving <= heap[child]) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

static Status heap_push(MergeScratch *scratch, uint64_t value) {
    TRY(mem_grow(&scratch->heap, &scratch->heap_capacity, scratch->heap_count + 1, sizeof *scratch->heap));
    size_t at = scratch->heap_count++;
    for (; at > 0 && scratch->heap[(at - 1) / 2] > value; at = (at - 1) / 2)
        scratch->heap[at] = scratch->heap[(at - 1) / 2];
    scratch->heap[at] = value;
    return OK;
}

static uint64_t heap_pop(MergeScratch *scratch) {
    uint64_t lowest = scratch->heap[0];
    scratch->heap[0] = scratch->heap[--scratch->heap_count];
    if (scratch->heap_count > 0) sift_down(scratch->heap, scratch->heap_count, 0);
    return lowest;
}

static uint64_t heap_key(int32_t rank, size_t at) {
    return (uint64_t)(uint32_t)rank << 32 | at;
}

/* Builds the linked list of the word's symbols and the heap of its mergeable pairs. */
static Status init_long(const Bpe *bpe, MergeScratch *scratch, const int32_t *ids, size_t size) {
    TRY(mem_grow(&scratch->ids, &scratch->id_capacity, size, sizeof *scratch->ids));
    TRY(mem_grow(&scratch->ranks, &scratch->rank_capacity, size, sizeof *scratch->ranks));
    TRY(mem_grow(&scratch->next, &scratch->next_capacity, size, sizeof *scratch->next));
    TRY(mem_grow(&scratch->previous, &scratch->previous_capacity, size, sizeof *scratch->previous));
    TRY(mem_grow(&scratch->heap, &scratch->heap_capacity, size, sizeof *scratch->heap));
    for (size_t i = 0; i < size; i++) {
        scratch->ids[i] = ids[i];
        scratch->next[i] = (uint32_t)i + 1;
        scratch->previous[i] = (uint32_t)i - 1;
    }
    scratch->heap_count = 0;
    for (size_t i = 0; i < size; i++) {
        int32_t rank = i + 1 < size ? bpe_rank(bpe, scratch->ids[i], scratch->ids[i + 1]) : RANK_NONE;
        scratch->ranks[i] = rank;
        if (rank != RANK_NONE) scratch->heap[scratch->heap_count++] = heap_key(rank, i);
    }
    for (size_t i = scratch->heap_count / 2; i-- > 0;) sift_down(scratch->heap, scratch->heap_count, i);
    return OK;
}

/* Recomputes the rank of the pair that starts at `at`, after one of its tokens changed. */
static Status update_rank(const Bpe *bpe, MergeScratch *scratch, size_t at, size_t size) {
    size_t next = scratch->next[at];
    int32_t rank = next < size ? bpe_rank(bpe, scratch->ids[at], scratch->ids[next]) : RANK_NONE;
    scratch->ranks[at] = rank;
    return rank == RANK_NONE ? OK : heap_push(scratch, heap_key(rank, at));
}

static Status merge_long(const Bpe *bpe, MergeScratch *scratch, int32_t *ids, size_t size,
                         size_t *ret_count) {
    TRY(init_long(bpe, scratch, ids, size));
    while (scratch->heap_count > 0) {
        uint64_t top = heap_pop(scratch);
        size_t at = (uint32_t)top;
        int32_t rank = (int32_t)(top >> 32);
        if (scratch->ranks[at] != rank) continue;
        size_t right = scratch->next[at], after = scratch->next[right];
        scratch->ids[at] = bpe->merged[rank];
        scratch->ranks[right] = RANK_NONE;
        scratch->next[at] = (uint32_t)after;
        if (after < size) scratch->previous[after] = (uint32_t)at;
        TRY(update_rank(bpe, scratch, at, size));
        if (at > 0) TRY(update_rank(bpe, scratch, scratch->previous[at], size));
    }
    size_t count = 0;
    for (size_t at = 0; at < size; at = scratch->next[at]) ids[count++] = scratch->ids[at];
    *ret_count = count;
    return OK;
}

Status bpe_merge(const Bpe *bpe, MergeScratch *scratch, int32_t *ids, size_t size, size_t *ret_count) {
    enum { KEEP_LIMIT = 1 << 20 }; /* the workspace of longer words is freed */
    if (size <= SHORT_WORD) {
        *ret_count = merge_short(bpe, size, ids);
        return OK;
    }
    if (size > ENCODER_WORD_LIMIT)
        return FAILED("a word of %zu symbols is too long; at most %zu are supported", size,
                      ENCODER_WORD_LIMIT);
    Status status = merge_long(bpe, scratch, ids, size, ret_count);
    if (size > KEEP_LIMIT) merge_scratch_done(scratch);
    return status;
}
