/* Encoding of GGUF metadata. */
#include "checkpoint/gguf_meta.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void gguf_meta_done(GgufMeta *meta) {
    free(meta->data);
}

Status meta_bytes(GgufMeta *meta, const void *data, size_t size) {
    TRY(mem_grow(&meta->data, &meta->capacity, meta->size + size, 1));
    if (size) memcpy(meta->data + meta->size, data, size);
    meta->size += size;
    return OK;
}

/* Both of weft's architectures are little-endian, like the file. */
Status meta_u32(GgufMeta *meta, uint32_t value) {
    return meta_bytes(meta, &value, sizeof value);
}

Status meta_u64(GgufMeta *meta, uint64_t value) {
    return meta_bytes(meta, &value, sizeof value);
}

Status meta_text(GgufMeta *meta, const char *text, size_t size) {
    TRY(meta_u64(meta, size));
    return meta_bytes(meta, text, size);
}

static Status put_key(GgufMeta *meta, const char *key, MetaType type) {
    meta->count++;
    TRY(meta_text(meta, key, strlen(key)));
    return meta_u32(meta, type);
}

Status meta_put_u32(GgufMeta *meta, const char *key, int64_t value) {
    TRY(put_key(meta, key, META_U32));
    return meta_u32(meta, (uint32_t)value);
}

Status meta_put_f32(GgufMeta *meta, const char *key, float value) {
    TRY(put_key(meta, key, META_F32));
    return meta_bytes(meta, &value, sizeof value);
}

Status meta_put_bool(GgufMeta *meta, const char *key, bool value) {
    TRY(put_key(meta, key, META_BOOL));
    return meta_bytes(meta, &(char){value}, 1);
}

Status meta_put_text(GgufMeta *meta, const char *key, const char *text) {
    TRY(put_key(meta, key, META_STRING));
    return meta_text(meta, text, strlen(text));
}

Status meta_put_array(GgufMeta *meta, const char *key, MetaType type, uint64_t count) {
    TRY(put_key(meta, key, META_ARRAY));
    TRY(meta_u32(meta, type));
    return meta_u64(meta, count);
}

/* ---- the vocabulary ---- */

/* Types of tokens, numbered as in the file. */
enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_UNUSED = 5 };

static int32_t token_type(const Tokenizer *tokenizer, int64_t id) {
    if (id >= tokenizer_vocab(tokenizer)) return TYPE_UNUSED;
    TokenClass class = tokenizer_class(tokenizer, (int32_t)id);
    return class == TOKEN_SPECIAL ? TYPE_CONTROL : class == TOKEN_ADDED ? TYPE_USER_DEFINED : TYPE_NORMAL;
}

/* llama.cpp's WordPiece marks the start of a word (U+2581) instead of its continuation (##). */
static Status put_token(GgufMeta *meta, const Tokenizer *tokenizer, int64_t id) {
    CLEANUP(mem_freep) char *text = NULL, *marked = NULL;
    if (id >= tokenizer_vocab(tokenizer))
        TRY(str_format(&text, "[PAD%lld]", (long long)id));
    else
        TRY(tokenizer_spelling(tokenizer, (int32_t)id, &text));
    const char *shown = text;
    if (tokenizer_kind(tokenizer) == TOKENIZER_WORDPIECE && token_type(tokenizer, id) == TYPE_NORMAL) {
        if (!strncmp(text, "##", 2)) {
            shown = text + 2;
        } else {
            TRY(str_format(&marked, "\xE2\x96\x81%s", text));
            shown = marked;
        }
    }
    return meta_text(meta, shown, strlen(shown));
}

static Status put_tokens(GgufMeta *meta, const Tokenizer *tokenizer, int64_t vocab) {
    TRY(meta_put_array(meta, "tokenizer.ggml.tokens", META_STRING, (uint64_t)vocab));
    for (int64_t id = 0; id < vocab; id++) TRY(put_token(meta, tokenizer, id));
    TRY(meta_put_array(meta, "tokenizer.ggml.token_type", META_I32, (uint64_t)vocab));
    for (int64_t id = 0; id < vocab; id++) TRY(meta_u32(meta, (uint32_t)token_type(tokenizer, id)));
    return OK;
}

