/* Training of a tokenizer from word counts. */
#ifndef WEFT_TOKENIZER_LEARN_VOCAB_H
#define WEFT_TOKENIZER_LEARN_VOCAB_H

#include "tokenizer/learn.h"
#include "tokenizer/learn_words.h"

/* Words are not empty; bytes for BPE, UTF-8 for WordPiece. The table is emptied to free memory for the
 * merges. `progress` may be NULL. */
MUST_USE Status learn_bpe(const LearnSpec *spec, WordTable *words, LearnProgress progress, void *context,
                          Tokenizer **ret_tokenizer);
MUST_USE Status learn_wordpiece(const LearnSpec *spec, WordTable *words, LearnProgress progress,
                                void *context, Tokenizer **ret_tokenizer);

#endif
