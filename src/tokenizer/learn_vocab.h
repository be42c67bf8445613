/* From counted words to a tokenizer. */
#ifndef WEFT_TOKENIZER_LEARN_VOCAB_H
#define WEFT_TOKENIZER_LEARN_VOCAB_H

#include "tokenizer/learn.h"
#include "tokenizer/learn_words.h"

/* Words are bytes for BPE, UTF-8 for WordPiece, and not empty. The table is empty afterwards: its memory is
 * needed for the merges. */
MUST_USE Status learn_bpe(const LearnSpec *spec, WordTable *words, LearnProgress progress, void *context,
                          Tokenizer **ret_tokenizer);
MUST_USE Status learn_wordpiece(const LearnSpec *spec, WordTable *words, LearnProgress progress,
                                void *context, Tokenizer **ret_tokenizer);

#endif
