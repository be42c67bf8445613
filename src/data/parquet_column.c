/* Reads the values of a column one after the other, with their levels. */
#include <string.h>

#include "base/memory.h"
#include "data/parquet_internal.h"

void parquet_column_done(ParquetColumn *column) {
    free(column->raw);
    free(column->page);
    free(column->dictionary);
    free(column->start);
    free(column->text);
}

Status parquet_column_begin(ParquetColumn *column, size_t group) {
    column->chunk = column->file->chunk[group * column->file->leaves + column->index];
    column->at = column->chunk.at;
    column->values_left = column->chunk.values;
    column->left = 0;
    column->loaded = column->ended = false;
    free(column->dictionary);
    column->dictionary = NULL;
    column->dictionary_capacity = 0;
    return OK;
}

/* ---- levels ---- */

static Status take_level(ParquetColumn *column, RunReader *levels, int largest, int *ret_level) {
    uint32_t level = 0;
    if (largest && (!run_next(levels, &level) || level > (uint32_t)largest))
        return parquet_damaged(column, "levels that are not valid");
    *ret_level = (int)level;
    return OK;
}

Status parquet_column_peek(ParquetColumn *column) {
    while (!column->loaded && !column->ended && column->left == 0) TRY(parquet_page_next(column));
    if (column->loaded || column->ended) return OK;
    TRY(take_level(column, &column->rep, column->leaf->max_rep, &column->next_rep));
    TRY(take_level(column, &column->def, column->leaf->max_def, &column->next_def));
    column->left--;
    column->loaded = true;
    return OK;
}

/* ---- values ---- */

static Status cut_off(const ParquetColumn *column) {
    return parquet_damaged(column, "a page is cut off");
}

/* Decodes a number of 4 or 8 bytes. */
static void decode_number(const ParquetColumn *column, const unsigned char *from, ParquetValue *ret_value) {
    union {
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } value = {0};
    switch (column->leaf->type) {
    case PARQUET_INT32:
        memcpy(&value.i32, from, 4);
        ret_value->integer = value.i32;
        break;
    case PARQUET_FLOAT:
        memcpy(&value.f32, from, 4);
        ret_value->real = (double)value.f32;
        break;
    case PARQUET_DOUBLE:
        memcpy(&value.f64, from, 8);
        ret_value->real = value.f64;
        break;
    default: memcpy(&value.i64, from, 8); ret_value->integer = value.i64;
    }
}

static size_t number_size(const ParquetColumn *column) {
    return column->leaf->type == PARQUET_INT32 || column->leaf->type == PARQUET_FLOAT ? 4 : 8;
}

static Status take_plain(ParquetColumn *column, ParquetValue *ret_value) {
    enum { LENGTH = 4 };
    const unsigned char *at = column->value;
    size_t left = (size_t)(column->value_end - at), size = number_size(column);
    if (column->leaf->type == PARQUET_BOOLEAN) {
        if (column->bit / 8 >= left) return cut_off(column);
        ret_value->integer = at[column->bit / 8] >> column->bit % 8 & 1;
        column->bit++;
        return OK;
    }
    if (column->leaf->type == PARQUET_BYTES) {
        if (left < LENGTH) return cut_off(column);
        size = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
        at += LENGTH;
        left -= LENGTH;
    }
    if (size > left) return cut_off(column);
    column->value = at + size;
    ret_value->bytes = (const char *)at;
    ret_value->size = size;
    if (column->leaf->type != PARQUET_BYTES) decode_number(column, at, ret_value);
    return OK;
}

static Status take_entry(ParquetColumn *column, ParquetValue *ret_value) {
    uint32_t number;
    if (!run_next(&column->number, &number)) return cut_off(column);
    if (number >= column->entries) return parquet_damaged(column, "a value is not in the dictionary");
    if (column->leaf->type == PARQUET_BYTES) {
        enum { LENGTH = 4 };
        ret_value->bytes = (const char *)column->dictionary + column->start[number];
        ret_value->size = column->start[number + 1] - LENGTH - column->start[number];
        return OK;
    }
    decode_number(column, column->dictionary + number * number_size(column), ret_value);
    return OK;
}

