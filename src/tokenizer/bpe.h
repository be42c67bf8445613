/* The model of a BPE tokenizer, shared by the bpe*.c files:
 *
 *   bpe.c              building the model
 *   bpe_pretokenize.*  word boundaries by GPT-2's pattern
 *   bpe_merge.c        merging the bytes of a word
 *   bpe_encode.c       the loop over words, with a cache of short words
 *   bpe_pipeline.c     tokenizers with another normalizer, pre-tokenizer or decoder
 *   words.c            models without merges in such a pipeline
 *   bpe_decode.c       their decoders
 *   bpe_load.c         files
 *   bpe_save.c
 */
#ifndef WEFT_TOKENIZER_BPE_H
#define WEFT_TOKENIZER_BPE_H

#include "tokenizer/normalizer.h"
#include "tokenizer/pretokenizer.h"

typedef struct BpeDecoder BpeDecoder;
struct Words;

/* An open-addressing hash table of pairs of ids, at most half full: keys are left << 32 | right, or
 * PAIR_EMPTY. Ranks are in a separate array, since most lookups find nothing. */
#define PAIR_EMPTY UINT64_MAX
enum { RANK_NONE = 0x7FFFFFFF }; /* rank of a pair that does not merge */

/* What differs from GPT-2's pipeline (bpe_pipeline.c). */
typedef struct BpePipeline {
    Normalizer *normalizer; /* NULL: none */
    Pretokenizer *pre;
    BpeDecoder *decoder;
    struct Words *words;       /* a model without merges, in place of BPE's; then chars is set */
    bool chars;                /* the symbols of a word are its characters, not its bytes */
    int32_t unk;               /* characters: the token of those that are not in the vocabulary; -1: none */
    bool fuse_unk;             /* one unk for several such characters in a row */
    bool byte_fallback;        /* their bytes instead, if all have a token */
    int32_t fallback_ids[256]; /* <0x00> to <0xFF>; -1: not in the vocabulary */
    char space[4]; /* the character for a space, if no merge crosses the place before it; else empty */
    size_t space_size;
    bool prepends; /* the normalizer prepends text */
    json_t *json;  /* tokenizer.json without vocabulary, merges, added tokens and post-processor */
    uint64_t hash; /* of the parts of `json` that determine the ids, for fingerprints */
} BpePipeline;

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
    bool undecoded;        /* without a decoder, text is the spellings of tokens, separated by spaces */
    bool ignore_merges;    /* look up complete words in the vocabulary before merging */
    char *text;            /* decoded bytes of all tokens: token i is starts[i] .. starts[i + 1] - 1 */
    size_t *starts;
    BpePipeline *pipeline; /* NULL: GPT-2's, as described by the fields above */
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

/* The token that ends a text by tokenizer_config.json next to `from`, if there is one. */
MUST_USE Status bpe_find_end(Tokenizer *tokenizer, const char *from);
/* From the contents of vocab.json and merges.txt. The paths are used in errors; vocab_path also locates
 * tokenizer_config.json and added_tokens.json. */
MUST_USE Status bpe_from_text(Tokenizer **ret_tokenizer, const json_t *vocab, const char *vocab_path,
                              const char *merges, size_t size, const char *merges_path);

/* The byte that a character of a spelling stands for, or -1. */
int bpe_unspell(uint32_t c);
/* Decodes a spelling into `out`, which must hold `size` bytes; returns the number of bytes. A spelling with a
 * character that stands for no byte is copied. */
size_t bpe_unspell_text(const char *token, size_t size, char *out);
/* The byte of a token of six characters such as <0x0A>, or -1. */
int bpe_fallback_byte(const char *token);

/* Workspace for merging; grows as needed. Initialize with {0}. */
typedef struct MergeScratch {
    int32_t *ids;
    int32_t *ranks;
    uint32_t *next, *previous; /* linked list, long words only */
    uint64_t *heap;
    size_t id_capacity, rank_capacity, next_capacity, previous_capacity, heap_capacity, heap_count;
} MergeScratch;

void merge_scratch_done(MergeScratch *scratch);
/* Merges the symbols of one word in place; *ret_count is the number of tokens that remain. */
MUST_USE Status bpe_merge(const Bpe *bpe, MergeScratch *scratch, int32_t *ids, size_t size,
                          size_t *ret_count);

/* ---- pipelines ---- */

void bpe_pipeline_free(BpePipeline *pipeline);
DEFINE_FREEP(BpePipeline, bpe_pipeline)
/* Whether the model of a tokenizer.json has a token for each of the 256 bytes, or its vocabulary is
 * elsewhere. */
bool bpe_spells_bytes(const json_t *json);
/* Reads normalizer, pre_tokenizer and decoder of tokenizer.json, and the model's options. */
MUST_USE Status bpe_pipeline_new(BpePipeline **ret_pipeline, const json_t *json, const char *from);
/* Call once the vocabulary, merges and added tokens are known. */
MUST_USE Status bpe_pipeline_finish(Tokenizer *tokenizer, const char *from);
/* Writes the symbols of a word to `ids`, which must hold `size`, and with `lengths` how many bytes each has;
 * returns their number. */
size_t bpe_pipeline_symbols(const BpePipeline *pipeline, const Vocab *vocab, const char *word, size_t size,
                            int32_t *ids, uint32_t *lengths);
MUST_USE Status bpe_pipeline_cut(const BpePipeline *pipeline, PretokenizerScratch *scratch, const char *text,
                                 size_t size, size_t *ret_cut);

/* From the component of tokenizer.json, which may be null. */
MUST_USE Status bpe_decoder_new(BpeDecoder **ret_decoder, const json_t *json, const char *from);
void bpe_decoder_free(BpeDecoder *decoder);
DEFINE_FREEP(BpeDecoder, bpe_decoder)
/* Appends the text of a token that is not the first, before stripping. */
MUST_USE Status bpe_decoder_token(const BpeDecoder *decoder, const char *token, size_t size, bool first,
                                  Bytes *out);
/* Appends the text of a token: `text`, unless it is the first, without what is stripped. Bytes are held back
 * until a token that is none, or _end. */
MUST_USE Status bpe_decoder_add(const BpeDecoder *decoder, DecodeState *state, const char *token,
                                size_t token_size, const char *text, size_t size, Bytes *out);
MUST_USE Status bpe_decoder_end(const BpeDecoder *decoder, DecodeState *state, Bytes *out);

MUST_USE Status bpe_encoder_init(Encoder *encoder);
void bpe_encoder_done(Encoder *encoder);
MUST_USE Status bpe_encode(Encoder *encoder, const char *text, size_t size, size_t base, TokenList *list);
size_t bpe_encoder_cut(const Encoder *encoder, const char *text, size_t size);
MUST_USE Status bpe_save(const Tokenizer *tokenizer, const char *dir);

#endif
