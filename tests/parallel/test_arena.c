/* Tests the arena that stores gathered units: reuse of its memory, and the fallback to separate allocations.
 */
#include "test.h"

#include "parallel/arena.h"

enum { LARGE = 5000 * 64, OTHER = 1000 * 64 };

static Device *device;

static int setup(void **state) {
    assert_ok(device_new_cpu(&device, 1));
    return 0;
}

static int teardown(void **state) {
    assert_int_equal(device->total.current, 0);
    device_free(device);
    return 0;
}

static Buffer alloc(Arena *arena, size_t bytes) {
    Buffer buffer = {0};
    assert_ok(arena_alloc(arena, bytes, &buffer));
    assert_int_equal(buffer.bytes, bytes);
    assert_int_equal((uintptr_t)buffer.data % 64, 0);
    memset(buffer.data, 1, bytes);
    return buffer;
}

/* The allocation pattern of a forward pass: a large unit, then small ones two at a time, then the large one
 * together with the last small one. All of them fit in the arena's memory, for any number of layers. */
static void forward_pass_pattern(void **state) {
    Arena arena;
    arena_init(&arena, device, MEM_PARAMS, LARGE, OTHER);
    for (int layers = 1; layers < 6; layers++) {
        Buffer large = alloc(&arena, LARGE), layer = alloc(&arena, OTHER);
        assert_false(arena_fits(&arena, OTHER));
        arena_release(&arena, &large);
        for (int i = 1; i < layers; i++) {
            Buffer next = alloc(&arena, OTHER);
            arena_release(&arena, &layer);
            layer = next;
        }
        assert_true(arena_fits(&arena, LARGE));
        large = alloc(&arena, LARGE);
        arena_release(&arena, &layer);
        arena_release(&arena, &large);
        assert_null(large.data);
        assert_int_equal(device->mem[MEM_PARAMS].peak, LARGE + OTHER);
    }
    arena_done(&arena);
}

/* Requests that do not fit, and small ones, are allocated separately and do not affect the rest. */
static void separate_allocations(void **state) {
    Arena arena;
    arena_init(&arena, device, MEM_GRADS, LARGE, OTHER);
    Buffer large = alloc(&arena, LARGE), small = alloc(&arena, 100), other = alloc(&arena, OTHER - 1);
    Buffer more = alloc(&arena, OTHER);
    assert_int_equal(device->mem[MEM_GRADS].current, LARGE + OTHER + 100 + OTHER);
    arena_release(&arena, &more);
    arena_release(&arena, &small);
    arena_release(&arena, &small);
    assert_int_equal(device->mem[MEM_GRADS].current, LARGE + OTHER);
    arena_release(&arena, &other);
    arena_release(&arena, &large);
    Buffer many[20];
    for (int i = 0; i < 20; i++) many[i] = alloc(&arena, OTHER / 2);
    for (int i = 0; i < 20; i++)
        for (int k = 0; k < i; k++)
            assert_true((char *)many[i].data + OTHER / 2 <= (char *)many[k].data ||
                        (char *)many[k].data + OTHER / 2 <= (char *)many[i].data);
    for (int i = 0; i < 20; i++) arena_release(&arena, &many[i * 7 % 20]);
    arena_done(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(forward_pass_pattern),
                                       cmocka_unit_test(separate_allocations)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
