/* Memory for units that are whole only for a while.
 *
 * It is one buffer, made when the first unit comes, in which units lie at one end or the other. Two units
 * that fill it together always find place, whichever came first. Nothing goes back to the system in between:
 * it would clear every page again, which takes as long as bringing the unit. What is small, or finds no
 * place, gets memory of its own.
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
    } used[ARENA_SLOTS]; /* by place */
    int count;
} Arena;

/* For two units of these sizes. */
void arena_init(Arena *room, Device *device, MemTag tag, size_t one, size_t other);
/* Everything taken must have been given back. */
void arena_done(Arena *room);
/* Whether so many bytes find place now. */
bool arena_fits(const Arena *room, size_t bytes);
MUST_USE Status arena_alloc(Arena *room, size_t bytes, Buffer *ret_buffer);
/* The buffer is empty afterwards; an empty one may be given. */
void arena_release(Arena *room, Buffer *buffer);

#endif
