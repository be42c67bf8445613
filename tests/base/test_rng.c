/* Tests random numbers: Philox against its published test vectors, consistency of the different accessors,
 * and distributions. */
#include "base/rng.h"

#include <math.h>

#include "test.h"

/* Test vectors for philox4x32 from the authors' code: counter, key, results of 10 rounds and of 7. */
static void test_known_answers(void **state) {
    static const uint32_t known[][14] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8, 0x5f6fb709, 0x0d893f64, 0x4f121f81,
         0x4f730a48},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e,
         0xa20bc7c6, 0x6d5451fd, 0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb,
         0x5001e420, 0x24126ea1, 0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a},
    };
    for (int i = 0; i < 3; i++) {
        const uint32_t *k = known[i];
        RngKey key = {.key = (uint64_t)k[5] << 32 | k[4], .step = (uint64_t)k[3] << 32 | k[2]};
        uint64_t block = (uint64_t)k[1] << 32 | k[0];
        uint32_t out[4];
        rng_block(key, block, out);
        assert_memory_equal(out, k + 6, sizeof out);
        for (uint64_t at = 0; at < 8 && block < UINT64_MAX / 8; at++)
            assert_int_equal(rng_u16(key, 8 * block + at), (uint16_t)(k[10 + at / 2] >> 16 * (at % 2)));
        rng_rounds(key, block, RNG_ROUNDS_DROPOUT, out);
        assert_memory_equal(out, k + 10, sizeof out);
    }
}

static void test_hash(void **state) {
    assert_true(rng_hash("") == 0xcbf29ce484222325u); /* FNV-1a reference values */
    assert_true(rng_hash("a") == 0xaf63dc4c8601ec8cu);
    assert_true(rng_hash("foobar") == 0x85944171f73967e8u);
    assert_true(rng_mix(1, 2) != rng_mix(2, 1));
}

/* Seed, site and step each select a different stream. */
static void test_keys(void **state) {
    uint32_t base = rng_u32(rng_key(1, "layer.0", 0), 7);
    assert_true(base == rng_u32(rng_key(1, "layer.0", 0), 7));
    assert_true(base != rng_u32(rng_key(2, "layer.0", 0), 7));
    assert_true(base != rng_u32(rng_key(1, "layer.1", 0), 7));
    assert_true(base != rng_u32(rng_key(1, "layer.0", 1), 7));
    assert_true(base != rng_u32(rng_key(1, "layer.0", 0), 8));
}

static void test_elements_match_blocks(void **state) {
    RngKey key = rng_key(5, "x", 9);
    for (uint64_t i = 0; i < 64; i++) {
        uint64_t index = i + ((uint64_t)1 << 35);
        uint32_t block[4];
        rng_block(key, index / 4, block);
        assert_int_equal(rng_u32(key, index), block[index % 4]);
        assert_true(rng_uniform(key, index) == block[index % 4] / 4294967296.0);
    }
}

static void test_uniform(void **state) {
    enum { COUNT = 1 << 18 };
    RngKey key = rng_key(1, "uniform", 0);
    double total = 0, squares = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        double u = rng_uniform(key, i);
        assert_true(u >= 0 && u < 1);
        total += u, squares += u * u;
    }
    assert_true(fabs(total / COUNT - 0.5) < 0.003);
    assert_true(fabs(squares / COUNT - 1.0 / 3) < 0.003);
}

/* The draws of dropout: uniform, and neighbors are independent, in a block and across blocks and steps. */
static void test_dropout_draws(void **state) {
    enum { COUNT = 1 << 18, LIMIT = 6554 };
    RngKey key = rng_key(1, "drop", 3), next = rng_key(1, "drop", 4);
    double total = 0;
    int low = 0, both = 0, steps = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        uint32_t draw = rng_u16(key, i);
        total += draw;
        low += draw < LIMIT;
        both += draw < LIMIT && rng_u16(key, i + 1) < LIMIT;
        steps += draw < LIMIT && rng_u16(next, i) < LIMIT;
    }
    assert_true(fabs(total / COUNT - 32767.5) < 200);
    assert_true(fabs((double)low / COUNT - 0.1) < 0.002);
    assert_true(fabs((double)both / COUNT - 0.01) < 0.0008);
    assert_true(fabs((double)steps / COUNT - 0.01) < 0.0008);
}

/* The draw of element i of a word, from its definition. */
static uint32_t draw_of(RngKey key, uint64_t word, int i) {
    uint32_t own[8], draw = 0;
    rng_rounds(key, 2 * word, RNG_ROUNDS_DROPOUT, own);
    rng_rounds(key, 2 * word + 1, RNG_ROUNDS_DROPOUT, own + 4);
    for (int bit = 0; bit < 8; bit++) draw = draw << 1 | (own[bit] >> i & 1);
    return draw << 8 | (own[0] >> 24 ^ (own[1] >> 16 & 0xff));
}

/* Masks of attention weights: an element is kept if its draw reaches the threshold. The rate is exact, and
 * the elements of a word are independent of each other and of other words and steps. */
