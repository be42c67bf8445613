#include "parallel/arena.h"

enum { ALIGN = 64, SMALL_PART = 32 };

static size_t rounded(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool is_small(const Arena *room, size_t bytes) {
    return bytes <= room->bytes / SMALL_PART;
}

void arena_init(Arena *room, Device *device, MemTag tag, size_t one, size_t other) {
    *room = (Arena){.device = device, .tag = tag, .bytes = rounded(one) + rounded(other)};
}

void arena_done(Arena *room) {
    dev_free(&room->all);
}

/* The very start if it is free, else as far up as there is a gap. Gives the number of units before it. */
static bool find_place(const Arena *room, size_t bytes, size_t *ret_first, int *ret_before) {
    size_t end = room->bytes;
    if (room->count == ARENA_SLOTS) return false;
    if (bytes <= (room->count ? room->used[0].first : end)) {
        *ret_first = 0;
        *ret_before = 0;
        return true;
    }
    for (int i = room->count - 1; i >= 0; i--) {
        if (room->used[i].end + bytes <= end) {
            *ret_first = end - bytes;
            *ret_before = i + 1;
            return true;
        }
        end = room->used[i].first;
    }
    return false;
}

bool arena_fits(const Arena *room, size_t bytes) {
    size_t first;
    int before;
    return is_small(room, bytes) || find_place(room, rounded(bytes), &first, &before);
}

Status arena_alloc(Arena *room, size_t bytes, Buffer *ret_buffer) {
    size_t first;
    int before;
    if (is_small(room, bytes) || !find_place(room, rounded(bytes), &first, &before))
        return dev_alloc(room->device, room->tag, bytes, ret_buffer);
    if (!room->all.data) TRY(dev_alloc(room->device, room->tag, room->bytes, &room->all));
    for (int i = room->count++; i > before; i--) room->used[i] = room->used[i - 1];
    room->used[before].first = first;
    room->used[before].end = first + rounded(bytes);
    *ret_buffer = (Buffer){
        .data = (char *)room->all.data + first, .bytes = bytes, .tag = room->tag, .device = room->device};
    return OK;
}

void arena_release(Arena *room, Buffer *buffer) {
    const char *data = buffer->data, *base = room->all.data;
    if (!data || !base || data < base || data >= base + room->bytes) {
        dev_free(buffer);
        return;
    }
    int at = 0;
    while (room->used[at].first != (size_t)(data - base)) at++;
    room->count--;
    for (int i = at; i < room->count; i++) room->used[i] = room->used[i + 1];
    *buffer = (Buffer){0};
}
