#include "data/parquet_bits.h"

bool take_varint(const unsigned char **at, const unsigned char *end, uint64_t *ret_value) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        unsigned char part = *(*at)++;
        value |= (uint64_t)(part & 0x7f) << shift;
        if (part & 0x80) continue;
        *ret_value = value;
        return true;
    }
    return false;
}

/* Bits first .. first + width - 1, which are within the memory; width is at most 64. */
static uint64_t take_bits(const unsigned char *from, uint64_t first, int width) {
    uint64_t value = 0;
    for (int have = 0; have < width;) {
        int offset = (int)(first & 7), take = 8 - offset < width - have ? 8 - offset : width - have;
        uint64_t part = (uint64_t)(from[first >> 3] >> offset) & ((1u << take) - 1);
        value |= part << have;
        have += take;
        first += (uint64_t)take;
    }
    return value;
}

/* ---- runs ---- */

static bool begin_run(RunReader *in) {
    enum { GROUP = 8 };
    uint64_t head;
    if (in->packed) { /* leave the run that has ended */
        uint64_t bytes = (in->bit + 7) / 8;
        in->at += bytes;
        in->packed = false;
    }
    if (!take_varint(&in->at, in->end, &head)) return false;
    in->packed = head & 1;
    in->bit = 0;
    if (in->packed) {
        if (head >> 1 > UINT32_MAX) return false;
        in->left = (head >> 1) * GROUP;
        return true;
    }
    in->left = head >> 1;
    in->value = 0;
    int bytes = (in->width + 7) / 8;
    if (in->end - in->at < bytes) return false;
    for (int i = 0; i < bytes; i++) in->value |= (uint32_t)*in->at++ << 8 * i;
    return true;
}

bool run_next(RunReader *in, uint32_t *ret_value) {
    while (in->left == 0)
        if (!begin_run(in)) return false;
    in->left--;
    if (!in->packed) {
        *ret_value = in->value;
        return true;
    }
    uint64_t past = in->bit + (uint64_t)in->width;
    if (past > (uint64_t)(in->end - in->at) * 8) return false;
    *ret_value = (uint32_t)take_bits(in->at, in->bit, in->width);
    in->bit = past;
    return true;
}

/* ---- differences ---- */

static uint64_t unzigzag(uint64_t value) {
    return (value >> 1) ^ (0 - (value & 1));
}

bool delta_open(DeltaReader *in, const unsigned char *at, const unsigned char *end) {
    enum { LIMIT = 1 << 20 };
    uint64_t block, first;
    *in = (DeltaReader){.at = at, .end = end};
    if (!take_varint(&in->at, end, &block) || !take_varint(&in->at, end, &in->miniblocks) ||
        !take_varint(&in->at, end, &in->count) || !take_varint(&in->at, end, &first))
        return false;
    if (block == 0 || block > LIMIT || in->miniblocks == 0 || block % in->miniblocks) return false;
    in->per_miniblock = block / in->miniblocks;
    if (in->per_miniblock % 8) return false;
    in->left = in->count;
    in->value = unzigzag(first);
    return true;
}

static bool begin_miniblock(DeltaReader *in) {
    uint64_t least;
    if (in->widths_left == 0) {
        if (!take_varint(&in->at, in->end, &least)) return false;
        if ((uint64_t)(in->end - in->at) < in->miniblocks) return false;
        in->least = unzigzag(least);
        in->widths = in->at;
        in->widths_left = in->miniblocks;
        in->at += in->miniblocks;
    }
    in->width = *in->widths++;
    in->widths_left--;
    if (in->width > 64) return false;
    uint64_t bytes = in->per_miniblock / 8 * (uint64_t)in->width;
    if (bytes > (uint64_t)(in->end - in->at)) return false;
    in->packed = in->at;
    in->at += bytes;
    in->bit = 0;
    in->inside = in->per_miniblock;
    return true;
}

bool delta_next(DeltaReader *in, int64_t *ret_value) {
    if (in->left == 0) return false;
    *ret_value = (int64_t)in->value;
    if (--in->left == 0) return true;
    if (in->inside == 0 && !begin_miniblock(in)) return false;
    in->value += in->least + take_bits(in->packed, in->bit, in->width);
    in->bit += (uint64_t)in->width;
    in->inside--;
    return true;
}
