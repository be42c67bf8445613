/* Reads the pages of a column: headers, decompression, dictionaries, and where levels and values begin. */
#include <string.h>
#include <zlib.h>

#include "base/memory.h"
#include "data/parquet_internal.h"
#include "data/snappy.h"

enum { PAGE_DATA = 0, PAGE_INDEX = 1, PAGE_DICTIONARY = 2, PAGE_DATA_V2 = 3 };
enum { PART_DATA = 5, PART_DICTIONARY = 7, PART_DATA_V2 = 8 }; /* fields of a page's header */
enum { CODEC_NONE = 0, CODEC_SNAPPY = 1, CODEC_GZIP = 2, CODEC_ZSTD = 6 };
enum { PAGE_LIMIT = 1 << 30 };

typedef struct PageHeader {
    int64_t kind, size, stored; /* size: decompressed */
    bool has_crc;
    uint32_t crc;
    int64_t values, encoding;
    int64_t levels; /* encoding of the levels, if it is not RLE */
    int64_t def_bytes, rep_bytes;
    bool plain; /* version 2: the values are not compressed */
} PageHeader;

Status parquet_damaged(const ParquetColumn *column, const char *what) {
    return FAILED("%s: column \"%s\": its values are damaged: %s", column->file->path, column->leaf->name,
                  what);
}

/* ---- headers ---- */

/* The part of the header that its field `part` has: of a data page of version 1 or 2, or of a dictionary. */
static void parse_part(Thrift *in, ThriftType type, int part, PageHeader *header) {
    bool first = part == PART_DATA, second = part == PART_DATA_V2;
    if (type != THRIFT_STRUCT) in->failed = true;
    for (ThriftField field = {0}; thrift_next(in, &field);) {
        if (field.id == 1)
            header->values = thrift_int(in, field.type);
        else if (field.id == (second ? 4 : 2))
            header->encoding = thrift_int(in, field.type);
        else if (first && (field.id == 3 || field.id == 4)) {
            int64_t encoding = thrift_int(in, field.type);
            if (encoding != ENCODING_RLE) header->levels = field.id == 3 ? encoding : header->levels;
        } else if (second && field.id == 5)
            header->def_bytes = thrift_int(in, field.type);
        else if (second && field.id == 6)
            header->rep_bytes = thrift_int(in, field.type);
        else if (second && field.id == 7)
            header->plain = !thrift_bool(in, field.type);
        else
            thrift_skip(in, field.type);
    }
}

static void parse_header(Thrift *in, PageHeader *header) {
    *header = (PageHeader){.kind = -1, .levels = ENCODING_RLE};
    for (ThriftField field = {0}; thrift_next(in, &field);) {
        switch (field.id) {
        case 1: header->kind = thrift_int(in, field.type); break;
        case 2: header->size = thrift_int(in, field.type); break;
        case 3: header->stored = thrift_int(in, field.type); break;
        case 4:
            header->crc = (uint32_t)thrift_int(in, field.type);
            header->has_crc = true;
            break;
        case PART_DATA:
        case PART_DICTIONARY:
        case PART_DATA_V2: parse_part(in, field.type, field.id, header); break;
        default: thrift_skip(in, field.type);
        }
    }
}

static Status read_header(ParquetColumn *column, PageHeader *header) {
    enum { USUAL = 1 << 12, LONGEST = 1 << 24 };
    int64_t left = column->chunk.at + column->chunk.size - column->at;
    for (size_t size = USUAL;; size = LONGEST) {
        if ((int64_t)size > left) size = (size_t)left;
        TRY(mem_grow(&column->raw, &column->raw_capacity, size, 1));
        TRY(parquet_read(column->file, column->at, size, column->raw));
        Thrift in = {.at = column->raw, .end = column->raw + size};
        parse_header(&in, header);
        if (!in.failed) {
            column->at += in.at - column->raw;
            left -= in.at - column->raw;
            break;
        }
        if (size >= LONGEST || (int64_t)size == left) return parquet_damaged(column, "a page has no header");
    }
    if (header->stored < 0 || header->stored > left || header->size < 0 || header->size > PAGE_LIMIT)
        return parquet_damaged(column, "a page's size is out of range");
    if (header->kind != PAGE_INDEX && (header->values < 0 || header->values > INT32_MAX))
        return parquet_damaged(column, "a page's number of values is out of range");
    return OK;
}

/* ---- compression ---- */

static bool inflate_all(void *to, size_t size, const void *from, size_t from_size) {
    enum { ANY_WINDOW = 15 + 32 }; /* gzip or zlib */
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)from,
                  .avail_in = (uInt)from_size,
                  .next_out = to,
                  .avail_out = (uInt)size};
    if (inflateInit2(&z, ANY_WINDOW) != Z_OK) return false;
    int result = inflate(&z, Z_FINISH);
    bool whole = result == Z_STREAM_END && z.total_out == size;
    inflateEnd(&z);
    return whole;
}

