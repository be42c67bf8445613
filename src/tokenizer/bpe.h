/* The model of a BPE tokenizer, for the files bpe*.c.
 *
 * bpe_words.c   where words end, by GPT-2's pattern
 * bpe_merge.c   merging the bytes of a word
 * bpe_encode.c  the loop over words, with a cache of the short ones
 * bpe_load.c, bpe_save.c   files
 */
#ifndef WEFT_TOKENIZER_BPE_H
#define WEFT_TOKENIZER_BPE_H

#include "tokenizer/internal.h"

/* Pairs of ids in an open-addressing table at most half full: a key is left << 32 | right, PAIR_EMPTY where
 * there is none. Ranks stand in an array of their own, since most pairs that are looked up are not there. */
#define PAIR_EMPTY UINT64_MAX
enum { RANK_NONE = 0x7FFFFFFF }; /* a pair that does not merge */

typedef struct Bpe {
    BpeMerge *merges; /* by rank */
    int32_t *merged;  /* by rank: the token a merge gives */
    size_t merge_count;
    uint64_t *pair_keys;
    int32_t *pair_ranks;
    int pair_shift; /* 64 - log2 of the slots */
    size_t pair_mask;
    int32_t byte_ids[256];
    bool add_prefix_space; /* a text that starts with no space gets one */
    bool ignore_merges;    /* a word that is a token needs no merges */
    char *text;            /* the bytes that tokens stand for: token i from starts[i] to starts[i + 1] */
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

/* A merge as a file has it; `where` names its place in messages. */
MUST_USE Status bpe_add_merge(Bpe *bpe, const Vocab *vocab, const char *left, size_t left_size,
                              const char *right, size_t right_size, const char *where);
/* Room for so many merges, none yet. */
MUST_USE Status bpe_new(Bpe **ret_bpe, size_t merges);
void bpe_free(void *bpe);
/* After the vocabulary, the added tokens and the merges: what follows from them, then tokenizer_finish. */
MUST_USE Status bpe_finish(Tokenizer *tokenizer, const char *from);

/* From the contents of vocab.json and merges.txt; the paths name them in messages. */
MUST_USE Status bpe_from_text(Tokenizer **ret_tokenizer, const json_t *vocab, const char *vocab_path,
                              const char *merges, size_t size, const char *merges_path);

/* The byte that a character of a spelling stands for, -1 for none. */
int bpe_unspell(uint32_t c);

/* Room to merge in: grows with the words. */
typedef struct MergeScratch {
    int32_t *ids;
    int32_t *ranks;
    uint32_t *next, *previous; /* of long words */
    uint64_t *heap;
    size_t id_capacity, rank_capacity, next_capacity, previous_capacity, heap_capacity, heap_count;
} MergeScratch;

void merge_scratch_done(MergeScratch *scratch);
/* Writes the tokens of one word to `ids`, which has room for `size`, and their number to *ret_count. */
MUST_USE Status bpe_merge(const Bpe *bpe, MergeScratch *scratch, const unsigned char *word, size_t size,
                          int32_t *ids, size_t *ret_count);

MUST_USE Status bpe_encoder_init(Encoder *encoder);
void bpe_encoder_done(Encoder *encoder);
MUST_USE Status bpe_encode(Encoder *encoder, const char *text, size_t size, size_t base, TokenList *list);
size_t bpe_encoder_cut(const Encoder *encoder, const char *text, size_t size);
MUST_USE Status bpe_save(const Tokenizer *tokenizer, const char *dir);

#endif