static void test_kept(void **state) {
    enum { WORDS = 1 << 14, LIMIT = 6554 };
    RngKey key = rng_key(1, "drop", 3), next = rng_key(1, "drop", 4);
    static const uint32_t limits[] = {1, 255, 256, 6554, 13107, 32768, 40000, 65535};
    for (uint64_t word = 0; word < 2000; word++) {
        uint32_t limit = limits[word % 8], kept = rng_kept(key, word, limit);
        for (int i = 0; i < 32; i++) assert_int_equal(kept >> i & 1, draw_of(key, word, i) >= limit);
    }
    assert_true(rng_kept(key, 7, 0) == UINT32_MAX);
    int dropped = 0, both = 0, steps = 0, each[32] = {0};
    double total = 0;
    for (uint64_t word = 0; word < WORDS; word++) {
        uint32_t drop = ~rng_kept(key, word, LIMIT);
        dropped += __builtin_popcount(drop);
        both += __builtin_popcount(drop & (drop << 1 | drop >> 31));
        both += __builtin_popcount(drop & ~rng_kept(key, word + 1, LIMIT));
        steps += __builtin_popcount(drop & ~rng_kept(next, word, LIMIT));
        for (int i = 0; i < 32; i++) each[i] += drop >> i & 1;
        total += draw_of(key, word, (int)(word % 32));
    }
    assert_true(fabs(total / WORDS - 32767.5) < 600);
    assert_true(fabs((double)dropped / (32 * WORDS) - 0.1) < 0.0015);
    assert_true(fabs((double)both / (64 * WORDS) - 0.01) < 0.0004);
    assert_true(fabs((double)steps / (32 * WORDS) - 0.01) < 0.0005);
    for (int i = 0; i < 32; i++) assert_true(fabs((double)each[i] / WORDS - 0.1) < 0.009);
}

static void test_below(void **state) {
    RngKey key = rng_key(1, "below", 0);
    int seen[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) seen[rng_below(key, i, 7)]++;
    for (int i = 0; i < 7; i++) assert_in_range(seen[i], 9500, 10500);
    assert_int_equal(rng_below(key, 3, 1), 0);
    for (uint64_t i = 0; i < 100; i++) assert_true(rng_below(key, i, (uint64_t)1 << 63) < (uint64_t)1 << 63);
}

static void test_normal(void **state) {
    enum { COUNT = 1 << 19 };
    RngKey key = rng_key(1, "normal", 0);
    double power[5] = {0}, correlation = 0, before = 0;
    int beyond_two = 0;
    float block[4];
    for (uint64_t i = 0; i < COUNT; i++) {
        double x = rng_normal(key, i);
        assert_true(isfinite(x));
        if (i % 4 == 0) rng_normal_block(key, i / 4, block);
        assert_true(block[i % 4] == (float)x);
        for (int p = 1; p <= 4; p++) power[p] += pow(x, p) / COUNT;
        correlation += x * before / COUNT;
        beyond_two += fabs(x) > 2;
        before = x;
    }
    assert_true(fabs(power[1]) < 0.01);
    assert_true(fabs(power[2] - 1) < 0.01);
    assert_true(fabs(power[3]) < 0.03);
    assert_true(fabs(power[4] - 3) < 0.06);
    assert_true(fabs(correlation) < 0.01);
    assert_true(fabs((double)beyond_two / COUNT - 0.0455) < 0.002);
}

static void check_permutation(uint64_t n, RngKey key) {
    unsigned char *hit = calloc(n, 1);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = rng_permute(key, i, n);
        assert_true(at < n);
        assert_false(hit[at]);
        hit[at] = 1;
    }
    free(hit);
}

static void test_permutation(void **state) {
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 15, 16, 17, 100, 1000, 1023, 4096, 4097, 65537};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) check_permutation(sizes[i], rng_key(3, "order", epoch));
    for (uint64_t i = 0; i < 100; i++)
        assert_true(rng_permute(rng_key(3, "order", 0), i << 33, (uint64_t)1 << 40) < (uint64_t)1 << 40);
}

/* Permutations look shuffled: few fixed points, few adjacent pairs that stay adjacent, and each epoch
 * differs. */
static void test_permutation_mixes(void **state) {
    enum { N = 10000 };
    RngKey key = rng_key(3, "order", 0), next = rng_key(3, "order", 1);
    int fixed = 0, followed = 0, same = 0, low = 0;
    for (uint64_t i = 0; i + 1 < N; i++) {
        uint64_t at = rng_permute(key, i, N);
        fixed += at == i;
        followed += rng_permute(key, i + 1, N) == at + 1;
        same += rng_permute(next, i, N) == at;
        low += i < N / 2 && at < N / 2;
    }
    assert_true(fixed < 10 && followed < 10 && same < 10);
    assert_in_range(low, 2300, 2700);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_elements_match_blocks),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_dropout_draws),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_normal),
        cmocka_unit_test(test_permutation),
        cmocka_unit_test(test_permutation_mixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