static Status unknown_codec(const ParquetColumn *column) {
    static const char *const names[] = {[3] = "LZO", [4] = "Brotli", [5] = "LZ4", [7] = "LZ4"};
    int codec = column->chunk.codec;
    const char *name =
        codec == 3 || codec == 4 || codec == 5 || codec == 7 ? names[codec] : "an unknown method";
    return FAILED("%s: column \"%s\" is compressed with %s; weft reads Snappy, gzip and zstd",
                  column->file->path, column->leaf->name, name);
}

/* A hostile file must not make weft allocate more than its data can have. */
static bool is_possible(int codec, size_t size, size_t stored) {
    enum { SNAPPY = 24, GZIP = 1040, ZSTD = 1 << 15, SMALL = 1 << 12 };
    size_t most = codec == CODEC_SNAPPY ? SNAPPY : codec == CODEC_GZIP ? GZIP : ZSTD;
    return size / most <= stored + SMALL;
}

static Status decompress(ParquetColumn *column, unsigned char *to, size_t size, const unsigned char *from,
                         size_t stored) {
    bool fine = false;
    switch (column->chunk.codec) {
    case CODEC_SNAPPY: fine = snappy_decompress(to, size, from, stored); break;
    case CODEC_GZIP: fine = size == 0 || inflate_all(to, size, from, stored); break;
    case CODEC_ZSTD:
        TRY(zstd_load(&column->file->zstd, column->file->path));
        fine = zstd_decompress(&column->file->zstd, to, size, from, stored);
        break;
    default: return unknown_codec(column);
    }
    return fine ? OK : parquet_damaged(column, "a page cannot be decompressed");
}

/* Reads a page into *to. The levels at its start are never compressed. */
static Status read_page(ParquetColumn *column, const PageHeader *header, unsigned char **to,
                        size_t *capacity) {
    size_t size = (size_t)header->size, stored = (size_t)header->stored;
    size_t levels = (size_t)(header->def_bytes + header->rep_bytes);
    bool compressed = column->chunk.codec != CODEC_NONE && !header->plain;
    if (compressed && !is_possible(column->chunk.codec, size, stored))
        return parquet_damaged(column, "a page is larger than its data allows");
    if (!compressed && size != stored) return parquet_damaged(column, "a page has two sizes");
    TRY(mem_grow(&column->raw, &column->raw_capacity, stored + 1, 1));
    TRY(parquet_read(column->file, column->at, stored, column->raw));
    column->at += header->stored;
    if (header->has_crc && crc32(0, column->raw, (uInt)stored) != header->crc)
        return parquet_damaged(column, "a page does not match its checksum");
    TRY(mem_grow(to, capacity, size + 1, 1));
    if (compressed && size > levels) {
        memcpy(*to, column->raw, levels);
        return decompress(column, *to + levels, size - levels, column->raw + levels, stored - levels);
    }
    memcpy(*to, column->raw, size < stored ? size : stored);
    return OK;
}

/* ---- dictionaries ---- */

static Status index_dictionary(ParquetColumn *column) {
    enum { LENGTH = 4 };
    const unsigned char *data = column->dictionary;
    size_t at = 0, size = column->dictionary_size;
    if (column->entries > size / LENGTH) return parquet_damaged(column, "its dictionary is cut off");
    TRY(mem_grow(&column->start, &column->start_capacity, column->entries + 1, sizeof *column->start));
    for (uint64_t i = 0; i < column->entries; i++) {
        if (size - at < LENGTH) return parquet_damaged(column, "its dictionary is cut off");
        size_t length =
            data[at] | (size_t)data[at + 1] << 8 | (size_t)data[at + 2] << 16 | (size_t)data[at + 3] << 24;
        column->start[i] = at += LENGTH;
        if (length > size - at) return parquet_damaged(column, "its dictionary is cut off");
        at += length;
    }
    column->start[column->entries] = at + LENGTH;
    return OK;
}

static size_t width_of(ParquetType type) {
    return type == PARQUET_INT32 || type == PARQUET_FLOAT ? 4 : 8;
}

static Status read_dictionary(ParquetColumn *column, const PageHeader *header) {
    ParquetType type = column->leaf->type;
    if (header->encoding != ENCODING_PLAIN && header->encoding != ENCODING_PLAIN_DICTIONARY)
        return parquet_damaged(column, "its dictionary has an unknown encoding");
    TRY(read_page(column, header, &column->dictionary, &column->dictionary_capacity));
    column->dictionary_size = (size_t)header->size;
    column->entries = (uint64_t)header->values;
    if (type == PARQUET_BYTES) return index_dictionary(column);
    if (type == PARQUET_BOOLEAN || column->entries > column->dictionary_size / width_of(type))
        return parquet_damaged(column, "its dictionary is cut off");
    return OK;
}

/* ---- data ---- */

