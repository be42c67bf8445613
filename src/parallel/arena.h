/* A two-ended arena for buffers that live briefly: full parameters and gradients of sharded units.
 *
 * One buffer, allocated on first use, from which allocations are made at either end. Two allocations that
 * together fill it always fit, in any order. Memory is not returned to the system in between: the kernel
 * would zero every page again, which takes as long as gathering the unit. Small allocations, and those that
 * do not fit, come from the device allocator instead.
 */
#ifndef WEFT_PARALLEL_ARENA_H
#define WEFT_PARALLEL_ARENA_H

#include "device/device.h"

enum { ARENA_SLOTS = 8 };

typedef struct Arena {
    Device *device;
    MemTag tag;
    size_t bytes;
    Buffer all;
    struct {
        size_t first, end;
    } used[ARENA_SLOTS]; /* sorted by offset */
    int count;
} Arena;

/* Sized for two allocations of `one` and `other` bytes. Allocates nothing yet. */
void arena_init(Arena *arena, Device *device, MemTag tag, size_t one, size_t other);
/* All allocations must have been released. */
void arena_done(Arena *arena);
/* Whether arena_alloc would succeed without a new device allocation. */
bool arena_fits(const Arena *arena, size_t bytes);
MUST_USE Status arena_alloc(Arena *arena, size_t bytes, Buffer *ret_buffer);
/* Empties the buffer. Releasing an empty buffer is allowed. */
void arena_release(Arena *arena, Buffer *buffer);

#endif
