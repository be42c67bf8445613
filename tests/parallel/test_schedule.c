/* Tests pipeline schedules: order, message matching, memory in flight and bubble, for all combinations of
 * kind, stages, chunks and micro-batches. */
#include <math.h>

#include "parallel/schedule.h"
#include "test.h"

enum { MAX_STAGES = 16 };

typedef struct Pipeline {
    Schedule stage[MAX_STAGES];
    int count;
    ScheduleTimes times;
} Pipeline;

static Pipeline pipeline(ScheduleKind kind, int stages, int chunks, int micros) {
    Pipeline p = {.count = stages};
    ScheduleSpec spec = {.kind = kind, .stages = stages, .chunks = chunks, .micros = micros};
    for (int s = 0; s < stages; s++) assert_ok(schedule_init(&p.stage[s], &spec, s));
    p.times = schedule_times(p.stage, stages);
    return p;
}

static void pipeline_done(Pipeline *p) {
    for (int s = 0; s < p->count; s++) schedule_done(&p->stage[s]);
}

/* Spells a schedule, as in "F0 B0". Compute actions are F, B, I (backward of the input only) and W (weight
 * gradients); messages are rf, sf, rb and sb. Chunks above 0 are appended, as in F0.1. The caller frees the
 * result. */
static char *spell(const Schedule *schedule, bool messages) {
    static const char *const letters[ACTION_KINDS] = {"rf", "F", "sf", "rb", "B", "I", "W", "sb"};
    size_t size = (size_t)schedule->count * 16 + 1, used = 0;
    char *text = calloc(1, size);
    assert_non_null(text);
    for (int i = 0; i < schedule->count; i++) {
        Action a = schedule->action[i];
        if (!messages && !action_computes(a.kind)) continue;
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s%d", used ? " " : "", letters[a.kind], a.micro);
        if (a.chunk) used += (size_t)snprintf(text + used, size - used, ".%d", a.chunk);
    }
    return text;
}

static void assert_list(ScheduleKind kind, int stages, int chunks, int micros, int stage, bool messages,
                        const char *expected) {
    Schedule schedule;
    ScheduleSpec spec = {.kind = kind, .stages = stages, .chunks = chunks, .micros = micros};
    assert_ok(schedule_init(&schedule, &spec, stage));
    char *text = spell(&schedule, messages);
    assert_string_equal(text, expected);
    free(text);
    schedule_done(&schedule);
}

static void test_small_schedules(void **state) {
    assert_list(SCHEDULE_1F1B, 1, 1, 3, 0, true, "F0 B0 F1 B1 F2 B2");
    assert_list(SCHEDULE_GPIPE, 1, 1, 2, 0, true, "F0 F1 B0 B1");
    assert_list(SCHEDULE_ZERO_BUBBLE, 1, 1, 2, 0, true, "F0 I0 W0 F1 I1 W1");
    assert_list(SCHEDULE_EVAL, 2, 1, 2, 0, true, "F0 sf0 F1 sf1");
    assert_list(SCHEDULE_EVAL, 2, 1, 2, 1, true, "rf0 F0 rf1 F1");
    assert_list(SCHEDULE_EVAL, 2, 2, 1, 0, true, "F0 sf0 rf0.1 F0.1 sf0.1");

    assert_list(SCHEDULE_GPIPE, 3, 1, 2, 1, false, "F0 F1 B0 B1");
    assert_list(SCHEDULE_1F1B, 3, 1, 4, 0, false, "F0 F1 F2 B0 F3 B1 B2 B3");
    assert_list(SCHEDULE_1F1B, 3, 1, 4, 1, false, "F0 F1 B0 F2 B1 F3 B2 B3");
    assert_list(SCHEDULE_1F1B, 3, 1, 4, 2, false, "F0 B0 F1 B1 F2 B2 F3 B3");
    assert_list(SCHEDULE_1F1B, 4, 1, 2, 0, false, "F0 F1 B0 B1");
    assert_list(SCHEDULE_1F1B, 2, 1, 3, 0, true, "F0 sf0 F1 sf1 rb0 B0 F2 sf2 rb1 B1 rb2 B2");
    /* The second forward's input arrives during the first backward. */
    assert_list(SCHEDULE_1F1B, 2, 1, 3, 1, true, "rf0 F0 rf1 B0 sb0 F1 B1 rf2 sb1 F2 B2 sb2");

    assert_list(SCHEDULE_INTERLEAVED, 2, 2, 2, 0, false, "F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1");
    assert_list(SCHEDULE_INTERLEAVED, 2, 2, 4, 1, false,
                "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3");
    assert_list(SCHEDULE_ZERO_BUBBLE, 2, 1, 3, 0, false, "F0 F1 I0 W0 F2 I1 W1 I2 W2");
    assert_list(SCHEDULE_ZERO_BUBBLE, 2, 1, 3, 1, false, "F0 I0 F1 I1 W0 F2 I2 W1 W2");
}

