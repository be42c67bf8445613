/* WordPiece back to text, as the Hugging Face library's decoder has it: a piece that starts with ## is
 * joined to what is before it, any other stands after a space, and clean-up takes that space away before
 * signs and the ends of contractions. Each token is cleaned by itself, so text can be handed out as the
 * tokens come. */
#include "tokenizer/wordpiece.h"

/* In this order. */
static const struct {
    const char *from, *to;
} clean_ups[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                 {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                 {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

/* Replaces in place: what comes is never longer than what goes. */
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

Status decode_wordpiece(const Tokenizer *tokenizer, DecodeState *state, int32_t id, Bytes *out) {
    const WordPiece *model = tokenizer->model;
    const size_t start = out->size, inside = strlen(WORDPIECE_INSIDE);
    size_t size;
    const char *text = vocab_token(&tokenizer->vocab, id, &size);
    if (state->count > 0) {
        if (size >= inside && !memcmp(text, WORDPIECE_INSIDE, inside)) {
            text += inside;
            size -= inside;
        } else {
            TRY(bytes_add(out, " ", 1));
        }
    }
    TRY(bytes_add(out, text, size));
    if (!model->clean_up || !memchr(out->data + start, ' ', out->size - start)) return OK;
    for (size_t i = 0; i < sizeof clean_ups / sizeof clean_ups[0]; i++)
        replace_all(out, start, clean_ups[i].from, clean_ups[i].to);
    return OK;
}
