#include "parallel/arena.h"

enum { ALIGN = 64, SMALL_PART = 32 };

static size_t aligned(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool is_small(const Arena *arena, size_t bytes) {
    return bytes <= arena->bytes / SMALL_PART;
}

void arena_init(Arena *arena, Device *device, MemTag tag, size_t one, size_t other) {
    *arena = (Arena){.device = device, .tag = tag, .bytes = aligned(one) + aligned(other)};
}

void arena_done(Arena *arena) {
    dev_free(&arena->all);
}

/* Prefers offset 0, else the highest gap. *ret_before: number of allocations below it. */
static bool find_gap(const Arena *arena, size_t bytes, size_t *ret_first, int *ret_before) {
    size_t end = arena->bytes;
    if (arena->count == ARENA_SLOTS) return false;
    if (bytes <= (arena->count ? arena->used[0].first : end)) {
        *ret_first = 0;
        *ret_before = 0;
        return true;
    }
    for (int i = arena->count - 1; i >= 0; i--) {
        if (arena->used[i].end + bytes <= end) {
            *ret_first = end - bytes;
            *ret_before = i + 1;
            return true;
        }
        end = arena->used[i].first;
    }
    return false;
}

bool arena_fits(const Arena *arena, size_t bytes) {
    size_t first;
    int before;
    return is_small(arena, bytes) || find_gap(arena, aligned(bytes), &first, &before);
}

Status arena_alloc(Arena *arena, size_t bytes, Buffer *ret_buffer) {
    size_t first;
    int before;
    if (is_small(arena, bytes) || !find_gap(arena, aligned(bytes), &first, &before))
        return dev_alloc(arena->device, arena->tag, bytes, ret_buffer);
    if (!arena->all.data) TRY(dev_alloc(arena->device, arena->tag, arena->bytes, &arena->all));
    for (int i = arena->count++; i > before; i--) arena->used[i] = arena->used[i - 1];
    arena->used[before].first = first;
    arena->used[before].end = first + aligned(bytes);
    *ret_buffer = (Buffer){
        .data = (char *)arena->all.data + first, .bytes = bytes, .tag = arena->tag, .device = arena->device};
    return OK;
}

void arena_release(Arena *arena, Buffer *buffer) {
    const char *data = buffer->data, *base = arena->all.data;
    if (!data || !base || data < base || data >= base + arena->bytes) {
        dev_free(buffer);
        return;
    }
    int at = 0;
    while (arena->used[at].first != (size_t)(data - base)) at++;
    arena->count--;
    for (int i = at; i < arena->count; i++) arena->used[i] = arena->used[i + 1];
    *buffer = (Buffer){0};
}
