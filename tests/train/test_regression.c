/* Correlations against values from SciPy, including ties and constant data. */
#include "train/regression.h"

#include <math.h>

#include "test.h"

static void assert_near(double found, double expected) {
    if (!(fabs(found - expected) <= 1e-14)) fail_msg("%.17g; expected %.17g", found, expected);
}

static double rank_correlation(const double *x, const double *y, int64_t count) {
    double a[16], b[16];
    assert_true(count <= 16);
    memcpy(a, x, (size_t)count * sizeof *a);
    memcpy(b, y, (size_t)count * sizeof *b);
    assert_ok(ranks_of(a, count));
    assert_ok(ranks_of(b, count));
    return correlation(a, b, count);
}

static void test_ranks(void **state) {
    double values[] = {3, -1, 3, 7, -1, 3, 0};
    const double expected[] = {5, 1.5, 5, 7, 1.5, 5, 3};
    assert_ok(ranks_of(values, 7));
    for (int i = 0; i < 7; i++) assert_true(values[i] == expected[i]);
    assert_ok(ranks_of(values, 0));
}

/* scipy.stats.pearsonr and spearmanr. */
static void test_correlations(void **state) {
    const double x[] = {1.5, -2, 0.25, 7, 7, 3, -2, 1}, y[] = {2, 0, 0, 5, 9, 2, -1, 2};
    assert_near(correlation(x, y, 8), 0.9163753642087074);
    assert_near(rank_correlation(x, y, 8), 0.9504755800871905);
    const double cubes[] = {-8, -1, 0, 1, 27}, line[] = {-2, -1, 0, 1, 3};
    assert_near(rank_correlation(cubes, line, 5), 1);
    const double falling[] = {5, 4, 3, 2, 1};
    assert_near(rank_correlation(cubes, falling, 5), -1);
    const double constant[] = {2, 2, 2, 2, 2};
    assert_true(isnan(correlation(cubes, constant, 5)));
    assert_true(isnan(rank_correlation(constant, line, 5)));
    const double rounded[] = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1}, six[] = {1, 2, 3, 4, 5, 7};
    assert_true(isnan(correlation(six, rounded, 6)));
    assert_true(isnan(correlation(rounded, six, 6)));
    assert_true(isnan(correlation(x, y, 1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks), cmocka_unit_test(test_correlations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
