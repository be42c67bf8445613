#include "comm/staging.h"

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static size_t most(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Staged bytes per element, of the rank that needs most: partial sums from other domains and, if the rank
 * shares memory, those it sends. */
static int64_t staged_bytes(const Placement *p, DType dtype) {
    int64_t all = 0, largest = 0;
    for (int d = 0; d < p->domains; d++) all += partial_bytes(p, d, dtype);
    for (int d = 0; d < p->domains; d++) {
        int64_t own = partial_bytes(p, d, dtype), count = domain_size(p, d),
                sends = count > 1 ? (p->size - 1) / count : 0, need = all - own + sends * own;
        if (need > largest) largest = need;
    }
    return largest;
}

int64_t small_bytes(const Placement *p) {
    return p->shares && p->domains > 1 ? SMALL_BETWEEN : SMALL;
}

RoundBytes round_bytes(const Placement *p) {
    RoundBytes bytes = {0};
    size_t size = (size_t)p->size, handled = (size_t)p->most_handled;
    if (p->shares) {
        bytes.input = most(INPUT_BYTES, size * PIECE_LEAST);
        bytes.result = most(RESULT_BYTES, bytes.input / size * handled);
    }
    if (p->domains > 1)
        bytes.staging = most(STAGING_BYTES, (size_t)staged_bytes(p, DT_F32) / sizeof(float) * PIECE_LEAST);
    return bytes;
}

size_t segment_bytes(const Placement *p) {
    RoundBytes bytes = round_bytes(p);
    return p->locals > 1 ? SEGMENT_HEAD + WINDOW * (bytes.input + bytes.result) : 0;
}

size_t exchange_bytes(const Placement *p) {
    return segment_bytes(p) + WINDOW * round_bytes(p).staging;
}

/* Chunks are multiples of a cache line. */
static int64_t aligned(int64_t bytes) {
    return bytes / 64 * 64;
}

int64_t reduce_chunk(const Placement *p, DType dtype) {
    RoundBytes bytes = round_bytes(p);
    int64_t size = (int64_t)dtype_size(dtype), chunk = PIECE;
    if (p->shares) {
        chunk = least(chunk, (int64_t)bytes.input / p->size);
        chunk = least(chunk, (int64_t)bytes.result / p->most_handled);
    }
    if (p->domains > 1) chunk = least(chunk, (int64_t)bytes.staging / staged_bytes(p, dtype) * size);
    return aligned(chunk) / size;
}

int64_t gather_chunk(const Placement *p) {
    return p->shares ? aligned(least(PIECE, (int64_t)round_bytes(p).result / p->most_handled)) : PIECE;
}

int64_t broadcast_chunk(const Placement *p) {
    return p->shares ? aligned(least(PIECE, (int64_t)round_bytes(p).result)) : PIECE;
}
