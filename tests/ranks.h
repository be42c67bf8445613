/* Support for tests that run as several ranks (tests/FOLDER/mpi_NAME.c).
 *
 * Such a file lists its rank counts in a comment line like " * Ranks: 2 3 4 8", after an empty comment line
 * so that clang-format does not join it with the text above; each count becomes a separate ctest test. The
 * file ends with RANKS_MAIN(tests). Every rank runs every test. A failed assertion aborts all ranks, which
 * would otherwise hang waiting for the failed one. WEFT_TEST_FILTER selects tests by name, with wildcards. */
#ifndef WEFT_TESTS_RANKS_H
#define WEFT_TESTS_RANKS_H

#include "device.h"
#include "test.h"

#include "comm/mpi.h"
#include "comm/staged.h"

/* *state of every test. */
typedef struct Ranks {
    Group *world;
    Device *device;
    Stream *stream;
} Ranks;

/* Whether collectives are staged through host memory: on a GPU, and with WEFT_TEST_GROUPS=staged. */
static inline bool ranks_staged(void) {
    const char *groups = getenv("WEFT_TEST_GROUPS");
    return test_on_cuda() || (groups && strcmp(groups, "staged") == 0);
}

static inline int ranks_setup(void **state) {
    static Ranks ranks;
    Group *world = NULL;
    assert_ok(mpi_world_new(&world));
    test_device_new(&ranks.device, 1);
    ranks.world = world;
    if (ranks_staged()) assert_ok(group_new_staged(&ranks.world, world, ranks.device));
    assert_ok(stream_new(&ranks.stream, ranks.device));
    *state = &ranks;
    return 0;
}

static inline int ranks_teardown(void **state) {
    Ranks *ranks = *state;
    stream_free(ranks->stream);
    group_free(ranks->world);
    test_device_free(ranks->device);
    return 0;
}

/* Makes failed assertions abort, and silences stdout on all ranks but 0. */
static inline void ranks_prepare(void) {
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    if (mpi_launched().rank > 0 && !freopen("/dev/null", "w", stdout)) exit(1);
}

#define RANKS_MAIN(tests)                                                                                    \
    int main(void) {                                                                                         \
        ranks_prepare();                                                                                     \
        if (getenv("WEFT_TEST_FILTER")) cmocka_set_test_filter(getenv("WEFT_TEST_FILTER"));                  \
        return cmocka_run_group_tests(tests, ranks_setup, ranks_teardown);                                   \
    }

#endif
