/* Decompresses Snappy's raw format, as Parquet uses it. */
#ifndef WEFT_DATA_SNAPPY_H
#define WEFT_DATA_SNAPPY_H

#include <stdbool.h>
#include <stddef.h>

/* Fills `to` exactly; false if the data is damaged or has another size. */
bool snappy_decompress(void *to, size_t size, const void *from, size_t from_size);

#endif
