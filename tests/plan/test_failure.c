/* Failures: the expectation against runs that are played through, and the best interval against all others.
 */
#include "plan/failure.h"

#include <math.h>

#include "base/rng.h"
#include "test.h"

/* Plays a run of some stretches through, with failures drawn one after the other. */
typedef struct Played {
    RngKey key;
    uint64_t drawn;
    double rate, next, clock; /* when the next failure comes */
} Played;

static void draw_next(Played *played) {
    played->next = played->clock - log1p(-rng_uniform(played->key, played->drawn++)) / played->rate;
}

/* Whether so many seconds pass without a failure; the clock is then after them, else at the failure. */
static bool pass(Played *played, double seconds) {
    bool whole = played->clock + seconds < played->next;
    played->clock = whole ? played->clock + seconds : played->next;
    if (!whole) draw_next(played);
    return whole;
}

static double play(const FailureSpec *spec, int stretches) {
    Played played = {.key = rng_key(7, "failures", 0), .rate = spec->devices / spec->mtbf_s};
    draw_next(&played);
    for (int i = 0; i < stretches; i++)
        while (!pass(&played, spec->interval_s + spec->checkpoint_s))
            while (!pass(&played, spec->restart_s)) continue;
    return stretches * spec->interval_s / played.clock;
}

static void agrees_with_runs_played_through(void **state) {
    (void)state;
    /* From rare failures to some in every stretch. */
    static const FailureSpec specs[] = {{1024, 5e7, 60, 300, 3600},
                                        {16384, 5e7, 200, 400, 1200},
                                        {16384, 1e7, 200, 400, 1000},
                                        {100, 1e5, 100, 900, 800}};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        Failure failure;
        assert_ok(failure_find(&failure, &specs[i]));
        const FailureShares *s = &failure.shares;
        assert_float_equal(s->goodput + s->checkpoints + s->lost + s->restarts, 1, 1e-12);
        double played = play(&specs[i], 100000);
        if (fabs(failure.shares.goodput / played - 1) > 0.01)
            fail_msg("case %zu: expected %.5f, played %.5f", i, failure.shares.goodput, played);
    }
}

static void finds_the_best_interval(void **state) {
    (void)state;
    static const FailureSpec specs[] = {{1, 1e9, 1e-3, 0, 0},
                                        {16384, 5e7, 200, 400, 0},
                                        {16384, 1e6, 200, 400, 0}, /* a failure a minute */
                                        {16384, 1e5, 200, 0, 0}};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        Failure f;
        assert_ok(failure_find(&f, &specs[i]));
        assert_true(f.best_s > 0 && f.best_s <= f.mtbf_s);
        assert_true(f.interval_s == f.best_s);
        for (double factor = 0.5; factor < 2; factor *= 1.01)
            assert_true(failure_shares(&specs[i], factor * f.best_s).goodput <= f.best_goodput * (1 + 1e-12));
        assert_true(f.young_goodput <= f.best_goodput * (1 + 1e-12));
        assert_true(f.daly_goodput <= f.best_goodput * (1 + 1e-12));
    }
    /* Where failures are rare, the approximations are close, Daly's closer. */
    Failure rare;
    assert_ok(failure_find(&rare, &(FailureSpec){1024, 5e7, 60, 300, 0}));
    assert_true(fabs(rare.daly_s / rare.best_s - 1) < 0.001);
    assert_true(fabs(rare.young_s / rare.best_s - 1) < 0.05);
    assert_true(fabs(rare.daly_s - rare.best_s) < fabs(rare.young_s - rare.best_s));
}

static void bad_input(void **state) {
    (void)state;
    Failure failure;
    assert_fails(failure_find(&failure, &(FailureSpec){0, 1, 1, 1, 0}), 2, "expected at least 1");
    assert_fails(failure_find(&failure, &(FailureSpec){1, 0, 1, 1, 0}), 2, "expected 1e-06 to 1e+13 s");
    assert_fails(failure_find(&failure, &(FailureSpec){1, 1, 0, 1, 0}), 2, "checkpoint time of 0 s");
    assert_fails(failure_find(&failure, &(FailureSpec){1, 1, 1, -1, 0}), 2,
                 "restart time of -1 s: expected 0 to");
    assert_fails(failure_find(&failure, &(FailureSpec){1, 1, 1, 1, NAN}), 2, "expected 1e-06 to");
    assert_fails(failure_find(&failure, &(FailureSpec){1, 1e300, 1, 1, 0}), 2, "of 1e+300 s: expected");
    /* Failures that almost never come: no cancelling. */
    assert_ok(failure_find(&failure, &(FailureSpec){1, 1e13, 1e-6, 300, 0}));
    assert_float_equal(failure.best_s / failure.young_s, 1, 1e-6);
    assert_true(failure.shares.lost >= 0 && failure.shares.goodput <= 1);
    /* A stretch that never comes through is no progress, and no overflow. */
    assert_ok(failure_find(&failure, &(FailureSpec){16384, 1, 1e6, 1e6, 1e6}));
    assert_float_equal(failure.shares.goodput, 0, 0);
    assert_float_equal(failure.shares.restarts, 1, 0);
    assert_ok(failure_find(&failure, &(FailureSpec){16384, 1, 1e6, 1e-9, 1e6}));
    assert_float_equal(failure.shares.lost + failure.shares.restarts, 1, 1e-12);
    assert_true(failure.shares.lost > 0.9999);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_runs_played_through),
        cmocka_unit_test(finds_the_best_interval),
        cmocka_unit_test(bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
