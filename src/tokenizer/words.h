/* Models without merges, as part of a pipeline (bpe.h): WordLevel looks words up, WordPiece divides them into
 * the longest pieces. BERT's own pipeline has its faster model in wordpiece.c. */
#ifndef WEFT_TOKENIZER_WORDS_H
#define WEFT_TOKENIZER_WORDS_H

#include "tokenizer/internal.h"

typedef struct Words Words;

/* From 'model' of tokenizer.json; NULL for BPE. */
MUST_USE Status words_new(Words **ret_words, const json_t *model, const char *from);
void words_free(Words *words);
DEFINE_FREEP(Words, words)
/* Call once the vocabulary is complete. */
MUST_USE Status words_finish(Words *words, const Vocab *vocab, const char *unk, const char *from);
int32_t words_unk(const Words *words);
/* The prefix of a piece that continues a word; NULL for WordLevel. */
const char *words_prefix(const Words *words);
/* Writes the tokens of a word to `ids`, which must hold `size`, and with `lengths` how many bytes each has;
 * returns their number. */
size_t words_tokens(const Words *words, const Vocab *vocab, const char *word, size_t size, int32_t *ids,
                    uint32_t *lengths);

/* Whether BERT's model can load a WordPiece: its normalizer or none, pre-tokenizer and decoder, and pieces
 * with ##. */
bool words_is_bert(const json_t *json);
/* From a tokenizer.json whose model.type is WordLevel or WordPiece. */
MUST_USE Status tokenizer_load_words_json(Tokenizer **ret_tokenizer, const json_t *json, const char *from);

#endif
