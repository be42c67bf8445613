/* UTF-8, checked byte by byte. */
#include "infer/text.h"

#include <string.h>

#include "base/memory.h"

static size_t put_broken(char *piece) {
    memcpy(piece, "\xEF\xBF\xBD", 3);
    return 3;
}

/* Bytes of the character that starts with this one; 0: none does. */
static int length_from(unsigned char byte) {
    if (byte < 0x80) return 1;
    if (byte >= 0xC2 && byte <= 0xDF) return 2;
    if (byte >= 0xE0 && byte <= 0xEF) return 3;
    return byte >= 0xF0 && byte <= 0xF4 ? 4 : 0;
}

/* Overlong forms, surrogates and numbers past the last show in the second byte. */
static bool continues(const TextStream *stream, unsigned char byte) {
    unsigned char low = 0x80, high = 0xBF;
    if (stream->count == 1) {
        switch (stream->held[0]) {
        case 0xE0: low = 0xA0; break;
        case 0xED: high = 0x9F; break;
        case 0xF0: low = 0x90; break;
        case 0xF4: high = 0x8F; break;
        default: break;
        }
    }
    return byte >= low && byte <= high;
}

size_t text_push(TextStream *stream, int32_t token, char piece[TEXT_PIECE]) {
    if (token < 0 || token > 255) return text_end(stream, piece);
    unsigned char byte = (unsigned char)token;
    size_t size = 0;
    if (stream->count > 0 && !continues(stream, byte)) size = text_end(stream, piece);
    if (stream->count == 0) {
        stream->need = length_from(byte);
        if (stream->need == 0) return size + put_broken(piece + size);
    }
    stream->held[stream->count++] = byte;
    if (stream->count < stream->need) return size;
    memcpy(piece + size, stream->held, (size_t)stream->count);
    size += (size_t)stream->count;
    stream->count = 0;
    return size;
}

size_t text_end(TextStream *stream, char piece[TEXT_PIECE]) {
    if (stream->count == 0) return 0;
    stream->count = 0;
    return put_broken(piece);
}

Status text_of_tokens(const int32_t *tokens, int64_t count, char **ret_text, size_t *ret_size) {
    char *text = NULL;
    TRY(mem_new((size_t)count + 1, 3, &text)); /* a token adds a broken character at most */
    TextStream stream = {0};
    size_t size = 0;
    for (int64_t i = 0; i < count; i++) {
        char piece[TEXT_PIECE];
        size_t more = text_push(&stream, tokens[i], piece);
        memcpy(text + size, piece, more);
        size += more;
    }
    size += text_end(&stream, text + size);
    text[size] = 0;
    *ret_text = text;
    *ret_size = size;
    return OK;
}
