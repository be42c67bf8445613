/* Room for units that come and go. */
#include "test.h"

#include "parallel/arena.h"

enum { LARGE = 5000 * 64, OTHER = 1000 * 64 };

static Device *device;

static int setup(void **state) {
    (void)state;
    assert_ok(device_new_cpu(&device, 1));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    assert_int_equal(device->total.current, 0);
    device_free(device);
    return 0;
}

static Buffer take(Arena *room, size_t bytes) {
    Buffer buffer = {0};
    assert_ok(arena_alloc(room, bytes, &buffer));
    assert_int_equal(buffer.bytes, bytes);
    assert_int_equal((uintptr_t)buffer.data % 64, 0);
    memset(buffer.data, 1, bytes);
    return buffer;
}

/* As in a forward pass: a large unit, small ones two at a time, and the large one beside the last of them,
 * however many there were. All of it in the same memory. */
static void large_beside_last(void **state) {
    (void)state;
    Arena room;
    arena_init(&room, device, MEM_PARAMS, LARGE, OTHER);
    for (int layers = 1; layers < 6; layers++) {
        Buffer large = take(&room, LARGE), layer = take(&room, OTHER);
        assert_false(arena_fits(&room, OTHER));
        arena_release(&room, &large);
        for (int i = 1; i < layers; i++) {
            Buffer next = take(&room, OTHER);
            arena_release(&room, &layer);
            layer = next;
        }
        assert_true(arena_fits(&room, LARGE));
        large = take(&room, LARGE);
        arena_release(&room, &layer);
        arena_release(&room, &large);
        assert_null(large.data);
        assert_int_equal(device->mem[MEM_PARAMS].peak, LARGE + OTHER);
    }
    arena_done(&room);
}

/* What does not fit, and what is small, has memory of its own, and neither disturbs the others. */
static void own_memory(void **state) {
    (void)state;
    Arena room;
    arena_init(&room, device, MEM_GRADS, LARGE, OTHER);
    Buffer large = take(&room, LARGE), small = take(&room, 100), other = take(&room, OTHER - 1);
    Buffer more = take(&room, OTHER);
    assert_int_equal(device->mem[MEM_GRADS].current, LARGE + OTHER + 100 + OTHER);
    arena_release(&room, &more);
    arena_release(&room, &small);
    arena_release(&room, &small);
    assert_int_equal(device->mem[MEM_GRADS].current, LARGE + OTHER);
    arena_release(&room, &other);
    arena_release(&room, &large);
    Buffer many[20];
    for (int i = 0; i < 20; i++) many[i] = take(&room, OTHER / 2);
    for (int i = 0; i < 20; i++)
        for (int k = 0; k < i; k++)
            assert_true((char *)many[i].data + OTHER / 2 <= (char *)many[k].data ||
                        (char *)many[k].data + OTHER / 2 <= (char *)many[i].data);
    for (int i = 0; i < 20; i++) arena_release(&room, &many[i * 7 % 20]);
    arena_done(&room);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_beside_last), cmocka_unit_test(own_memory)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
