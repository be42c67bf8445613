/* The model of a BPE tokenizer, shared by the bpe*.c files:
 *
 *   bpe.c              building the model
 *   bpe_pretokenize.*  word boundaries by GPT-2's pattern
 *   bpe_merge.c        merging the bytes of a word
 *   bpe_encode.c       the loop over words, with a cache of short words
 *   bpe_load.c, bpe_save.c   files
 */
#ifndef WEFT_TOKENIZER_BPE_H
#define WEFT_TOKENIZER_BPE_H

#include "tokenizer/internal.h"

/* An open-addressing hash table of pairs of ids, at most half full: keys are left << 32 | right, or
 * PAIR_EMPTY. Ranks are in a separate array, since most lookups find nothing. */
#define PAIR_EMPTY UINT64_MAX
enum { RANK_NONE = 0x7FFFFFFF }; /* rank of a pair that does not merge */

typedef struct Bpe {
    BpeMerge *merges; /* indexed by rank */
    int32_t *merged;  /* indexed by rank: the resulting token */
    size_t merge_count;
    uint64_t *pair_keys;
    int32_t *pair_ranks;
    int pair_shift; /* 64 - log2(slots) */
    size_t pair_mask;
    int32_t byte_ids[256];
    bool add_prefix_space; /* prepend a space to text that does not start with one */
    bool use_regex;        /* split text into words; otherwise each span is one word */
    bool ignore_merges;    /* look up complete words in the vocabulary before merging */
    char *text;            /* decoded bytes of all tokens: token i is starts[i] .. starts[i + 1] - 1 */
    size_t *starts;
} Bpe;

static inline int32_t bpe_rank(const Bpe *bpe, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> bpe->pair_shift);
    for (;; at = (at + 1) & bpe->pair_mask) {
        if (bpe->pair_keys[at] == key) return bpe->pair_ranks[at];
        if (bpe->pair_keys[at] == PAIR_EMPTY) return RANK_NONE;
    }
}

/* Adds the next merge. Fails if a token is not in the vocabulary or the merge is a duplicate; `where` is the
 * merge's location, for errors. */
MUST_USE Status bpe_add_merge(Bpe *bpe, const Vocab *vocab, const char *left, size_t left_size,
                              const char *right, size_t right_size, const char *where);
/* An empty model with capacity for `merges` merges. */
MUST_USE Status bpe_new(Bpe **ret_bpe, size_t merges);
void bpe_free(void *bpe);
/* Call after filling the vocabulary, added tokens and merges: builds the derived tables and calls
 * tokenizer_finish. */
MUST_USE Status bpe_finish(Tokenizer *tokenizer, const char *from);
/* GPT-2's post-processor, which adds nothing. */
MUST_USE Status bpe_set_byte_level(Tokenizer *tokenizer, const char *from);

/* From the contents of vocab.json and merges.txt. The paths are used in errors; vocab_path also locates
 * tokenizer_config.json and added_tokens.json. */
MUST_USE Status bpe_from_text(Tokenizer **ret_tokenizer, const json_t *vocab, const char *vocab_path,
                              const char *merges, size_t size, const char *merges_path);

/* The byte that a character of a spelling stands for, or -1. */
int bpe_unspell(uint32_t c);

/* Workspace for merging; grows as needed. Initialize with {0}. */
typedef struct MergeScratch {
    int32_t *ids;
    int32_t *ranks;
    uint32_t *next, *previous; /* linked list, long words only */
    uint64_t *heap;
    size_t id_capacity, rank_capacity, next_capacity, previous_capacity, heap_capacity, heap_count;
} MergeScratch;

void merge_scratch_done(MergeScratch *scratch);
/* Writes the tokens of one word to `ids`, which must hold `size`, and their number to *ret_count. */
MUST_USE Status bpe_merge(const Bpe *bpe, MergeScratch *scratch, const unsigned char *word, size_t size,
                          int32_t *ids, size_t *ret_count);

MUST_USE Status bpe_encoder_init(Encoder *encoder);
void bpe_encoder_done(Encoder *encoder);
MUST_USE Status bpe_encode(Encoder *encoder, const char *text, size_t size, size_t base, TokenList *list);
size_t bpe_encoder_cut(const Encoder *encoder, const char *text, size_t size);
MUST_USE Status bpe_save(const Tokenizer *tokenizer, const char *dir);

#endif
