/* The vocabulary of a GGUF file: tokens with their types, and how llama.cpp turns text into them. */
#ifndef WEFT_CHECKPOINT_GGUF_VOCAB_H
#define WEFT_CHECKPOINT_GGUF_VOCAB_H

#include "base/json.h"
#include "checkpoint/gguf_meta.h"
#include "model/config.h"
#include "tokenizer/tokenizer.h"

/* How llama.cpp describes a BPE tokenizer. */
typedef struct GgufBpe {
    const char *pre;   /* name of the pre-tokenizer; NULL: SentencePiece's BPE, and the rest: */
    bool space_prefix; /* a space is put before texts */
    int32_t unk;       /* token of unknown characters; -1: none */
    float *scores;     /* of all tokens; merges with a higher score come first */
} GgufBpe;

void gguf_bpe_done(GgufBpe *bpe);
/* Fails if llama.cpp has no tokenizer that gives the same tokens. `json` is tokenizer.json, or NULL if the
 * tokenizer comes from other files; `from` names it in errors. */
MUST_USE Status gguf_bpe_find(const Tokenizer *tokenizer, const json_t *json, const char *from,
                              GgufBpe *ret_bpe);

/* A pre-tokenizer of byte-level BPEs that weft reads and writes. */
typedef struct GgufPre {
    const char *split; /* expression of a Split, or NULL */
    bool digits;       /* digits are split one by one */
    bool words;        /* ByteLevel splits into GPT-2's words */
    bool ignore_merges;
} GgufPre;
/* False if weft does not know the name. */
bool gguf_pre_find(const char *name, GgufPre *ret_pre);

/* Types of tokens, numbered as in the file. */
enum {
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN = 2,
    TYPE_CONTROL = 3,
    TYPE_USER_DEFINED = 4,
    TYPE_UNUSED = 5,
    TYPE_BYTE = 6
};

/* The keys of the tokenizer in `dir`, with its chat template. Without a tokenizer, those of the bytes, or of
 * no vocabulary. */
MUST_USE Status gguf_put_vocab(GgufMeta *meta, const char *dir, const ModelConfig *config);

#endif