/* What an action follows, of the same micro-batch and chunk, as bits of ActionKind. */
static unsigned needs(const ScheduleSpec *spec, int part, ActionKind kind) {
    bool alone = spec->stages == 1, first = part == 0, last = part == spec->stages * spec->chunks - 1;
    unsigned forward = first || alone ? 0 : 1u << ACTION_RECEIVE_FORWARD;
    unsigned backward = 1u << ACTION_FORWARD | (last || alone ? 0 : 1u << ACTION_RECEIVE_BACKWARD);
    bool split = spec->kind == SCHEDULE_ZERO_BUBBLE;
    switch (kind) {
    case ACTION_FORWARD: return forward;
    case ACTION_SEND_FORWARD: return 1u << ACTION_FORWARD;
    case ACTION_BACKWARD:
    case ACTION_BACKWARD_INPUT: return backward;
    case ACTION_BACKWARD_WEIGHT: return 1u << ACTION_BACKWARD_INPUT;
    case ACTION_SEND_BACKWARD: return 1u << (split ? ACTION_BACKWARD_INPUT : ACTION_BACKWARD);
    default: return 0;
    }
}

/* Every action occurs once, after those that it needs, and none is missing. */
static void assert_complete(const Schedule *schedule) {
    const ScheduleSpec *spec = &schedule->spec;
    size_t pairs = (size_t)spec->chunks * (size_t)spec->micros;
    unsigned *done = calloc(pairs, sizeof *done);
    assert_non_null(done);
    for (int i = 0; i < schedule->count; i++) {
        Action action = schedule->action[i];
        unsigned *pair = &done[action.chunk * spec->micros + action.micro];
        unsigned before = needs(spec, schedule_part(spec, schedule->stage, action.chunk), action.kind);
        if ((*pair & before) != before || *pair & 1u << action.kind)
            fail_msg("%s, stage %d of %d: %s of micro-batch %d, chunk %d occurs twice or too early",
                     schedule_name(spec->kind), schedule->stage, spec->stages, action_name(action.kind),
                     action.micro, action.chunk);
        *pair |= 1u << action.kind;
    }
    for (size_t i = 0; i < pairs; i++) {
        int part = schedule_part(spec, schedule->stage, (int)i / spec->micros);
        unsigned last = schedule_is_forward_only(spec, part) ? ACTION_FORWARD
                        : spec->kind == SCHEDULE_ZERO_BUBBLE ? ACTION_BACKWARD_WEIGHT
                                                             : ACTION_BACKWARD;
        assert_true(done[i] & 1u << last);
    }
    free(done);
}

/* Runs the schedule with blocking messages: each send and receive waits for its partner, which is the
 * strictest model. Returns false on deadlock. */
static bool blocking_works(const Schedule *stage, int count) {
    int at[MAX_STAGES] = {0};
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < count; s++) {
            if (at[s] == stage[s].count) continue;
            Action a = stage[s].action[at[s]];
            bool forward = a.kind == ACTION_SEND_FORWARD, backward = a.kind == ACTION_SEND_BACKWARD;
            int other = forward ? (s + 1) % count : (s + count - 1) % count;
            if (forward || backward) {
                if (at[other] == stage[other].count) continue;
                Action b = stage[other].action[at[other]];
                if (b.kind != (forward ? ACTION_RECEIVE_FORWARD : ACTION_RECEIVE_BACKWARD) ||
                    b.micro != a.micro)
                    continue;
                at[other]++;
            } else if (!action_computes(a.kind)) {
                continue;
            }
            at[s]++;
            moved = true;
        }
    }
    for (int s = 0; s < count; s++)
        if (at[s] < stage[s].count) return false;
    return true;
}

static void assert_pipeline(ScheduleKind kind, int stages, int chunks, int micros) {
    Pipeline p = pipeline(kind, stages, chunks, micros);
    double m = (double)micros * chunks, after = stages - 1;
    if (!blocking_works(p.stage, stages))
        fail_msg("%s with %d stages, %d chunks, %d micro-batches deadlocks with blocking messages",
                 schedule_name(kind), stages, chunks, micros);
    if (kind == SCHEDULE_GPIPE || (kind == SCHEDULE_1F1B && chunks == 1))
        assert_float_equal(p.times.bubble, after / (micros + after), 1e-12);
    if (kind == SCHEDULE_INTERLEAVED && micros % stages == 0)
        assert_float_equal(p.times.bubble, after / (m + after), 1e-12);
    if (kind == SCHEDULE_INTERLEAVED && micros >= stages)
        assert_true(p.times.bubble <= after / (micros + after) + 1e-12);
    if (kind == SCHEDULE_ZERO_BUBBLE && stages > 1) assert_true(p.times.bubble < after / (micros + after));
    if (kind == SCHEDULE_ZERO_BUBBLE && micros >= stages)
        assert_float_equal(p.times.bubble, after / (3 * m + after), 1e-12);
    for (int s = 0; s < stages; s++) {
        int held = p.stage[s].in_flight;
        assert_complete(&p.stage[s]);
        if (kind == SCHEDULE_GPIPE) assert_int_equal(held, micros);
        if (kind == SCHEDULE_1F1B) assert_int_equal(held, micros < stages - s ? micros : stages - s);
        if (kind == SCHEDULE_ZERO_BUBBLE) assert_true(held <= stages && held <= micros);
        if (kind == SCHEDULE_EVAL) assert_int_equal(held, 1);
        if (kind != SCHEDULE_ZERO_BUBBLE) assert_int_equal(p.stage[s].deferred, 0);
        if (kind != SCHEDULE_INTERLEAVED && kind != SCHEDULE_EVAL)
            assert_true(p.stage[s].waiting_forward <= 1 && p.stage[s].waiting_backward <= 1);
    }
    pipeline_done(&p);
}

