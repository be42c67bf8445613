/* Tests host memory helpers: size overflow is an error, growing an array keeps its contents, and a Bump
 * measures a layout before it allocates. */
#include "base/memory.h"

#include "test.h"

/* Without this option the sanitizer aborts on the impossible allocations that this test makes on purpose. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}

static void test_new(void **state) {
    int *numbers = NULL;
    assert_ok(mem_new(10, sizeof *numbers, &numbers));
    for (int i = 0; i < 10; i++) assert_int_equal(numbers[i], 0);
    free(numbers);
    int *untouched = NULL;
    assert_fails(mem_new(SIZE_MAX / 2, 3, &untouched), STATUS_FAILED, "too large");
    assert_fails(mem_new(SIZE_MAX / 8, 4, &untouched), STATUS_FAILED, "out of memory");
    assert_null(untouched);
    assert_ok(mem_new(0, 8, &untouched));
    assert_non_null(untouched);
    mem_freep(&untouched);
    assert_null(untouched);
}

static void test_grow(void **state) {
    int *numbers = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < 1000; i++) {
        assert_ok(mem_grow(&numbers, &capacity, i + 1, sizeof *numbers));
        assert_true(capacity > i);
        assert_int_equal(numbers[i], 0); /* new elements are zero */
        numbers[i] = (int)i;
    }
    for (int i = 0; i < 1000; i++) assert_int_equal(numbers[i], i);
    size_t before = capacity;
    assert_fails(mem_grow(&numbers, &capacity, SIZE_MAX, sizeof *numbers), STATUS_FAILED, "too large");
    assert_fails(mem_grow(&numbers, &capacity, SIZE_MAX / 2, sizeof *numbers), STATUS_FAILED, "too large");
    assert_int_equal(capacity, before);
    assert_int_equal(numbers[999], 999);
    free(numbers);
}

static void test_text(void **state) {
    char *text = NULL, *copy = NULL;
    assert_ok(str_format(&text, "%s-%d", "step", 12));
    assert_string_equal(text, "step-12");
    assert_ok(str_dup(text, &copy));
    assert_string_equal(copy, text);
    assert_ptr_not_equal(copy, text);
    free(text);
    free(copy);
}

static void lay_out(Bump *bump, void *at[3]) {
    at[0] = bump_take(bump, 1);
    at[1] = bump_take(bump, 200);
    at[2] = bump_take(bump, 0);
}

/* The same function runs twice: first to measure, then to assign addresses. */
static void test_bump(void **state) {
    void *at[3];
    Bump count = {0};
    lay_out(&count, at);
    assert_null(at[0]);
    assert_int_equal(count.used, 320);
    assert_ok(bump_check(&count, "nothing"));
    unsigned char *memory = aligned_alloc(BUMP_ALIGN, count.used);
    Bump layout = {.base = memory, .size = count.used};
    lay_out(&layout, at);
    assert_ptr_equal(at[0], memory);
    assert_ptr_equal(at[1], memory + 64);
    assert_int_equal((uintptr_t)at[2] % BUMP_ALIGN, 0);
    assert_ok(bump_check(&layout, "the parts"));
    bump_take(&layout, 1);
    assert_fails(bump_check(&layout, "the parts"), STATUS_FAILED, "the parts needs");
    free(memory);
}

static void test_products(void **state) {
    size_t product = 0;
    assert_true(mul_size(1 << 20, 1 << 20, &product));
    assert_int_equal(product, (size_t)1 << 40);
    assert_false(mul_size((size_t)1 << 32, (size_t)1 << 32, &product));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new),  cmocka_unit_test(test_grow),     cmocka_unit_test(test_text),
        cmocka_unit_test(test_bump), cmocka_unit_test(test_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
