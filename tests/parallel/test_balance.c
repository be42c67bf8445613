/* Tests the assignment of blocks to pipeline stages against an exhaustive search. */
#include <float.h>

#include "parallel/schedule.h"
#include "test.h"

enum { MAX_BLOCKS = 12 };

static int descending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The cost of each part, in descending order. */
static void run_costs(const double *cost, const int *first, int parts, double *runs) {
    for (int p = 0; p < parts; p++) {
        runs[p] = 0;
        for (int i = first[p]; i < first[p + 1]; i++) runs[p] += cost[i];
    }
    qsort(runs, (size_t)parts, sizeof *runs, descending);
}

static void try_all(const double *cost, int count, int parts, int *first, int p, double *best) {
    if (p == parts) {
        double runs[MAX_BLOCKS];
        run_costs(cost, first, parts, runs);
        int at = 0;
        while (at + 1 < parts && runs[at] == best[at]) at++;
        if (runs[at] < best[at]) memcpy(best, runs, (size_t)parts * sizeof *runs);
        return;
    }
    for (first[p] = first[p - 1] + 1; first[p] <= count - (parts - p); first[p]++)
        try_all(cost, count, parts, first, p + 1, best);
}

static void assert_best(const double *cost, int count, int parts) {
    int first[MAX_BLOCKS + 1], trial[MAX_BLOCKS + 1] = {0};
    double best[MAX_BLOCKS], runs[MAX_BLOCKS];
    assert_ok(stages_balance(cost, count, parts, first));
    assert_int_equal(first[0], 0);
    assert_int_equal(first[parts], count);
    for (int p = 0; p < parts; p++) assert_true(first[p] < first[p + 1]);
    for (int p = 0; p < parts; p++) best[p] = DBL_MAX;
    trial[parts] = count;
    try_all(cost, count, parts, trial, 1, best);
    run_costs(cost, first, parts, runs);
    for (int p = 0; p < parts; p++) assert_float_equal(runs[p], best[p], 0);
}

/* Integer costs, so that sums are exact in any order. */
static void test_matches_exhaustive_search(void **state) {
    unsigned seed = 1;
    for (int round = 0; round < 60; round++) {
        double cost[MAX_BLOCKS];
        for (int i = 0; i < MAX_BLOCKS; i++) {
            seed = seed * 1664525u + 1013904223u;
            cost[i] = (double)(seed >> 16) / (round % 3 ? 6553.6 : 1);
            cost[i] = (double)(int)cost[i];
        }
        for (int count = 1; count <= MAX_BLOCKS; count++)
            for (int parts = 1; parts <= count; parts++) assert_best(cost, count, parts);
    }
}

/* Costs like a transformer's: equal layers between an embedding and an output head. */
static void test_layers_match_exhaustive_search(void **state) {
    double cost[MAX_BLOCKS];
    for (int embedding = 0; embedding <= 9; embedding += 3)
        for (int head = 0; head <= 11; head++)
            for (int count = 1; count <= MAX_BLOCKS; count++)
                for (int parts = 1; parts <= count; parts++) {
                    for (int i = 0; i < count; i++) cost[i] = 2;
                    cost[count - 1] = head;
                    cost[0] = embedding;
                    assert_best(cost, count, parts);
                }
}

static void assert_split(const double *cost, int count, int parts, const int *expected) {
    int first[MAX_BLOCKS + 1];
    assert_ok(stages_balance(cost, count, parts, first));
    for (int p = 0; p <= parts; p++) assert_int_equal(first[p], expected[p]);
}

static void test_known_splits(void **state) {
    const double equal[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    assert_split(equal, 10, 2, (const int[]){0, 5, 10});
    assert_split(equal, 10, 4, (const int[]){0, 2, 4, 7, 10});
    /* A cheap embedding, eight equal layers, and an output head that costs as much as three. */
    const double model[] = {0.1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
    assert_split(model, 10, 2, (const int[]){0, 6, 10});
    assert_split(model, 10, 4, (const int[]){0, 3, 6, 9, 10});
}

static void test_refusals(void **state) {
    const double cost[] = {1, 2, -1};
    int first[5];
    assert_fails(stages_balance(cost, 2, 3, first), 2, "cannot divide 2 blocks into 3 pipeline parts");
    assert_fails(stages_balance(cost, 2, 0, first), 2, "needs at least 1 part");
    assert_fails(stages_balance(cost, 3, 2, first), 1, "block 2 has cost -1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches_exhaustive_search),
        cmocka_unit_test(test_layers_match_exhaustive_search),
        cmocka_unit_test(test_known_splits),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
