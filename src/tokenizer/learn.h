/* Learning a vocabulary from text: byte-level BPE as GPT-2's, WordPiece as BERT's. */
#ifndef WEFT_TOKENIZER_LEARN_H
#define WEFT_TOKENIZER_LEARN_H

#include "tokenizer/tokenizer.h"

typedef struct LearnSpec {
    TokenizerKind kind;     /* BPE or WORDPIECE */
    int64_t vocab;          /* entries wanted, special tokens and the alphabet included */
    int64_t min_count;      /* a pair that occurs less often is not merged; 2 */
    bool cased;             /* WORDPIECE: keep case and accents */
    int64_t alphabet_limit; /* WORDPIECE: characters kept, the most frequent ones; 1000 */
    const char **special;   /* NULL: <|endoftext|>, or [PAD] [UNK] [CLS] [SEP] [MASK] */
    int special_count;
    int threads; /* 0: all */
} LearnSpec;

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

/* Called now and then with merges done and wanted. */
typedef void (*LearnProgress)(void *context, int64_t done, int64_t total);
MUST_USE Status learner_finish(Learner *learner, LearnProgress progress, void *context,
                               Tokenizer **ret_tokenizer);

#endif
