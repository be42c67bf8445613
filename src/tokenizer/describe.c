/* What exporters need to know of a tokenizer. */
#include "tokenizer/bpe.h"
#include "tokenizer/wordpiece.h"
#include "tokenizer/words.h"

TokenClass tokenizer_class(const Tokenizer *tokenizer, int32_t id) {
    if (tokenizer->special[id]) return TOKEN_SPECIAL;
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].id == id) return TOKEN_ADDED;
    return TOKEN_NORMAL;
}

Status tokenizer_spelling(const Tokenizer *tokenizer, int32_t id, char **ret_text) {
    size_t size;
    const char *token = vocab_token(&tokenizer->vocab, id, &size);
    char byte[2];
    if (tokenizer->ops->kind == TOKENIZER_BYTES && id < BYTE_END)
        size = bpe_spell((unsigned char)id, byte), token = byte;
    return str_format(ret_text, "%.*s", (int)size, token);
}

size_t tokenizer_merge_count(const Tokenizer *tokenizer) {
    return tokenizer->ops->kind == TOKENIZER_BPE ? ((const Bpe *)tokenizer->model)->merge_count : 0;
}

Status tokenizer_merge(const Tokenizer *tokenizer, size_t rank, char **ret_text) {
    const Bpe *bpe = tokenizer->model;
    size_t left, right;
    const char *left_text = vocab_token(&tokenizer->vocab, bpe->merges[rank].left, &left);
    const char *right_text = vocab_token(&tokenizer->vocab, bpe->merges[rank].right, &right);
    return str_format(ret_text, "%.*s %.*s", (int)left, left_text, (int)right, right_text);
}

bool tokenizer_is_plain(const Tokenizer *tokenizer) {
    const Bpe *bpe = tokenizer->model;
    if (tokenizer->ops != &tokenizer_ops_bpe)
        return tokenizer->ops == &tokenizer_ops_bytes || tokenizer->ops == &tokenizer_ops_wordpiece;
    return (!bpe->pipeline && bpe->use_regex && !bpe->add_prefix_space && !bpe->ignore_merges);
}

bool tokenizer_continues(const Tokenizer *tokenizer, int32_t id) {
    const char *prefix = NULL;
    if (tokenizer->ops == &tokenizer_ops_wordpiece) prefix = WORDPIECE_PREFIX;
    if (tokenizer->ops == &tokenizer_ops_pieces)
        prefix = words_prefix(((const Bpe *)tokenizer->model)->pipeline->words);
    size_t size, length = prefix ? strlen(prefix) : 0;
    const char *token = vocab_token(&tokenizer->vocab, id, &size);
    return length > 0 && size > length && !memcmp(token, prefix, length);
}

void tokenizer_normalizer(const Tokenizer *tokenizer, bool *ret_lowercase, bool *ret_strip_accents) {
    const WordPiece *pieces = tokenizer->model;
    *ret_lowercase = pieces->chars->settings.lowercase;
    *ret_strip_accents = pieces->chars->settings.strip_accents;
}
