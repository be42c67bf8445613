/* Tokenizer training: byte-level BPE as for GPT-2, WordPiece as for BERT.
 *
 * BPE yields the same merges and ids as Hugging Face's BpeTrainer with ByteLevel on the same documents,
 * except that tokens of more than TOKEN_LIMIT bytes are not formed. WordPiece follows WordPieceTrainer except
 * for the order of continuation characters (##x): Hugging Face's order comes from a hash table, weft's from
 * the code points. The difference matters only where equally frequent pairs compete. Both treat special
 * tokens that occur in the text as ordinary text. Of a word with more than LEARN_WORD_LIMIT characters, such
 * as a line of base64, WordPiece, which would encode it as [UNK], uses only the beginning. */
#ifndef WEFT_TOKENIZER_LEARN_H
#define WEFT_TOKENIZER_LEARN_H

#include "tokenizer/tokenizer.h"

enum { LEARN_WORD_LIMIT = 512 }; /* characters; WordPiece only */

typedef struct LearnSpec {
    TokenizerKind kind; /* TOKENIZER_BPE or TOKENIZER_WORDPIECE */
    int64_t vocab;      /* target size, including special tokens and the alphabet */
    int64_t min_count;  /* pairs that occur less often are not merged; usually 2 */
    bool cased;         /* WordPiece: keep case and accents */
    int64_t
        alphabet_limit; /* WordPiece: size of the alphabet, most frequent characters first; usually 1000 */
    const char *const *special; /* NULL: learn_default_special; WordPiece requires [UNK] */
    int special_count;
    int threads; /* 0: all cores (OpenMP's default) */
} LearnSpec;

/* The default special tokens: <|endoftext|> for BPE, [PAD] [UNK] [CLS] [SEP] [MASK] for WordPiece. */
const char *const *learn_default_special(TokenizerKind kind, int *ret_count);

/* A trainer: counts the words of text that several threads add in chunks, then trains on the counts. The
 * result depends only on the text, not on the chunks, their order or the number of threads. */
typedef struct Learner Learner;

/* Copies `spec`, including the special tokens. An invalid specification is a usage error. */
MUST_USE Status learner_new(Learner **ret_learner, const LearnSpec *spec);
void learner_free(Learner *learner);
DEFINE_FREEP(Learner, learner)

/* Counts the words of a chunk. `slot` (0 .. learner_slots - 1) selects a table of counts that no other
 * thread uses at the same time. A chunk must be a complete document or end where learner_cut allows. */
MUST_USE Status learner_add(Learner *learner, int slot, const char *text, size_t size);
size_t learner_cut(const Learner *learner, const char *text, size_t size);
int learner_slots(const Learner *learner);

/* Called periodically with the number of merged tokens so far and the target. */
typedef void (*LearnProgress)(void *context, int64_t done, int64_t total);
/* Trains on the counts. The vocabulary is smaller than requested if the text has too few frequent pairs.
 * Text without words is an error, and so is a vocabulary too small for WordPiece's alphabet. `progress`
 * may be NULL. */
MUST_USE Status learner_finish(Learner *learner, LearnProgress progress, void *context,
                               Tokenizer **ret_tokenizer);

#endif
