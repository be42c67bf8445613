/* UTF-8 decoding, validated byte by byte: overlong encodings, surrogates and code points above U+10FFFF are
 * invalid. Also text repair with U+FFFD and the character classes of added tokens. */
#include "tokenizer/chars.h"
#include "tokenizer/internal.h"

int utf8_length(unsigned char first) {
    if (first < 0x80) return 1;
    if (first >= 0xC2 && first <= 0xDF) return 2;
    if (first >= 0xE0 && first <= 0xEF) return 3;
    return first >= 0xF0 && first <= 0xF4 ? 4 : 0;
}

/* Whether `byte` is valid as byte number `at` > 0 of a character that starts with `first`. The second byte
 * rules out overlong encodings, surrogates and code points that are too large. */
static bool is_continuation(unsigned char first, int at, unsigned char byte) {
    unsigned char low = 0x80, high = 0xBF;
    if (at == 1) {
        switch (first) {
        case 0xE0: low = 0xA0; break;
        case 0xED: high = 0x9F; break;
        case 0xF0: low = 0x90; break;
        case 0xF4: high = 0x8F; break;
        default: break;
        }
    }
    return byte >= low && byte <= high;
}

/* The number of valid leading bytes of the first character, at most `length`. */
static int valid_prefix(const unsigned char *text, size_t size, int length) {
    int valid = 1;
    while (valid < length && (size_t)valid < size && is_continuation(text[0], valid, text[valid])) valid++;
    return valid;
}

size_t utf8_next(const char *text, size_t size, uint32_t *ret_char) {
    const unsigned char *bytes = (const unsigned char *)text;
    int length = utf8_length(bytes[0]);
    *ret_char = UTF8_INVALID;
    if (length == 0 || valid_prefix(bytes, size, length) < length) return 1;
    static const unsigned char lead[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t c = bytes[0] & lead[length];
    for (int i = 1; i < length; i++) c = c << 6 | (bytes[i] & 0x3F);
    *ret_char = c;
    return (size_t)length;
}

size_t utf8_previous(const char *text, size_t size, uint32_t *ret_char) {
    for (size_t back = 1; back <= 4 && back <= size; back++) {
        if (((unsigned char)text[size - back] & 0xC0) == 0x80) continue;
        if (utf8_next(text + size - back, back, ret_char) == back) return back;
        break;
    }
    *ret_char = UTF8_INVALID;
    return 1;
}

size_t utf8_unfinished(const char *text, size_t size) {
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        const unsigned char *at = (const unsigned char *)text + size - back;
        if ((*at & 0xC0) == 0x80) continue;
        int length = utf8_length(*at);
        bool open = (size_t)length > back && (size_t)valid_prefix(at, back, length) == back;
        return open ? back : 0;
    }
    return 0;
}

static Status add_replacement(Bytes *out) {
    return bytes_add(out, "\xEF\xBF\xBD", 3);
}

Status utf8_repair_end(Utf8Repair *repair, Bytes *out) {
    if (repair->count == 0) return OK;
    repair->count = 0;
    return add_replacement(out);
}

static Status push(Utf8Repair *repair, unsigned char byte, Bytes *out) {
    if (repair->count > 0 && !is_continuation(repair->pending[0], repair->count, byte))
        TRY(utf8_repair_end(repair, out));
    if (repair->count == 0) {
        repair->need = utf8_length(byte);
        if (repair->need == 0) return add_replacement(out);
    }
    repair->pending[repair->count++] = byte;
    if (repair->count < repair->need) return OK;
    size_t size = (size_t)repair->count;
    repair->count = 0;
    return bytes_add(out, (const char *)repair->pending, size);
}

Status utf8_repair(Utf8Repair *repair, const char *bytes, size_t size, Bytes *out) {
    for (size_t at = 0; at < size;) {
        size_t run = 0;
        if (repair->count == 0)
            while (at + run < size && (unsigned char)bytes[at + run] < 0x80) run++;
        if (run > 0) {
            TRY(bytes_add(out, bytes + at, run));
            at += run;
        } else {
            TRY(push(repair, (unsigned char)bytes[at++], out));
        }
    }
    return OK;
}

int64_t text_invalid_utf8(const char *text, size_t size, size_t *ret_first) {
    int64_t count = 0;
    for (size_t at = 0; at < size;) {
        uint64_t word;
        if (size - at >= sizeof word) {
            memcpy(&word, text + at, sizeof word);
            if (!(word & UINT64_C(0x8080808080808080))) {
                at += sizeof word;
                continue;
            }
        }
        uint32_t c;
        size_t bytes = utf8_next(text + at, size - at, &c);
        if (c == UTF8_INVALID && count++ == 0) *ret_first = at;
        at += bytes;
    }
    return count;
}

Status text_to_utf8(const char *bytes, size_t size, char **ret_text, size_t *ret_size) {
    CLEANUP(bytes_done) Bytes out = {0};
    Utf8Repair repair = {0};
    TRY(utf8_repair(&repair, bytes, size, &out));
    TRY(utf8_repair_end(&repair, &out));
    TRY(bytes_add(&out, "", 1));
    *ret_text = out.data;
    *ret_size = out.size - 1;
    out = (Bytes){0};
    return OK;
}

bool char_is_space(uint32_t c) {
    return char_class(c) & CHAR_SPACE;
}

bool char_is_word(uint32_t c) {
    return char_class(c) & CHAR_WORD;
}
