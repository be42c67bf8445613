/* The data is its decompressed size, then elements: literal bytes, or a copy of bytes that the output already
 * has, at an offset back from its end. The low two bits of an element's first byte say which. */
#include "data/snappy.h"

#include <stdint.h>
#include <string.h>

typedef struct Snappy {
    const unsigned char *in, *end;
    unsigned char *out;
    size_t size, capacity; /* of the output */
} Snappy;

/* A little-endian number of `bytes` bytes; false if they are missing. */
static bool take_number(Snappy *s, int bytes, size_t *ret_number) {
    if (s->end - s->in < bytes) return false;
    *ret_number = 0;
    for (int i = 0; i < bytes; i++) *ret_number |= (size_t)*s->in++ << 8 * i;
    return true;
}

static bool take_literal(Snappy *s, unsigned char tag) {
    size_t length = tag >> 2;
    if (length >= 60 && !take_number(s, (int)length - 59, &length)) return false;
    length++;
    if (length > (size_t)(s->end - s->in) || length > s->capacity - s->size) return false;
    memcpy(s->out + s->size, s->in, length);
    s->in += length;
    s->size += length;
    return true;
}

static bool take_copy(Snappy *s, unsigned char tag) {
    size_t length = (tag >> 2) + 1u, offset = 0;
    int kind = tag & 3;
    if (!take_number(s, kind == 3 ? 4 : kind, &offset)) return false;
    if (kind == 1) {
        length = (tag >> 2 & 7) + 4u;
        offset |= (size_t)(tag >> 5) << 8;
    }
    if (offset == 0 || offset > s->size || length > s->capacity - s->size) return false;
    for (; length; length--, s->size++) s->out[s->size] = s->out[s->size - offset]; /* may overlap */
    return true;
}

bool snappy_decompress(void *to, size_t size, const void *from, size_t from_size) {
    Snappy s = {.in = from, .end = (const unsigned char *)from + from_size, .out = to, .capacity = size};
    uint64_t declared = 0;
    for (int shift = 0;; shift += 7) {
        if (s.in == s.end || shift > 28) return false;
        declared |= (uint64_t)(*s.in & 0x7f) << shift;
        if (!(*s.in++ & 0x80)) break;
    }
    if (declared != size) return false;
    while (s.in < s.end) {
        unsigned char tag = *s.in++;
        if (!(tag & 3 ? take_copy(&s, tag) : take_literal(&s, tag))) return false;
    }
    return s.size == size;
}
