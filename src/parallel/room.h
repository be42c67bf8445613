/* Memory for units that are whole only for a while.
 *
 * It is one buffer, made when the first unit comes, in which units lie at one end or the other. Two units
 * that fill it together always find place, whichever came first. Nothing goes back to the system in between:
 * it would clear every page again, which takes as long as bringing the unit. What is small, or finds no
 * place, gets memory of its own.
 */
#ifndef WEFT_PARALLEL_ROOM_H
#define WEFT_PARALLEL_ROOM_H

#include "device/device.h"

enum { ROOM_PLACES = 8 };

typedef struct Room {
    Device *device;
    MemTag tag;
    size_t bytes;
    Buffer all;
    struct {
        size_t first, end;
    } used[ROOM_PLACES]; /* by place */
    int count;
} Room;

/* For two units of these sizes. */
void room_init(Room *room, Device *device, MemTag tag, size_t one, size_t other);
/* Everything taken must have been given back. */
void room_done(Room *room);
/* Whether so many bytes find place now. */
bool room_fits(const Room *room, size_t bytes);
MUST_USE Status room_take(Room *room, size_t bytes, Buffer *ret_buffer);
/* The buffer is empty afterwards; an empty one may be given. */
void room_give(Room *room, Buffer *buffer);

#endif
