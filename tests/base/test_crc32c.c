/* CRC-32C: published values, and checksums put together from parts. */
#include "test.h"

#include "base/crc32c.h"

static void published_values(void **state) {
    unsigned char bytes[32] = {0};
    assert_int_equal(crc32c(0, "", 0), 0);
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x8a9136aau); /* RFC 3720, B.4 */
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x62a8ab43u);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x46dd794eu);
}

/* Any division into parts, in any order, gives the checksum of the whole. */
static void parts_add_up(void **state) {
    unsigned char bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * i * 31 + i);
    uint32_t whole = crc32c(0, bytes, sizeof bytes);
    for (size_t a = 0; a <= sizeof bytes; a += 37)
        for (size_t b = a; b <= sizeof bytes; b += 41) {
            uint32_t sum = crc32c_part(crc32c(0, bytes + b, sizeof bytes - b), 0);
            sum ^= crc32c_part(crc32c(0, bytes, a), sizeof bytes - a);
            sum ^= crc32c_part(crc32c(0, bytes + a, b - a), sizeof bytes - b);
            assert_int_equal(sum, whole);
            assert_int_equal(crc32c(crc32c(0, bytes, a), bytes + a, sizeof bytes - a), whole);
        }
}

/* A part with more than 4 GB behind it. */
static void long_sequences(void **state) {
    uint32_t crc = 0x12345678u, twice = crc;
    uint64_t far = (uint64_t)5 << 32 | 12345;
    for (int i = 0; i < 4; i++) twice = crc32c_part(twice, far / 4);
    twice = crc32c_part(twice, far % 4);
    assert_int_equal(crc32c_part(crc, far), twice);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_values),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(long_sequences),
    };
    return cmocka_run_group_tests_name("base.crc32c", tests, NULL, NULL);
}
