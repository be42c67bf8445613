/* Learning a vocabulary from text: byte-level BPE as GPT-2's, WordPiece as BERT's.
 *
 * BPE learns what Hugging Face's BpeTrainer with ByteLevel learns from the same documents, merge by merge and
 * id by id, for words of up to LEARN_WORD_LIMIT bytes. WordPiece does as its WordPieceTrainer does, but for
 * the order of the characters inside of words (##x), which there is that of a hash table and here that of the
 * code points; it matters where equally frequent pairs compete. Special tokens' names in the text are text
 * like any other, for both.
 *
 * Words longer than the limit, such as a line of base64, are learned from in parts by BPE; of such a word
 * WordPiece, which would not encode it, takes the begin. */
#ifndef WEFT_TOKENIZER_LEARN_H
#define WEFT_TOKENIZER_LEARN_H

#include "tokenizer/tokenizer.h"

enum { LEARN_WORD_LIMIT = 512 }; /* bytes; WordPiece: characters */

typedef struct LearnSpec {
    TokenizerKind kind;         /* BPE or WORDPIECE */
    int64_t vocab;              /* entries wanted, special tokens and the alphabet included */
    int64_t min_count;          /* a pair that occurs less often is not merged; 2 */
    bool cased;                 /* WORDPIECE: keep case and accents */
    int64_t alphabet_limit;     /* WORDPIECE: characters kept, the most frequent ones; 1000 */
    const char *const *special; /* NULL: the usual ones; WORDPIECE needs [UNK] */
    int special_count;
    int threads; /* 0: all */
} LearnSpec;

/* The usual special tokens: <|endoftext|>, or [PAD] [UNK] [CLS] [SEP] [MASK]. */
const char *const *learn_usual_special(TokenizerKind kind, int *ret_count);

/* Takes text in pieces, from several threads at once, counts its words, and learns from the counts. The
 * result depends on the text alone: not on the pieces, their order or the number of threads. */
typedef struct Learner Learner;

MUST_USE Status learner_new(Learner **ret_learner, const LearnSpec *spec);
void learner_free(Learner *learner);
DEFINE_FREEP(Learner, learner)

/* `slot` (0 .. threads - 1) names the calling thread's own table of counts. Pieces must be cut where
 * learner_cut says, or be whole documents. */
MUST_USE Status learner_add(Learner *learner, int slot, const char *text, size_t size);
size_t learner_cut(const Learner *learner, const char *text, size_t size);
int learner_slots(const Learner *learner);

/* Called now and then with tokens learned and wanted. */
typedef void (*LearnProgress)(void *context, int64_t done, int64_t total);
/* When the text does not have enough frequent pairs, the vocabulary is smaller than asked for. A text
 * without words is an error, and so is a vocabulary too small for WordPiece's alphabet. */
MUST_USE Status learner_finish(Learner *learner, LearnProgress progress, void *context,
                               Tokenizer **ret_tokenizer);

#endif