static Status put_merges(GgufMeta *meta, const Tokenizer *tokenizer) {
    size_t count = tokenizer_merge_count(tokenizer);
    TRY(meta_put_array(meta, "tokenizer.ggml.merges", META_STRING, count));
    for (size_t i = 0; i < count; i++) {
        CLEANUP(mem_freep) char *text = NULL;
        TRY(tokenizer_merge(tokenizer, i, &text));
        TRY(meta_text(meta, text, strlen(text)));
    }
    return OK;
}

static Status put_id(GgufMeta *meta, const char *key, int64_t id) {
    return id < 0 ? OK : meta_put_u32(meta, key, id);
}

/* BERT's texts start with [CLS] and end with [SEP]; llama.cpp calls [CLS] BOS. */
static Status put_bert_tokens(GgufMeta *meta, const Tokenizer *tokenizer) {
    SpecialTokens roles = tokenizer_special(tokenizer);
    TRY(put_id(meta, "tokenizer.ggml.bos_token_id", roles.cls));
    TRY(put_id(meta, "tokenizer.ggml.eos_token_id", roles.sep));
    TRY(put_id(meta, "tokenizer.ggml.cls_token_id", roles.cls));
    TRY(put_id(meta, "tokenizer.ggml.seperator_token_id", roles.sep)); /* the key's own spelling */
    TRY(put_id(meta, "tokenizer.ggml.unknown_token_id", roles.unk));
    TRY(put_id(meta, "tokenizer.ggml.padding_token_id", roles.pad));
    return put_id(meta, "tokenizer.ggml.mask_token_id", roles.mask);
}

static Status put_wordpiece(GgufMeta *meta, const Tokenizer *tokenizer, int64_t vocab) {
    bool lowercase, strip_accents;
    tokenizer_normalizer(tokenizer, &lowercase, &strip_accents);
    TRY(meta_put_text(meta, "tokenizer.ggml.model", "bert"));
    TRY(put_tokens(meta, tokenizer, vocab));
    TRY(meta_put_bool(meta, "tokenizer.ggml.normalizer.lowercase", lowercase));
    TRY(meta_put_bool(meta, "tokenizer.ggml.normalizer.strip_accents", strip_accents));
    return put_bert_tokens(meta, tokenizer);
}

static Status put_bpe(GgufMeta *meta, const Tokenizer *tokenizer, int64_t vocab, int64_t bos, int64_t eos) {
    bool bert = tokenizer_special(tokenizer).cls >= 0;
    TRY(meta_put_text(meta, "tokenizer.ggml.model", "gpt2"));
    TRY(meta_put_text(meta, "tokenizer.ggml.pre", "gpt-2"));
    TRY(put_tokens(meta, tokenizer, vocab));
    TRY(put_merges(meta, tokenizer));
    TRY(meta_put_bool(meta, "tokenizer.ggml.add_bos_token", bert));
    TRY(meta_put_bool(meta, "tokenizer.ggml.add_eos_token", bert));
    if (bert) return put_bert_tokens(meta, tokenizer);
    TRY(put_id(meta, "tokenizer.ggml.bos_token_id", bos < vocab ? bos : -1));
    return put_id(meta, "tokenizer.ggml.eos_token_id", eos < vocab ? eos : -1);
}

Status meta_put_tokenizer(GgufMeta *meta, const Tokenizer *tokenizer, int64_t vocab, int64_t bos,
                          int64_t eos) {
    if (!tokenizer) return meta_put_text(meta, "tokenizer.ggml.model", "none");
    if (tokenizer_kind(tokenizer) == TOKENIZER_WORDPIECE) return put_wordpiece(meta, tokenizer, vocab);
    return put_bpe(meta, tokenizer, vocab, bos, eos);
}