static void test_all_combinations(void **state) {
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        bool chunked = kind == SCHEDULE_INTERLEAVED || kind == SCHEDULE_EVAL;
        for (int stages = 1; stages <= MAX_STAGES; stages++)
            for (int chunks = 1; chunks <= (chunked ? 8 : 1); chunks += chunks < 3 ? 1 : 5)
                for (int micros = 1; micros <= 64; micros += micros < 20 ? 1 : 11)
                    assert_pipeline((ScheduleKind)kind, stages, chunks, micros);
    }
}

/* Counted by hand for stage 1 of 2: F0 I0 F1 I1 W0 F2 I2 W1 W2. */
static void test_counts_in_flight_and_deferred(void **state) {
    Pipeline p = pipeline(SCHEDULE_ZERO_BUBBLE, 2, 1, 3);
    assert_int_equal(p.stage[1].in_flight, 2);
    assert_int_equal(p.stage[1].deferred, 2);
    assert_int_equal(p.stage[0].in_flight, 2);
    pipeline_done(&p);
    p = pipeline(SCHEDULE_INTERLEAVED, 2, 2, 4);
    assert_int_equal(p.stage[1].in_flight, 3);
    pipeline_done(&p);
}

static void test_refuses_wrong_specs(void **state) {
    Schedule schedule = {0};
    ScheduleSpec spec = {.kind = SCHEDULE_1F1B, .stages = 4, .chunks = 2, .micros = 8};
    assert_fails(schedule_init(&schedule, &spec, 0), 2, "the 1f1b schedule has 1 chunk per stage, not 2");
    spec = (ScheduleSpec){.kind = SCHEDULE_GPIPE, .stages = 4, .chunks = 1, .micros = 0};
    assert_fails(schedule_init(&schedule, &spec, 0), 2, "needs at least 1 stage");
    spec =
        (ScheduleSpec){.kind = SCHEDULE_INTERLEAVED, .stages = 1 << 20, .chunks = 1 << 20, .micros = 1 << 20};
    assert_fails(schedule_init(&schedule, &spec, 0), 2, "is too large");
    spec = (ScheduleSpec){.kind = SCHEDULE_GPIPE, .stages = 4, .chunks = 1, .micros = 8};
    assert_fails(schedule_init(&schedule, &spec, 4), 1, "stage 4");
    assert_null(schedule.action);
}

/* Parts in which nothing is trained have no backward, hold no micro-batch and get no gradient. */
static void test_forward_only(void **state) {
    for (int kind = 0; kind < SCHEDULE_EVAL; kind++)
        for (int stages = 1; stages <= 4; stages++)
            for (int micros = stages; micros <= 2 * stages; micros += stages) {
                int chunks = kind == SCHEDULE_INTERLEAVED ? 2 : 1;
                for (int parts = 0; parts < stages * chunks; parts++) {
                    ScheduleSpec spec = {.kind = (ScheduleKind)kind,
                                         .stages = stages,
                                         .chunks = chunks,
                                         .micros = micros,
                                         .forward_only = parts};
                    Pipeline p = {.count = stages};
                    int backward = 0, sent = 0;
                    assert_ok(schedule_init_all(p.stage, &spec));
                    assert_true(blocking_works(p.stage, stages));
                    for (int s = 0; s < stages; s++) assert_complete(&p.stage[s]);
                    for (int s = 0; s < stages; s++)
                        for (int i = 0; i < p.stage[s].count; i++) {
                            ActionKind what = p.stage[s].action[i].kind;
                            backward += what == ACTION_BACKWARD || what == ACTION_BACKWARD_INPUT;
                            sent += what == ACTION_SEND_BACKWARD;
                        }
                    assert_int_equal(backward, micros * (stages * chunks - parts));
                    assert_int_equal(sent, stages > 1 ? micros * (stages * chunks - 1 - parts) : 0);
                    if (parts && chunks == 1) assert_int_equal(p.stage[0].in_flight, 1);
                    pipeline_done(&p);
                }
            }
}

static void test_names(void **state) {
    for (int i = 0; i < SCHEDULE_EVAL; i++)
        assert_string_equal(schedule_names[i], schedule_name((ScheduleKind)i));
    assert_null(schedule_names[SCHEDULE_EVAL]); /* cannot be selected */
    assert_string_equal(schedule_name(SCHEDULE_EVAL), "eval");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_schedules),
        cmocka_unit_test(test_all_combinations),
        cmocka_unit_test(test_counts_in_flight_and_deferred),
        cmocka_unit_test(test_refuses_wrong_specs),
        cmocka_unit_test(test_forward_only),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
