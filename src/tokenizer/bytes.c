/* The byte vocabulary: ids 0 to 255 are bytes. The special tokens after them are never matched in text. */
#include "tokenizer/internal.h"

static Status encode(Encoder *encoder, const char *text, size_t size, size_t base, TokenList *list) {
    TRY(token_list_reserve(list, size, encoder->options.offsets));
    int32_t *ids = list->ids + list->count;
    for (size_t i = 0; i < size; i++) ids[i] = (unsigned char)text[i];
    if (encoder->options.offsets)
        for (size_t i = 0; i < size; i++)
            list->offsets[list->count + i] = (TokenOffset){base + i, base + i + 1};
    list->count += size;
    return OK;
}

static size_t cut(const Encoder *encoder, const char *text, size_t size) {
    (void)encoder, (void)text;
    return size;
}

static Status decode(const Tokenizer *tokenizer, DecodeState *state, int32_t id, Bytes *out) {
    (void)state;
    size_t size;
    const char *token = vocab_token(&tokenizer->vocab, id, &size);
    return bytes_add(out, token, size);
}

const TokenizerOps tokenizer_ops_bytes = {.kind = TOKENIZER_BYTES,
                                          .name = "bytes",
                                          .encode = encode,
                                          .cut = cut,
                                          .decode = decode,
                                          .save = bytes_save};

Status tokenizer_new_bytes(Tokenizer **ret_tokenizer, bool bert) {
    static const char *const names[] = {"<|endoftext|>", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"};
    const char *from = "the byte vocabulary";
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    TRY(tokenizer_new(&tokenizer, &tokenizer_ops_bytes));
    int32_t count = bert ? BYTE_VOCAB_BERT : BYTE_VOCAB_GPT2;
    TRY(vocab_init(&tokenizer->vocab, count, from));
    for (int32_t id = 0; id < count; id++) {
        char byte = (char)id;
        const char *token = id < BYTE_END ? &byte : names[id - BYTE_END];
        TRY(vocab_put(&tokenizer->vocab, id, token, id < BYTE_END ? 1 : strlen(token), from));
    }
    TRY(tokenizer_finish(tokenizer, from));
    for (int32_t id = BYTE_END; id < count; id++) tokenizer->special[id] = tokenizer->omitted[id] = 1;
    tokenizer->roles = (SpecialTokens){-1, -1, -1, -1, -1, BYTE_END};
    if (bert) tokenizer->roles = (SpecialTokens){BYTE_PAD, BYTE_CLS, BYTE_SEP, BYTE_MASK, BYTE_UNK, BYTE_END};
    TRY(post_processor_set_bert(tokenizer, from));
    return MOVE(ret_tokenizer, tokenizer);
}