static int bits_for(int largest) {
    int bits = 0;
    while (largest >> bits) bits++;
    return bits;
}

/* Takes the levels of a page of version 1: their size, then runs. */
static Status take_levels(ParquetColumn *column, int largest, RunReader *ret_levels) {
    enum { LENGTH = 4 };
    const unsigned char *at = column->value;
    *ret_levels = (RunReader){.width = bits_for(largest)};
    if (largest == 0) return OK;
    if (column->value_end - at < LENGTH) return parquet_damaged(column, "a page is cut off");
    size_t size = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
    at += LENGTH;
    if (size > (size_t)(column->value_end - at)) return parquet_damaged(column, "a page is cut off");
    ret_levels->at = at;
    ret_levels->end = column->value = at + size;
    return OK;
}

static Status unknown_encoding(const ParquetColumn *column, const char *name) {
    return FAILED(
        "%s: column \"%s\" has the encoding %s, which weft does not read; write it again with another",
        column->file->path, column->leaf->name, name);
}

static Status begin_values(ParquetColumn *column) {
    ParquetType type = column->leaf->type;
    bool integers = type == PARQUET_INT32 || type == PARQUET_INT64, bytes = type == PARQUET_BYTES,
         fine = true;
    column->bit = 0;
    switch (column->encoding) {
    case ENCODING_PLAIN: return OK;
    case ENCODING_PLAIN_DICTIONARY:
    case ENCODING_DICTIONARY:
        if (!column->dictionary) return parquet_damaged(column, "it has no dictionary");
        column->number = (RunReader){.at = column->value, .end = column->value_end};
        if (column->value == column->value_end) return OK; /* all values are missing */
        column->number.width = *column->number.at++;
        return column->number.width <= 32 ? OK : parquet_damaged(column, "numbers of more than 32 bits");
    case ENCODING_RLE:
        if (type != PARQUET_BOOLEAN) return unknown_encoding(column, "RLE");
        return take_levels(column, 1, &column->number);
    case ENCODING_DELTA:
        fine = integers && delta_open(&column->delta, column->value, column->value_end);
        break;
    case ENCODING_DELTA_BYTES:
    case ENCODING_DELTA_LENGTH:
        return bytes ? parquet_texts_begin(column) : parquet_damaged(column, "its encoding is for text");
    case ENCODING_BIT_PACKED: return unknown_encoding(column, "BIT_PACKED");
    case ENCODING_SPLIT: return unknown_encoding(column, "BYTE_STREAM_SPLIT");
    }
    return fine ? OK : parquet_damaged(column, "differences that are not valid");
}

static Status begin_page(ParquetColumn *column, const PageHeader *header) {
    const ParquetNode *leaf = column->leaf;
    if (header->encoding < 0 || header->encoding > ENCODING_SPLIT || header->encoding == 1)
        return unknown_encoding(column, "of an unknown number");
    if (header->levels != ENCODING_RLE && leaf->max_def) return unknown_encoding(column, "BIT_PACKED");
    column->encoding = (ParquetEncoding)header->encoding;
    column->value = column->page;
    column->value_end = column->page + header->size;
    if (header->kind == PAGE_DATA) {
        TRY(take_levels(column, leaf->max_rep, &column->rep));
        TRY(take_levels(column, leaf->max_def, &column->def));
    } else {
        const unsigned char *def = column->page + header->rep_bytes, *end = def + header->def_bytes;
        column->rep = (RunReader){.at = column->page, .end = def, .width = bits_for(leaf->max_rep)};
        column->def = (RunReader){.at = def, .end = end, .width = bits_for(leaf->max_def)};
        column->value = end;
    }
    column->left = header->values;
    column->values_left -= header->values;
    if (column->values_left < 0) return parquet_damaged(column, "more values than the footer says");
    return begin_values(column);
}

static bool levels_fit(const PageHeader *header) {
    int64_t limit = header->size < header->stored ? header->size : header->stored;
    return header->def_bytes >= 0 && header->rep_bytes >= 0 && header->def_bytes <= limit &&
           header->rep_bytes <= limit - header->def_bytes;
}

Status parquet_page_next(ParquetColumn *column) {
    for (;;) {
        PageHeader header;
        if (column->values_left == 0) {
            column->ended = true;
            return OK;
        }
        if (column->at >= column->chunk.at + column->chunk.size)
            return parquet_damaged(column, "fewer values than the footer says");
        TRY(read_header(column, &header));
        if (!levels_fit(&header)) return parquet_damaged(column, "a page's levels are cut off");
        if (header.kind == PAGE_DICTIONARY) {
            TRY(read_dictionary(column, &header));
            continue;
        }
        if (header.kind != PAGE_DATA && header.kind != PAGE_DATA_V2) {
            column->at += header.stored;
            continue;
        }
        TRY(read_page(column, &header, &column->page, &column->page_capacity));
        return begin_page(column, &header);
    }
}
