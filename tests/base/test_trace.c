/* Tests the span recorder and the trace.json written from it. */
#include <pthread.h>

#include "base/folder.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/trace.h"
#include "test.h"

static const TraceName step = {.name = "step", .category = "step", .number = {"step"}};
static const TraceName forward = {"F", "forward", TRACE_BLUE, {"micro", "chunk"}, true};
static const TraceName sending = {.name = "send \"x\"\\\n", .number = {NULL, "bytes"}};

/* Creates a trace and returns its time origin, so that tests can choose span times. */
static Trace *trace_at_zero(size_t capacity, int64_t *ret_zero) {
    Trace *trace = NULL;
    assert_ok(trace_new(&trace, capacity));
    int64_t before = trace_now();
    trace_start(trace);
    *ret_zero = before;
    return trace;
}

typedef struct Packed {
    void *bytes[4];
    size_t size[4];
    int count;
} Packed;

static void pack(Packed *packed, Trace *trace, int rank, const char *label) {
    assert_ok(trace_pack(trace, rank, label, &packed->bytes[packed->count], &packed->size[packed->count]));
    packed->count++;
    trace_free(trace);
}

static json_t *write_and_read(Packed *packed, const char *path) {
    json_t *json = NULL;
    assert_ok(trace_write(path, (const void *const *)packed->bytes, packed->size, packed->count));
    assert_ok(json_read_file(path, &json));
    for (int i = 0; i < packed->count; i++) free(packed->bytes[i]);
    return json;
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* Returns the record number `at` with phase `phase` of rank `pid`. */
static const json_t *record(const json_t *json, const char *phase, int pid, int at) {
    size_t i;
    const json_t *event;
    json_array_foreach(json_object_get(json, "traceEvents"), i, event) {
        if (strcmp(text_of(event, "ph"), phase) || (int)number_of(event, "pid") != pid) continue;
        if (at-- == 0) return event;
    }
    return NULL;
}

static void test_ranks_become_processes(void **state) {
    Packed packed = {0};
    for (int rank = 0; rank < 2; rank++) {
        int64_t zero;
        Trace *trace = trace_at_zero(8, &zero);
        trace_add(trace, TRACE_COMPUTE, &forward, zero + 5000, zero + 7500, 3, 1);
        trace_add(trace, TRACE_COMM, &sending, zero + 7500, zero + 8000, 0, 4096);
        pack(&packed, trace, rank, rank ? "rank 1" : "rank 0");
    }
    json_t *json = write_and_read(&packed, folder_path(*state, "trace.json"));
    const json_t *title = record(json, "M", 1, 0);
    assert_string_equal(text_of(title, "name"), "process_name");
    assert_string_equal(text_of(json_object_get(title, "args"), "name"), "rank 1");
    const json_t *span = record(json, "X", 1, 0), *args = json_object_get(span, "args");
    assert_string_equal(text_of(span, "name"), "F3");
    assert_string_equal(text_of(span, "cat"), "forward");
    assert_string_equal(text_of(span, "cname"), TRACE_BLUE);
    assert_float_equal(number_of(span, "dur"), 2.5, 1e-9);
    assert_int_equal(number_of(args, "micro"), 3);
    assert_int_equal(number_of(args, "chunk"), 1);
    const json_t *send = record(json, "X", 1, 1);
    assert_string_equal(text_of(send, "name"), "send \"x\"\\\n");
    assert_null(json_object_get(send, "cname"));
    assert_int_equal(json_object_size(json_object_get(send, "args")), 1);
    assert_int_equal(number_of(json_object_get(send, "args"), "bytes"), 4096);
    assert_float_equal(number_of(send, "ts") - number_of(span, "ts"), 2.5, 1e-6);
    assert_true(number_of(send, "tid") != number_of(span, "tid"));
    json_decref(json);
}

/* Asserts that two spans of the same row are either nested or disjoint. */
static void assert_nested(const json_t *json, int pid) {
    const json_t *a, *b;
    for (int i = 0; (a = record(json, "X", pid, i)); i++)
        for (int k = 0; k < i && (b = record(json, "X", pid, k)); k++) {
            if (number_of(a, "tid") != number_of(b, "tid")) continue;
            int64_t a0 = (int64_t)(number_of(a, "ts") * 1000 + 0.5),
                    b0 = (int64_t)(number_of(b, "ts") * 1000 + 0.5);
            int64_t a1 = a0 + (int64_t)(number_of(a, "dur") * 1000 + 0.5);
            int64_t b1 = b0 + (int64_t)(number_of(b, "dur") * 1000 + 0.5);
            assert_true(a0 >= b1 || b0 >= a1 || (a0 >= b0 && a1 <= b1) || (b0 >= a0 && b1 <= a1));
        }
}

static void test_overlapping_spans_get_separate_rows(void **state) {
    Packed packed = {0};
    int64_t zero;
    Trace *trace = trace_at_zero(256, &zero);
    zero += 1000000;
    trace_add(trace, TRACE_COMPUTE, &step, zero, zero + 100, 1, 0);
    trace_add(trace, TRACE_COMPUTE, &forward, zero + 10, zero + 40, 0, 0);
    trace_add(trace, TRACE_COMPUTE, &forward, zero + 40, zero + 100, 1, 0);
    unsigned seed = 7;
    for (int i = 0; i < 100; i++) {
        seed = seed * 1664525u + 1013904223u;
        int64_t start = zero + (seed >> 20), length = (seed >> 8) % 200;
        trace_add(trace, TRACE_COMM, &sending, start, start + length, 0, i);
    }
    pack(&packed, trace, 0, "rank 0");
    json_t *json = write_and_read(&packed, folder_path(*state, "trace.json"));
    assert_nested(json, 0);
    /* Nested spans share a row, with the outer span first. */
    for (int i = 0; i < 3; i++) assert_int_equal(number_of(record(json, "X", 0, i), "tid"), 0);
    assert_string_equal(text_of(record(json, "X", 0, 0), "name"), "step");
    assert_non_null(record(json, "X", 0, 102));
    json_decref(json);
}

static void test_full_traces_count_lost_spans(void **state) {
    Packed packed = {0};
    int64_t zero;
    Trace *trace = trace_at_zero(2, &zero);
    for (int i = 0; i < 5; i++) trace_add(trace, TRACE_COMPUTE, &step, zero + i, zero + i + 1, i, 0);
    assert_int_equal(trace_count(trace), 2);
    pack(&packed, trace, 0, "");
    json_t *json = write_and_read(&packed, folder_path(*state, "trace.json"));
    assert_int_equal(number_of(json_object_get(json, "otherData"), "spans_lost"), 3);
    assert_null(record(json, "X", 0, 2));
    json_decref(json);
    trace_add(NULL, TRACE_COMM, &step, 0, 1, 0, 0);
    trace_start(NULL);
    trace_free(NULL);
}

enum { EACH = 20000 };

static void *add_many(void *argument) {
    for (int i = 0; i < EACH; i++) trace_add(argument, TRACE_COMM, &sending, i, i + 1, i, i);
    return NULL;
}

static void test_threads_lose_nothing(void **state) {
    int64_t zero;
    Trace *trace = trace_at_zero(2 * EACH, &zero);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, add_many, trace), 0);
    add_many(trace);
    pthread_join(other, NULL);
    assert_int_equal(trace_count(trace), 2 * EACH);
    trace_free(trace);
}

static void test_damaged_traces_are_refused(void **state) {
    Packed packed = {0};
    int64_t zero;
    const char *path = folder_path(*state, "trace.json");
    Trace *trace = trace_at_zero(4, &zero);
    trace_add(trace, TRACE_COMPUTE, &forward, zero, zero + 1, 0, 0);
    pack(&packed, trace, 0, "rank 0");
    for (size_t size = 0; size < packed.size[0]; size++)
        assert_fails(trace_write(path, (const void *const *)packed.bytes, &size, 1), 1,
                     "rank 0 is malformed");
    unsigned char *bytes = packed.bytes[0];
    for (size_t i = 0; i < packed.size[0]; i++) {
        bytes[i] ^= 0xff; /* any result is fine, as long as it does not crash */
        status_free(trace_write(path, (const void *const *)packed.bytes, packed.size, 1));
        bytes[i] ^= 0xff;
    }
    free(packed.bytes[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ranks_become_processes, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_overlapping_spans_get_separate_rows, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(test_full_traces_count_lost_spans, folder_setup, folder_teardown),
        cmocka_unit_test(test_threads_lose_nothing),
        cmocka_unit_test_setup_teardown(test_damaged_traces_are_refused, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
