/* Parquet's encodings of integers, read one value at a time. Data that ends early or is out of range makes a
 * reader return false. */
#ifndef WEFT_DATA_PARQUET_BITS_H
#define WEFT_DATA_PARQUET_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* RLE / bit-packing hybrid: runs of one value, or of values of `width` bits each. */
typedef struct RunReader {
    const unsigned char *at, *end;
    int width; /* 0 to 32 */
    bool packed;
    uint64_t left; /* in the current run */
    uint32_t value;
    uint64_t bit; /* of the next packed value, from `at` */
} RunReader;

bool run_next(RunReader *in, uint32_t *ret_value);

/* DELTA_BINARY_PACKED: blocks of differences, in miniblocks with widths of their own. */
typedef struct DeltaReader {
    const unsigned char *at, *end; /* `at`: past the miniblocks begun so far */
    uint64_t count;                /* of all values; those to come: */
    uint64_t left;
    uint64_t value; /* the next one */
    uint64_t least; /* difference of this block */
    uint64_t per_miniblock, miniblocks;
    const unsigned char *widths; /* of this block's miniblocks that have not begun */
    uint64_t widths_left;
    const unsigned char *packed; /* the current miniblock */
    int width;
    uint64_t bit, inside; /* `inside`: its values to come */
} DeltaReader;

bool delta_open(DeltaReader *in, const unsigned char *at, const unsigned char *end);
bool delta_next(DeltaReader *in, int64_t *ret_value);

/* A little-endian base-128 number; false if it is cut off or longer than 64 bits. */
bool take_varint(const unsigned char **at, const unsigned char *end, uint64_t *ret_value);

#endif