/* ---- texts as differences ---- */

/* Moves `at` past the numbers that begin there. */
static Status skip_numbers(const ParquetColumn *column, const unsigned char **at) {
    DeltaReader in;
    int64_t value;
    if (!delta_open(&in, *at, column->value_end) || in.count > INT32_MAX)
        return parquet_damaged(column, "lengths that are not valid");
    while (in.left)
        if (!delta_next(&in, &value)) return cut_off(column);
    *at = in.at;
    return OK;
}

Status parquet_texts_begin(ParquetColumn *column) {
    const unsigned char *lengths = column->value;
    column->text_size = 0;
    column->delta = column->suffix = (DeltaReader){0};
    if (column->value == column->value_end) return OK; /* all values are missing */
    TRY(skip_numbers(column, &column->value));
    delta_open(&column->delta, lengths, column->value_end);
    if (column->encoding == ENCODING_DELTA_LENGTH) return OK;
    lengths = column->value;
    TRY(skip_numbers(column, &column->value));
    delta_open(&column->suffix, lengths, column->value_end);
    return OK;
}

/* Takes as many bytes as the next length says. */
static Status take_length(ParquetColumn *column, DeltaReader *lengths, ParquetValue *ret_value) {
    int64_t length;
    if (!delta_next(lengths, &length) || length < 0 || length > column->value_end - column->value)
        return cut_off(column);
    ret_value->bytes = (const char *)column->value;
    ret_value->size = (size_t)length;
    column->value += length;
    return OK;
}

/* The start of the last value, and a rest. */
static Status take_prefixed(ParquetColumn *column, ParquetValue *ret_value) {
    enum { LIMIT = 1 << 30 };
    int64_t prefix;
    ParquetValue rest = {0};
    if (!delta_next(&column->delta, &prefix) || prefix < 0 || (uint64_t)prefix > column->text_size)
        return cut_off(column);
    TRY(take_length(column, &column->suffix, &rest));
    size_t size = (size_t)prefix + rest.size;
    if (size > LIMIT) return parquet_damaged(column, "a value is too long");
    TRY(mem_grow(&column->text, &column->text_capacity, size + 1, 1));
    if (rest.size) memcpy(column->text + prefix, rest.bytes, rest.size);
    column->text_size = size;
    ret_value->bytes = column->text;
    ret_value->size = size;
    return OK;
}

static Status take_value(ParquetColumn *column, ParquetValue *ret_value) {
    uint32_t number;
    switch (column->encoding) {
    case ENCODING_PLAIN: return take_plain(column, ret_value);
    case ENCODING_PLAIN_DICTIONARY:
    case ENCODING_DICTIONARY: return take_entry(column, ret_value);
    case ENCODING_RLE:
        if (!run_next(&column->number, &number)) return cut_off(column);
        ret_value->integer = number;
        return OK;
    case ENCODING_DELTA:
        if (!delta_next(&column->delta, &ret_value->integer)) return cut_off(column);
        if (column->leaf->type == PARQUET_INT32) ret_value->integer = (int32_t)ret_value->integer;
        return OK;
    case ENCODING_DELTA_LENGTH: return take_length(column, &column->delta, ret_value);
    case ENCODING_DELTA_BYTES: return take_prefixed(column, ret_value);
    case ENCODING_BIT_PACKED:
    case ENCODING_SPLIT: break;
    }
    return FAILED("internal: an encoding without values");
}

Status parquet_column_take(ParquetColumn *column, ParquetValue *ret_value) {
    TRY(parquet_column_peek(column));
    if (column->ended) return parquet_damaged(column, "it ends within a row");
    column->loaded = false;
    *ret_value = (ParquetValue){0};
    return column->next_def == column->leaf->max_def ? take_value(column, ret_value) : OK;
}
