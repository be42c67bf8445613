/* Host memory for small control structures (names, tables, file headers). Tensors come from the counting
 * allocator in device/ instead. */
#ifndef WEFT_BASE_MEMORY_H
#define WEFT_BASE_MEMORY_H

#include <stdint.h>
#include <stdlib.h>

#include "base/status.h"

/* Allocates count * size zeroed bytes, with an overflow check. *ret_pointer receives the address. */
MUST_USE Status mem_new(size_t count, size_t size, void *ret_pointer);
/* Grows *array, whose elements have `size` bytes, to a capacity of at least `need`. New elements are zero. */
MUST_USE Status mem_grow(void *array, size_t *capacity, size_t need, size_t size);
MUST_USE Status str_dup(const char *text, char **ret_copy);
MUST_USE Status str_format(char **ret_text, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* For CLEANUP of a pointer variable of any type. */
static inline void mem_freep(void *pointer) {
    free(*(void **)pointer);
    *(void **)pointer = NULL;
}

/* A bump allocator. With a NULL base it only counts, so one layout function both assigns addresses and, on a
 * first call without memory, computes the size. */
typedef struct Bump {
    unsigned char *base;
    size_t used;
    size_t size; /* ignored while base is NULL */
} Bump;

enum { BUMP_ALIGN = 64 };

/* The next `bytes` bytes, aligned; NULL while counting. Overrunning the size is a bug in the layout function,
 * which bump_check reports. */
static inline void *bump_take(Bump *bump, size_t bytes) {
    size_t at = (bump->used + BUMP_ALIGN - 1) / BUMP_ALIGN * BUMP_ALIGN;
    bump->used = at + bytes;
    return bump->base ? bump->base + at : NULL;
}
MUST_USE Status bump_check(const Bump *bump, const char *what);

/* False on overflow; *ret_product is then unspecified. */
static inline bool mul_size(size_t a, size_t b, size_t *ret_product) {
    return !__builtin_mul_overflow(a, b, ret_product);
}

#endif
