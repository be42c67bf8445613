/* WordPiece decoding, as in Hugging Face's decoder: a piece that starts with ## is appended directly, any
 * other piece after a space, and clean-up removes that space before punctuation and contractions. Each
 * token is cleaned up separately, so text can be streamed. Without a decoder, all pieces are separated by
 * spaces. */
#include "tokenizer/wordpiece.h"

/* Applied in this order. */
static const struct {
    const char *from, *to;
} clean_ups[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                 {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                 {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

/* Replaces in place; `to` must not be longer than `from`. */
static void replace_all(Bytes *text, size_t start, const char *from, const char *to) {
    size_t from_size = strlen(from), to_size = strlen(to), put = start, at = start;
    while (at < text->size) {
        if (text->size - at >= from_size && !memcmp(text->data + at, from, from_size)) {
            memcpy(text->data + put, to, to_size);
            put += to_size;
            at += from_size;
        } else {
            text->data[put++] = text->data[at++];
        }
    }
    text->size = put;
}

void wordpiece_clean_up(Bytes *text, size_t start) {
    if (text->size == start || !memchr(text->data + start, ' ', text->size - start)) return;
    for (size_t i = 0; i < sizeof clean_ups / sizeof clean_ups[0]; i++)
        replace_all(text, start, clean_ups[i].from, clean_ups[i].to);
}

Status decode_wordpiece(const Tokenizer *tokenizer, DecodeState *state, int32_t id, Bytes *out) {
    const WordPiece *model = tokenizer->model;
    const size_t start = out->size, prefix = strlen(WORDPIECE_PREFIX);
    size_t size;
    const char *text = added_name(tokenizer, id, &size);
    bool continues = model->joins && size >= prefix && !memcmp(text, WORDPIECE_PREFIX, prefix);
    if (state->count > 0 && continues) {
        text += prefix;
        size -= prefix;
    } else if (state->count > 0) {
        TRY(bytes_add(out, " ", 1));
    }
    TRY(bytes_add(out, text, size));
    if (model->clean_up) wordpiece_clean_up(out, start);
    return OK;
}
