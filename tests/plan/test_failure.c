/* Device failures: the expected goodput agrees with simulated runs, and no other checkpoint interval is
 * better than the best one. */
#include "plan/failure.h"

#include <math.h>

#include "base/rng.h"
#include "test.h"

/* A run of several checkpoint intervals, simulated with randomly drawn failures. */
typedef struct Simulation {
    RngKey key;
    uint64_t drawn;
    double rate, next, clock; /* times of the next failure and of now */
} Simulation;

static void draw_next(Simulation *simulation) {
    simulation->next =
        simulation->clock - log1p(-rng_uniform(simulation->key, simulation->drawn++)) / simulation->rate;
}

/* Advances the clock by `seconds` and returns true, or to the next failure and returns false. */
static bool advance(Simulation *simulation, double seconds) {
    bool completed = simulation->clock + seconds < simulation->next;
    simulation->clock = completed ? simulation->clock + seconds : simulation->next;
    if (!completed) draw_next(simulation);
    return completed;
}

static double simulate(const FailureSpec *spec, int intervals) {
    Simulation simulation = {.key = rng_key(7, "failures", 0), .rate = spec->devices / spec->mtbf_s};
    draw_next(&simulation);
    for (int i = 0; i < intervals; i++)
        while (!advance(&simulation, spec->interval_s + spec->checkpoint_s))
            while (!advance(&simulation, spec->restart_s)) continue;
    return intervals * spec->interval_s / simulation.clock;
}

/* Each cycle completes the save of the one before while it works. */
static double simulate_background(const FailureSpec *spec, int saves) {
    Simulation simulation = {.key = rng_key(7, "failures", 1), .rate = spec->devices / spec->mtbf_s};
    double cycle = spec->interval_s + spec->checkpoint_s;
    int saved = 0;
    draw_next(&simulation);
    while (saved < saves) {
        for (bool pending = false;; pending = true) {
            if (pending && !advance(&simulation, spec->write_s)) break;
            saved += pending;
            if (!advance(&simulation, pending ? cycle - spec->write_s : cycle)) break;
        }
        while (!advance(&simulation, spec->restart_s)) continue;
    }
    return saved * spec->interval_s / simulation.clock;
}

static void agrees_with_simulated_background_saves(void **state) {
    static const FailureSpec specs[] = {{1024, 5e7, 1, 300, 3600, 60},
                                        {16384, 5e7, 0.1, 400, 250, 200},
                                        {16384, 1e7, 5, 400, 1000, 200},
                                        {100, 1e5, 10, 900, 800, 800}};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        Failure failure;
        assert_ok(failure_find(&failure, &specs[i]));
        const FailureShares *s = &failure.shares;
        assert_float_equal(s->goodput + s->checkpoints + s->lost + s->restarts, 1, 1e-12);
        double simulation = simulate_background(&specs[i], 100000);
        if (fabs(failure.shares.goodput / simulation - 1) > 0.01)
            fail_msg("case %zu: goodput %.5f, simulated %.5f", i, failure.shares.goodput, simulation);
    }
    /* Saves wait for each other. */
    Failure often;
    assert_ok(failure_find(&often, &(FailureSpec){16384, 5e7, 0.1, 400, 50, 200}));
    assert_float_equal(often.interval_s, 199.9, 1e-9);
    assert_float_equal(often.best_s, 199.9, 1e-9);
}

static void agrees_with_simulated_runs(void **state) {
    /* From rare failures to several per interval. */
    static const FailureSpec specs[] = {{1024, 5e7, 60, 300, 3600, 0},
                                        {16384, 5e7, 200, 400, 1200, 0},
                                        {16384, 1e7, 200, 400, 1000, 0},
                                        {100, 1e5, 100, 900, 800, 0}};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        Failure failure;
        assert_ok(failure_find(&failure, &specs[i]));
        const FailureShares *s = &failure.shares;
        assert_float_equal(s->goodput + s->checkpoints + s->lost + s->restarts, 1, 1e-12);
        double simulation = simulate(&specs[i], 100000);
        if (fabs(failure.shares.goodput / simulation - 1) > 0.01)
            fail_msg("case %zu: goodput %.5f, simulated %.5f", i, failure.shares.goodput, simulation);
    }
}

static void finds_the_best_interval(void **state) {
    static const FailureSpec specs[] = {{1, 1e9, 1e-3, 0, 0, 0},
                                        {16384, 5e7, 200, 400, 0, 0},
                                        {16384, 1e6, 200, 400, 0, 0}, /* one failure per minute */
                                        {16384, 1e5, 200, 0, 0, 0}};
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
    /* When failures are rare, both approximations are close, Daly's closer than Young's. */
    Failure rare;
    assert_ok(failure_find(&rare, &(FailureSpec){1024, 5e7, 60, 300, 0, 0}));
    assert_true(fabs(rare.daly_s / rare.best_s - 1) < 0.001);
    assert_true(fabs(rare.young_s / rare.best_s - 1) < 0.05);
    assert_true(fabs(rare.daly_s - rare.best_s) < fabs(rare.young_s - rare.best_s));
}

static void bad_input(void **state) {
    Failure failure;
    assert_fails(failure_find(&failure, &(FailureSpec){0, 1, 1, 1, 0, 0}), 2, "expected at least 1");
    assert_fails(failure_find(&failure, &(FailureSpec){1, 0, 1, 1, 0, 0}), 2, "expected 1e-06 to 1e+13 s");
    assert_fails(failure_find(&failure, &(FailureSpec){1, 1, 0, 1, 0, 0}), 2, "checkpoint time of 0 s");
    assert_fails(failure_find(&failure, &(FailureSpec){1, 1, 1, -1, 0, 0}), 2,
                 "restart time of -1 s: expected 0 to");
    assert_fails(failure_find(&failure, &(FailureSpec){1, 1, 1, 1, NAN, 0}), 2, "expected 1e-06 to");
    assert_fails(failure_find(&failure, &(FailureSpec){1, 1e300, 1, 1, 0, 0}), 2, "of 1e+300 s: expected");
    /* Failures that almost never occur: no cancellation in the arithmetic. */
    assert_ok(failure_find(&failure, &(FailureSpec){1, 1e13, 1e-6, 300, 0, 0}));
    assert_float_equal(failure.best_s / failure.young_s, 1, 1e-6);
    assert_true(failure.shares.lost >= 0 && failure.shares.goodput <= 1);
    /* An interval that never completes makes no progress and causes no overflow. */
    assert_ok(failure_find(&failure, &(FailureSpec){16384, 1, 1e6, 1e6, 1e6, 0}));
    assert_float_equal(failure.shares.goodput, 0, 0);
    assert_float_equal(failure.shares.restarts, 1, 0);
    assert_ok(failure_find(&failure, &(FailureSpec){16384, 1, 1e6, 1e-9, 1e6, 0}));
    assert_float_equal(failure.shares.lost + failure.shares.restarts, 1, 1e-12);
    assert_true(failure.shares.lost > 0.9999);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_simulated_runs),
        cmocka_unit_test(agrees_with_simulated_background_saves),
        cmocka_unit_test(finds_the_best_interval),
        cmocka_unit_test(bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
